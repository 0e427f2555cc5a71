"""Coverage against enumeration: the theorems and isl agree with running the loops."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import (
    Compare,
    Const,
    Expr,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    index,
    mul,
    rewrite_expr,
    xor,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Store
from tensorc_dsl.proof.sets import isl, regions
from tensorc_dsl.proof.sets.digits import inverted, is_injective
from tensorc_dsl.proof.sets.regions import covers_once, full_domain, instances_within, repeating_loop
from tensorc_dsl.proof.sets.sets import NotAffine, mapping
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tests.affine.test_regions import linear, points, value


def block(bindings: dict[str, tuple[int, Expr]], *where: Expr) -> Block:
    iters = tuple(Iter(n, IterKind.SPATIAL, index(e), b) for n, (e, b) in bindings.items())
    return Block("B", iters, (Store("B", tuple(Var(n) for n in bindings), Const(1.0, F32)),), where=where)


def loops(**extents: int) -> list[For]:
    return [For(n, index(e), ()) for n, e in extents.items()]


def holds(c: Expr, at: dict[str, int]) -> bool:
    assert isinstance(c, Compare)
    a, b = value(c.lhs, at), value(c.rhs, at)
    return {"<": a < b, "<=": a <= b, "==": a == b}[c.op]


def instances(nest: list[For], b: Block) -> set[tuple[int, ...]]:
    at = points({loop.var: (0, (constant(loop.extent) or 1) - 1) for loop in nest})
    return {tuple(value(it.binding, p) for it in b.iters) for p in at if all(holds(c, p) for c in b.where)}


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(150))
def test_full_domain_is_what_enumeration_finds(seed: int) -> None:
    rng = random.Random(seed)
    nest = loops(i=rng.randint(1, 6), j=rng.randint(1, 5), k=rng.randint(1, 4))
    extents = {loop.var: constant(loop.extent) or 1 for loop in nest}
    f = rng.choice([1, 2, 3])
    forms: list[Expr] = [
        linear((extents["j"], "i"), (1, "j")),
        linear((rng.randint(1, 4), "i"), (1, "j"), constant=rng.choice([-1, 0, 0, 1])),
        floordiv(Var("i"), index(f)),
        floormod(Var("i"), index(f)),
        Var("k"),
        floormod(linear((3, "j"), (1, "k")), index(f + 1)),
    ]
    bindings = {n: (rng.randint(1, 8), rng.choice(forms)) for n in ("u", "v")}
    limits = [c for e, b in bindings.values() for c in (Compare("<=", index(0), b), Compare("<", b, index(e)))]
    own = [Compare("<", Var(n), index(rng.randint(0, 6))) for n in ("i", "j") if rng.random() < 0.3]
    b = block(bindings, *limits, *own)
    found = instances(nest, b)
    assert full_domain(nest, b) == (len(found) == bindings["u"][0] * bindings["v"][0])


def test_a_condition_of_its_own_leaves_a_part_out() -> None:
    nest = loops(i=8)
    assert full_domain(nest, block({"v": (8, Var("i"))}))
    assert not full_domain(nest, block({"v": (8, Var("i"))}, Compare("<=", index(1), Var("i"))))
    assert full_domain(nest, block({"v": (6, Var("i"))}, Compare("<", Var("i"), index(6))))


def test_a_condition_on_a_loop_is_its_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of which some steps do nothing is cut into digits as the shorter one is: isl took eleven seconds."""
    nest = loops(b=2, t=16, r=3)
    rows = linear((2, "b"), (1, "q"))
    columns = linear((3, "p"), (1, "r"))
    digits: dict[Expr, Expr] = {Var("q"): floordiv(Var("t"), index(3)), Var("p"): floormod(Var("t"), index(3))}
    rows, columns = (rewrite_expr(e, lambda x: digits.get(x, x)) for e in (rows, columns))
    for limit in (0, 1, 3, 5, 6, 7, 9, 16, 20):
        b = block({"u": (4, rows), "v": (9, columns)}, Compare("<", Var("t"), index(limit)))
        inside = {(u, v) for u, v in instances(nest, b) if u < 4 and v < 9}
        assert full_domain(nest, b) == (len(inside) == 36), limit
    monkeypatch.delattr(regions, "instance_map")
    assert full_domain(nest, block({"u": (4, rows), "v": (9, columns)}, Compare("<", Var("t"), index(6))))


