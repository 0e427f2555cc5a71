"""The bits of two programs: what is said to be the same is so on data that show each order, and what parts them is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from campaigns.rounding import adversarial, kernel_of, outputs
from tensorc_dsl.backend.once import in_order_if_lowered_so
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.contraction import contracted, depends_on_cuts, fused, with_spread_sums
from tensorc_dsl.ir.dtypes import BF16, F32
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.proof.equivalence.bits import changed_order, in_order, same_bits
from tensorc_dsl.proof.equivalence.rows import same_rows
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.check import other_bits

FILE = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

compute box(X: f32[H, W], F: f32[3, 3]) -> Y: f32[H, W] {
    let P[h in H + 2, w in W + 2] = X[h - 1, w - 1] if 1 <= h <= H and 1 <= w <= W else 0
    Y[h, w] = sum[a, b] P[h + a, w + b] * F[a, b]
}

compute masked(X: f32[H], F: f32[H]) -> Y: f32[H] {
    Y[i] = sum[k in H] (X[k] * F[k] if k <= i else 0.0)
}

compute whole(A: i32[M, K], B: i32[K, N]) -> C: i32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

compute largest(A: f32[M, K]) -> C: f32[M] {
    C[i] = max[k] A[i, k]
}

compute scaled(A: f32[M], B: f32[M]) -> C: f32[M] {
    let P[i] = A[i] * B[i]
    C[i] = P[i] + A[i]
}

compute softmax(X: f32[M, N]) -> Y: f32[M, N] {
    let m[i] = max[j] X[i, j]
    let e[i, j] = exp(X[i, j] - m[i])
    let s[i] = sum[j] e[i, j]
    Y[i, j] = e[i, j] / s[i]
}

intrinsic dots
    desc (A: f32[4], B: f32[4], C: f32[1]) {
        C[i] += sum[k] A[k] * B[k]
    }

schedule plain for matmul {}
schedule plain_box for box {}
schedule plain_masked for masked {}
schedule plain_whole for whole {}
schedule plain_largest for largest {}
schedule plain_scaled for scaled {}
schedule plain_softmax for softmax {}

task product = matmul(M=7, N=19, K=24)
task open = matmul(M=1..64, N=19, K=24)
task boxes = box(H=9, W=11)
task below = masked(H=21)
task numbers = whole(M=7, N=19, K=24)
task most = largest(M=7, K=24)
task scaling = scaled(M=19)
task rows = softmax(M=5, N=19)
task few = softmax(M=5, N=3)
"""

KEPT = {
    "split and reordered": ("product", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [_, 8])
let [j0, j1] = split(j, [_, 8], partial=true)
reorder(j0, k0, i, k1, j1)
vectorize(j1)"""),
    "in a buffer of its own": ("product", """
let w = cache_write(C, "local")
let [i, j, k] = C.loops
let [j0, j1] = split(j, [_, 8], partial=true)
reorder(i, j0, k, j1)
reverse_compute_at(w, j0)
decompose_reduction(C, k)
vectorize(j1)
parallel(i)"""),
    "a partial tile of the sum": ("product", """
let [i, j, k] = C.loops
split(k, [_, 7], partial=true)"""),
    "fused loops of elements": ("product", """
let [i, j, k] = C.loops
let f = fuse(i, j)
let [f0, f1] = split(f, [_, 8], partial=true)
reorder(f0, k, f1)
parallel(f0)"""),
    "padding inlined": ("boxes", """
compute_inline(P)
let [h, w, a, b] = Y.loops
reorder(a, b, h, w)
vectorize(w)"""),
    "padding near its use": ("boxes", """
let [h, w, a, b] = Y.loops
compute_at(P, h)"""),
    "an instruction that is loops on each machine": ("product", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [_, 4])
decompose_reduction(C, k0)
tensorize(k1, "dots")"""),
    "whole numbers in parts": ("numbers", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [4, _])
rfactor(C, k0)"""),
    "the largest in lanes": ("most", """
