"""Kernels for ranges of an open size: which are chosen, where they part, and the schedule that selects among them."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl import load
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.search.dispatch import WORTH, Candidate, last_of, segments, selected

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


def least(seconds: np.ndarray, most: int) -> float:
    """The least time of all ways to cut the sizes into so many ranges."""
    count = seconds.shape[1]
    found = float("inf")
    for parts in range(1, most + 1):
        for cut in combinations(range(1, count), parts - 1):
            ends = [0, *cut, count]
            found = min(found, sum(seconds[:, a:b].sum(axis=1).min() for a, b in pairwise(ends)))
    return float(found)


@pytest.mark.parametrize("seed", range(40))
def test_ranges_are_the_best_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, most = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    seconds = rng.exponential(1.0, (int(rng.integers(1, 6)), count))
    found = segments(seconds, most)
    assert [a for a, _ in found] == [0, *(b + 1 for _, b in found[:-1])] and found[-1][1] == count - 1
    total = sum(seconds[:, a : b + 1].sum(axis=1).min() for a, b in found)
    # A further range is worth its while, and one that was left out was not.
    assert total <= least(seconds, len(found)) + 1e-12
    assert len(found) <= most
    if len(found) > 1:
        assert total < (1 - WORTH) * least(seconds, len(found) - 1)
    if len(found) < min(most, count):
        assert least(seconds, len(found) + 1) >= (1 - WORTH) * total


def test_neighbours_part_where_lines_cross() -> None:
    assert last_of(10, 20, [1.0, 4.0], [2.0, 3.0]) == 15
    assert last_of(1, 2, [1.0, 4.0], [2.0, 3.0]) == 1
    assert last_of(4, 16, [1.0, 1.0], [1.0, 1.0]) == 8
    for _ in range(200):
        left = random.randint(1, 50)
        right = left + random.randint(1, 50)
        times = [[random.random(), random.random()] for _ in range(2)]
        assert left <= last_of(left, right, *times) < right


@pytest.fixture
def task(tmp_path: Path) -> Task:
    path = tmp_path / "task.tsched"
    path.write_text(TEXT)
    return load(str(path))["any"]


def candidate(task: Task, rows: int, seconds: tuple[float, ...]) -> Candidate:
    text = TEXT[TEXT.index("schedule") : TEXT.index("task")].replace("([1, 2, 4, 8])", f"([1, 2, 4, 8]) := {rows}")
    return Candidate(task.expand(Source("t", text)), seconds)


def test_candidates_are_joined(task: Task) -> None:
    found = sizing(task.program)
    few, many, other = (
        candidate(task, 1, (1.0, 4.0, 90.0, 300.0)),
        candidate(task, 8, (5.0, 6.0, 10.0, 40.0)),
        candidate(task, 4, (4.0, 7.0, 20.0, 60.0)),
    )
    every = [few, many, other]
    expand = lambda text: task.expand(Source("t", text))  # noqa: E731
    trace = selected(task.program, found.timed, (1.0,) * 4, every, 4, expand)
    assert trace is not None
    assert [c.sizes for c in trace.program.cases] == [((1, 1),), ((2, 4),), ((5, 64),)]
    assert [d.decision for d in trace.draws] == [1, 1, 8]
    assert task.verify(trace) == Valid()
    assert task.expand(Source("t", trace.text)).text == trace.text
    assert selected(task.program, found.timed, (1.0,) * 4, [many], 4, expand) is None
    assert selected(task.program, found.timed, (1.0,) * 4, every, 1, expand) is None


def test_a_search_tries_the_joined_one(task: Task, tmp_path: Path) -> None:
    result = task.search(trials=4, kernels=4, seed=1, records=tmp_path / "r.sqlite", shipped=False)
    assert result.best is not None and not result.wrong
    kernel = task.replay(result.best)
    b = np.ones((4, 8), np.float32)
    for m in (1, 2, 5, 64):
        np.testing.assert_allclose(kernel(np.ones((m, 4), np.float32), b), np.full((m, 8), 4.0))
