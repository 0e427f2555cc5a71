"""The interpreter: scheduled programs give what unscheduled ones do, and wrong ones raise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Var, add, index, mul
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, LoopKind, Program, Stmt, Store
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import InterpretError, interpret
from tests.compute.texts import build, made, std


def nest(loops: list[tuple[str, int]], body: Stmt, kind: LoopKind = LoopKind.SERIAL) -> Stmt:
    for name, extent in reversed(loops):
        body = For(name, index(extent), (body,), kind)
    return body


def ramp(
    extent: int, binding: Expr, loops: list[tuple[str, int]], where: tuple[Expr, ...] = (), **block: object
) -> Program:
    """B[vi] = A[vi] + 1 over 10 elements, with a nest of the caller's choice."""
    value = Binary("+", Load("A", (Var("vi"),), F32), Const(1.0, F32))
    it = Iter("vi", IterKind.SPATIAL, index(extent), binding)
    b = Block("B", (it,), (Store("B", (Var("vi"),), value),), where=where)
    shape = (index(10),)
    return Program("p", (Buffer("A", F32, shape), Buffer("B", F32, shape)), (), (nest(loops, b),))


A = {"A": np.arange(10, dtype=np.float32)}
SPLIT = add(mul(Var("i0"), index(4)), Var("i1"))


def test_a_guarded_split_runs_each_instance_once() -> None:
    p = ramp(10, SPLIT, [("i0", 3), ("i1", 4)], (Compare("<", SPLIT, index(10)),))
    verify(p)
    np.testing.assert_array_equal(interpret(p, A)["B"], A["A"] + 1)


def test_a_missing_guard_is_found() -> None:
    with pytest.raises(InterpretError, match=r"iterator vi of block B is 10, outside 0 \.\. 9"):
        interpret(ramp(10, SPLIT, [("i0", 3), ("i1", 4)]), A)
    with pytest.raises(InterpretError, match=r"subscript 1 of A, `vi`, is 10, outside 0 \.\. 9"):
        interpret(ramp(12, SPLIT, [("i0", 3), ("i1", 4)]), A)


def test_an_output_that_is_not_all_written_is_found() -> None:
    with pytest.raises(InterpretError, match=r"B\[8\] is never written"):
        interpret(ramp(10, SPLIT, [("i0", 2), ("i1", 4)]), A)


def test_reading_before_writing_is_found() -> None:
    p = made(std("softmax"), M=2, N=3)
    late = replace(p, body=(*p.body[1:], p.body[0]))
    with pytest.raises(InterpretError, match=r"m\[0\] is read before it is written"):
        interpret(late, make_inputs(p, 0))


def test_the_initialiser_runs_at_the_first_reduction_instance() -> None:
    p = made(std("matmul"), M=3, N=4, K=5)
    (outer,) = p.body
    assert isinstance(outer, For) and isinstance(outer.body[0], For) and isinstance(outer.body[0].body[0], For)
    i, j, k = outer, outer.body[0], outer.body[0].body[0]
    x = make_inputs(p, 0)
    expected = evaluate(p, x)["C"]
    for order in ([k, i, j], [j, k, i], [k, j, i]):
        body: tuple[Stmt, ...] = k.body
        for loop in reversed(order):
            body = (replace(loop, body=body),)
        np.testing.assert_allclose(interpret(replace(p, body=body), x)["C"], expected, rtol=1e-12)


def test_a_reduction_that_starts_late_is_found() -> None:
    p = made(std("matmul"), M=1, N=1, K=3)
    text_block = p.body[0]
    while isinstance(text_block, For):
        text_block = text_block.body[0]
    guarded = replace(text_block, where=(Compare(">=", Var("k"), index(1)),))
    with pytest.raises(InterpretError, match=r"C\[0, 0\] is read before it is written"):
        interpret(replace(p, body=(nest([("i", 1), ("j", 1), ("k", 3)], guarded),)), make_inputs(p, 0))


def chain(scope: str, inner: bool, kind: LoopKind = LoopKind.SERIAL) -> Program:
    """T[i] = A[i]; B[i] = T[9 - i], in one loop or in two."""
    at, back = (Var("vi"),), (Binary("-", index(9), Var("vi")),)
    it = (Iter("vi", IterKind.SPATIAL, index(10), Var("i")),)
    first = Block("T", it, (Store("T", at, Load("A", at, F32)),))
    second = Block("B", it, (Store("B", at, Load("T", at if inner else back, F32)),))
    shape = (index(10),)
    body: tuple[Stmt, ...] = (For("i", index(10), (first, second), kind),)
    return Program("p", (Buffer("A", F32, shape), Buffer("B", F32, shape)), (Buffer("T", F32, shape, scope),), body)


