"""The failures of a search, as exceptions that can be pickled."""

from __future__ import annotations

from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.tuning.search.tune import TuneResult
from tensorc_dsl.units import counted


class NoValidCandidate(Exception):
    """A search found no kernel that works. `result` has the outcome of each trial."""

    def __init__(self, result: TuneResult) -> None:
        found = ", ".join(f"{count} {status}" for status, count in result.statuses.items())
        super().__init__(
            f"none of {counted(result.trials, 'candidate')} is valid: {found}"
            if result.trials
            else f"no candidate was tried: {_reason(result)}"
        )
        self.result = result

    def __reduce__(self) -> tuple[type[NoValidCandidate], tuple[TuneResult]]:
        return type(self), (self.result,)


class WrongSchedule(Exception):
    """A search found a schedule that computes another result than its task: a bug of a primitive or of the proof."""

    def __init__(self, trace: Trace, diagnostic: Diagnostic) -> None:
        super().__init__(f"a schedule is wrong: {diagnostic.code}: {diagnostic.message}")
        self.trace = trace
        self.diagnostic = diagnostic

    def __reduce__(self) -> tuple[type[WrongSchedule], tuple[Trace, Diagnostic]]:
        return type(self), (self.trace, self.diagnostic)


def _reason(result: TuneResult) -> str:
    """Why a search has no trials."""
    if result.exhausted is not None:
        return (
            f"the space has no schedule that can be applied, {counted(result.refusals, 'expansion')} ended by a refusal"
        )
    return "it was interrupted" if result.interrupted else "it was given no trials, or no time for one"
