"""Kernels for other processors, run under QEMU: `python -m campaigns.processors --draws 3 [--only gemm,c2d] [--most 24]`.

The tasks are those of `bench/suite.tsched` and `bench/against/operators.tsched`, with sizes halved until they are at most
`--most`, and odd where they were; products of bytes by SDOT; and for each type all conversions, operators and functions. For
each processor whose QEMU and C compiler are installed, schedules are drawn, a runner of each is run on random inputs, also on
NaN, infinities and the ends of types where elements are computed one by one, and its outputs are compared with the float64
reference. What is wrong is printed, and the status is 1. No processor has LSE2: QEMU 7.2 has none, and code for one that has
refuses to run. Its masked loads of AVX also read what the mask leaves out, and end a program behind an array: such a one is
run on this machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Literal

import numpy as np

from bench.suite import FILE as SUITE
from tensorc_dsl.backend.llvm.codegen.machine import host_lacks
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import Special, make_inputs, special_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.tuning.measure.check import compare
from tensorc_dsl.tuning.measure.child import callers_params

RUNNER = "it.run"

ELEMENTS = "elements_"
"""How the names of the tasks begin that are also run on special values."""

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

FUNCTIONS = tuple(
    "exp exp2 expm1 log log2 log10 log1p tanh sinh cosh asinh acosh atanh erf erfc sqrt rsqrt cbrt sigmoid floor ceil trunc "
    "round abs sign sin cos tan asin acos atan".split()
)
OF_TWO = "hypot", "copysign", "atan2", "pow"
OF_INTEGERS = "bit_not", "popcount", "clz", "ctz"
OF_TWO_INTEGERS = "xor", "bit_and", "bit_or", "shift_left", "shift_right"


@dataclass(frozen=True, slots=True)
class Processor:
    """A target item, the program that runs its code, its C compiler, and the features with which this machine runs it."""

    target: str
    emulator: tuple[str, ...]
    compiler: str
    features: tuple[str, ...] = ()


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
        ("avx2", "fma"),
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


def elements(t: DType) -> Iterator[str]:
    """Computes of all conversions of a type, and of its operators and functions, each with a task of 53 elements."""

    def made(name: str, arguments: str, results: Iterable[tuple[str, str]]) -> str:
        found = [(f"Y{n}", t, e) for n, (t, e) in enumerate(results)]
        declared = ", ".join(f"{y}: {t}[N]" for y, t, _ in found)
        body = "".join(f"    {y}[i] = {e}\n" for y, _, e in found)
        name = f"{ELEMENTS}{name}_{t}"
        return f"compute {name}({arguments}) -> {declared} {{\n{body}}}\ntask {name} = {name}(N=53) with default\n"

    one, two = f"X: {t}[N]", f"X: {t}[N], Z: {t}[N]"
    yield made("casts", one, ((u, f"{u}(X[i])") for u in DTYPES if u not in (t.name, "bool")))
    if not t.has_arithmetic:
        return
    octets = (x for x in DTYPES.values() if x.is_integer or not x.has_arithmetic)
    yield made("saturated", one, ((u.name, f"saturate({u}, X[i])") for u in octets))
    operators = [(t.name, f"X[i] {op} Z[i]") for op in ("+", "-", "*", "/", "%")]
    operators += [("i32", f"1 if X[i] {op} Z[i] else 0") for op in ("<", "<=", "==", "!=")]
    operators += [(t.name, e) for e in ("min(X[i], Z[i])", "max(X[i], Z[i])", "-X[i]", "X[i] * Z[i] + X[i]")]
    yield made("operators", two, operators)
    of_one, of_two = (FUNCTIONS, OF_TWO) if t.is_float else (OF_INTEGERS, OF_TWO_INTEGERS)
    yield made("functions", one, ((t.name, f"{f}(X[i])") for f in of_one))
    yield made("functions_of_two", two, ((t.name, f"{f}(X[i], Z[i])") for f in of_two))


def texts(most: int) -> tuple[str, ...]:
    """The files, without targets; spaces for instructions that only x86 has become the default one."""
    found = [smaller(path.read_text("utf-8"), most) for path in (SUITE, OPERATORS)]
    every = "\n".join(["use std.cpu.{default}", *(x for t in DTYPES.values() if t.name != "bool" for x in elements(t))])
    plain = [re.sub(r"with (vnni|bf16)\b", "with default", text) for text in found]
    return (*(re.sub(r"^use std\.cpu\.x86.*$", "", text, flags=re.MULTILINE) for text in plain), DOTS, every)


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
    """What becomes of a schedule of a task: `right`, `wrong`, `refused` or `not built`, and the reason; `right here` if its
    program is right on this machine and the emulator ends it."""
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
        every = [make_inputs(task.program, draw)]
        if task.name.startswith(ELEMENTS):
            every += [special_inputs(task.program, draw, share, tuple(Special)) for share in (0.2, 0.9)]
        try:
            return wrong(task, processor.emulator, folder, every) or ("right", "")
        except subprocess.CalledProcessError as e:
            if e.returncode != -signal.SIGSEGV or not processor.features or host_lacks(processor.features):
                return "wrong", f"status {e.returncode}: {e.stderr}"
            return wrong(task, (), folder, every) or ("right here", "")
        except subprocess.TimeoutExpired:
            return "too slow", ""


def wrong(
    task: Task, runs: Sequence[str], folder: Path, every: Sequence[Mapping[str, Array]]
) -> tuple[Literal["wrong"], str] | None:
    """What is wrong on some of the inputs; None if nothing is. CalledProcessError, TimeoutExpired."""
    for inputs in every:
        found = outputs(task, runs, folder, inputs)
        with np.errstate(over="ignore"):
            expected, allowed = bounded(task.program, inputs)
            for p in task.program.outputs:
                name = p.updates or p.name
                if fault := compare(name, found[name], expected[p.name], allowed[p.name], p.dtype).fault:
                    return "wrong", fault
    return None


def campaign(name: str, most: int, draws: int, seed: int, only: Sequence[str], part: int, parts: int) -> list[str]:
    """The outcomes of a part of the tasks for a processor; those that are not right are printed."""
    processor, found = PROCESSORS[name], list[str]()
    chosen = [t for t in tasks(processor, most) if not only or any(t.name.startswith(x) for x in only)]
    for task in chosen[part::parts]:
        for draw in range(seed, seed + draws):
            outcome, why = judged(task, processor, draw)
            found.append(outcome)
            if outcome not in ("right", "right here", "refused"):
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
            ran = counts["right"] + counts["right here"] + counts["wrong"]
            rest = "".join(f", {n} {x}" for x, n in counts.items() if x not in ("right", "wrong"))
            print(f"{name}: {ran} kernels ran, {counts['right']} were right{rest}", flush=True)
            wrong |= counts["wrong"] > 0
    sys.exit(wrong)


if __name__ == "__main__":
    main()
