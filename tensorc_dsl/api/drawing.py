"""Schedules of a task: drawn, or read from a text."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.check.items import Names, check_items
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.diagnostic import Severity, TschedError
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.trace.model import Model
from tensorc_dsl.trace.trace import Trace

TRIES = 64
"""Draws in a row that may be refused before a space counts as empty."""


def schedules_of(source: Source, home: CheckedFile) -> CheckedFile:
    """The schedules of a text, whose computes and modules are those of another file. Raises TschedError."""
    file = parse(source)
    names = Names(computes=home.computes, modules=home.modules, intrinsics=home.intrinsics, library=home.library)
    for item in file.items:
        if isinstance(item, tree.ScheduleDef):
            names.schedules[item.name] = item
    found = check_items(tuple(names.schedules.values()), names)
    if any(d.severity is Severity.ERROR for d in found):
        raise TschedError(*found)
    return replace(home, file=file, schedules=names.schedules)


def sample(model: Model, task: str, seed: int, number: int = 0) -> Trace:
    """The first trace of a stream of draws that is not refused; TschedError with the last refusal when all are."""
    rng = stream(seed, task, f"sample/{number}")
    for _ in range(TRIES - 1):
        try:
            return model.sample(rng)
        except ScheduleRefusal:
            continue
    try:
        return model.sample(rng)
    except ScheduleRefusal as e:
        raise TschedError(refusal_diagnostic(e)) from e
