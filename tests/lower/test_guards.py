"""Guards that move outwards: not out of a shuffle, and not past a store that may change what they read."""

from __future__ import annotations

from tensorc_dsl.ir.dtypes import F32, INDEX
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Const, Load, Var, index
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, Shuffle
from tensorc_dsl.lower.trim_bounds import hoist_guards

PLAIN = Compare("<", Var("t"), ONE)
DATA = Compare("<", Load("n", (ZERO,), INDEX), ONE)
STORE = Store("C", (ZERO,), Const(1.0, F32))
CHANGE = Store("n", (ZERO,), Const(1, INDEX))


def loop(*body: Flat) -> Loop:
    return Loop("i", ZERO, index(4), LoopKind.SERIAL, body)


def test_neighbours_under_one_condition_are_joined() -> None:
    (only,) = hoist_guards((loop(If(PLAIN, (STORE,))), loop(If(PLAIN, (CHANGE,)))))
    assert only == If(PLAIN, (loop(STORE), loop(CHANGE)))


def test_a_condition_over_data_stays_where_these_change() -> None:
    assert hoist_guards((If(DATA, (STORE,)), If(DATA, (CHANGE,)))) == (If(DATA, (STORE, CHANGE)),)
    changed = (If(DATA, (CHANGE,)), If(DATA, (STORE,)))
    assert hoist_guards(changed) == changed
    assert hoist_guards((loop(If(DATA, (STORE,))),)) == (If(DATA, (loop(STORE),)),)
    assert hoist_guards((loop(If(DATA, (CHANGE,))),)) == (loop(If(DATA, (CHANGE,))),)


def test_all_lanes_run_a_shuffle() -> None:
    shuffle = Shuffle("down", 1, 32, (If(PLAIN, (STORE,)),))
    assert hoist_guards((shuffle,)) == (shuffle,)
