"""Random schedules, compiled: the machine code computes what the unscheduled program does, and touches nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.ir.interpret import interpret
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import For, Program, blocks, walk
from tensorc_dsl.lower.flat import format_kernel
from tensorc_dsl.lower.lower import lower
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, LoopRef, apply
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tests.codegen.native import run
from tests.programs import conv2d, elementwise, matmul, random_inputs, softmax
from tests.schedule.test_random_steps import Step, random_step

PROGRAMS: dict[str, Callable[[random.Random], Program]] = {
    "matmul": lambda r: matmul(r.randint(1, 40), r.randint(1, 70), r.randint(1, 12)),
    "strided_conv": lambda r: conv2d(
        r.randint(5, 9), r.randint(5, 9), r.randint(1, 4), r.randint(1, 20), 3, 2, stride=2
    ),
    "padded_conv": lambda r: conv2d(r.randint(2, 6), r.randint(2, 7), r.randint(1, 3), r.randint(1, 20), 3, 3, pad=1),
    "softmax": lambda r: softmax(r.randint(1, 6), r.randint(1, 70)),
    "chain": lambda r: elementwise(r.randint(1, 9), r.randint(1, 70)),
}


def storage_step(p: Program, rng: random.Random) -> Step:
    """A step that moves or caches blocks, or marks an innermost loop."""
    block = BlockRef(rng.choice(blocks(p)).name)
    loops = [s for _, s in walk(p.body) if isinstance(s, For)]
    innermost = [s for s in loops if not any(isinstance(x, For) for x in s.body)]
    match rng.choice(["cache_write", "cache_read", "at", "inline", "vectorize", "unroll", "parallel"]):
        case "cache_write":
            return "cache_write", (block,), {}
        case "cache_read":
            return "cache_read", (block, BufferRef(rng.choice([*p.params, *p.buffers]).name)), {}
        case "at":
            return rng.choice(["compute_at", "reverse_compute_at"]), (block, LoopRef(rng.choice(loops).var)), {}
        case "inline":
            return "compute_inline", (block,), {}
        case "parallel":
            return "parallel", (LoopRef(rng.choice(loops[:2]).var),), {}
        case kind:
            return kind, (LoopRef(rng.choice(innermost).var),), {}


def check(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    program = original = PROGRAMS[name](rng)
    inputs = random_inputs(program, seed)
    history: list[str] = []
    for _ in range(16):
        step, args, kwargs = (storage_step if rng.random() < 0.5 else random_step)(program, rng)
        try:
            program = apply(program, step, *args, **kwargs).program
        except ScheduleRefusal:
            continue
        history.append(f"{step}{args}{kwargs}")
    if rng.random() < 0.3:
        program = replace(program, annotations=(("unroll.max_step", rng.choice([16, 64])),))
    got = run(program, inputs)
    for output, want in interpret(original, inputs).items():
        message = "\n".join([*history, format_program(program), format_kernel(lower(program))])
        np.testing.assert_allclose(got[output], want, rtol=1e-4, atol=1e-5, err_msg=message)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(12))
def test_compiled_schedules_keep_the_result(name: str, seed: int) -> None:
    check(name, seed)
