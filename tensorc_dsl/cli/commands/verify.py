"""`verify`: prove that a schedule computes what its task does, or that two programs compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.failures import ExitCode
from tensorc_dsl.cli.loading import chosen, load, task_and_trace
from tensorc_dsl.cli.options import common_options, file_argument, seed_option, target_options
from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.report.terminal import say, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.syntax.tree import ProgramDef
    from tensorc_dsl.validate.validate import Report


@problem(
    "E0809",
    "`{file}` holds {count}, and `verify` compares two programs",
    help="name a task to verify a schedule of it: `tensorc-dsl verify {file} TASK`",
)
def TWO_PROGRAMS(*, file: str, count: str) -> None: ...


@click.command()
@file_argument
@click.argument("words", metavar="[TASK] [TRACE]", nargs=-1)
@seed_option
@target_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
@click.pass_context
def verify(
    ctx: click.Context, file: str, words: tuple[str, ...], seed: int, target: str | None, mcpu: str | None,
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Prove that a schedule computes what its task does, for all inputs and sizes, without running it.

    The schedule is that of TRACE, or drawn with the seed. Of a file with two programs and without TASK those are compared.
    The proof does not rely on the steps that made the schedule. Exit status 1: it is wrong, and a run with inputs that are
    shown says so; 5: nothing is proved.
    """
    from tensorc_dsl.report import verdict
    from tensorc_dsl.syntax import tree

    tasks = load(file, threads, target, mcpu)
    programs = [i for i in tasks.checked.file.items if isinstance(i, tree.ProgramDef)]
    if not words and (programs or not tasks):
        what, report = _two_programs(file, programs)
    else:
        name, trace = task_and_trace(tasks, file, words)
        what, report = name, _schedule(chosen(tasks, name, mcpu), trace, seed)
    result, found = verdict.facts(report)
    if as_json:
        facts: dict[str, object] = {"what": what, "result": result, "assumes": verdict.assumed(report)}
        if found is not None:
            notes = [{"kind": n.kind, "text": n.text} for n in found.notes]
            facts |= {"code": found.code, "message": found.message, "notes": notes, "inputs": _listed(report)}
        show_object(facts)
    elif found is None:
        say(f"{what}: {verdict.line(report)}")
    else:
        show_diagnostics(found)
    if found is not None:
        ctx.exit(ExitCode.FINDINGS if result == "invalid" else ExitCode.UNPROVED)


def _schedule(task: Task, trace: str | None, seed: int) -> Report:
    return task.verify(task.frozen(trace) if trace is not None else task.sample(seed))


def _two_programs(file: str, items: Sequence[ProgramDef]) -> tuple[str, Report]:
    from tensorc_dsl.ir.parse import program_from_tree
    from tensorc_dsl.units import counted
    from tensorc_dsl.validate.validate import validate

    if len(items) != 2:
        raise TschedError(TWO_PROGRAMS(None, file=file, count=counted(len(items), "program")))
    a, b = map(program_from_tree, items)
    return f"{a.name} and {b.name}", validate(a, b, (f"`{a.name}`", f"`{b.name}`"))


def _listed(report: Report) -> dict[str, object]:
    """The inputs that show the error, as they are in memory; none if it needs none."""
    from tensorc_dsl.validate.validate import Invalid

    return {name: a.tolist() for name, a in report.inputs.items()} if isinstance(report, Invalid) else {}
