"""What a search is asked for, wherever it is asked: in Python, on the command line, in a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack


class SearchChanges(TypedDict, total=False):
    """The options by name, each of which may be left out."""

    trials: int
    seed: int
    strategy: str


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How many schedules are tried, and which: given the times that are measured, the search is a function of these.

    Raises ValueError for a negative number of trials.
    """

    trials: int = 64
    seed: int = 0
    strategy: str = "bayes"

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise ValueError(f"trials must not be negative, not {self.trials}")

    def but(self, **changes: Unpack[SearchChanges]) -> SearchOptions:
        """The same options but for these."""
        return replace(self, **changes)
