"""Sums over parts of their loops beside C: `python -m bench.ragged --draws 8 [--tasks sparse_100000] [--flags=-ffast-math]`.

Schedules are drawn from `std.cpu.default`, for one thread. Printed is the processor time of a call in milliseconds: that of
C, the best draw, the median and the worst, each the least of several calls, and how many draws differ from C by more than
rounding.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load as load_kernel
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.tuning.machine.host import host_target

FILE = Path(__file__).with_name("ragged.tsched")

CALLS = 20

ROW = 10
"""The elements of a row of the sparse matrix, on average."""


def inputs_of(task: Task) -> list[Array]:
    """Numbers for floats, and for integers edges of rows, columns and lengths."""
    rng = np.random.default_rng(0)
    out: list[Array] = []
    for b in task.program.inputs:
        shape = shape_of(b)
        if b.name == "R":
            ends = np.cumsum(rng.integers(0, 2 * ROW + 1, shape))
            out.append(np.minimum(ends - ends[0], (shape[0] - 1) * ROW).astype(np.int32))
        elif b.name == "J":
            out.append(rng.integers(0, shape[0] // ROW, shape).astype(np.int32))
        elif b.name == "L":
            out.append(rng.integers(0, 4097, shape).astype(np.int32))
        else:
            out.append(rng.standard_normal(shape).astype(np.float32))
    return [aligned_copy(a) for a in out]


def library(flags: list[str]) -> ctypes.CDLL:
    """The functions of `ragged.c`, compiled for this machine; linked without the flags, which would change this process."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, linked = Path(folder) / "ragged.o", Path(folder) / "ragged.so"
        command = [
            "gcc",
            "-O3",
            "-march=native",
            *flags,
            "-fPIC",
            "-c",
            str(FILE.with_suffix(".c")),
            "-o",
            str(compiled),
        ]
        subprocess.run(command, check=True)
        subprocess.run(["gcc", "-shared", str(compiled), "-lm", "-o", str(linked)], check=True)
        return ctypes.CDLL(str(linked))


def least(call: Callable[[], object]) -> float:
    """The least processor time of a call, in milliseconds."""
    call()
    found: list[int] = []
    for _ in range(CALLS):
        begun = time.process_time_ns()
        call()
        found.append(time.process_time_ns() - begun)
    return min(found) / 1e6


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--draws", type=int, default=8)
    args.add_argument("--tasks", nargs="+", default=[])
    args.add_argument("--flags", nargs="+", default=[])
    options = args.parse_args()
    tasks, c, target = load(FILE), library(options.flags), host_target(1)
    for name in options.tasks or list(tasks):
        task = tasks[name]
        arrays = inputs_of(task)
        shape = shape_of(task.program.outputs[0])
        want, out = (aligned_copy(np.zeros(shape, np.float32)) for _ in range(2))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, want)]
        function = getattr(c, name)
        beside, times, wrong = least(partial(function, *pointers)), list[float](), 0
        for seed in range(options.draws):
            kernel = load_kernel(compile_kernel(lower_cpu(task.sample(seed).program), target, 1))
            times.append(least(partial(kernel, *arrays, out)))
            wrong += not np.allclose(out, want, rtol=1e-3, atol=1e-3)
        print(
            f"{name:18} C {beside:7.3f}  best {min(times):7.3f}  median {median(times):7.3f}  worst {max(times):7.3f}"
            f"  differ {wrong}",
            flush=True,
        )


if __name__ == "__main__":
    main()
