"""The searches among the records of a task, and the one that a word means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorc_dsl.records.trial import Trial

SHORTEST = 4
"""Letters of a search's name that are enough to mean it, if no other name begins with them."""


@dataclass(frozen=True, slots=True)
class Search:
    """The records of one search, in their order. `run` is its name; records of format 1 have none, and those of one strategy
    and seed count as one search."""

    run: str
    strategy: str
    seed: int
    trials: tuple[Trial, ...]

    @property
    def label(self) -> str:
        return f"{self.strategy}/{self.seed}"


def searches(trials: Iterable[Trial]) -> list[Search]:
    """The searches, in the order of their first records."""
    found: dict[tuple[str, str, int], list[Trial]] = {}
    for t in trials:
        found.setdefault((t.run, t.strategy, t.seed), []).append(t)
    return [Search(*key, tuple(some)) for key, some in found.items()]


def meant(word: str, among: Sequence[Search]) -> Search | None:
    """The search that the word means: `bayes/0`, by strategy and seed; `bayes`, by strategy; or the beginning of its name. Of
    several by strategy and seed, it is the last one."""
    named = [s for s in among if len(word) >= SHORTEST and s.run.startswith(word)]
    if len(named) == 1:
        return named[0]
    return next((s for s in reversed(among) if word in (s.label, s.strategy)), None)
