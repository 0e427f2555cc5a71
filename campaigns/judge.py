"""Judges whether a scheduled program is right, by all rules, cheap ones first."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bench.bound import run_both
from campaigns.emulated import emulated, is_bound
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.backend.llvm.runtime.native import prepared
from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import InterpretError, Order, interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import Guarded, compare, poison, read_only

ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` is "" for a right program, else the rule that it breaks; `unproved` is the reason of an undecided validation."""

    kind: str = ""
    fault: str = ""
    unproved: str = ""


def proof(original: Program, scheduled: Program) -> str:
    """What the validator finds, as text; "" if it proves the program, and `UNPROVED` before what it cannot decide."""
    match validate(original, scheduled):
        case Valid():
            return ""
        case Invalid(diagnostic=d):
            return render(d)
        case Unproved(diagnostic=d):
            return f"{UNPROVED}{d.message}"


@dataclass(slots=True)
class Judge:
    """Compares scheduled programs with the original, on inputs that are `given` or random, in these orders.

    The reference of one without `stages`, since no compute gives it, is the interpreter.
    """

    original: Program
    seed: int = 0
    stages: bool = True
    given: Mapping[str, Array] | None = None
    orders: tuple[Order, ...] = ORDERS
    inputs: Mapping[str, Array] = field(init=False)
    expected: Mapping[str, Array] = field(init=False)
    allowed: Mapping[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = make_inputs(self.original, self.seed) if self.given is None else self.given
        if self.stages:
            self.expected, self.allowed = bounded(self.original, self.inputs)
        else:
            self.expected = interpret(self.original, self.inputs)
            self.allowed = {n: _rounding(self.original.buffer(n).dtype, a) for n, a in self.expected.items()}

    def judge(self, scheduled: Program, native: bool = False, proved: bool = True) -> Verdict:
        """The first rule that the program breaks: as machine code where `native`, and by its proof where `proved`. An
        unexpected exception is a fault, too.
        """
        unproved = ""
        checks: list[tuple[str, Callable[[Program], str]]] = [
            ("form", self._form), ("text", self._text), ("result", self.differs),
        ]  # fmt: skip
        if proved:
            checks.append(("proof", self.proof))
        if native:
            checks.append(("machine code", lambda p: self.ran(p, compile_kernel(lower_cpu(p), host_target(2), 2))))
            if is_bound(scheduled):
                checks.append(("emulation", self._emulated))
        for kind, check in checks:
            try:
                fault = check(scheduled)
            except Exception:
                fault = traceback.format_exc()
            if fault.startswith(UNPROVED):
                unproved = fault.removeprefix(UNPROVED)
            elif fault:
                return Verdict(kind, fault)
        return Verdict(unproved=unproved)

    def _form(self, scheduled: Program) -> str:
        verify(scheduled)
        return ""

    def _text(self, scheduled: Program) -> str:
        text = format_program(scheduled)
        return (
            "" if parse_program(Source("printed", text)) == scheduled else f"it reads back as something else:\n{text}"
        )

    def differs(self, scheduled: Program, fill: tuple[int, float] | None = None) -> str:
        """The difference between the interpreter's result, in any order of loops that run at once, and the expected one."""
        for order in self.orders:
            try:
                found = interpret(scheduled, self.inputs, order, fill)
            except InterpretError as e:
                return f"{order}: {e}"
            if fault := self.compared(found):
                return f"{order}: {fault}"
        return ""

    def compared(self, found: Mapping[str, Array]) -> str:
        if found.keys() != self.expected.keys():
            return f"it has results {', '.join(found)}"
        for name, want in self.expected.items():
            if fault := compare(name, np.asarray(found[name]), want, self.allowed[name]).fault:
                return fault
        return ""

    def proof(self, scheduled: Program) -> str:
        """What the validator finds, as text; "" if it proves the program, and `UNPROVED` before what it cannot decide."""
        return proof(self.original, scheduled)

    def ran(self, scheduled: Program, compiled: Compiled) -> str:
        """What is wrong with the results of the kernel, which runs in a process of its own; "" if nothing is."""
        prepared()  # what all kernels share is compiled here, once, and not in each of the processes
        kernel = load(compiled)
        return isolated(lambda: self._run(scheduled, kernel))

    def _emulated(self, scheduled: Program) -> str:
        """What is wrong with the results in the emulation of a GPU, if it has code for the program."""
        try:
            device = lower_device(scheduled)
        except LowerError:
            return ""
        fault, found = emulated(device, scheduled, self.inputs)
        faults = [fault, *(self.compared(outputs) for outputs in found)]
        return next((f for f in faults if f), "")

    def _run(self, scheduled: Program, kernel: NativeKernel) -> str:
        """The kernel's results, in memory that ends at unreadable pages."""
        outs = {
            q.name: Guarded(shape_of(scheduled.buffer(q.name)), stored_dtype(q.dtype))
            for q in kernel.params
            if q.output
        }
        for out in outs.values():
            poison(out.array)
        ins = {n: read_only(np.asarray(a, order="C")) for n, a in self.inputs.items()}
        if fault := run_both(kernel, ins | {n: out.array for n, out in outs.items()}):
            return fault
        for name, out in outs.items():
            if where := out.trespassed():
                return f"{name}: written {where} it"
        return self.compared({n: widen(o.array, scheduled.buffer(n).dtype) for n, o in outs.items()})


UNPROVED = "unproved: "


def _rounding(dtype: DType, values: Array) -> Array:
    """The errors that the rounding of a few terms explains: none of integers."""
    share = {8: 0.5, 16: 0.05, 32: 1e-5, 64: 1e-12}[dtype.bits] if dtype.is_float else 0.0
    return share * (1 + np.abs(np.asarray(values, np.float64)))


def isolated(what: Callable[[], str]) -> str:
    """The result or exception of `what` in a child process, which a crash of a kernel ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            text = what()
        except BaseException:
            text = traceback.format_exc()
        with os.fdopen(writing, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return text if status == 0 else f"the process ended with status {status}"
