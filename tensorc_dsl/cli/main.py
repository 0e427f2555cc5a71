"""The command `tensorc-dsl`: one group, with a file per command in `commands/` that is loaded when it is called."""

from __future__ import annotations

import atexit
import gc
import importlib
import pkgutil
from typing import Any

import click

from tensorc_dsl.cli import commands
from tensorc_dsl.cli.failures import guarded, printed, spelled_out
from tensorc_dsl.cli.groups import Group
from tensorc_dsl.cli.options import common_options
from tensorc_dsl.cli.room import look_before_imports
from tensorc_dsl.report.terminal import say

# The interpreter collects garbage once more at exit, in trees that are all alive: a tenth of the time of a large check.
atexit.register(gc.freeze)


class Commands(Group):
    """The commands are the modules of `tensorc_dsl.cli.commands`; each has one function named like its file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return getattr(importlib.import_module(f"{commands.__name__}.{cmd_name}"), cmd_name)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with spelled_out(), printed():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        # Trees of many small objects are all alive while they grow: a collection every 700 objects takes a third of
        # the time of a large check.
        gc.set_threshold(100_000, 20, 20)
        look_before_imports()
        with guarded(ctx):
            return super().invoke(ctx)


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"tensorc-dsl {version('tensorc-dsl')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it.")
@common_options
def main() -> None:
    """Write what to compute and how it may be computed; check, look at, tune and run it.

    Exit status: 0 all is well, 1 findings (they are on standard error), 2 wrong usage, 3 the search found no valid
    candidate, 4 a bug in tensorc-dsl, 5 nothing is proved, 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP.
    """
