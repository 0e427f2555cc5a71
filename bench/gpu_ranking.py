"""How the model of GPUs ranks schedules, beside an estimate from machine code: `python -m bench.gpu_ranking --draws 32`.

Needs ptxas and nvdisasm (`pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm`), no GPU. For each kernel and target it prints
the rank correlation (Spearman) of the model's cycles with those of the estimate over the draws, and how much longer than the
estimate's best the model's first choice is. The status is 1 if a correlation is below `AGREE`, or a first choice beyond
`CHOICE`.

The estimate has no code of the model. How often each instruction of machine code runs comes from a walk through the PTX
(`bench.ptx_walk`), by the lines that ptxas notes. Its cycles are the longest of: what each pipe of a multiprocessor takes for
the opcodes, tensor cores, passes over shared memory, lines of the first-level cache, bytes from the second-level cache, bytes
of arrays from memory, and a warp alone. It is no measurement.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from statistics import median

import numpy as np

from bench.gpu_calibration import correlation
from bench.gpu_case import HEAD
from bench.ptx_walk import LINE, SECTOR, Kernel, Walked, kernels_of, walk
from bench.ptxas import COMPUTES
from tensorc_dsl.backend.cuda.compiled import CudaKernel, tool
from tensorc_dsl.backend.cuda.runtime.kernel import unpack
from tensorc_dsl.backend.protocol import require_backend
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.sizes import evaluate_size
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition

AGREE, CHOICE = 0.85, 1.10
"""The least rank correlation, and how much longer than the best the first choice may be."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task, its space on each target, and what is decided in its draws."""

    text: str
    spaces: Mapping[str, str]
    draws: Mapping[str, Decision]
    has: str = ""
    """What the PTX of a draw has a match of."""


_ALONE: dict[str, Decision] = {"in_parts": False, "streamed": False}
_BOTH = {"sm_80": "tensor_core", "sm_90a": "hopper"}
_ROLES = r"mbarrier\.arrive\.shared"
_PRODUCT = "matmul(M=4096, N=4096, K=1024, T=f16, Acc=f32)"

CASES = {
    "gemm f16": Case(_PRODUCT, {"sm_80": "tensor_core"}, _ALONE),
    "gemm f32": Case("matmul(M=1024, N=1024, K=512)", {"sm_80": "default"}, _ALONE),
    "gemm f16, roles": Case(_PRODUCT, {"sm_90a": "hopper"}, {**_ALONE, "warpgroups": True, "beside": True}, _ROLES),
    "gemm f16, no roles": Case(_PRODUCT, {"sm_90a": "hopper"}, {**_ALONE, "warpgroups": True, "beside": False}),
    "attention": Case("half_attention(B=1, H=16, M=1024, N=1024, D=64, E=64)", _BOTH, {"inline": False}),
    "softmax": Case("softmax(M=4096, N=1024)", dict.fromkeys(_BOTH, "default"), {}),
    "transpose": Case("transpose(M=2048, N=2048)", dict.fromkeys(_BOTH, "default"), {}),
}


# What a multiprocessor does in a cycle, from the vendor's tables of throughput, "Arithmetic Instructions".


@dataclass(frozen=True, slots=True)
class Figures:
    """A GPU: multiprocessors, registers and shared memory of one, bytes of memory for each in a cycle, multiplications of its
    tensor cores in a cycle, those by instructions of warps, and the cycles of a warp for an instruction of f32."""

    cores: int
    shared: int
    memory: float
    rates: Mapping[str, float]
    of_warps: float
    floats: float


FIGURES = {
    "sm_80": Figures(108, 164 << 10, 10.2, {"f16": 1024, "bf16": 1024, "tf32": 512, "s8": 2048}, 1.0, 2.0),
    "sm_90a": Figures(132, 228 << 10, 14.5, {"f16": 2048, "bf16": 2048, "tf32": 1024, "e4m3": 4096}, 0.62, 1.0),
}

CACHE, LAUNCH, FILE, WARPS, BLOCKS = 64.0, 4000.0, 65536, 64, 32

PIPES = {
    "special": (re.compile(r"(MUFU|F2F|F2I|I2F|POPC|FLO|BREV|DADD|DMUL|DFMA)\b"), 8.0),
    "accesses": (
        re.compile(r"(LDG|STG|LDS|STS|LDSM|STSM|LDGSTS|ATOM\w*|RED\w*|SHFL|LDL|STL|UTMA\w*|SYNCS|LD|ST)\b"),
        4.0,
    ),
    "floats": (re.compile(r"(FFMA|FADD|FMUL|HFMA2|HADD2|HMUL2)\b"), 1.0),
    "integers": (
        re.compile(
            r"(IMAD|V?IADD\d?|LOP3|LEA|SHF|I?F?SETP|F?SEL|FMNMX|V?IMNMX|PRMT|MOV|PLOP3|F2FP|SGXT|BMSK|IABS|U\w+)\b"
        ),
        2.0,
    ),
}
"""The opcodes of each pipe, and the cycles that one of a warp takes of a quarter of a multiprocessor; `Figures` has those of
floats. All quarters share one for accesses."""

