"""Kernels in pickles: as their schedules, of which they are made again where a pickle is loaded."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.api.making import compiled
from tensorc_dsl.api.tasks import require_machine
from tensorc_dsl.codegen.llvm.machine import native_triple
from tensorc_dsl.ir.target import Target
from tensorc_dsl.trace.trace import Trace


def remade(task: str, trace: Trace, target: Target, triple: str, threads: int, seconds: float | None) -> Kernel:
    """The kernel of a schedule, as it was made for a target by a machine of a triple.

    Raises TschedError (E0914) where this machine cannot run it.
    """
    require_machine(replace(target, triple=triple), task)
    return Kernel(compiled(trace.program, target, threads), task, trace, seconds)


def _reduced(kernel: Kernel) -> tuple[Callable[..., Kernel], tuple[Any, ...]]:
    triple = kernel.target.triple or native_triple()
    return remade, (kernel.task, kernel.trace, kernel.target, triple, kernel.threads, kernel.seconds)


copyreg.pickle(Kernel, _reduced)
