"""Trials of made-up spaces and of tasks, as records, with made-up times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorc_dsl.faces.api import Task
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search.expansion import SpaceLike


def trials_of(space: SpaceLike, seconds: Callable[[Trace], float | None], count: int, seed: int = 0) -> list[Trial]:
    """So many draws from the prior, with their times; a program without one crashed."""
    rng = np.random.default_rng(seed)
    out: list[Trial] = []
    while len(out) < count:
        try:
            trace = space.sample(rng)
        except ScheduleRefusal:
            continue
        out.append(trial_of(trace, seconds(trace), len(out)))
    return out


def trial_of(trace: Trace, seconds: float | None, number: int) -> Trial:
    return Trial(
        task_key="task", target_key="target", task="p", strategy="random", seed=0, trial=number,
        status="crash" if seconds is None else "ok", decisions=trace.decisions, trace=trace.text,
        program_key=program_key(trace.program), seconds=seconds,
    )  # fmt: skip


def recorded_of(task: Task, seconds: Callable[[dict[str, Any]], float | None], count: int) -> list[Trial]:
    """So many schedules of a task as records, with times by their decisions. Programs that come twice count as two."""
    rng = np.random.default_rng(0)
    keys = program_key(task.program), target_key(task.target, task.threads)
    out: list[Trial] = []
    for number in range(count):
        trace = task.model.sample(rng)
        time = seconds(dict(trace.decisions))
        out.append(
            Trial(
                *keys, task.name, "random", 0, number, "crash" if time is None else "ok", trace.decisions, trace.text,
                f"{number}", time, () if time is None else (time, time), "" if time is not None else "it crashed",
                created=1.7e9 + number, version="0.1.0", run="a" * 32,
            )
        )  # fmt: skip
    return out
