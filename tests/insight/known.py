"""Trials of the made-up spaces of the search's tests, as records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorc_dsl.records.keys import program_key
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.space import SpaceLike
from tensorc_dsl.trace.trace import Trace


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
