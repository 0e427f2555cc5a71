"""The least time that this machine allows: what it computes at its peak, or moves at its bandwidth, whichever is longer.

Williams, Waterman and Patterson, Roofline (2009).
"""

from __future__ import annotations

from tensorc_dsl import Task
from tensorc_dsl.ir.count import bytes_moved
from tensorc_dsl.ir.target import Target
from tensorc_dsl.runtime.bandwidth import bandwidth
from tensorc_dsl.runtime.peak import DOT_BF16, DOT_U8I8, FMA, Instruction, peak

_ATTEMPTS = 3
"""Measurements of a peak for each task: in one, both threads may have shared a core."""


class Roof:
    """The roof over the tasks of one run on `threads` threads.

    The peak is that of the best instruction for the types of the inputs. It only rises: what else the machine does can hide
    it, so it is measured again with each task. Bandwidth is that of memory as large as the task's arrays together, each
    of which is read or written once at the least.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._peaks: dict[Instruction, float] = {}

    def seconds(self, task: Task) -> float:
        """The least time of one call."""
        best = _instruction({b.dtype.name for b in task.program.inputs}, task.target)
        found = [peak(best, task.target, self._threads) for _ in range(_ATTEMPTS)]
        self._peaks[best] = max(self._peaks.get(best, 0.0), *found)
        size = bytes_moved(task.program)
        return max(task.flops / self._peaks[best], size / bandwidth(task.target, self._threads, size))


def _instruction(types: set[str], target: Target) -> Instruction:
    """What multiplies and adds most values of these types at once."""
    if types == {"u8", "i8"} and "avx512vnni" in target.feature_names:
        return DOT_U8I8
    if types == {"bf16"} and "avx512bf16" in target.feature_names:
        return DOT_BF16
    return FMA
