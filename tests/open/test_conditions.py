"""Conditions on open sizes: what proofs, dispatch, calls and drawn sizes know of them, and that calls outside are errors."""

from __future__ import annotations

import ctypes
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.judge import isolated
from campaigns.random_steps import random_schedule
from tensorc_dsl import Task, load, loads
from tensorc_dsl.backend.llvm.ahead.interface import Status
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.cases import common, occurs, whole
from tensorc_dsl.ir.expr import Binary, Compare, CompareOp, Dim, Expr, Logic, index
from tensorc_dsl.ir.nameless import nameless
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.sizes import SizeError, bind, broken_by, conditions_of, holds, limited, nearest
from tensorc_dsl.proof.equivalence.rows import same_rows
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid
from tensorc_dsl.proof.sets.sets import dim_conditions, points
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.measure.check import read_only
from tensorc_dsl.tuning.search.dispatch import Candidate, selected
from tests.ahead.made import needs_compiler
from tests.open.random_open import check_everywhere, open_program, random_sizes

LAST = """
compute last(X: f32[N, D]) -> Y: f32[M, D] where M <= N {
    Y[i, d] = X[i + N - M, d]
}
schedule rows for last {
    let [i, d] = Y.loops
    let [d0, d1] = split(d, [_, 8])
    vectorize(d1)
}
schedule selects for last {
    select M, N {
        1..8, 1..8 => { vectorize(Y.loops[1]) }
        1..8, _ => { }
        9..40, 9..40 => {
            let [i, d] = Y.loops
            let [i0, i1] = split(i, [_, 4], partial=true)
            reorder(i0, d, i1)
        }
    }
}
"""
TASK = LAST + "task tail = last(M=1..40, N=1..40, D=16) with "
SUMS = """
compute sums(X: f32[N], Z: f32[M]) -> Y: f32[M, N] { Y[i, j] = X[j] + Z[i] }
use std.cpu.{default}
task tail = sums(M=1..40, N=1..40) where """


def task(text: str) -> Task:
    return loads(text)["tail"]


def test_it_is_printed_and_read_back(tmp_path: Path) -> None:
    program = task(TASK + "rows").program
    text = format_program(program)
    assert "where N in 1..40, M in 1..40, M <= N {" in text
    assert parse_program(Source("t", text)) == program
    other = parse_program(Source("t", text.replace("M", "P").replace("N", "Q")))
    assert nameless(other) == nameless(program)


def test_proofs_use_it() -> None:
    with pytest.raises(TschedError, match="E0411"):
        loads(TASK.replace(" where M <= N", "") + "rows")
    found = task(TASK + "rows")
    assert found.verify(found.sample(0)) == Valid()


def test_a_compute_says_it_of_several_sizes_and_a_task_of_one() -> None:
    same = task(TASK + "rows").program
    assert task(TASK.replace(" with ", " where M <= N with ") + "rows").program == same
    odd = task(SUMS + "M != 7").program
    assert [bool(d.where) for d in odd.dims] == [False, True]
    with pytest.raises(TschedError, match="E0444"):  # the range of a task can say that
        loads(TASK.replace("where M <= N", "where M <= N, M >= 3") + "rows")


def test_a_multiple_beside_another_size() -> None:
    program = task(SUMS + "M <= N, N % 8 == 0").program
    assert [str(d.name) for d in program.dims] == ["N_by_8", "M"]
    assert "M <= N_by_8 * 8" in format_program(program)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("M * N <= 99", "E0444"),
        ("M < N, N < M", "E0444"),
        ("Q < 3", "E0405"),
        ("M + 1", "E0444"),
        ("M > 40", "E0444"),
    ],
)
def test_what_is_no_condition_is_an_error(said: str, code: str) -> None:
    with pytest.raises(TschedError, match=code):
        loads(SUMS + said)


@pytest.mark.parametrize("most", [2**60, 2**50])
def test_a_condition_that_leaves_64_bits_is_an_error(most: int) -> None:
    """At 2 ** 60 rows without elements it was met by the number that it wrapped around to."""
    text = f"""
compute few(A: i8[M, 0], B: i8[N, 0]) -> Y: i32[8] where 16 * M <= N {{ Y[i] = i32(1) if i < M else i32(0) }}
schedule plain for few {{ }}
task tail = few(M=0..{most}, N=0..100) with plain
"""
    if most == 2**60:
        with pytest.raises(TschedError, match="E0404"):
            task(text)
        return
    found = task(text)
    kernel = found.replay(found.sample(0))
    few = np.empty((50, 0), np.int8)
    assert kernel(few[:3], few).sum() == 3
    for rows in (4, most):
        for _ in range(2):
            with pytest.raises(ValueError, match="kernel takes"):
                kernel(np.empty((rows, 0), np.int8), few)


