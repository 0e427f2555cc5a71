"""Expansions by order: the trace that a space gives for decisions and a random stream, made here or by another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tensorc_dsl.ir.bind import Sizes, bind
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.loop_features import loop_features
from tensorc_dsl.search.moving import nearest
from tensorc_dsl.search.streams import stream
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.model import Model
from tensorc_dsl.trace.trace import Trace

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


@dataclass(frozen=True, slots=True)
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
    """The numbers of a scheduled program's loops at these sizes, computed at the first request."""
    known = _known(program)
    key = (tuple(sorted(sizes.items())), target)
    if key not in known:
        known[key] = loop_features(bind(program, sizes), target)
    return known[key]


def remember(program: Program, sizes: Sizes, target: Target, loops: Array) -> None:
    """The numbers of the program's loops are known from another process."""
    _known(program)[(tuple(sorted(sizes.items())), target)] = loops


@by_identity(KEPT)
def _known(_program: Program) -> dict[tuple[tuple[tuple[str, int], ...], Target], Array]:
    return {}
