"""A file of tasks, with what holds for the whole call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.options import settings

if TYPE_CHECKING:
    from tensorc_dsl.api import Task, TaskFile


def load(file: str, threads: int | None = None, target: str | None = None, mcpu: str | None = None) -> TaskFile:
    """As `tensorc_dsl.load`, with the folders of `-I`."""
    from tensorc_dsl import api

    include = settings(click.get_current_context()).include
    return api.load(file, threads=threads, target=target, mcpu=mcpu, include=include)


def load_task(file: str, task: str, threads: int | None, target: str | None, mcpu: str | None) -> Task:
    """The task, on the machine that the options describe. With `--mcpu help` the command ends with what there is."""
    if mcpu == "help":
        found = load(file, threads, target)[task]
        click.echo(found.backend.describe_processors(found.target))
        click.get_current_context().exit()
    return load(file, threads, target, mcpu)[task]
