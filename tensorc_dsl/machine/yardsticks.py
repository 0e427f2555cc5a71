"""What a kernel's time is held against: the machine's peak, and NumPy where it does the same in one call."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.ir.bind import bind
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.baseline import contraction, numpy_seconds
from tensorc_dsl.reference.open_sizes import sizing

PATIENCE = 2.0
"""Seconds that a quiet moment is waited for. One measurement takes some 50 ms."""

CREDIBLE = 0.75
"""Threads that have a core each reach about their number times what one does; below this share of it something else ran."""


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """`peak` in FLOP/s; `numpy_seconds` per call, None where NumPy has no one call for it."""

    peak: float
    numpy_seconds: float | None

    def better(self, other: Yardsticks) -> Yardsticks:
        """The higher peak and the shorter time: whatever else ran on the machine can only have hidden them."""
        times = [t for t in (self.numpy_seconds, other.numpy_seconds) if t is not None]
        return Yardsticks(max(self.peak, other.peak), min(times, default=None))


def measure_yardsticks(program: Program, target: Target, threads: int) -> Yardsticks:
    """Both as they are now, on that many threads; NumPy at the sizes, and with the weights, of a kernel's time."""
    return Yardsticks(peak_of(program, target, threads), _numpy(program, threads))


def _numpy(program: Program, threads: int) -> float | None:
    found, total = sizing(program), 0.0
    for sizes, weight in zip(found.timed, found.weights, strict=True):
        what = contraction(bind(program, sizes))
        seconds = None if what is None else numpy_seconds(what, threads)
        if seconds is None:
            return None
        total += weight * seconds
    return total


def peak_of(program: Program, target: Target, threads: int) -> float:
    """FLOP/s of fused multiply-adds in registers, in vectors of the widest floats among the program's results.

    On a machine with other work some runs never have all their threads at once; then it is measured again, for a while.
    """
    widest = max((p.dtype.bytes for p in program.outputs if p.dtype.is_float), default=4)
    until = time.monotonic() + PATIENCE
    fma_peak = require_backend(target.kind, program.name).peak
    peak = fma_peak(target, threads)
    wanted = CREDIBLE * threads * fma_peak(target, 1) if threads > 1 else 0.0
    while peak < wanted and time.monotonic() < until:
        time.sleep(0.02)
        peak = max(peak, fma_peak(target, threads))
    return peak * 4 / max(widest, 4)