_ONCE = re.compile(r"^(LDG|STG|LDS|STS|LDSM|LDGSTS|HMMA|IMMA|QMMA|HGMMA|QGMMA|SHFL|UTMALDG|UTMASTG|FFMA|FADD|FMUL)\b")
"""The opcodes of which there is one for each instruction of PTX."""

_LIKE = re.compile(
    r"\b(ld|st|ldmatrix|mma|wgmma|shfl|cp|fma|add|mul)\.(?!\S*(?:param|commit|wait|fence|local|[su]\d\d|b\d\d$))\S*"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The opcodes of a kernel by basic blocks, with the line of PTX of each, and its registers."""

    blocks: tuple[tuple[tuple[str, int], ...], ...]
    registers: int


def machine_code(ptx: str, cpu: str) -> dict[str, Machine]:
    """The machine code of the kernels of a text. Raises TschedError as ptxas fails."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [str(tool("ptxas")), f"-arch={cpu}", "-lineinfo", "-v", str(source), "-o", str(cubin)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stderr
        command = [str(tool("nvdisasm")), "-c", "-gp", str(cubin)]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    registers = dict(re.findall(r"Compiling entry function '(\w+)'[\s\S]*?Used (\d+) registers", said))
    return {name: Machine(blocks, int(registers[name])) for name, blocks in blocks_of(text).items()}


def blocks_of(sass: str) -> dict[str, tuple[tuple[tuple[str, int], ...], ...]]:
    """The basic blocks of kernels in the output of nvdisasm. A function that ptxas calls has the line 0: divisions are in one
    where a number is not normal, which happens hardly ever. Before narrow copies there are loads that never happen."""
    out: dict[str, tuple[tuple[tuple[str, int], ...], ...]] = {}
    name, line = "", 0
    blocks: list[list[tuple[str, int]]] = list[list[tuple[str, int]]]()
    for raw in [*sass.splitlines(), "\t.section\t.text.,"]:
        if found := re.search(r"\.section\s+\.text\.(\w*)", raw):
            if name:
                out[name] = tuple(map(tuple, blocks))
            name, line, blocks = found[1], 0, [list[tuple[str, int]]()]
        elif found := re.search(r"//## File .*?, line (\d+)", raw):
            line = int(found[1])
        elif raw.startswith((".", "$")):
            line = 0 if raw.startswith("$") else line
            blocks.append([])
        elif found := re.search(r"/\*[0-9a-f]+\*/\s+(@!?U?P\w+ )?([A-Z][\w.]*)", raw):
            opcode = "NOP" if found[1] == "@!PT " else found[2]
            blocks[-1].append((opcode, line))
            if opcode.startswith(("BRA", "EXIT")):
                blocks.append([])
    return out


def often(kernel: Kernel, ptx: Sequence[str], walked: Walked, machine: Machine) -> dict[str, float]:
    """How often each opcode runs, for all warps of a block: what a block of machine code stands for in PTX says how often it
    runs, and what ptxas has copied, as in loops that it unrolls, runs so many times less often."""
    of_line = kernel.lines
    copies = Counter(line for b in machine.blocks for op, line in b if _ONCE.match(op))
    seen: dict[int, list[int]] = defaultdict(list)
    for line, block in of_line.items():
        if copies[line] and (wanted := len(_LIKE.findall(ptx[line - 1]))):
            seen[block].append(max(1, copies[line] // wanted))
    times = {block: median(found) for block, found in seen.items()}
    out: dict[str, float] = defaultdict(float)
    for block in machine.blocks:
        found = [walked.runs[line] / times.get(of_line[line], 1) for _, line in block if line in of_line]
        runs = median(found) if found else 0.0
        for op, _ in block:
            out[op] += runs
    return out


def bounds(kernel: CudaKernel, cpu: str, sizes: Mapping[str, int]) -> list[dict[str, float]]:
    """The cycles of each kernel of a program by each of its bounds; none for one of which no block fits."""
    figures, out = FIGURES[cpu], list[dict[str, float]]()
    image, extents = unpack(kernel.code.object_code)
    grids, scratch = extents.bound(dict(sizes))
    lines, codes = image.ptx.splitlines(), machine_code(image.ptx, cpu)
    arrays = {p.name: prod(evaluate_size(n, sizes) for n in p.shape) * p.dtype.bytes for p in kernel.program.params}
    arrays |= dict(zip(image.scratch, scratch, strict=True))
    width = {p.name: p.dtype.bytes for p in kernel.program.params} | {
        x.name: x.dtype.bytes for x in kernel.program.scratch
    }
    for text, launch, grid in zip(kernels_of(image.ptx), image.launches, grids, strict=True):
        boxes = {text.params[n]: prod(m.box) * width[m.array] for n, m in enumerate(launch.maps)}
        like = re.search(r"mbarrier|cp\.async\.bulk", image.ptx) is None  # else one warp does what others do not
        did, alone = walk(
            text,
            launch.threads,
            grid,
            figures.rates,
            boxes,
            blocks=1 if prod(grid) <= figures.cores else 2 if like else 3,  # the first one has the most to do in turn
            warps=3 if like else 32,
        )
        code = codes[launch.name]
        warps = -(-launch.threads // 32)
        per_warp = -(-min(code.registers, 255) * 32 // 256) * 256
        fit = min(WARPS // warps, BLOCKS, FILE // (per_warp * warps), figures.shared // (launch.shared_bytes + 1024))
        blocks = prod(grid)
        busiest = -(-blocks // figures.cores)
        if not fit:
            return []
        pipes: dict[str, float] = dict.fromkeys(("issue", *PIPES), 0.0)
        for op, n in often(text, lines, did, code).items():
            pipes["issue"] += n / 4
            for pipe, (opcodes, cycles) in PIPES.items():
                if opcodes.match(op):
                    pipes[pipe] += n * (figures.floats if pipe == "floats" else cycles) / 4
                    break
        pipes["tensor"] = sum(
            n / figures.rates[kind.removeprefix("group ")] / (1.0 if kind.startswith("group") else figures.of_warps)
            for kind, n in did.products.items()
        )
        pipes["shared"] = did.passes + did.tma_bytes / LINE
        pipes["lines"] = did.lines
        pipes["cache"] = did.sectors * SECTOR / CACHE
        pipes = {pipe: n * busiest for pipe, n in pipes.items()}
        pipes["alone"] = busiest / min(fit, busiest) * alone
        moved = sum(arrays[n] for n in {*launch.params, *(m.array for m in launch.maps)})
        pipes["memory"] = moved / (figures.memory * figures.cores)
        out.append(pipes)
    return out


def estimate(kernel: CudaKernel, cpu: str, sizes: Mapping[str, int]) -> float:
    """The cycles of all kernels of a program, infinite if no block of one fits."""
    found = bounds(kernel, cpu, sizes)
    return sum(LAUNCH + max(b.values()) for b in found) if found else inf


@dataclass(frozen=True, slots=True)
class Row:
    """What the model and the estimate say of the draws of a kernel."""

    kernel: str
    target: str
    model: tuple[float, ...]
    estimate: tuple[float, ...]

    @property
    def correlation(self) -> float:
        """Spearman's."""
        return correlation(self.model, self.estimate)

    @property
    def choice(self) -> float:
        """The estimate of the model's first choice, in that of the estimate's."""
        return self.estimate[int(np.argmin(self.model))] / min(self.estimate)

    @property
    def good(self) -> bool:
        return self.correlation >= AGREE and self.choice <= CHOICE


def drawn(case: Case, target: str, draws: int, seed: int) -> Iterator[tuple[Task, CudaKernel]]:
    """So many draws that have code."""
    task = loads(f"{HEAD}use std.gpu.targets.{{sm_80, sm_90a}}\n{COMPUTES}task t = {case.text} with {case.spaces[target]}\n",
                 target=target)["t"]  # fmt: skip
    task, count = task.drawn_from(condition(task.model, dict(case.draws))), 0
    for number in range(20 * draws):
        try:
            compiled = task.compile(task.sample(seed, number))
        except TschedError:
            continue
        assert isinstance(compiled, CudaKernel)
        if not re.search(case.has, compiled.ptx):
            continue
        yield task, compiled
        count += 1
        if count == draws:
            return


def ranked(name: str, target: str, draws: int, seed: int) -> Row:
    """The draws of a case."""
    backend = require_backend("cuda", name)
    model, code = list[float](), list[float]()
    for task, compiled in drawn(CASES[name], target, draws, seed):
        model.append(backend.cycles(compiled.program, task.target, {}, backend.registers(compiled)) or inf)
        code.append(estimate(compiled, target, {}))
    return Row(name, target, tuple(model), tuple(code))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=32, help="schedules of each kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only kernels whose name begins so")
    parser.add_argument(
        "--target", action="append", choices=tuple(FIGURES), help="one of the targets; may be said again"
    )
    parser.add_argument("--json", type=Path, help="a file for the rows")
    given = parser.parse_args(argv)
    rows: list[Row] = []
    for name, case in CASES.items():
        for target in case.spaces:
            if name.startswith(given.only) and target in (given.target or FIGURES):
                rows.append(row := ranked(name, target, given.draws, given.seed))
                print(f"{name:20} {target:7} {len(row.model):3} draws  correlation {row.correlation:5.2f}  "
                      f"first choice {row.choice:5.2f}×", flush=True)  # fmt: skip
    if given.json:
        found = [{"kernel": r.kernel, "target": r.target, "correlation": r.correlation, "choice": r.choice,
                  "model": r.model, "estimate": r.estimate} for r in rows]  # fmt: skip
        given.json.write_text(json.dumps({"rows": found}, indent=1) + "\n", encoding="utf-8")
    return int(not all(r.good for r in rows))


if __name__ == "__main__":
    sys.exit(main())
