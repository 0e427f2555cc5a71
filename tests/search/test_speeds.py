"""Searches on a simulated machine whose speed follows a curve: they find what they find on an undisturbed one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.measure.outcome import GIVE_UP, Outcome, Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.schema import LARGEST
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search import plausible
from tensorc_dsl.tuning.search.plausible import PATIENCE, Watch
from tensorc_dsl.tuning.search.tune import TuneResult
from tests.search.landscape import FewSpace
from tests.search.test_tune import TARGET, TASK, FakeRunner, run

FAST = 1e-3
"""The least time of the space."""


def true_time(program: Program) -> float:
    """A time between 1 and 11 ms; few of them are close to the least."""
    text = str(sorted(program.annotations))
    share = int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48
    return FAST * (1.0 + 10.0 * share)


@dataclass
class Machine(FakeRunner):
    """A machine that takes `curve(t)` times as long as undisturbed at second t of its clock, which only runs advance."""

    curve: Callable[[float], float] = lambda _: 1.0
    now: float = 0.0
    slept: float = 0.0
    raw: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def _run(self, program: Program, best: float | None) -> Outcome:
        factor = self.curve(self.now)
        seconds = factor * true_time(program)
        censored = best is not None and seconds > GIVE_UP * best
        self.now += 0.03 if censored else 0.15
        self.raw.setdefault(program_key(program), []).append(seconds)
        return Outcome(Status.OK, seconds, (seconds, 1.001 * seconds), censored=censored)

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        self.now += 0.5  # they are built
        for p in programs:
            yield self._run(p, best)

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return self._run(program, best)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        rounds = [[self._run(p, None) for p in programs] for _ in range(3)]
        return [min((r[n] for r in rounds), key=lambda o: o.seconds or 0.0) for n in range(len(programs))]


def jumps(at: float, factor: float, until: float = math.inf) -> Callable[[float], float]:
    return lambda t: factor if at <= t < until else 1.0


CURVES: dict[str, Callable[[float], float]] = {
    "drifts slowly": lambda t: 1.0 + 0.02 * t,
    "drifts there and back": lambda t: 1.0 + 1.5 * math.sin(t / 25.0) ** 2,
    "jumps and stays": jumps(9.0, 2.5),
    "jumps far": jumps(9.0, 30.0),
    "jumps for a while": jumps(6.0, 3.0, 13.0),
    "stays low for long and comes back": jumps(6.0, 2.74, 55.0),
    "is slow at first": jumps(0.0, 3.0, 8.0),
    "is slow at first for long": jumps(0.0, 3.0, 30.0),
    "steps up and down": lambda t: (1.0, 2.0, 7.0, 1.5, 13.0, 1.0)[int(t / 5.0) % 6],
    "oscillates slowly": lambda t: 1.0 if math.sin(t / 3.0) > 0.0 else 2.5,
    "oscillates": lambda t: 1.0 if math.sin(2.5 * t) > 0.0 else 2.0,
    "is slow at the end": jumps(11.0, 4.0),
}
SEEDS = range(4)
TRIALS = 96


def search(
    curve: Callable[[float], float], seed: int, database: Database | None = None, least: float = 0.0
) -> TuneResult:
    """A search with a watch on that machine."""
    machine = Machine(curve=curve)
    return searched(machine, seed, database, least)


def searched(machine: Machine, seed: int, database: Database | None, least: float = 0.0) -> TuneResult:
    watch = Watch(machine.again, least=lambda: least, sleep=machine.sleep, clock=machine.clock)
    result, _ = run(machine, database, watch=watch, trials=TRIALS, seed=seed, space=FewSpace(1000))
    return result


@cache
def undisturbed(seed: int) -> str:
    best = search(lambda _: 1.0, seed).best
    assert best is not None
    return best.text


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a search, since these machines have a clock of their own."""
    monkeypatch.setattr(plausible, "PATIENCE", PATIENCE)


def rows(database: Database) -> tuple[Trial, ...]:
    return database.trials(program_key(TASK), target_key(TARGET, 2))


@pytest.mark.corpus
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES.keys())
def test_the_best_is_that_of_an_undisturbed_machine(tmp_path: Path, curve: Callable[[float], float], seed: int) -> None:
    with Database.open(tmp_path / "r.sqlite") as database:
        result = search(curve, seed, database)
        found = rows(database)
    assert result.best is not None and result.best.text == undisturbed(seed)
    times = {program_key(t.program): true_time(t.program) for t in result.traces}
    for r in found:
        assert r.seconds is not None and r.scale <= LARGEST
        assert r.seconds >= times[r.program_key] / 1.12, (r.trial, r.scale)
        assert r.seconds * r.scale == pytest.approx(r.times[0])


@pytest.mark.corpus
@pytest.mark.parametrize("seed", SEEDS)
def test_no_spike_at_the_moments_of_looking_costs_the_best(tmp_path: Path, seed: int) -> None:
    """Only the yardstick is slowed, as often as not: no factor says anything of the trials."""

    class Spiked(Machine):
        looks = 0

        def again(self, program: Program, best: float | None = None) -> Outcome:
            self.looks += 1
            # A third of the looks, whatever the clock says.
            self.curve = jumps(0.0, 2.0 + seed) if (self.looks * 7 + seed) % 3 == 0 else lambda _: 1.0
            try:
                return super().again(program, best)
            finally:
                self.curve = lambda _: 1.0

    with Database.open(tmp_path / "r.sqlite") as database:
        result = searched(Spiked(), seed, database)
        times = {program_key(t.program): true_time(t.program) for t in result.traces}
        assert all(r.seconds >= times[r.program_key] / 1.12 for r in rows(database) if r.seconds is not None)
    assert result.best is not None and result.best.text == undisturbed(seed)


@pytest.mark.corpus
@pytest.mark.parametrize("seed", SEEDS)
def test_where_every_look_is_slowed_no_time_is_under_the_roof(tmp_path: Path, seed: int) -> None:
    """The worst there is: each look is disturbed and no trial is. The best as measured is a finalist all the same."""

    class Spiked(Machine):
        def again(self, program: Program, best: float | None = None) -> Outcome:
            self.curve = jumps(0.0, 6.0)
            try:
                return super().again(program, best)
            finally:
                self.curve = lambda _: 1.0

    with Database.open(tmp_path / "r.sqlite") as database:
        result = searched(Spiked(), seed, database, least=0.9 * FAST)
        assert all(r.seconds >= 0.9 * FAST for r in rows(database) if r.seconds is not None)
    assert result.best is not None and result.best.text == undisturbed(seed)


def test_factors_do_not_compound() -> None:
    """Looks and trials see different speeds, time after time: no factor is larger than the largest of the machine's."""
    worst = 1.0
    for seed in SEEDS:
        result = search(lambda t: (1.0, 3.0)[int(t * 7.3) % 2], seed)
        worst = max(worst, *(o.scale for o in result.outcomes))
    assert worst <= 3.2


def test_a_comparison_on_a_slow_machine_says_so(tmp_path: Path) -> None:
    class Slow(Machine):
        def compare(self, programs: Sequence[Program]) -> list[Outcome]:
            self.curve = jumps(0.0, 4.0)
            return super().compare(programs)

    with Database.open(tmp_path / "r.sqlite") as database:
        result = searched(Slow(), 0, database)
        finals = [r for r in rows(database) if r.phase == "final"]
    assert result.best is not None and result.scale == pytest.approx(4.0, rel=0.02)
    assert result.best_seconds == pytest.approx(true_time(result.best.program), rel=0.02)
    assert {r.scale for r in finals} == {result.scale}
