"""What data choose of the loops of one thread: the iteration of a scattered one, the bounds of others.

Barriers are in place by then: what they order is what the whole loop may access.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.backend.cuda.lower.bodies import joined
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Device,
    DeviceKernel,
    Nested,
    Phase,
    Role,
    Steps,
    launch_ranges,
)
from tensorc_dsl.lower.flat import Flat
from tensorc_dsl.lower.narrow import narrow
from tensorc_dsl.lower.plans import Known
from tensorc_dsl.lower.ranges import span
from tensorc_dsl.lower.scatter import scatter

Change = Callable[[tuple[Flat, ...], Ranges], tuple[Flat, ...]]


def with_scattered(k: DeviceKernel) -> DeviceKernel:
    """The kernel with each scattered loop as the iteration that data choose, if they choose one."""
    return replace(k, body=_device(k.body, launch_ranges(k), scatter))


def with_bounds(k: DeviceKernel, known: Known) -> DeviceKernel:
    """The kernel with loops of a thread that begin and end where the conditions of their work do.

    Bounds may differ between threads. Those of a loop in which a warp meets do not, and no barrier is in a loop of a thread.
    """
    mine = replace(known, together=frozenset((THREAD,)), private=frozenset(b.name for b in k.local))
    return replace(k, body=_device(joined(k.body), launch_ranges(k), lambda body, ranges: narrow(body, mine, ranges)))


def _device(body: tuple[Device, ...], ranges: Ranges, change: Change) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner):
                out.append(replace(s, body=change(inner, ranges)))
            case Steps(var=var, end=end, body=inner):
                out.append(replace(s, body=_device(inner, {**ranges, var: span(end)}, change)))
            case Role(first=first, threads=threads, body=inner):
                mine: Ranges = {**ranges, THREAD: (first, first + threads - 1)}
                out.append(replace(s, body=_device(inner, mine, change)))
            case _:
                out.append(replace(s, body=_device(s.body, ranges, change)) if isinstance(s, Nested) else s)
    return tuple(out)
