"""How a search can fail, as exceptions; they can be sent from one process to another."""

from __future__ import annotations

from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.search.tune import TuneResult
from tensorc_dsl.trace.trace import Trace


class NoValidCandidate(Exception):
    """A search ended without a kernel that works. `result` tells what became of each trial."""

    def __init__(self, result: TuneResult) -> None:
        super().__init__(f"none of {result.trials} candidates is valid: {result.statuses}")
        self.result = result

    def __reduce__(self) -> tuple[type[NoValidCandidate], tuple[TuneResult]]:
        return type(self), (self.result,)


class WrongSchedule(Exception):
    """A search ended with a schedule that computes something else than its task: a bug in a primitive or in the proof."""

    def __init__(self, trace: Trace, diagnostic: Diagnostic) -> None:
        super().__init__(f"a schedule is wrong: {diagnostic.code}: {diagnostic.message}")
        self.trace = trace
        self.diagnostic = diagnostic

    def __reduce__(self) -> tuple[type[WrongSchedule], tuple[Trace, Diagnostic]]:
        return type(self), (self.trace, self.diagnostic)
