"""Expansions by order: the trace that a space gives for decisions and a random stream, made here or by another process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Decider, Model, Site, Trace, prior
from tensorc_dsl.tuning.records.trial import digest
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.loop_features import COLUMNS, loop_features

# Named random streams, so that the draws of one part of a search do not depend on those of another part.


def stream(seed: int, task: str, slot: str) -> np.random.Generator:
    """The generator for one purpose (`slot`) of one run: equal arguments give equal streams on every machine.

    Philox (Salmon et al., SC 2011) is counter-based: any 128-bit key is as good as another, so a digest can be the key.
    """
    key = hashlib.blake2b(f"{seed}\0{task}\0{slot}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


# Moves a schedule to another task, with the nearest tile where one does not fit (Gibson & Cano, PACT 2022).


NEAR = 64
"""Tiles that are drawn to find one near another task's."""

ALIKE = 0.5
"""The share of the draws that a schedule must have in common with a trace to be worth a move: those that both have, of those
that either has."""


def with_shared_draws(bests: Sequence[Mapping[str, Decision]], traces: Sequence[Trace]) -> list[Mapping[str, Decision]]:
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


KEPT = 1024
"""Programs whose loop features are kept."""


class SpaceLike(Protocol):
    """A distribution over traces; `interp.space.Space` is one. Both methods raise ScheduleRefusal if a step is refused."""

    def sample(self, rng: np.random.Generator) -> Trace:
        """A draw from the prior."""
        ...

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        """The trace with these decisions; those that are missing or do not fit are drawn from `rng`."""
        ...


@frozen
class Order:
    """An expansion to make: a draw from the prior, or the trace with these decisions. The random stream has a name.

    Decisions that are `moved` come from another task; a tile that does not fit is replaced with the nearest one that does.
    """

    seed: int
    task: str
    slot: str
    decisions: Mapping[str, Decision] | None
    moved: bool = False


Expander = Callable[[Sequence[Order]], list[Trace | None]]
"""Makes the expansions, in their order; None for one that a refused step ended. The traces depend on the orders alone."""


FromText = Callable[[str, Mapping[str, Decision]], Trace]
"""Makes the trace of a schedule from its text; open draws have these decisions, or tiles near them where they do not fit.
Raises TschedError or ScheduleRefusal for one that does not apply."""


def made(space: SpaceLike, order: Order) -> Trace | None:
    """The trace of the order; None if a step is refused."""
    rng = stream(order.seed, order.task, order.slot)
    try:
        if order.decisions is None:
            return space.sample(rng)
        if order.moved and isinstance(space, Model):
            return space.expand(nearest(order.decisions, rng))
        return space.replay(order.decisions, rng)
    except ScheduleRefusal:
        return None


def here(space: SpaceLike) -> Expander:
    """An expander in this process."""
    return lambda orders: [made(space, order) for order in orders]


def described(program: Program, sizes: Sizes, target: Target) -> Array:
    """The numbers of a scheduled program at these sizes, computed at the first request."""
    known = _known(program)
    key = (tuple(sorted(sizes.items())), target)
    if key not in known:
        known[key] = _numbers(program, sizes, target)
    return known[key]


def columns_of(target: Target) -> tuple[str, ...]:
    """The names of these numbers: those of lowered kernels where the backend has some, else those of scheduled programs."""
    return lowering_for(target).columns or COLUMNS


def is_told(target: Target) -> bool:
    """Whether the first of these numbers is the logarithm to base 2 of a model's cycles."""
    return columns_of(target)[0] == "time"


def meaning_of(target: Target) -> str:
    """Tells these numbers from those of other versions and other kinds of targets; the number in it counts changes in what a
    name stands for."""
    return digest(f"2 {columns_of(target)}")


def _numbers(program: Program, sizes: Sizes, target: Target) -> Array:
    backend = lowering_for(target)
    if not backend.columns:
        return loop_features(bind(program, sizes), target)
    try:
        return np.array(backend.features(lowered_once(program, target).kernel, target, sizes))
    except LowerError:
        return np.zeros(len(backend.columns))  # its measurement reports why


def remember(program: Program, sizes: Sizes, target: Target, loops: Array) -> None:
    """The numbers of the program's loops are known from another process."""
    _known(program)[(tuple(sorted(sizes.items())), target)] = loops


@by_identity(KEPT)
def _known(_program: Program) -> dict[tuple[tuple[tuple[str, int], ...], Target], Array]:
    return {}
