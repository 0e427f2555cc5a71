"""Makes kernels from schedules, or an error with the reason of a failure."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.backend.protocol import Backend, CompiledKernel, CompileError, LoadedKernel, LoweredKernel
from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.ir.program import IN_RANGE, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.syntax.tree import TaskDef
from tensorc_dsl.tuning.measure.emulation import MOST_FLOPS, Emulated, emulate, too_large


def require_code(target: Target, task: str) -> Backend:
    """The backend for the target. Raises TschedError (E0910, E0915, E0916) if no code can be made for it."""
    backend = require_backend(target.kind, task)
    backend.require_known(target)
    return backend


def require_machine(target: Target, task: str) -> None:
    """Raises TschedError (E0910, E0914, E0915, E0916) if kernels for the target cannot run on this machine."""
    require_code(target, task).require_here(target, task)


@problem(
    "E0920",
    "`{task}` is for a target of kind `{kind}`, a CPU, and only kernels for other machines are emulated",
    help="leave out `--emulate`: they run as they are",
)
def NOT_EMULATED(*, task: str, kind: str) -> None: ...
@problem(
    "E0921",
    "`{task}` takes {count:.2g} operations, and up to {most:.2g} are emulated",
    help="emulate it at smaller sizes, with a `task` of its own",
)
def TOO_LARGE(*, task: str, count: float, most: float) -> None: ...


@problem(
    "E0908",
    "the schedule {how}: {why}",
    help="take another schedule: `tune` searches for one, `sample --seed N` draws one",
)
def FAILED(*, how: str, why: str) -> None: ...


def failed(how: str, why: str, task: TaskDef | None = None) -> TschedError:
    """The error for a schedule that was requested by name and failed, at its task if that is known."""
    return TschedError(FAILED(task and task.name.span, how=how, why=why))


@contextmanager
def failing_at(task: TaskDef) -> Generator[None]:
    """Schedules that fail, without a place, do so at the task."""
    try:
        yield
    except TschedError as e:
        if e.diagnostics[0].code != "E0908" or e.diagnostics[0].span is not None:
            raise
        raise TschedError(replace(e.diagnostics[0], span=task.name.span)) from e.__cause__


def lowered(program: Program, target: Target) -> LoweredKernel:
    """A scheduled program, lowered. Raises TschedError (E0908) if it cannot be lowered."""
    try:
        return lowered_once(program, target).packed.unpack()
    except LowerError as e:
        raise failed("cannot be lowered", str(e)) from e


def lowered_text(program: Program, target: Target, after: str | None) -> str:
    """The lowered program as text, or the program after one of the passes. Raises TschedError (E0908)."""
    backend = lowering_for(target)
    if after is None:
        return backend.text(lowered(program, target))
    try:
        return backend.text_after(program, target, after)
    except LowerError as e:
        raise failed("cannot be lowered", str(e)) from e


def emulated(program: Program, scheduled: Program, target: Target, registers: Mapping[str, int]) -> Emulated:
    """A scheduled program, run on this CPU thread by thread and checked. A model of time takes the `registers` of a thread of
    each kernel, where they are known.

    Raises TschedError (E0908, E0910, E0915, E0920, E0921) if it cannot be.
    """
    backend = require_code(target, program.name)
    if count := too_large(program):
        raise TschedError(TOO_LARGE(None, task=program.name, count=count, most=MOST_FLOPS))
    lower = lowered(scheduled, target)
    try:
        kernel = backend.emulate(lower)
    except CompileError as e:
        raise failed("does not compile", str(e)) from e
    if kernel is None:
        raise TschedError(NOT_EMULATED(None, task=program.name, kind=target.kind))
    found = emulate(program, kernel, extremes=(IN_RANGE, True) not in scheduled.annotations)
    return replace(found, cycles=None if found.fault else backend.cycles(lower, target, found.counted_at, registers))


def require_registers(scheduled: Program, target: Target) -> Mapping[str, int]:
    """The registers of a thread of each kernel, if an assembler is here that says so.

    Raises TschedError (E0908) if it says that they do not suffice, or if there is no code.
    """
    backend = require_code(target, scheduled.name)
    try:
        found = backend.registers(backend.compile(lowered(scheduled, target), target, 1))
    except CompileError as e:
        raise failed("does not compile", str(e)) from e
    if found.spilled:
        raise failed("spills registers", f"{found.spilled}; make the tiles of a thread smaller")
    return found.threads


def compiled(program: Program, target: Target, threads: int) -> CompiledKernel:
    """A scheduled program in machine code. Raises TschedError (E0908, E0910) if that fails."""
    try:
        return require_backend(target.kind, program.name).compile(lowered(program, target), target, threads)
    except CompileError as e:
        raise failed("does not compile", str(e)) from e


def viewed(kernel: CompiledKernel, stage: str) -> str:
    """The text of a stage of a compiled kernel. Raises TschedError (E0908, E0919) if there is none."""
    try:
        return kernel.view(stage)
    except CompileError as e:
        raise failed(f"has no stage `{stage}`", str(e)) from e


def loaded(program: Program, target: Target, threads: int) -> LoadedKernel:
    """A scheduled program as a kernel in this process. Raises TschedError (E0908, E0910) if that fails."""
    code = compiled(program, target, threads).code
    try:
        return require_backend(target.kind, program.name).load(code, program, threads)
    except CompileError as e:
        raise failed("cannot be loaded", str(e)) from e
