"""An equality is cut into digits exactly: both have the same solutions."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.cuda.lower.private_storage import evaluate
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, floormod, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.proof.sets.sets import by_digits

RANGES = {"v": (0, 3), "i": (0, 4), "j": (-2, 5), "w": (0, 3)}


def form(*factors: int, constant: int = 0) -> Expr:
    out: Expr = index(constant)
    for name, f in zip(RANGES, factors, strict=True):
        out = add(out, mul(Var(name), index(f)))
    return out


def solutions(conditions: tuple[Expr, ...]) -> set[tuple[int, ...]]:
    axes = np.meshgrid(*(np.arange(low, high + 1) for low, high in RANGES.values()), indexing="ij")
    values = {name: a.ravel() for name, a in zip(RANGES, axes, strict=True)}
    hold = np.all([np.broadcast_to(evaluate(c, values) != 0, values["v"].shape) for c in conditions], axis=0)
    return {tuple(int(a[n]) for a in values.values()) for n in np.flatnonzero(hold)}


def test_versions_and_elements_are_compared_apart() -> None:
    version = floormod(add(Var("v"), index(2)), index(3))
    a = add(mul(version, index(100)), Var("i"))
    b = add(mul(Var("w"), index(100)), Var("j"))
    found = by_digits((Compare("==", a, b),), RANGES)
    assert [format_expr(c) for c in found] == ["(v + 2) % 3 == w", "i == j"]


@pytest.mark.parametrize("reach", [4, 5, 6, 7, 8])
def test_a_digit_that_may_reach_the_next_one_is_not_cut(reach: int) -> None:
    """`i - j` is from -5 to 6: with a factor of 6 it may be as much as one more of the other digit."""
    condition = Compare("==", form(reach, 1, -1, -reach), ZERO)
    found = by_digits((condition,), RANGES)
    assert solutions(found) == solutions((condition,))
    assert (len(found) == 2) == (reach > 6)


def test_digits_have_the_solutions_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    cut = 0
    for _ in range(60):
        factors = rng.choice([0, 1, -1, 2, -3, 6, 12, -12, 24, 48], 4)
        condition = Compare("==", form(*map(int, factors), constant=int(rng.integers(-30, 31))), ZERO)
        found = by_digits((condition,), RANGES)
        cut += len(found) > 1
        assert solutions(found) == solutions((condition,)), format_expr(condition)
    assert cut >= 10
