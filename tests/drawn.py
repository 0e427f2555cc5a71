"""Tasks of a text and their draws, which several tests of a file look at: each is made once in a process."""

from __future__ import annotations

from functools import lru_cache

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.api.tasks import Task, TaskFile
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import stream


@lru_cache(maxsize=8)
def _checked(file: str, text: str) -> CheckedFile:
    return load_source(Source(file, text))


@lru_cache(maxsize=256)
def task_of(file: str, text: str, name: str, target: Target) -> Task:
    """The task of that name in a text."""
    return TaskFile(_checked(file, text), target)[name]


@lru_cache(maxsize=128)
def draw(t: Task, number: int) -> Trace:
    """A schedule of the task's space, which is a function of its name and a number."""
    return t.space.sample(stream(number, t.name, "test"))


def drawn(t: Task, count: int) -> list[Trace]:
    """The first draws."""
    return [draw(t, n) for n in range(count)]
