"""Kernels for other processors, run under QEMU: `python -m campaigns.processors --draws 3 [--only gemm,c2d] [--most 24]`.

The tasks are those of `bench/suite.tsched` and `bench/against/operators.tsched`, with sizes halved until they are at most
`--most`, and odd where they were, and products of bytes by SDOT. For each processor whose QEMU and C compiler are installed,
schedules are drawn, a runner of each is run on random inputs, and its outputs are compared with the float64 reference. What
is wrong is printed, and the status is 1. No processor has LSE2: QEMU 7.2 has none, and code for one that has refuses to run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from bench.suite import FILE as SUITE
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.tuning.measure.check import Verdict
from tensorc_dsl.tuning.measure.child import Task as Reference
from tensorc_dsl.tuning.measure.child import callers_params

RUNNER = "it.run"

OPERATORS = SUITE.parent / "against" / "operators.tsched"

SECONDS = 300.0
"""The time limit of one run: QEMU takes about a hundred times as long as the processor."""

DOTS = """
use std.cpu.parts
use std.cpu.tensorize
use std.intrinsics.arm.{sdot_4x4}

space dots for llvm {
    stages
    multi_level_tiling_with_intrin(sdot_4x4)
    tiles
}

compute matmul_i8(A: i8[M, K], B: const i8[K, N]) -> C: i32[M, N] {
    C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j])
}

compute matmul_nt_i8(A: i8[M, K], B: i8[N, K]) -> C: i32[M, N] {
    C[i, j] = sum[k] i32(A[i, k]) * i32(B[j, k])
}

