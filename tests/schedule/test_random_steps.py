"""Random steps on small programs of odd sizes: what is accepted computes the same, what is not is refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.ir.interpret import interpret
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tests.programs import conv2d, elementwise, matmul, proof_fault, random_inputs, softmax
from tests.schedule.random_steps import random_step

PROGRAMS: dict[str, Callable[[], Program]] = {
    "matmul": lambda: matmul(5, 6, 7),
    "matmul_column": lambda: matmul(4, 1, 3),
    "strided_conv": lambda: conv2d(7, 6, 2, 3, 3, 2, stride=2),
    "padded_conv": lambda: conv2d(4, 3, 2, 3, 3, 3, pad=1),
    "softmax": lambda: softmax(3, 7),
    "chain": lambda: elementwise(5, 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(12))
def test_accepted_steps_keep_the_result(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    program = PROGRAMS[name]()
    inputs = random_inputs(program, seed)
    expected = interpret(program, inputs)
    history: list[str] = []
    for _ in range(14):
        step, args, kwargs = random_step(program, rng)
        try:
            program = apply(program, step, *args, **kwargs).program
        except ScheduleRefusal:
            continue
        history.append(f"{step}{args}{kwargs}")
        verify(program)
    fault = proof_fault(PROGRAMS[name](), program)
    assert not fault, "\n".join([fault, *history, format_program(program)])
    for order in ("forward", "reversed", "shuffled"):
        found = interpret(program, inputs, order)
        for output, values in expected.items():
            message = "\n".join([*history, format_program(program)])
            np.testing.assert_allclose(found[output], values, rtol=1e-4, atol=1e-5, err_msg=message)
