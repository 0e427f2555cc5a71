"""Loads a file of tasks with the settings of the whole call, and tells the findings of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, assert_never, get_args

import click

from tensorc_dsl.base.diagnostic import Severity, TschedError, problem
from tensorc_dsl.faces.cli.options import settings
from tensorc_dsl.faces.report.terminal import say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import Task, TaskFile
    from tensorc_dsl.faces.report.findings import Finding


# Loads a file of tasks with the settings of the whole call.


@problem("E0925", "`{file}` has no task", help="add one: `task small = f(M=64, N=64)`, for a compute `f`")
def NO_TASK(*, file: str) -> None: ...


@problem("E0925", "`{file}` has {count} tasks, and the command names none", help="name one: {names}")
def WHICH_TASK(*, file: str, count: int, names: str) -> None: ...


SUFFIX = ".tsched"

HELP = "help"
"""The CPU name that lists all CPUs."""


def load(file: str, threads: int | None = None, target: str | None = None, mcpu: str | None = None) -> TaskFile:
    """As `tensorc_dsl.load`, with the folders of `-I`."""
    from tensorc_dsl.faces import api

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


# Tells the findings of a run: as text, or in a format for other programs (`--output-format`).


F = TypeVar("F", bound=Callable[..., Any])
Format = Literal["text", "json", "sarif", "github"]


def format_option(function: F) -> F:
    """`--output-format`."""
    return click.option(
        "--output-format", "output", type=click.Choice(get_args(Format)), default="text", show_default=True,
        help="How to tell the findings; all but `text` do so on standard output.",
    )(function)  # fmt: skip


def sources(name: str) -> tuple[str, ...]:
    """The file itself, or the files in a folder. Raises TschedError (E0901) for a folder without any."""
    from tensorc_dsl.faces.report.files import sources_below

    return tuple(map(str, sources_below(Path(name)))) if Path(name).is_dir() else (name,)


def tell(names: Sequence[str], found: Sequence[Finding], output: Format, more: Mapping[str, Any] | None = None) -> None:
    """Print the findings of these files; `more` is added to the object that `json` prints."""
    match output:
        case "text":
            _tell_people(names, found)
        case "json":
            from tensorc_dsl.faces.report.findings import as_json

            show_object(as_json(names, found) | dict(more or {}), indent=2)
        case "sarif":
            from importlib.metadata import version

            from tensorc_dsl.faces.report.findings import as_sarif

            show_object(as_sarif(found, version("tensorc-dsl")), indent=2)
        case "github":
            from tensorc_dsl.faces.report.findings import as_github

            if found:
                show(as_github(found))
        case _:
            assert_never(output)


def _tell_people(names: Sequence[str], found: Sequence[Finding]) -> None:
    from tensorc_dsl.faces.report.findings import count

    if not found:
        return
    show_diagnostics(*(f.diagnostic for f in found))
    numbers = [(count(found, s), s) for s in (Severity.ERROR, Severity.WARNING)]
    counts = " and ".join(f"{n} {s}{'s' * (n != 1)}" for n, s in numbers if n)
    show(f"\n{counts} in {len(names)} file{'s' * (len(names) != 1)}", err=True)
    errors = [f.diagnostic.code for f in found if f.diagnostic.severity is Severity.ERROR]
    if errors:
        say(f"for more: tensorc-dsl explain {errors[0]}", err=True)
