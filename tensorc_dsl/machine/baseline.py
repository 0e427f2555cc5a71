"""What NumPy takes for the same contraction, on the same number of threads: the yardstick beside a tuned kernel.

Run as a module it is the child process that is timed: NumPy's libraries read their number of threads when they load.
"""

from __future__ import annotations

import time
from contextlib import closing
from string import ascii_lowercase

import msgspec
import numpy as np

from tensorc_dsl.ir.dtypes import F32, F64
from tensorc_dsl.ir.expr import Binary, Expr, Load, Var, constant
from tensorc_dsl.ir.program import IterKind, Program, blocks
from tensorc_dsl.measure.child import serve
from tensorc_dsl.measure.memory import available
from tensorc_dsl.measure.messages import Bug, Exhausted, Ready
from tensorc_dsl.measure.worker import Worker, WorkerBug, WorkerCrash, WorkerTimeout, library_threads

ROUNDS, SECONDS, PAUSE = 8, 0.1, 0.03
"""How often and how long calls are timed, and the pause after each round."""

_MATMUL = "ac,cb->ab"
"""The contraction that `numpy.matmul` is; iterators are lettered in the order of the block's: i, j, k."""

LIMIT = 60.0
"""Seconds that the child process may take."""


class Contraction(msgspec.Struct, tag=True, frozen=True):
    """A sum of products as `numpy.einsum` writes it."""

    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str


class Fastest(msgspec.Struct, tag=True, frozen=True):
    """Seconds of the fastest call."""

    seconds: float


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
    replies = msgspec.msgpack.Decoder(Ready | Exhausted | Bug | Fastest)
    worker = Worker("tensorc_dsl.machine.baseline", replies, library_threads(threads), available())
    with closing(worker):
        try:
            reply = worker.ask(what, LIMIT)
        except (WorkerBug, WorkerCrash, WorkerTimeout):
            return None
    return reply.seconds if isinstance(reply, Fastest) else None


def _time(what: Contraction) -> Fastest:
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
    return Fastest(best)


if __name__ == "__main__":
    serve(msgspec.msgpack.Decoder(Contraction), _time)
