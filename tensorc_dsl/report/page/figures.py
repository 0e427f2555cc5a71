"""What the page of a search shows, gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.tuning.insight.importance import Importance, importance
from tensorc_dsl.tuning.insight.posterior import Learnt, Pin, Slice, pins, posterior, slices
from tensorc_dsl.tuning.insight.study import Study, told_by
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.records.database import Kept, rank
from tensorc_dsl.tuning.records.trial import Trial


@dataclass(frozen=True, slots=True)
class Side:
    """A set of trials under one name: those of a search, of a database, or all. `trials` has one for each program, in order;
    `best` is the fastest, with the time that it had beside the other finalists."""

    label: str
    trials: tuple[Trial, ...]
    best: Trial | None
    searches: int

    @staticmethod
    def of(label: str, records: Sequence[Trial]) -> Side:
        rows = rank(Kept(n, t) for n, t in enumerate(records)).rows
        runs = len({(t.run, t.strategy, t.seed) for t in records})
        return Side(label, tuple(told_by(records)), records[rows[0]] if rows else None, runs)

    @property
    def statuses(self) -> dict[str, int]:
        return dict(Counter(t.status for t in self.trials))

    @property
    def improvements(self) -> list[tuple[int, float]]:
        """The trials, from 1, that were faster than all before, with their times."""
        out: list[tuple[int, float]] = []
        for n, t in enumerate(self.trials, 1):
            if t.seconds is not None and (not out or t.seconds < out[-1][1]):
                out.append((n, t.seconds))
        return out


@dataclass(frozen=True, slots=True)
class Insight:
    """What the trials of all sides teach."""

    study: Study
    importance: tuple[Importance, ...]
    posterior: tuple[Learnt, ...]
    slices: tuple[Slice, ...]
    pins: tuple[Pin, ...]

    @staticmethod
    def of(study: Study) -> Insight:
        found, learnt = importance(study), posterior(study)
        return Insight(study, found, learnt, slices(study), pins(study, found, learnt))


@dataclass(frozen=True, slots=True)
class Stage:
    """A text that the winner becomes, or why there is none."""

    title: str
    text: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the page says. `roof` is None if it cannot be measured here, for the reason `no_roof`; `insight` is None if
    there are too few trials, as `no_insight` says. `command` is the call of `tune` that pins are for. `default` is the
    schedule of a task that is not tuned, and `best` that of the fastest trial; None if there is none."""

    task: str
    machine: str
    threads: int
    cache: str
    sides: tuple[Side, ...]
    roof: Roof | None
    no_roof: str
    insight: Insight | None
    no_insight: str
    command: tuple[str, ...]
    default: Trace | None
    best: Trace | None
    stages: tuple[Stage, ...]

    @property
    def fastest(self) -> Trial | None:
        """The fastest trial of all sides."""
        found = [s.best for s in self.sides if s.best is not None]
        return min(found, key=lambda t: t.seconds or 0.0, default=None)
