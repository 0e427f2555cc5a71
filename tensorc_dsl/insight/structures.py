"""Points of a space, draws with decisions, without an expansion for each.

An expansion takes tens of milliseconds, and an analysis looks at tens of thousands of points. So the few draws are found
whose decisions change which other draws there are, or what these may be; points that agree on them have the same
distributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.expansion import SpaceLike
from tensorc_dsl.search.streams import stream
from tensorc_dsl.trace.distribution import Decision, Distribution
from tensorc_dsl.trace.draw import Draw

DRAWN = 32
"""Draws from the prior, at most twice as many expansions where some are refused."""

PROBES = 3
"""Other values of a draw that are tried, at two points, to see whether it changes other draws."""

MOST = 192
"""Expansions for combinations of the draws that change others; from then on the most similar one known stands in."""

Point = tuple[Draw, ...]
"""The open draws of one schedule, in their order, with their decisions."""


def value_key(decision: Decision) -> tuple[str, Decision]:
    """Equal for equal decisions; true is not 1."""
    return type(decision).__name__, decision


def decisions_of(point: Point) -> dict[str, Decision]:
    return {d.name: d.decision for d in point}


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """What the decisions of the influential draws leave: all open draws, these with the decisions that led here."""

    draws: Point


class Structures:
    """The points of a space. Everything is a function of the space and the task's name."""

    def __init__(self, space: SpaceLike, task: str) -> None:
        self._space = space
        self._task = task
        self._held: dict[tuple[tuple[str, tuple[str, Decision]], ...], _Skeleton | None] = {}
        self.drawn = self._draw()
        self.influential = frozenset[str]()
        self.influential = frozenset(name for name in self.names() if self._influences(name))

    def rng(self, purpose: str) -> np.random.Generator:
        """A stream of random numbers for one purpose."""
        return stream(0, self._task, f"insight/{purpose}")

    def names(self) -> list[str]:
        """The names of the draws of the points from the prior, in the order in which they were met."""
        return list(dict.fromkeys(d.name for point in self.drawn for d in point))

    def expanded(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Point | None:
        """The point that the decisions lead to, by an expansion; None if a step is refused."""
        try:
            return self._space.replay(decisions, rng).open_draws
        except ScheduleRefusal:
            return None

    def moved(self, point: Point, name: str, value: Decision, rng: np.random.Generator) -> Point | None:
        """The point with another decision of a draw; None if a step is refused.

        The other draws keep their decisions where these are still possible, and are drawn from their distributions where not.
        """
        if name not in self.influential:
            return tuple(_decided(d, value) if d.name == name else d for d in point)
        return self.point(decisions_of(point) | {name: value}, rng)

    def point(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Point | None:
        """The point with these decisions, as far as they are possible; None if a step is refused."""
        skeleton = self._skeleton({n: d for n, d in decisions.items() if n in self.influential})
        if skeleton is None:
            return None
        return tuple(self._kept(d, decisions, rng) for d in skeleton.draws)

    def _kept(self, d: Draw, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Draw:
        if d.name in decisions and d.distribution.contains(decisions[d.name]):
            return _decided(d, decisions[d.name])
        # The other draws are as they are since an influential one has this decision.
        return d if d.name in self.influential else _decided(d, d.distribution.sample(rng))

    def prior(self, count: int, slot: str) -> list[Point]:
        """About so many points by their probability: from each drawn one, all draws are drawn anew, again and again."""
        rng = self.rng(slot)
        out: list[Point] = []
        for _ in range(-(-count // max(1, len(self.drawn)))):
            for point in self.drawn:
                for name in [d.name for d in point]:
                    held = {d.name: d for d in point}
                    if name in held:
                        moved = self.moved(point, name, held[name].distribution.sample(rng), rng)
                        point = point if moved is None else moved
                out.append(point)
        return out

    def _draw(self) -> tuple[Point, ...]:
        rng = self.rng("drawn")
        out: list[Point] = []
        for _ in range(2 * DRAWN):
            try:
                out.append(self._space.sample(rng).open_draws)
            except ScheduleRefusal:
                continue
            if len(out) == DRAWN:
                break
        return tuple(out)

    def _influences(self, name: str) -> bool:
        """Whether another decision of the draw changes which other draws there are, or what they may be."""
        having = [p for p in self.drawn if any(d.name == name for d in p)]
        for point in {id(p): p for p in (having[0], having[-1])}.values():
            draw = next(d for d in point if d.name == name)
            before = _others(point, name)
            moves = draw.distribution.moves(draw.decision)
            for value in evenly(moves, PROBES):
                after = self.expanded(decisions_of(point) | {name: value}, self.rng(f"probe/{name}"))
                if after is not None and _others(after, name) != before:
                    return True
        return False

    def _skeleton(self, decisions: Mapping[str, Decision]) -> _Skeleton | None:
        key = tuple(sorted((n, value_key(d)) for n, d in decisions.items()))
        if key not in self._held:
            if len(self._held) >= MOST:
                return self._similar(dict(key))
            point = self.expanded(decisions, self.rng(f"structure/{key}"))
            self._held[key] = None if point is None else _Skeleton(point)
        return self._held[key]

    def _similar(self, wanted: Mapping[str, tuple[str, Decision]]) -> _Skeleton | None:
        known = [(key, s) for key, s in self._held.items() if s is not None]
        agreeing = [sum(wanted.get(n) == value for n, value in key) - len(key) for key, _ in known]
        return known[int(np.argmax(agreeing))][1] if known else None


def _decided(draw: Draw, value: Decision) -> Draw:
    return replace(draw, decision=value, pinned=False)


def _others(point: Point, name: str) -> dict[str, Distribution]:
    return {d.name: d.distribution for d in point if d.name != name}


T = TypeVar("T")


def evenly(values: Sequence[T], count: int) -> list[T]:
    """At most so many of the values, as evenly as possible from the first to the last."""
    if len(values) <= count:
        return list(values)
    return [values[n * (len(values) - 1) // (count - 1)] for n in range(count)]
