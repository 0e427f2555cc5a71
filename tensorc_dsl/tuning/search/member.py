"""A process of a team: it expands candidates of the spaces that it learnt, lowers them and describes their loops."""

from __future__ import annotations

import gc

from tensorc_dsl.processes.child import serve
from tensorc_dsl.tuning.search.worker_messages import (
    Answer,
    Done,
    Errand,
    Expand,
    Ground,
    Learn,
    Learnt,
    errands,
    expanded,
    ground_of,
    order_of,
    packed,
)

_GROUNDS: dict[int, Ground] = {}


def answer(errand: Errand) -> Answer:
    """What the errand gives."""
    match errand:
        case Learn(number=number, ground=ground):
            _GROUNDS[number] = ground_of(ground)
            return Learnt()
        case Expand(number=number, order=order):
            return Done(packed(expanded(_GROUNDS[number], order_of(order))))


if __name__ == "__main__":
    gc.set_threshold(100_000, 20, 20)  # expansions make many objects and few cycles
    serve(errands, answer)
