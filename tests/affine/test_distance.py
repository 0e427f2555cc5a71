"""Intervals of distances contain all distances, and guards make them tighter."""

from __future__ import annotations

import operator
import random
from itertools import product

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.proof.sets.accesses import Access, accesses, written
from tensorc_dsl.proof.sets.dependence import distances, keeps_apart
from tests.affine.test_simplify import value

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


SUBSCRIPTS = (
    "i * {c} + j * {d}", "i * {c} + j / {d}", "i / {d} + j * {c}", "j * {c} + i % {d}", "i + j * {c} - j * {d}",
    "min(i, {d}) + j * {c}", "i * {c} + (i + j) % {d}",
)  # fmt: skip


def test_what_keeps_apart_does() -> None:
    applies = 0
    for seed in range(400):
        rng = random.Random(seed)
        extents = rng.randint(1, 5), rng.randint(1, 5)
        subscript = rng.choice(SUBSCRIPTS).format(c=rng.randint(1, 5), d=rng.randint(1, 4))
        a = store(extents, subscript, [])
        element = {(i, j): value(a.indices[0], {"i": i, "j": j}) for i, j in product(*map(range, extents))}
        meet = [(p, q) for p in element for q in element if element[p] == element[q]]
        if keeps_apart(a, a, a.loops[0], 0):
            applies += 1
            assert all(p[0] == q[0] for p, q in meet), seed
        if keeps_apart(a, a, a.loops[1], 1):
            applies += 1
            assert all(p == q for p, q in meet if p[0] == q[0]), seed
    assert applies > 200


def test_only_equal_subscripts_of_numbers_that_stay_keep_apart() -> None:
    a, other = store((8, 8), "i * 8 + j", []), store((8, 8), "i * 8 + j + 1", [])
    assert keeps_apart(a, a, a.loops[0], 0)
    assert not keeps_apart(a, other, a.loops[0], 0)
    program = parse_program(
        Source(
            "x",
            """program p(K: i32[4], W: f32[100], A: f32[4, 2]) {
            for i in 4, j in 2 { block A {
                spatial v in 4 = i
                spatial w in 2 = j
                A[v, w] = W[min(max(index(K[v]), 0), 9) + w * 4]
            } } }""",
        )
    )
    (found,) = accesses((), program.body, frozenset("W"))
    assert not keeps_apart(found, found, found.loops[1], 1)


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
