"""Assembles kernels for GPUs with ptxas: `python -m bench.ptxas --draws 6`. Needs `pip install nvidia-cuda-nvcc`, no GPU.

For operators of the library at sizes as in networks, schedules are drawn for sm_80 and sm_90 by turns; those of "tensor …"
are of `std.gpu.tensor_core`, with floats of 8 bits for sm_89. Those of "hopper …" are of `std.gpu.hopper`, for sm_90a, all
with instructions of warpgroups. For each it prints how many there were, how many use tensor cores, how many have no code or
are refused by ptxas, how many spill registers, the most registers and bytes of stack, and the median seconds of processor
time of lowering with PTX, and of ptxas. Where `nvdisasm` is installed, the machine code has an HMMA, QMMA, IMMA or DMMA for
each `mma.sync` of the PTX, an HGMMA or QGMMA for each `wgmma`, an LDSM for each `ldmatrix`, an LDGSTS for each copy that
only starts, a UTMALDG for each TMA load, a UTMASTG for each TMA store, a SHFL for each shuffle, and a RED, ATOMG or ATOMS for
each `atom`; loops that ptxas unrolls have more. The status is 1 if one is refused, or has fewer, or if ptxas warns: that it
ignores `setmaxnreg`, or that a `wgmma` waits for the one before.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.compiled import assemble, compile_device, remarks, sass_of, tool
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.faces.api import load
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.tuning.search.expansion import stream

TENSOR = "tensor "
"""What the names of tasks with tensor cores begin with."""

HOPPER = "hopper "
"""What the names of tasks with instructions of warpgroups begin with."""

TASKS = {
    "hopper matmul": "matmul(M=1024, N=1024, K=1024, T=f16, Acc=f32)",
    "hopper bf16": "matmul(M=1024, N=1024, K=1024, T=bf16, Acc=f32)",
    "hopper e4m3": "dense_octets(M=1024, N=1024, K=1024, T=f8e4m3)",
    "hopper e5m2": "dense_octets(M=1000, N=777, K=528, T=f8e5m2)",
    "hopper odd": "matmul(M=1000, N=777, K=513, T=f16, Acc=f32)",
    "hopper batched": "batch_matmul(G=8, M=128, N=128, K=64, T=f16, Acc=f32)",
    "hopper conv2d": "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1, T=f16, Acc=f32)",
    "hopper strided": "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=128, pad=1, stride=2, T=f16, Acc=f32)",
    "hopper conv3d": "conv3d_ndhwc(N=1, D=8, H=28, W=28, CI=64, KD=3, KH=3, KW=3, CO=64, pad=1, T=bf16, Acc=f32)",
    "hopper attention": "half_attention(B=1, H=2, M=200, N=1000, D=64, E=64)",
    "hopper attention bf16": "half_attention(B=1, H=2, M=256, N=1024, D=128, E=128, T=bf16)",
    "tensor matmul": "matmul(M=1024, N=1024, K=1024, T=f16, Acc=f32)",
    "tensor bf16": "matmul(M=1024, N=1024, K=1024, T=bf16, Acc=f32)",
    "tensor odd": "matmul(M=1000, N=777, K=513, T=f16, Acc=f32)",
    "tensor batched": "batch_matmul(G=8, M=128, N=128, K=64, T=f16, Acc=f32)",
    "tensor conv2d": "conv2d_nhwc(N=1, H=64, W=64, CI=64, KH=3, KW=3, CO=64, pad=1, T=f16, Acc=f32)",
    "tensor i8": "matmul(M=1024, N=1024, K=1024, T=i8, Acc=i32)",
    "tensor u8": "matmul(M=1024, N=1024, K=1024, T=u8, Acc=i32)",
    "tensor e4m3": "dense_octets(M=1024, N=1024, K=1024, T=f8e4m3)",
    "tensor e5m2": "matmul(M=1000, N=777, K=513, T=f8e5m2, Acc=f32)",
    "tensor tf32": "rounded_product(M=1024, N=1024, K=1024)",
    "tensor f64": "matmul(M=512, N=512, K=512, T=f64, Acc=f64)",
    "tensor dense gelu": "dense_gelu(M=512, N=1024, K=512)",
    "tensor narrow": "matmul(M=64, N=64, K=65536, T=f16, Acc=f32)",
    "narrow": "matmul(M=64, N=64, K=65536)",
    "matmul 1024": "matmul(M=1024, N=1024, K=1024)",
    "matmul 1000": "matmul(M=1000, N=777, K=513)",
    "matmul f16": "matmul(M=1024, N=1024, K=1024, T=f16, Acc=f32)",
    "batch_matmul": "batch_matmul(G=8, M=128, N=128, K=64)",
    "conv2d": "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1)",
    "depthwise": "depthwise_conv2d_nhwc(N=1, H=56, W=56, C=64, KH=3, KW=3, pad=1)",
    "conv3d": "conv3d_ndhwc(N=1, D=8, H=28, W=28, CI=16, KD=3, KH=3, KW=3, CO=32, pad=1)",
    "softmax": "softmax(M=256, N=1024)",
    "layer_norm": "layer_norm(M=256, N=1024)",
    "attention": "attention(B=1, H=8, M=128, N=128, D=64, E=64)",
    "argmax": "argmax(M=256, N=1024)",
    "counts": "counts(H=1024, W=1024)",
    "class extremes": "class_extremes(N=65536, C=10)",
    "cumsum": "cumsum(N=256, M=1024)",
    "transpose": "transpose(M=1024, N=1024)",
}


COMPUTES = """
/// Attention of halves, which is on tensor cores.
compute half_attention(Q: T[B, H, M, D], K: T[B, H, N, D], V: T[B, H, N, E]; T: dtype = f16) -> O: f32[B, H, M, E] {
    let S[b, h, i, j] = sum[d] f32(Q[b, h, i, d]) * f32(K[b, h, j, d])
    let m[b, h, i] = max[j] S[b, h, i, j]
    let e[b, h, i, j] = T(exp((S[b, h, i, j] - m[b, h, i]) * rsqrt(f32(D))))
    let s[b, h, i] = sum[j] f32(e[b, h, i, j])
    let U[b, h, i, c] = sum[j] f32(e[b, h, i, j]) * f32(V[b, h, j, c])
    O[b, h, i, c] = U[b, h, i, c] / s[b, h, i]
}

