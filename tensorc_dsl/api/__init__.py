"""The Python interface: files of tasks, tasks that can be tuned, kernels that can be called.

Printing and the command line are in `cli`; searching and running are in the layers below.
"""

from __future__ import annotations

from tensorc_dsl.api import pickled
from tensorc_dsl.api.failures import NoValidCandidate, WrongSchedule
from tensorc_dsl.api.files import TaskFile, load, loads
from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.api.tasks import Task
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.tune import TuneResult

__all__ = [
    "Kernel",
    "NoValidCandidate",
    "SearchOptions",
    "Task",
    "TaskFile",
    "TuneResult",
    "WrongSchedule",
    "load",
    "loads",
    "pickled",
]
