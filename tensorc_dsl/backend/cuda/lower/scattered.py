"""Runs the only iteration of a scattered loop of one thread that changes anything.

Barriers are in place by then: what they order is what the whole loop may access.
"""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD, Device, DeviceKernel, Nested, Phase, Role, Steps
from tensorc_dsl.lower.boxes import Ranges, span
from tensorc_dsl.lower.scatter import scatter


def with_scattered(k: DeviceKernel) -> DeviceKernel:
    """The kernel with each scattered loop as the iteration that data choose, if they choose one."""
    ranges: Ranges = {THREAD: (0, k.threads - 1)} | {name: span(n) for name, n in zip(BLOCK_AXES, k.grid, strict=True)}
    return replace(k, body=_device(k.body, ranges))


def _device(body: tuple[Device, ...], ranges: Ranges) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner):
                out.append(replace(s, body=scatter(inner, ranges)))
            case Steps(var=var, end=end, body=inner):
                out.append(replace(s, body=_device(inner, {**ranges, var: span(end)})))
            case Role(first=first, threads=threads, body=inner):
                out.append(replace(s, body=_device(inner, {**ranges, THREAD: (first, first + threads - 1)})))
            case _:
                out.append(replace(s, body=_device(s.body, ranges)) if isinstance(s, Nested) else s)
    return tuple(out)
