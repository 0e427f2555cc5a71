"""Choices that all lanes of a row share are made before the row, those that a loop does not change before the loop, and each
element gets what it got."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.backend.llvm.lower.passes import MOST, settle_choices, take_out_choices
from tensorc_dsl.ir.dtypes import F32, INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    add,
    index,
    loads,
    rewrite_expr,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, format_body, stores
from tests.examples import examples
from tests.lower.test_partition import value

ROWS, LANES = 4, 6


def comparisons() -> st.SearchStrategy[Expr]:
    left = st.sampled_from([Var("i"), Var("j"), add(Var("i"), Var("k")), add(Var("i"), Var("j"))])
    return st.builds(Compare, st.sampled_from(["<", ">=", "=="]), left, st.integers(0, 5).map(index))


def conditions() -> st.SearchStrategy[Expr]:
    both = st.builds(Logic, st.sampled_from(["and", "or"]), comparisons(), comparisons())
    return comparisons() | both | st.builds(Not, both)


def choices(number: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    sums = st.builds(Binary, st.just("+"), number, number)
    return st.builds(Select, conditions(), number, number) | sums


VALUES = st.recursive(st.integers(0, 99).map(lambda n: Const(n, INDEX)), choices, max_leaves=6)


BEFORE = add(Var("j"), index(16))
"""The place of an element of the step before."""


def row(var: str, begin: int, end: int, of: Expr) -> Loop:
    return Loop(var, index(begin), index(end), LoopKind.VECTORIZED, (Store("B", (Var(var),), of),))


def tile(of: Expr, rows: int = LANES) -> Loop:
    """A loop around rows that are written out, where each iteration stores all of them."""
    place = add(Binary("*", Var("k"), index(LANES)), Var("j"))
    inner = Loop("j", index(0), index(rows), LoopKind.UNROLLED, (Store("B", (place,), of),))
    return Loop("k", index(0), index(3), LoopKind.SERIAL, (inner,))


def stored(body: tuple[Flat, ...], env: dict[str, int], out: list[tuple[int, int]]) -> list[tuple[int, int]]:
    for s in body:
        match s:
            case Store():
                numbers = rewrite_expr(s.value, lambda e: e.indices[0] if isinstance(e, Load) else e)
                out.append((value(s.indices[0], env), value(numbers, env)))
            case If():
                stored(s.body if value(s.cond, env) else (), env, out)
            case Loop():
                for n in range(value(s.begin, env), value(s.end, env)):
                    stored(s.body, {**env, s.var: n}, out)
            case _:
                raise AssertionError(s)
    return out


@settings(max_examples=examples(40))
@given(VALUES, VALUES)
def test_each_element_gets_what_it_got(one: Expr, other: Expr) -> None:
    read = Load("B", (BEFORE,), INDEX)
    body = (row("j", 0, LANES // 2, add(one, read)), row("j", LANES // 2, LANES, add(other, read)))
    versions = take_out_choices(body)
    for i, k in product(range(ROWS), range(3)):
        env = {"i": i, "k": k}
        assert stored(versions, env, []) == stored(body, env, [])
    assert len(list(stores(versions))) <= MOST * len(body)


@settings(max_examples=examples(40))
@given(VALUES, conditions(), st.integers(1, LANES))
def test_each_element_of_a_tile_gets_what_it_got(of: Expr, known: Expr, rows: int) -> None:
    loop = Loop("i", index(0), index(ROWS), LoopKind.SERIAL, (If(known, (tile(of, rows),)), tile(of)))
    versions = settle_choices((loop,))
    for j in range(LANES):
        env = {"j": j, "k": 1}  # the loops inside have the same names, and `known` is about these
        assert stored(versions, env, []) == stored((loop,), env, [])


STEP = Load("B", (BEFORE,), F32)
ZERO = Const(0.0, F32)
INSIDE = Compare(">", Var("i"), index(0))
FIRST = Compare(">", Var("j"), index(0))


def test_what_lanes_share_is_asked_once_for_a_row() -> None:
    of = Select(Logic("and", INSIDE, FIRST), STEP, ZERO)
    assert (
        format_body(take_out_choices((row("j", 0, 4, of), row("j", 4, 9, of))))
        == """\
if i > 0 {
    vectorized for j in 0 .. 4 {
        B[j] = B[j + 16] if j > 0 else 0.0
    }
    vectorized for j in 4 .. 9 {
        B[j] = B[j + 16] if j > 0 else 0.0
    }
}
if not i > 0 {
    vectorized for j in 0 .. 4 {
        B[j] = 0.0
    }
    vectorized for j in 4 .. 9 {
        B[j] = 0.0
    }
}
"""
    )


def test_what_adds_up_and_what_asks_data_or_reads_no_step_stays() -> None:
    adds = Binary("+", Load("B", (Var("j"),), F32), Select(INSIDE, STEP, ZERO))
    asks = Select(Compare(">", Load("A", (Var("i"),), F32), ZERO), STEP, ZERO)
    other = Select(INSIDE, Load("A", (Var("j"),), F32), ZERO)
    for of in (adds, asks, other, Select(FIRST, STEP, ZERO)):
        assert loads(of)
        assert take_out_choices((row("j", 0, 9, of),)) == (row("j", 0, 9, of),)


def test_a_loop_whose_choices_a_condition_settles_has_a_version_without_them() -> None:
    reads = Load("A", (add(Var("i"), Var("j")),), F32)
    border = Logic("and", Compare("<", add(Var("i"), Var("j")), index(9)), INSIDE)
    assert (
        format_body(settle_choices((If(INSIDE, (tile(Select(border, reads, ZERO)),)),)))
        == """\
if i > 0 {
    if i < 4 {
        for k in 0 .. 3 {
            unrolled for j in 0 .. 6 {
                B[k * 6 + j] = A[i + j]
            }
        }
    }
    if not i < 4 {
        for k in 0 .. 3 {
            unrolled for j in 0 .. 6 {
                B[k * 6 + j] = A[i + j] if i + j < 9 else 0.0
            }
        }
    }
}
"""
    )


def test_choices_that_the_loop_changes_or_that_ask_data_stay() -> None:
    asks = Compare(">", Load("A", (Var("i"),), F32), ZERO)
    for cond in (asks, Compare("<", Var("k"), index(2)), Compare("==", Var("j"), Var("i"))):
        loop = tile(Select(cond, STEP, ZERO))
        assert settle_choices((loop,)) == (loop,)