@pytest.mark.parametrize("name", ["rows", "selects"])
def test_calls_outside_are_errors_and_all_others_are_right(name: str) -> None:
    found = task(TASK + name)
    kernel = found.replay(found.sample(0))
    x = np.random.default_rng(0).random((41, 16), np.float32)
    for m, n in product(range(42), repeat=2):
        y = np.zeros((m, 16), np.float32)
        if 1 <= m <= n <= 40:
            kernel(x[:n], y)
            assert np.array_equal(y, x[n - m : n])
        else:
            with pytest.raises(ValueError, match=r"kernel takes"):
                kernel(x[:n], y)
    with pytest.raises(ValueError, match=r"M is 9 from Y, N is 8 from X; this kernel takes M <= N"):
        kernel(x[:8], np.zeros((9, 16), np.float32))


def test_a_dispatch_needs_no_case_for_what_does_not_occur() -> None:
    found = task(TASK + "selects")
    trace = found.sample(0)
    assert found.verify(trace) == Valid()
    assert parse_program(Source("t", format_program(trace.program))) == trace.program
    assert found.expand(Source("t", trace.text)).text == trace.text
    with pytest.raises(TschedError, match="E0561: no case has"):
        loads(TASK.replace("9..40, 9..40", "10..40, 9..40") + "selects")
    with pytest.raises(TschedError, match="E0561: no case has"):
        loads(TASK.replace("9..40, 9..40", "9..40, 9..39") + "selects")


@pytest.mark.parametrize(("said", "box"), [("M <= 1", "1, _"), ("N - M <= 2, N + M <= 4", "_, 1..8")])
def test_a_case_may_be_the_only_one(said: str, box: str) -> None:
    """Its program is for fewer sizes than the ranges have, and the task's own is not."""
    only = f"schedule only for sums {{ select M, N {{ {box} => {{ parallel(Y.loops[0]) }}; _, _ => {{ }} }} }}"
    found = task(SUMS.replace("use std.cpu.{default}", only) + f"{said} with only")
    trace = found.sample(0)
    assert found.verify(trace) == Valid()
    assert parse_program(Source("t", format_program(trace.program))) == trace.program
    kernel = found.replay(trace)
    for m, n in product(range(1, 6), repeat=2):
        x, z = np.ones(n, np.float32), np.ones(m, np.float32)
        if broken_by(found.program.dims, {"M": m, "N": n}) is None:
            assert np.array_equal(kernel(x, z), np.full((m, n), 2, np.float32))
        else:
            with pytest.raises(ValueError, match="kernel takes"):
                kernel(x, z)


def test_a_case_has_what_is_left_of_it() -> None:
    trace = task(TASK.replace("9..40, 9..40", "9, _ => { }\n        9..40, 9..40") + "selects").sample(0)
    *_, nine, rest = trace.program.cases
    assert [(str(d.name), len(d.where)) for d in nine.program.dims] == [("N", 1)]
    with pytest.raises(SizeError, match="9 <= N"):
        bind(nine.program, {"N": 8})
    assert conditions_of(rest.program.dims)


def test_checked_and_timed_sizes_occur() -> None:
    for said in ("M <= N", "M + N == 41", "M % 3 == N % 3", "2 * M < N or N == 1"):
        program = task(SUMS + said).program
        found = sizing(program)
        every = (*found.checked, *found.timed)
        assert len(every) >= 4 and all(broken_by(program.dims, x) is None for x in every)
        assert len(found.weights) == len(found.timed)


def test_the_nearest_sizes_occur() -> None:
    m, n = Dim("M", 1, 512), Dim("N", 1, 512)
    dims = limited((m, n), (Compare("<=", m, n),))
    assert nearest(dims, {"M": 3, "N": 3}) == {"M": 3, "N": 3}
    assert nearest(dims, {"M": 9, "N": 8}) in ({"M": 8, "N": 8}, {"M": 9, "N": 9})
    timed = limited((m, Dim("N", 1, 512, (8,))), (Compare("<=", m, n),))
    assert nearest(timed, {"M": 512, "N": 8}) == {"M": 8, "N": 8}
    both = (Compare("==", Binary("%", m, index(7)), index(3)), Compare("==", Binary("%", n, index(7)), index(5)))
    found = nearest(limited((m, n), both), {"M": 1, "N": 1})
    assert found is not None and found["M"] % 7 == 3 and found["N"] % 7 == 5
    assert nearest(limited((m, n), (Compare(">", m, index(512)),)), {"M": 1, "N": 1}) is None


