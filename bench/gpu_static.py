"""Counts instructions of our kernels for GPUs beside Triton's, without a GPU: `python -m bench.gpu_static [--json]`.

Both are compiled in one run, to machine code for sm_80 and sm_90a. Needs `pip install nvidia-cuda-nvcc
nvidia-cuda-nvdisasm`, and `triton` for the other column. What is counted are the instructions that a warp issues on the
shortest way that does all of the work: of products the way through a loop with most products of tensor instructions, for a
step of fixed size; of other kernels the way that stores the most bytes to global memory, for 32 elements a thread, or of
sums the one that loads the most. A loop on such a way counts once, and `loops` tells that there is one; then there is no
ratio. Ours is the draw with the fewest instructions of so many, of which those that spill registers are counted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.ptxas import COMPUTES
from tensorc_dsl.backend.cuda.compiled import assemble, compile_device, tool
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.faces.api import load
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.tuning.search.expansion import stream

# Machine code as text: instructions, branches and the paths between them.


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction: its name, its operands as text, and whether it has a predicate."""

    name: str
    operands: str
    guarded: bool

    @property
    def products(self) -> int:
        """The products of a tensor instruction that one warp makes of it."""
        if found := re.match(r"[HQI]GMMA\.(\d+)x(\d+)x(\d+)", self.name):
            m, n, k = map(int, found.groups())
            return m * n * k // 4
        found = re.match(r"[HIQ]MMA\.(\d+)\.", self.name)
        return {"16816": 2048, "1688": 1024, "16832": 4096}.get(found[1], 0) if found else 0

    @property
    def moved(self) -> int:
        """The bytes of global memory that a thread moves."""
        if not self.name.startswith(("LDG.", "STG.", "LDGSTS.")):
            return 0
        wide = [int(part) for part in self.name.split(".") if part in ("64", "128")]
        return wide[0] // 8 if wide else 1 if "U8" in self.name else 2 if "U16" in self.name else 4


Weight = Callable[[Op], int]


@dataclass(frozen=True)
class Kernel:
    """The instructions of a kernel, and those at which each label is."""

    ops: Sequence[Op]
    labels: Mapping[str, int]

    def target(self, n: int) -> int | None:
        """Where an instruction may go instead of the next one."""
        op = self.ops[n]
        if not op.name.startswith("BRA"):
            return None
        found = re.search(r"\.L_x_\d+", op.operands)
        return None if found is None else self.labels.get(found[0])

    @cached_property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """The first and the last instruction of each loop, those that only wait left out."""
        ends = [(at, n) for n in range(len(self.ops)) if (at := self.target(n)) is not None and at <= n]
        return tuple((a, b) for a, b in ends if a < b and not self._waits(a, b))

    def _waits(self, first: int, last: int) -> bool:
        """Whether a loop has no work: it waits for an mbarrier, or elects a thread."""
        ops = self.ops[first : last + 1]
        return any(x.name.startswith(("SYNCS", "ELECT")) for x in ops) and not any(x.products for x in ops)

    def path(self, first: int, last: int, weight: Weight) -> tuple[int, int]:
        """The largest weight of a way from one instruction to another, and the fewest instructions with it."""
        best: dict[int, tuple[int, int]] = {first: (0, 0)}
        for n in range(first, last + 1):
            if n not in best:
                continue
            op, (work, count) = self.ops[n], best[n]
            here = work + weight(op), count - 1
            over = op.name in ("EXIT", "RET", "BRA") and not op.guarded and "P" not in op.operands.partition("`")[0]
            nexts = [] if over else [n + 1]
            if (at := self.target(n)) is not None and at > n:
                nexts.append(at)
            if n == last or (op.name == "EXIT" and not op.guarded):
                nexts = [len(self.ops)]
            for m in nexts:
                best[m] = max(best.get(m, (-1, 0)), here)
        work, count = best.get(len(self.ops), (0, 0))
        return work, -count


_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


def kernels_of(sass: str) -> list[Kernel]:
    """The kernels of the output of nvdisasm."""
    out = list[Kernel]()
    ops: list[Op] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if line.startswith(".text."):
            ops, labels = list[Op](), dict[str, int]()
            out.append(Kernel(ops, labels))
        elif found := re.match(r"^(\.L_x_\d+):", line):
            labels[found[1]] = len(ops)
        elif found := _LINE.match(line):
            ops.append(Op(found[2], found[3], bool(found[1])))
    return [k for k in out if k.ops]


