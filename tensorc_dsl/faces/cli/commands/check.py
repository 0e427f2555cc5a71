"""`check`: report the errors in files.

No schedule is drawn, unless that is asked for: an editor runs this at every pause in typing, and a text must not pass in one
run and fail in the next.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError
from tensorc_dsl.base.units import counted
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.options import Format, common_options, files_argument, format_option, settings, sources, tell
from tensorc_dsl.faces.report.terminal import say

if TYPE_CHECKING:
    from tensorc_dsl.check.scope import CheckedFile
    from tensorc_dsl.faces.report.terminal import Finding


@click.command()
@files_argument
@format_option
@click.option("--deny-warnings", is_flag=True, help="Exit with status 1 for warnings too.")
@click.option("--expand", is_flag=True, help="Draw a schedule for each task and apply it: slower, and finds more.")
@common_options
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], output: Format, deny_warnings: bool, expand: bool) -> None:
    """Find what is wrong with files, with all that lie in a folder, or with standard input, `-`.

    All findings are reported in one run. Warnings alone leave the exit status at 0.
    """
    from tensorc_dsl.faces.report.terminal import Finding, count

    gc.set_threshold(1_000_000, 20, 20)  # a check makes no cyclic garbage
    names: list[str] = []
    found: list[Finding] = []
    seen: set[Diagnostic] = set()
    for name in files:
        try:
            for file in sources(name):
                names.append(file)
                for d in _findings(file, settings(ctx).include, expand, output == "text"):
                    if d not in seen:  # a finding in a file that several others use
                        seen.add(d)
                        found.append(Finding(file, d))
        except TschedError as e:
            if name not in names:  # a folder without files
                names.append(name)
            found += [Finding(name, d) for d in e.diagnostics]
    tell(names, found, output)
    if count(found, Severity.ERROR) or (deny_warnings and found):
        ctx.exit(ExitCode.FINDINGS)


def _findings(file: str, include: tuple[str, ...], expand: bool, aloud: bool) -> Iterator[Diagnostic]:
    """The findings of a file; if there are none and `aloud`, print that it is ok. Raises TschedError."""
    from tensorc_dsl.check.scope import load_file
    from tensorc_dsl.faces.packages import Resolver
    from tensorc_dsl.faces.report.files import read_source

    checked = load_file(read_source(file), Resolver(file, include))
    found = list(checked.diagnostics)
    if expand and not checked.errors:
        found += _expanded(checked)
    if aloud and not found:
        tasks = len(checked.tasks)
        models = f", {counted(len(checked.models), 'model')}" if checked.models else ""
        say(f"{file}: ok, {tasks} {'task' if tasks == 1 else 'tasks'}{models}")
        for text in _assumed(checked):
            say(f"{file}: {text}")
    yield from found


def _assumed(checked: CheckedFile) -> Iterator[str]:
    """The assumptions that the schedules of each task need, a line for a task with any."""
    from tensorc_dsl.proof.sets.laws import assumptions

    if any(r.assumes for known in checked.library.files.values() for r in known.reducers.values()):
        for task in checked.tasks:
            if assumed := assumptions(checked.program(task)):
                yield f"schedules of `{task}` assume that {' and '.join(assumed)}"


def _expanded(checked: CheckedFile) -> Iterator[Diagnostic]:
    """The findings of expanding each task once."""
    from tensorc_dsl.faces.api.tasks import TaskFile
    from tensorc_dsl.tuning.machine.host import host_target

    tasks = TaskFile(checked, host_target())
    for task in tasks:
        try:
            found = tasks[task].check()
        except TschedError as e:
            yield from e.diagnostics
        else:
            yield from (rule.diagnostic() for rule in found.refused)
