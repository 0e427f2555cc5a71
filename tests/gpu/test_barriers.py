"""Barriers stand where two threads meet, and nowhere else: without any one of them the emulation finds a race."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Barrier,
    DeviceKernel,
    DeviceProgram,
    Guard,
    Phase,
    Steps,
    WaitGroup,
    barriers_in,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.lower.synchronization import accesses, synchronized
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Compare, Const, Load, Var, index, sub
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.lower.flat import If
from tensorc_dsl.reference.interpret import interpret
from tests.gpu.kernels import DRAWS, drawn, gpu_space, without_barrier
from tests.programs import random_inputs
from tests.stdlib.cases import case, library
from tests.stdlib.references import CASES

TWO_PHASES = """
program p(A: f32[64, 64], C: f32[64, 64]) {
    buffer T: f32[64] in "shared"
    bound("block.x") for i in 64 {
        bound("thread.x") for j in 64 {
            block T { spatial vi in 64 = i; spatial vj in 64 = j; T[vj] = A[vi, vj] + 1.0 }
        }
        bound("thread.x") for j_1 in 64 {
            block C { spatial vi in 64 = i; spatial vj in 64 = j_1; C[vi, vj] = T[INDEX] }
        }
    }
}
"""

STEPS = """
program p(A: f32[8, 64], C: f32[8, 64]) {
    buffer T: f32[64] in "shared"
    bound("block.x") for b in 1 {
        for i in 8 {
            bound("thread.x") for j in 64 {
                block T { spatial vi in 8 = i; spatial vj in 64 = j; T[vj] = A[vi, vj] + 1.0 }
            }
            bound("thread.x") for j_1 in 64 {
                block C { spatial vi in 8 = i; spatial vj in 64 = j_1; C[vi, vj] = T[INDEX] }
            }
        }
    }
}
"""

TWO_AXES = """
program p(A: f32[8, 32], C: f32[8, 32]) {
    buffer T: f32[8, 32] in "shared"
    bound("block.x") for b in 1 {
        bound("thread.y") for y in 8 {
            bound("thread.x") for x in 32 {
                block T { spatial vi in 8 = y; spatial vj in 32 = x; T[vi, vj] = A[vi, vj] + 1.0 }
            }
        }
        bound("thread.y") for y_1 in 8 {
            bound("thread.x") for x_1 in 32 {
                block C { spatial vi in 8 = y_1; spatial vj in 32 = x_1; C[vi, vj] = T[INDEX] }
            }
        }
    }
}
"""


def program(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


def kernel(text: str) -> DeviceKernel:
    (found,) = lower_device(program(text)).kernels
    return found


@pytest.mark.parametrize(
    ("text", "index", "count"),
    [
        (TWO_PHASES, "vj", 0),
        (TWO_PHASES, "63 - vj", 1),
        (TWO_PHASES, "vj / 2 * 2", 1),
        (STEPS, "vj", 0),
        (STEPS, "63 - vj", 2),
        (TWO_AXES, "vi, vj", 0),
        (TWO_AXES, "7 - vi, vj", 1),
        (TWO_AXES, "vi, 31 - vj", 1),
    ],
)
def test_a_barrier_stands_only_where_threads_meet(text: str, index: str, count: int) -> None:
    p = program(text.replace("INDEX", index))
    kernels = lower_device(p)
    assert barriers_in(kernels.kernels[0].body) == count
    fault, found = emulated(kernels, p, random_inputs(p))
    assert fault == ""
    expected = interpret(p, random_inputs(p), "forward")
    for outputs in found:
        np.testing.assert_array_equal(outputs["C"], expected["C"].astype(np.float32))
    assert check_each_is_needed(kernels, p) == count


@pytest.mark.parametrize(("second", "count"), [(5, 2), (4, 2), (6, 3)])
def test_a_barrier_under_a_condition_counts_where_the_condition_holds(second: int, count: int) -> None:
    """Two copies of a round, each where a round is left, and what reads both behind them."""
    thread, round_ = Var(THREAD), Var("i")

    def copied(name: str, end: int) -> Guard:
        store = Store(name, (thread,), Load("A", (thread,), F32))
        return Guard(Compare("<", round_, index(end)), (Phase((store,)),))

    turned = sub(index(63), thread)
    read = tuple(Store("C", (thread,), Load(name, (turned,), F32)) for name in ("T", "U"))
    body = (Steps("i", index(8), (copied("T", 5), copied("U", second), Phase(read))),)
    assert barriers_in(synchronized(replace(kernel(STEPS.replace("INDEX", "vj")), body=body)).body) == count


def test_a_condition_reads_too() -> None:
    i = Var("i")
    read = Compare(">", Load("T", (i,), F32), Const(0.0, F32))
    body = (If(read, (Store("C", (i,), Const(1.0, F32)),)),)
    assert [(a.buffer, a.write) for a in accesses(body, ())] == [("T", False), ("C", True)]
    assert [a.buffer for a in accesses(body, ("T",))] == ["C"]


def check_each_is_needed(kernels: DeviceProgram, p: Program, inputs: dict[str, Array] | None = None) -> int:
    """Without any one barrier threads race. Returns how many there are."""
    given = random_inputs(p) if inputs is None else inputs
    count = 0
    for n, k in enumerate(kernels.kernels):
        for number in range(barriers_in(k.body)):
            fewer = (*kernels.kernels[:n], without_barrier(k, number), *kernels.kernels[n + 1 :])
            fault, _ = emulated(replace(kernels, kernels=fewer), p, given)
            # Where a barrier stands behind a wait, a thread meets a copy of another one, whose own wait has not come.
            assert any(words in fault for words in ("meet without a barrier", "copy is in flight")), (k.name, number)
            count += 1
    return count


SOME = [("conv2d_nhwc", -1), ("softmax", 0), ("quantized_matmul", -1)]


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "number"), SOME if DRAWS == 1 else CASES)
def test_each_barrier_of_a_schedule_is_needed(name: str, number: int) -> None:
    """Without any one of them threads race: of some schedules, and in a campaign of so many of each operator at each size."""
    c = case(name, number)
    found = 0
    for seed in range(12 if DRAWS == 1 else DRAWS):
        kernels = lower_device(drawn(gpu_space(c.program, "sm_80"), name, seed).program)
        found += check_each_is_needed(kernels, c.program, dict(c.inputs))
        if DRAWS == 1 and found >= 2:
            return
    assert DRAWS > 1, f"no schedule of {name} has two barriers"


def test_each_barrier_of_a_product_is_needed() -> None:
    p, found = product(16, 24, 12), 0
    for seed in range(2):
        found += check_each_is_needed(lower_device(drawn(gpu_space(p, "sm_80"), "matmul", seed).program), p)
    assert found >= 2


def product(m: int, n: int, k: int) -> Program:
    """`matmul` of these sizes."""
    return elaborate(library().computes["matmul"], {"M": m, "N": n, "K": k}, "matmul", library().library)


def test_a_tiled_product_has_at_most_two_barriers_a_step() -> None:
    p, steps = product(128, 128, 64), 0
    for seed in range(4):
        for k in lower_device(drawn(gpu_space(p, "sm_80"), "matmul", seed).program).kernels:
            assert barriers_in(k.body) <= 2
            for s in k.body:
                if isinstance(s, Steps) and barriers_in(s.body):
                    steps += 1
                    ahead = any(isinstance(x, WaitGroup) for x in s.body)
                    assert sum(isinstance(x, Barrier) for x in s.body) == barriers_in(s.body) == (1 if ahead else 2)
    assert steps


COPIES = """
program p(A: f32[4, 8, 64], C: f32[4, 64]) {
    buffer T: f32[8, 64] in "shared"
    bound("block.x") for b in 1 {
        for i in 4 {
            for r in 8 {
                bound("thread.x") for j in 64 {
                    block T { spatial vi in 4 = i; spatial vr in 8 = r; spatial vj in 64 = j; T[vr, vj] = A[vi, vr, vj] }
                }
            }
            bound("thread.x") for j_1 in 64 {
                block C { spatial vi in 4 = i; spatial vj in 64 = j_1; C[vi, vj] = T[3, 63 - vj] + T[5, vj] }
            }
        }
    }
}
"""


def test_a_loop_that_copies_waits_before_it_and_not_in_each_iteration() -> None:
    p = program(COPIES)
    kernels = lower_device(p)
    (steps,) = (s for s in kernels.kernels[0].body if isinstance(s, Steps))
    assert [type(s).__name__ for s in steps.body] == ["Barrier", "Phase", "Barrier", "Phase"]
    assert check_each_is_needed(kernels, p) == 2


def test_a_phase_after_a_loop_waits_for_its_last_step() -> None:
    """The threads read in the loop what they write after it: a barrier stands behind the loop as well as inside."""
    text = (
        STEPS.replace("INDEX", "63 - vj").rstrip().removesuffix("}").rstrip().removesuffix("}")
        + """
        bound("thread.x") for j_2 in 64 {
            block T2 { spatial vj in 64 = j_2; T[vj] = 0.0 }
        }
    }
}
"""
    )
    assert barriers_in(kernel(text).body) == 3
