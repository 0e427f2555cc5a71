"""What the commands share in one call: options and arguments, those that decide draws, the file of tasks, and the
signals that end it. The first signal ends a command in order, a Ctrl-C after that at once.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, assert_never, get_args

import click

from tensorc_dsl.base.diagnostic import Severity, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.report.terminal import is_dumb, say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tensorc_dsl.check.scope import CheckedFile
    from tensorc_dsl.faces.api import Target, Task, TaskFile
    from tensorc_dsl.faces.report.terminal import Finding
    from tensorc_dsl.schedule.trace.trace import Trace

# Options and arguments that several commands share.


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PAUSE = 0.1
"""Seconds in which further signals count as one, since programs that forward a signal, such as `timeout`, send it twice."""


@dataclass(slots=True)
class Ending:
    """Whether a command was `told` to end, and by which signal. While `held`, signals are only recorded."""

    number: int = signal.SIGINT
    held: bool = False
    told: bool = False

    @property
    def status(self) -> int:
        """The exit status that shells use for the signal: 130, 143, 129."""
        return 128 + self.number


@contextmanager
def in_order(ending: Ending) -> Generator[None]:
    """A context in which the first of the signals is a KeyboardInterrupt; a Ctrl-C after it ends the process at once.

    Signals that this process was started to ignore stay ignored, as with `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def leave(number: int, _: FrameType | None) -> None:
        for n in before:
            signal.signal(n, signal.SIG_IGN)
        ending.number, ending.told = number, True
        if number == signal.SIGHUP:
            _silence(terminals)
        time.sleep(PAUSE)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not ending.held:
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {n: handler for n in ENDINGS if (handler := signal.getsignal(n)) in usual}
    try:
        for n in before:
            signal.signal(n, leave)
        yield
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


def _silence(terminals: list[int]) -> None:
    """Drop output to a terminal that is gone, without an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in terminals:
        os.dup2(null, fd)
    os.close(null)


@contextmanager
def interruptible(ending: Ending) -> Generator[None]:
    """What is inside may be cut short by a signal, a KeyboardInterrupt; before and behind it the ending is held."""
    ending.held = False
    try:
        yield
    finally:
        ending.held = True


@contextmanager
def finishing(ending: Ending) -> Generator[None]:
    """A context that runs to its end, unless two signals arrive."""
    ending.held = True
    try:
        yield
    finally:
        ending.held = False


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

token_option = click.option(
    "--token", type=click.Path(dir_okay=False), metavar="FILE",
    help="The secret that a search shares with its workers; by default a file of the user's, made when it is first needed.",
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


def _numbers(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int | float], ...]:
    """The names and numbers of `sr=16000`."""
    found: list[tuple[str, int | float]] = []
    for text in values:
        name, sign, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            sign, number = "", 0.0
        if not sign or not name:
            raise click.BadParameter(f"`{text}` is no name with a number, as `sr=16000`")
        found.append((name, int(value) if value.lstrip("+-").isdecimal() else number))
    return tuple(found)


def set_option(function: F) -> F:
    """`--set NAME=NUMBER`, any number of times, which fixes inputs of an ONNX file."""
    return click.option(
        "--set", "values", metavar="NAME=NUMBER", multiple=True, callback=_numbers,
        help="Fix the value of an input: `sr=16000`; may be repeated.",
    )(function)  # fmt: skip


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


@frozen
class Keeping:
    """What schedules keep: the bits of the compute's own order, or those of a schedule in a file; and those of a row in every
    batch, by the dimension that counts rows."""

    bits: bool = False
    bits_of: str | None = None
    rows: str | None = None

    def __bool__(self) -> bool:
        return self.bits or self.bits_of is not None or self.rows is not None


NOTHING_KEPT = Keeping()


def keeping_options(function: F) -> F:
    """`--same-bits`, `--bits-of TRACE` and `--same-rows DIM`."""
    function = click.option(
        "--same-rows", metavar="DIM",
        help="A row of the results has the same bits for every size of the open dimension DIM.",
    )(function)  # fmt: skip
    function = click.option(
        "--bits-of", metavar="TRACE", help="The results have the same bits as by the schedule in this file."
    )(function)
    return same_bits_option(function)


def same_bits_option(function: F) -> F:
    """`--same-bits`."""
    return click.option(
        "--same-bits", is_flag=True,
        help="The results have the bits of the compute's own order: each sum is rounded in that order.",
    )(function)  # fmt: skip


def handled(
    task: Task,
    replayed: str | None,
    conditions: tuple[tuple[str, str], ...],
    hidden: tuple[str, ...],
    keeping: Keeping = NOTHING_KEPT,
) -> Task:
    """The task with these handlers, and schedules that keep so much. Raises TschedError for names without a draw, for invalid
    values, and E0810 and E0811.
    """
    from tensorc_dsl.interp.space import OPEN, read_decision
    from tensorc_dsl.schedule.trace import handlers

    names = [name for name, _ in conditions]
    task = (task if replayed is None else task.over(replayed)).opened(names)
    if keeping:
        task = task.keeping(bits=keeping.bits, bits_of=keeping.bits_of, rows=keeping.rows)
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


# Loads a file of tasks with the settings of the whole call.


@problem("E0925", "`{file}` has no task", help="add one: `task small = f(M=64, N=64)`, for a compute `f`")
def NO_TASK(*, file: str) -> None: ...


@problem("E0925", "`{file}` has {count} tasks, and the command names none", help="name one: {names}")
def WHICH_TASK(*, file: str, count: int, names: str) -> None: ...


SUFFIX = ".tsched"

HELP = "help"
"""The CPU name that lists all CPUs."""


def load(
    file: str,
    threads: int | None = None,
    target: str | None = None,
    mcpu: str | None = None,
    native: Target | None = None,
) -> TaskFile:
    """As `tensorc_dsl.load`, with the folders of `-I`."""
    from tensorc_dsl.faces import api

    include = settings(click.get_current_context()).include
    cpu = None if mcpu == HELP else mcpu
    return api.load(file, threads=threads, target=target, mcpu=cpu, include=include, native=native)


def task_of_options(
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


def chosen_model(checked: CheckedFile, name: str | None) -> str | None:
    """The model that is meant: the one of that name, or without a name the only item that runs; None if it is a task."""
    if name is not None:
        return name if name in checked.models and name not in checked.tasks else None
    return str(next(iter(checked.models))) if len(checked.models) == 1 and not checked.tasks else None


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
            from tensorc_dsl.faces.report.terminal import as_json

            show_object(as_json(names, found) | dict(more or {}), indent=2)
        case "sarif":
            from importlib.metadata import version

            from tensorc_dsl.faces.report.terminal import as_sarif

            show_object(as_sarif(found, version("tensorc-dsl")), indent=2)
        case "github":
            from tensorc_dsl.faces.report.terminal import as_github

            if found:
                show(as_github(found))
        case _:
            assert_never(output)


def _tell_people(names: Sequence[str], found: Sequence[Finding]) -> None:
    from tensorc_dsl.faces.report.terminal import count

    if not found:
        return
    show_diagnostics(*(f.diagnostic for f in found))
    numbers = [(count(found, s), s) for s in (Severity.ERROR, Severity.WARNING)]
    counts = " and ".join(f"{n} {s}{'s' * (n != 1)}" for n, s in numbers if n)
    show(f"\n{counts} in {len(names)} file{'s' * (len(names) != 1)}", err=True)
    errors = [f.diagnostic.code for f in found if f.diagnostic.severity is Severity.ERROR]
    if errors:
        say(f"for more: tensorc-dsl explain {errors[0]}", err=True)
