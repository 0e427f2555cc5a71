"""The options of a search, for Python, the command line and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack


class SearchChanges(TypedDict, total=False):
    """The options by name, each of which may be left out."""

    trials: int
    seed: int
    strategy: str
    budget: float | None
    resume: bool


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How many schedules are tried, and which: given the times that are measured, the search is a function of these.

    It ends after so many trials or, where there is a `budget`, so many seconds. With `resume` it goes on with the last one
    of the same seed and strategy that is recorded. Raises ValueError for a negative number of trials or seconds.
    """

    trials: int = 64
    seed: int = 0
    strategy: str = "bayes"
    budget: float | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise ValueError(f"trials must not be negative, not {self.trials}")
        if self.budget is not None and not self.budget >= 0:
            raise ValueError(f"the budget must not be negative, not {self.budget} s")

    def but(self, **changes: Unpack[SearchChanges]) -> SearchOptions:
        """The same options but for these."""
        return replace(self, **changes)
