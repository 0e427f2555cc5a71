"""The Python face: files of tasks, tasks that can be tuned, kernels that can be called."""

from __future__ import annotations

from tensorc_dsl.api.kernel import Kernel
from tensorc_dsl.api.tasks import NoValidCandidate, Task, TaskFile, load

__all__ = ["Kernel", "NoValidCandidate", "Task", "TaskFile", "load"]
