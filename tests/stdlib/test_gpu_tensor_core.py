"""`std.gpu.tensor_core`: products as instructions of warps, proved, with fragments on which all instructions agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import For, LoopKind, Program, intrinsic_of, walk
from tensorc_dsl.proof.sets.instructions import Match, match_nest
from tensorc_dsl.schedule.trace.trace import Trace
from tests.programs import random_inputs
from tests.stdlib.gpu_checks import check, task, traces


def _matmul(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


def _conv2d(x: Array, f: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, f.astype(np.float64))


CASES: dict[str, tuple[str, Callable[..., Array]]] = {
    "fits": ("half_matmul(M=32, N=16, K=32)", _matmul),
    "bf16": ("half_matmul(M=16, N=16, K=32, T=bf16)", _matmul),
    "odd": ("half_matmul(M=17, N=9, K=18)", _matmul),
    "batched": ("half_batched(B=2, M=16, N=8, K=16)", _matmul),
    "transposed": ("half_transposed(M=16, N=8, K=16)", lambda a, b: _matmul(a, b.T)),
    "columns": ("half_columns(M=16, N=8, K=16)", lambda a, b: _matmul(a.T, b)),
    "conv2d": ("conv2d_nhwc(N=1, H=4, W=18, CI=16, KH=3, KW=3, CO=8, T=f16, Acc=f32)", _conv2d),
}


def instructions(program: Program) -> list[tuple[tuple[For, ...], For]]:
    return [(around, s) for around, s in walk(program.body) if isinstance(s, For) and intrinsic_of(program, s)]


def tensorized(found: Iterable[Trace]) -> Iterator[Trace]:
    return (t for t in found if instructions(t.program))


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_schedules_compute_what_the_task_does(case: str, tmp_path: Path) -> None:
    text, reference = CASES[case]
    t = task(tmp_path, text, "tensor_core")
    inputs = random_inputs(t.program)
    found = [*islice(tensorized(traces(t, 8)), 2)]
    assert found
    for trace in found:
        check(t, trace, inputs, reference(*inputs.values()))
        check_layouts(trace.program)


def check_layouts(program: Program) -> None:
    """In every fragment each instruction takes the same dimension for its rows."""
    seen: dict[str, object] = {}
    for around, nest in instructions(program):
        intrinsic = intrinsic_of(program, nest)
        assert intrinsic is not None
        found = match_nest(around, nest, intrinsic)
        assert isinstance(found, Match)
        for tile in found.tiles:
            scope = program.buffer(tile.buffer).scope
            assert (tile.operand.scope if tile.operand.scope != "global" else scope) == scope
            if scope.startswith("mma."):
                assert seen.setdefault(tile.buffer, tile.steps) == tile.steps, (tile.buffer, intrinsic.name)


def test_copies_may_run_ahead_of_the_instructions(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=64, N=64, K=64)", "tensor_core")
    kinds = set[bool]()
    for x in tensorized(traces(t, 12)):
        kinds.add(any(isinstance(s, For) and s.kind is LoopKind.PIPELINED for _, s in walk(x.program.body)))
        if kinds == {True, False}:
            return
    raise AssertionError(f"copies that run ahead: {kinds}")
