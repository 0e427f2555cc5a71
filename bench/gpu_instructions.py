"""The first part of `bench.gpu`: a small kernel for each kind of instruction that emulation and ptxas cannot vouch for.

A case is a task and words of its schedule and PTX. The first draw that has them all, and none of those that it must not
have, is checked against the reference, so a fault here says which instruction is not what we take it for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bench import ptxas
from bench.gpu_case import Asked, Row, device, task_of
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Status

DRAWS = 60
"""How many draws are looked at for one that has the instructions."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task over a space. Its schedule and PTX have matches of all of `has`, and of none of `lacks`; `draws` are decided."""

    text: str
    space: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    draws: tuple[tuple[str, Decision], ...] = ()
    capability: int = 80
    """The compute capability that it needs, 90 for 9.0."""


COMPUTES = (
    ptxas.COMPUTES
    + """
compute half_transposed(A: T[M, K], B: T[N, K]; T: dtype = f16) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
}

compute half_columns(A: f16[K, M], B: f16[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[k, i]) * f32(B[k, j])
}

compute functions(X: T[N]; T: dtype) -> E: T[N], L: T[N], S: T[N], H: T[N], R: T[N], F: T[N] {
    E[i] = exp(X[i])
    L[i] = log(abs(X[i]) + 1)
    S[i] = sin(X[i])
    H[i] = tanh(X[i]) + erf(X[i])
    R[i] = rsqrt(abs(X[i]) + 1) + sqrt(abs(X[i])) / (abs(X[i]) + 3)
    F[i] = X[i] % 0.375
}

compute octets(X: f32[N]; T: dtype) -> Y: f32[N] {
    let Z[i] = T(X[i])
    Y[i] = f32(Z[i])
}
"""
)

WGMMA, TMA, REGISTERS, COPIES = r"wgmma\.mma_async", r"cp\.async\.bulk\.tensor", "setmaxnreg", r"cp\.async\.c[ag]"
ALONE = (("in_parts", False), ("streamed", False))
"""Products whose sums are not divided among blocks."""

GROUPS = (*ALONE, ("warpgroups", True))


def _hopper(
    text: str, has: tuple[str, ...], lacks: tuple[str, ...] = (), draws: tuple[tuple[str, Decision], ...] = ()
) -> Case:
    return Case(text, "hopper", (WGMMA, *has), lacks, (*GROUPS, *draws), 90)


def _tensor(text: str, has: str, *more: str, capability: int = 80) -> Case:
    return Case(text, "tensor_core", (has, *more), (), ALONE, capability)


_HALF = "T=f16, Acc=f32"

