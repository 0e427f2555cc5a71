"""`show`: look at what becomes of a text, stage by stage."""

from __future__ import annotations

from typing import Literal, assert_never, get_args

import click

from tensorc_dsl.cli.handling import handled, handler_options
from tensorc_dsl.cli.loading import load_task, only
from tensorc_dsl.cli.options import common_options, file_argument, seed_option, target_options
from tensorc_dsl.report.terminal import write

Stage = Literal["ast", "ir", "space", "trace", "lowered", "llvm", "asm"]


@click.command()
@file_argument
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--stage", type=click.Choice(get_args(Stage)), default="ir", show_default=True, help="What to show.")
@seed_option
@click.option("--scheduled", is_flag=True, help="With `ir`: the program as the schedule leaves it.")
@handler_options
@target_options
@common_options
def show(
    file: str, name: str | None, stage: Stage, seed: int, scheduled: bool, replayed: str | None,
    conditions: tuple[tuple[str, str], ...], hidden: tuple[str, ...], target: str | None, mcpu: str | None,
    threads: int | None,
) -> None:  # fmt: skip
    """Print one stage of the item NAME: any item for `ast`, a task for the others. The only task need not be named.

    \b
    ast      the syntax tree
    ir       the program, before it is scheduled unless --scheduled
    space    what became of each rule, block by block: its draws, or why it does not apply
    trace    a schedule, drawn from the task's space
    lowered  the flat loops that the schedule makes
    llvm     their LLVM code
    asm      the machine's assembly
    """
    from tensorc_dsl.ir.print import format_program
    from tensorc_dsl.lower.flat import format_kernel
    from tensorc_dsl.report.attempts import format_attempts
    from tensorc_dsl.syntax import tree

    if stage == "ast":
        write(_ast(file, name))
        return
    task = load_task(file, name, threads, target, mcpu)
    if stage == "ir" and not scheduled:
        write(format_program(task.program))
        return
    found = handled(task, replayed, conditions, hidden).sample(seed)
    match stage:
        case "ir":
            text = format_program(found.program)
        case "space":
            kind = "schedule" if isinstance(task.space.definition, tree.ScheduleDef) else "space"
            title = f"{kind} {task.space.definition.name} for {task.space.compute}"
            text = format_attempts(title, task.space.explain(found))
        case "trace":
            text = found.text
        case "lowered":
            text = format_kernel(task.lower(found))
        case "llvm":
            text = task.compile(found).llvm_ir
        case "asm":
            text = task.compile(found).assembly()
        case _:
            assert_never(stage)
    write(text.rstrip("\n") + "\n")


def _ast(file: str, name: str | None) -> str:
    from tensorc_dsl.report.files import read_source
    from tensorc_dsl.report.missing import no_such
    from tensorc_dsl.report.outline import outline
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse

    items = {i.name: i for i in parse(read_source(file)).items if not isinstance(i, tree.UseDecl)}
    if name is None:
        name = only([n for n, i in items.items() if isinstance(i, tree.TaskDef)], file)
    if name not in items:
        raise no_such("E0906", "item", name, list(items), file)
    return outline(items[name])
