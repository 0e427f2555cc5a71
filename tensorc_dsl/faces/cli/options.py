"""Options and arguments that several commands share, those that decide draws, and groups that suggest a misspelt name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tensorc_dsl.faces.cli.endings import Ending
from tensorc_dsl.faces.report.terminal import is_dumb, show_diagnostics

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tensorc_dsl.faces.api import Task
    from tensorc_dsl.schedule.trace.trace import Trace


# Options and arguments that several commands share.


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """The settings of the whole call, for all commands."""

    debug: bool = False
    include: tuple[str, ...] = ()
    """The folders of `-I`."""
    ending: Ending = field(default_factory=Ending)


def settings(ctx: click.Context) -> Settings:
    return ctx.find_root().ensure_object(Settings)


def _set_color(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    # None lets click decide, which colours output on terminals only. By https://no-color.org, any non-empty value counts.
    root = ctx.find_root()
    if value in ("always", "never"):
        ctx.color = root.color = value == "always"
    elif value == "auto" or (value is None and root.color is None):
        ctx.color = root.color = False if os.environ.get("NO_COLOR") or is_dumb() else None


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    settings(ctx).debug |= value


def _add_include(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
    settings(ctx).include += value


def common_options(function: F) -> F:
    """`--color`, `-I` and `--debug`, before or after the command's name."""
    function = click.option(
        "--color", type=click.Choice(["auto", "always", "never"]), is_eager=True, expose_value=False,
        callback=_set_color, help="When to colour messages; auto: on terminals, unless NO_COLOR is set or TERM is dumb.",
    )(function)  # fmt: skip
    function = click.option(
        "-I", "include", type=click.Path(exists=True, file_okay=False), multiple=True, expose_value=False,
        metavar="FOLDER", callback=_add_include, help="Look for what a file uses in this folder too; may be repeated.",
    )(function)  # fmt: skip
    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of a bug."
    )(function)


def target_options(function: F) -> F:
    """`--target`, `--mcpu` and `--threads`: the machine for which code is made."""
    function = threads_option(function)
    function = click.option(
        "--mcpu", metavar="CPU",
        help="A CPU, by LLVM's name, in place of the target's; `help` lists those that there are, and their features.",
    )(function)  # fmt: skip
    return click.option(
        "--target", metavar="NAME",
        help="A target of the file, `native` for this machine, or `native-cuda` for its GPU, instead of the one that the"
        " space is written for.",
    )(function)  # fmt: skip


_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


def duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """The seconds of `10m`, `1h30m`, `90s` or `90`."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip())
    parts = {} if found is None else {k: float(v) for k, v in found.groupdict().items() if v is not None}
    seconds = sum({"h": 3600.0, "m": 60.0, "s": 1.0}[unit] * number for unit, number in parts.items())
    if not 0.0 < seconds < 1e9:
        raise click.BadParameter(f"{value!r} is no time: write 10m, 1h30m or 90s")
    return seconds


_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def share(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """0.02 of `2%`."""
    if value is None:
        return None
    found = _SHARE.fullmatch(value.strip())
    percent = 0.0 if found is None else float(found[1])
    if not 0.0 < percent < 1e9:
        raise click.BadParameter(f"{value!r} is no share above 0: write 2% or 0.5%")
    return percent / 100.0


def _complete_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tell the shell to complete names of files itself."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    return [CompletionItem(incomplete, type="file")]


file_argument = click.argument("file", metavar="FILE", shell_complete=_complete_files)
files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=_complete_files)
task_argument = click.argument("task", metavar="[TASK]", required=False)
"""The file's name, or `-` for standard input, and a task in it, which may be left out if there is only one. The command reads
both, so that a mistake is shown as a diagnostic."""

seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, metavar="S",
    help="Equal seeds make equal draws.",
)  # fmt: skip

threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="T",
    help="Threads that a kernel uses; by default one per core that this process may use.",
)  # fmt: skip

emulate_option = click.option(
    "--emulate", is_flag=True,
    help="Run kernels for a GPU on the CPU, thread by thread: results are checked, what moves is counted, nothing is timed.",
)  # fmt: skip

records_option = click.option(
    "--records", type=click.Path(), metavar="PATH",
    help="The database of trials; by default records.sqlite in the user's data folder.",
)  # fmt: skip


# The options that decide draws: `--replay`, `--condition` and `--block`, named after their handlers; and rules left out.


def pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What `NAME=VALUE` says, of each."""
    found = tuple((name.strip(), value.strip()) for name, _, value in (v.partition("=") for v in values))
    for given, (name, value) in zip(values, found, strict=True):
        if not name or not value:
            raise click.BadParameter(f"{given!r} is not NAME=VALUE")
    return found


