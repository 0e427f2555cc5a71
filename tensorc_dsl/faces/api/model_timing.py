"""The calls of a model in sequence, each of which is timed: which groups take how long, and how near they are to the roof."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from tensorc_dsl.check.models import Call
from tensorc_dsl.faces.api.kernel import Kernel
from tensorc_dsl.faces.api.models import LoadedModel, Runtime
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.graph.graph import Array
from tensorc_dsl.tuning.machine.roof import Rates, Roof, roof_of


class ModelCalls:
    """The calls of a model with one kernel for each task, on fixed inputs. `tasks` has the task of each call, in order."""

    def __init__(self, model: LoadedModel, kernels: Mapping[str, Kernel], inputs: Mapping[str, Array]) -> None:
        """Raises ValueError for wrong inputs, and TschedError (E0933) if memory is missing."""
        self._inputs = model.checked_inputs(**inputs)
        self._runtime = Runtime(model.plan, kernels, model.weights, model.name)
        self.tasks = tuple(task for task in self._runtime.steps if task)

    def __call__(self) -> dict[str, Array]:
        """Run the model. Returns its outputs."""
        return self._runtime.run(self._inputs)

    def times(self) -> list[float]:
        """Run the model, and return the seconds of each call; copies of outputs are none."""
        (times,) = self._runtime.step_times(self._inputs)
        return [seconds for task, seconds in zip(self._runtime.steps, times, strict=True) if task]


# The profile of a model.


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """A task of a model, called so many times. `seconds` are of all these calls in a run; its `roof` is that of one call."""

    task: str
    calls: int
    seconds: float
    roof: Roof

    @property
    def of_roof(self) -> float | None:
        """The share of the roof; None if that is unknown."""
        return self.roof.share(self.seconds / self.calls) if self.seconds else None


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One call of one run, with when it began and how long it took, in seconds from the beginning of the run."""

    task: str
    results: tuple[str, ...]
    begin: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The times of a model's groups: medians of `runs` runs, of which `calls` has the median one, call by call.

    `seconds` is the median time of a run. `groups` are sorted by their time, the longest first.
    """

    model: str
    seconds: float
    runs: int
    groups: tuple[ModelGroup, ...]
    calls: tuple[TimedCall, ...]

    def trace(self) -> dict[str, Any]:
        """The median run in the format of Chrome's traces, which Perfetto shows: an event of the model, and in it one of each
        call, with times in microseconds.

        The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
        """
        roofs = {g.task: g.roof for g in self.groups}

        def event(name: str, begin: float, seconds: float, facts: dict[str, Any]) -> dict[str, Any]:
            place = {"ph": "X", "cat": "model", "pid": 1, "tid": 1}
            return place | {"name": name, "ts": 1e6 * begin, "dur": 1e6 * seconds, "args": facts}

        events = [event(self.model, 0.0, self.seconds, {"calls": len(self.calls)})]
        for c in self.calls:
            work = {"operations": roofs[c.task].operations, "bytes": roofs[c.task].bytes_}
            events.append(event(c.task, c.begin, c.seconds, {"results": ", ".join(c.results)} | work))
        about = {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": f"tensorc-dsl: {self.model}"}}
        return {"traceEvents": [about, *events], "displayTimeUnit": "ns"}


SECONDS, LEAST_RUNS, MOST_RUNS = 2.0, 3, 1000
"""How long a model is run for its profile, and how often at least and at most."""


def profile_model(model: LoadedModel, inputs: Mapping[str, Array] | None = None) -> ModelProfile:
    """How long each group of a model takes, in whole runs one after the other on this machine.

    `inputs` are by default random ones. Kernels have the schedules that they have in calls of the model. Raises ValueError
    for wrong inputs, and TschedError if a kernel cannot be made.
    """
    kernels = {name: model.kernel(name) for name in model.tasks}
    calls = ModelCalls(model, kernels, model.random_inputs() if inputs is None else inputs)
    calls()  # the first call of each kernel also takes memory
    found: list[list[float]] = []
    until = time.perf_counter() + SECONDS
    while len(found) < LEAST_RUNS or (len(found) < MOST_RUNS and time.perf_counter() < until):
        found.append(calls.times())
    found.sort(key=sum)
    middle = found[len(found) // 2]
    counts = Counter(calls.tasks)
    seconds = dict.fromkeys(counts, 0.0)
    for task, times in zip(calls.tasks, zip(*found, strict=True), strict=True):
        seconds[task] += median(times)
    roofs = roofs_of({name: model.tasks[name] for name in counts})
    groups = [ModelGroup(name, n, seconds[name], roofs[name]) for name, n in counts.items()]
    made = [step.results for step in model.plan.steps if isinstance(step, Call)]
    events = [
        TimedCall(task, results, begin, taken)
        for task, results, begin, taken in zip(calls.tasks, made, accumulate(middle, initial=0.0), middle, strict=False)
    ]
    groups.sort(key=lambda g: -g.seconds)
    return ModelProfile(model.name, sum(middle), len(found), tuple(groups), tuple(events))


def roofs_of(tasks: Mapping[str, Task]) -> dict[str, Roof]:
    """The roofs of tasks by their names. What the machine does at most is measured once for all."""
    rates = Rates()
    return {name: roof_of(t.program, t.target, t.threads, rates=rates) for name, t in tasks.items()}
