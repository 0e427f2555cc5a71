"""Compares a program's reference, its interpretation and its machine code."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, widen
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure.check import compare
from tests.codegen.native import run


def everywhere(p: Program, inputs: Mapping[str, Array] | None = None, seed: int = 0) -> dict[str, Array]:
    """The outputs in wide types, on which all three agree; the program's text parses back to it."""
    assert parse_program(Source("p.tsched", format_program(p))) == p
    given = dict(inputs or make_inputs(p, seed))
    reference, allowed = bounded(p, given)
    interpreted, compiled = interpret(p, given), run(p, given)
    for name, want in reference.items():
        dtype = p.buffer(name).dtype
        for how, got in (("interpreted", interpreted[name]), ("compiled", widen(compiled[name], dtype))):
            assert got.shape == want.shape
            fault = compare(name, got, want, allowed[name]).fault
            assert not fault, f"{how}: {fault}\n{format_program(p)}"
    return {name: np.asarray(widen(a, p.buffer(name).dtype)) for name, a in compiled.items()}