let [i, k] = C.loops
let [k0, k1] = split(k, [_, 8])
let p = rfactor(C, k1)
vectorize(k1)"""),
    "exp in vectors and a rest": ("rows", """
let [i, j] = e.loops
let [j0, j1] = split(j, [_, 8], partial=true)
vectorize(j1)"""),
    "whole blocks near each other": ("rows", """
let [i, j] = Y.loops
compute_at(s, i)
compute_at(e, i)
compute_at(m, i)
parallel(i)"""),
}  # fmt: skip
"""Schedules that keep the bits of the compute's own order, by what they do: a task, and steps."""

PARTED = {
    "another order": ("product", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [_, 8])
reorder(i, k1, j, k0)"""),
    "partial sums": ("product", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [4, _])
rfactor(C, k0)"""),
    "lanes of a sum": ("product", """
let [i, j, k] = C.loops
let [k0, k1] = split(k, [_, 8])
let p = rfactor(C, k1)
vectorize(k1)"""),
    "a product that is fused with a sum": ("scaling", """
compute_inline(P)"""),
    "loops of a window exchanged": ("boxes", """
let [h, w, a, b] = Y.loops
reorder(b, a)"""),
}  # fmt: skip
"""Schedules that do not."""


@pytest.fixture(scope="module")
def tasks() -> Mapping[str, Task]:
    return loads(FILE, threads=2)


def scheduled(tasks: Mapping[str, Task], name: str, steps: str) -> Program:
    task = tasks[name]
    return task.expand(Source("steps", f"schedule steps for {task.space.compute} {{\n{steps}\n}}")).program


def differ(one: Program, other: Program) -> bool:
    """Whether kernels of the two differ on adversarial data."""
    for seed in range(6):
        inputs: dict[str, Array] = adversarial(one, seed)
        a, b = (outputs(kernel_of(p), one, inputs) for p in (one, other))
        if any(other_bits(p.name, b[p.name], a[p.name], p.dtype, True) for p in one.outputs):
            return True
    return False


@pytest.mark.corpus
@pytest.mark.parametrize("what", KEPT)
def test_kept_bits_are_proved_and_are_the_same(tasks: Mapping[str, Task], what: str) -> None:
    name, steps = KEPT[what]
    own, program = in_order(tasks[name].program), scheduled(tasks, name, f"keep_order()\n{steps}")
    assert isinstance(same_bits(own, program), Valid)
    assert not differ(own, program)


@pytest.mark.corpus
@pytest.mark.parametrize("what", PARTED)
def test_other_bits_are_not_proved_and_are_others(tasks: Mapping[str, Task], what: str) -> None:
    name, steps = PARTED[what]
    own, program = in_order(tasks[name].program), scheduled(tasks, name, steps)
    found = same_bits(own, program)
    assert isinstance(found, Unproved)
    assert found.diagnostic.code == "E0810"
    assert differ(own, program)
    with pytest.raises(TschedError) as refused:
        scheduled(tasks, name, f"keep_order()\n{steps}")
    assert refused.value.diagnostics[0].code == "E0346"


def test_the_first_step_that_parts_them_is_named(tasks: Mapping[str, Task]) -> None:
    name, steps = PARTED["another order"]
    task = tasks[name]
    trace = task.expand(Source("steps", f"schedule steps for matmul {{\n{steps}\n}}"))
    found = task.verify_bits(trace)
    assert isinstance(found, Unproved)
    first = next(n.text for n in found.diagnostic.notes if n.kind == "first step")
    assert first.startswith("`reorder(i, k_1, j, k_0)` of `steps`: the terms of `C` would be combined in another order")


def test_two_schedules_may_have_the_same_bits_that_are_not_those_of_the_compute(tasks: Mapping[str, Task]) -> None:
    steps = "let [i, j, k] = C.loops\nlet [k0, k1] = split(k, [4, _])\nlet p = rfactor(C, k0)\n"
    task = tasks["product"]
    one, other = (
        task.expand(Source("steps", f"schedule steps for matmul {{\n{steps}{more}keep_order()\n}}"))
        for more in ("", "parallel(i)\n")
    )
    assert isinstance(task.verify_bits(one, other), Valid)
    assert isinstance(task.verify_bits(one), Unproved)