def test_open_dimensions() -> None:
    n = Var("n")
    b = Block("B", (Iter("v", IterKind.SPATIAL, n, Var("i")),), (Store("B", (Var("v"),), Const(1.0, F32)),))
    assert full_domain([For("i", n, ())], b)
    assert not full_domain([For("i", index(4), ())], b)


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(150))
def test_partition_is_what_enumeration_finds(seed: int) -> None:
    rng = random.Random(seed)
    nest = loops(t=rng.randint(1, 4), u=rng.randint(1, 4))
    extent, u = rng.randint(1, 3), constant(nest[1].extent) or 1
    lower = rng.choice(
        [
            linear((extent * u, "t"), (extent, "u")),
            linear((extent, "t")),
            linear((rng.randint(1, 4), "t"), (rng.randint(1, 4), "u")),
            floordiv(linear((u, "t"), (1, "u")), index(2)),
        ]
    )
    size = rng.randint(1, 12)
    count = Counter(
        x
        for p in points({loop.var: (0, (constant(loop.extent) or 1) - 1) for loop in nest})
        for x in range(value(lower, p), value(lower, p) + extent)
        if 0 <= x < size
    )
    assert covers_once(nest, [(lower, index(extent), index(size))]) == all(count[x] == 1 for x in range(size))


def test_repeating_loop_is_named() -> None:
    nest = loops(t=4, k=3)
    assert repeating_loop(nest, [(linear((8, "t")), index(8), index(32))]) == "k"
    assert repeating_loop(nest[:1], [(linear((8, "t")), index(8), index(32))]) is None


def test_instances_within_the_same_iteration() -> None:
    b = block({"v": (8, Var("i"))})
    before = block({"v": (8, linear((1, "i"), constant=-1))}, Compare("<=", index(1), Var("i")))
    nest = loops(i=8)
    assert instances_within((nest, before), (nest, b))
    assert not instances_within((nest, before), (nest, b), ("i",))
    assert instances_within((nest, b), (nest, b), ("i",))


@pytest.mark.parametrize("seed", range(80))
def test_inverse_of_a_layout(seed: int) -> None:
    rng = random.Random(seed)
    extents = (rng.randint(1, 9), rng.randint(1, 9))
    a, f = Var("a"), index(rng.randint(1, 5))
    b: Expr = Var("b")
    results = rng.choice(
        [
            (floordiv(b, f), a, floormod(b, f)),
            (b, a),
            (add(mul(a, index(extents[1])), b),),
            (floordiv(a, f), floordiv(b, f), floormod(a, f), floormod(b, f)),
            (add(mul(a, index(2)), b),),
            (floordiv(a, f), b),
        ]
    )
    image = Counter(
        tuple(value(r, {"a": x, "b": y}) for r in results) for x in range(extents[0]) for y in range(extents[1])
    )
    assert is_injective(("a", "b"), results, extents) == (max(image.values()) == 1)
    new = tuple(Var(f"n{d}") for d in range(len(results)))
    back = inverted(("a", "b"), results, list(map(index, extents)), new)
    if back is None:
        return
    sizes = [max(p[d] for p in image) + 1 for d in range(len(results))]
    ranges = extent_ranges(For(n.name, index(s), ()) for n, s in zip(new, sizes, strict=True))
    for p in points({n: (0, (r[1] or 0)) for n, r in ranges.items()}):
        x, y = (value(simplify(e, ranges), p) for e in back.values)
        assert all(holds(c, p) for c in back.inside) == (tuple(p.values()) in image)
        if tuple(p.values()) in image:
            assert tuple(value(r, {"a": x, "b": y}) for r in results) == tuple(p.values())


I, J = Var("i"), Var("j")
SWIZZLE = add(mul(xor(floordiv(J, index(4)), floormod(I, index(4))), index(4)), floormod(J, index(4)))


