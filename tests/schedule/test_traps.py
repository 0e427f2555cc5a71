"""Known mistakes of schedulers in steps over loops: each is refused, or right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Compare, Dim, Select, Var, add, conjunction, index
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Axis, Block, Buffer, For, IterKind, Program, blocks, find_block
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, ScheduleRefusal
from tests.programs import buffer, conv2d, load, matmul, random_inputs, softmax, stage, v


def steps(program: Program, *calls: tuple[object, ...], partial: bool = True) -> Program:
    """The program after `(name, first argument, rest …)` each; strings are loops, axes of a GPU or a scope."""
    for name, *args in calls:
        kwargs = {"partial": partial} if name == "split" else {}
        refs = [LoopRef(a) if isinstance(a, str) and a not in (*Axis, "shared") else a for a in args]
        program = apply(program, str(name), *refs, **kwargs).program
    return program


def assert_same(before: Program, after: Program) -> None:
    verify(after)
    inputs = random_inputs(before)
    expected = interpret(before, inputs)
    for order in ("forward", "reversed", "shuffled"):
        found = interpret(after, inputs, order)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5)


def conditions(program: Program, block: str) -> list[str]:
    return [format_expr(c) for c in find_block(program, block)[1].where]


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_trap_03_merged_loops_keep_their_dependences(offset: int) -> None:
    """The second loop reads what the first wrote `offset` iterations later: only earlier ones are done by then."""
    inside = conjunction((Compare("<=", index(0), add(v("i"), index(offset))),
                          Compare("<", add(v("i"), index(offset)), index(7))))  # fmt: skip
    assert inside is not None
    first = stage("T", {"i": 7}, load("A", v("i")))
    near = Select(inside, load("T", add(v("i"), index(offset))), load("A", v("i")))
    second = stage("C", {"i": 7}, near, taken=("i",))
    before = Program("pair", (buffer("A", 7), buffer("C", 7)), (buffer("T", 7),), (first, second))
    if offset > 0:
        with pytest.raises(ScheduleRefusal) as refused:
            steps(before, ("merge", "i", "i_1"))
        assert refused.value.refusal.code == "E0604"
    else:
        assert_same(before, steps(before, ("merge", "i", "i_1")))


@pytest.mark.parametrize("extent", [1, 2, 5, 7, 10, 13])
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 8])
def test_trap_05_a_split_that_does_not_divide_guards_every_block_below(extent: int, factor: int) -> None:
    row = whole = softmax(extent, 3)
    for name in ("i", "i_1", "i_2", "i_3"):
        whole = steps(whole, ("split", name, (None, factor)))
    assert_same(row, whole)
    guarded = extent % factor != 0
    assert all(bool(b.where) == guarded for b in blocks(whole))


def test_trap_05_the_writes_stop_at_the_edge() -> None:
    before = matmul(10, 7, 3)
    after = steps(before, ("split", "i", (None, 4)), ("split", "j", (None, 4)), ("reorder", "i_0", "j_0", "i_1", "j_1"))
    assert conditions(after, "C") == ["i_0 * 4 + i_1 < 10", "j_0 * 4 + j_1 < 7"]
    assert_same(before, after)


def test_trap_06_the_initialiser_keeps_spatial_guards_only() -> None:
    before = conv2d(7, 6, 3, 2, 3, 2, stride=2)
    after = steps(
        before,
        ("split", "h", (None, 2)), ("split", "ci", (None, 2)), ("split", "kh", (None, 2)),
        ("reorder", "h_0", "kh_0", "ci_0", "h_1", "w", "kh_1", "kw", "ci_1", "co"),
        ("decompose_reduction", BlockRef("Y"), "kh_0"),
    )  # fmt: skip
    assert conditions(after, "Y_init") == ["h_0 * 2 + h_1_init < 3"]
    assert conditions(after, "Y") == ["h_0 * 2 + h_1 < 3", "ci_0 * 2 + ci_1 < 3", "kh_0 * 2 + kh_1 < 3"]
    assert all(it.kind is IterKind.SPATIAL for it in find_block(after, "Y_init")[1].iters)
    assert_same(before, after)


@pytest.mark.parametrize("loop", ["k_0", "i_0", "k_1", "i_1", "k_2"])
def test_trap_06_the_initialiser_stands_above_every_reduction_loop(loop: str) -> None:
    before = matmul(4, 3, 8)
    tiled = steps(before, ("split", "i", (None, 2)), ("split", "k", (None, 2, 2)))
    tiled = steps(tiled, ("reorder", "k_0", "i_0", "k_1", "i_1", "k_2"))
    if loop == "k_0":
        assert_same(before, steps(tiled, ("decompose_reduction", BlockRef("C"), loop)))
    else:
        with pytest.raises(ScheduleRefusal) as refused:
            steps(tiled, ("decompose_reduction", BlockRef("C"), loop))
        assert refused.value.refusal.code == "E0337"


def test_trap_06_a_reduction_without_iterations_is_initialised_too() -> None:
    before = matmul(2, 3, 0)
    after = steps(before, ("decompose_reduction", BlockRef("C"), "k"))
    verify(after)
    assert conditions(after, "C_init") == []
    assert_same(before, after)


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
def test_trap_07_reduction_loops_do_not_run_at_once(step: str) -> None:
    program = steps(conv2d(5, 5, 2, 2, 3, 3), ("split", "kh", (None, 2)), ("fuse", "kw", "ci"))
    for loop in ("kh_0", "kh_1", "kw_ci"):
        with pytest.raises(ScheduleRefusal) as refused:
            steps(program, (step, loop))
        assert refused.value.refusal.code == "E0330"
        assert "accumulates into `Y`" in refused.value.message


def test_trap_07_nor_does_a_loop_that_mixes_a_reduction_with_elements() -> None:
    program = steps(matmul(3, 4, 5), ("fuse", "j", "k"))
    with pytest.raises(ScheduleRefusal) as refused:
        steps(program, ("parallel", "j_k"))
    assert refused.value.refusal.code == "E0330"


def test_trap_07_nor_a_reduction_of_which_each_iteration_has_its_own_element() -> None:
    """A diagonal: no two iterations meet, yet the iterator is one of a reduction, which runs in order."""
    program = matmul(4, 3, 4)
    around, block = find_block(program, "C")
    diagonal = tuple(replace(it, binding=Var("i")) if it.kind is IterKind.REDUCE else it for it in block.iters)
    stmt = replace(around[0], body=(replace(around[1], body=(replace(block, iters=diagonal),)),))
    with pytest.raises(ScheduleRefusal, match="takes its reduce iterator `vk` from it"):
        steps(replace(program, body=(stmt,)), ("parallel", "i"))


def test_trap_15_an_axis_has_one_size_in_a_kernel() -> None:
    row = steps(
        softmax(4, 6), ("merge", "i", "i_1"), ("merge", "i", "i_2"), ("merge", "i", "i_3"), ("bind", "i", "block.x")
    )
    tiled = steps(row, ("split", "j_1", (None, 4)), ("bind", "j_1_1", "thread.x"))
    with pytest.raises(ScheduleRefusal) as refused:
        steps(tiled, ("bind", "j_3", "thread.x"))
    assert refused.value.refusal.code == "E0610"
    assert_same(softmax(4, 6), steps(tiled, ("split", "j_3", (None, 4)), ("bind", "j_3_1", "thread.x")))


@pytest.mark.parametrize("step", [("split", "unit", (None, 2)), ("decompose_reduction", BlockRef("C"), "unit")])
def test_trap_15_nor_does_a_later_step_start_a_grid_twice(step: tuple[object, ...]) -> None:
    bound = steps(matmul(4, 3, 5), ("add_unit_loop", "i"), ("add_unit_loop", "unit"), ("bind", "i", "block.x"))
    with pytest.raises(ScheduleRefusal) as refused:
        steps(bound, step)
    assert refused.value.refusal.code == "E0612"


def test_trap_10_threads_share_what_is_shared() -> None:
    before = matmul(4, 6, 5)
    copied = steps(before, ("bind", "i", "block.x"), ("cache_read", BlockRef("C"), BufferRef("A"), "shared"))
    outside = steps(copied, ("compute_at", BlockRef("A_shared"), "i"), ("bind", "j", "thread.x"))
    assert_same(before, outside)
    with pytest.raises(ScheduleRefusal) as refused:
        steps(outside, ("compute_at", BlockRef("A_shared"), "j"))
    assert refused.value.refusal.code == "E0611"


def test_trap_22_an_open_extent_can_run_in_parallel() -> None:
    n = Dim("N")
    nest = stage("B", {"i": 1, "j": 4}, load("A", v("i"), v("j")))
    assert isinstance(nest, For)
    inner = nest.body[0]
    assert isinstance(inner, For)
    (block,) = inner.body
    assert isinstance(block, Block)
    opened = replace(block, iters=(replace(block.iters[0], extent=n), block.iters[1]))
    body = replace(nest, extent=n, body=(replace(inner, body=(opened,)),))
    shape = (n, index(4))
    program = Program("copy", (Buffer("A", F32, shape), Buffer("B", F32, shape)), (), (body,), dims=(n,))
    after = steps(program, ("split", "i", (None, 8)), ("parallel", "i_0"), ("vectorize", "j"))
    verify(after)
    assert conditions(after, "B") == ["i_0 * 8 + i_1 < N"]
