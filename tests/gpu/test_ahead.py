"""Reads that are checked before a nest of loops: what is wrong is told as without that, and as much is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.cuda.emulation import run
from tensorc_dsl.backend.cuda.emulation.coroutine import emulation_module
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.emulation.statements import Watched
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Barrier, Device, DeviceProgram, Local, Phase
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Compare, Const, Expr, Load, Select, Var, add, index, mul
from tensorc_dsl.ir.program import LoopKind, Program, Store
from tensorc_dsl.lower.flat import Flat, If, Loop
from tensorc_dsl.reference.evaluate import shape_of
from tests.gpu.tensor_cores import whole_numbers
from tests.gpu.test_emulation import FILL, N, get, kernel
from tests.stdlib.gpu_checks import task

T, I, J = Var(THREAD), Var("i"), Var("j")
AHEAD = "call i1 @tensorc_ahead("


def both(p: DeviceProgram, patch: pytest.MonkeyPatch, order: str = "forward") -> list[str]:
    """The faults of a kernel on X, with reads checked before nests and without."""
    out: list[str] = []
    for least in (0, 10**9):
        patch.setattr(run, "_LEAST", least)
        x = aligned_empty((2 * N,), np.dtype(np.float32))
        x[...] = np.arange(2 * N)
        out.append(emulation(p).run({"X": x}, {}, order))
    return out


def loop(var: str, count: int, *body: Flat, kind: LoopKind = LoopKind.SERIAL) -> Loop:
    return Loop(var, index(0), index(count), kind, body)


def sums(at: Expr, *, rows: int = 2, columns: int = 2) -> Phase:
    """A thread adds up elements of S."""
    store = Store("L", (index(0),), add(Load("L", (index(0),), F32), get("S", at)))
    return Phase((Store("L", (index(0),), Const(0.0, F32)), loop("i", rows, loop("j", columns, store))))


def with_sum(*body: Device) -> DeviceProgram:
    p = kernel(*body, Phase((Store("X", (T,), Load("L", (index(0),), F32)),)))
    return replace(p, kernels=tuple(replace(k, local=(Local("L", F32, 1),)) for k in p.kernels))


VECTOR = Phase(
    (
        loop(
            "i",
            2,
            loop("v", 4, Store("W", (Var("v"),), get("S", add(Var("v"), add(I, index(0))))), kind=LoopKind.VECTORIZED),
        ),
    )
)
"""Vectors that begin at elements 0 and 1."""

WRONG: Mapping[str, tuple[Device, ...]] = {
    "a race": (FILL, sums(add(mul(I, index(2)), J))),
    "a race in the last iteration": (FILL, Barrier(), FILL, sums(add(mul(I, index(6)), J))),
    "outside, behind": (FILL, Barrier(), sums(add(mul(I, index(N)), J))),
    "outside, before": (FILL, Barrier(), sums(add(mul(I, index(-1)), J))),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_as_where_each_read_is_checked(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = with_sum(*WRONG[case])
    assert AHEAD in emulation_module(p, ahead=True)[0] and AHEAD not in emulation_module(p, ahead=False)[0]
    fast, slow = both(p, monkeypatch)
    assert fast == slow != "" and "of `S` in `" in fast


def test_a_later_write_meets_reads_that_were_checked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    p = with_sum(FILL, Barrier(), sums(add(mul(I, index(2)), J)), FILL)
    fast, slow = both(p, monkeypatch, "reversed")
    assert fast == slow and "meet without a barrier between them at element" in fast and "in `S[thread]" in fast


def test_a_vector_that_is_not_aligned_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alignment is what the code relies on: here it takes 16 bytes for known."""
    monkeypatch.setattr(Watched, "alignment", lambda *_: 16)
    p = with_sum(FILL, Barrier(), VECTOR)
    p = replace(p, kernels=tuple(replace(k, local=(*k.local, Local("W", F32, 4))) for k in p.kernels))
    fast, slow = both(p, monkeypatch)
    assert fast == slow and "whose address is not a multiple of 16" in fast


def conditional(at: Expr) -> tuple[Phase, ...]:
    """Reads that are made in some iterations."""
    first = Compare("<", I, index(1))
    chosen = Select(first, get("S", at), Const(0.0, F32))
    return (
        Phase((loop("i", 2, loop("j", 2, Store("L", (index(0),), chosen))),)),
        Phase((loop("i", 2, loop("j", 2, If(first, (Store("L", (index(0),), get("S", at)),)))),)),
        Phase((loop("i", 2, Loop("j", index(0), I, LoopKind.SERIAL, (Store("L", (index(0),), get("S", at)),))),)),
    )


@pytest.mark.parametrize("number", range(3))
def test_reads_that_may_not_be_made_are_checked_where_they_are(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the iterations in which they are not made they would be out of bounds, or race."""
    at = add(mul(I, index(N)), J) if number < 2 else add(mul(I, index(N - 1)), mul(J, index(N)))
    p = with_sum(FILL, Barrier(), conditional(at)[number])
    assert both(p, monkeypatch) == ["", ""]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "seed"),
    [("matmul(M=24, N=24, K=24)", 0), ("matmul(M=24, N=24, K=24)", 3), ("half_matmul(M=24, N=24, K=24)", 1)],
)
def test_as_much_is_counted(text: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t = task(tmp_path, text)
    trace = t.sample(seed)
    found = t.lower(trace)
    assert isinstance(found, DeviceProgram) and AHEAD in emulation_module(found, ahead=True)[0]
    assert_counts_agree(found, trace.program, monkeypatch)


def test_a_read_that_is_made_twice_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread adds up squares of elements of S."""
    square = mul(get("S", J), get("S", J))
    body = Phase(
        (
            Store("L", (index(0),), Const(0.0, F32)),
            loop("j", 4, Store("L", (index(0),), add(Load("L", (index(0),), F32), square))),
        )
    )
    p = with_sum(FILL, Barrier(), body)
    counts: list[object] = []
    for least in (0, 10**9):
        monkeypatch.setattr(run, "_LEAST", least)
        x = aligned_empty((2 * N,), np.dtype(np.float32))
        x[...] = np.arange(2 * N)
        fault, (count,) = emulation(p).count({"X": x}, {})
        assert fault == "" and x[0] == 14
        counts.append(sorted(map(str, count.traffic)))
    assert counts[0] == counts[1]


def assert_counts_agree(found: DeviceProgram, program: Program, patch: pytest.MonkeyPatch) -> None:
    counts: list[object] = []
    for least in (0, 10**9):
        patch.setattr(run, "_LEAST", least)
        arrays = arrays_of(program)
        fault, (count, *_) = emulation(found).count(arrays, {})
        assert fault == ""
        counts.append(
            (count.barriers, sorted(map(str, count.traffic)), [arrays[b.name].tobytes() for b in program.outputs])
        )
    assert counts[0] == counts[1]


def arrays_of(program: Program) -> dict[str, Array]:
    inputs, _ = whole_numbers(program)
    arrays = {n: aligned_copy(np.ascontiguousarray(a)) for n, a in inputs.items()}
    return arrays | {b.name: aligned_empty(shape_of(b), stored_dtype(b.dtype)) for b in program.outputs}
