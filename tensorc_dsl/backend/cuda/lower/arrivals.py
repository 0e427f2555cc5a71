"""Where boxes that are copied beside the threads are waited for: at arrivals, which count the bytes that are to come.

A copy that its pipeline starts ahead has an arrival for each iteration under way. Every other one is waited for at once,
behind those that start with it. One thread sets all of them up as the kernel begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.boxes import maps_of
from tensorc_dsl.backend.cuda.lower.kernels import (
    MOST_ARRIVALS,
    Arm,
    Arrivals,
    Arrived,
    Barrier,
    Device,
    DeviceKernel,
    Fetch,
    fetches_in,
)
from tensorc_dsl.backend.cuda.lower.threads import with_values
from tensorc_dsl.ir.expr import Expr, Var, index
from tensorc_dsl.lower.flat import LowerError

ARRIVAL_BYTES = 8
"""The size of an arrival, and its alignment."""


def in_place(body: Sequence[Device]) -> list[Device]:
    """The statements with waits for boxes behind all fetches that follow each other: these are under way together."""
    out: list[Device] = []
    late: list[Device] = []
    for s in body:
        if isinstance(s, Arrived):
            late.append(s)
            continue
        if not isinstance(s, Fetch):
            out += late
            late.clear()
        out.append(s)
    return [*out, *late]


def boxes_of(body: Sequence[Device]) -> Fetch | None:
    """What a statement starts that copies boxes and does nothing else; None if it does something else."""
    found = [s for s in body if isinstance(s, Fetch)]
    if not found or not all(isinstance(s, Fetch | Arrived) for s in body):
        return None
    return Fetch(found[0].at, sum(s.size for s in found), tuple(x for s in found for x in s.body))


def unnumbered(buffer: str) -> str:
    """The variable that stands for the arrival of what is waited for at once, until all others have their numbers."""
    return f"{buffer}.arrival"


def with_arrivals(k: DeviceKernel, awaited: Sequence[int]) -> DeviceKernel:
    """The kernel with memory for its arrivals, which are set up first, and the maps of its boxes; those with
    numbers are `awaited`. Raises LowerError if there are too many."""
    fetches = list(fetches_in(k.body))
    if not fetches:
        return k
    others = dict.fromkeys(s.at.name for s in fetches if isinstance(s.at, Var))
    numbers: dict[str, Expr] = {name: index(len(awaited) + n) for n, name in enumerate(others)}
    every = (*awaited, *(0 for _ in numbers))
    count = len(every)
    if count > MOST_ARRIVALS:
        raise LowerError(
            f"a block waits for boxes at {count} places, and {MOST_ARRIVALS} is the most; let copies run less far ahead"
        )
    return replace(
        k,
        body=(Arm(every), Barrier(), *with_values(k.body, numbers)),
        arrivals=Arrivals(count, k.shared_bytes),
        shared_bytes=k.shared_bytes + count * ARRIVAL_BYTES,
        maps=maps_of([s.body for s in fetches]),
    )
