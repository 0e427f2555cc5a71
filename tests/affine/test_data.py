"""Accesses through data, against brute force over all possible data."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import I8, INDEX
from tensorc_dsl.ir.expr import ZERO, Binary, Cast, Dim, Expr, Load, Var, add, constant, index, mul, sub
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.accesses import accesses, is_private
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.encodings import DATA, encoded
from tensorc_dsl.proof.sets.linear_forms import data_in
from tensorc_dsl.proof.sets.regions import required_region
from tensorc_dsl.proof.sets.safety import Outside, check_access
from tensorc_dsl.proof.sets.simplify import bounds, simplify
from tests.affine.test_simplify import value
from tests.examples import examples


def datum(*at: Expr) -> Expr:
    return Cast(Load("I", at, I8), INDEX)


def clamp(e: Expr, low: Expr, high: Expr) -> Expr:
    return Binary("min", Binary("max", e, low), high)


def program(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


def test_a_datum_is_a_variable_and_equal_ones_are_one() -> None:
    e = add(clamp(datum(Var("i")), ZERO, index(9)), datum(Var("i")))
    found = encoded((e, datum(Var("j"))), DATA)
    assert [format_expr(x) for x in found.exprs] == ["min(max(datum0', 0), 9) + datum0'", "datum1'"]
    assert [format_expr(c) for c in found.conditions] == [
        "-128 <= datum0'", "datum0' <= 127", "-128 <= datum1'", "datum1' <= 127",
    ]  # fmt: skip
    nested = datum(clamp(datum(Var("i")), ZERO, index(9)))
    assert data_in(nested) == (nested, datum(Var("i")))
    assert len(encoded((nested,), DATA).terms) == 1


def test_a_datum_is_within_its_type_and_its_own_subscripts_are_simplified() -> None:
    assert bounds(datum(Var("i")), {}) == (-128, 127)
    i = add(mul(Var("a"), index(4)), Var("b"))
    e = clamp(datum(i), ZERO, index(9))
    assert simplify(e, {"a": (0, 0), "b": (0, 3)}) == clamp(datum(Var("b")), ZERO, index(9))
    assert simplify(clamp(datum(i), index(-128), index(127)), {"a": (1, 1), "b": (2, 2)}) == datum(index(6))


bound = st.integers(-2, 5)


@given(bound, bound, st.integers(1, 5), st.integers(-1, 2), st.integers(1, 3))
@settings(max_examples=examples(75), deadline=None)
def test_bounds_are_exact(low: int, high: int, size: int, shift: int, extent: int) -> None:
    """`A[clamp(I[i], low, high - i) + shift]` stays inside exactly where it does for all numbers."""
    e = add(clamp(datum(Var("i")), index(low), sub(index(high), Var("i"))), index(shift))
    inside = all(
        0 <= min(max(x, low), high - i) + shift < size for i in range(extent) for x in range(-128, 128)
    )  # fmt: skip
    found = check_access({"i": index(extent)}, (), (e,), (index(size),))
    assert found is None if inside else isinstance(found, Outside)


def test_bounds_hold_for_all_sizes() -> None:
    size = Dim("V", 1, 100)
    assert (
        check_access({"i": index(4)}, (), (clamp(datum(Var("i")), ZERO, sub(size, index(1))),), (size,), (size,))
        is None
    )
    found = check_access({"i": index(4)}, (), (clamp(datum(Var("i")), ZERO, size),), (size,), (size,))
    assert found == Outside(0, 1, 1, (("V", 1), ("I[i]", 1)))


def test_a_box_has_all_that_a_clamp_allows_even_where_the_datum_stands_still() -> None:
    rows = (clamp(datum(Var("i")), index(2), index(4)), Var("j"))
    box = required_region([(rows, {"j": (0, 2)})], {"i": (0, 7)}, (index(9), index(9)))
    assert box == ((index(2), index(3)), (ZERO, index(3)))
    open_rows = (clamp(datum(Var("i")), ZERO, Dim("V")),)
    assert required_region([(open_rows, {})], {"i": (0, 7)}, (Dim("V"),)) == ((ZERO, Dim("V")),)


RACE = """
program p(A: f32[6], I: i8[6], Y: f32[6]) {{
    buffer W: f32[24]
    for z in 24 {{ block Z {{ spatial vz in 24 = z
        W[vz] = 1.0 }} }}
    for i in 4 {{
        block W {{ spatial vi in 4 = i
            W[vi * {factor} + {start}] = A[vi] }}
        block Y {{ spatial vi in 4 = i
            Y[vi] = W[min(max(index(I[vi]), {low}), {high} + vi)] }}
    }}
}}
"""


@given(st.integers(0, 3), st.integers(0, 4), st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=examples(60), deadline=None)
def test_dependences_are_exact(factor: int, start: int, low: int, high: int) -> None:
    """A loop carries what is written in one iteration and may be read in another one."""
    p = program(RACE.format(factor=factor, start=start, low=low, high=high))
    touched = [{min(max(x, low), high + i) for x in range(-128, 128)} for i in range(4)]
    meets = any(i * factor + start in touched[j] for i, j in product(range(4), repeat=2) if i != j)
    writes = [i * factor + start for i in range(4)]
    assert (carried(p, "i") is not None) == (meets or len(set(writes)) < 4)


PRIVATE = """
program p(A: f32[6], I: i8[6], Y: f32[6]) {{
    buffer W: f32[9] in "local"
    for i in 6 {{
        for j in 4 {{ block W {{ spatial vi in 6 = i; spatial vj in 4 = j
            W[vj + 2] = A[vi] * f32(vj) }} }}
        block Y {{ spatial vi in 6 = i
            Y[vi] = W[min(max(index(I[vi]), {low}), {high})] }}
    }}
}}
"""


@pytest.mark.parametrize(("low", "high", "private"), [(2, 5, True), (3, 3, True), (1, 5, False), (2, 6, False)])
def test_an_iteration_has_written_what_data_may_name(low: int, high: int, private: bool) -> None:
    assert is_private(program(PRIVATE.format(low=low, high=high)), "W", "i") == private


def test_both_accesses_of_a_gather_are_known() -> None:
    p = program(PRIVATE.format(low=2, high=5))
    found = accesses((), p.body, frozenset(("I", "W")))
    assert [(x.buffer, [format_expr(i) for i in x.indices]) for x in found if not x.is_write] == [
        ("W", ["min(max(index(I[i]), 2), 5)"]), ("I", ["i"]),
    ]  # fmt: skip


def test_a_subscript_is_what_it_would_be_for_each_number() -> None:
    """`min(max(x, low), high)` of the datum's variable, as `DATA` leaves it, is a plain index expression."""
    (e,) = encoded((clamp(datum(Var("i")), ZERO, index(4)),), DATA).exprs
    assert [value(e, {"datum0'": x}) for x in (-3, 2, 9)] == [0, 2, 4]
    assert constant(simplify(e, {"datum0'": (7, 9)})) == 4
