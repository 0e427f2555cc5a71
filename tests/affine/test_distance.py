"""Intervals of distances contain all distances, and guards make them tighter."""

from __future__ import annotations

import operator
import random
from itertools import product

import pytest

from tensorc_dsl.affine.accesses import Access, accesses, written
from tensorc_dsl.affine.distance import distances
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.source import Source

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def store(extents: tuple[int, int], subscript: str, guards: list[str]) -> Access:
    """The write of a block in two loops `i`, `j`."""
    where = "\n".join(f"where {g}" for g in guards)
    body = parse_program(
        Source(
            "x",
            f"""program p(A: f32[10000]) {{
            for i in {extents[0]}, j in {extents[1]} {{
                block A {{
                    spatial v in 10000 = {subscript}
                    {where}
                    A[v] = 1.0
                }}
            }}
        }}""",
        )
    ).body
    (found,) = accesses((), body, written(body))
    return found


def test_a_guard_keeps_rows_apart() -> None:
    loose, tight = store((8, 10), "i * 5 + j", []), store((8, 10), "i * 5 + j", ["j < 5"])
    assert distances(loose, loose, 0) == ((-1, 1), (-5, 5))
    assert distances(tight, tight, 0) == ((0, 0), (0, 0))


def test_a_guard_over_two_loops_is_used() -> None:
    a = store((8, 10), "i * 5 + j", ["i + j < 3"])
    assert distances(a, a, 0) == ((0, 0), (0, 0))


def test_guards_that_never_hold_leave_no_distance() -> None:
    a = store((8, 10), "i * 5 + j", ["j > 9"])
    assert distances(a, a, 0) is None


@pytest.mark.parametrize("seed", range(60))
def test_every_distance_is_inside(seed: int) -> None:
    rng = random.Random(seed)
    extents = rng.randint(1, 5), rng.randint(1, 5)
    c, d = rng.randint(1, 4), rng.randint(1, 4)
    guards = [
        (rng.randint(0, 2), rng.randint(-2, 2), rng.choice(list(COMPARE)), rng.randint(0, 6))
        for _ in range(rng.randint(0, 2))
    ]
    a = store(extents, f"i * {c} + j * {d}", [f"i * {p} + j * ({q}) {op} {n}" for p, q, op, n in guards])
    points = [
        (i, j) for i, j in product(*map(range, extents)) if all(COMPARE[op](i * p + j * q, n) for p, q, op, n in guards)
    ]
    real = [(k - i, m - j) for i, j in points for k, m in points if i * c + j * d == k * c + m * d]
    found = distances(a, a, 0)
    assert (found is not None) or not real
    for distance in real:
        assert found is not None
        for x, (low, high) in zip(distance, found, strict=True):
            assert low is not None and high is not None and low <= x <= high
