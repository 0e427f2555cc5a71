"""`compile`: make an object file, a shared library, a program, a header, assembly or LLVM code from a frozen schedule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.cli.measured import best_known
from tensorc_dsl.faces.cli.options import (
    HELP,
    Keeping,
    chosen,
    chosen_model,
    common_options,
    condition_option,
    file_argument,
    handled,
    load,
    only,
    records_option,
    replay_option,
    same_bits_option,
    target_options,
    task_argument,
)
from tensorc_dsl.faces.report.terminal import show, write

if TYPE_CHECKING:
    from tensorc_dsl.backend.protocol import Form, KernelLibrary
    from tensorc_dsl.faces.api import LoadedModel, Task
    from tensorc_dsl.faces.api.kernel import Known
    from tensorc_dsl.schedule.trace.trace import Trace


@problem(
    "E0911",
    "the schedule of `{task}` is not frozen: {draws}",
    help="tune the task, give a schedule that `tune` or `sample` wrote, `--replay TRACE`, pin them, `--condition {first}=…`, "
    "or have them drawn, `--seed S`",
)
def COMPILED_DRAWS_NOT_FIXED(*, task: str, draws: str, first: str) -> None: ...


@click.command()
@file_argument
@task_argument
@click.option(
    "--emit", "kinds", metavar="KIND", multiple=True,
    help="What to make: see above; may be repeated. By default `obj` and `header`, of models `so`, `header` "
    "and `weights`, for GPUs `ptx`, `header` and `loader`.",
)  # fmt: skip
@click.option(
    "-o", "output", metavar="PATH",
    help="The file, or `-` to print it; of several things the folder. By default TASK.o, TASK.so, … in this folder, "
    "and a single text is printed.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), metavar="S", help="Equal seeds make equal draws.")
@replay_option
@condition_option
@target_options
@records_option
@same_bits_option
@common_options
def compile(  # noqa: A001 (a command is called as it is typed)
    file: str, task: str | None, kinds: tuple[str, ...], output: str | None, seed: int | None, replayed: str | None,
    conditions: tuple[tuple[str, str], ...], target: str | None, mcpu: str | None, threads: int | None,
    records: str | None, same_bits: bool,
) -> None:  # fmt: skip
    """Compile a task or a model ahead of time: what is made needs no Python.

    \b
    llvm    the LLVM code, before LLVM's passes
    asm     the machine's assembly
    obj     an object file, to be linked with -pthread
    so      a shared library; needs the system's C compiler
    header  the declarations for C and C++
    runner  a program that makes inputs, times the kernel and prints JSON; needs a C compiler for the target

    These are for targets of kind `llvm`; other kinds have their own. Those of kind `cuda`, beside `llvm` and `header`:

    \b
    ptx     PTX, which the driver of a GPU loads
    loader  C code that loads and launches the kernels; to be linked with -lcuda
    sass    the machine code as text; needs NVIDIA's ptxas and nvdisasm

    Of a model, the one that TASK names or the only item of the file that runs, `obj`, `so` and `header` are made, and

    \b
    weights  the weights as its code reads them; C gives the path of this file

    Its tasks have the schedules that they have in `run`; with --seed, those of tasks without records are drawn. --condition
    pins draws of the rules that join its calls.

    The schedule of a task is its own or that of --replay if it has no open draws, with --seed a drawn one. Otherwise it is
    the fastest recorded one, or the one that records of other tasks predict to be the fastest; the header says which. C calls
    `TASK` on pointers, or `TASK_checked` on arrays with their types and shapes.
    """
    tasks = load(file, threads, target, mcpu)
    if (model := chosen_model(tasks.checked, task)) is not None:
        if replayed is not None:
            raise click.UsageError("`--replay` is for tasks")
        from tensorc_dsl.backend.protocol import require_backend
        from tensorc_dsl.faces.api.models import model_of
        from tensorc_dsl.interp.space import read_decision

        recorded = Path(records) if records else None
        decisions = {name: read_decision(value) for name, value in conditions}
        cpu = None if mcpu == HELP else mcpu
        loaded = model_of(tasks.checked, model, threads, recorded, target, cpu, decisions, same_bits)
        if mcpu == HELP:
            show(require_backend(loaded.target.kind, model).describe_processors(loaded.target))
            return
        _compile_model(loaded, kinds, output, seed)
        return
    found = handled(chosen(tasks, task or only(tasks, file), mcpu), replayed, conditions, (), Keeping(same_bits))
    forms = found.backend.forms
    kinds = kinds or tuple(kind for kind, form in forms.items() if form.usual)
    paths = _paths(found.name, tuple(dict.fromkeys(kinds)), output, forms)
    fixed = seed is not None or replayed is not None or conditions
    schedule = _frozen(found, seed) if fixed else _best(found, file, records)
    _write(found.library(schedule.trace, schedule.origin), kinds, paths, output)


def _compile_model(model: LoadedModel, kinds: tuple[str, ...], output: str | None, seed: int | None) -> None:
    """Write the library of a model. Its weights are not written where there are none."""
    forms = model.model_forms
    usual = (kind for kind, form in forms.items() if form.usual and (kind != "weights" or model.plan.weights))
    kinds = kinds or tuple(usual)
    paths = _paths(model.name, tuple(dict.fromkeys(kinds)), output, forms)
    _write(model.library(seed), kinds, paths, output)


def _write(library: KernelLibrary, kinds: tuple[str, ...], paths: dict[Output, str] | None, output: str | None) -> None:
    """Write the files, or print the only one."""
    from tensorc_dsl.faces.api.tasks import write_files
    from tensorc_dsl.faces.report.files import make_folder

    if paths is None:
        write(library.make(next(iter(kinds))).decode())
    else:
        if output is not None and len(paths) > 1:
            make_folder(Path(output))
        write_files(library, paths)


def _frozen(task: Task, seed: int | None) -> Known:
    """The task's schedule, drawn if a seed is given. Raises TschedError (E0911) if it has open draws and there is no seed."""
    from tensorc_dsl.faces.api.kernel import Drawn, Given, Known

    trace = task.sample(seed or 0)
    if not trace.open_draws:
        return Known(trace, Given())
    if seed is None:
        raise _open(task, trace)
    return Known(trace, Drawn(seed))


