"""Tests of a machine that slows down during a search: the search reports it, waits, and corrects the affected times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search import plausible
from tensorc_dsl.tuning.search.events import Corrected, Drifted, Event, Settled, Slowed
from tensorc_dsl.tuning.search.plausible import PATIENCE, Look, Plausible, Watch
from tests.search.test_tune import TARGET, TASK, FakeRunner, run, time_of


@dataclass
class Machine(FakeRunner):
    """A runner on a machine whose speed changes: from the n-th kernel on it is so many times slower (`slow`)."""

    slow: dict[int, float] = field(default_factory=dict[int, float])
    spread: float = 0.0
    runs: int = 0
    slept: float = 0.0
    ends_after: float = 1e9
    searched: float = 1000.0
    """Seconds that a kernel takes, by the clock."""

    def clock(self) -> float:
        return self.runs * self.searched + self.slept

    def _run(self, p: Program) -> Outcome:
        n, self.runs = self.runs, self.runs + 1
        factor = max((f for at, f in self.slow.items() if n >= at), default=1.0, key=lambda f: f)
        if self.slept >= self.ends_after:
            factor = 1.0
        seconds = factor * time_of(p)
        return Outcome(Status.OK, seconds, (seconds, seconds, seconds * (1 + self.spread), seconds * (1 + self.spread)))

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        yield from map(self._run, programs)

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return self._run(program)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def watched(machine: Machine, database: Database | None = None) -> tuple[list[float | None], list[Event]]:
    """The times at the end of a search, and what it told."""
    result, events = run(
        machine, database, watch=Watch(machine.again, sleep=machine.sleep, clock=machine.clock), trials=32
    )
    return [o.seconds for o in result.outcomes], events


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a search, since these machines have a clock of their own."""
    monkeypatch.setattr(plausible, "PATIENCE", PATIENCE)


TRUE, _ = watched(Machine())
"""Times of a machine that stays as it is."""


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(e) for e in events if isinstance(e, Drifted | Settled | Slowed)]


def test_a_machine_that_stays_as_it_is_is_not_told_of() -> None:
    times, events = watched(Machine())
    assert times == [time_of(t) for t in _programs()]
    assert kinds(events) == [] and not any(isinstance(e, Corrected) for e in events)


def _programs() -> list[Program]:
    return [t.program for t in run(FakeRunner(), trials=32)[0].traces]


def test_without_a_watch_a_slow_machine_spoils_the_times() -> None:
    """What the watch is for."""
    spoilt = [o.seconds for o in run(Machine(slow={18: 2.0}), trials=32)[0].outcomes]
    assert spoilt[18:] == [2 * (s or 0.0) for s in TRUE[18:]]


def test_what_was_measured_on_a_slow_machine_is_measured_again(tmp_path: Path) -> None:
    machine = Machine(slow={18: 2.0}, ends_after=3.0)
    with Database.open(tmp_path / "r.sqlite") as db:
        times, events = watched(machine, db)
        rows = db.trials(program_key(TASK), target_key(TARGET, 2))
    assert times == TRUE
    assert kinds(events) == [Drifted, Settled]
    assert next(e.factor for e in events if isinstance(e, Drifted)) == pytest.approx(2.0)
    (settled,) = [e for e in events if isinstance(e, Settled)]
    assert settled.waited == 3.0
    again = [r for r in rows if r.phase == "again"]
    assert 0 < len(again) <= settled.trials and all(TRUE[r.trial] == r.seconds for r in again)
    assert len([r for r in rows if r.phase == "trial"]) == 32


def test_a_machine_that_stays_slow_is_told_once_and_times_are_scaled(tmp_path: Path) -> None:
    machine = Machine(slow={18: 2.0})
    with Database.open(tmp_path / "r.sqlite") as db:
        times, events = watched(machine, db)
        rows = db.trials(program_key(TASK), target_key(TARGET, 2))
    assert times == pytest.approx(TRUE)
    assert kinds(events) == [Drifted, Slowed]
    assert PATIENCE <= machine.slept < PATIENCE + 8.0
    scaled = [r for r in rows if r.phase == "again"]
    assert {r.trial for r in scaled} >= set(range(18, 32))
    for r in scaled:
        assert r.scale == pytest.approx(2.0) and min(r.times) == pytest.approx(r.scale * (r.seconds or 0.0))


def test_a_short_search_waits_no_longer_than_it_has_searched() -> None:
    machine = Machine(slow={18: 2.0}, searched=0.125)
    _, events = watched(machine)
    assert kinds(events) == [Drifted, Slowed]
    assert 18 * machine.searched <= machine.slept <= 25 * machine.searched


