"""Random steps on small programs of odd sizes: what is accepted computes the same, what is not is refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.interpret import interpret
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Block, For, Program, walk
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.primitive import BlockRef, LoopRef, apply
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tests.programs import conv2d, elementwise, matmul, random_inputs, softmax

Step = tuple[str, tuple[object, ...], dict[str, object]]


def random_step(p: Program, rng: random.Random) -> Step:
    """Some step with arguments that are right in kind, whether or not it applies."""
    found = list(walk(p.body))
    loops = [s for _, s in found if isinstance(s, For)]
    paths = [around for around, s in found if isinstance(s, Block) and around]
    loop = rng.choice(loops)
    ref = LoopRef(loop.var)
    path = rng.choice(paths)
    match rng.choice(["split", "split", "split", "fuse", "reorder", "reorder", "reorder", "kind", "decompose"]):
        case "split":
            extent = constant(loop.extent) or 1
            divisors = [n for n in range(1, extent + 1) if extent % n == 0]
            factors: list[int | None] = [rng.choice([*divisors, 2, 3]) for _ in range(rng.choice([1, 1, 2]))]
            factors.insert(rng.randrange(len(factors) + 1), None)
            return "split", (ref, tuple(factors)), {"partial": rng.random() < 0.6}
        case "fuse":
            at = rng.randrange(len(path))
            return "fuse", tuple(LoopRef(x.var) for x in path[at : at + rng.choice([2, 2, 3])]), {}
        case "reorder":
            some = rng.sample(path, rng.randint(1, len(path)))
            return "reorder", tuple(LoopRef(x.var) for x in some), {}
        case "kind":
            return rng.choice(["parallel", "vectorize", "unroll"]), (ref,), {}
        case _:
            around, block = rng.choice([(a, s) for a, s in found if isinstance(s, Block)])
            target = rng.choice(around).var if around else loop.var
            return "decompose_reduction", (BlockRef(block.name), LoopRef(target)), {}


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
    for order in ("forward", "reversed", "shuffled"):
        found = interpret(program, inputs, order)
        for output, values in expected.items():
            message = "\n".join([*history, format_program(program)])
            np.testing.assert_allclose(found[output], values, rtol=1e-4, atol=1e-5, err_msg=message)