def _best(task: Task, file: str, records: str | None) -> Known:
    """The task's schedule if it has no open draws, or the best that is known. Raises TschedError (E0911) if there is none."""
    from tensorc_dsl.faces.api.kernel import Drawn, Given, Known

    trace = task.sample(0)
    if not trace.open_draws:
        return Known(trace, Given())
    found = best_known(task, file, records, or_draw=False)
    if isinstance(found.origin, Drawn):
        raise _open(task, trace)
    return found


def _open(task: Task, trace: Trace) -> TschedError:
    names = [d.name for d in trace.open_draws]
    many = "draw is open" if len(names) == 1 else "draws are open"
    listed = ", ".join(f"`{n}`" for n in names)
    return TschedError(COMPILED_DRAWS_NOT_FIXED(None, task=task.name, draws=f"its {many}: {listed}", first=names[0]))


def _paths(
    task: str, kinds: tuple[str, ...], output: str | None, forms: Mapping[str, Form]
) -> dict[Output, str] | None:
    """The file for each kind; None where the only one is printed."""
    for kind in kinds:
        if kind not in forms:
            raise click.BadParameter(f"{kind!r} is not one of {', '.join(forms)}.", param_hint="'--emit'")
    *others, kind = kinds
    if others:
        if output == "-":
            raise click.UsageError("`-o -` prints one text: give one `--emit`")
        folder, found = Path(output or ""), {kind: forms[kind] for kind in kinds}
        return {Output(folder / f"{task}{f.suffix}", executable=f.executable): kind for kind, f in found.items()}
    if output == "-" and not forms[kind].text:
        raise click.UsageError(f"`--emit {kind}` makes no text: give `-o` a path")
    if output == "-" or (output is None and forms[kind].text):
        return None
    return {Output.at(output, f"{task}{forms[kind].suffix}", forms[kind].executable): kind}
