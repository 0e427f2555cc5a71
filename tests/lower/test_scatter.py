"""A scattered loop runs the iteration that data choose, for all pieces of a loop inside of it."""

from __future__ import annotations

from tensorc_dsl.ir.dtypes import I32
from tensorc_dsl.ir.expr import ONE, ZERO, Binary, Cast, Compare, Const, Expr, Load, Select, Var, add, index
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, Loop
from tensorc_dsl.lower.trim_bounds import Known, narrow

NOTHING = Known(frozenset(), {})


def count(position: Expr) -> Store:
    """`H[b]` counts the numbers `X[0]` that equal a position."""
    equal = Compare("==", Load("X", (ZERO,), I32), Cast(position, I32))
    one, none = Const(1, I32), Const(0, I32)
    return Store("H", (Var("b"),), Binary("+", Load("H", (Var("b"),), I32), Select(equal, one, none)))


def scattered(*body: Flat) -> Loop:
    return Loop("b", ZERO, index(8), LoopKind.SERIAL, body, scattered=True)


def test_the_chosen_iteration_runs_alone() -> None:
    (guard,) = narrow((scattered(count(Var("b"))),), NOTHING)
    (loop,) = (guard,) if isinstance(guard, (Loop, Store)) else guard.body
    assert isinstance(loop, Loop)
    assert loop.end == add(loop.begin, ONE)


def test_the_range_of_a_loop_inside_is_that_of_all_of_its_pieces() -> None:
    """With the range of the last piece alone `k / 4` is 1, and both pieces would run the iteration `X[0] - 1`."""
    store = count(add(Var("b"), Binary("/", Var("k"), index(4))))
    pieces = (Loop("k", index(n), index(n + 4), LoopKind.SERIAL, (store,)) for n in (0, 4))
    whole = scattered(*pieces)
    (kept,) = narrow((whole,), NOTHING)
    assert isinstance(kept, Loop)
    bounds = (format_expr(kept.begin), format_expr(kept.end), kept.scattered)
    assert bounds == ("max(0, index(X[0]) - 1)", "min(8, index(X[0]) + 1)", False)
