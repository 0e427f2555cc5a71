"""Where tiles that are copied beside the threads are waited for: at mbarriers, which count the bytes that are to come.

A copy that its pipeline starts ahead has an mbarrier for each iteration under way. Every other one is waited for at once,
behind those that start with it. One thread sets all of them up as the kernel begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.kernels import (
    MOST_MBARRIERS,
    Barrier,
    Device,
    DeviceKernel,
    InitMbarriers,
    Mbarriers,
    TmaLoad,
    WaitMbarrier,
    tma_loads_in,
    tma_stores_in,
)
from tensorc_dsl.backend.cuda.lower.threads import with_values
from tensorc_dsl.backend.cuda.lower.tma import maps_of
from tensorc_dsl.ir.expr import Expr, Var, index
from tensorc_dsl.lower.flat import LowerError

MBARRIER_BYTES = 8
"""The size of an mbarrier, and its alignment."""


def in_place(body: Sequence[Device]) -> list[Device]:
    """The statements with waits for tiles behind all loads that follow each other: these are under way together."""
    out: list[Device] = []
    late: list[Device] = []
    for s in body:
        if isinstance(s, WaitMbarrier):
            late.append(s)
            continue
        if not isinstance(s, TmaLoad):
            out += late
            late.clear()
        out.append(s)
    return [*out, *late]


def load_of(body: Sequence[Device]) -> TmaLoad | None:
    """What a statement starts that copies tiles and does nothing else; None if it does something else."""
    found = [s for s in body if isinstance(s, TmaLoad)]
    if not found or not all(isinstance(s, TmaLoad | WaitMbarrier) for s in body):
        return None
    return TmaLoad(found[0].at, sum(s.size for s in found), tuple(x for s in found for x in s.body))


def unnumbered(buffer: str) -> str:
    """The variable that stands for the mbarrier of what is waited for at once, until all others have their numbers."""
    return f"{buffer}.mbarrier"


def with_mbarriers(k: DeviceKernel, awaited: Sequence[int]) -> DeviceKernel:
    """The kernel with memory for its mbarriers, which are set up first, and the maps of its tiles; those with
    numbers are `awaited`. Raises LowerError if there are too many."""
    loads = list(tma_loads_in(k.body))
    maps = maps_of([s.body for s in (*loads, *tma_stores_in(k.body))])
    if not loads:
        return replace(k, maps=maps)
    others = dict.fromkeys(s.at.name for s in loads if isinstance(s.at, Var))
    numbers: dict[str, Expr] = {name: index(len(awaited) + n) for n, name in enumerate(others)}
    every = (*awaited, *(0 for _ in numbers))
    count = len(every)
    if count > MOST_MBARRIERS:
        raise LowerError(
            f"a block needs {count} mbarriers, and {MOST_MBARRIERS} is the most; let copies run less far ahead"
        )
    return replace(
        k,
        body=(InitMbarriers(every), Barrier(), *with_values(k.body, numbers)),
        mbarriers=Mbarriers(count, k.shared_bytes),
        shared_bytes=k.shared_bytes + count * MBARRIER_BYTES,
        maps=maps,
    )