def test_sizes_of_which_several_have_to_change_are_found() -> None:
    m, n, p = (Dim(x, 1, 512) for x in "MNP")
    chain = tuple(Compare("==", a, Binary("*", index(2), b)) for a, b in ((m, n), (n, p)))
    assert nearest(limited((m, n, p), chain), {"M": 512, "N": 512, "P": 512}) == {"M": 512, "N": 256, "P": 128}
    text = """
compute c(X: f32[M, K], Y: f32[N], Z: f32[P]) -> S: f32[M, K] where M == 2 * N, N == 2 * P {
    S[i, k] = X[i, k] + Y[i / 2] + Z[i / 4]
}
use std.cpu.{default}
task tail = c(M=1..512, N=1..512, P=1..512, K=1..40) with default
"""
    found = task(text)
    made = sizing(found.program)
    assert made.timed and all(broken_by(found.program.dims, x) is None for x in (*made.checked, *made.timed))
    assert found.verify(found.sample(0)) == Valid()


def test_a_size_without_a_limit_does_not_matter_for_others() -> None:
    """Only dimensions of conditions that are not decided are halved: of one without a limit there would be too many parts."""
    m, n = (Dim(x, 1, 40) for x in "MN")
    alike = Compare("==", Binary("%", m, index(4)), Binary("%", n, index(4)))
    dims = (Dim("K"), *limited((m, n), (alike,)))
    assert not occurs(dims, "MN", ((1, 2), (3, 4)))
    assert occurs(dims, "MN", ((1, 2), (3, 6)))


OPS: tuple[CompareOp, ...] = ("<", "<=", ">", ">=", "==", "!=")


def drawn(rng: random.Random, names: list[Dim], deep: int = 1) -> Expr:
    """A random condition."""
    if deep and rng.random() < 0.3:
        return Logic(rng.choice(["and", "or"]), drawn(rng, names, 0), drawn(rng, names, 0))

    def size() -> Expr:
        some = rng.choice(names)
        match rng.randrange(5):
            case 0:
                return Binary("*", index(rng.randint(1, 3)), some)
            case 1:
                return Binary("%", some, index(rng.randint(2, 4)))
            case 2:
                return Binary("-", rng.choice(names), some)
            case 3:
                return Binary("/", some, index(rng.randint(2, 4)))
            case _:
                return some

    return Compare(rng.choice(OPS), size(), rng.choice([size(), index(rng.randint(0, 9))]))


def test_which_boxes_occur_is_exact_and_as_integer_sets_say() -> None:
    rng = random.Random(3)
    for _ in range(300):
        plain = [Dim(x, low := rng.randint(0, 5), low + rng.randint(0, 9)) for x in "MNP"]
        dims = limited(plain, tuple(drawn(rng, plain) for _ in range(rng.randint(1, 3))))
        told = conditions_of(dims)
        spans = [range(d.low, (d.high or 0) + 1) for d in dims]
        there = {x for x in product(*spans) if all(holds(c, dict(zip("MNP", x, strict=True))) for c in told)}
        box = tuple((a, b) for a, b in (sorted((rng.randint(0, 9), rng.randint(0, 9))) for _ in "MN"))
        inside = common(box, whole(dims, "MN"))
        wanted = inside is not None and any(
            all(a <= v <= (b or 0) for v, (a, b) in zip(x, inside, strict=False)) for x in there
        )
        assert (inside is not None and occurs(dims, "MN", inside)) == wanted
        by_sets = points([d.name for d in plain], dim_conditions(dims))
        assert by_sets.count_val().to_python() == len(there)
        begun = {d.name: rng.choice(spans[n]) for n, d in enumerate(dims)}
        near = nearest(dims, begun)
        assert (near is not None and tuple(near.values()) in there) if there else near is None


CONSTANTS = {
    "all": """
compute first(A: f32[M], W: const f32[N]) -> C: f32[M] where M <= N, M >= 40 {
    let P[k in 40] = W[k] * 2
    C[i] = A[i] + P[i % 40]
}
schedule plain for first { }
task tail = first(M=40..60, N=1..60) with plain
""",
    "a case": """
compute first(A: f32[M], W: const f32[N]) -> C: f32[M] where M <= N {
    let P[k in M] = W[k] * 2
    C[i] = A[i] + P[i]
}
schedule plain for first { select M { 40 => { }; _ => { } } }
task tail = first(M=1..60, N=1..60) with plain
""",
}
"""Programs of which constant inputs tell one size: nothing checks what is said of it and of another one before a call."""


