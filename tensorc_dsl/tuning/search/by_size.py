"""Searches for several kernels at once: a strategy for each timed size of open dimensions, which all learn from each trial.

A schedule that is fast for one row and slow for many has a bad mean, so a search for the best mean does not look for it. Here
each size has a strategy of its own, with its own model, and is told the time of every candidate at that size, whoever
proposed it: candidates are shared, and no trial is for one size alone. They propose by turns: where it is said how often
sizes occur, a size the more often the more of the total time it takes (Webster's method of apportionment), else all as often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorc_dsl.reference.work import Sizing
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.strategy import Factory, Regret, Setting, StatesRegret, Strategy

TOGETHER = 4
"""Candidates that a size proposes in a turn: with few, each of them takes a fit of its model."""

LEAST = 0.5
"""A size has at least this share of the turns that it had if all had as many."""


class BySize:
    """The strategies of the timed sizes as one."""

    def __init__(self, members: Sequence[Strategy], weights: Sequence[float], even: bool) -> None:
        self._members = members
        self._weights = weights
        self._even = even
        self._turns = [0] * len(members)
        self._best: list[float] = []
        self._ended: set[int] = set()
        self.lately: set[int] = set()
        """The sizes that proposed the last candidates."""

    def propose(self, count: int, left: float) -> list[Trace]:
        """As of a strategy; fewer than `count` only where no size has more."""
        out: list[Trace] = []
        self.lately = set()
        while len(out) < count and len(self._ended) < len(self._members):
            number = max((n for n in range(len(self._members)) if n not in self._ended), key=self._claim)
            found = self._members[number].propose(min(TOGETHER, count - len(out)), left)
            self._turns[number] += 1
            self.lately.add(number)
            if not found:
                self._ended.add(number)
            out += found
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """Each size learns the time there. What was timed at no single size is not told."""
        if outcome.seconds is None:
            for member in self._members:
                member.tell(trace, outcome)
            return
        if not outcome.at:
            return
        factor = outcome.seconds / sum(w * s for w, s in zip(self._weights, outcome.at, strict=True))
        here = [factor * s for s in outcome.at]
        self._best = [min(a, b) for a, b in zip(self._best or here, here, strict=True)]
        for member, seconds in zip(self._members, here, strict=True):
            member.tell(trace, replace(outcome, seconds=seconds, at=()))

    def _claim(self, number: int) -> tuple[float, int]:
        """How much a size deserves the next turn; the first of several has it."""
        turns, even = self._turns[number], 1.0 / len(self._members)
        if not turns or not self._best or self._even:
            return even / (2 * turns + 1) + (not turns), -number
        total = sum(w * s for w, s in zip(self._weights, self._best, strict=True))
        share = self._weights[number] * self._best[number] / total
        return max(share, LEAST * even) / (2 * turns + 1), -number


class BySizeWithRegret(BySize):
    """Of strategies that state their regret: that of several kernels is the largest of any size."""

    def __init__(self, members: Sequence[StatesRegret], weights: Sequence[float], even: bool) -> None:
        super().__init__(members, weights, even)
        self._stating = members
        self._regrets: list[Regret | None] = [None] * len(members)

    def regret(self) -> Regret | None:
        """As of a strategy; None before all sizes have one. Only the sizes that proposed lately state theirs anew."""
        for n in self.lately:
            self._regrets[n] = self._stating[n].regret()
        known = [r for r in self._regrets if r is not None]
        if len(known) < len(self._regrets):
            return None
        return Regret(max(r.share for r in known), sum(r.intervals for r in known), sum(r.held for r in known))


def by_size(factory: Factory, setting: Setting, found: Sizing, even: bool) -> Strategy:
    """The strategy for several kernels, of one for each timed size by the factory, which have as many turns if they are
    `even`. The largest size has what other tasks know, since records describe their loops there."""

    def alone(_: Callable[[], object]) -> None:
        return None

    trials = max(1, -(-setting.trials // len(found.timed)))
    members: list[Strategy] = []
    for n, sizes in enumerate(found.timed):
        own = replace(setting, trials=trials, sizes=sizes, defaults=setting.defaults if not n else ())
        if sizes is not found.timed[-1]:
            own = replace(own, source=alone, bests=tuple, itself=tuple)
        members.append(factory(own))
    stating = [m for m in members if isinstance(m, StatesRegret)]
    if len(stating) == len(members):
        return BySizeWithRegret(stating, found.weights, even)
    return BySize(members, found.weights, even)
