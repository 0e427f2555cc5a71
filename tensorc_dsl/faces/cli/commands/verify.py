"""`verify`: prove that schedules compute what their tasks do, or that two programs compute the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.options import (
    SUFFIX,
    Format,
    Keeping,
    chosen,
    common_options,
    format_option,
    keeping_options,
    load,
    seed_option,
    sources,
    target_options,
    task_and_trace,
    tell,
)
from tensorc_dsl.faces.report.terminal import say

if TYPE_CHECKING:
    from tensorc_dsl.base.source import Span
    from tensorc_dsl.faces.api import TaskFile
    from tensorc_dsl.faces.report.terminal import Finding
    from tensorc_dsl.proof.equivalence.validate import Report
    from tensorc_dsl.syntax.tree import ProgramDef


@problem(
    "E0809",
    "`{file}` holds {count}, and `verify` compares two programs",
    help="name a task to verify a schedule of it: `tensorc-dsl verify {file} TASK`",
)
def TWO_PROGRAMS(*, file: str, count: str) -> None: ...


@frozen
class Claim:
    """What is to be proved: that a schedule of the task `what` is right, or that two programs are equal."""

    file: str
    what: str
    place: Span | None
    prove: Callable[[], Report]


@click.command()
@click.argument("words", metavar="FILE... [TASK] [TRACE]", nargs=-1, required=True)
@keeping_options
@seed_option
@target_options
@format_option
@common_options
@click.pass_context
def verify(
    ctx: click.Context, words: tuple[str, ...], same_bits: bool, bits_of: str | None, same_rows: str | None, seed: int,
    target: str | None, mcpu: str | None, threads: int | None, output: Format,
) -> None:  # fmt: skip
    """Prove that a schedule computes what its task does, for all inputs and sizes, without running it.

    The schedule is that of TRACE, or drawn with the seed. Without TASK, all tasks of the file are proved; of several
    files or a folder, those of each file. Of a file with two programs and without a task those are compared. The proof
    does not rely on the steps that made the schedule. Exit status 1: it is wrong, and a run with inputs that are shown
    says so; 5: it is not proved.

    With --same-bits, --bits-of or --same-rows it is proved, too, that the bits of the results are those, on one machine.
    Where that is not proved, the first step is named that is not proved to keep them.
    """
    keeping = Keeping(same_bits, bits_of, same_rows)
    from tensorc_dsl.faces.report.terminal import Finding

    paths, rest = (words, ()) if _are_files(words) else (words[:1], words[1:])
    names: list[str] = []
    results: list[dict[str, Any]] = []
    found: list[Finding] = []
    for name, required in _named(paths, found).items():
        names.append(name)
        try:
            tasks = load(name, threads, target, mcpu)
            for claim in _claims(tasks, name, rest, seed, mcpu, keeping, required=required):
                result, finding = _proved(claim, output == "text", paths != (name,))
                results += result
                found += finding
        except TschedError as e:
            found += [Finding(name, d) for d in e.diagnostics]
    tell(names or paths, found, output, {"results": results})
    if found:
        unproved = sum(r["result"] == "unproved" for r in results)
        ctx.exit(ExitCode.UNPROVED if unproved == len(found) else ExitCode.FINDINGS)


def _named(paths: Sequence[str], found: list[Finding]) -> dict[str, bool]:
    """The files, and those in the folders, each once, and whether it is named itself; `found` gets what has none."""
    from tensorc_dsl.faces.report.terminal import Finding

    files: dict[str, bool] = {}
    for path in paths:
        try:
            files |= {name: name == path or files.get(name, False) for name in sources(path)}
        except TschedError as e:
            found += [Finding(path, d) for d in e.diagnostics]
    return files


def _are_files(words: Sequence[str]) -> bool:
    """Whether each word is a folder or a file that claims something. Of two files, the second may be a schedule instead."""
    if not all(w.endswith(SUFFIX) or os.path.isdir(w) for w in words):
        return False
    return len(words) != 2 or any(map(os.path.isdir, words)) or _claims_something(words[1])


def _claims_something(file: str) -> bool:
    from tensorc_dsl.faces.report.files import read_source
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse_items

    try:
        return any(isinstance(i, tree.TaskDef | tree.ProgramDef) for i in parse_items(read_source(file)).file.items)
    except TschedError:
        return False


def _claims(
    tasks: TaskFile,
    file: str,
    words: tuple[str, ...],
    seed: int,
    mcpu: str | None,
    keeping: Keeping,
    *,
    required: bool,
) -> Iterator[Claim]:
    """What the file claims: its tasks, or those that the words behind its name tell; without a task, its two programs.

    Raises TschedError (E0809) if it has neither and one is required.
    """
    from tensorc_dsl.syntax import tree

    items = tasks.checked.file.items
    programs = [i for i in items if isinstance(i, tree.ProgramDef)]
    if words or tasks:
        name, trace = task_and_trace(tasks, file, words) if words else (None, None)
        places = {str(i.name): i.name.span for i in items if isinstance(i, tree.TaskDef)}
        for task in tasks if name is None else (name,):
            yield Claim(
                file, task, places.get(task), partial(_verify_schedule, tasks, task, mcpu, trace, seed, keeping)
            )
    elif required or len(programs) == 2:
        a, b = _two(file, programs)
        yield Claim(file, f"{a.name} and {b.name}", b.name.span, partial(_compared, a, b, keeping))


def _proved(claim: Claim, aloud: bool, several: bool) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The facts of the verdict, and its findings. A claim that holds is printed if `aloud`, with its file if `several`."""
    from tensorc_dsl.faces.report import results
    from tensorc_dsl.faces.report.terminal import Finding
    from tensorc_dsl.proof.equivalence.validate import Invalid

    try:
        report = claim.prove()
    except TschedError as e:
        return [], [Finding(claim.file, d) for d in e.diagnostics]
    result, found = results.facts(report)
    facts: dict[str, Any] = {"file": claim.file, "what": claim.what, "result": result}
    if found is None:
        if aloud:
            say(f"{f'{claim.file}: ' if several else ''}{claim.what}: {results.verdict_line(report)}")
        return [facts | {"assumes": results.assumed(report)}], []
    inputs = {name: a.tolist() for name, a in report.inputs.items()} if isinstance(report, Invalid) else {}
    found = replace(found, span=found.span or claim.place)
    return [facts | {"code": found.code, "inputs": inputs}], [Finding(claim.file, found)]


