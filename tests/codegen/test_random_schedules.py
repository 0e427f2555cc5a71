"""Random schedules, compiled: the machine code computes the unscheduled program's result, and changes no other memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from campaigns.random_steps import random_schedule
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import format_kernel
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import run
from tests.programs import conv2d, elementwise, matmul, random_inputs, softmax

PROGRAMS: dict[str, Callable[[random.Random], Program]] = {
    "matmul": lambda r: matmul(r.randint(1, 40), r.randint(1, 70), r.randint(1, 12)),
    "strided_conv": lambda r: conv2d(
        r.randint(5, 9), r.randint(5, 9), r.randint(1, 4), r.randint(1, 20), 3, 2, stride=2
    ),
    "padded_conv": lambda r: conv2d(r.randint(2, 6), r.randint(2, 7), r.randint(1, 3), r.randint(1, 20), 3, 3, pad=1),
    "softmax": lambda r: softmax(r.randint(1, 6), r.randint(1, 70)),
    "chain": lambda r: elementwise(r.randint(1, 9), r.randint(1, 70)),
}


def check(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    original = PROGRAMS[name](rng)
    inputs = random_inputs(original, seed)
    program, history = random_schedule(original, rng, 16)
    if rng.random() < 0.3:
        program = replace(program, annotations=(("unroll.max_step", rng.choice([16, 64])),))
    got = run(program, inputs)
    for output, want in interpret(original, inputs).items():
        message = "\n".join([*map(str, history), format_program(program), format_kernel(lower_cpu(program))])
        np.testing.assert_allclose(got[output], want, rtol=1e-4, atol=1e-5, err_msg=message)


@pytest.mark.corpus
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(5))
def test_compiled_schedules_keep_the_result(name: str, seed: int) -> None:
    check(name, seed)
