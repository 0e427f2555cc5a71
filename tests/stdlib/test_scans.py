"""Draws from the default space for scans are proved, and compute what the reference does."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import pytest

from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.expr import constant, free_vars, index
from tensorc_dsl.ir.program import Block, For, LoopKind, walk
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.codegen.native import require_right
from tests.stdlib.scans import SCANS, text
from tests.stdlib.stencils import STENCILS


def task(name: str, h: int, w: int, dtype: str = "f32") -> Task:
    return loads(text(name, h, w, dtype), threads=2)["t"]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "h", "w", "dtype"),
    [*((name, 37, 53, "f32") for name in SCANS), ("four", 35, 130, "i16"), ("summed_area", 35, 130, "i16")],
)
def test_a_draw_is_proved_and_right(name: str, h: int, w: int, dtype: str) -> None:
    t = task(name, h, w, dtype)
    trace = t.sample(len(name) + h)
    assert trace.refused == ()
    assert isinstance(validate(t.program, trace.program), Valid)
    require_right(t, [trace])


@pytest.mark.parametrize(("rows", "read", "its"), [(1, "y", 1), (37, "0", 1), (37, "y / 32", 2)])
def test_a_single_row_is_not_turned(rows: int, read: str, its: int) -> None:
    """A copy of one row has no loop over rows: the rule was refused, or took an index of its loops that was not there."""
    t = loads(
        f"""use std.cpu.{{default}}
compute filtered(X: f32[{its}, 40]) -> Y: f32[{rows}, 40] {{
    let S[y in {rows}, x in 40] = scan[x] init X[{read}, 0] step 0.25 * X[{read}, x] + 0.5 * S[y, x - 1]
    Y[y in {rows}, x in 40] = S[y, x] + 1.0
}}
task t = filtered() with default
""",
        threads=2,
    )["t"]
    for seed in range(2):
        trace = t.sample(seed)
        assert trace.refused == ()
        assert isinstance(validate(t.program, trace.program), Valid)
        require_right(t, [trace])


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "kept", "moves"),
    [
        ("jacobi", 2, 1),
        ("border_of_zeros", 2, 1),
        ("wave", 3, 1),
        ("upwind", 2, 2),
        ("wide", 2, 1),
        ("heat", 2, 1),
        ("every_step", None, 1),
        ("back", 2, 1),
    ],
)
def test_steps_go_in_tiles_and_few_are_kept(name: str, kept: int | None, moves: int) -> None:
    t = loads(STENCILS[name].text, threads=2)["t"]
    # Nothing is unrolled, so that it is built soon.
    trace = t.drawn_from(condition(t.model, {"time": "tiles", "waves": True, "step": 0})).sample(0)
    assert trace.refused == ()
    assert ("fold_scan" in trace.text) == (kept is not None)
    assert kept is None or trace.program.buffer("S").shape[0] == index(kept)
    assert trace.text.count("skew(") == moves + 1
    assert any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for _, s in walk(trace.program.body[:1]))
    assert isinstance(validate(t.program, trace.program), Valid)
    require_right(t, [trace])


@pytest.mark.parametrize(
    ("name", "rows"), [("jacobi", ["align.1"]), ("wave", ["align.1"]), ("heat", ["align.2"]), ("every_step", [])]
)
def test_rows_that_are_kept_begin_at_whole_vectors(name: str, rows: list[str]) -> None:
    """A vector in two lines of a cache takes two loads."""
    t = loads(STENCILS[name].text, threads=2)["t"]
    trace = t.drawn_from(condition(t.model, {"lines": True})).sample(0)
    assert dict(trace.program.buffer("S").annotations) == dict.fromkeys(rows, t.target.vector_bits // 32)


def strip(t: Task, pinned: str) -> set[str]:
    """The blocks in the parallel loop that computes the result, in a draw with `pinned` in which no stage is left out."""
    for seed in range(20):
        trace = t.sample(seed)
        if pinned in trace.text and ":= false" not in trace.text:
            loops = [s for _, s in walk(trace.program.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
            return {s.name for _, s in walk(loops[-1].body) if not isinstance(s, For)}
    raise AssertionError("it is not drawn")


def test_both_directions_run_in_the_same_strip() -> None:
    assert strip(task("flipped", 64, 256), "width") >= {"D", "U"}
    assert strip(task("four", 64, 256), ':= "turned"') == {"B_global", "C", "Y", "Y_write"}


def test_scans_along_rows_leave_those_along_columns_before_them() -> None:
    """A strip of rows has no whole columns."""
    assert strip(task("summed_area", 64, 256), "width") == {"Y"}


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("parameters", "step", "sizes"),
    [
        ("X: f32[N]", "scan[t] init X[0] step 0.5 * Y[t - 1] + X[t]", "N=1087"),
        ("X: i16[M, N]", "scan[t] init X[i, N - 1] step max(Y[i, t - 1], X[i, N - 1 - t])", "M=3, N=2111"),
        ("X: f64[N, M]", "scan[t] init X[0, i] step Y[t - 1, i] + X[t, i]", "M=2, N=1024"),
        ("X: f32[N]", "scan[t] init X[0] step (X[t] if X[t] > X[t - 1] else Y[t - 1] + X[t])", "N=1087"),
        (
            "X: i16[M, N]",
            "scan[t] init X[i, 0] step (Y[i, t - 1] * X[i, t] + 3 if X[0, t] > 0 else X[i, t])",
            "M=3, N=2111",
        ),
    ],
)
def test_scans_of_few_columns_are_in_lanes(parameters: str, step: str, sizes: str) -> None:
    indices = "t" if "[N]" in parameters else "t, i" if "[N, M]" in parameters else "i, t"
    shape = parameters.removeprefix("X: ")
    t = loads(
        f"""use std.cpu.{{default}}
