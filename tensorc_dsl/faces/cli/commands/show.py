"""`show`: print the stages of compilation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.faces.cli.options import (
    LeftOut,
    common_options,
    file_argument,
    handled,
    handler_options,
    load,
    only,
    seed_option,
    target_options,
    task_of_options,
)
from tensorc_dsl.faces.report.terminal import write

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import Task


STAGES = ("ast", "graph", "ir", "space", "trace", "lowered", "cost")


@click.command()
@file_argument
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--stage", metavar="STAGE", default="ir", show_default=True, help="What to show: see above.")
@click.option(
    "--after", metavar="PASS", help="With `lowered`: what there is after one of the passes; `help` lists them."
)
@seed_option
@click.option("--scheduled", is_flag=True, help="With `ir`: the program as the schedule leaves it.")
@click.option("--svg", metavar="FILE.svg", help="With `graph`: write a picture of it.")
@handler_options
@target_options
@common_options
def show(
    file: str, name: str | None, stage: str, seed: int, scheduled: bool, after: str | None, svg: str | None,
    replayed: str | None,
    conditions: tuple[tuple[str, str], ...], hidden: tuple[str, ...], target: str | None, mcpu: str | None,
    threads: int | None,
) -> None:  # fmt: skip
    """Print one stage of the item NAME: any item for `ast`, a model for `graph`, a task for the others. The only one need
    not be named.

    \b
    ast      the syntax tree
    graph    the calls of a model, joined by the file's rules: tasks, operations, bytes
    ir       the program, before it is scheduled unless --scheduled
    space    what became of each rule, block by block: its draws, or why it does not apply
    trace    a schedule, drawn from the task's space
    lowered  the flat loops that the schedule makes
    cost     what bounds each nest of them, by a model of the processor
    llvm     their LLVM code
    asm      the machine's assembly (targets of kind `llvm`)
    ptx      PTX (targets of kind `cuda`, which have `llvm`, too)
    sass     the machine code of a GPU; needs NVIDIA's ptxas and nvdisasm

    What schedules assume of a reducer of the file, as `verify` names it, is a comment before `ir`, `space` and `trace`.
    A rule that was refused, and left out, is told on standard error. Targets of other kinds have stages of their own behind
    `lowered`.
    """
    from tensorc_dsl.faces.report.results import format_attempts
    from tensorc_dsl.ir.print import format_program
    from tensorc_dsl.proof.sets.laws import assumptions
    from tensorc_dsl.syntax import tree

    if (replayed or conditions or hidden) and (stage == "ast" or (stage == "ir" and not scheduled)):
        raise click.UsageError(
            f"`--replay`, `--condition` and `--block` decide a schedule, and `--stage {stage}` shows what is before it: "
            "use `--stage ir --scheduled`"
        )
    if stage == "ast":
        write(_ast(file, name))
        return
    if svg is not None and stage != "graph":
        raise click.UsageError("`--svg` is for `--stage graph`")
    if stage == "graph":
        if replayed is not None or hidden or target is not None or mcpu is not None:
            raise click.UsageError("`--stage graph` takes --condition and --threads: a model runs on this machine")
        _graph(file, name, threads, conditions, svg)
        return
    task = task_of_options(file, name, threads, target, mcpu)
    stages = (*STAGES, *(task.backend.stages if stage not in STAGES else ()))
    if stage not in stages:
        raise click.BadParameter(f"{stage!r} is not one of {', '.join(stages)}.", param_hint="'--stage'")
    if after is not None:
        _check_pass(task, stage, after)
    assumed = "".join(f"// assumed: {text}\n" for text in assumptions(task.program))
    if stage == "ir" and not scheduled:
        write(assumed + format_program(task.program))
        return
    found = handled(task, replayed, conditions, hidden).sample(seed)
    if stage != "space":  # which has a line for each rule
        LeftOut().tell(found)
    match stage:
        case "ir":
            text = assumed + format_program(found.program)
        case "space":
            kind = "schedule" if isinstance(task.space.definition, tree.ScheduleDef) else "space"
            title = f"{kind} {task.space.definition.name} for {task.space.compute}"
            text = assumed + format_attempts(title, task.space.explain(found))
        case "trace":
            text = assumed + found.titled
        case "lowered":
            text = task.lowered_text(found, after)
        case "cost":
            text = task.cost(found)
        case _:
            text = task.view(found, stage)
    write(text.rstrip("\n") + "\n")


def _graph(
    file: str, name: str | None, threads: int | None, conditions: tuple[tuple[str, str], ...], svg: str | None
) -> None:
    """Print the groups of a model, or write them as a picture."""
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.faces.api.models import model_named
    from tensorc_dsl.faces.report.graphs import format_groups, graph_picture
    from tensorc_dsl.graph.grouping import grouped
    from tensorc_dsl.interp.space import read_decision
    from tensorc_dsl.tuning.machine.host import host_target

    checked = load(file, threads).checked
    model = model_named(checked, name)
    made = grouped(checked, model, host_target(threads), {n: read_decision(v) for n, v in conditions})
    if made.trace is not None:
        LeftOut().tell(made.trace)
    if svg is None:
        write(format_groups(model, checked.plans[model], made))
    else:
        Output(Path(svg), typed=True).write(graph_picture(model, made))


def _check_pass(task: Task, stage: str, after: str) -> None:
    """End the command with the list of passes for `help`. Raises UsageError for an unknown pass."""
    if stage != "lowered":
        raise click.UsageError("`--after` is for `--stage lowered`")
    if after == "help":
        write("\n".join((*task.passes, "")))
        click.get_current_context().exit()
    if after not in task.passes:
        raise click.BadParameter(f"{after!r} is not one of {', '.join(task.passes)}.", param_hint="'--after'")


def _ast(file: str, name: str | None) -> str:
    from tensorc_dsl.faces.report.files import no_such_item, read_source
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse

    items: dict[str, tree.NamedItem] = {
        i.name: i for i in parse(read_source(file)).items if not isinstance(i, tree.UseDecl)
    }
    if name is None:
        name = only([n for n, i in items.items() if isinstance(i, tree.TaskDef)], file)
    if name not in items:
        raise TschedError(no_such_item(name, list(items), file))
    return outline(items[name])


# Formats a syntax tree as an indented outline, for `show --stage ast`.


def outline(node: object) -> str:
    """One line per node with its plain fields; children below it, indented. Spans are left out."""
    return "\n".join(_lines("", node, "")) + "\n"


def _lines(label: str, node: object, indent: str) -> Iterator[str]:
    if is_dataclass(node):
        plain: list[str] = []
        children: list[tuple[str, object]] = []
        for f in fields(node):
            value: object = getattr(node, f.name)
            if isinstance(value, Span | Source) or value in (None, (), ""):
                continue
            if isinstance(value, str | int | float):
                plain.append(f"{f.name}={value!r}")
            else:
                children.append((f.name, value))
        yield f"{indent}{label}{type(node).__name__}{' ' if plain else ''}{' '.join(plain)}"
        for name, child in children:
            yield from _lines(f"{name}: ", child, indent + "  ")
    elif isinstance(node, tuple):
        items = cast(tuple[object, ...], node)
        match items:
            case (str(name), value) if is_dataclass(value):
                yield from _lines(f"{label}{name} = ", value, indent)
            case _ if all(isinstance(i, str) for i in items):
                yield f"{indent}{label}{', '.join(map(repr, items))}"
            case _:
                yield f"{indent}{label.rstrip()}"
                for item in items:
                    yield from _lines("", item, indent + "  ")
    else:
        yield f"{indent}{label}{node!r}"
