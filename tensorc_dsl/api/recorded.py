"""Reviews records of a task: do their schedules still make the timed programs, and do the kernels compute right results?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tensorc_dsl.api.tasks import Task
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.source import Source
from tensorc_dsl.tuning.machine.roof import roof_of
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search.plausible import BEYOND, least_seconds


@dataclass(frozen=True, slots=True)
class Review:
    """A record, its error ("" for none), and the outcome of its kernel if that was run."""

    row: int
    trial: Trial
    problem: str
    outcome: Outcome | None = None


def repaired(task: Task, path: Path) -> int:
    """How many records of the task on this machine had times that were divided by wrong factors, and have them as they were
    measured now: the factors compounded, or made a time shorter than the machine allows."""
    keys = program_key(task.program), target_key(task.target, task.threads)
    database = Database.reading(path)
    if database is None:
        return 0
    with database:
        if not database.scaled(*keys):
            return 0
        task.require_machine()
        found = database.wrong_factors(*keys, least_seconds(roof_of(task.program, task.target, task.threads)) / BEYOND)
    if found:
        with Database.open(path) as writable:
            writable.repair(found)
    return len(found)


def reviewed(task: Task, database: Database, most: int) -> Iterator[Review]:
    """The reviews of the task's best records on this machine, up to `most`: each is replayed, built, and run against the
    reference. Raises TschedError if this machine cannot run the task's kernels.
    """
    task.require_machine()
    ranking = database.ranking(program_key(task.program), target_key(task.target, task.threads))
    for row in ranking.rows[:most]:
        trial = database.trial(row)
        try:
            trace = task.expand(Source(f"<record {row}>", trial.trace))
        except TschedError as e:
            yield Review(row, trial, f"{e.diagnostics[0].code}: {e.diagnostics[0].message}")
            continue
        if program_key(trace.program) != trial.program_key:
            yield Review(row, trial, "its schedule makes another program than the one that was timed")
            continue
        outcome = task.measure(trace)
        said = outcome.message.partition("\n")[0]
        wrong = "" if outcome.status is Status.OK else f"{outcome.status.replace('_', ' ')}: {said}"
        yield Review(row, trial, wrong, outcome)
