"""`bayes`: a Gaussian process over the draws proposes most candidates; evolution and the prior propose the others.

The first batch is a maximin design drawn from the prior. The next batches are chosen by a portfolio of upper confidence
bounds, with some moves of the best candidates and some draws from the prior. The last ones are neighbours of the best two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.search.features import Layout, Scaler, maximin
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.model import Model
from tensorc_dsl.search.pool import Group, Pool
from tensorc_dsl.search.space import neighbours
from tensorc_dsl.search.strategy import Factory, Setting
from tensorc_dsl.trace.trace import Trace

KAPPAS = (0.25, 0.5, 1.0, 2.0)
"""The portfolio: how many deviations of optimism each pick adds to the mean, in turn."""

EVOLVED, PRIOR = 0.25, 0.15
"""Shares of a batch. They are what saves a run whose model is wrong."""

LAST = 0.15
"""The share of the budget, at its end, that goes to the neighbours of the best two."""

POOL = 1500
"""Candidates judged per batch, before the ascent."""

PARENTS = 12
"""Traces that candidates are made from, the best of the different structures among them."""

PRIOR_WEIGHT = 1.0
"""The weight of a trace's log probability under its own distributions, divided by the trials (piBO, 2204.11051)."""


@dataclass(frozen=True, slots=True)
class _Tried:
    trace: Trace
    features: Array
    seconds: float | None


def _shape(trace: Trace) -> tuple[str, ...]:
    return tuple(d.name for d in trace.open_draws)


