"""A file of tasks, with what holds for the whole call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.options import settings

if TYPE_CHECKING:
    from tensorc_dsl.api import TaskFile


def load(file: str, threads: int | None = None, target: str | None = None) -> TaskFile:
    """As `tensorc_dsl.load`, with the folders of `-I`."""
    from tensorc_dsl import api

    return api.load(file, threads=threads, target=target, include=settings(click.get_current_context()).include)
