"""What the records of a task teach about its draws, for the task as it is now and this machine; and the result of a
search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.units import counted
from tensorc_dsl.faces.report.importance import percent, trust
from tensorc_dsl.faces.report.page.notebook import fragment
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Model
from tensorc_dsl.tuning.insight.importance import Importance, importance
from tensorc_dsl.tuning.insight.posterior import Learnt, Pin, pins, posterior
from tensorc_dsl.tuning.insight.study import FEWEST, Study, TooFew, decisions_of, study
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.errors import Passed, passed_over
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search.tune import TuneResult

if TYPE_CHECKING:
    from tensorc_dsl.faces.api.tasks import Task


# What the records of a task teach about its draws, for the task as it is now and this machine.


@dataclass(frozen=True, slots=True, repr=False)
class Insight:
    """What a model of the trials says about the draws of a task.

    `importance` has the draws, the most important first, `posterior` the values that they have in schedules that are about as
    fast as the best, and `pins` the draws that can be pinned. `best` has the values of the fastest trial. The model learns
    from `valid` trials; `left_out` ones do not fit today's space. `explained` is the share of the variance of the log time
    that it explains in trials that it was not fitted to, so a small one means that the rest says little.
    """

    valid: int
    left_out: int
    explained: float
    best: Mapping[str, Decision]
    importance: tuple[Importance, ...]
    posterior: tuple[Learnt, ...]
    pins: tuple[Pin, ...]

    def __repr__(self) -> str:
        """The draws with their shares of the variance; the values are too many to print."""
        shares = ", ".join(f"{i.name} {percent(i.total)}" for i in self.importance)
        return f"Insight({shares}; {trust(self.explained, self.valid, self.left_out)})"


def insight(study: Study) -> Insight:
    """The analysis of a study; nothing is measured."""
    ranked, learnt = importance(study), posterior(study)
    best = decisions_of(study.best)
    return Insight(
        study.valid, study.left_out, study.surrogate.explained, best, ranked, learnt, pins(study, ranked, learnt)
    )


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


def studied(model: Model, task: str, trials: list[Trial]) -> Study:
    """What the trials teach. Raises TschedError (E0712) if they are too few."""
    found = study(model, task, trials)
    if isinstance(found, TooFew):
        raise TschedError(too_few(task, found))
    return found


def too_few(task: str, found: TooFew) -> Diagnostic:
    """The message where nothing can be learnt."""
    return TOO_FEW(None, task=task, valid=counted(found.valid, "valid trial"), needed=FEWEST)


# The result of a search of a task, which a notebook shows.


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult(TuneResult):
    """A result that knows the `model` that was searched, and the `task` by its name."""

    model: Model = field(kw_only=True)
    task: str = field(kw_only=True)

    @staticmethod
    def of(found: TuneResult, model: Model, task: str) -> SearchResult:
        same = {f.name: getattr(found, f.name) for f in fields(TuneResult)}
        return SearchResult(**same, model=model, task=task)

    def insight(self) -> Insight:
        """What the trials of this search say about the draws. Raises TschedError (E0712) if they are too few."""
        return insight(studied(self.model, self.task, self._trials()))

    def _repr_html_(self) -> str:
        """The best time, how the search got there, and which draws matter, as a notebook shows it."""
        learnt = study(self.model, self.task, self._trials())
        return fragment(self, (learnt, importance(learnt)) if isinstance(learnt, Study) else None)

    def _trials(self) -> list[Trial]:
        """The trials as the analysis reads them, from records that need not exist."""
        return [
            Trial(
                task_key="", target_key="", task=self.task, strategy="", seed=self.seed, trial=n, status=str(o.status),
                decisions=t.decisions, trace=t.text, program_key=program_key(t.program), seconds=o.seconds,
            )
            for n, (t, o) in enumerate(zip(self.traces, self.outcomes, strict=True))
        ]  # fmt: skip
