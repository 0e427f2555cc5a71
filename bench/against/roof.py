"""The least time that this machine allows: what it computes at its peak, or moves at its bandwidth, whichever is longer.

Williams, Waterman and Patterson, Roofline (2009).
"""

from __future__ import annotations

from tensorc_dsl import Task
from tensorc_dsl.ir.count import bytes_moved
from tensorc_dsl.runtime.bandwidth import bandwidth
from tensorc_dsl.runtime.peak import fma_peak


class Roof:
    """The roof over the tasks of one run on `threads` threads.

    The peak only rises: what else the machine does can hide it, so it is measured again with each task. Bandwidth is that
    of memory as large as the task's arrays together, each of which is read or written once at the least.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._peak = 0.0

    def seconds(self, task: Task) -> float:
        """The least time of one call."""
        self._peak = max(self._peak, fma_peak(task.target, self._threads))
        size = bytes_moved(task.program)
        return max(task.flops / self._peak, size / bandwidth(task.target, self._threads, size))
