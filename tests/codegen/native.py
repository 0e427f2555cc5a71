"""Compiles programs from text, runs them in guarded memory, and compares them with the interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from bench.bound import run_both
from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import Guarded, poison, read_only


def program(text: str) -> Program:
    """The program that a text spells, verified."""
    p = parse_program(Source("test.tsched", text))
    verify(p)
    return p


def compiled(p: Program, threads: int = 2) -> Compiled:
    return compile_kernel(lower_cpu(p), host_target(threads), threads)


def require_right(task: Task, traces: Iterable[Trace]) -> None:
    """What the kernels of the traces compute is within the tolerance of the task's reference."""
    inputs = make_inputs(task.program, 3)
    want, allowed = bounded(task.program, inputs)
    for trace in traces:
        for output, found in run(trace.program, inputs).items():
            assert (np.abs(found.astype(np.float64) - want[output]) <= allowed[output]).all()


def run(p: Program, inputs: Mapping[str, Array], threads: int = 2) -> dict[str, Array]:
    """The outputs of the compiled program; arrays end at unreadable pages, outputs start poisoned.

    They are the same when constant inputs are bound.
    """
    c = compiled(p, threads)
    guards = {q.name: Guarded(shape_of(p.buffer(q.name)), stored_dtype(q.dtype)) for q in c.params if q.output}
    for g in guards.values():
        poison(g.array)
    arrays = {
        q.name: guards[q.name].array if q.output else read_only(np.asarray(inputs[q.name], order="C")) for q in c.params
    }
    assert run_both(load(c), arrays) == ""
    for name, g in guards.items():
        assert g.trespassed() is None, f"{name}: written {g.trespassed()} it"
    return {name: g.array for name, g in guards.items()}


def check(p: Program, inputs: Mapping[str, Array], *, threads: int = 2, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The compiled program gives what the interpreter gives, in float64."""
    got = run(p, inputs, threads)
    for name, want in interpret(p, inputs).items():
        np.testing.assert_allclose(widen(got[name], p.buffer(name).dtype), want, rtol=rtol, atol=atol)
