"""`std.cpu.chain`: the operands of a piece of the last product's rows are computed with it, and only those."""

from __future__ import annotations

import pytest

from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.program import Block, For, LoopKind, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen import native
from tests.drawn import drawn, task_of

TASKS = """
use std.cpu.chain
use std.cpu.parallel
use std.ops.{attention, conv2d_nhwc, matmul}

space chains for llvm {
    tile_chains(packed=25, copied=5, reordered=10, chance=100)
    parallelize_vectorize_unroll
}

compute layers(X: f32[M, K], A: f32[K, H], B: f32[H, N]) -> Y: f32[M, N] {
    let Z = matmul(X, A)
    let R[i, j] = max(Z[i, j], 0.0)
    Y = matmul(R, B)
}

/// Keys are made of X, all of them for every piece of rows.
compute asked(Q: f32[M, D], X: f32[N, K], W: f32[K, D]) -> S: f32[M, N] {
    let T = matmul(X, W)
    S[i, j] = sum[d] Q[i, d] * T[j, d]
}

compute twice(X: f32[N, H, W, C], F: f32[KH, KW, C, D], G: f32[1, 1, D, E]) -> Y: f32[N, H - KH + 3, W - KW + 3, E] {
    let P = conv2d_nhwc(X, F, pad=1)
    Y = conv2d_nhwc(P, G)
}

task heads = attention(B=2, H=3, M=61, N=37, D=13, E=19) with chains
task even = attention(B=1, H=2, M=64, N=48, D=16, E=32) with chains
task layers = layers(M=75, K=11, H=23, N=37) with chains
task keys = asked(M=61, D=16, N=40, K=7) with chains
task images = twice(N=1, H=5, W=36, C=3, D=8, E=19, KH=3, KW=3) with chains
task short = attention(B=1, H=2, M=16, N=48, D=16, E=32) with chains
"""
TOGETHER = {
    "heads": ["U", "S", "m", "e", "s", "O"],
    "even": ["U", "S", "m", "e", "s", "O"],
    "layers": ["Y", "Z", "R"],
    "images": ["Y", "P"],
    "keys": ["S"],
    "short": [],
}
"""The last product, and what is computed with each piece of it."""


def task(name: str, target: Target) -> Task:
    return task_of("chains.tsched", TASKS, name, target)


def around(trace: Trace) -> dict[str, tuple[For, ...]]:
    return {s.name: loops for loops, s in walk(trace.program.body) if isinstance(s, Block)}


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(TOGETHER))
def test_the_stages_of_a_piece_share_its_loop(name: str) -> None:
    t = task(name, Target(vector_bits=512, cores=2))
    for trace in drawn(t, 6):
        verify(trace.program)
        if "let piece" not in trace.text:
            assert not TOGETHER[name]
            continue
        nests = around(trace)
        piece = nests[TOGETHER[name][0]][0]
        assert piece.kind is LoopKind.PARALLEL
        # A stage of the chain may be computed where it is used, too.
        assert all(nests[b][0].var == piece.var for b in TOGETHER[name] if b in nests)
        if name == "keys":
            assert nests["T"][0].var != piece.var


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(TOGETHER))
def test_kernels_compute_what_the_task_does(name: str) -> None:
    t = task(name, host_target(2))
    native.require_right(t, drawn(t, 4))
