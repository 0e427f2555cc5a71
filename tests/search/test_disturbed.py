"""A machine with two speeds, of computing and of memory, that a neighbour slows: what a search finds is what it finds alone.

A third of the candidates are bound by memory, a third by computing, and the others by both. All times are by the clock of the
made-up machine, and each measurement has noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import Turns
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.local import ROUNDS
from tensorc_dsl.tuning.measure.outcome import Outcome, Status, seconds_of
from tensorc_dsl.tuning.search import plausible
from tensorc_dsl.tuning.search.events import Corrected, Drifted, Event, Slowed
from tensorc_dsl.tuning.search.plausible import COPIES, PATIENCE, Resources, Watch
from tensorc_dsl.tuning.search.tune import TuneResult, as_fast
from tests.search.test_tune import FakeRunner, run

Curve = Callable[[float], tuple[float, float]]
"""How many times as long as undisturbed computing and memory take at a time."""

TRIALS = 48
"""A trial takes about a second of the made-up clock."""

SAMPLES, NOISE = 12, 0.004
"""Times of a measurement, over all of which the machine may change, and how much they vary."""


def between(begin: float, end: float, compute: float = 1.0, memory: float = 1.0) -> Curve:
    return lambda t: (compute, memory) if begin <= t < end else (1.0, 1.0)


def swing(period: float, compute: float, memory: float) -> Curve:
    return lambda t: (compute, memory) if t % period >= 0.5 * period else (1.0, 1.0)


CALM = between(0, 0)

CURVES: dict[str, Curve] = {
    "memory is slow for a while": between(15, 40, memory=2.0),
    "memory is slow for longer than a search waits": between(12, 75, memory=2.0),
    "memory is slow at first": between(0, 20, memory=2.0),
    "memory is slow at the end": between(44, 90, memory=2.0),
    "memory swings slowly": swing(24, 1.0, 2.0),
    "memory swings": swing(7, 1.0, 1.6),
    "memory becomes slower by and by": lambda t: (1.0, 1.0 + 1.5 * max(0.0, math.sin(t / 12))),
    "spikes": lambda t: (1.0, 3.0) if t % 5 < 0.4 else (1.0, 1.0),
    "computing is slow for a while": between(15, 40, compute=2.0),
    "both are slow for a while": between(15, 40, compute=2.0, memory=2.0),
    "memory is slow twice": lambda t: (1.0, 2.5 if 8 <= t < 20 or 34 <= t < 52 else 1.0),
    "computing and memory in turns": lambda t: (1.0, 1.7) if t % 22 < 8 else (1.6, 1.0) if t % 22 >= 15 else (1.0, 1.0),
    "computing is slow, then memory": lambda t: (
        (1.8, 1.0) if 10 <= t < 25 else (1.0, 2.2) if 25 <= t < 45 else (1.0, 1.0)
    ),
}


def share(program: Program) -> float:
    """The share of memory in the time of a candidate: 0, a half or 1."""
    return _digest(program)[0] % 3 / 2


def true_time(program: Program) -> float:
    """Candidates differ by a few percent and more."""
    return 1e-3 * 1.03 ** (int.from_bytes(_digest(program)[1:3]) % 60)


def _digest(program: Program) -> bytes:
    return hashlib.blake2b(repr(program.annotations).encode()).digest()


@dataclass
class Neighboured(FakeRunner):
    """A runner on the machine."""

    curve: Curve = CALM
    seed: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _run(self, p: Program, took: float = 1.0) -> Outcome:
        factors = np.array([self.curve(self.now + took * n / SAMPLES) for n in range(SAMPLES)])
        self.now += took
        slow = factors @ (1 - share(p), share(p))
        times = tuple((true_time(p) * slow * (1.0 + NOISE * self._rng.exponential(size=SAMPLES))).tolist())
        return Outcome(Status.OK, seconds_of(times), times)

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        yield from map(self._run, programs)

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return self._run(program, 0.3 if best is None else 0.1)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        rounds = [[self._run(p, 0.3) for p in programs] for _ in range(ROUNDS)]
        merged = [tuple(t for r in rounds for t in r[n].times) for n in range(len(programs))]
        return [Outcome(Status.OK, seconds_of(times), times) for times in merged]

    def memory(self) -> float:
        """The time of the yardstick of memory."""
        self.now += 0.05
        return 2e-3 * self.curve(self.now)[1] * (1.0 + NOISE * float(self._rng.exponential()))

    def computing(self) -> float:
        self.now += 0.05
        return 1e-3 * self.curve(self.now)[0] * (1.0 + NOISE * float(self._rng.exponential()))


def searched(curve: Curve, seed: int) -> tuple[TuneResult, list[Event]]:
    machine = Neighboured(curve=curve, seed=seed)
    watch = Watch(
        machine.again, memory=machine.memory, computing=machine.computing, sleep=machine.sleep, clock=machine.clock
    )
    return run(machine, watch=watch, trials=TRIALS, seed=seed)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plausible, "PATIENCE", PATIENCE)


@cache
def found_alone(seed: int) -> float:
    found, _ = searched(CALM, seed)
    assert found.best is not None
    return true_time(found.best.program)


@pytest.mark.corpus
@pytest.mark.parametrize("name", CURVES)
def test_what_is_found_beside_a_neighbour_is_what_is_found_alone(name: str) -> None:
    for seed in range(4):
        found, _ = searched(CURVES[name], seed)
        assert found.best is not None
        assert true_time(found.best.program) == found_alone(seed), seed


def test_a_swing_faster_than_a_trial_costs_little() -> None:
    """It may hit a trial and neither of the looks beside it, so that nothing tells that the trial was slowed."""
    missed: list[float] = []
    for seed in range(4):
        found, _ = searched(swing(2.3, 1.0, 2.0), seed)
        assert found.best is not None
        missed.append(true_time(found.best.program) / min(true_time(t.program) for t in found.traces))
    assert sorted(missed)[1] == 1.0 and max(missed) < 1.1


def test_memory_that_stays_slow_to_the_end_is_told() -> None:
    found, events = searched(between(20, 1e9, memory=2.0), 0)
    assert found.memory == pytest.approx(2.0, rel=0.05) and found.scale == 1.0
    slowed = [e for e in events if isinstance(e, Slowed)]
    assert slowed and all(e.factor == 1.0 and e.memory == pytest.approx(2.0, rel=0.05) for e in slowed)
    assert all(o.scale == 1.0 for o in found.outcomes)
    calm, events = searched(CALM, 0)
    assert calm.memory == 1.0 and not any(isinstance(e, Drifted | Slowed | Corrected) for e in events)


@pytest.mark.parametrize(("moving", "waits"), [(1e-4, False), (1e-3, True), (None, True)])
def test_memory_counts_where_the_best_time_may_feel_it(
    monkeypatch: pytest.MonkeyPatch, moving: float | None, waits: bool
) -> None:
    """Memory that is a third slower changes a kernel by 3 % that moves its data in a tenth of its time."""
    monkeypatch.setitem(globals(), "share", lambda _: 0.1)
    machine = Neighboured(curve=between(15, 40, memory=1.3))
    watch = Watch(machine.again, memory=machine.memory, moving=moving, sleep=machine.sleep, clock=machine.clock)
    _, events = run(machine, watch=watch, trials=TRIALS)
    assert any(isinstance(e, Drifted) for e in events) == waits


def test_slow_memory_divides_no_time() -> None:
    """The yardstick may be bound by memory, and then takes twice as long; a program that computes does not."""
    for seed in range(4):
        found, _ = searched(CURVES["memory is slow for longer than a search waits"], seed)
        for trace, outcome in zip(found.traces, found.outcomes, strict=True):
            assert (outcome.seconds or 0.0) >= true_time(trace.program)


ROOF = Roof(operations=1000, bytes_=1 << 24, is_float=True, title="f32 FMA", peak=1e9, moving=1e-3)


def test_memory_is_a_yardstick_where_kernels_feel_it(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(l2=1 << 20, l3=1 << 22)
    asked: list[int] = []

    def copied(into: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
        asked.append(into.nbytes + source.nbytes)

    class Fake:
        def peak(self, title: str, _target: Target, threads: int) -> float:
            return {"f32 FMA": 8.0}[title] * threads

    monkeypatch.setattr(plausible, "require_backend", lambda *_: Fake())
    there = Resources.of(target, 2, ROOF, Turns())
    assert there.memory is not None and there.computing is not None
    monkeypatch.setattr("tensorc_dsl.tuning.search.plausible.np.copyto", copied)
    assert there.memory() >= 0.0 and there.computing() == 1 / 16
    assert asked == [2 * target.l3] * COPIES
    assert Resources.of(target, 16, ROOF, Turns()) == Resources()  # 1 MiB for each core
    assert Resources.of(replace(target, device="a GPU"), 2, ROOF, Turns()) == Resources()
    assert Resources.of(target, 2, replace(ROOF, title="", peak=None), Turns()).computing is None


def finalist(seconds: float, spread: float, count: int = 60) -> Outcome:
    times = tuple(np.random.default_rng(0).permutation(seconds * (1 + np.linspace(0, 4 * spread, count))).tolist())
    return Outcome(Status.OK, seconds_of(times), times)


def test_finalists_are_as_fast_where_their_samples_do_not_tell_them_apart() -> None:
    quiet, loud = finalist(1.0, 0.001), finalist(1.0, 0.05)
    assert as_fast(finalist(1.008, 0.001), quiet)  # less than anything is worth
    assert not as_fast(finalist(1.02, 0.001), quiet)
    assert as_fast(finalist(1.02, 0.05), loud)
    assert not as_fast(finalist(1.1, 0.05), loud)  # too much to be noise
    few = finalist(1.02, 0.05, count=4)
    assert not as_fast(few, loud)
    slowed = replace(quiet, times=(*quiet.times[:20], *(2 * t for t in quiet.times[20:])))  # most of the samples
    assert not as_fast(finalist(1.02, 0.001), slowed)
