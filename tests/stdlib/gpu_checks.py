"""The checks for every schedule of a space for a GPU, and the computes that are tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

import tensorc_dsl as td
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_expr, format_program
from tensorc_dsl.ir.program import Axis, For, Program, walk
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.sets.accesses import accesses, home
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.step import BlockRef, ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import stream
from tests.gpu.kernels import whole
from tests.programs import proof_fault

COMPUTES = """
compute half_matmul(A: T[M, K], B: T[K, N]; T: dtype = f16) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
}

compute half_transposed(A: f16[M, K], B: f16[N, K]) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
}

compute half_columns(A: f16[K, M], B: f16[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[k, i]) * f32(B[k, j])
}

compute half_batched(A: f16[B, M, K], W: f16[B, K, N]) -> C: f32[B, M, N] {
    C[b, i, j] = sum[k] f32(A[b, i, k]) * f32(W[b, k, j])
}

compute any_product(A: T[M, K], B: T[K, N]; T: dtype, Acc: dtype) -> C: Acc[M, N] {
    C[i, j] = sum[k] Acc(A[i, k]) * Acc(B[k, j])
}

compute any_turned(A: T[K, M], B: T[N, K]; T: dtype, Acc: dtype) -> C: Acc[M, N] {
    C[i, j] = sum[k] Acc(A[k, i]) * Acc(B[j, k])
}

compute two_types(A: S[M, K], B: T[N, K]; S: dtype, T: dtype) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
}

compute rounded_product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] tf32(A[i, k]) * tf32(B[k, j])
}

compute rounded_turned(A: f32[K, M], B: f32[N, K]) -> C: f32[M, N] {
    C[i, j] = sum[k] tf32(A[k, i]) * tf32(B[j, k])
}

compute half_biased(A: f16[M, K], B: f16[K, N], D: f32[N]) -> Y: f32[M, N] {
    let C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j])
    Y[i, j] = max(C[i, j] + D[j], 0)
}

compute half_gelu(A: f16[M, K], B: f16[N, K], D: f32[N]) -> Y: f16[M, N] {
    let C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
    let Z[i, j] = C[i, j] + D[j]
    Y[i, j] = f16(0.5 * Z[i, j] * (1 + erf(Z[i, j] * 0.7071067811865476)))
}

compute batched(A: f32[B, M, K], W: f32[B, K, N]) -> C: f32[B, M, N] {
    C[b, i, j] = sum[k] A[b, i, k] * W[b, k, j]
}

compute layer_norm(X: f32[M, N], G: f32[N], B: f32[N]) -> Y: f32[M, N] {
    let m[i] = sum[j] X[i, j]
    let v[i] = sum[j] (X[i, j] - m[i] / f32(N)) * (X[i, j] - m[i] / f32(N))
    Y[i, j] = (X[i, j] - m[i] / f32(N)) * rsqrt(v[i] / f32(N) + 1e-5) * G[j] + B[j]
}

compute total(X: f32[M, N]) -> S: f32 {
    S = sum[i, j] X[i, j]
}

