"""Regions against enumeration: every element that is accessed is in the box, which is exact where that is promised."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from tensorc_dsl.ir.expr import Binary, Dim, Expr, Var, add, constant, floordiv, floormod, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.linear_forms import Interval
from tensorc_dsl.proof.sets.regions import RangedSubscripts, required_region

WIDE = index(10_000)
Box = dict[str, Interval]


def value(e: Expr, at: dict[str, int]) -> int:
    """An index expression at a point."""
    match e:
        case Var(name=name) | Dim(name=name):
            return at[name]
        case Binary(op=op, lhs=a, rhs=b):
            x, y = value(a, at), value(b, at)
            return {
                "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x // y, "%": lambda: x % y,
                "min": lambda: min(x, y), "max": lambda: max(x, y), "xor": lambda: x ^ y,
            }[op]()  # fmt: skip
        case _:
            n = constant(e)
            assert n is not None
            return n


def points(box: Box) -> list[dict[str, int]]:
    spans = [range(low or 0, (high or 0) + 1) for low, high in box.values()]
    return [dict(zip(box, p, strict=True)) for p in product(*spans)]


def linear(*terms: tuple[int, str], constant: int = 0) -> Expr:
    out: Expr = index(constant)
    for c, name in terms:
        out = add(out, mul(Var(name), index(c)))
    return out


def texts(accesses: Sequence[RangedSubscripts], outer: Box, *shape: int) -> list[tuple[str, str]]:
    region = required_region(accesses, outer, tuple(map(index, shape)))
    return [(format_expr(low), format_expr(extent)) for low, extent in region]


def test_trap_09_stride_2_window_3_tile_8_needs_17() -> None:
    row = linear((16, "t"), (2, "i"), (1, "r"))
    inner: Box = {"i": (0, 7), "r": (0, 2)}
    assert texts([((row,), inner)], {"t": (0, 6)}, 113) == [("t * 16", "17")]


def test_trap_17_the_lower_bound_may_be_negative() -> None:
    row = linear((8, "t"), (1, "i"), constant=-1)
    assert texts([((row,), {"i": (0, 7)})], {"t": (0, 6)}, 56) == [("t * 8 - 1", "8")]


def test_never_more_than_the_buffer() -> None:
    inner: Box = {"i": (0, 7), "r": (0, 2)}
    assert texts([((linear((1, "i"), (1, "r"), constant=-1),), inner)], {}, 8) == [("0", "8")]


def test_several_accesses_make_one_box() -> None:
    at = [((linear((4, "t"), (1, "i"), constant=c),), {"i": (0, 3)}) for c in (0, 2, -1)]
    assert texts(at, {"t": (0, 3)}, 100) == [("t * 4 - 1", "7")]


def test_starts_in_an_unknown_order() -> None:
    at = [
        (
            (
                linear(
                    (3, "t"),
                ),
            ),
            {},
        ),
        (
            (
                linear(
                    (2, "u"),
                ),
            ),
            {},
        ),
    ]
    assert texts(at, {"t": (0, 3), "u": (0, 3)}, 100) == [("min(t * 3, u * 2)", "10")]


def test_nothing_known_is_everything() -> None:
    assert texts([((mul(Var("i"), Var("n")),), {"i": (0, 3)})], {}, 100) == [("0", "100")]
    region = required_region([((Var("i"),), {"i": (0, None)})], {}, (Var("n"),))
    assert region == ((index(0), Var("n")),)


@pytest.mark.parametrize("seed", range(60))
def test_sums_are_exact(seed: int) -> None:
    rng = random.Random(seed)
    outer: Box = {n: (0, rng.randint(0, 4)) for n in "tu"}
    inner: Box = {n: (0, rng.randint(0, 4)) for n in "ijk"}
    e = linear(*((rng.choice([-3, -1, 1, 2, 5]), n) for n in "tuijk"), constant=rng.randint(-4, 4))
    ((low, extent),) = required_region([((e,), inner)], outer, (WIDE,))
    for o in points(outer):
        touched = [value(e, o | i) for i in points(inner)]
        assert (min(touched), max(touched) - min(touched) + 1) == (value(low, o), constant(extent))


@pytest.mark.parametrize("seed", range(120))
def test_whatever_is_touched_is_inside(seed: int) -> None:
    rng = random.Random(seed)
    outer: Box = {n: (0, rng.randint(0, 4)) for n in "tu"}
    inner: Box = {n: (0, rng.randint(0, 4)) for n in "ij"}

    def expression(depth: int) -> Expr:
        if depth == 0:
            return linear(*((rng.choice([-2, 0, 1, 3, 6]), n) for n in "tuij"), constant=rng.randint(-3, 3))
        a, c = expression(depth - 1), index(rng.randint(2, 7))
        match rng.choice(["/", "%", "min", "max", "+"]):
            case "/":
                return floordiv(a, c)
            case "%":
                return floormod(a, c)
            case "+":
                return add(a, expression(depth - 1))
            case op:
                return Binary("min" if op == "min" else "max", a, expression(depth - 1))

    at: list[RangedSubscripts] = [((expression(rng.randint(0, 2)),), inner) for _ in range(rng.randint(1, 3))]
    ((low, extent),) = required_region(at, outer, (WIDE,))
    width = constant(extent)
    assert width is not None
    for o in points(outer):
        start = value(low, o)
        if extent == WIDE:
            continue
        for (e,), _ in at:
            assert all(start <= value(e, o | i) < start + width for i in points(inner))


def test_a_convolution_needs_no_set_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked at every step of a search; integer sets would take a thousand times as long."""
    for name in isl.__all__:
        monkeypatch.setattr(isl, name, None)
    row, column = linear((16, "t"), (2, "i"), (1, "r")), linear((14, "u"), (1, "j"), (1, "s"))
    inner: Box = {"i": (0, 7), "r": (0, 2), "j": (0, 13), "s": (0, 2), "c": (0, 63)}
    region = required_region(
        [((row, column, Var("c")), inner)], {"t": (0, 6), "u": (0, 6)}, (index(113), index(100), index(64))
    )
    assert [(format_expr(low), format_expr(n)) for low, n in region] == [
        ("t * 16", "17"),
        ("u * 14", "16"),
        ("0", "64"),
    ]
