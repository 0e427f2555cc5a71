"""Compares a kernel called with all its inputs with the same kernel bound to its constant inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.tuning.measure.check import poison


def run_both(kernel: NativeKernel, arrays: Mapping[str, Array]) -> str:
    """Fill the outputs among the arrays, by name, by a call with everything; then, with constant inputs, by two calls
    of the kernel bound to copies of them that change after that. Returns the difference as text; "" if there is none."""
    kernel(*(arrays[p.name] for p in kernel.params))
    if not kernel.constants:
        return ""
    first = {p.name: arrays[p.name].copy() for p in kernel.outputs}
    copies = {p.name: arrays[p.name].copy() for p in kernel.constants}
    bound = kernel.bind(**copies)
    for a in copies.values():
        poison(a)
    for _ in range(2):
        for name in first:
            poison(arrays[name])
        bound(*(arrays[p.name] for p in kernel.params if p.name not in copies))
        for name, a in first.items():
            if arrays[name].tobytes() != a.tobytes():
                different = np.count_nonzero(arrays[name] != a)
                return f"{name}: {different} elements differ when {', '.join(copies)} are bound"
    return ""
