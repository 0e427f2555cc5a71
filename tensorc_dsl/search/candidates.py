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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A new program, with the numbers of its loops and of its draws."""

    trace: Trace
    loops: Array
    draws: Array


class Reserve:
    """Makes candidates, and keeps those that were not picked: they wait to be judged again."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._breeder = Breeder()
        self.waiting: list[Candidate] = []

    def rows(self, candidates: Sequence[Candidate]) -> Array:
        """A row for each candidate: the numbers of its loops, then those of its draws."""
        loops = np.array([c.loops for c in candidates])
        return np.hstack([loops, self._breeder.matrix([c.draws for c in candidates])])

    def drawn(self, count: int) -> list[Candidate]:
        """Up to `count` new draws from the prior."""
        out: list[Candidate] = []
        while len(out) < count:
            trace = self._explorer.draw()
            if trace is None:
                break
            out.append(self._described(trace))
        return out

    def bred(
        self, parents: Sequence[Trace], known: Sequence[tuple[Candidate, float]], count: int, blind: int = 0
    ) -> list[Candidate]:
        """Up to `count` new offspring of the parents, those first that look fast by their draws.

        `known` are candidates with their log speeds. Every `blind`-th offspring is any; 0 for none.
        """
        rng = self._explorer.rng("offspring")
        vectors, speeds = [c.draws for c, _ in known], np.array([s for _, s in known])
        out: list[Candidate] = []
        for turn, decisions in enumerate(self._breeder.offspring(parents, vectors, speeds, blind, rng)):
            if len(out) == count or turn == 4 * count:
                break
            out += self.replayed(decisions)
        return out

    def replayed(self, decisions: Mapping[str, Decision]) -> list[Candidate]:
        """The program that the decisions make, if it is new."""
        trace = self._explorer.replay(decisions)
        return [] if trace is None else [self._described(trace)]

    def beside(self, traces: list[Trace]) -> list[Candidate]:
        """The first new neighbour of the traces, if there is one."""
        trace = self._explorer.neighbour(traces)
        return [] if trace is None else [self._described(trace)]

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """The candidates wait."""
        self.waiting += candidates
        del self.waiting[:-MOST]

    def take(self, rows: Sequence[int]) -> list[Candidate]:
        """Those that wait at these places, in their order, which wait no more."""
        taken = [self.waiting[i] for i in rows]
        gone = set(rows)
        self.waiting = [c for i, c in enumerate(self.waiting) if i not in gone]
        return taken

    def _described(self, trace: Trace) -> Candidate:
        return Candidate(trace, self._explorer.describe(trace), self._breeder.vector(trace))
