"""Times of saved schedules on a GPU, and what they say of the model of time.

    python -m bench.gpu_calibration save build/saved.json --each 10
    python -m bench.gpu --only cal --json build/gpu.json --resume
    python -m bench.gpu_calibration fit build/gpu.json build/cal.json

`save` needs no GPU: of the draws of each case it keeps those that the model has for the fastest, and others from among
the slower ones. `fit` finds a factor for each bound of the model, and for a launch, with which its cycles are nearest to the
times, by least squares of logarithms. It says how the model ranks the schedules before and after, so a person can change the
rates and latencies in `tensorc_dsl/backend/cuda/model` that are off.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import rankdata

from bench.gpu_case import HEAD, Asked, CannotRun, Row, arrays_of, definition, device, loaded, seconds_of_calls
from bench.gpu_torch import COMPUTES, MOST_APART, PEERS, tensors_of
from tensorc_dsl.backend.cuda.compiled import CudaKernel
from tensorc_dsl.backend.cuda.model.cycles import BOUNDS, LAUNCH, estimates
from tensorc_dsl.backend.cuda.runtime.driver import time_launches
from tensorc_dsl.backend.protocol import require_backend
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, loads

SAVED = Path("build/saved.json")
"""The saved schedules that are timed."""

TARGET, CAPABILITY = "sm_90a", (9, 0)
"""The target that they are for, and the GPUs that run its code."""

KEYS = (
    "matmul bf16 4096",
    "matmul f16 2048",
    "matmul f32 2048",
    "attention f16",
    "softmax",
    "layer_norm",
    "conv2d 56×56×64 f16",
    "batch_matmul",
    "conv2d 28×28×128",
)
"""The cases, of those beside torch."""

DRAWS = 3
"""How many draws there are for each that is kept."""

CALLS = 20


class Saved(msgspec.Struct, frozen=True):
    """A schedule of a case of `PEERS`."""

    case: str
    trace: str


def task_for(case: str) -> Task:
    """The task of a case, for a GPU that need not be here."""
    head = f"{HEAD}use std.gpu.targets.{{{TARGET}}}\n{COMPUTES}"
    return loads(head + definition("t", PEERS[case].text), target=TARGET)["t"]


def save(keys: Sequence[str], each: int, seed: int = 0) -> Iterator[Saved]:
    """So many schedules of each case: half of them the fastest by the model, the others at equal steps of its order."""
    backend = require_backend("cuda", "t")
    for case in keys:
        task, found = task_for(case), list[tuple[float, str]]()
        for number in range(20 * DRAWS * each):
            try:
                trace = task.sample(seed, number)
                compiled = task.compile(trace)
            except TschedError:
                continue
            assert isinstance(compiled, CudaKernel)
            known = backend.registers(compiled)
            cycles = sum(e.cycles for e in estimates(compiled.program, task.target, {}, known))
            if not known.spilled:
                found.append((cycles, trace.text))
            if len(found) == DRAWS * each:
                break
        found = sorted(dict.fromkeys(found))
        fast, rest = found[: each - each // 2], found[each - each // 2 :]
        others = rest[:: max(1, len(rest) // max(1, each // 2))][: each // 2]
        yield from (Saved(case, text) for _, text in (*fast, *others))


def calibration(asked: Asked) -> Iterator[Row]:
    """Each saved schedule, beside torch where it is there."""
    gpu = device()
    if gpu.capability != CAPABILITY:
        raise CannotRun(f"the saved schedules are for {TARGET}, and this GPU is another one")
    if not SAVED.exists():
        raise CannotRun(f"there are no saved schedules in {SAVED}; `python -m bench.gpu_calibration save` does")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        torch = None
    tasks: dict[str, Task] = {}
    for number, saved in enumerate(msgspec.json.decode(SAVED.read_bytes(), type=list[Saved])):
        name = f"{saved.case} {number}"
        if not asked.begins(name, LEAST):
            continue
        task = tasks.get(saved.case) or tasks.setdefault(saved.case, task_for(saved.case))
        try:
            yield _timed(task, name, saved, torch, gpu.attribute("CLOCK_RATE") * 1e3)
        except (TschedError, ValueError, MemoryError) as e:
            yield Row(name, str(e))


LEAST = 5.0
"""The seconds that a schedule gets at least."""


def _timed(task: Task, name: str, saved: Saved, torch: Any, clock: float) -> Row:
    compiled = task.compile(task.expand(Source(f"<{name}>", saved.trace)))
    assert isinstance(compiled, CudaKernel)
    begun = time.perf_counter()
    kernel = loaded(task, compiled)
    facts = {"load": time.perf_counter() - begun, "clock": clock}
    arrays: list[Any] = list(arrays_of(task)) if torch is None else tensors_of(torch, task)
    kernel.time(arrays, 2)
    ours = median(kernel.time(arrays, CALLS))
    facts["call"] = seconds_of_calls(kernel, arrays, CALLS)
    found = estimates(compiled.program, task.target, {}, require_backend("cuda", name).registers(compiled))
    bounds = [{b: float(getattr(e, b)) for b in BOUNDS} for e in found]
    if torch is None:
        return Row(name, "", ours, facts=facts, bounds=bounds)
    outputs = {b.name for b in task.program.outputs}
    given = [a for a, b in zip(arrays, task.program.params, strict=True) if b.name not in outputs]
    call = PEERS[saved.case].theirs(torch, *given)
    got: Any = arrays[-1]
    wanted = call().float()
    facts["error"] = error = float((got.float() - wanted).norm() / wanted.norm())
    theirs = median(time_launches(device(), call, CALLS))
    wrong = "" if error < MOST_APART else f"results are {error:.2g} of their norm apart"
    return Row(name, wrong, ours, theirs, "torch", facts=facts, bounds=bounds)


class Fit(msgspec.Struct, frozen=True):
    """What times say of the model: a factor for each bound that decides in some schedule, the rank correlation of cycles with
    times, before and with the factors, and how far cycles are from times then, at the median."""

    schedules: int
    factors: dict[str, float]
    before: float
    after: float
    off: float


def cycles_of(bounds: Sequence[dict[str, float]], factors: dict[str, float]) -> float:
    """The cycles of the kernels of a schedule."""
    launch = LAUNCH * factors.get("launch", 1.0)
    return sum(launch + max(n * factors.get(b, 1.0) for b, n in one.items()) for one in bounds)


def fit(rows: Sequence[Row]) -> Fit:
    """The factors for rows of `calibration`. Raises ValueError if fewer than three have times."""
    good = [(r.bounds, r.ours * r.facts["clock"]) for r in rows if r.ours and r.bounds and not r.wrong]
    if len(good) < 3:
        raise ValueError(f"{len(good)} schedules have times, and a fit needs three")
    names = ["launch", *(b for b in BOUNDS if any(max(one, key=lambda x: one[x]) == b for r, _ in good for one in r))]

    def off(x: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        factors = dict(zip(names, map(exp, x), strict=True))
        # Factors are held to 1 a little: what no schedule tells has the model's own.
        return np.array([*(log(cycles_of(b, factors) / t) for b, t in good), *(0.05 * v for v in x)])

    found = least_squares(off, np.zeros(len(names)), loss="soft_l1", diff_step=0.02)
    factors = dict(zip(names, map(float, np.exp(found.x)), strict=True))
    times = [t for _, t in good]
    before, after = (correlation([cycles_of(b, f) for b, _ in good], times) for f in ({}, factors))
    return Fit(len(good), factors, before, after, median(abs(cycles_of(b, factors) / t - 1) for b, t in good))


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; 1 where neither tells anything apart."""
    x, y = rankdata(a), rankdata(b)
    if not x.std() or not y.std():
        return float(x.std() == y.std())
    return float(np.corrcoef(x, y)[0, 1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    saving = parts.add_parser("save", help="save schedules")
    saving.add_argument("file", type=Path)
    saving.add_argument("--each", type=int, default=10, help="schedules of each case")
    saving.add_argument("--only", action="append", choices=KEYS, help="this case; may be said again")
    fitting = parts.add_parser("fit", help="fit the model to times")
    fitting.add_argument("found", type=Path, help="the file of `bench.gpu --json`")
    fitting.add_argument("file", type=Path)
    given = parser.parse_args(argv)
    if given.part == "save":
        found = list(save(given.only or KEYS, given.each))
        given.file.parent.mkdir(parents=True, exist_ok=True)
        given.file.write_bytes(msgspec.json.encode(found))
        print(f"{len(found)} schedules in {given.file}")
        return 0
    rows = msgspec.convert(msgspec.json.decode(given.found.read_bytes()).get("cal", {}).get("rows", []), list[Row])
    try:
        told = fit(rows)
    except ValueError as e:
        print(e, file=sys.stderr)
        return 1
    given.file.write_bytes(msgspec.json.format(msgspec.json.encode(told)))
    print(
        f"{told.schedules} schedules: correlation {told.before:.2f}, with factors {told.after:.2f}, {told.off:.0%} off"
    )
    print("\n".join(f"    {name:12} × {n:.2f}" for name, n in told.factors.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
