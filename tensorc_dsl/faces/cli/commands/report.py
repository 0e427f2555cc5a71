"""`report`: write the page of a task's searches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.faces.cli.options import common_options, file_argument, load, only, records_option, threads_option
from tensorc_dsl.faces.report.terminal import begin, say, show_diagnostics

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import Task
    from tensorc_dsl.tuning.insight import Search
    from tensorc_dsl.tuning.records.trial import Trial

MOST = 2
"""Searches that a page compares."""


@problem("E0713", "`{task}` has no trials on this machine in `{path}`", help="tune it first, with the same `--threads`")
def NO_TRIALS(*, task: str, path: Path) -> None: ...
@problem(
    "E0714",
    "no search of `{task}` is called `{word}`, and there is no such database",
    help="name one of these: {known}",
)
def NO_SEARCH(*, task: str, word: str, known: str) -> None: ...


@click.command()
@file_argument
@click.argument("words", metavar="[TASK] [SEARCH] [SEARCH]", nargs=-1)
@threads_option
@records_option
@click.option("--output", type=click.Path(), metavar="PATH", help="The file to write, in place of the usual one.")
@common_options
def report(file: str, words: tuple[str, ...], threads: int | None, records: str | None, output: str | None) -> None:
    """Write a page about the recorded trials of a task: one HTML file, which needs no network.

    It shows how the search went, how close the best schedule is to the machine's limit, which draws matter and which of their
    values are good, what the best schedule changes, and its program and assembly.

    With one SEARCH the page is about that search, with two it compares them. A search is named by its strategy and seed
    (`bayes/0`), its strategy, or the beginning of its name among the records (`run` in `db show --json`); of several the
    last one is meant. The path of another database stands for its records of the task. Only records of this machine count,
    and nothing is measured but what the machine can do at most.
    """
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.faces.api.recorded import figures
    from tensorc_dsl.faces.api.searching import recorded_trials
    from tensorc_dsl.faces.report.page import page
    from tensorc_dsl.tuning.records.database import Database

    tasks = load(file, threads)
    name, wanted = _parted(tasks, file, words)
    task = tasks[name]
    out = Output.at(output, f"{name}.report.html")
    out.check()
    trials: list[Trial] = []
    workers: dict[str, str] = {}
    if any(not Path(w).is_file() for w in wanted) or not wanted:
        with Database.required(Path(records) if records else None) as database:
            trials = recorded_trials(task, database, show_diagnostics)
            if not trials:
                raise TschedError(NO_TRIALS(None, task=name, path=database.path))
            workers = database.workers()
    sides = [_side(task, w, trials) for w in wanted] or [("all trials", trials)]
    begin(f"learning from {counted(sum(len(some) for _, some in sides), 'record')}")
    out.write(page(figures(task, sides, ("tensorc-dsl", "tune", file, name), workers)))
    say(f"report: {out.path}")


def _parted(tasks: Collection[str], file: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The task and the searches in the words. Raises TschedError (E0925), and UsageError for too many words."""
    if words and (words[0] in tasks or len(tasks) != 1):
        name, wanted = words[0], words[1:]
    else:
        name, wanted = only(tasks, file), words
    if len(wanted) > MOST:
        raise click.UsageError(f"Got unexpected extra argument ({wanted[MOST]})")
    return name, wanted


def _side(task: Task, word: str, trials: Sequence[Trial]) -> tuple[str, Sequence[Trial]]:
    """The trials that a word means. Raises TschedError (E0713, E0714) if there are none."""
    from tensorc_dsl.faces.api.searching import recorded_trials
    from tensorc_dsl.tuning.insight import meant, searches
    from tensorc_dsl.tuning.records.database import Database

    if Path(word).is_file():
        with Database.required(Path(word)) as database:
            found = recorded_trials(task, database, show_diagnostics)
        if not found:
            raise TschedError(NO_TRIALS(None, task=task.name, path=Path(word)))
        return word, found
    there = searches(trials)
    search = meant(word, there)
    if search is None:
        raise TschedError(NO_SEARCH(None, task=task.name, word=word, known=_known(there)))
    return _title(search, there), search.trials


def _known(there: Sequence[Search]) -> str:
    return ", ".join(f"`{label}`" for label in dict.fromkeys(s.label for s in reversed(there)))


def _title(search: Search, there: Sequence[Search]) -> str:
    """The strategy and seed, with the beginning of its name where another search has the same."""
    same = [s for s in there if s.label == search.label]
    return search.label if len(same) == 1 else f"{search.label} ({search.run[:8] or 'old'})"
