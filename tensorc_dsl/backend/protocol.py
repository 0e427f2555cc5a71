"""The protocol of a backend, which turns programs for one kind of target into kernels that run; and how one is found.

A backend is a folder of `tensorc_dsl/backend/`, or of a package that declares the entry point `tensorc_dsl.backends`. Its
name is the kind of its targets, and `BACKEND` in its module `backend` is the object with these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.extensions import BACKENDS
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.arena import Arrangement
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.reference.work import Work


class CompileError(Exception):
    """The code generator refuses a kernel: a failed candidate."""


class KernelFault(RuntimeError):
    """What runs the kernel, such as a GPU, has stopped it: a failed candidate.

    If it is `lost`, no kernel of this process can run on it any more.
    """

    def __init__(self, message: str, *, lost: bool) -> None:
        super().__init__(message)
        self.lost = lost


@frozen
class Form:
    """A kind of file that can be made from a kernel ahead of time: its suffix, whether it is text, and whether the system can
    execute it.

    `usual` ones are made by default.
    """

    suffix: str
    text: bool
    about: str
    usual: bool = False
    executable: bool = False


@frozen
class Processor:
    """The processor of this kind in the current machine, as the code generator sees it.

    `facts` are further ones of a `Target`, for kinds about which the system has no facts.
    """

    name: str
    features: str
    vector_bits: int
    triple: str
    facts: Mapping[str, int | str] = field(default_factory=dict[str, int | str])


@frozen
class Code:
    """The machine code of a kernel, as a value that another process on the same machine can load.

    `kept` names the constant inputs that calls read, besides prepared memory.
    """

    object_code: bytes
    symbol: str
    kept: frozenset[str]


@frozen
class CodeLoop:
    """The instructions of a loop of a kernel's code that are in no loop inside it: how many there are of each class, and of
    each kind of access and product. `around` is the number of the loop around it, -1 for what is in none."""

    around: int
    instructions: Mapping[str, int]
    requests: Mapping[str, int]


@frozen
class Registers:
    """What an assembler on this machine says: the registers of a thread of each kernel, by its name, and what threads keep in
    memory for want of them, "" if that is nothing. Without an assembler nothing is known of them. `loops` has the code of
    each kernel, of the assembler or what it would get."""

    threads: Mapping[str, int] = field(default_factory=dict[str, int])
    spilled: str = ""
    loops: Mapping[str, tuple[CodeLoop, ...]] = field(default_factory=dict[str, tuple[CodeLoop, ...]])


class LoweredKernel(Protocol):
    """A scheduled program in the form that the backend's code generator takes."""

    @property
    def name(self) -> str: ...


class CompiledKernel(Protocol):
    """A kernel in machine code."""

    @property
    def code(self) -> Code: ...

    def view(self, stage: str) -> str:
        """The text of one of the backend's `stages`."""
        ...


ORDERS = ("forward", "reversed", "shuffled")
"""The orders in which an emulation runs threads that nothing orders."""


@frozen
class Traffic:
    """What one access of a statement costs a kernel in all: its requests, each by all threads that run together, and what
    they move: sectors of global memory, or passes over the banks of memory that a block shares. `least` is what they would
    move if all threads of a request met in as few sectors or passes as their data have."""

    into: str
    """The buffer that the statement writes."""
    buffer: str
    write: bool
    shared: bool
    requests: int
    moves: int
    least: int


@frozen
class Counts:
    """What a kernel costs, counted: its blocks, the barriers that each thread of the last one meets, and its accesses."""

    kernel: str
    blocks: int
    barriers: int
    traffic: tuple[Traffic, ...]

    def moves(self, shared: bool) -> int:
        """What all accesses to one kind of memory move."""
        return sum(t.moves for t in self.traffic if t.shared == shared)


