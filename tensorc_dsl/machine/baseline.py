"""What NumPy takes for the same contraction, on the same number of threads: the yardstick beside a tuned kernel.

Run as a module it is the child process that is timed: NumPy's libraries read their number of threads when they load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from string import ascii_lowercase

import msgspec
import numpy as np

from tensorc_dsl.ir.dtypes import F32, F64
from tensorc_dsl.ir.expr import Binary, Expr, Load, Var, constant
from tensorc_dsl.ir.program import IterKind, Program, blocks

ROUNDS, SECONDS, PAUSE = 8, 0.1, 0.03
"""How often and how long calls are timed, and the pause after each round."""

_MATMUL = "ac,cb->ab"
"""The contraction that `numpy.matmul` is; iterators are lettered in the order of the block's: i, j, k."""

LIMIT = 60.0
"""Seconds that the child process may take."""


class Contraction(msgspec.Struct, frozen=True):
    """A sum of products as `numpy.einsum` writes it."""

    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str


def contraction(program: Program) -> Contraction | None:
    """The unscheduled program as one contraction of its inputs; None where it is anything else."""
    found = blocks(program)
    if len(found) != 1 or found[0].where or len(found[0].body) != 1 or len(found[0].iters) > len(ascii_lowercase):
        return None
    block, store = found[0], found[0].body[0]
    value = store.value
    if not any(it.kind is IterKind.REDUCE for it in block.iters):
        return None
    if not (isinstance(value, Binary) and value.op == "+" and value.lhs == _load_of(value.lhs, store.buffer)):
        return None
    factors = _factors(value.rhs)
    if factors is None or len(factors) < 2 or {f.dtype for f in factors} not in ({F32}, {F64}):
        return None
    letters = {it.name: letter for it, letter in zip(block.iters, ascii_lowercase, strict=False)}
    terms: list[str] = []
    for indices in (*(f.indices for f in factors), store.indices):
        if not all(isinstance(i, Var) and i.name in letters for i in indices):
            return None
        terms.append("".join(letters[i.name] for i in indices if isinstance(i, Var)))
    shapes: list[tuple[int, ...]] = []
    for f in factors:
        shape = tuple(n for n in map(constant, program.buffer(f.buffer).shape) if n is not None)
        if len(shape) != len(f.indices):
            return None
        shapes.append(shape)
    dtype = "float32" if factors[0].dtype == F32 else "float64"
    return Contraction(f"{','.join(terms[:-1])}->{terms[-1]}", tuple(shapes), dtype)


def _load_of(e: Expr, buffer: str) -> Expr | None:
    return e if isinstance(e, Load) and e.buffer == buffer else None


def _factors(e: Expr) -> list[Load] | None:
    if isinstance(e, Load):
        return [e]
    if isinstance(e, Binary) and e.op == "*":
        left, right = _factors(e.lhs), _factors(e.rhs)
        return [*left, *right] if left is not None and right is not None else None
    return None


def numpy_seconds(what: Contraction, threads: int) -> float | None:
    """The time of the fastest call in a process of its own; None when it fails or takes too long."""
    count = {name: str(threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-m", "tensorc_dsl.machine.baseline", msgspec.json.encode(what).decode()]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=True, env={**os.environ, **count}
        )
        return float(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return None


def _main(argv: Sequence[str]) -> None:
    what = msgspec.json.decode(argv[0], type=Contraction)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, shape).astype(what.dtype) for shape in what.shapes]
    # `optimize` hands what is a matrix product to BLAS.
    path = np.einsum_path(what.subscripts, *arrays, optimize="optimal")[0]

    def call() -> None:
        if what.subscripts == _MATMUL:
            np.matmul(*arrays)
        else:
            np.einsum(what.subscripts, *arrays, optimize=path)

    # The best call counts, and pauses let the system spread the threads anew: what slows a call down is other work.
    best = float("inf")
    for _ in range(ROUNDS):
        until = time.perf_counter() + SECONDS
        while (start := time.perf_counter()) < until:
            call()
            best = min(best, time.perf_counter() - start)
        time.sleep(PAUSE)
    print(best)


if __name__ == "__main__":
    _main(sys.argv[1:])