compute next(X: f32) -> Y: f32 {
    Y = X + 1.0
}
"""


def target_of_few(name: str, cores: int, threads: int = 1024, *, hopper: bool = False) -> str:
    """A target of compute capability 8.0, or 9.0, with so many multiprocessors, as text."""
    cpu, features = ("sm_90a", '"sm_80", "sm_89", "sm_90", "sm_90a"') if hopper else ("sm_80", '"sm_80"')
    return (
        f'target {name} = cuda(cpu="{cpu}", features=[{features}], cores={cores}, vector_bits=128, threads={threads},'
        " shared_memory=166912, registers=65536)\n"
    )


def task(folder: Path, text: str, space: str = "default", target: str = "sm_80") -> Task:
    """The task `t = text` over a space of `std.gpu`, for a GPU of compute capability 8.0 or another one."""
    path = folder / "t.tsched"
    items = "argmax, conv2d_nhwc, cumsum, matmul, softmax"
    uses = f"use std.ops.{{{items}}}\nuse std.gpu.{space}.{{{space}}}\nuse std.gpu.targets.{{{target}}}\n"
    path.write_text(f"{uses}{COMPUTES}\ntask t = {text} with {space}\n")
    return td.load(path)["t"]


def traces(t: Task, count: int, seed: int = 0) -> Iterator[Trace]:
    """So many schedules, in at most 40 times as many draws. No rule of the library was refused."""
    rng, found = stream(seed, t.name, "gpu"), 0
    for _ in range(40 * count):
        try:
            trace = whole(t.model.sample(rng))
        except ScheduleRefusal:
            continue
        yield trace
        found += 1
        if found == count:
            return
    raise AssertionError(f"{found} of {count} schedules")


def check(t: Task, trace: Trace, inputs: dict[str, Array], expected: Array) -> None:
    """The program is well formed, fits the machine, computes what it should in every order of threads, and is proved."""
    program = trace.program
    verify(program)
    assert format_program(parse_program(Source("printed", format_program(program)))) == format_program(program)
    check_axes(t, program)
    check_threads_keep_to_themselves(program)
    for order in ("forward", "reversed", "shuffled"):
        (out,) = interpret(program, inputs, order).values()
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6, err_msg=trace.text)
    assert proof_fault(t.program, program) == "", trace.text
    assert t.expand(Source("trace", trace.text)).text == trace.text


def check_axes(t: Task, program: Program) -> None:
    """Every kernel is a grid of blocks, no larger than the machine's."""
    for kernel in program.body:
        assert isinstance(kernel, For), "a block without loops"
        assert kernel.axis is not None and kernel.axis.level == "block", kernel.var
    for block in (BlockRef(name) for name in (s.name for _, s in walk(program.body) if not isinstance(s, For))):
        threads, shared, registers = (
            QUERIES[BlockRef][name].function(program, block) for name in ("threads", "shared_bytes", "registers")
        )
        assert 1 <= threads <= t.target.threads
        assert shared <= t.target.shared_memory
        assert registers <= min(t.target.registers, 255 * threads)


def check_threads_keep_to_themselves(program: Program) -> None:
    """No element of a buffer that is private to threads is touched by two threads of a block, nor written by two if lanes may
    read each other's.

    Brute force over all iterations, with Python's own arithmetic. A fragment is a warp's: lowering proves which lane has
    what.
    """
    for buffer in program.buffers:
        if buffer.scope in ("global", "shared"):
            continue
        owners: dict[tuple[int, ...], tuple[int, ...]] = {}
        inside = len(home(program, buffer) or ())
        for x in accesses((), program.body, frozenset((buffer.name,))):
            if buffer.scope == "warp" and not x.is_write:
                continue
            grid = [(v.var, constant(v.extent) or 0) for v in x.loops]
            counting = [
                v.var for v in x.loops[inside:]
                if v.axis is not None and v.axis.counts_threads and constant(v.extent) != 1
                and not (v.axis is Axis.LANE and "." in buffer.scope)
            ]  # fmt: skip
            guard = " and ".join(f"({_python(format_expr(c))})" for c in x.guard) or "True"
            place = f"({', '.join(_python(format_expr(i)) for i in x.indices)},)"
            code = compile(f"({place} if {guard} else None)", "<index>", "eval")
            outer = {v.var for v in x.loops[:inside]}
            for values in product(*(range(1 if v in outer else n) for v, n in grid)):
                at = dict(zip((v for v, _ in grid), values, strict=True))
                element = eval(code, {}, at)
                if element is not None:
                    owner = tuple(at[v] for v in counting)
                    assert owners.setdefault(element, owner) == owner, (buffer.name, element)


def _python(text: str) -> str:
    return text.replace("/", "//")