class EmulatedKernel(Protocol):
    """A kernel for another kind of machine, which this one runs thread by thread."""

    def run(self, arrays: Mapping[str, Array], sizes: Mapping[str, int], order: str) -> str:
        """Run it on the arrays of all parameters and sizes of all open dimensions, in one of `ORDERS`.

        Returns what is wrong with it: threads that race or come to different barriers, accesses that are out of bounds; ""
        if nothing is.
        """
        ...

    def count(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> tuple[str, tuple[Counts, ...]]:
        """As `run` in the first order, with what each of its kernels costs; nothing of those behind a fault."""
        ...


class KernelLibrary(Protocol):
    """The ahead-of-time output of a kernel."""

    def make(self, form: str) -> bytes:
        """A file in one of the backend's `forms`; texts are UTF-8. Raises TschedError if it cannot be made."""
        ...


class Bound(Protocol):
    """A kernel with its constant inputs bound; call it with the other inputs."""

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several, for arrays in order or by name.

        Raises ValueError if an array does not fit its parameter, KernelFault.
        """
        ...

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, without the cost of calling from Python."""
        ...


class LoadedKernel(Bound, Protocol):
    """A kernel in this process."""

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters of a call: inputs, then outputs."""
        ...

    def bind(self, /, **constants: Any) -> Bound:
        """The kernel for these constant inputs, all given by name."""
        ...


@runtime_checkable
class Turning(Protocol):
    """A kernel that can be timed with copies of its constant inputs."""

    def turning(self, arrays: Sequence[Any], copies: int) -> Callable[[int], list[float]]:
        """A function that gives the seconds of so many runs in a row, as `time` does, whose runs take the copies in turn."""
        ...


class Backend(Protocol):
    """Turns a scheduled program into a kernel that runs, for targets of one kind."""

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of `lower`, in order."""
        ...

    @property
    def stages(self) -> Mapping[str, str]:
        """The stages that `CompiledKernel.view` can show, with a description of each."""
        ...

    @property
    def forms(self) -> Mapping[str, Form]:
        """The forms that `library` can make."""
        ...

    def processor(self) -> Processor:
        """The processor of this machine. Raises TschedError if the machine has none of this kind."""
        ...

    def require_known(self, target: Target) -> None:
        """Raises TschedError if no code can be made for the target's CPU or one of its features."""
        ...

    def require_here(self, target: Target, task: str) -> None:
        """Raises TschedError if kernels for the target cannot run on this machine."""
        ...

    def with_cpu(self, target: Target, cpu: str) -> Target:
        """The target with another processor of the same kind of machine. Raises TschedError if it is unknown."""
        ...

    def describe_processors(self, target: Target) -> str:
        """The processors that `with_cpu` takes, and their features, one per line."""
        ...

    def lower(self, program: Program, target: Target) -> LoweredKernel:
        """The kernel of a scheduled program. Raises LowerError."""
        ...

    def text(self, lowered: LoweredKernel) -> str:
        """The kernel as text for people."""
        ...

    def key(self, lowered: LoweredKernel) -> str:
        """A text that is equal for kernels with the same loops, whatever their names."""
        ...

    def text_after(self, program: Program, target: Target, last: str) -> str:
        """The program after the pass of that name, as text for people."""
        ...

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> CompiledKernel:
        """Machine code; parallel loops run on up to `threads` threads. Raises CompileError."""
        ...

    def emulate(self, lowered: LoweredKernel) -> EmulatedKernel | None:
        """The kernel as code for the CPU of this machine that runs it thread by thread; None for targets that are CPUs.

        Raises CompileError.
        """
        ...

    def cycles(
        self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], registers: Registers
    ) -> float | None:
        """What a model of time gives a kernel at these sizes, in cycles of the target; None where there is none. It counts
        what `registers` do not say itself."""
        ...

    def explain(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], *, brief: bool = False) -> str:
        """What bounds each part of a kernel at these sizes by the model of time, for people, or if `brief`, in a line what
        keeps it from the peak; "" where there is no model."""
        ...

    def constants(self, target: Target, *, measure: bool = False) -> Mapping[str, float]:
        """What the model of time takes of the target's processor, by name; empty where there is none. If it is this
        machine's, and not known yet, it is measured if `measure` says so, in a second or two."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers of `features`; none where kernels are described by their scheduled programs alone."""
        ...

    def features(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int]) -> tuple[float, ...]:
        """What a kernel does at these sizes, in numbers for a search: one for each of `columns`."""
        ...

    def registers(self, compiled: CompiledKernel) -> Registers:
        """The registers of kernels, as reported by an assembler on this machine.

        Raises CompileError.
        """
        ...

    def load(self, code: Code, program: Program, threads: int) -> LoadedKernel:
        """The kernel of a program in this process; the program need not be scheduled.

        Raises CompileError if it cannot be linked.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array with the alignment that kernels prefer."""
        ...

    def library(self, compiled: CompiledKernel, name: str, origin: str) -> KernelLibrary:
        """The library of a task; its header names the `origin` of the schedule.

        Raises TschedError if its name is not allowed, CompileError and LowerError.
        """
        ...

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        """The titles of the instructions for such work on the target; none if no measured instruction does it."""
        ...

    def peak(self, title: str, target: Target, threads: int) -> float:
        """Operations/s of one of the `multipliers`, in registers; a multiplication and an addition are two."""
        ...

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        """Bytes/s over `size` bytes of memory, read or copied."""
        ...


