"""A process of a team: it expands candidates of the spaces that it learnt, lowers them and describes their loops."""

from __future__ import annotations

import gc

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.measure.child import serve
from tensorc_dsl.search.errands import (
    Answer,
    Done,
    Errand,
    Expand,
    Expanded,
    Ground,
    Learn,
    Learnt,
    errands,
    ground_of,
    order_of,
    packed,
)
from tensorc_dsl.search.expansion import Order, described, made

_GROUNDS: dict[int, Ground] = {}


def answer(errand: Errand) -> Answer:
    """What the errand gives."""
    match errand:
        case Learn(number=number, ground=ground):
            _GROUNDS[number] = ground_of(ground)
            return Learnt()
        case Expand(number=number, order=order):
            return Done(packed(expanded(_GROUNDS[number], order_of(order))))


def expanded(ground: Ground, order: Order) -> Expanded | None:
    """What the order gives on the ground; None if a step is refused."""
    trace = made(ground.model, order)
    if trace is None:
        return None
    try:
        lowered = lowered_once(trace.program, ground.target)
    except LowerError:
        lowered = None
    return Expanded(trace, lowered, described(trace.program, ground.sizes, ground.target))


if __name__ == "__main__":
    gc.set_threshold(100_000, 20, 20)  # expansions make many objects and few cycles
    serve(errands, answer)
