"""Kernels with tensor cores for tests: drawn ones, one written by hand, their inputs, and changes to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import Device, DeviceProgram, Nested, Phase, collectives_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array, narrow
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.lower.flat import Collective, Flat
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.examples import FIRST
from tests.gpu.kernels import whole

DRAWS = int(os.environ.get("GPU_DRAWS", "1"))

STDLIB = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "cuda.tsched"


def _matmul(a: Array, b: Array) -> Array:
    return a @ b


def _conv2d(x: Array, f: Array, stride: int = 1) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcij,ijco->nhwo", windows, f)


CASES: dict[str, tuple[str, Callable[..., Array]]] = {
    "fits": ("half_matmul(M=64, N=16, K=32)", _matmul),
    "bf16": ("half_matmul(M=32, N=48, K=32, T=bf16)", _matmul),
    "odd": ("half_matmul(M=17, N=9, K=18)", _matmul),
    "dense": ("half_transposed(M=16, N=40, K=24)", lambda a, b: a @ b.T),
    "columns": ("half_columns(M=48, N=16, K=40)", lambda a, b: a.T @ b),
    "batched": ("half_batched(B=3, M=16, N=8, K=31)", _matmul),
    "narrow conv2d": ("conv2d_nhwc(N=1, H=5, W=9, CI=16, KH=3, KW=3, CO=8, T=f16, Acc=f32)", _conv2d),
    "conv2d": ("conv2d_nhwc(N=1, H=4, W=18, CI=16, KH=3, KW=3, CO=8, T=f16, Acc=f32)", _conv2d),
    "strided conv2d": (
        "conv2d_nhwc(N=1, H=4, W=36, CI=16, KH=3, KW=3, CO=8, stride=2, pad=1, T=f16, Acc=f32)",
        lambda x, f: _conv2d(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), f, 2),
    ),
}


def kernels(t: Task, count: int) -> list[tuple[Program, DeviceProgram]]:
    """The first so many drawn programs with instructions, and their kernels."""
    out: list[tuple[Program, DeviceProgram]] = []
    for seed in range(20 * count + 20):
        program = whole(t.sample(FIRST + seed)).program
        found = lower_device(program, tuple(t.target.feature_names))
        if any(s for k in found.kernels for s in collectives_in(k.body)):
            out.append((program, found))
        if len(out) == count:
            return out
    raise AssertionError(f"{len(out)} of {count} schedules")


def drawn(t: Task, count: int, decisions: Mapping[str, Decision]) -> list[tuple[Program, DeviceProgram]]:
    """As `kernels`, with some draws decided."""
    return kernels(t.drawn_from(condition(t.model, decisions)), count)


def whole_numbers(program: Program) -> tuple[dict[str, Array], list[Array]]:
    """Small integers for each input, as stored and as float64: sums of their products are exact."""
    rng = np.random.default_rng(0)
    low = {b.name: 0 if b.dtype.kind == "uint" else -4 for b in program.inputs}
    wide = {b.name: rng.integers(low[b.name], 5, shape_of(b)).astype(np.float64) for b in program.inputs}
    return {b.name: narrow(wide[b.name], b.dtype) for b in program.inputs}, list(wide.values())


HAND = """
program p(A: f16[32, 16], B: f16[16, 8], C: f32[32, 8]) {
    buffer As: f16[32, 16] in "shared"
    buffer Bs: f16[16, 8] in "shared"
    buffer Af: f16[32, 16] in "mma.a"
    buffer Bf: f16[16, 8] in "mma.b"
    buffer Cf: f32[32, 8] in "mma.c"
    bound("block.x") for b in 1 {
        bound("thread.x") for t in 64 {
            for r in 8 {
                block As { spatial vi in 32 = t / 2; spatial vk in 16 = t % 2 * 8 + r; As[vi, vk] = A[vi, vk] }
            }
        }
        bound("thread.x") for t_1 in 64 {
            for r_1 in 2 {
                block Bs { spatial vk in 16 = t_1 / 4; spatial vj in 8 = t_1 % 4 * 2 + r_1; Bs[vk, vj] = B[vk, vj] }
            }
        }
        bound("warp") for w in 2 {
            tensorized for i in 16 @("intrinsic", "mma_zero") {
                tensorized for j in 8 {
                    block Cz { spatial vi in 32 = w * 16 + i; spatial vj in 8 = j; Cf[vi, vj] = 0.0 }
                }
            }
        }
        bound("warp") for w_1 in 2 {
            tensorized for i_1 in 16 @("intrinsic", "ldmatrix_a_f16") {
                tensorized for k_1 in 16 {
                    block Af { spatial vi in 32 = w_1 * 16 + i_1; spatial vk in 16 = k_1; Af[vi, vk] = As[vi, vk] }
                }
            }
            tensorized for k_2 in 16 @("intrinsic", "ldmatrix_b_f16") {
                tensorized for j_2 in 8 {
                    block Bf { spatial vk in 16 = k_2; spatial vj in 8 = j_2; Bf[vk, vj] = Bs[vk, vj] }
                }
            }
            tensorized for i_3 in 16 @("intrinsic", "mma_m16n8k16_f16") {
                tensorized for j_3 in 8 {
                    tensorized for k_3 in 16 {
                        block Cs {
                            spatial vi in 32 = w_1 * 16 + i_3; spatial vj in 8 = j_3; reduce vk in 16 = k_3
                            Cf[vi, vj] = Cf[vi, vj] + f32(Af[vi, vk]) * f32(Bf[vk, vj])
                        }
                    }
                }
            }
        }
        bound("warp") for w_2 in 2 {
            tensorized for i_4 in 16 @("intrinsic", "mma_store") {
                tensorized for j_4 in 8 {
                    block C { spatial vi in 32 = w_2 * 16 + i_4; spatial vj in 8 = j_4; C[vi, vj] = Cf[vi, vj] }
                }
            }
        }
    }
}
"""


def hand(*changes: tuple[str, str]) -> Program:
    text = HAND
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_program(Source("p.tsched", STDLIB.read_text(encoding="utf-8") + text))


def run(program: Program, found: DeviceProgram) -> tuple[str, bool]:
    """The fault, and whether all results are right."""
    inputs, (a, b) = whole_numbers(program)
    fault, outputs = emulated(found, program, inputs)
    return fault, all(np.array_equal(out["C"], a @ b) for out in outputs)


def changed(found: DeviceProgram, change: Callable[[Collective], Collective | None]) -> DeviceProgram:
    """The kernels with instructions replaced."""

    def flat(s: Flat) -> Flat:
        if isinstance(s, Store):
            return s
        if isinstance(s, Collective):
            return change(s) or s
        return replace(s, body=tuple(map(flat, s.body)))

    def device(s: Device) -> Device:
        if isinstance(s, Nested):
            return replace(s, body=tuple(map(device, s.body)))
        return replace(s, body=tuple(map(flat, s.body))) if isinstance(s, Phase) else s

    (k,) = found.kernels
    return replace(found, kernels=(replace(k, body=tuple(map(device, k.body))),))
