"""Schedules that select by open sizes: one kernel for all of them, right at both ends, an error one past them."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from campaigns.random_steps import random_schedule
from tensorc_dsl import load
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.cases import Box, common, hull, narrowed, uncovered, whole, without
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Case, Program
from tensorc_dsl.lower.flat import Kernel
from tensorc_dsl.proof.equivalence.validate import Invalid, Valid, validate
from tests.open.random_open import CASES, check_everywhere, open_program, random_sizes

MATMUL = """
compute matmul(A: f32[M, K], B: const f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule by_rows for matmul {
    let [i, j, k] = C.loops
    let [j0, j1] = split(j, [_, 4])
    select M {
        1 => { reorder(j0, k, j1); vectorize(j1) }
        2..16 => {
            let panel = cache_read(C, B)
            transform_layout(panel, (k, j) -> (j / 4, k, j % 4))
            let [i0, i1] = split(i, [_, 4], partial=true)
            reorder(i0, j0, k, i1, j1)
            vectorize(j1)
        }
        _ => {
            let panel = cache_read(C, B)
            transform_layout(panel, (k, j) -> (j / 4, k, j % 4))
            let rows ~ sample_categorical([2, 8]) := 8
            let [i0, i1] = split(i, [_, rows], partial=true)
            reorder(i0, j0, k, i1, j1)
            parallel(i0)
        }
    }
}
task any = matmul(M=1..40, N=12, K=5) with by_rows
"""


def points(box: Box) -> set[tuple[int, ...]]:
    """All sizes in a box with ends."""
    return set(product(*(range(low, low if high is None else high + 1) for low, high in box)))


def test_boxes_are_exact() -> None:
    rng = random.Random(1)

    def drawn() -> tuple[int, int]:
        low = rng.randint(0, 6)
        return low, low + rng.randint(0, 6)

    for _ in range(300):
        boxes: list[Box] = [(drawn(), drawn()) for _ in range(3)]
        one, two, three = map(points, boxes)
        left = without(without([boxes[0]], boxes[1]), boxes[2])
        assert sorted(x for b in left for x in points(b)) == sorted(one - two - three)
        both = common(boxes[0], boxes[1])
        assert (set() if both is None else points(both)) == one & two
        assert one | two <= points(hull(boxes[:2]))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("select") / "select.tsched"
    path.write_text(MATMUL)
    return str(path)


def test_one_kernel_is_right_at_all_sizes(file: str) -> None:
    task = load(file)["any"]
    kernel = task.replay(task.sample(0))
    rng = np.random.default_rng(0)
    b = rng.random((5, 12), np.float32)
    bound = kernel.bind(B=b)
    for m in range(1, 41):
        a = rng.random((m, 5), np.float32)
        for call in (lambda a: kernel(a, b), bound):
            np.testing.assert_allclose(call(a), a @ b, rtol=1e-5)
    for m in (0, 41):
        with pytest.raises(ValueError, match="M"):
            kernel(np.zeros((m, 5), np.float32), b)


def test_a_case_of_one_size_has_the_number(file: str) -> None:
    task = load(file)["any"]
    program = task.sample(0).program
    first, second, last = program.cases
    assert [c.sizes for c in program.cases] == [((1, 1),), ((2, 16),), ((17, 40),)]
    assert first.program.dims == () and "M" not in format_program(first.program).split("{", 1)[1]
    assert [d.low for d in (*second.program.dims, *last.program.dims)] == [2, 17]


def test_it_is_printed_and_read_back_and_proved(file: str) -> None:
    task = load(file)["any"]
    trace = task.sample(0)
    assert parse_program(Source("t", format_program(trace.program))) == trace.program
    assert task.expand(Source("t", trace.text)).text == trace.text
    assert task.verify(trace) == Valid()
    wrong = replace(trace.program, cases=trace.program.cases[:2])
    assert not isinstance(validate(task.program, wrong), Valid)
    broken = trace.program.cases[1].program
    narrow = replace(broken, body=broken.body[:1])
    cases = (trace.program.cases[0], replace(trace.program.cases[1], program=narrow), trace.program.cases[2])
    assert isinstance(validate(task.program, replace(trace.program, cases=cases)), Invalid)


def test_cases_that_prepare_the_same_share_it(file: str) -> None:
    task = load(file)["any"]
    kernel = task.lower(task.sample(0))
    assert isinstance(kernel, Kernel)
    assert [p.name for p in kernel.prepared] == ["B_global"]


def test_a_draw_in_a_case_is_opened_and_conditioned(file: str) -> None:
    task = load(file)["any"].opened(["rows"])
    assert [d.name for d in task.sample(0).open_draws] == ["rows"]


@pytest.mark.parametrize(("low", "high", "missing"), [(0, 40, "M = 0"), (1, 10, "")])
def test_all_sizes_of_the_task_have_a_case(tmp_path: Path, low: int, high: int, missing: str) -> None:
    text = MATMUL.replace("M=1..40", f"M={low}..{high}").replace("_ => {\n", "17..40 => {\n")
    path = tmp_path / "f.tsched"
    path.write_text(text)
    if missing:
        with pytest.raises(TschedError, match="E0561"):
            load(str(path))
    else:
        task = load(str(path))["any"]
        assert [c.sizes for c in task.sample(0).program.cases] == [((1, 1),), ((2, 10),)]


def test_sizes_within_a_case_have_one_too(tmp_path: Path) -> None:
    inner = "_ => { select M { 17..20 => { }; 22..90 => { } } }\n"
    start = MATMUL.index("        _ => {")
    text = MATMUL[:start] + inner + "    }\n}\ntask any = matmul(M=1..40, N=12, K=5) with by_rows\n"
    path = tmp_path / "f.tsched"
    path.write_text(text)
    with pytest.raises(TschedError, match="E0561: no case has M = 21"):
        load(str(path))


def divided(p: Program, rng: random.Random, depth: int = 2) -> Program:
    """The program with random cases, each with random steps; some are divided again."""
    names = tuple(d.name for d in rng.sample(p.dims, rng.randint(1, len(p.dims))))
    rest = [whole(p.dims, names)]
    cases: list[Case] = []
    while rest:
        box = rest[0] if len(cases) == 3 else _part(hull(rest), rng)
        if len(cases) >= 4:
            box = whole(p.dims, names)
        left = [x for b in rest if (x := common(b, box)) is not None]
        if left:
            rest = without(rest, box)
            inner = narrowed(p, names, hull(left))
            again = depth > 1 and inner.dims and rng.random() < 0.3
            made = divided(inner, rng, depth - 1) if again else random_schedule(inner, rng, 6)[0]
            cases.append(Case(hull(left), made))
    if len(cases) == 1:
        return cases[0].program
    return replace(p, buffers=(), body=(), divided_by=names, cases=tuple(cases))


def _part(box: Box, rng: random.Random) -> Box:
    out: list[tuple[int, int]] = []
    for low, high in box:
        assert high is not None
        a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
        out.append((a, b))
    return tuple(out)


@pytest.mark.corpus
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_random_cases(name: str, seed: int) -> None:
    rng = random.Random(f"select {name} {seed}")
    p = open_program(name, rng)
    while not p.dims:
        p = open_program(name, rng)
    found = divided(p, rng)
    while not found.cases:
        found = divided(p, rng)
    assert uncovered(found) is None
    assert parse_program(Source("t", format_program(found))) == found
    check_everywhere(p, found, random_sizes(p, rng, 6), seed, orders=True)
