"""What a backend is: how programs for one kind of target become kernels that run.

A backend is a folder of `tensorc_dsl/backend/`, or of a package that declares the entry point `tensorc_dsl.backends`. It is
called by the kind of its targets, and `BACKEND` in its module `backend` is the object that has these methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.reference.count import Work


class CompileError(Exception):
    """The code generator does not take a kernel: a failed candidate."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of file that can be made of a kernel ahead of time: how its name ends, and whether it is text."""

    suffix: str
    text: bool
    about: str


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor of this kind that we are on, as the code generator calls it."""

    name: str
    features: str
    vector_bits: int
    triple: str


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code of a kernel, as another process on the same machine can load it.

    `kept` names the constant inputs that calls read, beside what was prepared of them.
    """

    object_code: bytes
    symbol: str
    kept: frozenset[str]


class LoweredKernel(Protocol):
    """A scheduled program as its backend's code generator takes it."""

    @property
    def name(self) -> str: ...


class CompiledKernel(Protocol):
    """A kernel in machine code."""

    @property
    def code(self) -> Code: ...

    def view(self, stage: str) -> str:
        """One of the backend's `stages`, as text."""
        ...


class KernelLibrary(Protocol):
    """What is made of a kernel ahead of time."""

    def make(self, form: str) -> bytes:
        """A file of one of the backend's `forms`; texts are UTF-8. Raises TschedError where it cannot be made."""
        ...


class Bound(Protocol):
    """A kernel whose constant inputs are given; call it with the other ones."""

    def __call__(self, *arrays: Any) -> Any:
        """The output, or a tuple of several. ValueError where an array is not what the kernel takes."""
        ...

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, without the cost of calling from Python."""
        ...


class LoadedKernel(Bound, Protocol):
    """A kernel in this process."""

    @property
    def params(self) -> tuple[Param, ...]:
        """What it is called with: inputs, then outputs."""
        ...

    def bind(self, **constants: Any) -> Bound:
        """The kernel for these constant inputs, all of them by name."""
        ...


class Backend(Protocol):
    """From a scheduled program to a kernel that runs, for targets of one kind."""

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of `lower`, in order."""
        ...

    @property
    def stages(self) -> Mapping[str, str]:
        """What `CompiledKernel.view` can show, with a few words on each."""
        ...

    @property
    def forms(self) -> Mapping[str, Form]:
        """What `library` can make."""
        ...

    def processor(self) -> Processor:
        """Raises TschedError where this machine has none of this kind."""
        ...

    def require_known(self, target: Target) -> None:
        """Raises TschedError where no code can be made for the target's CPU or one of its features."""
        ...

    def require_here(self, target: Target, task: str) -> None:
        """Raises TschedError where kernels for the target cannot run on this machine."""
        ...

    def with_cpu(self, target: Target, cpu: str) -> Target:
        """The target with another processor of the same kind of machine. Raises TschedError where it is unknown."""
        ...

    def describe_processors(self, target: Target) -> str:
        """The processors that `with_cpu` takes, and their features, a line each."""
        ...

    def lower(self, program: Program, target: Target) -> LoweredKernel:
        """The kernel of a scheduled program. Raises LowerError."""
        ...

    def text(self, lowered: LoweredKernel) -> str:
        """The kernel as text, for people."""
        ...

    def key(self, lowered: LoweredKernel) -> str:
        """A text that is equal for kernels with the same loops, whatever those are called."""
        ...

    def text_after(self, program: Program, target: Target, last: str) -> str:
        """The program after the pass of that name, as text, for people."""
        ...

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> CompiledKernel:
        """Machine code; parallel loops run on up to `threads` threads. Raises CompileError."""
        ...

    def load(self, code: Code, program: Program, threads: int) -> LoadedKernel:
        """The kernel of a program in this process; the program need not be scheduled.

        CompileError where it cannot be linked.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array where kernels like it best."""
        ...

    def library(self, compiled: CompiledKernel, name: str) -> KernelLibrary:
        """The library of a task. Raises TschedError where it cannot be called so, CompileError and LowerError."""
        ...

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        """The titles of what multiplies and adds such values on the target; none where nothing that is measured does."""
        ...

    def peak(self, title: str, target: Target, threads: int) -> float:
        """Operations/s of one of the `multipliers`, in registers; a multiplication and an addition are two."""
        ...

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        """Bytes/s over `size` bytes of memory, read or copied."""
        ...
