"""Runs a kernel for another kind of machine on this one's CPU, and checks it: its result, and how its threads meet."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tensorc_dsl.backend.memory import strided_empty
from tensorc_dsl.backend.protocol import ORDERS, Counts, EmulatedKernel
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, bind, strides_of
from tensorc_dsl.lower.storage import callers_params
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.work import describe, flops, sizing
from tensorc_dsl.tuning.measure.check import poison
from tensorc_dsl.tuning.measure.child import Task

MOST_FLOPS = 2 * 10**9
"""The operations of a task up to which it is emulated: one order of threads takes a quarter of a minute then."""

SEED = 0
"""The seed of the inputs."""


@frozen
class Emulated:
    """What an emulation found: the largest error as a share of what is allowed, and what is wrong, "" if nothing is.

    `counts` says what each kernel costs at the sizes `counted_at`, the largest; none if something is wrong. It has no times:
    `cycles` are those of a model, where there is one.
    """

    max_error: float
    fault: str = ""
    counts: tuple[Counts, ...] = ()
    counted_at: Sizes = field(default_factory=dict[str, int])
    cycles: float | None = None
    compared: float = 1.0
    """The share of the results of which the reference is a number or an infinity within a bound."""

    def busiest(self, multiprocessors: int) -> int:
        """What the multiprocessor with the most blocks moves, kernel after kernel: sectors of global memory and passes over
        its shared memory, each of which takes it about a cycle."""
        return sum(
            -(-(c.moves(False) + c.moves(True)) * -(-c.blocks // multiprocessors) // c.blocks)
            for c in self.counts
            if c.blocks
        )


def too_large(program: Program) -> int | None:
    """The operations of an unscheduled program, if they are too many to be emulated."""
    count = sum(flops(bind(program, sizes)) for sizes in sizing(program).checked)
    return count if count > MOST_FLOPS else None


def emulate(program: Program, kernel: EmulatedKernel, *, extremes: bool = True) -> Emulated:
    """The kernel of an unscheduled program, run at all sizes at which kernels are checked, in each order of threads. It is
    run at `extremes`, too, unless its schedule says that inputs have none.
    """
    compared = 1.0
    worst, every, counts = 0.0, sizing(program).checked, tuple[Counts, ...]()
    largest = max(every, key=lambda sizes: flops(bind(program, sizes)))
    for sizes in every:
        task = Task.of(bind(program, sizes), SEED)
        compared = min(compared, task.compared)
        at_extremes = Task.at_extremes(task.program, SEED) if extremes and sizes is every[0] else None
        if at_extremes is not None:
            arrays = {p.name: _array(at_extremes, p.name) for p in callers_params(at_extremes.program)}
            fault = kernel.run(arrays, sizes, ORDERS[0]) or at_extremes.verdict(arrays).fault
            if fault:
                return Emulated(np.inf, f"where factors of the scan undo each other, and a term is infinite: {fault}")
        for order in ORDERS:
            arrays = {p.name: _array(task, p.name) for p in callers_params(task.program)}
            where = ", ".join(x for x in (describe(sizes), f"threads {order}") if x)
            if sizes is largest and order == ORDERS[0]:
                fault, counts = kernel.count(arrays, sizes)
            else:
                fault = kernel.run(arrays, sizes, order)
            if fault:
                return Emulated(np.inf, f"{fault}; {where}")
            verdict = task.verdict(arrays)
            worst = max(worst, verdict.max_error)
            if verdict.fault:
                return Emulated(worst, f"{verdict.fault}; {where}")
    return Emulated(worst, "", counts, largest, compared=compared)


def _array(task: Task, name: str) -> Array:
    """An argument: the values of an input, poison for an output."""
    p = task.program.buffer(name)
    out = strided_empty(shape_of(p), strides_of(p), stored_dtype(p.dtype))
    if name in task.inputs:
        out[...] = task.inputs[name]
    else:
        poison(out)
    return out
