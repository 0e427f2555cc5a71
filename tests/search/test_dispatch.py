"""Kernels for ranges of an open size: which are chosen, where they part, and the schedule that selects among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl import load
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.reference.work import Sizing, sizing
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial
from tensorc_dsl.tuning.search.dispatch import WORTH, Candidate, grid_of, leaves, selected
from tensorc_dsl.tuning.search.expansion import FromText
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.options import Objective
from tests.search.landscape import DOES_NOT_FIT

TEXT = """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule rows for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_categorical([1, 2, 4, 8])
    let [i0, i1] = split(i, [_, rows], partial=true)
    reorder(i0, j, k, i1)
}
task any = matmul(M=1..64 at [1, 4, 16, 64], N=8, K=4) with rows
"""


Box = tuple[tuple[int, int], ...]


def trees(box: Box, most: int) -> Iterator[tuple[Box, ...]]:
    """All ways to cut a box into at most so many, each time along one axis."""
    yield (box,)
    if most == 1:
        return
    for axis, (first, last) in enumerate(box):
        for end in range(first, last):
            below = (*box[:axis], (first, end), *box[axis + 1 :])
            above = (*box[:axis], (end + 1, last), *box[axis + 1 :])
            for left in trees(below, most - 1):
                for right in trees(above, most - len(left)):
                    yield (*left, *right)


def total(cost: Array, boxes: Iterable[Box], objective: Objective) -> float:
    """The cost of the boxes, each with its best row."""
    parts: list[float] = []
    for box in boxes:
        inside = cost[(slice(None), *(slice(a, b + 1) for a, b in box))].reshape(len(cost), -1)
        parts.append(float((inside.max(axis=1) if objective == "worst" else inside.sum(axis=1)).min()))
    return max(parts) if objective == "worst" else sum(parts)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("shape", [(1,), (6,), (3, 3), (2, 2, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_the_tree_is_the_best_one(seed: int, shape: tuple[int, ...], objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.integers(1, 5))
    cost = rng.exponential(1.0, (int(rng.integers(1, 6)), *shape))
    found = leaves(cost, most, objective)
    covered = np.zeros(shape, int)
    for leaf in found:
        covered[tuple(slice(a, b + 1) for a, b in leaf.box)] += 1
    assert (covered == 1).all() and len(found) <= most
    whole = tuple((0, n - 1) for n in shape)
    best = {n: min(total(cost, t, objective) for t in trees(whole, n)) for n in range(1, most + 1)}
    own = total(cost, [leaf.box for leaf in found], objective)
    assert own == pytest.approx(best[len(found)])
    # A further kernel is worth its while, and none that was left out was.
    for n, least in best.items():
        assert own / (1 - WORTH) ** (len(found) - 1) <= least / (1 - WORTH) ** (n - 1) + 1e-9


def test_the_grid_has_the_ends_and_what_is_timed() -> None:
    one = grid_of([Dim("M", 1, 512, (1, 16, 128))], [{"M": 1}, {"M": 16}, {"M": 128}])
    assert one["M"][0] == 1 and one["M"][-1] == 512 and {1, 16, 128} <= {*one["M"]} and len(one["M"]) <= 41
    two = grid_of([Dim("M", 0, None), Dim("N", 1, 64)], [{"M": 3, "N": 7}, {"M": 40, "N": 9}])
    assert two["M"][0] == 0 and two["M"][-1] == 160 and {7, 9, 1, 64} <= {*two["N"]}
    assert grid_of([Dim("M", 1, 9), Dim("S", 1, 5)], [{"M": 1, "S": 5}, {"M": 9, "S": 5}])["S"] == [5]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    path = tmp_path / "task.tsched"
    path.write_text(TEXT)
    return load(str(path))["any"]


def candidate(task: Task, rows: int, seconds: tuple[float, ...]) -> Candidate:
    text = TEXT[TEXT.index("schedule") : TEXT.index("task")].replace("([1, 2, 4, 8])", f"([1, 2, 4, 8]) := {rows}")
    return Candidate(task.expand(Source("t", text)), seconds)


@pytest.mark.corpus
def test_candidates_are_joined(task: Task) -> None:
    few, many, other = (
        candidate(task, 1, (1.0, 4.0, 90.0, 300.0)),
        candidate(task, 8, (5.0, 6.0, 10.0, 40.0)),
        candidate(task, 4, (4.0, 7.0, 20.0, 60.0)),
    )
    every = [few, many, other]
    found = Sizing((), sizing(task.program).timed, (0.25,) * 4)
    expand = from_text(task)
    made = selected(task.program, found, every, 4, expand, unmodelled)
    assert made is not None and made.within > 0.0
    trace = made.trace
    assert trace.program.cases[0].sizes == ((1, 1),) and trace.program.cases[-1].sizes[0][1] == 64
    assert [d.decision for d in trace.draws] == [1, 1, 8]
    assert task.verify(trace) == Valid()
    assert task.expand(Source("t", trace.text)).text == trace.text
    assert selected(task.program, found, [many], 4, expand, unmodelled) is None
    assert selected(task.program, found, every, 1, expand, unmodelled) is None


def from_text(task: Task) -> FromText:
    """Expands a text as a search of the task does."""
    expand = task.plan().expand
    assert expand is not None
    return expand


def unmodelled(_trace: Trace, _sizes: Sizes) -> None:
    """No model knows cycles."""


@pytest.mark.corpus
def test_neighbours_part_where_the_rounds_of_tiles_say(task: Task) -> None:
    """Tiles of 8 rows take as long for 1 row as for 8; single rows are faster up to 3 of them."""
    found = Sizing((), sizing(task.program).timed, (0.25,) * 4)
    single = candidate(task, 1, (2.0, 8.0, 32.0, 128.0))
    tiles = candidate(task, 8, (7.0, 7.0, 14.0, 56.0))

    def rounds(trace: Trace, sizes: Sizes) -> float:
        rows = trace.draws[0].decision
        assert isinstance(rows, int)
        return -(-sizes["M"] // rows) * (7.0 if rows == 8 else 2.0)

    made = selected(task.program, found, [single, tiles], 4, from_text(task), rounds)
    assert made is not None
    assert [c.sizes for c in made.trace.program.cases] == [((1, 1),), ((2, 3),), ((4, 64),)]
    assert made.within < 0.05


@pytest.mark.corpus
def test_steps_that_apply_to_no_number_have_the_next_size_too(task: Task) -> None:
    """A case of one row is a number, and its loop is none: steps that name it apply to one row or two."""
    found, expand = Sizing((), sizing(task.program).timed, (0.25,) * 4), from_text(task)
    every = [candidate(task, 1, (1.0, 40.0, 90.0, 300.0)), candidate(task, 8, (9.0, 6.0, 10.0, 40.0))]

    def applying(text: str, decisions: Mapping[str, Decision]) -> Trace:
        if "  1 => {" in text:
            raise DOES_NOT_FIT(task.program)
        return expand(text, decisions)

    made = selected(task.program, found, every, 4, applying, unmodelled)
    assert made is not None and task.verify(made.trace) == Valid()
    assert [c.sizes for c in made.trace.program.cases] == [((1, 2),), ((3, 64),)]


@pytest.mark.corpus
def test_sizes_count_alike_unless_it_is_said_how_often_they_occur(tmp_path: Path, task: Task) -> None:
    """Few operations take as long as a call: times for an operation would leave the large sizes without a kernel."""
    times = (1.0, 8.0, 80.0, 800.0), (2.0, 6.0, 40.0, 320.0)
    path = tmp_path / "often.tsched"
    path.write_text(TEXT.replace("at [1, 4, 16, 64]", "like {1: 100000, 4: 1, 16: 1, 64: 1}"))
    often = load(str(path))["any"]
    chosen: list[int] = []
    for one in (task, often):
        both = [candidate(one, rows, t) for rows, t in zip((1, 8), times, strict=True)]
        made = selected(one.program, sizing(one.program), both, 4, from_text(one), unmodelled)
        chosen.append(0 if made is None else len(made.trace.program.cases))
    assert chosen == [3, 0]  # one row is a case of its own


@pytest.mark.corpus
def test_the_worst_case_has_another_choice(task: Task) -> None:
    found = Sizing((), sizing(task.program).timed, (0.97, 0.01, 0.01, 0.01))
    often, even = candidate(task, 1, (1.0, 8.0, 80.0, 800.0)), candidate(task, 8, (1.3, 4.0, 10.0, 40.0))
    chosen = {
        objective: selected(task.program, found, [often, even], 2, from_text(task), unmodelled, objective)
        for objective in ("mean", "worst")
    }
    assert chosen["worst"] is not None
    assert [d.decision for d in chosen["worst"].trace.draws][-1] == 8


@pytest.mark.corpus
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_a_search_tries_the_joined_one(task: Task, tmp_path: Path, objective: Objective) -> None:
    result = task.search(trials=4, kernels=4, objective=objective, seed=1, records=tmp_path / "r.sqlite", shipped=False)
    assert result.best is not None and not result.wrong
    kernel = task.replay(result.best)
    b = np.ones((4, 8), np.float32)
    for m in (1, 2, 5, 64):
        np.testing.assert_allclose(kernel(np.ones((m, 4), np.float32), b), np.full((m, 8), 4.0))
    with Database.required(tmp_path / "r.sqlite") as db:
        kept = [k.trial for k in db.all()]
    assert all(isinstance(t, Trial) and len(t.at) == 4 for t in kept if isinstance(t, Trial) and t.seconds is not None)
    again = task.search(
        trials=4, kernels=4, objective=objective, seed=1, records=tmp_path / "r.sqlite", shipped=False, resume=True
    )
    assert {t.text for t in result.traces} <= {t.text for t in again.traces}


@pytest.mark.corpus
def test_what_selects_keeps_what_schedules_are_to_keep(task: Task, tmp_path: Path) -> None:
    kept = task.keeping(rows="M")
    result = kept.search(trials=4, kernels=4, seed=1, records=tmp_path / "r.sqlite", shipped=False)
    assert result.best is not None and kept.holds(result.best)
    assert all(kept.holds(t) for t in result.traces)
