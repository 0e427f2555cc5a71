"""What is wrong with a scheduled program: its results in the interpreter, as machine code and in the emulation of a GPU, and
its proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from campaigns.emulated import emulated, is_bound
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, bind
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import Order, interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure.check import Guarded, compare, poison, read_only
from tests.codegen.native import compiled
from tests.programs import proof_fault

ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled", "together")
MANY = 4
"""The sizes that a program with open dimensions is run at."""


def sizes_of(program: Program) -> Iterator[Sizes]:
    """Sizes of the open dimensions: small ones, then others of their ranges."""
    yield {d.name: d.low for d in program.dims}
    rng = np.random.default_rng(len(program.dims))
    while program.dims:
        yield {d.name: int(rng.integers(d.low, min(d.high or d.low + 24, d.low + 24) + 1)) for d in program.dims}


def faults(before: Program, after: Program, stages: bool) -> Iterator[str]:
    """What is wrong with the results at some sizes, then with the proof. The program before is one of `stages`, or of loops
    that are written out, whose reference is the interpreter.
    """
    verify(after)
    if parse_program(Source("printed", format_program(after))) != after:
        yield f"it reads back as something else:\n{format_program(after)}"
    kernel = load(compiled(after))
    for n, sizes in enumerate(islice(sizes_of(before), MANY)):
        yield from (f"{fault} {sizes or ''}" for fault in _at(before, after, kernel, sizes, n, stages))
    if fault := proof_fault(before, after):
        yield fault


def _at(before: Program, after: Program, kernel: NativeKernel, sizes: Sizes, seed: int, stages: bool) -> Iterator[str]:
    bound, scheduled = bind(before, sizes), bind(after, sizes)
    inputs = make_inputs(bound, seed)
    want, allowed = bounded(bound, inputs) if stages else interpreted(bound, inputs)

    def differs(found: Mapping[str, Array]) -> str:
        faults = (compare(n, np.asarray(found[n]), want[n], allowed[n]).fault for n in want)
        return next(filter(None, faults), "")

    for order in ORDERS:
        if fault := differs(interpret(scheduled, inputs, order)):
            yield f"{order}: {fault}"
    if fault := differs(native(kernel, bound, inputs)):
        yield f"machine code: {fault}"
    if not before.dims and is_bound(after):
        fault, found = emulated(lower_device(after), after, inputs)
        yield from filter(None, (fault, *map(differs, found)))


def interpreted(program: Program, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """The outputs of loops in their order, and a share of each value as the error that rounding explains."""
    want = interpret(program, inputs)
    return want, {n: 1e-5 + 1e-5 * np.abs(np.asarray(a, np.float64)) for n, a in want.items()}


def native(kernel: NativeKernel, bound: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the machine code, wide; arrays end at unreadable pages, outputs start poisoned."""
    outs = {b.name: Guarded(shape_of(b), stored_dtype(b.dtype)) for b in bound.outputs}
    for out in outs.values():
        poison(out.array)
    arrays = {n: read_only(np.asarray(a, order="C")) for n, a in inputs.items()} | {n: o.array for n, o in outs.items()}
    kernel(*(arrays[p.name] for p in kernel.params))
    for name, out in outs.items():
        assert out.trespassed() is None, f"{name}: written {out.trespassed()} it"
    return {n: widen(o.array, bound.buffer(n).dtype) for n, o in outs.items()}
