"""Kernels of a GPU for tests: drawn for an operator of the library, compiled, and run by the emulation."""

from __future__ import annotations

import os
from functools import cache

from tensorc_dsl.backend.cuda.codegen.ptx import device_module, ptx_of, version_of
from tensorc_dsl.backend.cuda.lower.kernels import Barrier, Device, DeviceKernel, DeviceProgram, Nested
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import target_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.api.kernel import lowered
from tensorc_dsl.faces.api.schedules import sample
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tests.examples import FIRST

DRAWS = int(os.environ.get("GPU_DRAWS", "1"))
"""The schedules of each compute: one in tests, more in a campaign (`make gpu DRAWS=20`)."""


@cache
def gpu_library() -> CheckedFile:
    """All operators and computes of images, the default space for GPUs, and targets."""
    text = "use std.ops\nuse std.image\nuse std.gpu.default.{default}\nuse std.gpu.targets.{sm_80, sm_90}\n"
    return load_source(Source("gpu.tsched", text))


def gpu_space(program: Program, target: str) -> Space:
    """The default space of an operator for a GPU."""
    found = gpu_library()
    return Space(found.spaces["default"], program.name, program, target_of(found.targets[target]), found.modules)


def drawn(space: Model, name: str, seed: int) -> Trace:
    """A schedule of a task, of which no rule was refused."""
    return whole(sample(space, name, FIRST + seed))


def whole(trace: Trace) -> Trace:
    """The trace, of which no rule was refused: those of the library ask before they step."""
    refused = [f"{x.rule} on {x.subject}: {x.refusal.message}" for x in trace.refused]
    assert not refused, refused
    return trace


def kernels_of(t: Task, trace: Trace) -> DeviceProgram:
    """The kernels of a schedule, as its emulation has them: all that a test asks of them is of one lowering, which takes as
    long as the schedule's expansion."""
    found = lowered(trace.program, t.target)
    assert isinstance(found, DeviceProgram)
    return found


def ptx(p: DeviceProgram, cpu: str) -> str:
    """The PTX of kernels."""
    return ptx_of(device_module(p), cpu, version_of(p))


def without_barrier(kernel: DeviceKernel, number: int) -> DeviceKernel:
    """The kernel without the barrier at that place in its text."""
    left = number

    def go(body: tuple[Device, ...]) -> tuple[Device, ...]:
        nonlocal left
        out: list[Device] = []
        for s in body:
            if isinstance(s, Barrier):
                left -= 1
                if left == -1:
                    continue
            out.append(replace(s, body=go(s.body)) if isinstance(s, Nested) else s)
        return tuple(out)

    return replace(kernel, body=go(kernel.body))
