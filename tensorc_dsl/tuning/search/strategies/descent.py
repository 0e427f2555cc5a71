"""`descent`: from a draw to the best of its neighbours, again and again; from a new draw where no neighbour is better.

Coordinate descent as AutoTVM's Droplet search has it (Canesche et al., TACO 2024), over the moves that each draw declares.
"""

from __future__ import annotations

from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.space import neighbours
from tensorc_dsl.tuning.search.strategy import Factory, Setting

STARTS = 8
"""Draws that a descent chooses its start from."""


class Descent:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._defaults = list(setting.defaults)
        self._seen: list[Trace] = []
        self._starts = STARTS
        self._here: tuple[float, Trace] | None = None
        self._untried: list[dict[str, Decision]] = []

    def propose(self, count: int, left: float) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more."""
        out = self._explorer.first(self._defaults, count, count)
        del self._defaults[:count]
        while len(out) < count and (some := self._untried[: count - len(out)]):
            del self._untried[: len(some)]
            out += self._explorer.replays(some)
        starts = min(self._starts, count - len(out))
        self._starts -= starts
        out += self._explorer.draws(starts)
        while len(out) < count:
            self._here, self._starts = None, STARTS
            trace = self._explorer.draw() or self._explorer.neighbour(self._seen + out)
            if trace is None:
                break
            self._starts -= 1
            out.append(trace)
        self._seen += out
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """A better trace is where the descent goes on from."""
        if outcome.seconds is not None and (self._here is None or outcome.seconds < self._here[0]):
            self._here = (outcome.seconds, trace)
            self._untried = self._shuffled(neighbours(trace))

    def _shuffled(self, near: list[dict[str, Decision]]) -> list[dict[str, Decision]]:
        order: list[int] = self._explorer.rng("order").permutation(len(near)).tolist()
        return [near[i] for i in order]


STRATEGY: Factory = Descent