class Bayes:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._trials = setting.trials
        self._defaults = list(setting.defaults)
        self._initial = min(14, max(4, setting.trials // 4))
        self._layout = Layout()
        self._pool = Pool(self._layout)
        self._reserve: list[Trace] = []
        self._design: list[Trace] | None = None
        self._tried: list[_Tried] = []
        self._proposed = 0
        self._warm: dict[int, float] = {}

    def propose(self, count: int) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more."""
        if self._design is None:
            self._design = self._plan()
        out = self._design[:count]
        del self._design[:count]
        if len(out) < count and any(t.seconds is not None for t in self._tried):
            if self._proposed >= self._trials * (1 - LAST):
                out += self._local(count - len(out))
            out += self._batch(count - len(out))
        while len(out) < count:
            trace = self._draw() or self._explorer.neighbour([t.trace for t in self._tried] + out)
            if trace is None:
                break
            out.append(trace)
        self._proposed += len(out)
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        self._tried.append(_Tried(trace, self._layout.vector(trace), outcome.seconds))

    def _draw(self) -> Trace | None:
        return self._reserve.pop(0) if self._reserve else self._explorer.draw()

    def _plan(self) -> list[Trace]:
        """The defaults, then draws from the prior that lie far apart; the draws not chosen are kept for later."""
        first = [t for t in map(self._explorer.replay, self._defaults) if t is not None]
        drawn: list[Trace] = []
        while len(drawn) < 2 * self._initial and (trace := self._explorer.draw()) is not None:
            drawn.append(trace)
        traces = first + drawn
        if not traces:
            return []
        rows = self._layout.matrix([self._layout.vector(t) for t in traces])
        picked = maximin(Scaler.of(rows)(rows), self._initial, chosen=len(first))
        self._reserve = [t for i, t in enumerate(traces) if i >= len(first) and i not in picked]
        return first + [traces[i] for i in picked]

    def _ranked(self) -> list[_Tried]:
        """The successes, fastest first; equal times in the order they were tried."""
        good = [t for t in self._tried if t.seconds is not None]
        return sorted(good, key=lambda t: t.seconds or 0.0)

    def _model(self) -> Model:
        rows = self._layout.matrix([t.features for t in self._tried])
        return Model.of(rows, [t.seconds for t in self._tried], self._warm)

    def _batch(self, count: int) -> list[Trace]:
        prior = round(count * PRIOR)
        evolved = round(count * EVOLVED)
        out = self._by_model(count - prior - evolved)
        out += self._evolve(evolved)
        for _ in range(prior):
            trace = self._draw()
            if trace is not None:
                out.append(trace)
        return out

    def _parents(self) -> list[Trace]:
        """Half of them the fastest traces, the rest the fastest of the other structures (which draws were made)."""
        ranked = [t.trace for t in self._ranked()]
        best, rest = ranked[: PARENTS // 2], ranked[PARENTS // 2 :]
        shapes = {_shape(t) for t in best}
        new: list[Trace] = []
        known: list[Trace] = []
        for t in rest:
            (known if _shape(t) in shapes else new).append(t)
            shapes.add(_shape(t))
        return (best + new + known)[:PARENTS]

    def _by_model(self, count: int) -> list[Trace]:
        """Picks by upper confidence bounds, each one believing that those before it turned out as expected."""
        if count <= 0:
            return []
        model = self._model()
        rng = self._explorer.rng("pool")
        parents = self._parents()
        groups = [self._pool.recombine(t, parents, max(1, POOL // len(parents)), rng) for t in parents]
        for _ in range(2):
            groups += self._ascend(model, groups, rng)
        where = [(g, row) for g in groups for row in range(len(g.rows))]
        described = [self._pool.describe(g) for g in groups]
        beliefs = model.beliefs(np.concatenate([f for f, _ in described]))
        worth = np.concatenate([p for _, p in described]) * (PRIOR_WEIGHT / len(self._tried))
        worth = worth + model.log_feasible(beliefs.points)
        open_ = np.ones(len(where), dtype=bool)
        out: list[Trace] = []
        while len(out) < count and open_.any():
            score = beliefs.mean + KAPPAS[len(out) % len(KAPPAS)] * beliefs.deviation + worth
            i = int(np.argmax(np.where(open_, score, -np.inf)))
            open_[i] = False
            group, row = where[i]
            trace = self._explorer.replay(self._pool.decisions(group, row))
            if trace is not None:
                out.append(trace)
                beliefs = beliefs.believing(i)
        return out

    def _ascend(self, model: Model, groups: list[Group], rng: np.random.Generator) -> list[Group]:
        """The neighbours of the candidates that look best, one from each of the best groups."""
        tops: list[tuple[float, int, int]] = []
        for n, g in enumerate(groups):
            if len(g.rows):
                beliefs = model.beliefs(self._pool.describe(g)[0])
                score = beliefs.mean + beliefs.deviation
                row = int(np.argmax(score))
                tops.append((-float(score[row]), n, row))
        return [self._pool.beside(groups[n], row, rng) for _, n, row in sorted(tops)[:6]]

    def _evolve(self, count: int) -> list[Trace]:
        """Moves of good traces: one or two draws of a parent from the best, the better the likelier."""
        rng = self._explorer.rng("evolve")
        ranked = [t.trace for t in self._ranked()[:PARENTS]]
        chance = 0.8 ** np.arange(len(ranked))
        out: list[Trace] = []
        for _ in range(count * 8):
            if len(out) == count:
                break
            parent = ranked[int(rng.choice(len(ranked), p=chance / chance.sum()))]
            movable = [d for d in parent.open_draws if d.distribution.size() > 1]
            decisions = dict(parent.decisions)
            order: list[int] = rng.permutation(len(movable)).tolist()
            for j in order[: int(rng.integers(1, 3))]:
                near = movable[j].distribution.moves(movable[j].decision)
                if near:
                    decisions[movable[j].name] = near[int(rng.integers(len(near)))]
            trace = self._explorer.replay(decisions)
            if trace is not None:
                out.append(trace)
        return out

    def _local(self, count: int) -> list[Trace]:
        """Untried neighbours of the best two, those first that the model holds for the fastest."""
        near = [(t.trace, d) for t in self._ranked()[:2] for d in neighbours(t.trace)]
        if not near:
            return []
        model = self._model()
        rng = self._explorer.rng("local")
        groups = [self._pool.single(trace, decisions, rng) for trace, decisions in near]
        means = model.beliefs(np.concatenate([self._pool.describe(g)[0] for g in groups])).mean
        out: list[Trace] = []
        for i in np.argsort(-means, kind="stable"):
            if len(out) == count:
                break
            trace = self._explorer.replay(near[int(i)][1])
            if trace is not None:
                out.append(trace)
        return out


STRATEGY: Factory = Bayes
