"""What the page of a search shows, gathered, and the trials as numbers for its charts: columns, since a row for each would
be a megabyte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace, shown
from tensorc_dsl.tuning.insight.importance import Importance, importance
from tensorc_dsl.tuning.insight.posterior import Learnt, Pin, Slice, pins, posterior, slices
from tensorc_dsl.tuning.insight.study import Study, told_by, value_key
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.records.database import Kept, rank
from tensorc_dsl.tuning.records.trial import Trial

# What the page of a search shows, gathered.


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


# The trials as numbers for the charts: a row for each would be a megabyte, so they are columns.


AXES = 8
"""Draws that have an axis beside the time: the most important ones."""

DIGITS = 4


def chart_data(f: Figures) -> dict[str, Any]:
    """What the script of the page draws."""
    statuses = list(dict.fromkeys(t.status for s in f.sides for t in s.trials))
    return {
        "statuses": [s.replace("_", " ") for s in statuses],
        "sides": [_side(s, statuses) for s in f.sides],
        "draws": [_axis(f, name, title) for name, title in axes(f).items()],
        "roof": None if f.roof is None else _roof(f, f.roof),
    }


def axes(f: Figures) -> dict[str, str]:
    """The draws that have an axis, with what they are called there."""
    if f.insight is not None:
        return {i.name: i.title for i in f.insight.importance[:AXES]}
    seen = dict.fromkeys(n for s in f.sides for t in s.trials for n in t.decisions)
    return {name: name for name in list(seen)[:AXES]}


def _side(s: Side, statuses: list[str]) -> dict[str, Any]:
    return {
        "label": visible_line(s.label),
        "seconds": [None if t.seconds is None else float(f"{t.seconds:.{DIGITS}g}") for t in s.trials],
        "status": [statuses.index(t.status) for t in s.trials],
    }


def _axis(f: Figures, name: str, title: str) -> dict[str, Any]:
    """The values of a draw in order, and which one each trial has: -1 where it was not drawn."""
    decided = [t.decisions.get(name) for s in f.sides for t in s.trials]
    values = {value_key(d): d for d in decided if d is not None}
    order = sorted(values, key=lambda k: by_size(values[k]))
    place = {key: n for n, key in enumerate(order)}
    return {
        "name": visible_line(title),
        "values": [visible_line(shown(values[k])) for k in order],
        "of": [-1 if d is None else place[value_key(d)] for d in decided],
    }


def by_size(d: Decision) -> tuple[Any, ...]:
    """A key for sorting: numbers by size, tiles by their innermost factors, words by the alphabet."""
    match d:
        case tuple():
            return (1, tuple(reversed(d)), "")
        case str():
            return (2, (), d)
        case _:
            return (0, (d,), "")


def _roof(f: Figures, roof: Roof) -> dict[str, Any] | None:
    if not roof.operations or not roof.bytes_ or not (roof.peak or roof.moving):
        return None
    points = [(f"best of {s.label}" if len(f.sides) > 1 else "best", s.best.seconds) for s in f.sides if s.best]
    times = sorted(t.seconds for s in f.sides for t in s.trials if t.seconds is not None)
    if times:
        points.append(("median trial", times[len(times) // 2]))
    return {
        "intensity": roof.operations / roof.bytes_,
        "peak": roof.peak,
        "bandwidth": roof.bytes_ / roof.moving if roof.moving else None,
        "title": roof.title,
        "unit": "FLOP" if roof.is_float else "op",
        "points": [
            {"label": visible_line(label), "rate": roof.operations / s, "time": units.seconds(s)}
            for label, s in points
            if s is not None
        ],
    }
