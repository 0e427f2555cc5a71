"""Random programs whose sizes are near 2**31, 2**53 and 2**63: each is refused, or right.

From Python and from C, under a limit of memory.

    python -m campaigns.random_sizes --seed 0 --count 1000

Sizes come from arrays of no elements, `A: i8[N, 0]`, so that a call with any size needs no memory of its own. A child process
runs some programs at a time; if it ends by a signal, its programs are named.
"""

from __future__ import annotations

import argparse
import ctypes
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import psutil

from tensorc_dsl.backend.memory import OutOfMemory
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.expr import Dim, constant

Sizes = tuple[int, int, int]

TOGETHER = 20
"""The programs of a child process."""

MEMORY = 256 << 20
"""The bytes that a child process may use, besides those that it has when it begins."""

NEAR = (31, 32, 53, 58, 59, 60, 61, 62, 63, 64)
"""The logarithms of the largest number of elements of an intermediate result."""

STATUS_OF_MEMORY = 5

TYPES = {"i8": 1, "i32": 4, "i64": 8, "f64": 8}
SCHEDULES = (
    "",
    "compute_inline(T)",
    "compute_inline(U)\n    compute_inline(T)",
    "let [i, j, k] = T.loops\n    parallel(i)\n    parallel(j)",
    "let [i, j, k] = U.loops\n    parallel(i)\n    compute_at(T, i)",
    "let [i, j, k] = U.loops\n    let f = fuse(i, j)\n    let [a, b] = split(f, [_, 64], partial=true)",
)


def text_of(seed: int) -> str:
    """A task of three sizes, open or fixed."""
    rng = Random(f"sizes {seed}")
    t, u = rng.choice(list(TYPES)), rng.choice(list(TYPES))
    total = rng.choice(NEAR) - rng.choice([0, 0, 3])
    cuts = sorted(rng.randint(0, total) for _ in range(2))
    logarithms = (cuts[0], cuts[1] - cuts[0], total - cuts[1])
    ends = [max(1, min(2**n + rng.choice([-1, 0, 0, 0, 1]), 2**63 - 1)) for n in logarithms]
    fixed = rng.random() < 0.2
    sizes = ", ".join(f"{n}={end if fixed or end == 1 else f'1..{end}'}" for n, end in zip("NMK", ends, strict=True))
    return f"""
compute sizes(A: i8[N, 0], B: i8[M, 0], C: i8[K, 0]) -> Y: i64[4] {{
    let T[i in N, j in M, k in K] = {t}(i % 5 + 3 * (j % 7) + k % 11)
    let U[i in N, j in M, k in K] = {u}(T[i, j, k]) * 2 + {u}(i % 2)
    Y[p] = (
        i64(U[N - 1 if p % 2 == 1 else 0, M - 1 if p >= 2 else 0, K - 1 if p == 3 else 0])
        if N > 0 and M > 0 and K > 0 else 0
    )
}}
schedule by_hand for sizes {{
    {rng.choice(SCHEDULES)}
}}
task t = sizes({sizes}) with by_hand
"""


def wanted(sizes: Sizes) -> list[int]:
    """The outputs, by Python's numbers of any length."""
    n, m, k = sizes
    out: list[int] = []
    for p in range(4):
        i, j, x = n - 1 if p % 2 else 0, m - 1 if p >= 2 else 0, k - 1 if p == 3 else 0
        out.append((i % 5 + 3 * (j % 7) + x % 11) * 2 + i % 2)
    return out


def asked(task: Task, rng: Random) -> list[Sizes]:
    """The smallest sizes, the largest ones, and mixtures of both with small ones."""
    ranges: list[tuple[int, int]] = []
    for p in task.program.inputs:
        e = p.shape[0]
        n = constant(e)
        ranges.append((n, n) if n is not None else (e.low, e.high or e.low) if isinstance(e, Dim) else (1, 1))
    mixed = [
        [rng.choice([low, min(high, max(low, rng.choice([2, 3, 17]))), high]) for low, high in ranges] for _ in range(3)
    ]
    every = [[low for low, _ in ranges], [high for _, high in ranges], *mixed]
    return list(dict.fromkeys((a, b, c) for a, b, c in every))


def outcome(seed: int, folder: Path) -> str:
    """How a program went: `refused`, by the compiler, or how many calls were right, and how many refused. Raises
    AssertionError for a wrong result."""
    rng = Random(f"calls {seed}")
    try:
        task = loads(text_of(seed), threads=2)["t"]
        trace = task.sample(0)
        kernel = task.replay(trace)
    except TschedError as e:
        return f"refused {e.diagnostics[0].code}"
    task.export(trace, folder / "t.so", "so")
    entry = ctypes.CDLL(str(folder / "t.so")).t
    right = refused = 0
    dims = [d.name for d in task.program.dims]
    for sizes in asked(task, rng):
        want, y = wanted(sizes), np.full(4, -1, np.int64)
        open_sizes = [ctypes.c_int64(n) for n, name in zip(sizes, "NMK", strict=True) if name in dims]
        pointer = ctypes.c_void_p(np.empty(64, np.int8).ctypes.data & -64)
        status = entry(*open_sizes, pointer, pointer, pointer, ctypes.c_void_p(y.ctypes.data))
        assert status == STATUS_OF_MEMORY or (status == 0 and y.tolist() == want), (
            f"C at {sizes}: {status}, {y}, not {want}"
        )
        try:
            got = kernel(*(np.empty((n, 0), np.int8) for n in sizes))
        except OutOfMemory:
            refused += 1
        else:
            assert got.tolist() == want, f"Python at {sizes}: {got}, not {want}"
            right += 1
    return f"{right} right, {refused} without memory"


def child(first: int, count: int) -> None:
    """Run programs in this process, and print a line for each, before it and after it."""
    warm = text_of(0).rpartition("task")[0] + "task t = sizes(N=2, M=3, K=4) with by_hand"
    task = loads(warm, threads=2)["t"]
    task.replay(task.sample(0))  # what is loaded does not count
    own = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (own, own))
    for seed in range(first, first + count):
        print(f"{seed}: ", end="", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            print(outcome(seed, Path(folder)), flush=True)


def faults(seed: int, count: int) -> tuple[list[str], list[str]]:
    """The lines of all programs, and what is wrong."""
    lines: list[str] = []
    wrong: list[str] = []
    for first in range(seed, seed + count, TOGETHER):
        some = min(TOGETHER, seed + count - first)
        command = [
            sys.executable,
            "-m",
            "campaigns.random_sizes",
            "--child",
            "--seed",
            str(first),
            "--count",
            str(some),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        lines += done.stdout.splitlines()
        if done.returncode:
            wrong.append(f"status {done.returncode} after {lines[-1] if lines else 'nothing'}{done.stderr[-1500:]}")
    return lines, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.seed, arguments.count)
        return
    lines, wrong = faults(arguments.seed, arguments.count)
    for line, times in Counter(line.partition(": ")[2] for line in lines).most_common():
        print(f"{times:>6} {line}")
    print("\n".join(wrong) or "nothing is wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
