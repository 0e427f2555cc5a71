"""Runs the kernels of a program that has loops bound to the axes of a GPU, in the emulation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.backend.protocol import ORDERS
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.tuning.measure.check import poison


def is_bound(program: Program) -> bool:
    """Whether a loop counts blocks or threads."""
    return any(isinstance(s, For) and s.axis for _, s in walk(program.body))


def emulated(p: DeviceProgram, program: Program, inputs: Mapping[str, Array]) -> tuple[str, list[dict[str, Array]]]:
    """The first fault, or "", and the outputs for each order of threads."""
    kernels = emulation(p)
    found: list[dict[str, Array]] = []
    for order in ORDERS:
        arrays = {n: aligned_copy(np.ascontiguousarray(a)) for n, a in inputs.items()}
        for b in program.outputs:
            arrays[b.name] = aligned_empty(shape_of(b), stored_dtype(b.dtype))
            poison(arrays[b.name])
        if fault := kernels.run(arrays, {}, order):
            return f"{fault}; {order}", found
        found.append({b.name: widen(arrays[b.name], b.dtype) for b in program.outputs})
    return "", found