@pytest.mark.parametrize(
    ("results", "extents", "backwards"),
    [
        ((I, SWIZZLE), (6, 32), True),
        ((I, SWIZZLE), (5, 11), True),
        ((I, SWIZZLE), (3, 18), True),
        ((I, SWIZZLE), (3, 7), True),
        ((I, xor(I, J)), (9, 7), True),
        ((I, xor(I, J)), (8, 7), True),
        ((xor(I, floordiv(J, index(4))), J), (8, 32), True),
        ((xor(I, J), xor(J, I)), (4, 4), False),
        ((xor(I, J), xor(I, floormod(J, index(4)))), (8, 8), False),
        ((xor(I, J), floordiv(J, index(2))), (8, 8), False),
    ],
)
def test_a_swizzle_is_told_from_a_map_that_loses_elements(
    results: tuple[Expr, ...], extents: tuple[int, int], backwards: bool
) -> None:
    elements = [{"i": i, "j": j} for i in range(extents[0]) for j in range(extents[1])]
    places = {(at["i"], at["j"]): tuple(value(r, at) for r in results) for at in elements}
    assert is_injective(("i", "j"), results, extents) == (len(set(places.values())) == len(places))
    back = inverted(("i", "j"), results, list(map(index, extents)), (Var("a"), Var("b")))
    assert (back is not None) == backwards
    held = {place: element for element, place in places.items()}
    for a in range(1 + max(a for a, _ in held) if back else 0):
        for b in range(1 + max(b for _, b in held)):
            assert back is not None
            inside = all(holds(c, {"a": a, "b": b}) for c in back.inside)
            assert ((a, b) in held) == inside
            assert not inside or held[a, b] == tuple(value(e, {"a": a, "b": b}) for e in back.values)


@pytest.mark.corpus
@pytest.mark.parametrize("other", [I, mul(I, index(-3)), add(I, index(-20))])
@pytest.mark.parametrize("small", [floormod(J, index(16)), floormod(J, index(4)), mul(floormod(I, index(3)), index(2))])
def test_isl_reckons_with_xor_bit_by_bit(small: Expr, other: Expr) -> None:
    within = [
        c for v, n in (("i", 20), ("j", 11)) for c in (Compare("<=", index(0), Var(v)), Compare("<", Var(v), index(n)))
    ]
    values = {value(xor(other, small), {"i": i, "j": j}) for i in range(20) for j in range(11)}
    found = mapping(("i", "j"), (xor(other, small),), within).range()
    assert found.is_equal(isl.Set("{ " + "; ".join(f"[{v}]" for v in values) + " }"))


def test_xor_of_numbers_without_bounds_is_not_affine() -> None:
    with pytest.raises(NotAffine):
        mapping(("i", "j"), (xor(I, J),), ())


def test_no_more_iterations_than_values_and_one_left_out_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is made of all instances: of a tile that quotients choose, that took minutes."""

    def refused(*_: object) -> isl.Map:
        raise AssertionError("a question about all instances")

    monkeypatch.setattr(regions, "instance_map", refused)
    nest = loops(g=108, p=2, warp=4, lane=32, i=4, j=4)
    g, p, warp, lane, i, j = (Var(x.var) for x in nest)
    row = add(add(mul(floordiv(warp, index(2)), index(32)), mul(i, index(8))), floordiv(lane, index(4)))
    column = add(add(mul(floormod(warp, index(2)), index(16)), mul(j, index(4))), floormod(lane, index(4)))
    bindings = {"vg": (108, g), "vp": (2, p), "vi": (64, row), "vj": (32, column)}
    exists = Compare("<", add(p, floordiv(mul(g, index(17)), index(16))), index(114))
    assert not full_domain(nest, block(bindings, exists))


def test_a_condition_that_leaves_out_what_others_run_leaves_all_values() -> None:
    i, j = Var("i"), Var("j")
    twice = block({"vi": (4, i)}, Compare("<", add(i, j), index(4)))
    assert full_domain(loops(i=4, j=2), twice)
    assert not full_domain(loops(i=4, j=1), block({"vi": (4, i)}, Compare("<", mul(i, index(2)), index(5))))
