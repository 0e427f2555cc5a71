"""Kernels for open sizes at each of their sizes: `python -m campaigns.every_size --seed 0 --count 20`.

Schedules are drawn from `std.cpu.default`, single ones and such as select among several by random ranges. Each kernel runs at
every size from 1 to 4096, on whole numbers, so that sums are exact in any order: what it writes has to be equal to NumPy's
result, and no element behind it may change. That of attention is compared within a part of what one key more or less would
change. One size below the least and one above the largest are errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.dispatch import Candidate, selected
from tensorc_dsl.tuning.search.space import modelled

Array = NDArray[Any]

MOST = 4096

QUERIES = 5

BEHIND = 64
"""Elements behind each result, which stay as they are."""

TEXT = """
use std.cpu
use std.ops.{attention}
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
compute weights(A: f32[M, K], B: const f32[K, N]) -> C: f32[M, N] {
    C[i, j] = max(sum[k] A[i, k] * B[k, j], 0)
}
compute totals(A: f32[M, N]) -> S: f32[N] {
    S[j] = sum[i] A[i, j]
}
compute along(A: f32[N, M]) -> S: f32[N] {
    S[i] = sum[j] A[i, j]
}
compute pairs(X: f32[M]) -> Y: f32[M] {
    Y[i] = X[i] + X[M - 1 - i]
}
task product = product(M=1..4096 at [1, 16, 256, 4096], N=N_, K=K_)
task weights = weights(M=1..4096 at [1, 16, 256, 4096], N=N_, K=K_)
task totals = totals(M=1..4096 at [1, 16, 256, 4096], N=N_)
task along = along(M=1..4096 at [1, 16, 256, 4096], N=N_)
task pairs = pairs(M=1..4096 at [1, 16, 256, 4096])
task attention = attention(B=1, H=2, M=QUERIES, N=1..4096 at [1, 16, 256, 4096], D=8, E=QUERIES)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of a task at a size, and its result there, from which what a kernel computes is at most `within` away."""

    inputs: Callable[[int], Mapping[str, Array]]
    result: Callable[[int], Array]
    within: Callable[[int], float] = lambda _: 0.0


def attention(queries: int, rng: np.random.Generator) -> Case:
    """The case of attention to the first keys. No value is near 0, and no key has a small weight: each counts."""
    q, k = (rng.integers(-2, 3, (1, 2, n, 8)).astype(np.float32) / 4 for n in (queries, MOST + 1))
    v = (rng.choice([-1, 1], (1, 2, MOST + 1, queries)) * rng.integers(3, 6, (1, 2, MOST + 1, queries))).astype(
        np.float32
    )
    weight = np.exp(np.einsum("bhid,bhjd->bhij", q, k, dtype=np.float64) / 8**0.5)
    total = np.cumsum(weight, axis=-1)
    sums = np.cumsum(weight[..., None] * v[:, :, None], axis=-2)
    return Case(
        lambda n: {"Q": q, "K": k[:, :, :n].copy(), "V": v[:, :, :n].copy()},
        lambda n: (sums[..., n - 1, :] / total[..., n - 1, None]).astype(np.float32),
        lambda n: 0.25 / n,
    )


def cases(n: int, k: int, rng: np.random.Generator) -> dict[str, Case]:
    """The case of each task, on whole numbers."""
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((MOST + 1, k), (k, n), (MOST + 1, n)))
    whole, down = a @ b, np.cumsum(c, axis=0)
    wide = np.ascontiguousarray(c.T)
    x = c[:, 0].copy()
    return {
        "product": Case(lambda m: {"A": a[:m], "B": b}, lambda m: whole[:m]),
        "weights": Case(lambda m: {"A": a[:m], "B": b}, lambda m: np.maximum(whole[:m], 0)),
        "totals": Case(lambda m: {"A": c[:m]}, lambda m: down[m - 1]),
        "along": Case(lambda m: {"A": np.ascontiguousarray(wide[:, :m])}, lambda m: down[m - 1]),
        "pairs": Case(lambda m: {"X": x[:m]}, lambda m: x[:m] + x[:m][::-1]),
        "attention": attention(QUERIES, rng),
    }


def drawn(task: Task, rng: Random) -> Trace:
    """A schedule of the space, or one that selects among some by random times."""
    single: list[Trace] = []
    wanted = rng.choice((1, 4))
    while len(single) < wanted:
        with suppress(ScheduleRefusal):  # a draw that does not apply is none
            single.append(task.sample(rng.randrange(1 << 30)))
    expand = task.plan().expand
    if len(single) == 1 or expand is None:
        return single[0]
    found = sizing(task.program)
    some = [Candidate(t, tuple(rng.expovariate(1.0) * 1e-6 for _ in found.timed)) for t in single]
    made = selected(
        task.program, found, some, rng.randint(2, 8), expand, lambda t, x: modelled(t.program, x, task.target)
    )
    return single[0] if made is None else made.trace


def fault(task: Task, trace: Trace, case: Case, sizes: Sequence[int]) -> str | None:
    """What is wrong with the kernel at one of these sizes; None if nothing is."""
    kernel = task.replay(trace)
    for m in sizes:
        right = case.result(m)
        held = np.full(right.size + BEHIND, -77.0, np.float32)
        out = held[: right.size].reshape(right.shape)
        kernel(*case.inputs(m).values(), out)
        if not (np.abs(out - right) <= case.within(m)).all():
            return f"M = {m}: a wrong result"
        if not (held[right.size :] == -77.0).all():
            return f"M = {m}: it writes behind its result"
    for m in (0, MOST + 1):
        try:
            kernel(*case.inputs(m).values())
        except (ValueError, TschedError):
            continue
        return f"M = {m} is no error"
    return None


def faults(seed: int, sizes: Sequence[int], only: Sequence[str] = ()) -> list[str]:
    """What is wrong with a schedule for each task."""
    rng = Random(f"every size {seed}")
    n, k = rng.choice((1, 3, 8, 17, 33, 48)), rng.choice((1, 2, 5, 16, 128))
    file = loads(
        TEXT.replace("N_", str(n)).replace("K_", str(k)).replace("QUERIES", str(QUERIES)), threads=rng.choice((1, 2))
    )
    known = cases(n, k, np.random.default_rng(seed))
    out: list[str] = []
    for name in only or [*file]:
        trace = drawn(file[name], rng)
        if (wrong := fault(file[name], trace, known[name], sizes)) is not None:
            out.append(f"seed {seed}, {name} with N = {n}, K = {k}: {wrong}\n{trace.text}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="seeds, of a schedule for each task")
    arguments = parser.parse_args()
    wrong = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        for text in faults(seed, range(1, MOST + 1)):
            wrong += 1
            print(text)
    kernels = arguments.count * TEXT.count("task ")
    print(f"{kernels} kernels at {MOST} sizes each: {wrong} wrong")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
