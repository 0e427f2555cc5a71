"""Pickles kernels as their schedules, and compiles them again when a pickle is loaded."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.api.known import Origin
from tensorc_dsl.api.making import loaded, require_machine
from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.ir.target import Target
from tensorc_dsl.trace.trace import Trace


def remade(
    task: str,
    trace: Trace,
    target: Target,
    triple: str,
    threads: int,
    seconds: float | None,
    origin: Origin | None,
) -> Kernel:
    """The kernel of a schedule that was made for a target by a machine with a triple.

    Raises TschedError (E0914) if this machine cannot run it.
    """
    require_machine(replace(target, triple=triple), task)
    return Kernel(loaded(trace.program, target, threads), task, target, trace, seconds, origin=origin)


def _reduced(kernel: Kernel) -> tuple[Callable[..., Kernel], tuple[Any, ...]]:
    triple = kernel.target.triple or require_backend(kernel.target.kind, kernel.task).processor().triple
    return remade, (kernel.task, kernel.trace, kernel.target, triple, kernel.threads, kernel.seconds, kernel.origin)


copyreg.pickle(Kernel, _reduced)
