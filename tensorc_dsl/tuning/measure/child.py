"""The work of child processes that measure: they compile kernels, check them against the
reference in guarded memory, and time them.

A builder runs no kernel, so it unpacks what the parent packed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.once import Packed
from tensorc_dsl.backend.protocol import (
    Backend,
    Code,
    CompileError,
    KernelFault,
    LoadedKernel,
    Turning,
    native,
    require_backend,
)
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import stored_dtype
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.sizes import Sizes, bind, elements_spanned, strides_of
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.lower.storage import callers_params
from tensorc_dsl.processes.machine import use_blas_threads
from tensorc_dsl.processes.protocol import Purpose
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import extreme_inputs, make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.work import describe, sizing
from tensorc_dsl.tuning.measure.check import Guarded, Verdict, compare, other_bits, poison, read_only
from tensorc_dsl.tuning.measure.outcome import ENOUGH_SECONDS, Taken, seconds_of, take_times, weighted_times

Array = NDArray[Any]


class Build(msgspec.Struct, tag=True, frozen=True):
    """To a builder: compile a kernel of a task, packed as `backend.once` does it; if it is to have a `form`, as a library of
    its backend in that form."""

    task: str
    kernel: bytes
    parts: int
    target: Target
    threads: int
    form: str = ""


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """To a runner: from now on kernels compute this unscheduled program, on inputs made from the seed.

    Of a program with open dimensions, at the sizes of `reference.work`. `kind` is that of their target; the linear
    algebra of the reference has so many `threads`. Timed calls take so many `copies` of the constant inputs in turn. Kernels
    give the bits of the kernel `bits_of`, if there is one, but for which of two zeros it is where `zeros` says so.
    """

    program: str
    kind: str
    seed: int
    threads: int
    copies: int = 1
    bits_of: Code | None = None
    zeros: bool = False


class Run(msgspec.Struct, tag=True, frozen=True):
    """To a runner: check and time a kernel; `best` is the time to beat, if there is one. It is checked at `extremes`,
    too, unless its schedule says that inputs have none.
    """

    code: Code
    threads: int
    best: float | None
    extremes: bool = True


class Built(msgspec.Struct, tag=True, frozen=True):
    """From a builder: the code for a runner, or the file in the form that was asked for."""

    code: Code
    file: bytes = b""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """From any child: the candidate failed."""

    status: Literal["compile_error", "wrong_result", "crash", "refused"]
    message: str
    max_error: float | None = None


class Prepared(msgspec.Struct, tag=True, frozen=True):
    """From a runner, which has the inputs and the reference: the share of the results that checks compare with numbers."""

    compared: float


class Ran(msgspec.Struct, tag=True, frozen=True):
    """The result was right; seconds of each timed call, fewer where it is far slower than the best (`censored`). With open
    sizes they are of the mean, and `at` has the seconds at each size."""

    times: tuple[float, ...]
    max_error: float
    censored: bool = False
    at: tuple[float, ...] = ()


BUILDER: Purpose[Build, Built | Failed] = Purpose(f"{__name__}:builder", Build, Built | Failed)
RUNNER: Purpose[Prepare | Run, Prepared | Ran | Failed] = Purpose(
    f"{__name__}:runner", Prepare | Run, Prepared | Ran | Failed
)


def builder() -> None:
    """Compile what the parent sends. The process contains crashes of LLVM."""
    BUILDER.serve(build)


def build(request: Build) -> Built | Failed:
    """The object code, or the error of the code generator, or what a kernel keeps in memory for want of registers."""
    backend = require_backend(request.target.kind, request.task)
    kernel = Packed(request.kernel, request.parts).unpack()
    try:
        compiled = backend.compile(kernel, request.target, request.threads)
        spilled = backend.registers(compiled).spilled
        file = b""
        if request.form and not spilled:
            file = backend.library(compiled, request.task, TRIED).make(request.form)
    except (CompileError, LowerError, TschedError) as e:
        return Failed("compile_error", str(e))
    if spilled:
        return Failed("refused", f"the schedule spills registers: {spilled}; make the tiles of a thread smaller")
    return Built(compiled.code, file)


TRIED = "one that a search tries"
"""What the file of a candidate says of its schedule."""


@frozen
class Task:
    """The task of the kernels at one size: inputs, reference and tolerance.

    The arrays are write-protected, so that no kernel can change the reference.
    """

    program: Program
    inputs: dict[str, Array]
    expected: dict[str, Array]
    allowed: dict[str, Array]
    bits: dict[str, Array] | None = None
    """The results whose bits a kernel gives; None if it may give any that are right."""
    zeros: bool = False
    """Whether either of two zeros has the right bits."""

    @staticmethod
    def of(program: Program, seed: int) -> Task:
        return Task._on(program, make_inputs(program, seed))

    @staticmethod
    def at_extremes(program: Program, seed: int) -> Task | None:
        """The task at infinities and factors that undo each other, where a scan with factors may be regrouped."""
        inputs = extreme_inputs(program, seed)
        return None if inputs is None else Task._on(program, inputs)

    @staticmethod
    def _on(program: Program, inputs: dict[str, Array]) -> Task:
        expected, allowed = bounded(program, inputs)
        given, results, margins = (
            {n: read_only(a) for n, a in arrays.items()} for arrays in (inputs, expected, allowed)
        )
        return Task(program, given, results, margins)

    @property
    def compared(self) -> float:
        """The share of the results that are compared with numbers or infinities: not where the reference is NaN, nor where
        rounding explains every value."""
        found = [~np.isnan(self.expected[p.name]) & np.isfinite(self.allowed[p.name]) for p in self.program.outputs]
        count = sum(x.size for x in found)
        return sum(int(x.sum()) for x in found) / count if count else 1.0

    def verdict(self, arrays: dict[str, Array]) -> Verdict:
        """Compare the outputs with the reference, and the inputs with their old values."""
        updated = {p.updates for p in self.program.params}
        for name, before in self.inputs.items():
            if name not in updated and arrays[name].tobytes() != before.tobytes():
                return Verdict(np.inf, f"it changes its input `{name}`")
        worst = 0.0
        for p in self.program.outputs:
            verdict = compare(p.name, arrays[p.updates or p.name], self.expected[p.name], self.allowed[p.name], p.dtype)
            worst = max(worst, verdict.max_error)
            if verdict.fault:
                return verdict
            if self.bits is not None:
                other = other_bits(p.name, arrays[p.updates or p.name], self.bits[p.name], p.dtype, self.zeros)
                if other:
                    return Verdict(np.inf, other)
        return Verdict(worst)


@frozen
class Job:
    """A task at all the sizes at which its kernels are checked, and for each at which they are timed its weight."""

    program: Program
    backend: Backend
    checked: tuple[Task, ...]
    sizes: tuple[Sizes, ...]
    timed: tuple[tuple[Task, float], ...]
    extremes: tuple[Task, ...]
    """The task at inputs that products of a scan's factors do not pass through, at the first size; none without factors."""
    copies: int

    @staticmethod
    def of(request: Prepare) -> Job:
        program, seed = parse_program(Source("task", request.program)), request.seed
        backend = require_backend(request.kind, program.name)
        found = sizing(program)
        every: list[Sizes] = [*found.checked, *(x for x in found.timed if x not in found.checked)]
        tasks = [Task.of(bind(program, x), seed) for x in every]
        if request.bits_of is not None:
            kernel = backend.load(request.bits_of, program, request.threads)
            tasks = [replace(t, bits=_ran(t, kernel), zeros=request.zeros) for t in tasks]
        timed = tuple((tasks[every.index(x)], w) for x, w in zip(found.timed, found.weights, strict=True))
        at_extremes = Task.at_extremes(tasks[0].program, seed)
        return Job(
            program,
            backend,
            tuple(tasks),
            tuple(every),
            timed,
            () if at_extremes is None else (at_extremes,),
            request.copies,
        )


