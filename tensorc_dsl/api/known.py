"""The best schedule that is known for a task on its target, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from tensorc_dsl import units
from tensorc_dsl.api.drawing import TRIES
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.interp.versions import others, versions
from tensorc_dsl.source import Source
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.errors import UNTUNED, Passed, other_version, passed_over
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search.zero_shot import PROBABILITY, Forecast, guess

if TYPE_CHECKING:
    from tensorc_dsl.api.tasks import Task


@dataclass(frozen=True, slots=True)
class Recorded:
    """The fastest schedule that a search recorded, in that row of the database."""

    row: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A draw from the space with this seed; nothing is known of its time."""

    seed: int


@dataclass(frozen=True, slots=True)
class Given:
    """The task's own schedule, or that of a file."""


Origin = Recorded | Forecast | Drawn | Given


def describe(origin: Origin) -> str:
    """What comes after "the schedule is"."""
    match origin:
        case Recorded(seconds=seconds):
            return f"the fastest recorded one, {units.seconds(seconds)}"
        case Forecast(tasks=tasks, slower=slower):
            few = units.counted(tasks, "other task")
            return f"predicted from {few} on this machine, probably 1.0–{slower:.1f} times the time of the best"
        case Drawn(seed=seed):
            return f"drawn with seed {seed}"
        case Given():
            return "given"
        case _:
            assert_never(origin)


def facts(origin: Origin) -> dict[str, Any]:
    """The origin as data: its kind as `from`, and its fields."""
    more = {"probability": PROBABILITY} if isinstance(origin, Forecast) else {}
    kind = "predicted" if isinstance(origin, Forecast) else type(origin).__name__.lower()
    return {"from": kind} | asdict(origin) | more


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule and its origin."""

    trace: Trace
    origin: Origin


def known(task: Task, records: Path | None, on_warning: Callable[[Diagnostic], None]) -> Known:
    """The fastest recorded schedule; without one the schedule that records of other tasks predict to be the fastest; with too
    few of them the draw with seed 0. The task's own schedule, if it has no open draws and none is recorded.

    Raises TschedError (E0701, E0702, E0705, E0708), E0711 if there are no records where `records` says, and if the space
    has no schedule.
    """
    database = Database.reading() if records is None else Database.required(records)
    if database is None:
        return _default(task)
    with database:
        found = recorded(task, database, on_warning)
        return found or _predicted(task, database)


def untuned(task: Task, origin: Origin) -> Diagnostic | None:
    """A warning (W0705) where the schedule is neither recorded nor given."""
    if isinstance(origin, Recorded | Given):
        return None
    return UNTUNED(None, task=task.name, origin=describe(origin))


def recorded(task: Task, database: Database, on_warning: Callable[[Diagnostic], None]) -> Known | None:
    """The fastest recorded schedule that can be applied and lowered; None if there is none. See `Task.recorded`."""
    ranking = database.ranking(program_key(task.program), target_key(task.target, task.threads))
    passed = list(ranking.passed)
    found: Known | None = None
    for row in ranking.rows[:TRIES]:
        best = database.trial(row)
        try:
            trace = task.expand(Source(f"<trial {best.trial} of {best.task}>", best.trace))
            task.lower(trace)
        except TschedError as e:
            passed.append(Passed(row, f"{e.diagnostics[0].code}: {e.diagnostics[0].message}"))
            continue
        if changed := others(best.modules, versions(task.space)):
            on_warning(other_version(task.name, row, changed))
        assert best.seconds is not None
        found = Known(trace, Recorded(row, best.seconds))
        break
    if passed:
        on_warning(passed_over(database.path, task.name, passed))
    return found


def _default(task: Task) -> Known:
    trace = task.sample(0)
    return Known(trace, Drawn(0) if trace.open_draws else Given())


def _predicted(task: Task, database: Database) -> Known:
    default = _default(task)
    if isinstance(default.origin, Given):
        return default
    found = guess(task.model, task.program, task.target, default.trace, database)
    for trace in () if found is None else found.traces:
        assert found is not None
        try:
            task.lower(trace)
        except TschedError:
            continue
        return Known(trace, found.forecast)
    return default