CASES = {
    "shared memory and barriers": Case("matmul(M=65, N=48, K=40)", "default", (r"bar\.sync", r"st\.shared"), (COPIES,)),
    "cp.async": Case("matmul(M=64, N=64, K=64)", "default", (COPIES, r"cp\.async\.wait_group\s+[1-9]")),
    "cp.async, zeros": Case(
        "half_columns(M=65, N=72, K=40)", "tensor_core", (COPIES + r"\S+ \[[^]]+\], \[[^]]+\], \d+, %",)
    ),
    "shuffles": Case("softmax(M=16, N=200)", "default", (r"shfl\.sync",)),
    "mma f16, ldmatrix": _tensor(f"matmul(M=64, N=64, K=64, {_HALF})", r"mma\.sync\S+f16", r"ldmatrix\S+trans", COPIES),
    "mma bf16": _tensor("matmul(M=50, N=40, K=72, T=bf16, Acc=f32)", r"mma\.sync\S+bf16", "ldmatrix"),
    "mma i8": _tensor("matmul(M=64, N=48, K=64, T=i8, Acc=i32)", r"mma\.sync\S+s8"),
    "mma u8": _tensor("matmul(M=64, N=48, K=64, T=u8, Acc=i32)", r"mma\.sync\S+u8"),
    "mma tf32": _tensor("rounded_product(M=64, N=48, K=40)", r"mma\.sync\S+tf32", r"cvt\.rna\.tf32"),
    "mma f64": _tensor("matmul(M=32, N=32, K=32, T=f64)", r"mma\.sync\S+f64"),
    "mma f8": _tensor("half_transposed(M=64, N=64, K=64, T=f8e4m3)", r"mma\.sync\S+e4m3", capability=89),
    "wgmma, copies by threads": _hopper(f"matmul(M=128, N=128, K=192, {_HALF})", (COPIES,), (TMA,)),
    "wgmma, TMA": _hopper(f"matmul(M=128, N=128, K=192, {_HALF})", (TMA,), (COPIES, REGISTERS), (("beside", False),)),
    "wgmma, rows of both": _hopper("half_transposed(M=128, N=128, K=192)", (TMA,)),
    "wgmma, columns of both": _hopper("half_columns(M=128, N=128, K=192)", (TMA,)),
    "wgmma, 256 columns": _hopper(f"matmul(M=128, N=256, K=192, {_HALF})", ("n256k16", TMA)),
    "wgmma, odd sizes": _hopper(f"matmul(M=130, N=136, K=200, {_HALF})", (TMA,)),
    "wgmma, odd rows": _hopper(f"matmul(M=130, N=77, K=99, {_HALF})", ()),
    "wgmma, a wait for the round before": _hopper(
        f"matmul(M=128, N=128, K=512, {_HALF})", (r"wgmma\.wait_group\S* 1",)
    ),
    "a warp that loads": _hopper(
        f"matmul(M=64, N=128, K=512, {_HALF})", (TMA, r"mbarrier\.arrive\.shared"), (REGISTERS,), (("beside", True),)
    ),
    "roles with registers": _hopper(f"matmul(M=256, N=128, K=512, {_HALF})", (TMA, REGISTERS), (), (("beside", True),)),
    "persistent, roles": _hopper(
        f"matmul(M=2048, N=1024, K=256, {_HALF})",
        (r"persist\(", TMA, REGISTERS),
        (),
        (("beside", True), ("persistent", True)),
    ),
    "persistent": _hopper(
        f"matmul(M=2048, N=1024, K=256, {_HALF})",
        (r"persist\(", TMA),
        (REGISTERS,),
        (("beside", False), ("persistent", True)),
    ),
    "wgmma, left factor in registers": Case(
        "half_attention(B=1, H=2, M=128, N=1024, D=64, E=64)",
        "hopper",
        (r"wgmma\.mma_async[^;]*, p, 1, 1, 1;",),
        (),
        (("inline", False), ("tensor_online", True), ("length", 64), ("scores", "groups")),
        90,
    ),
    "wgmma bf16": _hopper("matmul(M=128, N=128, K=192, T=bf16, Acc=f32)", (r"\.bf16",)),
    "wgmma e4m3": _hopper("half_transposed(M=128, N=128, K=256, T=f8e4m3)", ("e4m3",)),
    "wgmma e5m2": _hopper("half_transposed(M=128, N=128, K=256, T=f8e5m2)", ("e5m2",)),
    "TMA of windows": _hopper(
        f"conv2d_nhwc(N=2, H=16, W=16, CI=64, KH=3, KW=3, CO=64, pad=1, {_HALF})", (r"tensor\.4d",)
    ),
    "stream-K": Case(
        f"matmul(M=768, N=1216, K=2048, {_HALF})",
        "tensor_core",
        ("mma",),
        (),
        (("streamed", True), ("in_parts", False)),
    ),
    "parts of a sum": Case(f"matmul(M=64, N=64, K=16384, {_HALF})", "tensor_core", ("mma",), (), (("in_parts", True),)),
    "a scan by shuffles": Case("cumsum(N=999, M=2)", "default", (r"shfl\.sync\.up",)),
    "look-back": Case("cumsum(N=20000, M=2)", "default", (r"look_back\(", r"ld\.relaxed\.gpu")),
    "look-back, f64": Case(
        "cumsum(N=20000, M=2, T=f64)", "default", (r"look_back\(", r"ld\.acquire\.gpu", r"st\.release\.gpu")
    ),
    "atomic counts": Case("counts(H=256, W=256)", "default", (r"(?:atom|red)\.shared\.add",)),
    "atomic counts in global memory": Case("counts(H=256, W=256)", "default", (r"(?:atom|red)\.global\.add",)),
    "compare and exchange": Case("class_extremes(N=65536, C=10)", "default", (r"atom\S*\.cas",)),
    "online attention": Case("attention(B=1, H=1, M=16, N=8192, D=64, E=64)", "default", (r"online_sums\(",)),
    "functions of f32": Case("functions(N=100000, T=f32)", "default", ()),
    "functions of f64": Case("functions(N=10000, T=f64)", "default", ()),
    "floats of 8 bits": Case("octets(N=100000, T=f8e4m3)", "default", ()),
}
"""What a GPU has to do as PTX says, the simplest first."""


def instructions(asked: Asked) -> Iterator[Row]:
    """Each case against the reference, in a worker that a fault ends."""
    major, minor = device().capability
    for name, case in CASES.items():
        if case.capability > 10 * major + minor or not asked.begins(name):
            continue
        try:
            task = task_of(case.text, COMPUTES, case.space)
            trace = found(task, case)
            if trace is None:
                yield Row(name, wrong=f"none of {DRAWS} draws has these instructions")
                continue
            outcome = task.measure(trace)
        except TschedError as e:
            yield Row(name, wrong=str(e))
            continue
        right = outcome.status is Status.OK
        yield Row(name, "" if right else f"{outcome.status}: {outcome.message}", outcome.seconds, trace=trace.text)


def found(task: Task, case: Case, draws: int = DRAWS) -> Trace | None:
    """The first draw that is of a case, of so many."""
    drawn = task.drawn_from(condition(task.model, dict(case.draws)))
    for number in range(draws):
        try:
            trace = drawn.sample(0, number)
            text = f"{trace.text}\n{drawn.compile(trace).view('ptx')}"
        except TschedError:
            continue  # refused, or it has no code
        if all(re.search(x, text) for x in case.has) and not any(re.search(x, text) for x in case.lacks):
            return trace
    return None