@pytest.mark.parametrize("what", CONSTANTS)
def test_constants_of_a_size_that_never_occurs_are_not_read_beyond_their_end(what: str) -> None:
    found = task(CONSTANTS[what])
    kernel = found.replay(found.sample(0))
    rng = np.random.default_rng(0)

    def bind_few() -> str:
        kernel.bind(W=read_only(rng.random(3, np.float32)))
        return ""

    assert isolated(bind_few) == ""
    for m, n in ((40, 40), (40, 60), (57, 60)):
        a, w = rng.random(m, np.float32), rng.random(n, np.float32)
        want = a + 2 * w[np.arange(m) % (40 if what == "all" else m)]
        for got in (kernel(a, w), kernel.bind(W=w)(a)):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@needs_compiler
def test_c_calls_outside_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(TASK + "selects")
    found = load(str(path))["tail"]
    library = tmp_path / "tail.so"
    library.write_bytes(found.library(found.sample(0)).make("so"))
    assert "Sizes are such that M <= N" in found.library(found.sample(0)).make("header").decode()
    f: Any = ctypes.CDLL(str(library)).tail
    x, y = np.random.default_rng(0).random((41, 16), np.float32), np.zeros((41, 16), np.float32)
    names = [str(d.name) for d in found.program.dims]
    for m, n in product((0, 1, 2, 7, 8, 9, 39, 40, 41), repeat=2):
        y[:] = 0
        sizes = [ctypes.c_int64({"M": m, "N": n}[name]) for name in names]
        status = f(*sizes, ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)) & 255
        right = 1 <= m <= n <= 40
        assert status == (Status.OK if right else Status.SIZE)
        assert np.array_equal(y[:m], x[n - m : n]) if right else not y.any()


def test_a_search_selects_among_kernels_for_sizes_that_occur() -> None:
    found = loads(SUMS.replace("M=1..40, N=1..40", "M=1..40 at [1, 8, 40], N=1..40 at [4, 8, 40]") + "M <= N")["tail"]
    sizes = sizing(found.program)
    assert sizes.timed == ({"N": 4, "M": 1}, {"N": 8, "M": 8}, {"N": 40, "M": 40})
    expand = found.plan().expand
    assert expand is not None
    # Each of three is by far the fastest at one of the sizes.
    some = [Candidate(found.sample(seed), tuple(1e-6 if k == seed else 1e-3 for k in range(3))) for seed in range(3)]
    made = selected(found.program, sizes, some, 4, expand, lambda _, x: float(1000 + x["M"] * x["N"]))
    assert made is not None and len(made.trace.program.cases) >= 2
    assert found.verify(made.trace) == Valid()
    kernel = found.replay(made.trace)
    rng = np.random.default_rng(0)
    for m, n in ((1, 1), (1, 40), (8, 8), (9, 30), (40, 40)):
        x, z = rng.random(n, np.float32), rng.random(m, np.float32)
        np.testing.assert_allclose(kernel(x, z), x + z[:, None], rtol=1e-6)


SAID = ("{a} <= {b}", "{a} + {b} <= 30", "{a} % 2 == {b} % 2", "{a} < 2 * {b}", "{a} >= {b} or {a} % 3 == 1")


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv", "cumsum"])
@pytest.mark.parametrize("seed", range(2))
def test_random_schedules(name: str, seed: int) -> None:
    rng = random.Random(f"conditions {name} {seed}")
    sizes: list[dict[str, int]] = []
    plain = open_program(name, rng)
    program = plain
    while not sizes:
        while len(plain.dims) < 2:
            plain = open_program(name, rng)
        a, b = rng.sample([str(d.name) for d in plain.dims], 2)
        said = rng.choice(SAID).format(a=a, b=b)
        program = parse_program(Source("t", format_program(plain).replace(" where ", f" where {said}, ", 1)))
        near = (nearest(program.dims, x) for x in random_sizes(program, rng, 6))
        sizes = [dict(x) for x in near if x is not None]
        plain = plain if sizes else open_program(name, rng)
    made, _ = random_schedule(program, rng, 6)
    assert parse_program(Source("t", format_program(made))) == made
    check_everywhere(program, made, sizes, seed, orders=True)


def test_rows_have_the_same_bits_across_cases() -> None:
    text = """
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule selects for product {
    select M, N {
        1..4, _ => { reorder(C.loops[1], C.loops[0]) }
        5..40, 5..40 => {
            let [i, j, k] = C.loops
            let [i0, i1] = split(i, [_, 4], partial=true)
            reorder(i0, j, k, i1)
        }
    }
}
task tail = product(M=1..40, N=1..40, K=8) where M <= N with selects
"""
    program = task(text).sample(0).program
    assert same_rows(program, program, "M") == Valid()
    parts = text.replace("reorder(i0, j, k, i1)", "rfactor(C, split(k, [_, 4])[0])")
    other = task(parts).sample(0).program
    assert isinstance(same_rows(other, other, "M"), Unproved)
