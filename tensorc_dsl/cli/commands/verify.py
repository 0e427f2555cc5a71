"""`verify`: show that a schedule computes what its task does, or that two programs do the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, assert_never

import click

from tensorc_dsl.cli.failures import ExitCode, show_diagnostics
from tensorc_dsl.cli.loading import load_task
from tensorc_dsl.cli.options import common_options, file_argument, seed_option, target_options
from tensorc_dsl.diagnostic import Diagnostic, Problem, TschedError

if TYPE_CHECKING:
    from tensorc_dsl.validate.validate import Report

TWO_PROGRAMS = Problem(
    "E0809", "`{file}` holds {count}, and `verify` compares two programs",
    help="name a task to verify a schedule of it: `tensorc-dsl verify {file} TASK`",
)  # fmt: skip


@click.command()
@file_argument
@click.argument("task", metavar="[TASK]", required=False)
@click.argument("trace", metavar="[TRACE]", required=False)
@seed_option
@target_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@common_options
@click.pass_context
def verify(
    ctx: click.Context, file: str, task: str | None, trace: str | None, seed: int, target: str | None, mcpu: str | None,
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Prove that a schedule computes what its task does, for all inputs and sizes, without running it.

    The schedule is that of TRACE, or drawn with the seed. Without TASK the two programs of the file are compared.
    The proof asks nothing of the steps that made the schedule. Exit status 1: it is wrong, or nothing is proved.
    """
    what, report = _two_programs(file) if task is None else _schedule(file, task, trace, seed, target, mcpu, threads)
    result, found = _facts(report)
    if as_json:
        facts: dict[str, object] = {"what": what, "result": result}
        if found is not None:
            notes = [{"kind": n.kind, "text": n.text} for n in found.notes]
            facts |= {"code": found.code, "message": found.message, "notes": notes}
        click.echo(json.dumps(facts))
    elif found is None:
        click.echo(f"{what}: valid")
    else:
        show_diagnostics(found)
    if found is not None:
        ctx.exit(ExitCode.FINDINGS)


def _schedule(
    file: str, task: str, trace: str | None, seed: int, target: str | None, mcpu: str | None, threads: int | None
) -> tuple[str, Report]:
    found = load_task(file, task, threads, target, mcpu)
    return task, found.verify(found.frozen(trace) if trace is not None else found.sample(seed))


def _two_programs(file: str) -> tuple[str, Report]:
    from tensorc_dsl.ir.parse import program_from_tree
    from tensorc_dsl.report.files import read_source
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse
    from tensorc_dsl.validate.validate import validate

    items = [i for i in parse(read_source(file)).items if isinstance(i, tree.ProgramDef)]
    if len(items) != 2:
        raise TschedError(TWO_PROGRAMS(None, file=file, count=f"{len(items) or 'no'} program{'s' * (len(items) != 1)}"))
    a, b = map(program_from_tree, items)
    return f"{a.name} and {b.name}", validate(a, b, (f"`{a.name}`", f"`{b.name}`"))


def _facts(report: Report) -> tuple[str, Diagnostic | None]:
    from tensorc_dsl.validate.validate import Invalid, Unproved, Valid

    match report:
        case Valid():
            return "valid", None
        case Invalid(diagnostic=found):
            return "invalid", found
        case Unproved(diagnostic=found):
            return "unproved", found
        case _:
            assert_never(report)
