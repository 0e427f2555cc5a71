"""Accesses that are proved in bounds are, and counterexamples are out of bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.expr import (
    Binary,
    Compare,
    Dim,
    Expr,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    free_vars,
    index,
    mul,
    sub,
    substitute,
)
from tensorc_dsl.proof.sets.safety import Outside, check_access
from tensorc_dsl.proof.sets.simplify import simplify
from tests.examples import examples

M, N = Dim("M", 1, 6), Dim("N", 0, 6)
I, J = Var("i"), Var("j")
SIZES = st.sampled_from([M, N, index(1), index(4), sub(M, index(1)), add(M, N), floordiv(M, index(2)), sub(M, N)])


def linear(*atoms: Expr) -> st.SearchStrategy[Expr]:
    """A sum of some atoms with small factors."""
    terms = st.tuples(st.sampled_from(atoms), st.integers(-2, 2)).map(lambda t: mul(index(t[1]), t[0]))
    return st.tuples(st.integers(-2, 2).map(index), st.lists(terms, max_size=3)).map(lambda t: _sum(t[0], t[1]))


def _sum(first: Expr, rest: list[Expr]) -> Expr:
    for e in rest:
        first = add(first, e)
    return first


ATOMS = (I, J, M, N, floordiv(I, index(2)), floormod(J, index(3)))
GUARDS = st.builds(Compare, st.sampled_from(["<", "<=", ">", ">="]), linear(*ATOMS), linear(*ATOMS))


def value(e: Expr, at: dict[str, int]) -> int | bool:
    n = constant(simplify(substitute(e, {k: index(v) for k, v in at.items()}), {}))
    assert n is not None
    return n


def truth(c: Compare, at: dict[str, int]) -> bool:
    a, b = value(c.lhs, at), value(c.rhs, at)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[c.op]


def instances(extents: dict[str, Expr], guards: list[Compare]) -> Iterator[dict[str, int]]:
    for m, n in product(range(1, 7), range(7)):
        dims = {"M": m, "N": n}
        ranges = [range(int(value(e, dims))) for e in extents.values()]
        for point in product(*ranges):
            at = dims | dict(zip(extents, point, strict=True))
            if all(truth(g, at) for g in guards):
                yield at


@settings(max_examples=examples(75))
@given(SIZES, SIZES, st.lists(GUARDS, max_size=2), linear(*ATOMS), SIZES)
def test_against_all_instances(a: Expr, b: Expr, guards: list[Compare], subscript: Expr, extent: Expr) -> None:
    extents = {"i": a, "j": b}
    found = check_access(extents, guards, [subscript], [extent], (M, N))
    if found is None:
        for at in instances(extents, guards):
            assert 0 <= value(subscript, at) < value(extent, at), at
    elif isinstance(found, Outside):
        assert not 0 <= found.value < found.extent
        named = dict(found.at)
        assert named.keys() <= {"i", "j", "M", "N"}
        if (free_vars(subscript) | free_vars(extent)) <= named.keys():
            assert value(subscript, named) == found.value
            assert value(extent, named) == found.extent


PRODUCTS = (mul(I, J), mul(I, N), floordiv(add(I, J), add(N, index(1))), floormod(J, add(I, index(1))), floordiv(N, M))


@settings(max_examples=examples(75))
@given(SIZES, SIZES, st.lists(GUARDS, max_size=1), linear(*ATOMS, *PRODUCTS), SIZES, st.booleans())
def test_what_is_not_affine_is_anything(
    a: Expr, b: Expr, guards: list[Compare], e: Expr, extent: Expr, clamped: bool
) -> None:
    extents = {"i": a, "j": b}
    subscript = Binary("min", Binary("max", e, index(0)), sub(extent, index(1))) if clamped else e
    some = [*guards, Compare(">", extent, index(0))]
    found = check_access(extents, some, [subscript], [extent], (M, N))
    if clamped:
        assert found is None
    if found is None:
        for at in instances(extents, some):
            assert 0 <= value(subscript, at) < value(extent, at), at
    elif isinstance(found, Outside):
        assert not 0 <= found.value < found.extent


def test_what_is_plain_needs_no_sets() -> None:
    for subscript, extents, extent in (
        (I, {"i": M}, M),
        (add(I, J), {"i": sub(add(M, N), index(3)), "j": index(4)}, add(M, N)),
        (sub(sub(M, index(1)), I), {"i": M}, M),
    ):
        assert check_access(extents, (), [subscript], [extent], (M, N)) is None
    guarded = (Compare("<=", N, I), Compare("<", I, add(M, N)))
    assert check_access({"i": add(M, mul(index(2), N))}, guarded, [sub(I, N)], [M], (M, N)) is None
    assert check_access({"i": add(M, mul(index(2), N))}, guarded[:1], [sub(I, N)], [M], (M, N)) is not None