def condition_option(function: F) -> F:
    """`--condition NAME=VALUE`, any number of times."""
    return click.option(
        "--condition", "conditions", multiple=True, metavar="NAME=VALUE", callback=pairs,
        help="Pin a draw, as `:= VALUE` does in the text, whatever that pins it to: ks=[64, 16]. With _ it is open: ks=_.",
    )(function)  # fmt: skip


def replay_option(function: F) -> F:
    """`--replay TRACE`."""
    return click.option(
        "--replay", "replayed", metavar="TRACE",
        help="Use the schedule in the file TRACE; only what it leaves open is drawn or searched.",
    )(function)  # fmt: skip


def handler_options(function: F) -> F:
    """`--replay TRACE`, `--condition NAME=VALUE` and `--block NAME`, the last two any number of times."""
    function = click.option(
        "--block", "hidden", multiple=True, metavar="NAME",
        help="Hide a draw: it is drawn from its own distribution, and no search decides it.",
    )(function)  # fmt: skip
    return replay_option(condition_option(function))


def handled(task: Task, replayed: str | None, conditions: tuple[tuple[str, str], ...], hidden: tuple[str, ...]) -> Task:
    """The task with these handlers. Raises TschedError for names without a draw and for invalid values."""
    from tensorc_dsl.interp.space import OPEN, read_decision
    from tensorc_dsl.schedule.trace import handlers

    names = [name for name, _ in conditions]
    task = (task if replayed is None else task.over(replayed)).opened(names)
    decisions = {name: read_decision(value) for name, value in conditions if value != OPEN}
    task.require_draws([*names, *hidden], [name for name, value in conditions if value == OPEN])
    model = handlers.condition(task.model, decisions) if decisions else task.model
    model = handlers.block(model, hidden) if hidden else model
    return task.drawn_from(model)


@dataclass(slots=True)
class LeftOut:
    """Tells on standard error which rules were refused and left out of schedules; each reason once."""

    told: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])

    def tell(self, trace: Trace) -> None:
        for rule in trace.refused:
            if (key := (rule.rule, rule.subject, str(rule.refusal))) not in self.told:
                self.told.add(key)
                show_diagnostics(rule.diagnostic())


# Groups of commands with suggestions for misspelt names.


WHOLE = 1_000
"""Characters that are more than any first sentence has."""


class Group(click.Group):
    """A group that suggests the nearest command for an unknown name."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first sentence of its help as a whole: click cuts it at the end of a line."""
        rows = [
            (name, command.get_short_help_str(limit=WHOLE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise click.UsageError(" ".join([f"No such command {name!r}.", *self._meant(ctx, name)]), ctx)

    def _meant(self, ctx: click.Context, name: str) -> Iterator[str]:
        from tensorc_dsl.syntax.names import did_you_mean  # only where something is misspelt

        if name.endswith(".tsched") or "/" in name:
            yield f"A file is given to a command: `{ctx.command_path} check {name}`"
            return
        if name == "help":
            yield f"`{ctx.command_path} --help` lists the commands"
            return
        near = did_you_mean(name, self.list_commands(ctx))
        if near:
            yield f"{near[0].upper()}{near[1:]}"