task dots_64 = matmul_i8(M=64, N=64, K=64) with dots
task dots_7x29x13 = matmul_i8(M=7, N=29, K=13) with dots
task dots_nt_48 = matmul_nt_i8(M=48, N=48, K=48) with dots
"""


@dataclass(frozen=True, slots=True)
class Processor:
    """A target item, the program that runs its code here, and its C compiler."""

    target: str
    emulator: tuple[str, ...]
    compiler: str


ARM, X86 = 'triple="aarch64-unknown-linux-gnu"', 'triple="x86_64-unknown-linux-gnu"'
MAX = ("qemu-aarch64", "-cpu", "max")
PROCESSORS = {
    "cortex-a72": Processor(
        f'{ARM}, cpu="cortex-a72", features=["neon"], vector_bits=128, cores=2', MAX, "aarch64-linux-gnu-gcc"
    ),
    "neoverse-n1": Processor(
        f'{ARM}, cpu="neoverse-n1", features=["neon", "dotprod", "fullfp16"], vector_bits=128, cores=2',
        MAX,
        "aarch64-linux-gnu-gcc",
    ),
    "a64fx": Processor(
        f'{ARM}, cpu="a64fx", features=["neon", "sve", "dotprod", "bf16", "i8mm"], vector_bits=512, cores=2',
        ("qemu-aarch64", "-cpu", "max,sve512=on"),
        "aarch64-linux-gnu-gcc",
    ),
    "haswell": Processor(
        f'{X86}, cpu="haswell", features=["avx", "avx2", "fma"], vector_bits=256, cores=2',
        ("qemu-x86_64", "-cpu", "Haswell"),
        "cc",
    ),
}


def smaller(text: str, most: int) -> str:
    """A file with the sizes of its tasks halved until they are at most `most`."""

    def size(found: re.Match[str]) -> str:
        n = old = int(found[1])
        while n > most:
            n //= 2
        return f"={n | 1 if n < old and old % 2 else n}"

    return re.sub(r"^task .*$", lambda line: re.sub(r"=(\d+)\b", size, line[0]), text, flags=re.MULTILINE)


def texts(most: int) -> tuple[str, ...]:
    """The files, without targets; spaces for instructions that only x86 has become the default one."""
    found = [smaller(path.read_text("utf-8"), most) for path in (SUITE, OPERATORS)]
    plain = [re.sub(r"with (vnni|bf16)\b", "with default", text) for text in found]
    return (*(re.sub(r"^use std\.cpu\.x86.*$", "", text, flags=re.MULTILINE) for text in plain), DOTS)


def tasks(processor: Processor, most: int) -> Iterator[Task]:
    """The tasks for a processor, without those that became equal to one before."""
    seen: set[str] = set()
    for text in texts(most):
        for name, task in loads(f"target machine = llvm({processor.target})\n{text}", target="machine").items():
            call = re.search(rf"^task {name} = (.*)$", text, re.MULTILINE)
            if call and call[1] not in seen:
                seen.add(call[1])
                yield task


def missing(processor: Processor) -> str:
    """What is not installed of what a processor needs; empty if nothing is."""
    return ", ".join(t for t in (processor.emulator[0], processor.compiler) if shutil.which(t) is None)


def outputs(task: Task, runs: Sequence[str], folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs, and what the runner in the folder computes of them. CalledProcessError where it ends with an error."""
    params = callers_params(task.program)
    given, results = folder / "inputs", folder / "outputs"
    given.write_bytes(b"".join(np.ascontiguousarray(inputs[p.name]).tobytes() for p in params if p.name in inputs))
    command = [*runs, str(folder / RUNNER), "--inputs", str(given), "--output", str(results), "--seconds", "0"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    found, out = results.read_bytes(), dict(inputs)
    written = {p.updates or p.name for p in task.program.outputs}
    for p in (p for p in params if p.name in written):
        size = int(np.prod(shape_of(p))) * stored_dtype(p.dtype).itemsize
        out[p.name] = np.frombuffer(found[:size], stored_dtype(p.dtype)).reshape(shape_of(p))
        found = found[size:]
    return out


def judged(task: Task, processor: Processor, draw: int) -> tuple[str, str]:
    """What becomes of a schedule of a task: `right`, `wrong`, `refused` or `not built`, and the reason."""
    try:
        trace = task.sample(draw)
    except ScheduleRefusal as e:
        return "refused", str(e)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            task.export(trace, folder / RUNNER, "runner")
        except TschedError as e:
            return "not built", f"{e}"
        reference = Reference.of(task.program, draw)
        try:
            verdict = reference.verdict(outputs(task, processor.emulator, folder, reference.inputs))
        except subprocess.CalledProcessError as e:
            verdict = Verdict(np.inf, f"status {e.returncode}: {e.stderr}")
        except subprocess.TimeoutExpired:
            return "too slow", ""
    return ("wrong", verdict.fault) if verdict.fault else ("right", "")


def campaign(name: str, most: int, draws: int, seed: int, only: Sequence[str], part: int, parts: int) -> list[str]:
    """The outcomes of a part of the tasks for a processor; those that are not right are printed."""
    processor, found = PROCESSORS[name], list[str]()
    chosen = [t for t in tasks(processor, most) if not only or any(t.name.startswith(x) for x in only)]
    for task in chosen[part::parts]:
        for draw in range(seed, seed + draws):
            outcome, why = judged(task, processor, draw)
            found.append(outcome)
            if outcome not in ("right", "refused"):
                print(f"{name}: {task.name}, draw {draw}: {outcome}: {why}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="the first draw")
    parser.add_argument("--most", type=int, default=24)
    parser.add_argument("--only", default="", help="how the names of the tasks begin")
    parser.add_argument("--processors", default=",".join(PROCESSORS))
    parser.add_argument("--jobs", type=int, default=2)
    a = parser.parse_args()
    only, wrong = [x for x in a.only.split(",") if x], False
    with ProcessPoolExecutor(a.jobs) as pool:
        for name in a.processors.split(","):
            if lacking := missing(PROCESSORS[name]):
                print(f"{name}: not installed: {lacking}")
                continue
            given = (name, a.most, a.draws, a.seed, only)
            parts = pool.map(campaign, *map(repeat, given), range(a.jobs), repeat(a.jobs))
            counts = Counter(x for part in parts for x in part)
            ran = counts["right"] + counts["wrong"]
            rest = "".join(f", {n} {x}" for x, n in counts.items() if x not in ("right", "wrong"))
            print(f"{name}: {ran} kernels ran, {counts['right']} were right{rest}", flush=True)
            wrong |= counts["wrong"] > 0
    sys.exit(wrong)


if __name__ == "__main__":
    main()
