"""The reserve: candidates that are expanded and have features, but were not tried.

Expanding one costs tens of milliseconds, so none is discarded: a candidate that the model does not pick is ranked again for
the next batch, with an updated model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """A new program, with the numbers of its loops and of its draws, and its cycles by a model, where there is one."""

    trace: Trace
    loops: Array
    draws: Array
    cycles: float | None = None


class Reserve:
    """Makes candidates, and keeps those that were not picked, to rank them again."""

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
        return [self._described(t) for t in self._explorer.draws(count)]

    def bred(
        self, parents: Sequence[Trace], known: Sequence[tuple[Candidate, float]], count: int, blind: int = 0
    ) -> list[Candidate]:
        """Up to `count` new offspring of the parents, those first that look fast by their draws.

        `known` are candidates with their log speeds. Every `blind`-th offspring is any; 0 for none.
        """
        rng = self._explorer.rng("offspring")
        vectors, speeds = [c.draws for c, _ in known], np.array([s for _, s in known])
        offspring = self._breeder.offspring(parents, vectors, speeds, blind, rng)
        return [self._described(t) for t in self._explorer.offspring(offspring, count, 4 * count)]

    def replayed(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Candidate]:
        """At most `count` new programs that the first of these decisions make, of which at most `tries` are considered."""
        return [self._described(t) for t in self._explorer.first(many, count, tries)]

    def moved(self, many: Sequence[Mapping[str, Decision]]) -> list[Candidate]:
        """The new programs that schedules of other tasks become here."""
        return [self._described(t) for t in self._explorer.moved(many)]

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
        return self.taken([self.waiting[i] for i in rows])

    def taken(self, candidates: list[Candidate]) -> list[Candidate]:
        """These, which wait no more."""
        gone = set(map(id, candidates))
        self.waiting = [c for c in self.waiting if id(c) not in gone]
        return candidates

    def _described(self, trace: Trace) -> Candidate:
        loops, cycles = self._explorer.describe(trace), self._explorer.modelled(trace)
        return Candidate(trace, loops, self._breeder.vector(trace), cycles)