def test_waiting_is_no_searching() -> None:
    machine = Machine(searched=1.0)
    watch = Watch(machine.again, sleep=machine.sleep, clock=machine.clock)
    watch.begin(TASK, machine._run(TASK))
    for factor in (2.0, 3.0, 4.0):
        machine.slow = {0: factor}
        watch.look(lambda _: None)
        assert 0.0 < machine.slept <= machine.runs * machine.searched


def test_a_machine_that_was_slow_first_is_noticed_when_it_is_fast() -> None:
    machine = Machine(slow={0: 3.0})
    seen: list[float] = []
    watch = Watch(machine.again, sleep=machine.sleep, clock=machine.clock)
    watch.begin(_programs()[0], machine._run(_programs()[0]))
    machine.slow = {}
    look = watch.look(seen.append)
    assert not look.same and look.after == 1.0 and look.revised == pytest.approx(3.0) and seen == []
    assert watch.look(seen.append).same


@pytest.mark.parametrize(("spread", "told"), [(0.0, True), (0.5, False)])
def test_how_much_is_much_depends_on_the_best_programs_own_spread(spread: float, told: bool) -> None:
    _, events = watched(Machine(slow={18: 1.3}, spread=spread))
    assert (Drifted in kinds(events)) == told


def test_a_best_program_that_fails_now_says_nothing_of_the_machine() -> None:
    machine = Machine()

    def crashes(program: Program, best: float | None = None) -> Outcome:
        del program, best
        return Outcome(Status.CRASH)

    watch = Watch(crashes, sleep=machine.sleep, clock=machine.clock)
    watch.begin(TASK, Outcome(Status.OK, 1.0, (1.0,)))
    assert watch.look(lambda _: None) == Look(1.0, 1.0, 1.0, True)


# --- the roof --------------------------------------------------------------------------------------------------------

ROOF = Roof(operations=1000, bytes_=0, is_float=True, title="FMA", peak=1e6, moving=0.0)
"""A call takes a millisecond at least."""


@dataclass
class Clock(FakeRunner):
    """A runner with given times, one after the other."""

    seconds: list[float] = field(default_factory=list[float])

    def _next(self) -> Outcome:
        s = self.seconds.pop(0)
        return Outcome(Status.OK, s, (s,))

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        for _ in programs:
            yield self._next()

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        return [self._next() for _ in programs]

    def again(self, program: Program, best: float | None = None) -> Outcome:
        return self._next()


@pytest.mark.parametrize(
    ("seconds", "roof", "status", "found"),
    [
        ([1e-3], ROOF, Status.OK, 1e-3),
        ([0.6e-3], ROOF, Status.OK, 0.6e-3),  # roofs are measured, too
        ([1e-6, 2e-3], ROOF, Status.OK, 2e-3),
        ([1e-6, 1e-6], ROOF, Status.TOO_FAST, None),
        ([1e-4], replace(ROOF, peak=1e8), Status.OK, 1e-4),  # the roof was measured on a busy machine
    ],
)
def test_a_time_beyond_the_roof_is_measured_again(
    seconds: list[float], roof: Roof, status: Status, found: float | None
) -> None:
    for compare in (False, True):
        held = Plausible(Clock(seconds=list(seconds)), ROOF, lambda: roof)
        (outcome,) = held.compare([TASK]) if compare else held.measure([TASK], None)
        assert isinstance(outcome, Outcome)
        assert (outcome.status, outcome.seconds) == (status, found)


def test_what_is_rejected_says_why_and_keeps_its_samples() -> None:
    (outcome,) = Plausible(Clock(seconds=[1e-6, 2e-6]), ROOF, lambda: ROOF).measure([TASK], None)
    assert isinstance(outcome, Outcome)
    assert outcome.message == "it takes 2.00 µs, twice, and the machine needs at least 1.00 ms"
    assert outcome.times == (2e-6,)


@pytest.mark.parametrize(
    "roof", [replace(ROOF, peak=None), replace(ROOF, is_float=False)], ids=["unknown", "of integers"]
)
def test_where_no_roof_holds_no_time_is_rejected(roof: Roof) -> None:
    (outcome,) = Plausible(Clock(seconds=[1e-9]), roof, lambda: roof).measure([TASK], None)
    assert isinstance(outcome, Outcome) and outcome.status is Status.OK


def test_a_rejected_trial_is_recorded_as_what_it_is(tmp_path: Path) -> None:
    clock = Clock(seconds=[1e-9, 1e-9] + [2e-3] * 60)
    with Database.open(tmp_path / "r.sqlite") as db:
        result, _ = run(Plausible(clock, ROOF, lambda: ROOF), db, trials=8)  # type: ignore[arg-type]
        rows = db.trials(program_key(TASK), target_key(TARGET, 2))
    assert result.statuses == {"too_fast": 1, "ok": 7}
    assert rows[0].status == "too_fast" and rows[0].times == (1e-9,)
