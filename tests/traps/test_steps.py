"""Traps of schedule steps; those of one primitive are also on its page. `docs/traps.md` lists all of them."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Alloc, Flat, body_of
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, ScheduleRefusal
from tests.codegen import native
from tests.codegen.native import program
from tests.programs import random_inputs

ROWS = """
program rows(A: f32[3, 10], B: f32[3]) {{
    for i in 3, k in 10 {{
        block B {{
            spatial vi in 3 = i
            reduce vk in 10 = k
            init {{ B[vi] = {init} }}
            B[vi] = {update}
        }}
    }}
}}
"""


def rows(init: str, update: str) -> Program:
    return program(ROWS.format(init=init, update=update))


def code(p: Program, *step: object, **options: object) -> str:
    """What a step is refused with."""
    name, *arguments = step
    with pytest.raises(ScheduleRefusal) as refused:
        apply(p, str(name), *arguments, **options)
    return refused.value.refusal.code


@pytest.mark.parametrize(
    ("init", "update"), [("-inf", "max(B[vi], A[vi, vk])"), ("0.0", "B[vi] + exp(A[vi, vk])")], ids=["max", "exp"]
)
def test_trap_01_zeros_are_no_padding_where_they_count(init: str, update: str) -> None:
    assert code(rows(init, update), "pad_einsum", BlockRef("B"), (1, 4)) == "E0662"


def test_trap_01_padding_that_keeps_the_sum() -> None:
    p = rows("0.0", "B[vi] + A[vi, vk] * A[vi, vk]")
    padded = apply(p, "pad_einsum", BlockRef("B"), (4, 4)).program
    inputs = random_inputs(p)
    np.testing.assert_allclose(interpret(padded, inputs)["B"], interpret(p, inputs)["B"], rtol=1e-6)
    native.check(padded, inputs)


EPILOGUE = """
program dense(A: f32[3, 10], c: f32[3], D: f32[3]) {{
    buffer C: f32[3]
    for i in 3, k in 10 {{
        block C {{
            spatial vi in 3 = i
            reduce vk in 10 = k
            init {{ C[vi] = 0.0 }}
            C[vi] = C[vi] + A[vi, vk]
        }}
    }}
    for i_1 in 3 {{
        block D {{
            spatial vi in 3 = i_1
            D[vi] = {value}
        }}
    }}
}}
"""


@pytest.mark.parametrize("value", ["max(C[vi], 0.0)", "c[vi] - C[vi]", "tanh(C[vi])", "C[vi] * c[vi]"])
def test_trap_02_an_epilogue_is_not_applied_at_each_step(value: str) -> None:
    p = program(EPILOGUE.format(value=value))
    assert code(p, "fuse_reduction_epilogue", BlockRef("C"), BlockRef("D")) == "E0656"


def test_trap_02_a_bias_can_start_the_sum() -> None:
    p = program(EPILOGUE.format(value="C[vi] + c[vi]"))
    fused = apply(p, "fuse_reduction_epilogue", BlockRef("C"), BlockRef("D")).program
    native.check(fused, random_inputs(p))


def test_trap_04_a_write_back_keeps_its_guard() -> None:
    """N = 10 in blocks of 4 threads: the third block stores 2 elements, with a copy in registers in between."""
    p = program("""
program copy(A: f32[10], C: f32[10]) {
    for i in 10 { block C { spatial v in 10 = i
        C[v] = A[v] * 2.0
    } }
}
""")
    p = apply(p, "cache_write", BlockRef("C"), "local").program
    p = apply(p, "split", LoopRef("i"), (None, 4), partial=True).program
    p = apply(p, "reverse_compute_at", BlockRef("C_write"), LoopRef("i_1")).program
    p = apply(p, "bind", LoopRef("i_0"), "block.x").program
    p = apply(p, "bind", LoopRef("i_1"), "thread.x").program
    inputs = random_inputs(p)
    native.check(p, inputs)  # arrays end at pages that may not be written
    for order in ("forward", "reversed", "shuffled"):
        np.testing.assert_array_equal(interpret(p, inputs, order)["C"], inputs["A"].astype(np.float64) * 2)
    # Left for the GPU: the result of a reduction across threads is stored by one of them, under the same guard.


def test_trap_08_a_reduction_along_threads_needs_partial_results() -> None:
    assert code(rows("-inf", "max(B[vi], A[vi, vk])"), "bind", LoopRef("k"), "thread.x") == "E0330"


def test_trap_08_lanes_without_an_element_hold_the_identity() -> None:
    """10 elements on 4 lanes: the last step has 2 of them idle, and all elements are below 0."""
    p = rows("-inf", "max(B[vi], A[vi, vk])")
    p = apply(p, "split", LoopRef("k"), (None, 4), partial=True).program
    p = apply(p, "rfactor", BlockRef("B"), LoopRef("k_1"), -1).program
    p = apply(p, "reorder", LoopRef("k_1"), LoopRef("k_0")).program
    p = apply(p, "bind", LoopRef("i"), "block.x").program
    p = apply(p, "bind", LoopRef("k_1"), "thread.x").program
    inputs = {"A": -np.abs(random_inputs(p)["A"]) - 1}
    native.check(p, inputs)
    np.testing.assert_array_equal(interpret(p, inputs, "shuffled")["B"], inputs["A"].max(axis=1))


def test_trap_13_loop_carried_pairs_count() -> None:
    """One buffer for all rounds: a round may not overwrite what the one before still reads."""
    p = program("""
program rounds(A: f32[6, 4], C: f32[6, 4]) {
    buffer T: f32[4] in "shared"
    for r in 6 {
        for i in 4 { block T { spatial vr in 6 = r; spatial v in 4 = i
            T[v] = A[vr, v]
        } }
        for j in 4 { block C { spatial vr in 6 = r; spatial v in 4 = j
            C[vr, v] = T[3 - v]
        } }
    }
}
""")
    everywhere = program(format_program(p).replace(' in "shared"', ""))
    found = carried(everywhere, "r")
    assert found is not None and found.buffer == "T"
    assert code(everywhere, "software_pipeline", LoopRef("r"), (0, 1)) == "E0389"
    assert code(p, "software_pipeline", LoopRef("r"), (1, 0)) == "E0389"
    # Left for the GPU: barriers for such pairs, none of them under a condition that threads disagree on.


def test_trap_18_nothing_is_computed_in_place_of_what_is_read_later() -> None:
    """`E` has the size of `B`, and `B` is read once more after it: both have memory of their own."""
    p = program("""
program chain(A: f32[9], C: f32[9]) {
    buffer B: f32[9]
    buffer E: f32[9]
    for i in 9 { block B { spatial v in 9 = i
        B[v] = A[v] + 1.0
    } }
    for j in 9 { block E { spatial v in 9 = j
        E[v] = B[8 - v] * 2.0
    } }
    for k in 9 { block C { spatial v in 9 = k
        C[v] = E[v] + B[v]
    } }
}
""")
    flat = lower_cpu(p)
    assert sorted(allocated(flat.body)) == ["B", "E"]
    native.check(p, random_inputs(p))
    assert code(p, "cache_inplace", BlockRef("E"), BufferRef("B")) == "E0625"


def allocated(body: tuple[Flat, ...]) -> list[str]:
    return [name for s in body for name in ([s.name] if isinstance(s, Alloc) else []) + allocated(body_of(s))]
