"""Prints each kernel of a scheduled program: how many blocks and threads it is started with, and what a thread does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import Backend, Code, CompiledKernel, CompileError, Form, LoweredKernel, Registers
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import For, Program, Stmt, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.reference.work import Work


@problem("TOY4", "there is no toy GPU here, so `{task}` cannot run")
def NOT_HERE(*, task: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Printed:
    """The kernels of a program as text."""

    name: str
    text: str

    @property
    def code(self) -> Code:
        return Code(self.text.encode(), self.name, frozenset())

    def view(self, stage: str) -> str:
        return self.text

    def make(self, form: str) -> bytes:
        return self.text.encode()


def _kernel(program: Program, number: int, s: Stmt, target: Target) -> str:
    sizes: dict[str, int] = {}
    for _, x in walk((s,)):
        if isinstance(x, For) and x.axis is not None:
            sizes[str(x.axis)] = constant(x.extent) or 0
    if not any(axis.startswith("block") for axis in sizes):
        raise LowerError("a loop of each kernel is bound to blocks")
    threads = 1
    for axis, size in sizes.items():
        threads *= 1 if axis.startswith("block") else size
    if threads > target.threads:
        raise LowerError(f"a block of the toy has up to {target.threads} threads")
    started = ", ".join(f"{axis} {size}" for axis, size in sorted(sizes.items()))
    return f"kernel {number}: {started}\n{format_program(replace(program, body=(s,)))}"


@dataclass(frozen=True, slots=True)
class ToyGpuBackend:
    """Text, for people."""

    @property
    def passes(self) -> tuple[str, ...]:
        return ()

    @property
    def stages(self) -> Mapping[str, str]:
        return {"toy": "their text"}

    @property
    def forms(self) -> Mapping[str, Form]:
        return {"toy": Form(".toy", True, "the text", usual=True)}

    def processor(self) -> NoReturn:
        raise TschedError(NOT_HERE(None, task="the machine"))

    def require_known(self, target: Target) -> None:
        pass

    def require_here(self, target: Target, task: str) -> None:
        raise TschedError(NOT_HERE(None, task=task))

    def with_cpu(self, target: Target, cpu: str) -> Target:
        return replace(target, cpu=cpu)

    def describe_processors(self, target: Target) -> str:
        return "any\n"

    def lower(self, program: Program, target: Target) -> Printed:
        kernels = [_kernel(program, n, s, target) for n, s in enumerate(program.body)]
        return Printed(program.name, "\n".join(kernels))

    def text(self, lowered: LoweredKernel) -> str:
        assert isinstance(lowered, Printed)
        return lowered.text

    def key(self, lowered: LoweredKernel) -> str:
        return self.text(lowered)

    def text_after(self, program: Program, target: Target, last: str) -> str:
        raise KeyError(last)

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> Printed:
        assert isinstance(lowered, Printed)
        return lowered

    def emulate(self, lowered: LoweredKernel) -> None:
        return None

    def cycles(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], registers: Registers) -> None:
        return None

    def explain(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], *, brief: bool = False) -> str:
        return ""

    def constants(self, target: Target, *, measure: bool = False) -> Mapping[str, float]:
        return {}

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def features(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int]) -> tuple[float, ...]:
        return ()

    def registers(self, compiled: CompiledKernel) -> Registers:
        return Registers()

    def load(self, code: Code, program: Program, threads: int) -> NoReturn:
        raise CompileError("the toy only prints")

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return aligned_empty(shape, dtype)

    def library(self, compiled: CompiledKernel, name: str, origin: str) -> Printed:
        assert isinstance(compiled, Printed)
        return compiled

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        return ()

    def peak(self, title: str, target: Target, threads: int) -> float:
        raise KeyError(title)

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        return 1e12


BACKEND: Backend = ToyGpuBackend()
