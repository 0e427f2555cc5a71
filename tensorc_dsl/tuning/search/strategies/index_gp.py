"""`index-gp`: each draw as its index in the sorted list of its decisions, and a Gaussian process over these indices.

The encoding of C. Rocke's engine, for comparison: the process and the rule of choice are as good as ours, so what differs is
what the model sees. It sees neither the program nor other tasks. As in his engine, candidates are uniformly random indices,
the next trial is the one with the highest upper confidence bound, and a few draws come first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Memory, Model
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Factory, Setting

FIRST, KAPPA = 5, 2.576
"""Draws from the prior before the model is used, and the deviations of optimism: those of the Python package
`bayes_opt`, which his engine uses."""

POINTS = 2000
"""Random indices among which each batch is chosen."""

TRIES = 4
"""Points that are expanded at most for each trial: some are refused, or the programs of other points."""

LISTED = 1024
"""A longer list is represented by this many of its decisions, drawn at random."""

Order = tuple[tuple[float, ...], str]


def order(decision: Decision) -> Order:
    """What decisions are sorted by: numbers and tuples of numbers by value, then texts."""
    match decision:
        case str():
            return (), decision
        case tuple():
            return decision, ""
        case _:
            return (float(decision),), type(decision).__name__


@frozen
class List:
    """Sorted decisions. Where they stand for a list `spread` times as long, indices are those of that list."""

    orders: list[Order]
    decisions: list[Decision]
    spread: float

    @staticmethod
    def of(distribution: Distribution, one: Decision, explorer: Explorer) -> List:
        """All decisions of the distribution, or `LISTED` random ones; `one` is among them."""
        found, size = {order(one): one}, distribution.size()
        if size > LISTED:
            rng = explorer.rng("list")
            found |= {order(d): d for d in (distribution.sample(rng) for _ in range(LISTED))}
        left = [one] if size <= LISTED else []
        while left:  # moves connect all decisions
            new = {order(d): d for d in distribution.moves(left.pop()) if order(d) not in found}
            found |= new
            left += new.values()
        orders = sorted(found)
        return List(orders, [found[o] for o in orders], size / len(orders) if size > LISTED else 1.0)

    def index(self, decision: Decision) -> float:
        return bisect_left(self.orders, order(decision)) * self.spread


class IndexGP:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._defaults = list(setting.defaults)
        self._tried: list[Trace] = []
        self._seconds: list[float | None] = []
        self._indices: list[dict[str, float]] = []
        self._lists: dict[Distribution, List] = {}
        self._memory = Memory()

    def propose(self, count: int, left: float) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more."""
        out: list[Trace] = []
        while self._defaults and len(out) < count:
            out += self._new(self._defaults.pop(0))
        if len(self._seconds) >= FIRST and any(s is not None for s in self._seconds):
            out += self._chosen(count - len(out))
        while len(out) < count:
            trace = self._explorer.draw() or self._explorer.neighbour(self._tried + out)
            if trace is None:
                break
            out.append(trace)
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        self._tried.append(trace)
        self._seconds.append(outcome.seconds)
        self._indices.append({d.name: self._list(d).index(d.decision) for d in trace.open_draws})

    def _list(self, draw: Draw) -> List:
        if draw.distribution not in self._lists:
            self._lists[draw.distribution] = List.of(draw.distribution, draw.decision, self._explorer)
        return self._lists[draw.distribution]

    def _new(self, decisions: Mapping[str, Decision]) -> list[Trace]:
        trace = self._explorer.replay(decisions)
        return [] if trace is None else [trace]

    def _chosen(self, count: int) -> list[Trace]:
        """Up to so many points, each with the highest bound after the ones before it turned out as expected."""
        points, indices = self._points()
        names = {name: n for n, name in enumerate(dict.fromkeys(name for one in self._indices for name in one))}
        tried, rows = _index_matrix(self._indices, names), _index_matrix(indices, names)
        model = Model.of(tried, self._seconds, np.zeros(len(tried)), self._memory)
        beliefs = model.beliefs(rows, np.zeros(len(rows)))
        open_ = np.ones(len(points), dtype=bool)
        out: list[Trace] = []
        for _ in range(min(TRIES * count, len(points))):
            if len(out) == count:
                break
            i = int(np.argmax(np.where(open_, beliefs.mean + KAPPA * beliefs.deviation, -np.inf)))
            open_[i] = False
            if made := self._new(points[i]):
                out += made
                beliefs = beliefs.believing(i)
        return out

    def _points(self) -> tuple[list[dict[str, Decision]], list[dict[str, float]]]:
        """Decisions at random indices, and these indices. Which draws there are is as in one of the trials."""
        rng = self._explorer.rng("points")
        points: list[dict[str, Decision]] = []
        indices: list[dict[str, float]] = []
        templates: list[int] = rng.integers(len(self._tried), size=POINTS).tolist()
        for template in (self._tried[n] for n in templates):
            anew = {d.name: (found := self._list(d), int(rng.integers(len(found.orders)))) for d in template.open_draws}
            points.append({**template.decisions, **{name: one.decisions[i] for name, (one, i) in anew.items()}})
            indices.append({name: i * one.spread for name, (one, i) in anew.items()})
        return points, indices


def _index_matrix(indices: list[dict[str, float]], columns: dict[str, int]) -> Array:
    """A row each; the index of a draw that was not made is 0."""
    out = np.zeros((len(indices), len(columns)))
    for row, one in zip(out, indices, strict=True):
        row[[columns[name] for name in one]] = list(one.values())
    return out


STRATEGY: Factory = IndexGP