def disassembled(cubin: Path) -> list[Kernel]:
    command = [str(tool("nvdisasm")), "-c", str(cubin)]
    return kernels_of(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


# The kernels that are counted, and what they are counted in.


@dataclass(frozen=True, slots=True)
class Case:
    """A task over a space, some of its draws, and Triton's kernel with its constants and warps.

    A step is so many `products` of a warp, or else 32 elements of 4 bytes, which a thread moves once by `once`: stores, or
    the loads of what is not read twice."""

    text: str
    space: str
    draws: Mapping[str, Decision]
    theirs: str
    constants: Mapping[str, int | float]
    warps: int = 4
    products: int = 0
    once: str = "STG."
    targets: tuple[str, ...] = ("sm_80", "sm_90a")


OWN = """
compute causal_attention(Q: T[B, H, M, D], K: T[B, H, N, D], V: T[B, H, N, E]; T: dtype = f16) -> O: f32[B, H, M, E] {
    let S[b, h, i, j] = sum[d] f32(Q[b, h, i, d]) * f32(K[b, h, j, d])
    let W[b, h, i, j] = S[b, h, i, j] if j <= i else -inf
    let m[b, h, i] = max[j] W[b, h, i, j]
    let e[b, h, i, j] = T(exp((W[b, h, i, j] - m[b, h, i]) * rsqrt(f32(D))))
    let s[b, h, i] = sum[j] f32(e[b, h, i, j])
    let U[b, h, i, c] = sum[j] f32(e[b, h, i, j]) * f32(V[b, h, j, c])
    O[b, h, i, c] = U[b, h, i, c] / s[b, h, i]
}

compute row_sums(X: f32[M, N]) -> S: f32[M] {
    S[i] = sum[j] X[i, j]
}

compute fused_map(X: f32[M, N], Z: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = max(X[i, j], 0.0) + Z[i, j] * X[i, j]
}
"""


def _attention(d: int, causal: bool, target: str, *, overlap: bool = False) -> Case:
    size = f"B=1, H=8, M=1024, N=1024, D={d}, E={d}"
    own = "causal_attention" if causal else "half_attention"
    space, scores = ("hopper", "groups") if target == "sm_90a" else ("tensor_core", "fragments")
    constants = {
        "M": 1024,
        "N": 1024,
        "D": d,
        "BM": 64,
        "BN": 64,
        "CAUSAL": int(causal),
        "scale": 1.4426950408889634 / d**0.5,
    }
    length = 32 if (d, scores) == (128, "fragments") else 64  # as many as registers hold
    draws: dict[str, Decision] = {"inline": causal, "tensor_online": True, "length": length, "scores": scores}
    if overlap:
        draws |= {"overlap": True, "ahead": 1}
    return Case(f"{own}({size})", space, draws, "attention", constants, 4, 2 * 64 * 64 * d // 4, targets=(target,))


def _gemm(target: str) -> Case:
    hopper = target == "sm_90a"
    text = "matmul(M=4096, N=4096, K=4096, T=f16, Acc=f32)"
    draws: dict[str, Decision] = {"in_parts": False, "streamed": False}
    if hopper:
        draws["warpgroups"] = True
    else:  # Triton's tiles, of four warps, and copies of 16 bytes
        tiles: dict[str, Decision] = {"inner": (32, 2, 4, 16), "inner_1": (32, 2, 4, 16), "inner_2": (128, 2, 16)}
        draws |= {"tensor_core": True, "width": 8, "width_1": 8, **tiles}
    constants = {"M": 4096, "N": 4096, "K": 4096, "BM": 128, "BN": 128, "BK": 64 if hopper else 32}
    products = 64 * 128 * 64 // 4 if hopper else 64 * 64 * 32
    return Case(
        text,
        "hopper" if hopper else "tensor_core",
        draws,
        "gemm",
        constants,
        8 if hopper else 4,
        products,
        targets=(target,),
    )


ROWS = 4096

_WIDE: dict[str, Decision] = {"wide": 4, "width": 128, "combine": "by_shuffles"}
"""Accesses of 16 bytes, and Triton's four warps."""

_ROW: dict[str, Decision] = {**_WIDE, "inline": False, "one_kernel": True, "combine_1": "by_shuffles"}

CASES: dict[str, Case] = {
    **{
        f"attention D={d}{', causal' * causal}, {target}": _attention(d, causal, target)
        for d in (64, 128)
        for causal in (False, True)
        for target in ("sm_90a", "sm_80")
    },
    **{
        f"attention D={d}{', causal' * causal}, overlapped, sm_90a": _attention(d, causal, "sm_90a", overlap=True)
        for d in (64, 128)
        for causal in (False, True)
    },
    **{f"gemm f16, {target}": _gemm(target) for target in ("sm_90a", "sm_80")},
    "softmax": Case(f"softmax(M=1024, N={ROWS})", "default", _ROW, "softmax", {"N": ROWS}),
    "softmax, approx": Case(f"softmax(M=1024, N={ROWS}, approx=2e-5)", "default", _ROW, "softmax", {"N": ROWS}),
    "layer norm": Case(f"layer_norm(M=1024, N={ROWS})", "default", _ROW, "layer_norm", {"N": ROWS}),
    "row sums": Case(
        f"row_sums(M=4096, N={ROWS})", "default", {**_WIDE, "together": True}, "row_sums", {"N": ROWS}, once="LDG."
    ),
    "transpose": Case(
        "transpose(M=4096, N=4096)",
        "default",
        {"transposed": True, "width": 128},
        "transpose",
        {"M": 4096, "N": 4096, "B": 64},
    ),
    "map": Case("fused_map(M=4096, N=4096)", "default", {"wide": 4}, "map", {"B": 1024}),
}


@dataclass(slots=True)
class Count:
    """The instructions of a step, whether a loop is among those that are counted once, the accesses to global memory by
    their width, and the draws that spill of all that have code."""

    step: float
    loops: bool
    accesses: dict[str, int] = field(default_factory=dict[str, int])
    spilled: int = 0
    draws: int = 0


def count(kernels: Sequence[Kernel], case: Case) -> Count:
    """The instructions of a step, of all kernels together."""
    accesses: dict[str, int] = {}
    for op in (x for k in kernels for x in k.ops if x.moved):
        kind = f"{op.name.partition('.')[0]}.{8 * op.moved}"
        accesses[kind] = accesses.get(kind, 0) + 1
    if case.products:
        found = [k.path(a, b, lambda op: op.products) for k in kernels for a, b in k.loops]
        steps = [n * case.products / work for work, n in found if work]
        return Count(min(steps, default=0.0), False, accesses)
    paths = [k.path(0, len(k.ops) - 1, lambda op: op.moved * op.name.startswith(case.once)) for k in kernels]
    elements = sum(work for work, _ in paths) / 4
    total = sum(n for _, n in paths)
    return Count(32 * total / elements if elements else 0.0, any(k.loops for k in kernels), accesses)


def ours(case: Case, target: str, draws: int, folder: Path) -> Count:
    """The draw with the fewest instructions a step, one without loops first."""
    file, out = folder / "t.tsched", list[Count]()
    name, own, spilled = case.text.partition("(")[0], COMPUTES + OWN, 0
    uses = "std.ops" if f"compute {name}(" in own else f"std.ops.{{{name}}}"
    head = f"use {uses}\nuse std.gpu.{case.space}.{{{case.space}}}\nuse std.gpu.targets.{{sm_80, sm_90a}}\n"
    file.write_text(f"{head}{own}task t = {case.text} with {case.space}\n", encoding="utf-8")
    task = load(file, target=target)["t"]
    model = condition(task.model, dict(case.draws))
    for number in range(draws):
        try:
            program = model.sample(stream(number, case.text, target)).program
            ptx = compile_device(lower_device(program, tuple(task.target.feature_names)), task.target).ptx
            said = assemble(ptx, target, folder / "t.cubin")
        except (ScheduleRefusal, LowerError, CompileError):
            continue
        spilled += any(int(x) for x in re.findall(r"(\d+) bytes spill (?:stores|loads)", said))
        out.append(count(disassembled(folder / "t.cubin"), case))
    if not out:
        return Count(0.0, False)
    best = min((c for c in out if c.step), key=lambda c: (c.loops, c.step), default=out[0])
    best.spilled, best.draws = spilled, len(out)
    return best


def theirs(case: Case, target: str, folder: Path) -> Count | None:
    """Triton's, if it is here."""
    if find_spec("triton") is None:
        return None
    compiled = import_module("bench.against.peers.triton_kernels").cubin
    file = folder / "theirs.cubin"
    file.write_bytes(compiled(case.theirs, target, dict(case.constants), case.warps))
    return count(disassembled(file), case)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=8, help="schedules of each kernel")
    parser.add_argument("--only", default="", help="only kernels whose name has this")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, case in CASES.items():
            if given.only not in title:
                continue
            for target in case.targets:
                own, other = ours(case, target, given.draws, folder), theirs(case, target, folder)
                told = other is not None and other.step and own.step and not (own.loops or other.loops)
                row: dict[str, object] = {
                    "kernel": title.removesuffix(f", {target}"),
                    "target": target,
                    "ours": round(own.step, 1),
                    "triton": None if other is None else round(other.step, 1),
                    "ratio": round(own.step / other.step, 2) if told and other is not None else None,
                    "loops": own.loops,
                    "accesses": own.accesses,
                    "their accesses": {} if other is None else other.accesses,
                    "draws": own.draws,
                    "spilled": own.spilled,
                }
                rows.append(row)
                if not given.json:
                    print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    if given.json:
        print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