# What is fused.


def test_a_sum_of_a_chosen_product_depends_on_cuts_unless_it_is_spread(tasks: Mapping[str, Task]) -> None:
    program = tasks["below"].program
    assert depends_on_cuts(program)
    assert not depends_on_cuts(with_spread_sums(program))
    text = format_program(contracted(program))
    assert "fma(" in text
    cut = scheduled(tasks, "below", "let [i, k] = Y.loops\nsplit(k, [_, 4], partial=true)")
    assert isinstance(same_bits(in_order(program), cut), Unproved)
    kept = scheduled(tasks, "below", "keep_order()\nlet [i, k] = Y.loops\nsplit(k, [_, 4], partial=true)")
    assert isinstance(same_bits(in_order(program), kept), Valid)
    assert not differ(in_order(program), kept)


def test_of_two_products_the_second_one_is_fused(tasks: Mapping[str, Task]) -> None:
    program = parse_program(
        Source(
            "two",
            "program two(A: f32[4], B: f32[4], C: f32[4]) {\n for i in 4 {\n block C {\n spatial v in 4 = i\n"
            " C[v] = A[v] * A[v] - B[v] * B[v]\n }\n }\n}",
        )
    )
    (b,) = blocks(program)
    found = fused(b.body[0].value)
    assert found is not None and found.form == "fnma"
    a = np.array([1.1, 3.3, 1e-20, 7], np.float32)
    got = outputs(kernel_of(program), program, {"A": a, "B": a})["C"]
    expected = (a * a).astype(np.float64) - a.astype(np.float64) ** 2
    np.testing.assert_array_equal(got, expected.astype(np.float32))


def test_lowering_combines_no_lanes_of_a_program_in_order() -> None:
    text = """program parts(A: f32[8, 16], C: f32[8]) {
    buffer P: f32[8, 8] in "local"
    for i in 8 {
        for j in 8, k in 2 {
            block P {
                spatial vi in 8 = i
                spatial vj in 8 = j
                reduce vk in 2 = k
                init { P[vi, vj] = 0.0 }
                P[vi, vj] = P[vi, vj] + A[vi, vj * 2 + vk]
            }
        }
        for j_1 in 8 {
            block C {
                spatial vi in 8 = i
                reduce vj in 8 = j_1
                init { C[vi] = 0.0 }
                C[vi] = C[vi] + P[vi, vj]
            }
        }
    }
}
"""
    program = parse_program(Source("parts", text))
    assert differ(program, in_order(program))
    found = same_bits(in_order(program), program)
    assert isinstance(found, Unproved)
    assert "across the lanes" in found.diagnostic.message


def test_where_buffers_are_decides_what_lowering_combines(tasks: Mapping[str, Task]) -> None:
    """Two schedules with equal loops: of one the terms are on the stack, where lanes are combined, and of the other not."""
    plain = tasks["rows"].program
    apart = scheduled(tasks, "rows", "storage_align(e, 0, 4096)")
    assert plain.body == apart.body
    assert moderately_differ(plain, apart)
    assert isinstance(same_bits(plain, apart), Unproved)


