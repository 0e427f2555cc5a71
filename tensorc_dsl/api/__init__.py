"""The Python face: files of tasks, tasks that can be tuned, kernels that can be called."""

from __future__ import annotations

from tensorc_dsl.api import pickled
from tensorc_dsl.api.failures import NoValidCandidate, WrongSchedule
from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.api.tasks import Task, TaskFile, load, loads
from tensorc_dsl.search.tune import TuneResult

__all__ = ["Kernel", "NoValidCandidate", "Task", "TaskFile", "TuneResult", "WrongSchedule", "load", "loads", "pickled"]
