"""Inverses of layouts against enumeration: each place has its element, and those without one fulfil not all conditions."""

from __future__ import annotations

from itertools import product

import pytest

from tensorc_dsl.ir.expr import Compare, Dim, Expr, Var, add, floordiv, floormod, index, mul, sub, xor
from tensorc_dsl.ir.program import For
from tensorc_dsl.proof.sets.digits import inverted, size_of
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tests.affine.test_regions import value

I, J = Var("i"), Var("j")


def n(k: int) -> Expr:
    return index(k)


LAYOUTS: dict[str, tuple[Expr, ...]] = {
    "backwards": (sub(n(12), I), J),
    "behind an offset": (add(I, n(3)), add(J, n(1))),
    "a diagonal": (add(I, J), J),
    "the other diagonal": (J, add(sub(I, J), n(12))),
    "turned on": (I, floormod(add(I, J), n(12))),
    "turned back": (floormod(sub(mul(I, n(3)), J), n(13)), I),
    "flat, with gaps": (add(mul(I, n(16)), J),),
    "flat, backwards": (sub(n(400), add(mul(I, n(20)), J)),),
    "flat, of which one runs back": (add(sub(mul(I, n(20)), J), n(19)),),
    "groups, backwards inside": (floordiv(I, n(4)), J, sub(n(3), floormod(I, n(4)))),
    "groups in groups": (add(mul(floordiv(I, n(4)), n(64)), add(mul(J, n(4)), floormod(I, n(4)))),),
    "a swizzle by addition": (I, floordiv(J, n(4)), floormod(add(J, I), n(4))),
    "a swizzle": (I, add(mul(xor(floordiv(J, n(2)), floormod(I, n(4))), n(2)), floormod(J, n(2)))),
    "told twice": (I, J, add(I, J)),
    "told by a third": (add(I, J), floordiv(J, n(3)), floormod(J, n(3))),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("extents", [(5, 7), (1, 6), (9, 1), (13, 11), (4, 12)])
def test_each_place_has_its_element_or_none(name: str, extents: tuple[int, int]) -> None:
    results = LAYOUTS[name]
    elements = {tuple(value(r, {"i": i, "j": j}) for r in results): (i, j) for i, j in product(*map(range, extents))}
    assert len(elements) == extents[0] * extents[1]
    sizes = [size_of(r, ("i", "j"), [n(e) for e in extents]) for r in results]
    places = tuple(Var(f"p{d}") for d in range(len(results)))
    found = inverted(("i", "j"), results, [n(e) for e in extents], places)
    assert found is not None
    shape = [value(s, {}) for s in sizes if s is not None]
    assert len(shape) == len(results)
    ranges = extent_ranges(For(p.name, n(s), ()) for p, s in zip(places, shape, strict=True))
    values = [simplify(v, ranges) for v in found.values]
    for place in product(*map(range, shape)):
        at = dict(zip((p.name for p in places), place, strict=True))
        held = all(holds(c, at) for c in found.inside)
        assert held == (place in elements)
        assert not held or tuple(value(v, at) for v in values) == elements[place]


OPEN: dict[str, tuple[tuple[Expr, ...], int]] = {
    "exchanged": ((J, I), 2),
    "panels": ((floordiv(I, n(4)), J, floormod(I, n(4))), 3),
    "flat": ((add(mul(I, n(7)), J),), 1),
    "flat panels": ((add(mul(floordiv(I, n(4)), n(28)), add(mul(J, n(4)), floormod(I, n(4)))),), 1),
    "a swizzle by addition": ((I, floormod(add(I, J), n(7))), 2),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_size_has_places_for_each_of_its_values(name: str) -> None:
    results, rank = OPEN[name]
    size = Dim("N", 1, 40)
    shape = [size_of(r, ("i", "j"), [size, n(7)]) for r in results]
    places = tuple(Var(f"p{d}") for d in range(rank))
    found = inverted(("i", "j"), results, [size, n(7)], places)
    assert found is not None
    for rows in (1, 3, 4, 9):
        bound = {"N": rows}
        elements = {tuple(value(r, {"i": i, "j": j}) for r in results): (i, j) for i in range(rows) for j in range(7)}
        for place in product(*(range(value(s, bound)) for s in shape if s is not None)):
            at = {p.name: x for p, x in zip(places, place, strict=True)} | bound
            held = all(holds(c, at) for c in found.inside)
            assert held == (place in elements)
            assert not held or tuple(value(v, at) for v in found.values) == elements[place]


@pytest.mark.parametrize(
    "results", [(sub(n(40), I), J), (floormod(I, n(4)), J), (add(mul(J, n(50)), I),), (add(I, J),)]
)
def test_a_layout_that_does_not_tell_the_open_index_has_no_inverse_or_no_size(results: tuple[Expr, ...]) -> None:
    size = Dim("N", 1, None)
    places = tuple(Var(f"p{d}") for d in range(len(results)))
    known = [size_of(r, ("i", "j"), [size, n(7)]) for r in results]
    assert None in known or inverted(("i", "j"), results, [size, n(7)], places) is None


def holds(c: Expr, at: dict[str, int]) -> bool:
    assert isinstance(c, Compare)
    a, b = value(c.lhs, at), value(c.rhs, at)
    return {"<": a < b, "<=": a <= b, "==": a == b}[c.op]
