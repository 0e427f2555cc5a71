"""The result of a search of a task, which a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tensorc_dsl.api.insights import Insight, insight, studied
from tensorc_dsl.report.page.notebook import fragment
from tensorc_dsl.trace.model import Model
from tensorc_dsl.tuning.insight.importance import importance
from tensorc_dsl.tuning.insight.study import Study, study
from tensorc_dsl.tuning.records.trial import Trial, program_key
from tensorc_dsl.tuning.search.tune import TuneResult


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
