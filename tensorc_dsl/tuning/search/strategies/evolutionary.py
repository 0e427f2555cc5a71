"""`evolutionary`: offspring of the best, chosen by boosted trees over their draws, with some draws from the prior.

As in Ansor (Zheng et al., OSDI 2020, section 5) and MetaSchedule (Shao et al., NeurIPS 2022, section 4): the model is
retrained after each batch, candidates are mutated and crossed, and those with the best predictions are measured.
"""

from __future__ import annotations

import numpy as np

from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import RANGE
from tensorc_dsl.tuning.search.offspring import Breeder, parents_of, structure_of
from tensorc_dsl.tuning.search.strategy import Factory, Setting

INITIAL = 16
"""Draws from the prior before the trees are used: the warm start of MetaSchedule at short budgets."""

PRIOR = 0.1
"""The share of the trials, after those, that are draws from the prior."""


class Evolutionary:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._defaults = list(setting.defaults)
        self._breeder = Breeder()
        self._tried: list[tuple[Trace, Array, float | None]] = []
        self._proposed = 0
        self._owed = 0.0
        self._initial = min(INITIAL, max(4, setting.trials // 4))

    def propose(self, count: int, left: float) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more."""
        out = self._explorer.first(self._defaults, count, count)
        del self._defaults[:count]
        ranked = sorted((s, n) for n, (_, _, s) in enumerate(self._tried) if s is not None)
        if ranked and self._proposed + len(out) >= self._initial:
            self._owed += PRIOR * (count - len(out))
            plain, self._owed = int(self._owed), self._owed % 1.0
            out += self._offspring(ranked, count - len(out) - plain)
        out += self._explorer.draws(count - len(out))
        while len(out) < count:
            trace = self._explorer.neighbour([t for t, _, _ in self._tried] + out)
            if trace is None:
                break
            out.append(trace)
        self._proposed += len(out)
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        self._tried.append((trace, self._breeder.vector(trace), outcome.seconds))

    def _offspring(self, ranked: list[tuple[float, int]], count: int) -> list[Trace]:
        best = -np.log(ranked[0][0])
        # A failure teaches the trees that it is slow.
        speeds = np.array([best - RANGE if s is None else max(best - RANGE, -np.log(s)) for _, _, s in self._tried])
        vectors = [v for _, v, _ in self._tried]
        parents = parents_of([(t, structure_of(t)) for t in (self._tried[n][0] for _, n in ranked)])
        offspring = self._breeder.offspring(parents, vectors, speeds, 0, self._explorer.rng("offspring"))
        return self._explorer.offspring(offspring, count, 8 * count)


STRATEGY: Factory = Evolutionary
