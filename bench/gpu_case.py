"""What the parts of `bench.gpu` have in common: a case and what was found, the time that is left, tasks and kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec
import numpy as np

from tensorc_dsl.backend.cuda.runtime.driver import Device, Missing, find
from tensorc_dsl.backend.cuda.runtime.kernel import Image, unpack
from tensorc_dsl.backend.protocol import Code, CompiledKernel, LoadedKernel, require_backend
from tensorc_dsl.base.units import counted
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.tuning.measure.outcome import seconds_of

HEAD = (
    "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.tensor_core.{tensor_core}\nuse std.gpu.hopper.{hopper}\n"
)

ROUNDS, CALLS = 3, 20
"""How often two kernels take turns, and the launches of a turn."""

BEGUN = "> "
"""What a line begins with that names the case that begins: the one that a fault ends."""


class Row(msgspec.Struct, frozen=True):
    """A case: what is wrong, "" if nothing is; seconds of our kernel, and of another one that `beside` names. `trace` is
    the schedule of ours, if it was searched; `bounds` has the cycles of each of its kernels by each bound of the model."""

    case: str
    wrong: str = ""
    ours: float | None = None
    theirs: float | None = None
    beside: str = ""
    trace: str = ""
    facts: dict[str, float] = {}
    bounds: list[dict[str, float]] = []


class CannotRun(Exception):
    """This machine lacks something that the part needs, or there is no time left."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Until which moment of the clock a part runs, the cases that were run before, and how many more there may be."""

    until: float
    done: frozenset[str] = frozenset()
    most: float = inf
    begun: list[str] = field(default_factory=list[str])

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic()

    def begins(self, case: str, least: float = 0.0) -> bool:
        """Whether a case is still to be run, which is told. Raises CannotRun if fewer seconds are left than it takes at
        `least`, and names the case."""
        if case in self.done:
            return False
        if self.left < least:
            raise CannotRun(f"there was no time for `{case}` and what comes after it")
        if len(self.begun) >= self.most:
            raise CannotRun(f"{counted(len(self.begun), 'case')} were asked for, and `{case}` is the next one")
        self.begun.append(case)
        print(f"{BEGUN}{case}", flush=True)
        return True


@dataclass(frozen=True, slots=True)
class Part:
    """Rows as they are found; the weight of the part in the time of all parts."""

    run: Callable[[Asked], Iterator[Row]]
    weight: float


def device() -> Device:
    """The GPU of this machine. Raises CannotRun if there is none."""
    found = find()
    if isinstance(found, Missing):
        raise CannotRun(f"{found.what}: {found.repair}")
    return found


def task_of(text: str, more: str = "", space: str | None = None) -> Task:
    """A task on the GPU of this machine. `more` defines what it computes, if that is no operator of the library."""
    return loads(HEAD + more + definition("t", text, space), target="native-cuda")["t"]


def definition(name: str, text: str, space: str | None = None) -> str:
    """The item of a task: in a space, else in the one with the instructions for its type."""
    fitting = "hopper" if any(f"T={t}" in text for t in ("f16", "bf16", "f8")) else "default"
    return f"task {name} = {text} with {space or fitting}\n"


def loaded(task: Task, compiled: CompiledKernel, ptx: str | None = None) -> LoadedKernel:
    """The kernels of a task on the GPU, by other PTX if it is given."""
    code = compiled.code
    if ptx is not None:
        image, _ = unpack(code.object_code)
        other: Image = msgspec.structs.replace(image, ptx=ptx)
        code = Code(msgspec.msgpack.encode(other), code.symbol, code.kept)
    return require_backend("cuda", task.name).load(code, task.program, task.threads)


def arrays_of(task: Task) -> list[Array]:
    """Random inputs, and room for outputs."""
    inputs = make_inputs(task.program, 0)
    return [
        inputs[b.name] if b.name in inputs else np.zeros(shape_of(b), stored_dtype(b.dtype))
        for b in task.program.params
    ]


def seconds_of_calls(kernel: LoadedKernel, arrays: Sequence[Any], calls: int) -> float:
    """The seconds of a call with these arrays, most of which are Python's: what it starts is not waited for."""
    kernel(*arrays)
    begun = time.perf_counter()
    for _ in range(calls):
        kernel(*arrays)
    return (time.perf_counter() - begun) / calls


def by_turns(ours: Callable[[int], list[float]], theirs: Callable[[int], list[float]]) -> tuple[float, float]:
    """The seconds of two kernels that take turns, after a launch of each to warm up."""
    for run in (ours, theirs):
        run(1)
    a: list[float] = []
    b: list[float] = []
    for _ in range(ROUNDS):
        a += ours(CALLS)
        b += theirs(CALLS)
    return seconds_of(tuple(a)), seconds_of(tuple(b))
