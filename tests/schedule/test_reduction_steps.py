"""The results of steps over reductions and padding, as machine code and in every order that they allow."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.codegen.native import program, run
from tests.primitives.cases import Case, all_cases, before_program
from tests.primitives.cases import run as after

PAGES = ("rfactor", "fuse_reduction_epilogue", "decompose_padding", "pad_einsum")
ACCEPTED = [c for c in all_cases() if c.page.stem in PAGES and c.kind == "tsched"]


def closed(p: Program, size: int) -> Program:
    return bind(p, {d.name: min(max(size, d.low), d.high or size) for d in p.dims}) if p.dims else p


@pytest.mark.corpus
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda c: c.name)
def test_accepted_cases_compute_the_same_everywhere(case: Case) -> None:
    for size in (1, 13):
        before, result = closed(before_program(case), size), closed(after(case), size)
        inputs = make_inputs(before, 0)
        expected = interpret(before, inputs)
        found = [interpret(result, inputs, order) for order in ("forward", "reversed", "shuffled")]
        for got in (*found, run(result, inputs)):
            for name, values in expected.items():
                np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=1e-5)


ARGMAX = """
program best(X: f32[4, 23], I: i64[4]) {
    buffer I_value: f32[4]
    for i in 4, j in 23 {
        block I @("reducer", "argmax") {
            spatial vi in 4 = i
            reduce vj in 23 = j
            init { I[vi] = 9223372036854775807; I_value[vi] = -inf }
            I[vi] = i64(vj) if not X[vi, vj] <= I_value[vi] and I_value[vi] == I_value[vi] \
or (X[vi, vj] == I_value[vi] or X[vi, vj] != X[vi, vj]) and i64(vj) < I[vi] else I[vi]
            I_value[vi] = max(I_value[vi], X[vi, vj])
        }
    }
}
"""


@pytest.mark.parametrize("loop", ["j_0", "j_1"])
def test_trap_12_positions_survive_ties_nans_and_infinities(loop: str) -> None:
    p = apply(program(ARGMAX), "split", LoopRef("j"), (None, 8), partial=True).program
    p = apply(p, "rfactor", BlockRef("I"), LoopRef(loop), -1).program
    x = np.zeros((4, 23), np.float32)
    x[0, [3, 11, 19]] = 1  # the first of equals
    x[1] = -np.inf  # what a part without a step starts from
    x[2, [9, 17]] = np.nan
    x[3, [5, 22]] = np.inf
    assert interpret(p, {"X": x})["I"].tolist() == [3, 0, 9, 5]
    assert run(p, {"X": x})["I"].tolist() == [3, 0, 9, 5]
