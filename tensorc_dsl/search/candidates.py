"""Candidates that are expanded and described, and wait to be tried.

Expanding one costs tens of milliseconds, so none is thrown away: what a model does not pick today it judges again tomorrow,
when it knows more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.search.breeding import Breeder
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.space import Explorer
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Trace

MOST = 256
"""Candidates that wait; beyond that the oldest are given up."""

BLIND = 3
"""Every third offspring is expanded unjudged."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A new program, with the numbers of its loops and of its draws. `is_drawn` if it comes from the prior."""

    trace: Trace
    loops: Array
    draws: Array
    is_drawn: bool


class Reserve:
    """What waits, and how more of it is made."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._breeder = Breeder()
        self.waiting: list[Candidate] = []

    def rows(self, candidates: Sequence[Candidate]) -> Array:
        """A row for each candidate: the numbers of its loops, then those of its draws."""
        loops = np.array([c.loops for c in candidates])
        return np.hstack([loops, self._breeder.matrix([c.draws for c in candidates])])

    def draw(self, count: int) -> None:
        """Up to `count` draws from the prior are added."""
        for _ in range(count):
            trace = self._explorer.draw()
            if trace is None:
                break
            self._add(trace, True)

    def breed(self, parents: Sequence[Trace], tried: Sequence[tuple[Candidate, float]], count: int) -> None:
        """Up to `count` offspring of the parents are added; `tried` are candidates with their log speeds."""
        rng = self._explorer.rng("offspring")
        vectors, speeds = [c.draws for c, _ in tried], np.array([s for _, s in tried])
        made = 0
        for turn, decisions in enumerate(self._breeder.offspring(parents, vectors, speeds, BLIND, rng)):
            made += self.replay(decisions)
            if made == count or turn == 4 * count:
                break

    def replay(self, decisions: Mapping[str, Decision]) -> bool:
        """Whether the decisions made a new program, which waits now."""
        trace = self._explorer.replay(decisions)
        if trace is not None:
            self._add(trace, False)
        return trace is not None

    def neighbour(self, traces: list[Trace]) -> bool:
        """Whether one of the traces has a neighbour that is new, which waits now."""
        trace = self._explorer.neighbour(traces)
        if trace is not None:
            self._add(trace, False)
        return trace is not None

    def _add(self, trace: Trace, is_drawn: bool) -> None:
        self.waiting.append(Candidate(trace, self._explorer.describe(trace), self._breeder.vector(trace), is_drawn))
        del self.waiting[:-MOST]