/// A layer of a network, whose bias and activation are computed before sums are stored.
compute dense_gelu(X: f16[M, K], W: f16[N, K], b: f32[N]) -> Y: f16[M, N] {
    let C[i, j] = sum[k] f32(X[i, k]) * f32(W[j, k])
    let Z[i, j] = C[i, j] + b[j]
    Y[i, j] = f16(0.5 * Z[i, j] * (1 + erf(Z[i, j] * 0.7071067811865476)))
}

compute dense_octets(X: T[M, K], W: T[N, K]; T: dtype) -> Y: f32[M, N] {
    Y[i, j] = sum[k] f32(X[i, k]) * f32(W[j, k])
}

compute rounded_product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] tf32(A[i, k]) * tf32(B[k, j])
}

compute counts(X: u8[H, W]) -> C: i32[256] {
    C[v] = sum[y, x] (1 if X[y, x] == u8(v) else 0)
}

compute class_extremes(X: f32[N], L: i32[N]; C: int) -> M: f32[C] {
    M[c] = max[i] (X[i] if L[i] == i32(c) else -inf)
}
"""
"""What tasks compute that is no operator of the library."""

SPACES = {TENSOR: "tensor_core", HOPPER: "hopper"}

OPCODES = {
    r"wgmma\.mma_async\S+f16\b": "HGMMA",
    r"wgmma\.mma_async\S+\.e[45]m[23]\b": "QGMMA",
    r"\bmma\.sync\S+\.col\.f32\.(?:b?f16|tf32)": "HMMA",
    r"\bmma\.sync\S+\.col\.f32\.e[45]m[23]": "QMMA",
    r"\bmma\.sync\S+\.col\.s32": "IMMA",
    r"\bmma\.sync\S+\.col\.f64": "DMMA",
    "ldmatrix": "LDSM",
    r"cp\.async\.c[ag]": "LDGSTS",
    r"cp\.async\.bulk\.tensor\.\dd\.shared": "UTMALDG",
    r"cp\.async\.bulk\.tensor\.\dd\.global": "UTMASTG",
    r"shfl\.sync": "SHFL",
    r"\batom\.global\.(?:add|min|max)": "REDG?",
    r"\batom\S*\.global\.cas": "ATOMG",
    r"\batom\S*\.shared": "ATOMS",
}
"""What instructions of PTX, as patterns, are called in machine code."""


@dataclass
class Found:
    """What became of the schedules of one task."""

    draws: int = 0
    tensors: int = 0
    refused: list[str] = field(default_factory=list[str])
    remarks: list[str] = field(default_factory=list[str])
    opcodes: Counter[str] = field(default_factory=Counter[str])
    spilled: int = 0
    registers: int = 0
    stack: int = 0
    own: list[float] = field(default_factory=list[float])
    theirs: list[float] = field(default_factory=list[float])


def assembled(text: str, space: str, draws: int, seed: int, folder: Path, *, nvcc: bool = False) -> Found:
    """So many schedules of a task, through ptxas."""
    file, out = folder / "t.tsched", Found()
    name = text.partition("(")[0]
    targets = ("sm_90a",) if space == "hopper" else ("sm_89",) if "T=f8" in text else ("sm_80", "sm_90")
    uses = (
        "std.ops" if f"compute {name}(" in COMPUTES else f"std.ops.{{{name}}}",
        f"std.gpu.{space}.{{{space}}}",
        "std.gpu.targets.{sm_80, sm_89, sm_90, sm_90a}",
    )
    head = "".join(f"use {what}\n" for what in uses)
    for target in targets:
        file.write_text(f"{head}{COMPUTES}task t = {text} with {space}\n", encoding="utf-8")
        t = load(file, target=target)["t"]
        model = condition(t.model, _decided(name)) if space == "hopper" else t.model
        rng = stream(seed, text, target)
        for _ in range(draws // len(targets) + (draws % len(targets) if target == targets[0] else 0)):
            try:
                program = model.sample(rng).program
            except ScheduleRefusal:
                continue
            out.draws += 1
            try:
                begin = time.process_time()
                ptx = compile_device(lower_device(program, tuple(t.target.feature_names)), t.target).ptx
                out.tensors += "mma.sync" in ptx or "wgmma" in ptx
                out.own.append(time.process_time() - begin)
                begin = _children()
                said = assemble(ptx, target, folder / "t.cubin")
                out.theirs.append(_children() - begin)
                out.remarks += remarks(said)
                if nvcc:
                    take_view(cuda_text(lower_device(program, tuple(t.target.feature_names))), target, folder)
                if tool("nvdisasm") is not None:
                    out.opcodes += machine_instructions(ptx, target)
            except (LowerError, CompileError) as e:
                out.refused.append(str(e))
                continue
            spills = [int(x) for x in re.findall(r"(\d+) bytes spill (?:stores|loads)", said)]
            out.spilled += any(spills)
            out.registers = max([out.registers, *(int(x) for x in re.findall(r"Used (\d+) registers", said))])
            out.stack = max([out.stack, *(int(x) for x in re.findall(r"(\d+) bytes stack frame", said))])
    return out


def take_view(text: str, cpu: str, folder: Path) -> None:
    """Raises CompileError unless nvcc takes the view in CUDA C++, without a warning."""
    source = folder / "view.cu"
    source.write_text(text, encoding="utf-8")
    command = [str(tool("nvcc")), f"-arch={cpu}", "-cubin", "-o", str(folder / "view.cubin"), str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode or remarks(done.stderr):
        raise CompileError(f"nvcc does not take the view: {done.stderr.strip()}")


def machine_instructions(ptx: str, cpu: str) -> Counter[str]:
    """How many there are of each of `OPCODES` in machine code. Raises CompileError if there are fewer than in PTX."""
    sass = sass_of(ptx, cpu)
    found = Counter({name: len(re.findall(rf"\b{name}\b", sass)) for name in OPCODES.values()})
    for theirs, name in OPCODES.items():
        if (wanted := len(re.findall(theirs, ptx))) > found[name]:
            raise CompileError(f"there are {wanted} `{theirs}` in PTX, and {found[name]} {name} in machine code")
    return +found


def _children() -> float:
    """The processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _decided(name: str) -> dict[str, Decision]:
    """What schedules with instructions of warpgroups have in common."""
    if name == "half_attention":
        return {"inline": False, "tensor_online": True, "length": 64, "scores": "groups"}
    return {"warpgroups": True}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=6, help="schedules of each task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only tasks whose name begins so")
    parser.add_argument("--nvcc", action="store_true", help="compile the views in CUDA C++ by nvcc, too")
    given = parser.parse_args(argv)
    every: list[Found] = []
    print(f"{'task':17} draws tensor refused spilled registers stack  PTX s  ptxas s")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in TASKS.items():
            if name.startswith(given.only):
                space = next((s for start, s in SPACES.items() if name.startswith(start)), "default")
                found = assembled(text, space, given.draws, given.seed, Path(folder), nvcc=given.nvcc)
                every.append(found)
                seconds = f"{median(found.own or [0.0]):6.3f}  {median(found.theirs or [0.0]):6.3f}"
                counts = f"{found.draws:5} {found.tensors:6} {len(found.refused):7} {found.spilled:7}"
                counts += f" {found.registers:9} {found.stack:5}"
                opcodes = " ".join(f"{n} {op}" for op, n in sorted(found.opcodes.items()))
                print(f"{name:17} {counts} {seconds}  {opcodes}".rstrip(), flush=True)
                for why in (*found.refused, *found.remarks):
                    print(f"    {why}")
    own = [x for f in every for x in f.own]
    total = f"{sum(f.draws for f in every)} schedules, {sum(len(f.refused) for f in every)} refused, "
    print(f"{total}{sum(f.spilled for f in every)} spill; PTX takes {median(own or [0.0]):.3f} s (median)")
    return int(any(f.refused or f.remarks for f in every))


if __name__ == "__main__":
    sys.exit(main())
