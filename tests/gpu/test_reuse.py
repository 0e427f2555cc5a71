"""Loops over the terms of sums in registers stand around the loops over sums, where each sum keeps the order of its terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.backend.cuda.lower.bodies import with_first_terms, with_guards_of_steps, with_steps_outside
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.dtypes import F32, INDEX
from tensorc_dsl.ir.expr import ZERO, Compare, Const, Expr, Load, Select, Var, add, floordiv, index, mul
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import kernels_of, ptx
from tests.stdlib.gpu_checks import task


def load(buffer: str, at: Expr) -> Load:
    return Load(buffer, (at,), F32)


def sums(place: Expr, value: Expr | None = None) -> Store:
    term = mul(load("A", add(mul(Var("i"), index(16)), Var("k"))), load("B", Var("k")))
    return Store("C", (place,), add(load("C", place), term if value is None else value))


def terms(*body: Flat, end: Expr | None = None) -> Loop:
    return Loop("k", ZERO, index(5) if end is None else end, LoopKind.SERIAL, body)


def rows(*body: Flat, var: str = "i") -> Loop:
    return Loop(var, ZERO, index(4), LoopKind.UNROLLED, body)


I, J = Var("i"), Var("j")
ROW = add(mul(I, index(4)), J)


def test_terms_are_outside_of_all_sums() -> None:
    nest = rows(rows(terms(sums(ROW)), var="j"))
    assert with_steps_outside((nest,), {"C"}) == (terms(rows(rows(sums(ROW), var="j"))),)


def test_conditions_are_tested_for_each_term() -> None:
    one, two = Compare("<", I, index(3)), Compare("<", Var("k"), index(2))
    nest = rows(If(one, (terms(If(two, (sums(I),))),)))
    assert with_steps_outside((nest,), {"C"}) == (terms(rows(If(one, (If(two, (sums(I),)),)))),)


def test_of_sums_that_meet_those_of_one_row_are_moved() -> None:
    nest = rows(rows(terms(sums(add(I, J))), var="j"))
    assert with_steps_outside((nest,), {"C"}) == (rows(terms(rows(sums(add(I, J)), var="j"))),)


def test_nests_beside_others_are_moved() -> None:
    around = Loop("r", ZERO, index(2), LoopKind.SERIAL, (rows(terms(sums(I))), sums(ZERO)))
    assert with_steps_outside((around,), {"C"}) == (replace(around, body=(terms(rows(sums(I))), sums(ZERO))),)


STAYS: dict[str, Flat] = {
    "several sums in one place": rows(terms(sums(ZERO))),
    "a place that is not linear": rows(terms(sums(floordiv(I, index(2))))),
    "a place for each term": rows(terms(sums(add(I, Var("k"))))),
    "a sum that reads another": rows(terms(sums(I, load("C", add(I, index(1)))))),
    "no sum": rows(terms(Store("C", (I,), load("B", Var("k"))))),
    "shared memory": rows(terms(replace(sums(I), buffer="S"))),
    "an update that others make, too": rows(terms(replace(sums(I), atomic="C"))),
    "terms that a sum chooses": rows(terms(sums(I), end=add(I, index(1)))),
    "terms that data choose": rows(terms(sums(I), end=Load("n", (ZERO,), INDEX))),
    "a condition over data": rows(If(Compare("<", Load("n", (I,), INDEX), index(3)), (terms(sums(I)),))),
    "another statement": rows(terms(sums(I)), sums(I)),
    "no sum outside": terms(rows(sums(I))),
}


@pytest.mark.parametrize("case", STAYS)
def test_other_nests_stay(case: str) -> None:
    assert with_steps_outside((STAYS[case],), {"C"}) == (STAYS[case],)


FEW_TERMS = Compare("<", Var("k"), index(3))
BOTH = rows(rows(sums(ROW), var="j"))


def chosen(cond: Expr, other: float = 0.0) -> Flat:
    """`BOTH`, where terms for which a condition does not hold are another number."""
    term = mul(load("A", add(mul(Var("i"), index(16)), Var("k"))), load("B", Var("k")))
    return rows(rows(sums(ROW, Select(cond, term, Const(other, F32))), var="j"))


def test_a_condition_of_all_terms_of_a_step_is_a_guard() -> None:
    assert with_guards_of_steps((terms(chosen(FEW_TERMS)),), {"C"}, frozenset("C")) == (terms(If(FEW_TERMS, (BOTH,))),)
    below_zero = (terms(chosen(FEW_TERMS, -0.0)),)
    assert with_guards_of_steps(below_zero, {"C"}, frozenset()) == (terms(If(FEW_TERMS, (BOTH,))),)


CHOSEN: dict[str, Flat] = {
    "a condition of some sums": chosen(Compare("<", I, index(3))),
    "another number": chosen(FEW_TERMS, 1.0),
    "a condition over data": chosen(Compare("<", Load("n", (Var("k"),), INDEX), index(3))),
    "few sums": rows(sums(I, Select(FEW_TERMS, load("B", Var("k")), Const(0.0, F32)))),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_other_conditions_stay_in_terms(case: str) -> None:
    nest = (terms(CHOSEN[case]),)
    assert with_guards_of_steps(nest, {"C"}, frozenset("C")) == nest


def test_a_sum_that_may_be_negative_zero_keeps_its_condition() -> None:
    nest = (terms(chosen(FEW_TERMS)),)
    assert with_guards_of_steps(nest, {"C"}, frozenset()) == nest
    assert with_guards_of_steps(nest, {"D"}, frozenset("C")) == nest


def added(place: Expr = I, buffer: str = "E") -> Store:
    return Store("C", (place,), add(load("C", place), load(buffer, Var("k"))))


def zero(value: float = 0.0) -> Store:
    return Store("C", (I,), Const(value, F32))


def test_a_sum_begins_with_its_first_term_where_that_is_never_negative_zero() -> None:
    """`0.0 + x` is `-0.0 + x` but for an `x` of -0.0, and only the second is `x` whatever `x` is."""
    nest = Loop("r", ZERO, index(2), LoopKind.SERIAL, (zero(), terms(rows(added(), var="j"))))
    assert with_first_terms((nest,), frozenset("E")) == (replace(nest, body=(zero(-0.0), *nest.body[1:])),)


KEPT: dict[str, tuple[Flat, ...]] = {
    "terms that may be -0.0": (zero(), terms(added(buffer="B"))),
    "a loop that may have no terms": (zero(), terms(added(), end=Var("n"))),
    "terms under a condition": (zero(), terms(If(FEW_TERMS, (added(),)))),
    "a sum at another place": (zero(), terms(added(J))),
    "a product": (zero(), terms(sums(I))),
    "another statement between": (zero(), sums(I), terms(added())),
    "another number": (zero(1.0), terms(added())),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_sums_begin_with_zero(case: str) -> None:
    assert with_first_terms(KEPT[case], frozenset("E")) == KEPT[case]


def test_a_product_loads_what_its_sums_share_once(tmp_path: Path) -> None:
    """Of 4 x 2 sums and a term 4 + 2 numbers are loaded, without a branch between terms."""
    t = task(tmp_path, "matmul(M=64, N=32, K=32)", "default")
    tiles: dict[str, Decision] = {"inner": (2, 1, 8, 2, 2), "inner_1": (2, 1, 8, 2, 1), "inner_2": (2, 4, 4)}
    trace = t.drawn_from(condition(t.model, {**tiles, "ahead": 0, "step": 0})).sample(0)
    found = kernels_of(t, trace)
    code = ptx(found, "sm_80")
    assert (code.count("fma.rn.f32"), code.count("ld.shared")) == (8 * 16, 6 * 16)
    assert t.emulate(trace).fault == ""