class LoadedCalls(Bound, Protocol):
    """The calls of a model in this process, as one kernel."""

    def step_times(self, arrays: Sequence[object], repeats: int) -> list[list[float]]:
        """Seconds of each step of the plan in order, of `repeats` runs in a row on the same inputs and outputs."""
        ...

    def arguments_of(self, arrays: Sequence[object], step: int) -> tuple[Array | None, ...]:
        """Copies of the inputs of a call, the step of that number, as the steps before it leave them; None for weights."""
        ...


@frozen
class ModelCalls:
    """A model as a function of arrays: its inputs and outputs, and its steps with a place for each value."""

    name: str
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    plan: Arrangement


@runtime_checkable
class ModelBackend(Protocol):
    """A backend for targets on which models run: one that has these methods, too."""

    @property
    def model_forms(self) -> Mapping[str, Form]:
        """The forms that `model_library` can make."""
        ...

    def load_calls(
        self, model: ModelCalls, kernels: Mapping[str, LoadedKernel], weights: Mapping[str, Array]
    ) -> LoadedCalls:
        """A model as one kernel; `kernels` are those of the tasks that it calls.

        The weights are packed here, and are not needed afterwards. Raises OutOfMemory.
        """
        ...

    def model_library(
        self,
        model: ModelCalls,
        kernels: Mapping[str, LoweredKernel],
        weights: Mapping[str, Array],
        target: Target,
        threads: int,
        origin: str,
    ) -> KernelLibrary:
        """The library of a model; its header names the `origin` of the schedules.

        Raises TschedError if its name is not allowed, CompileError and OutOfMemory.
        """
        ...


@problem(
    "E0910",
    "no code can be made for targets of kind `{kind}`, so `{task}` cannot be compiled, run or measured for this one",
    help="look at what its space draws: `show --stage ir --scheduled`, `sample`, `verify`; or take a target of kind {known}",
)
def NO_CODE(*, kind: str, task: str, known: str) -> None: ...
@problem(
    "E0910",
    "models do not run on targets of kind `{kind}`, so `{model}` cannot be compiled or run for this one",
    help="run the model on this machine's CPU: leave out `--target`",
)
def NO_MODELS(*, kind: str, model: str) -> None: ...


@cache
def backend_of(kind: str) -> Backend | None:
    """The backend for targets of that kind; None if there is none. Raises TschedError (E0930) if it cannot be loaded."""
    return BACKENDS.load(kind)


def require_backend(kind: str, task: str) -> Backend:
    """As `backend_of`. Raises TschedError (E0910) if there is no backend."""
    found = backend_of(kind)
    if found is None:
        known = " or ".join(f"`{name}`" for name in BACKENDS.names())
        raise TschedError(NO_CODE(None, kind=kind, task=task, known=known))
    return found


def require_models(kind: str, model: str) -> ModelBackend:
    """The backend on whose targets the model runs. Raises TschedError (E0910) if models do not run on targets of the kind."""
    found = require_backend(kind, model)
    if not isinstance(found, ModelBackend):
        raise TschedError(NO_MODELS(None, kind=kind, model=model))
    return found


def native() -> Backend:
    """The backend for the current CPU."""
    return require_backend(Target().kind, "the machine")
