"""`bayes`: a Gaussian process over the loops of expanded candidates; predictions from other tasks are its mean.

The first trials are draws from the prior that lie far apart, or those that other tasks predict to be fast. The next batches
are chosen from a reserve of candidates by a portfolio of upper confidence bounds; the reserve grows by offspring of the best
candidates and by further draws. Some slots are kept for offspring and for draws, so that a wrong model costs some trials and
not the search. The last trials are neighbours of the best two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.search.breeding import parents_of
from tensorc_dsl.search.candidates import Candidate, Reserve
from tensorc_dsl.search.features import Scaler, maximin
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.model import Memory, Model
from tensorc_dsl.search.regret import FEW, Regret, regret_of
from tensorc_dsl.search.source import Source
from tensorc_dsl.search.space import neighbours
from tensorc_dsl.search.strategy import Factory, Setting
from tensorc_dsl.trace.trace import Trace

KAPPAS = (0.0, 0.25, 0.0, 0.5, 1.0)
"""The portfolio: how many deviations of optimism each pick adds to the mean, in turn."""

OFFSPRING, PRIOR = 0.25, 0.125
"""Shares of a batch that are kept for offspring, the best of them by the mean, and for draws from the prior, unjudged."""

LAST = 0.15
"""The share of the budget, at its end, that goes to the neighbours of the best two."""

DRAWN, BRED = 0.75, 1.5
"""How many candidates join the reserve for each trial of a batch: draws from the prior, and offspring."""

GENERATIONS = 2
"""Offspring join the reserve in so many groups. The best of a group, by the model, are parents of the next group."""

FIRST, FORESEEN = 24, 24
"""Candidates to choose the first trials from: draws from the prior and, where other tasks tell which are fast, offspring."""


@dataclass(frozen=True, slots=True)
class _Tried:
    candidate: Candidate
    seconds: float | None


class Bayes:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._trials = setting.trials
        self._setting = setting
        self._source: Source | None = None
        self._defaults = list(setting.defaults)
        self._initial = min(12, max(4, setting.trials // 4))
        self._reserve = Reserve(setting.explorer)
        self._design: list[Candidate] | None = None
        self._tried: list[_Tried] = []
        self._asked: dict[int, Candidate] = {}
        self._memory = Memory()
        self._model: Model | None = None
        self._fitted = 0
        self._proposed = 0

    def propose(self, count: int) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more."""
        if self._design is None:
            self._design = self._plan()
        out = self._design[:count]
        del self._design[:count]
        if len(out) < count and any(t.seconds is not None for t in self._tried):
            out += self._batch(count - len(out))
        while len(out) < count:
            candidate = self._anything([t.candidate.trace for t in self._tried] + [c.trace for c in out])
            if candidate is None:
                break
            out.append(candidate)
        self._proposed += len(out)
        self._asked |= {id(c.trace): c for c in out}
        return [c.trace for c in out]

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        candidate = self._asked.pop(id(trace))
        if self._model is not None and outcome.seconds is not None:
            mean, deviation = self._model.log_speed(self._reserve.rows([candidate]), self._prior([candidate]))
            error = (-float(np.log(outcome.seconds)) - float(mean[0])) / max(float(deviation[0]), 1e-9)
            self._memory.missed(error, self._model)
        self._tried.append(_Tried(candidate, outcome.seconds))

    def regret(self) -> Regret | None:
        """How far the best may be from the best there is; None before the model has chosen trials."""
        speeds = np.array([-float(np.log(t.seconds or 1.0)) for t in self._ranked()])
        if self._model is None or len(speeds) < FEW:
            return None
        model = self._model = self._fit()
        waiting = self._reserve.waiting
        rows = self._reserve.rows(waiting) if waiting else np.zeros((0, 0))
        return regret_of(model, speeds, rows, self._prior(waiting), self._memory)

    def _prior(self, candidates: Sequence[Candidate]) -> Array:
        """What other tasks say of the candidates."""
        if self._source is None or not candidates:
            return np.zeros(len(candidates))
        return self._source.predict(np.array([c.loops for c in candidates]))

    def _anything(self, seen: list[Trace]) -> Candidate | None:
        if not self._reserve.waiting:
            self._reserve.draw(1)
        if not self._reserve.waiting and not self._reserve.neighbour(seen):
            return None
        return self._reserve.waiting.pop(0)

    def _plan(self) -> list[Candidate]:
        """The defaults, then draws from the prior that lie far apart; half of these what other tasks predict to be fast."""
        for decisions in self._defaults:
            self._reserve.replay(decisions)
        planned = self._reserve.waiting
        self._reserve.waiting = []
        self._reserve.draw(FIRST)
        if not self._reserve.waiting:
            return planned
        self._source = self._setting.source(np.median(np.array([c.loops for c in self._reserve.waiting]), axis=0))
        wanted = self._initial
        if self._source is not None:
            self._breed(FORESEEN, self._prior)
            waiting = self._reserve.waiting
            best = np.argsort(-self._prior(waiting), kind="stable")[: self._initial // 2].tolist()
            planned += [waiting[i] for i in best]
            self._reserve.waiting = [c for i, c in enumerate(waiting) if i not in best]
            wanted -= len(best)
        rows = Scaler.of(both := self._reserve.rows((*planned, *self._reserve.waiting)))(both)
        picked = [i - len(planned) for i in maximin(rows, wanted, chosen=len(planned))]
        apart = [self._reserve.waiting[i] for i in picked]
        self._reserve.waiting = [c for i, c in enumerate(self._reserve.waiting) if i not in picked]
        return planned + apart

    def _ranked(self) -> list[_Tried]:
        """The successes, fastest first; equal times in the order they were tried."""
        good = [t for t in self._tried if t.seconds is not None]
        return sorted(good, key=lambda t: t.seconds or 0.0)

    def _batch(self, count: int) -> list[Candidate]:
        ranked = self._ranked()
        last = self._proposed >= self._trials * (1 - LAST)
        model = self._model = self._fit()
        if last:
            self._beside([t.candidate.trace for t in ranked[:2]], 2 * count)
        else:
            self._reserve.draw(round(count * DRAWN))
            self._breed(
                round(count * BRED), lambda some: model.log_speed(self._reserve.rows(some), self._prior(some))[0]
            )
        if not self._reserve.waiting:
            return []
        prior = 0 if last else round(count * PRIOR)
        out = [self._reserve.waiting[i] for i in self._picks(model, count - prior, round(count * OFFSPRING))]
        left = [c for c in self._reserve.waiting if all(c is not x for x in out)]
        drawn = [c for c in left if c.is_drawn]
        plain = drawn[len(drawn) - prior :]
        self._reserve.waiting = [c for c in left if all(c is not x for x in plain)]
        return out + plain

    def _breed(self, count: int, predicted: Callable[[Sequence[Candidate]], Array]) -> None:
        """Up to so many offspring join the reserve; their parents are the fastest, by measured or by predicted times."""
        tried = [(t.candidate, -float(np.log(t.seconds))) for t in self._tried if t.seconds is not None]
        for _ in range(GENERATIONS):
            waiting = self._reserve.waiting
            known = [*tried, *(zip(waiting, predicted(waiting).tolist(), strict=True) if waiting else ())]
            known.sort(key=lambda one: -one[1])
            self._reserve.breed(parents_of([c.trace for c, _ in known]), known, count // GENERATIONS)

    def _fit(self) -> Model:
        """The model after all trials. It is fitted once: a fit starts from the one before, so another would change it."""
        if self._model is not None and self._fitted == len(self._tried):
            return self._model
        self._fitted = len(self._tried)
        tried = [t.candidate for t in self._tried]
        times = [t.seconds for t in self._tried]
        return Model.of(self._reserve.rows(tried), times, self._prior(tried), self._memory)

    def _picks(self, model: Model, count: int, bred: int) -> list[int]:
        """Places in the reserve, by upper confidence bounds, each believing that those before it turned out as expected.

        The last `bred` of them are the offspring with the best means.
        """
        waiting = self._reserve.waiting
        rows = self._reserve.rows(waiting)
        beliefs = model.beliefs(rows, self._prior(waiting))
        worth = model.log_feasible(rows)
        offspring = np.array([not c.is_drawn for c in waiting])
        open_ = np.ones(len(waiting), dtype=bool)
        out: list[int] = []
        while len(out) < count and open_.any():
            kept = len(out) >= count - bred and bool((open_ & offspring).any())
            kappa = 0.0 if kept else KAPPAS[len(out) % len(KAPPAS)] * model.calibration
            score = np.where(
                open_ & (offspring | (not kept)), beliefs.mean + kappa * beliefs.deviation + worth, -np.inf
            )
            i = int(np.argmax(score))
            open_[i] = False
            out.append(i)
            beliefs = beliefs.believing(i)
        return out

    def _beside(self, traces: list[Trace], count: int) -> None:
        """Up to `count` untried neighbours of the traces join the reserve, in turns."""
        rng = self._explorer.rng("local")
        lists = [neighbours(t) for t in traces]
        orders: list[list[int]] = [rng.permutation(len(near)).tolist() for near in lists]
        made = 0
        for turn in range(max(map(len, lists), default=0)):
            for near, order in zip(lists, orders, strict=True):
                if made < count and turn < len(order):
                    made += self._reserve.replay(near[order[turn]])


STRATEGY: Factory = Bayes