def test_private_buffers_do_not_outlive_their_iteration() -> None:
    np.testing.assert_array_equal(interpret(chain("local", True), A)["B"], A["A"])
    with pytest.raises(InterpretError, match=r"T\[9\] is read before"):
        interpret(chain("global", False), A)
    p = chain("local", True)
    (loop,) = p.body
    assert isinstance(loop, For)
    second = loop.body[1]
    assert isinstance(second, Block)
    # T keeps only what this iteration wrote: the element of the iteration before is gone.
    before = (Binary("max", Binary("-", Var("vi"), index(1)), index(0)),)
    stale = replace(second, body=(Store("B", (Var("vi"),), Load("T", before, F32)),))
    with pytest.raises(InterpretError, match=r"T\[0\] is read before"):
        interpret(replace(p, body=(replace(loop, body=(loop.body[0], stale)),)), A)
    interpret(
        replace(p, buffers=(replace(p.buffers[0], scope="global"),), body=(replace(loop, body=(loop.body[0], stale)),)),
        A,
    )


@pytest.mark.parametrize("kind", [LoopKind.PARALLEL, LoopKind.VECTORIZED])
def test_races_show_when_the_order_changes(kind: LoopKind) -> None:
    p = ramp(10, Var("i"), [("i", 10)])
    (loop,) = p.body
    assert isinstance(loop, For) and isinstance(loop.body[0], Block)
    before = (Binary("max", Binary("-", Var("vi"), index(1)), index(0)),)
    racing = replace(
        loop.body[0],
        init=(),
        body=(Store("B", (Var("vi"),), Load("A", (Var("vi"),), F32)), Store("S", (), Load("B", before, F32))),
    )
    q = replace(p, params=(*p.params, Buffer("S", F32, ())), body=(replace(loop, body=(racing,), kind=kind),))
    assert interpret(q, A)["S"] == 8.0
    for order in ("reversed", "shuffled"):
        with pytest.raises(InterpretError, match="is read before it is written"):
            interpret(q, A, order)
    fine = replace(p, body=(replace(loop, kind=kind),))
    for order in ("forward", "reversed", "shuffled"):
        np.testing.assert_array_equal(interpret(fine, A, order)["B"], A["A"] + 1)


def test_deep_nests_run() -> None:
    loops = [(f"i{d}", 2 if d < 3 else 1) for d in range(40)]
    binding: Expr = index(0)
    for name, extent in loops:
        binding = add(mul(binding, index(extent)), Var(name))
    p = ramp(10, binding, loops)
    with pytest.raises(InterpretError, match=r"B\[8\] is never written"):
        interpret(p, A)
    shape = (index(8),)
    p = replace(p, params=(p.params[0], Buffer("B", F32, shape)))
    np.testing.assert_array_equal(interpret(p, A)["B"], A["A"][:8] + 1)


def test_empty_programs_and_scalars() -> None:
    assert interpret(made(std("matmul"), M=0, N=3, K=2), {"A": np.zeros((0, 2)), "B": np.zeros((2, 3))})["C"].shape == (
        0,
        3,
    )
    p = build("compute f(A: f32[M]) -> C: f32 { C = sum[i] A[i] }", M=3)
    assert interpret(p, {"A": np.ones(3, np.float32)})["C"] == 3.0


def test_arithmetic_at_the_edges() -> None:
    text = """compute f(A: f32[M], B: f32[M]) -> C: f32[M], D: f32[M], E: f32[M] {
        C[i] = A[i] / B[i]
        D[i] = max(A[i], B[i])
        E[i] = min(A[i], B[i])
    }"""
    p = build(text, M=5)
    x = {"A": np.array([1, -1, 0, np.nan, 2], np.float32), "B": np.array([0, 0, 0, 1, np.nan], np.float32)}
    got, expected = interpret(p, x), evaluate(p, x)
    for name in "CDE":
        np.testing.assert_array_equal(got[name], expected[name])
    p = build("compute f(A: f32[M]) -> C: f32[M] { C[i] = pow(A[i], 0.5) }", M=3)
    roots = interpret(p, {"A": np.array([-np.inf, -1, 4], np.float32)})["C"]
    np.testing.assert_array_equal(roots, [np.inf, np.nan, 2])  # as C has it: no square root
    p = build("compute f(A: f32[M]) -> C: i8[M] { C[i] = i8(A[i]) * 2 }", M=3)
    np.testing.assert_array_equal(interpret(p, {"A": np.array([-1.9, 1.9, 100.0])})["C"], [-2, 2, -56])
    np.testing.assert_array_equal(interpret(p, {"A": np.array([np.nan, np.inf, -1e9])})["C"], [0, -2, 0])
    p = build("compute f(A: i8[M]) -> C: i8[M] { C[i] = 1 / A[i] }", M=1)
    assert interpret(p, {"A": np.zeros(1, np.int8)})["C"] == 0
