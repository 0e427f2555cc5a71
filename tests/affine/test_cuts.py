"""Conditions on elements against enumeration: all elements that are written satisfy them, and no others if all conditions
carry over.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from tensorc_dsl.ir.expr import ZERO, Compare, CompareOp, Expr, Var, add, floordiv, floormod, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For
from tensorc_dsl.proof.sets.regions import axis, covers_once
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tensorc_dsl.proof.sets.store_guards import cuts

SIZES = {"t": 3, "a": 3, "b": 4}
RANGES = extent_ranges(For(v, index(n), ()) for v, n in SIZES.items())


def form(factors: dict[str, int], constant: int = 0) -> Expr:
    out: Expr = index(constant)
    for name, n in factors.items():
        out = add(out, mul(Var(name), index(n)))
    return out


def value(e: Expr, at: dict[str, int]) -> int:
    return eval(format_expr(e).replace("/", "//"), {}, at)  # apart from this, arithmetic reads as Python


@pytest.mark.parametrize("seed", range(80))
def test_what_is_written_fulfils_them(seed: int) -> None:
    rng = random.Random(seed)
    subscript = form({"t": rng.randint(1, 9), "a": rng.randint(1, 4), "b": rng.choice([1, 1, 2])}, rng.randint(-2, 2))
    op: list[CompareOp] = ["<", "<=", ">", ">=", "!="]
    where = [
        Compare(rng.choice(op), form({v: rng.randint(-2, 4) for v in SIZES}), index(rng.randint(0, 12)))
        for _ in range(rng.randint(1, 3))
    ]
    found = cuts([subscript], where, {"b"}, RANGES, [Var("e")])
    for point in product(*(range(n) for n in SIZES.values())):
        at = dict(zip(SIZES, point, strict=True))
        fulfilled = all(value(c, {**at, "e": value(subscript, at)}) for c in found)
        runs = all(value(c, at) for c in where)
        assert fulfilled or not runs
        if len(found) == len(where):
            assert fulfilled == runs


def test_a_condition_that_no_subscript_tells_is_left_out() -> None:
    where = [Compare("<", form({"a": 1, "b": 3}), index(7))]
    assert cuts([form({"t": 4, "b": 2})], where, {"b"}, RANGES, [Var("e")]) == ()
    assert cuts([form({"t": 4, "a": 2, "b": 1})], where, {"a", "b"}, RANGES, [Var("e")]) == ()


def test_parts_of_tiles_that_overlap_are_told_apart_by_their_cuts() -> None:
    """A tile of 8 in tiles of 3: the third of them has two elements, and the next tile begins with the third."""
    loops = [For("t", index(4), ()), For("a", index(3), ())]
    boxes = [(form({"t": 8, "a": 3}), index(3), index(30))]
    cut = Compare("<", add(axis(0), form({"t": -8})), index(8))
    assert not covers_once(loops, boxes)
    assert covers_once(loops, boxes, [cut])
    assert not covers_once(loops, boxes, [Compare("<", add(axis(0), form({"t": -8})), index(7))])
    assert not covers_once(loops, boxes, [Compare(">=", axis(0), ZERO)])


@pytest.mark.parametrize(("rows", "columns", "tile"), [(3, 5, 4), (3, 5, 7), (5, 3, 7), (4, 4, 6), (2, 7, 9)])
@pytest.mark.parametrize("turned", [False, True])
def test_parts_of_a_fused_loop_are_told_by_the_number_of_the_element(
    rows: int, columns: int, tile: int, turned: bool
) -> None:
    """Of two, and with a third dimension of 2: `(l / (2*columns), l / 2 % columns, l % 2)`."""
    for inner in (1, 2):
        tiles = -(-rows * columns * inner // tile)
        ranges = extent_ranges([For("t", index(tiles), ()), For("b", index(tile), ())])
        whole = add(mul(Var("t"), index(tile)), Var("b"))
        parts: list[Expr] = [
            floordiv(whole, index(columns * inner)),
            floormod(floordiv(whole, index(inner)), index(columns)),
        ]
        parts += [floormod(whole, index(inner))] if inner > 1 else []
        parts = [simplify(p, ranges) for p in (parts[::-1] if turned else parts)]
        at = [Var(f"e{d}") for d in range(len(parts))]
        where = [Compare("<", whole, index(rows * columns * inner))]
        found = cuts(parts, where, {"b"}, ranges, at)
        for t in range(tiles):
            written = {tuple(value(p, {"t": t, "b": b}) for p in parts) for b in range(tile)}
            shape = [rows, columns, inner][: len(parts)]
            for element in product(*map(range, shape[::-1] if turned else shape)):
                told = {x.name: n for x, n in zip(at, element, strict=True)}
                assert all(value(c, {**told, "t": t}) for c in found) == (element in written)
