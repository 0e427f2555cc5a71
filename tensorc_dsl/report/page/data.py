"""The trials as numbers for the charts: a row for each would be a megabyte, so they are columns."""

from __future__ import annotations

from typing import Any

from tensorc_dsl import units
from tensorc_dsl.report.page.figures import Figures, Side
from tensorc_dsl.trace.distribution import Decision
from tensorc_dsl.trace.model import shown
from tensorc_dsl.tuning.insight.study import value_key
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.visible import visible_line

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