def _ran(task: Task, kernel: LoadedKernel) -> dict[str, Array]:
    """The outputs of a kernel, by name, as memory holds them."""
    guarded = _run_guarded(task, kernel)
    return {p.name: read_only(guarded[p.updates or p.name].array) for p in task.program.outputs}


def _run_guarded(task: Task, kernel: LoadedKernel) -> dict[str, Guarded]:
    """The guarded arrays after one run, before which outputs are filled with poison."""
    guarded = {p.name: Guarded(shape_of(p), stored_dtype(p.dtype), strides_of(p)) for p in callers_params(task.program)}
    for name, g in guarded.items():
        if name in task.inputs:
            g.array[...] = task.inputs[name]
        else:
            poison(g.array)
    kernel(*(g.array for g in guarded.values()))
    return guarded


def _checked(task: Task, kernel: LoadedKernel) -> Verdict:
    """Run the kernel once on guarded arrays."""
    guarded = _run_guarded(task, kernel)
    for name, g in guarded.items():
        if side := g.trespassed():
            where = "its elements" if side == "between" else "its first or last element"
            return Verdict(np.inf, f"it writes outside of `{name}`: {side} {where}")
    return task.verdict({name: g.array for name, g in guarded.items()})


AT_EXTREMES = "where factors of the scan undo each other, and a term is infinite"
"""What precedes a fault at the task's extremes."""


