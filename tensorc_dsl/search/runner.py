"""The interface between a search and the runner that measures its candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tensorc_dsl.ir.program import Program
from tensorc_dsl.measure.outcome import Outcome


class RunnerLike(Protocol):
    """Builds, checks and times programs; `measure.local.LocalRunner` is one."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        """An outcome per program, in order, each as soon as it is known. One far slower than `best` is timed briefly."""
        ...

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured again, in turns, so that a drift of the machine hits all of them alike."""
        ...
