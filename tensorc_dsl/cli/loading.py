"""Loads a file of tasks with the settings of the whole call."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.options import settings
from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.report.terminal import show

if TYPE_CHECKING:
    from tensorc_dsl.api import Task, TaskFile


@problem("E0925", "`{file}` has no task", help="add one: `task small = f(M=64, N=64)`, for a compute `f`")
def NO_TASK(*, file: str) -> None: ...


@problem("E0925", "`{file}` has {count} tasks, and the command names none", help="name one: {names}")
def WHICH_TASK(*, file: str, count: int, names: str) -> None: ...


SUFFIX = ".tsched"

HELP = "help"
"""The CPU name that lists all CPUs."""


def load(file: str, threads: int | None = None, target: str | None = None, mcpu: str | None = None) -> TaskFile:
    """As `tensorc_dsl.load`, with the folders of `-I`."""
    from tensorc_dsl import api

    include = settings(click.get_current_context()).include
    cpu = None if mcpu == HELP else mcpu
    return api.load(file, threads=threads, target=target, mcpu=cpu, include=include)


def load_task(
    file: str, task: str | None, threads: int | None = None, target: str | None = None, mcpu: str | None = None
) -> Task:
    """The task, on the machine that the options describe; without a name the only one of the file.

    Raises TschedError (E0905, E0925) if there is no such task or a name is needed. With `--mcpu help`, the command ends with
    the list of CPUs.
    """
    tasks = load(file, threads, target, mcpu)
    return chosen(tasks, task or only(tasks, file), mcpu)


def chosen(tasks: TaskFile, name: str, mcpu: str | None) -> Task:
    """The task of that name. With `--mcpu help`, the command ends with the list of CPUs."""
    found = tasks[name]
    if mcpu == HELP:
        show(found.backend.describe_processors(found.target))
        click.get_current_context().exit()
    return found


def only(tasks: Collection[str], file: str) -> str:
    """The name of a file's only task. Raises TschedError (E0925) if it has none or several."""
    names = list(tasks)
    match names:
        case [name]:
            return name
        case []:
            raise TschedError(NO_TASK(None, file=file))
        case _:
            listed = ", ".join(f"`{n}`" for n in names)
            raise TschedError(WHICH_TASK(None, file=file, count=len(names), names=listed))


def task_and_trace(tasks: Collection[str], file: str, words: tuple[str, ...]) -> tuple[str, str | None]:
    """The names in `[TASK] [TRACE]`. A single word is a task, or the file of a schedule for the only task.

    Raises TschedError (E0925) if a name is needed, and UsageError for more than two words.
    """
    match words:
        case ():
            return only(tasks, file), None
        case (word,):
            is_file = word == "-" or word.endswith(SUFFIX) or os.path.exists(word)
            return (only(tasks, file), word) if word not in tasks and is_file else (word, None)
        case (task, trace):
            return task, trace
        case _:
            raise click.UsageError(f"Got unexpected extra argument ({words[2]})")