def fault_at(sizes: Sizes, fault: str) -> str:
    """A fault with the sizes at which it is seen, if some are open."""
    name = describe(sizes)
    return f"for {name}: {fault}" if name else fault


def run(job: Job, request: Run) -> Ran | Failed:
    """Check at all sizes, then time, and check again."""
    try:
        # Its parameters are the task's, whatever it was built from.
        kernel = job.backend.load(request.code, job.program, request.threads)
    except CompileError as e:
        return Failed("compile_error", str(e))
    worst = 0.0
    for task, sizes in zip(job.checked, job.sizes, strict=True):
        verdict = _checked(task, kernel)
        if verdict.fault:
            return Failed("wrong_result", fault_at(sizes, verdict.fault), verdict.max_error)
        worst = max(worst, verdict.max_error)
    for task in job.extremes if request.extremes else ():
        verdict = _checked(task, kernel)
        if verdict.fault:
            return Failed("wrong_result", f"{AT_EXTREMES}: {verdict.fault}", verdict.max_error)
    of_sizes: list[tuple[float, ...]] = []
    censored = False
    for task, weight in job.timed:
        # Alone, a size makes the mean at least its weighted time.
        best = None if request.best is None else request.best / weight
        timed = _timed(task, kernel, job, best, ENOUGH_SECONDS / len(job.timed))
        if isinstance(timed, Failed):
            return timed
        taken, error = timed
        of_sizes.append(taken.times)
        censored |= taken.censored
        worst = max(worst, error)
    at = tuple(map(seconds_of, of_sizes)) if len(of_sizes) > 1 else ()
    return Ran(weighted_times(of_sizes, [w for _, w in job.timed]), worst, censored, at)


def empty_for(p: Buffer, backend: Backend) -> Array:
    """An uninitialised array for a parameter, laid out as declared, in memory that the backend prefers."""
    shape, strides, dtype = shape_of(p), strides_of(p), stored_dtype(p.dtype)
    memory = backend.empty((elements_spanned(shape, strides),), dtype)
    return np.ndarray(shape, dtype, memory, 0, tuple(n * dtype.itemsize for n in strides))


def _timed(
    task: Task, kernel: LoadedKernel, job: Job, best: float | None, enough: float
) -> tuple[Taken, float] | Failed:
    """The times of the kernel, and the largest error of its last run."""
    # Timed where a caller's arrays would be: the page at whose end a guarded array lies decides about its cache sets.
    arrays = {p.name: empty_for(p, job.backend) for p in callers_params(task.program)}
    for name, values in task.inputs.items():
        arrays[name][...] = values
    in_order = list(arrays.values())
    updated = [p.updates for p in task.program.params if p.updates]
    timed = partial(kernel.time, in_order)
    if job.copies > 1 and isinstance(kernel, Turning):
        timed = kernel.turning(in_order, job.copies)

    def time_calls(calls: int) -> list[float]:
        if not updated:
            return timed(calls)
        times: list[float] = []
        for _ in range(calls):
            # Outside of the timed part: updated again and again, values would reach infinity or stay denormal.
            for name in updated:
                arrays[name][...] = task.inputs[name]
            times += timed(1)
        return times

    taken = take_times(time_calls, best, enough)
    # Once more: a kernel that is right only on its first run, or only most of the time, is wrong.
    again = task.verdict(arrays)
    if again.fault:
        return Failed("wrong_result", f"after {len(taken.times)} runs, {again.fault}", again.max_error)
    return taken, again.max_error


def preload() -> None:
    """Load what most requests need: the fork server does, before it forks."""
    native()


def runner() -> None:
    """Check and time the kernels of one task after another."""
    job: Job | None = None

    def answer(request: Prepare | Run) -> Prepared | Ran | Failed:
        nonlocal job
        match request:
            case Prepare():
                use_blas_threads(request.threads)
                job = Job.of(request)
                return Prepared(min(task.compared for task in job.checked))
            case Run():
                assert job is not None
                try:
                    return run(job, request)
                except KernelFault as e:
                    if e.lost:
                        raise
                    return Failed("crash", str(e))

    RUNNER.serve(answer, crashes=(KernelFault,))
