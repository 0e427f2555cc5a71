"""The messages between a search and the processes of its team.

Both run this program and no kernel, so they unpack what the other one packed.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import msgspec

from tensorc_dsl.backend.once import Lowered, lowered_once
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.processes.messages import Bug, Exhausted, Ready
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.tuning.search.expansion import Order, described, made
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.space import modelled


@dataclass(frozen=True, slots=True)
class Ground:
    """What a search expands: a model, and the target and sizes that its programs are lowered and described for."""

    model: Model
    target: Target
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Expanded:
    """A trace, with its lowered program (None if it cannot be lowered), the numbers of its loops, and its cycles by a model
    (None where there is no model)."""

    trace: Trace
    lowered: Lowered | None
    loops: Array
    cycles: float | None


def expanded(ground: Ground, order: Order) -> Expanded | None:
    """What the order gives on the ground; None if a step is refused."""
    trace = made(ground.model, order)
    if trace is None:
        return None
    try:
        lowered = lowered_once(trace.program, ground.target)
    except LowerError:
        lowered = None
    about = (trace.program, ground.sizes, ground.target)
    return Expanded(trace, lowered, described(*about), modelled(*about))


class Learn(msgspec.Struct, tag=True, frozen=True):
    """The ground of that number, packed."""

    number: int
    ground: bytes


class Expand(msgspec.Struct, tag=True, frozen=True):
    """An order on the ground of that number, packed."""

    number: int
    order: bytes


Errand = Learn | Expand


class Learnt(msgspec.Struct, tag=True, frozen=True):
    """The ground is known."""


class Done(msgspec.Struct, tag=True, frozen=True):
    """What the order gave, packed; None if it cannot be packed, as that of a very deep program."""

    expanded: bytes | None


Answer = Ready | Learnt | Done | Exhausted | Bug

errands = msgspec.msgpack.Decoder(Errand)
answers = msgspec.msgpack.Decoder(Answer)


def ground_of(data: bytes) -> Ground:
    """The ground that was packed."""
    found = pickle.loads(data)
    assert isinstance(found, Ground)
    return found


def order_of(data: bytes) -> Order:
    """The order that was packed."""
    found = pickle.loads(data)
    assert isinstance(found, Order)
    return found


def expanded_of(data: bytes) -> Expanded | None:
    """What was packed; None for a refusal."""
    found = pickle.loads(data)
    assert found is None or isinstance(found, Expanded)
    return found


def packed(value: Ground | Order | Expanded | None) -> bytes | None:
    """The value as bytes; None if it is too deep for that."""
    try:
        return pickle.dumps(value, 5)
    except RecursionError:
        return None