compute scanned({parameters}) -> Y: {shape} {{ Y[{indices}] = {step} }}
task t = scanned({sizes}) with default
""",
        threads=2,
    )["t"]
    trace = t.drawn_from(condition(t.model, {"chunks": True})).sample(len(step))
    assert "split_scan" in trace.text
    assert trace.refused == ()
    assert isinstance(validate(t.program, trace.program), Valid)
    require_right(t, [trace])


STEPS = {
    "a recurrent layer": (
        """compute f(X: f32[T, B, N], W: f32[N, N]) -> H: f32[T, B, N] {
    H[t, b, j] = scan[t] init X[0, b, j] step tanh(X[t, b, j] + (sum[k] H[t - 1, b, k] * W[k, j]))
}""",
        "T=7, B=13, N=37",
        13 * 37,
    ),
    "the last state": (
        """compute f(X: f32[T, B, N], W: f32[N, N]) -> Y: f32[B, N] {
    let H[t, b, j] = scan[t] init X[0, b, j] step tanh(X[t, b, j] + (sum[k] H[t - 1, b, k] * W[k, j]))
    Y[b, j] = H[T - 1, b, j] if T >= 1 else 0.0
}""",
        "T=9, B=1, N=32",
        3 * 32,
    ),
    "a triangular solve": (
        """compute f(L: f64[N, N], B: f64[N, M]) -> X: f64[N, M] {
    X[i, j] = scan[i]
        init B[0, j] / (8.0 + abs(L[0, 0]))
        step (B[i, j] - (sum[k in N] (L[i, k] * X[k, j] if k < i else 0.0))) / (8.0 + abs(L[i, i]))
}""",
        "N=31, M=19",
        19,
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_sums_in_the_steps_of_a_scan_are_tiled_and_kept_for_one_step(case: str) -> None:
    """All steps were kept, and the lanes of a sum for each of them."""
    compute, sizes, most = STEPS[case]
    t = loads(f"use std.cpu.{{default}}\n{compute}\ntask t = f({sizes}) with default\n", threads=2)["t"]
    traces = [t.drawn_from(condition(t.model, {"tiles": True})).sample(seed) for seed in range(3)]
    for trace in traces:
        assert trace.refused == ()
        assert isinstance(validate(t.program, trace.program), Valid)
        assert sum(prod(constant(d) or 0 for d in b.shape) for b in trace.program.buffers) <= most
    require_right(t, traces)


def test_parts_of_the_sums_in_a_step_are_combined_in_it() -> None:
    """A column of Cholesky's factor: lanes of the sums of all columns were kept, which took twenty times as long."""
    t = loads(
        """use std.cpu.{default}
compute cholesky(A: f64[N, N]) -> L: f64[N, N] {
    L[i, j] = scan[j]
        init A[i, 0] / (8.0 + abs(A[0, 0]))
        step (A[i, j] - (sum[k in N] (L[i, k] * L[j, k] if k < j else 0.0)))
            / (8.0 + abs(A[j, j] - (sum[k in N] (L[j, k] * L[j, k] if k < j else 0.0))))
}
task t = cholesky(N=67) with default
""",
        threads=1,
    )["t"]
    traces = [t.drawn_from(condition(t.model, {"in_lanes": True})).sample(seed) for seed in range(3)]
    for trace in traces:
        assert isinstance(validate(t.program, trace.program), Valid)
        assert sum(prod(constant(d) or 0 for d in b.shape) for b in trace.program.buffers) <= 67 + 1 + (67 + 1) * 64
    require_right(t, traces)


