"""The options that decide draws: `--replay`, `--condition` and `--block`, named after their handlers; and rules left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tensorc_dsl.report.terminal import show_diagnostics

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.trace.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])


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
    from tensorc_dsl.interp.pins import OPEN, read_decision
    from tensorc_dsl.trace import handlers

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
