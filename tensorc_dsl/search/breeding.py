"""Offspring: the draws of good traces, recombined by the hundred and ranked by a forest over draws, without expansion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tensorc_dsl.search.features import Layout
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.pool import Pool
from tensorc_dsl.search.trees import Forest
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Trace

JUDGED = 600
"""Recombinations that are ranked for each request."""

TREES = 40

PARENTS = 12
"""Traces that offspring come from."""


def parents_of(ranked: Sequence[Trace]) -> list[Trace]:
    """Of traces, fastest first, half the fastest, then the fastest of each other structure, that is, set of draws."""
    best, rest = list(ranked[: PARENTS // 2]), ranked[PARENTS // 2 :]
    shapes = {_shape(t) for t in best}
    new: list[Trace] = []
    known: list[Trace] = []
    for t in rest:
        (known if _shape(t) in shapes else new).append(t)
        shapes.add(_shape(t))
    return (best + new + known)[:PARENTS]


def _shape(trace: Trace) -> tuple[str, ...]:
    return tuple(d.name for d in trace.open_draws)


class Breeder:
    """Describes traces by their draws, and recombines them."""

    def __init__(self) -> None:
        self._layout = Layout()
        self._pool = Pool(self._layout)

    def vector(self, trace: Trace) -> Array:
        """The numbers of the trace's draws; those of other traces may be longer (`matrix`)."""
        return self._layout.vector(trace)

    def matrix(self, vectors: Sequence[Array]) -> Array:
        return self._layout.matrix(list(vectors))

    def offspring(
        self, parents: Sequence[Trace], tried: Sequence[Array], speeds: Array, blind: int, rng: np.random.Generator
    ) -> Iterator[dict[str, Decision]]:
        """Decisions that recombine the parents' draws, those first that look fast by their draws.

        `tried` are vectors of draws with their log speeds. Every `blind`-th of the decisions is any, so that a forest that is
        wrong does not choose all of them; 0 for none.
        """
        share = max(1, JUDGED // len(parents))
        groups = [self._pool.recombine(t, list(parents), share, rng) for t in parents]
        where = [(g, row) for g in groups for row in range(len(g.rows))]
        rows = self.matrix([row for g in groups for row in self._pool.describe(g)[0]])
        merit = Forest.fit(self.matrix(tried), speeds, trees=TREES).at(rows)
        order: list[int] = np.argsort(-merit, kind="stable").tolist()
        anyhow: list[int] = rng.permutation(len(where)).tolist()
        for turn, best in enumerate(order, 1):
            group, row = where[anyhow[turn - 1] if blind and turn % blind == 0 else best]
            yield self._pool.decisions(group, row)
