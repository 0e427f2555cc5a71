"""The command `tensorc-dsl`: one group, with a file per command in `commands/` that is loaded when it is used."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import resource
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tensorc_dsl.faces.cli import commands
from tensorc_dsl.faces.cli.failures import guarded, printed, spelled_out
from tensorc_dsl.faces.cli.options import Group, common_options
from tensorc_dsl.faces.report.terminal import say

# Is there memory for a library that ends the process where there is none?
#
# OpenBLAS does that when it is loaded, with a message of its own or, for want of a thread, as if Ctrl-C were pressed, and
# LLVM when it compiles, and nanobind when it loads islpy. So the room is looked at before NumPy and SciPy, each of which has
# an OpenBLAS, llvmlite and islpy are imported.


_MIB = 1 << 20

NEED = {"numpy": (48, 40), "scipy": (56, 40), "llvmlite": (205, 0), "islpy": (24, 0)}
"""MiB of addresses that a package takes, measured with OpenBLAS 0.3, LLVM 22 and nanobind 2 on x86-64, and some to tell
that none are left: at all, and for each thread of OpenBLAS, a buffer of 32 and the stack."""

MOST_THREADS = 64
"""The threads that the OpenBLAS in wheels is built for."""


class Room(MetaPathFinder):
    """Raises MemoryError instead of an import for which there are too few addresses; it finds nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in NEED:
            fixed, each = NEED[fullname]
            if _used() + (fixed + each * _threads()) * _MIB > self._limit:
                raise MemoryError


def look_before_imports() -> None:
    """Imports look for room from now on, if this process may not have all the addresses that there are."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and not any(isinstance(f, Room) for f in sys.meta_path):
        sys.meta_path.insert(0, Room(limit))


def _used() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _threads() -> int:
    named = (os.environ.get(n, "") for n in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"))
    asked = next((int(n) for n in named if n.isdecimal() and int(n) > 0), len(os.sched_getaffinity(0)))
    return min(asked, len(os.sched_getaffinity(0)), MOST_THREADS)


# The command `tensorc-dsl`: one group, with a file per command in `commands/` that is loaded when it is called.


# The interpreter collects garbage once more at exit, in trees that are all alive: a tenth of the time of a large check.
atexit.register(gc.freeze)


class Commands(Group):
    """The commands are the modules of `tensorc_dsl.faces.cli.commands`; each has one function named like its
    file, which has a `_` behind a word of Python."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name.rstrip("_") for m in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        return getattr(importlib.import_module(f"{commands.__name__}.{name}"), name)

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
