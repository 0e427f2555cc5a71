"""The accepted cases of primitives, as machine code: the result is that of the program before the steps."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.lower.flat import format_kernel
from tensorc_dsl.reference.interpret import interpret
from tests.codegen import native
from tests.primitives.cases import Case, all_cases, before_program, run
from tests.programs import random_inputs

ACCEPTED = [c for c in all_cases() if c.kind == "tsched"]


@pytest.mark.corpus
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda c: c.name)
def test_machine_code_of_the_result(case: Case) -> None:
    before, after = before_program(case), run(case)
    if before.dims:
        return
    inputs = random_inputs(before)
    found = native.run(after, inputs)
    for name, want in interpret(before, inputs).items():
        got = widen(found[name], before.buffer(name).dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=False)
        for order in ("reversed", "shuffled"):
            np.testing.assert_allclose(interpret(after, inputs, order)[name], want, rtol=1e-4, atol=1e-5)


def test_rows_lie_as_far_apart_as_they_are_aligned() -> None:
    case = next(c for c in ACCEPTED if c.name == "storage_align: rows in different banks")
    assert "with B: f32[96]" in format_kernel(lower_cpu(run(case)))  # eight rows of six elements, 12 apart
