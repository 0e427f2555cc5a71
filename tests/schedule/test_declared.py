"""Declarations of steps about loops hold after later steps, or those are refused; pipelines follow their definition."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Compare, Var, add, index, sub
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import For, LoopKind, Program, Stmt, find_loop
from tensorc_dsl.ir.verify import ProgramError, verify
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.nests import replace_variables
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, ScheduleRefusal
from tests.programs import elementwise, matmul, random_inputs

SIZE = 9


def statements(rng: random.Random) -> Program:
    """A loop over three stores: each reads what any of them may have written, some elements before or behind."""
    lines: list[str] = []
    for n in range(3):
        to, shift = rng.choice("BCD"), rng.choice([0, 0, 1, 2])
        read, off = rng.choice("ABCD"), rng.choice([-2, -1, 0, 0, 1])
        at = f"v + {off}" if off >= 0 else f"v - {-off}"
        value = f"{read}[{at}] * 0.5 + A[v] if {at} >= 0 and {at} < {SIZE} else {n}.0"
        lines += [f"block S{n} {{ spatial v in {SIZE} = i", f"{to}[v + {shift}] = {value} }}"]
    body = "\n".join(lines)
    size = SIZE + 2
    text = f"program p(A: f32[{size}], B: f32[{size}], C: f32[{size}], D: f32[{size}]) {{\n"
    fills = "".join(
        f"for {x} in {size} {{ block F{x} {{ spatial v in {size} = {x}\n{x.upper()}[v] = A[v] }} }}\n" for x in "bcd"
    )
    return parse_program(Source("p", f"{text}{fills}for i in {SIZE} {{\n{body}\n}}\n}}\n"))


def run_as_pipeline(program: Program, var: str, stages: list[int], order: list[int]) -> Program:
    """Rounds written out: `t` runs the statements in order, each for iteration `t - stage`, where there is one."""
    outer, loop = find_loop(program, var)
    rounds = For("t", add(loop.extent, index(max(stages))), ())
    body: list[Stmt] = []
    for n in sorted(range(len(loop.body)), key=lambda n: order[n]):
        i = sub(Var("t"), index(stages[n]))
        guard = (Compare("<=", index(0), i), Compare("<", i, loop.extent))
        body += replace_variables((loop.body[n],), {var: i}, (*outer, rounds), guard)
    return replace(program, body=(*program.body[:-1], replace(rounds, body=tuple(body))))


def refused(seed: int) -> tuple[bool, bool]:
    """Whether a random pipeline is refused, and whether its rounds compute what the loop does."""
    rng = random.Random(seed)
    program = statements(rng)
    stages = [rng.choice([0, 0, 1, 2]) for _ in range(3)]
    stages = [s - min(stages) for s in stages]
    order = rng.sample(range(3), 3)
    inputs = random_inputs(program, seed)
    expected = interpret(program, inputs)
    found = interpret(run_as_pipeline(program, "i", stages, order), inputs)
    same = all(np.array_equal(found[name], values) for name, values in expected.items())
    try:
        apply(program, "software_pipeline", LoopRef("i"), tuple(stages), order=tuple(order))
    except ScheduleRefusal as refusal:
        return refusal.refusal.code == "E0389", same
    return False, same


def test_a_pipeline_is_refused_when_its_rounds_compute_something_else() -> None:
    found = [refused(seed) for seed in range(80)]
    assert (False, False) not in found
    # A value that is overwritten before anything reads it may come late without a difference.
    assert found.count((True, True)) <= 4
    assert min(found.count((True, False)), found.count((False, True))) >= 20


def fused_chain() -> Program:
    program = elementwise(4, 5)
    return apply(program, "compute_at", BlockRef("B"), LoopRef("i_1")).program


def test_a_later_step_keeps_the_pipeline_or_is_refused() -> None:
    program = apply(fused_chain(), "software_pipeline", LoopRef("i_1"), (0, 1)).program
    assert find_loop(program, "i_1")[1].kind is LoopKind.PIPELINED
    inner = find_loop(program, "i_1")[1].body[0]
    assert isinstance(inner, For)
    split = apply(program, "split", LoopRef(inner.var), (None, 2), partial=True).program
    verify(split)
    for step in [("compute_inline", BlockRef("B")), ("unannotate", LoopRef("i_1"), "pipeline.stages")]:
        with pytest.raises(ScheduleRefusal) as refused:
            apply(program, step[0], *step[1:])
        assert refused.value.refusal.code == "E0390"


WINDOWS = """
program windows(X: f32[7], Y: f32[3]) {
    buffer Z: f32[7] in "local"
    for i in 3 {
        for t in 3 { block Z { spatial v in 7 = i * 2 + t; Z[v] = X[v] * X[v] } }
        block Y { spatial v in 3 = i; Y[v] = Z[v * 2] + Z[v * 2 + 2] }
    }
}
"""


def test_a_later_step_does_not_make_one_buffer_of_those_of_the_rounds() -> None:
    """Found by random schedules: the next round writes `Z[2]` while this one reads its own."""
    program = parse_program(Source("windows", WINDOWS))
    program = apply(program, "software_pipeline", LoopRef("i"), (0, 1)).program
    with pytest.raises(ScheduleRefusal) as refused:
        apply(program, "set_scope", BufferRef("Z"), "global")
    assert refused.value.refusal.code == "E0390"


def test_a_pipelined_loop_says_the_stage_of_each_statement() -> None:
    program = fused_chain()
    loop = replace(program.body[0], kind=LoopKind.PIPELINED)
    with pytest.raises(ProgramError, match="no stage"):
        verify(replace(program, body=(loop,)))


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
def test_a_later_step_does_not_take_a_private_buffer_out_of_iterations_that_run_at_once(kind: str) -> None:
    """Found by random schedules: the copy of the copy would stand outside of `i`, for all its lanes."""
    p = apply(matmul(3, 1, 7), "read_at", LoopRef("j"), BlockRef("C"), BufferRef("B"), "local").program
    p = apply(p, kind, LoopRef("i")).program
    with pytest.raises(ScheduleRefusal) as refused:
        apply(p, "cache_write", BlockRef("B_local"), "local")
    assert refused.value.refusal.code == "E0351"
    outside = apply(p, "cache_write", BlockRef("C"), "local").program  # each lane writes elements of its own
    verify(outside)