COLUMNS = {
    "a matrix": (
        """compute f(A: f64[N, N]) -> L: f64[N, N] {
    let c[j, i] = scan[j]
        init A[i, 0] / (8.0 + abs(A[0, 0]))
        step (A[i, j] - (sum[k in N] (c[k, i] * c[k, j] if k < j else 0.0))) / (8.0 + abs(A[j, j]))
    L[i, j] = c[j, i] if i >= j else 0.0
}""",
        ["N=67", "N=9", "N=0..100"],
    ),
    "matrices": (
        """compute f(A: f32[B, N, N]) -> L: f32[B, N, N] {
    let c[j, b, i] = scan[j]
        init A[b, i, 0] / (8.0 + abs(A[b, 0, 0]))
        step (A[b, i, j] - (sum[k in N] (c[k, b, i] * c[k, b, j] if k < j else 0.0))) / (8.0 + abs(A[b, j, j]))
    L[b, i, j] = c[j, b, i]
}""",
        ["B=3, N=37", "B=1, N=16", "B=3, N=1..60"],
    ),
    "positions": (
        """compute f(A: f64[N, N]) -> L: f64[N, N] {
    let c[j, i] = scan[j]
        init A[i, 0]
        step A[j, i] + 0.1 * f64(argmax[k in N] (c[k, i] + c[k, j] if k < j else -9.0))
    L[i, j] = c[j, i]
}""",
        ["N=41"],
    ),
}


def require_right_at(t: Task, trace: Trace, sizes: Iterable[int]) -> None:
    """The kernel of the trace, for open `N`, computes `L` of `A` at these sizes."""
    kernel = t.replay(trace)
    for n in sizes:
        program = bind(t.program, {"N": n})
        inputs = make_inputs(program, n)
        want, allowed = bounded(program, inputs)
        assert (abs(kernel(inputs["A"]) - want["L"]) <= allowed["L"]).all()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("case", "sizes"), [(case, sizes) for case, (_, all_of) in COLUMNS.items() for sizes in all_of]
)
def test_sums_over_columns_of_earlier_steps_run_in_strips(case: str, sizes: str) -> None:
    """Their lanes ran along the terms, which are a row apart from each other: 90 times NumPy's time for Cholesky's factor."""
    t = loads(f"use std.cpu.{{default}}\n{COLUMNS[case][0]}\ntask t = f({sizes}) with default\n", threads=2)["t"]
    for seed in range(3):
        trace = t.drawn_from(condition(t.model, {"tiles": True})).sample(seed)
        assert trace.refused == ()
        assert isinstance(validate(t.program, trace.program), Valid)
        around, sums = next((at, b) for at, b in walk(trace.program.body) if isinstance(b, Block) and b.is_reduction)
        assert around[-1].kind is LoopKind.VECTORIZED
        assert [it.name for it in sums.iters if around[-1].var in free_vars(it.binding)] == ["vi"]
        if ".." not in sizes:
            require_right(t, [trace])
            continue
        require_right_at(t, trace, (int(sizes.partition("..")[0][-1]), 2, 31, 47))


def test_sums_along_rows_of_earlier_steps_have_no_strips() -> None:
    """The elements of a strip would be a row apart."""
    text = COLUMNS["a matrix"][0].replace("c[j, i]", "c[i, j]").replace("c[k, i] * c[k, j]", "c[i, k] * c[j, k]")
    t = loads(f"use std.cpu.{{default}}\n{text}\ntask t = f(N=67) with default\n", threads=2)["t"]
    assert all("tiles ~" not in t.sample(seed).text for seed in range(3))


ELIMINATION = """compute f(A: f64[N, N]) -> L: f64[N, N]
assume A positive_definite
{
    let S[k in N, i in N, j in N] = scan[k]
        init A[i, j]
        step (
            S[k - 1, i, j] - S[k - 1, i, k - 1] * S[k - 1, j, k - 1] / S[k - 1, k - 1, k - 1] if i >= k and k <= j <= i
            else S[k - 1, i, j]
        )
    L[i, j] = S[N - 1, i, j] / sqrt(S[N - 1, j, j]) if j <= i else 0.0
}"""
DIFFUSION = """compute f(A: f64[N, N]) -> L: f64[N, N] {
    let S[t in N, i in N, j in N] = scan[t]
        init A[i, j]
        step (0.5 * S[t - 1, i, j] + 0.25 * (S[t - 1, i - 1, j] + S[t - 1, i, j - 1])
            if i >= 1 and j >= 1 else S[t - 1, i, j])
    L[i, j] = S[N - 1, i, j]
}"""


@pytest.mark.parametrize("compute", [ELIMINATION, DIFFUSION], ids=["elimination", "diffusion"])
def test_of_steps_over_open_sizes_two_are_kept(compute: str) -> None:
    """All were, N³ elements: how many are read was asked of known sizes alone."""
    t = loads(f"use std.cpu.{{default}}\n{compute}\ntask t = f(N=1..60) with default\n", threads=2)["t"]
    for seed in range(2):
        trace = t.sample(seed)
        assert trace.refused == ()
        assert trace.program.buffer("S").shape[0] == index(2)
        assert isinstance(validate(t.program, trace.program), Valid)
        require_right_at(t, trace, (1, 2, 3, 17, 60))