def _verify_schedule(
    tasks: TaskFile, name: str, mcpu: str | None, trace: str | None, seed: int, keeping: Keeping
) -> Report:
    task = chosen(tasks, name, mcpu)
    found = task.frozen(trace) if trace is not None else task.sample(seed)
    of = None if keeping.bits_of is None else task.frozen(keeping.bits_of)
    proofs: list[Callable[[], Report]] = [partial(task.verify, found)]
    proofs += [partial(task.verify_bits, found, of)] if keeping.bits or of is not None else []
    proofs += [] if keeping.rows is None else [partial(task.verify_rows, found, keeping.rows)]
    return _all_of(proofs)


def _all_of(proofs: Sequence[Callable[[], Report]]) -> Report:
    """The verdict that all of these are valid, or the first one that is not."""
    from tensorc_dsl.proof.equivalence.validate import Valid

    assumes: dict[str, None] = {}
    for prove in proofs:
        found = prove()
        if not isinstance(found, Valid):
            return found
        assumes |= dict.fromkeys(found.assumes)
    return Valid(tuple(assumes))


def _two(file: str, programs: Sequence[ProgramDef]) -> tuple[ProgramDef, ProgramDef]:
    from tensorc_dsl.base.units import counted

    if len(programs) != 2:
        raise TschedError(TWO_PROGRAMS(None, file=file, count=counted(len(programs), "program")))
    return programs[0], programs[1]


def _compared(first: ProgramDef, second: ProgramDef, keeping: Keeping) -> Report:
    from tensorc_dsl.ir.parse import program_from_tree
    from tensorc_dsl.proof.equivalence.bits import same_bits
    from tensorc_dsl.proof.equivalence.rows import same_rows
    from tensorc_dsl.proof.equivalence.validate import validate

    a, b = map(program_from_tree, (first, second))
    names = f"`{a.name}`", f"`{b.name}`"
    proofs: list[Callable[[], Report]] = [partial(validate, a, b, names)]
    proofs += [partial(same_bits, a, b, names)] if keeping.bits or keeping.bits_of is not None else []
    proofs += [] if keeping.rows is None else [partial(same_rows, a, b, keeping.rows)]
    return _all_of(proofs)
