"""Sets of linear conditions that are made row by row hold the points at which the conditions hold."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tensorc_dsl.ir.expr import Compare, CompareOp, Dim, Expr, Var, add, floordiv, index, mul, sub
from tensorc_dsl.proof.sets.sets import feasible, linear_set

NAMES = ("a", "b", "c")
OPS: tuple[CompareOp, ...] = ("==", "<", "<=", ">", ">=")
HOLDS = {"==": int.__eq__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
SIZES = {"a": 5, "b": 3, "c": 4}


@pytest.mark.parametrize("seed", range(60))
def test_a_set_is_empty_where_no_point_is_found(seed: int) -> None:
    """Sums of multiples, also with numbers on both sides and differences of sums, beside all points by brute force."""
    rng = random.Random(seed)
    conditions: list[Expr] = []
    tests: list[tuple[str, dict[str, int], int]] = []
    for _ in range(rng.randrange(1, 4)):
        left, right = ({v: rng.randrange(-3, 4) for v in NAMES} for _ in range(2))
        number, op = rng.randrange(-9, 10), rng.choice(OPS)
        sides: list[Expr] = [index(number), index(0)]
        for n, side in enumerate((left, right)):
            for v, factor in side.items():
                part = mul(Var(v), index(factor)) if rng.random() < 0.5 else mul(index(factor), Var(v))
                sides[n] = add(sides[n], part) if rng.random() < 0.5 else sub(sides[n], sub(index(0), part))
        conditions.append(Compare(op, sides[0], sides[1]))
        tests.append((op, {v: left[v] - right[v] for v in NAMES}, number))
    wanted = any(
        all(HOLDS[op](sum(f * x for f, x in zip(row.values(), at, strict=True)) + n, 0) for op, row, n in tests)
        for at in product(*(range(SIZES[v]) for v in NAMES))
    )
    limits = [c for v, n in SIZES.items() for c in (Compare(">=", Var(v), index(0)), Compare("<", Var(v), index(n)))]
    found = linear_set([*conditions, *limits])
    assert found is not None and found.is_empty() is not wanted
    assert feasible({v: index(n) for v, n in SIZES.items()}, conditions) is wanted


def test_open_dimensions_are_variables() -> None:
    n = Dim("n", 1, 8)
    found = linear_set(
        [Compare("==", mul(n, index(3)), index(12)), Compare("<", Var("a"), n), Compare("<", index(2), Var("a"))]
    )
    assert found is not None and not found.is_empty()
    other = linear_set([Compare("==", mul(n, index(3)), index(13))])
    assert other is not None and other.is_empty()


@pytest.mark.parametrize("other", [floordiv(Var("a"), index(2)), mul(Var("a"), Var("b"))])
def test_what_is_no_sum_is_not_taken(other: Expr) -> None:
    assert linear_set([Compare("<", other, index(3))]) is None
    assert linear_set([Compare("!=", Var("a"), index(3))]) is None
