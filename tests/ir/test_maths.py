"""The tables of maths functions have the same functions, and say the same of them."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.maths.call import CODES
from tensorc_dsl.ir.maths import MATHS, Domain
from tensorc_dsl.reference.maths import NUMERICS, Point

POINTS = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.5])


def test_each_has_values_and_code() -> None:
    assert NUMERICS.keys() == MATHS.keys() == CODES.keys()


@pytest.mark.parametrize("name", MATHS)
def test_facts_hold_of_the_values(name: str) -> None:
    known, numerics = MATHS[name], NUMERICS[name]
    more = (np.full_like(POINTS, 0.5),) * (known.count - 1)
    with np.errstate(all="ignore"):
        values = numerics.value(POINTS, *more)
        given = [float(numerics.value(np.array([x]))[0]) for x, _ in known.at]
    assert given == [y for _, y in known.at]
    inside = POINTS >= 0 if known.domain is Domain.NONNEGATIVE else POINTS > 0
    assert np.isfinite(values[inside] if known.domain is not Domain.ALL else values).all()
    assert known.domain is Domain.ALL or not np.isfinite(values).all()
    finite = values[np.isfinite(values)]
    assert {1: (finite > 0).all(), 0: (finite >= 0).all(), -1: True}[known.least]


@pytest.mark.parametrize("name", MATHS)
def test_an_error_of_an_argument_stays_within_the_bound(name: str) -> None:
    """To first order: a tenth is left for the second."""
    known, numerics = MATHS[name], NUMERICS[name]
    x = POINTS[POINTS > 0] + 0.1
    more = (np.full_like(x, 1.5),) * (known.count - 1)
    for dx in (1e-3, 0.2) if numerics.exact else (1e-6, 1e-3):
        value = numerics.value(x, *more)
        bound = numerics.error(Point(value, x, np.full_like(x, dx), *more))
        moved = np.maximum(*(np.abs(numerics.value(x + s * dx, *more) - value) for s in (-1, 1)))
        assert (moved <= 1.1 * bound + 1e-15).all()
