"""What the records of a task teach about its draws, for the task as it is now and this machine."""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.api.tasks import Task
from tensorc_dsl.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.insight.study import FEWEST, Study, TooFew, study
from tensorc_dsl.records.database import Database
from tensorc_dsl.records.errors import Passed, passed_over
from tensorc_dsl.records.keys import program_key, target_key
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.units import counted


@problem(
    "E0712",
    "`{task}` has {valid} of today's space on this machine, each schedule counted once, and {needed} are needed",
    help="tune it, with more trials or another `--seed`; nothing is learnt of a space with fewer schedules",
)
def TOO_FEW(*, task: str, valid: str, needed: int) -> None: ...


def recorded_trials(task: Task, database: Database, on_warning: Callable[[Diagnostic], None]) -> list[Trial]:
    """The records of the task on this machine, in their order; a warning reports those that cannot be read."""
    trials: list[Trial] = []
    passed: list[Passed] = []
    for kept in database.of(program_key(task.program), target_key(task.target, task.threads)):
        if isinstance(kept.trial, Trial):
            trials.append(kept.trial)
        else:
            passed.append(Passed(kept.row, str(kept.trial)))
    if passed:
        on_warning(passed_over(database.path, task.name, passed))
    return trials


def studied(task: Task, trials: list[Trial]) -> Study:
    """What the trials teach. Raises TschedError (E0712) if they are too few."""
    found = study(task.model, task.name, trials)
    if isinstance(found, TooFew):
        raise TschedError(too_few(task, found))
    return found


def too_few(task: Task, found: TooFew) -> Diagnostic:
    """The message where nothing can be learnt."""
    return TOO_FEW(None, task=task.name, valid=counted(found.valid, "valid trial"), needed=FEWEST)
