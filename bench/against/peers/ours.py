"""tensorc-dsl through its Python interface: the best recorded schedule, or a search."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import tensorc_dsl
from bench.against.problem import Job, Outputs, Ready, several


def prepare(job: Job) -> Ready:
    return ready(tensorc_dsl.load(job.problem.file, threads=job.threads)[job.problem.task], job, job.records)


def ready(task: tensorc_dsl.Task, job: Job, records: Path) -> Ready:
    """A call of the task's best kernel in these records, or of the one that a search finds."""
    kernel, note, searched, tried = _recorded(task, records), "recorded", None, ()
    if kernel is None:
        begun = time.perf_counter()
        kernel, note = task.tune(trials=job.trials, seed=job.seed, records=records), f"{job.trials} trials"
        searched = time.perf_counter() - begun
        tried = () if kernel.search is None else tuple(o.seconds for o in kernel.search.outcomes)
    bound = kernel.bind(**{name: job.inputs[name] for name in kernel.constants})
    inputs = tuple(a for name, a in job.inputs.items() if name not in kernel.constants)
    found: Outputs = bound(*inputs)
    outputs = several(found)
    return Ready(lambda: bound(*inputs, *outputs), lambda: found, note, searched, tried)


def _recorded(task: tensorc_dsl.Task, records: Path) -> tensorc_dsl.Kernel | None:
    # A schedule of an older version may not fit any more; it is ignored.
    with suppress(tensorc_dsl.TschedError):
        found = task.recorded(records)
        return None if found is None else task.replay(found)
    return None
