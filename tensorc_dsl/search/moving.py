"""Moves a schedule to another task, with the nearest tile where one does not fit (Gibson & Cano, PACT 2022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.model import Decider, Site, prior
from tensorc_dsl.trace.trace import Trace

NEAR = 64
"""Tiles that are drawn to find one near another task's."""

ALIKE = 0.5
"""The share of the draws that a schedule must have in common with a trace to be worth a move: those that both have, of those
that either has."""


def alike(bests: Sequence[Mapping[str, Decision]], traces: Sequence[Trace]) -> list[Mapping[str, Decision]]:
    """Of the schedules of other tasks, those that share enough draws with one of the traces, which share most first."""
    draws = [t.decisions.keys() for t in traces]
    shares = [max((len(d & b.keys()) / len(d | b.keys()) for d in draws if d or b), default=0.0) for b in bests]
    order = sorted(range(len(bests)), key=lambda n: -shares[n])
    return [bests[n] for n in order if shares[n] >= ALIKE]


def nearest(decisions: Mapping[str, Decision], rng: np.random.Generator) -> Decider:
    """A decider that takes these decisions where they are legal, a tile near theirs where they are none, else a draw."""
    otherwise = prior(rng)

    def decide(site: Site) -> Decision | None:
        wanted = decisions.get(site.name)
        if site.hidden or wanted is None:
            return otherwise(site)
        if site.distribution.contains(wanted):
            return wanted
        return _tile_near(site, wanted, otherwise)

    return decide


def _tile_near(site: Site, wanted: Decision, otherwise: Callable[[Site], Decision | None]) -> Decision | None:
    tile = site.distribution
    first = otherwise(site)
    if tile.meaning()[0] != "tile" or not isinstance(wanted, tuple):
        return first
    if not isinstance(first, tuple) or len(wanted) != len(first) or not all(0 < f < 1 << 62 for f in wanted):
        return first
    place = np.array(tile.features(wanted))
    drawn = [d for d in (first, *(otherwise(site) for _ in range(NEAR - 1))) if d is not None]
    return min(drawn, key=lambda d: float(np.abs(np.array(tile.features(d)) - place).sum()))
