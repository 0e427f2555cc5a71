"""Records of a task looked at again: whether their schedules still make the programs that were timed, and right results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.api.tasks import Task
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.measure.outcome import Outcome, Status
from tensorc_dsl.records.database import Database
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.source import Source


@dataclass(frozen=True, slots=True)
class Review:
    """A record, what is wrong with it ("" where nothing is), and what running its kernel gave, where it was run."""

    row: int
    trial: Trial
    problem: str
    outcome: Outcome | None = None


def reviewed(task: Task, database: Database, most: int) -> Iterator[Review]:
    """The task's best records on this machine, up to `most`, each replayed, built, and run against the reference.

    Raises TschedError where this machine cannot run the task's kernels.
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