def moderately_differ(one: Program, other: Program) -> bool:
    """Whether kernels of the two differ on numbers near each other, of which no term is lost in a sum."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {p.name: rng.random(shape_of(p), np.float32) for p in one.inputs}
    a, b = (outputs(kernel_of(p), one, inputs) for p in (one, other))
    return any(other_bits(p.name, b[p.name], a[p.name], p.dtype, True) for p in one.outputs)


def test_a_program_whose_kernel_keeps_its_order_is_one_that_does(tasks: Mapping[str, Task]) -> None:
    """Lowering combines four or more terms across lanes, and cuts no loop here that decides what is fused."""
    task = tasks["few"]
    assert isinstance(task.verify_bits(task.sample(0)), Valid)
    assert not isinstance(tasks["rows"].verify_bits(tasks["rows"].sample(0)), Valid)
    assert not moderately_differ(in_order(task.program), task.program)
    assert moderately_differ(in_order(tasks["rows"].program), tasks["rows"].program)
    program = in_order_if_lowered_so(task.program, task.target)
    assert program == in_order(task.program)


# Steps.


def test_a_step_that_only_moves_loops_needs_no_proof_of_values(tasks: Mapping[str, Task]) -> None:
    before = in_order(tasks["product"].program)
    after = in_order(
        scheduled(tasks, "product", "let [i, j, k] = C.loops\nlet [k0, k1] = split(k, [_, 7], partial=true)")
    )
    assert changed_order(before, after) is None
    fewer = format_program(after).replace("where k_0 * 7 + k_1 < 24", "where k_0 * 7 + k_1 < 23")
    assert changed_order(before, parse_program(Source("fewer", fewer))) is not None


def test_an_open_size_is_proved_for_all_sizes(tasks: Mapping[str, Task]) -> None:
    steps = (
        "keep_order()\nlet [i, j, k] = C.loops\nlet [i0, i1] = split(i, [_, 4], partial=true)\nreorder(i0, k, i1, j)"
    )
    own = in_order(tasks["open"].program)
    assert isinstance(same_bits(own, scheduled(tasks, "open", steps)), Valid)


def test_another_interface_is_no_bug(tasks: Mapping[str, Task]) -> None:
    one = tasks["product"].program
    assert isinstance(same_bits(one, replace(tasks["numbers"].program, name=one.name)), Unproved)


# Bits of arrays.


def test_other_bits_are_found_and_told() -> None:
    a = np.array([1, 0.0, np.nan, 2], np.float32)
    b = np.array([1, -0.0, -np.nan, 2], np.float32)
    assert other_bits("C", a, a.copy(), F32, False) == ""
    assert other_bits("C", b, a, F32, True) == ""
    assert other_bits("C", b, a, F32, False) == (
        "C[1] has the bits 80000000, not 00000000 (1 of 4 elements have others)"
    )
    c = np.nextafter(a, np.float32(9)).reshape(2, 2)
    assert other_bits("C", c, a.reshape(2, 2), F32, True).startswith("C[0, 0] has the bits 3f800001, not 3f800000 (")
    half = np.array([0x3F80, 0x7FC0], np.uint16)
    assert other_bits("C", half, np.array([0x3F80, 0x7FC1], np.uint16), BF16, False) == ""


SELECTING = """schedule selecting for matmul {{
    {first}
    select M {{
        1 => {{}}
        _ => {{ {steps} }}
    }}
}}"""


def test_each_case_of_a_division_by_sizes_has_the_bits(tasks: Mapping[str, Task]) -> None:
    t = tasks["open"]

    def selecting(steps: str, first: str = "keep_order()") -> Trace:
        return t.expand(Source("s.tsched", SELECTING.format(first=first, steps=steps)))

    moved, parted, loose = (
        selecting("let [i, j, k] = C.loops\n reorder(j, i, k)"),
        selecting("let [i, j, k] = C.loops\n let [k0, k1] = split(k, [4, _])\n rfactor(C, k0)", ""),
        selecting("", ""),
    )
    own = in_order(t.program)
    assert moved.program.cases and parted.program.cases and loose.program.cases
    assert isinstance(same_bits(own, moved.program), Valid) and isinstance(t.verify_bits(moved), Valid)
    pairs = ((own, parted.program), (moved.program, parted.program), (parted.program, loose.program))
    for one, other in (*pairs, *((b, a) for a, b in pairs)):
        assert isinstance(same_bits(one, other), Unproved)
    assert isinstance(t.verify_bits(parted), Unproved)
    assert isinstance(same_rows(moved.program, moved.program, "M"), Valid)
    assert isinstance(same_rows(parted.program, parted.program, "M"), Unproved)
