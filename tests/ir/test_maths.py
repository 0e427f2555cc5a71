"""The tables of maths functions have the same functions, and say the same of them."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.maths import CODES
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.maths import MATHS, Domain, Takes
from tensorc_dsl.reference.maths import NUMERICS, Point

POINTS = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.5])


FLOATS = [name for name, m in MATHS.items() if m.takes is not Takes.INTEGERS]
"""The functions of floats; those of bits have a test of their own, with all of their values."""


def inside(domain: Domain, x: Array) -> Array:
    """Where a domain has the numbers, and 0 or 1 at its end has no neighbours outside."""
    match domain:
        case Domain.ALL:
            return np.full(x.shape, True)
        case Domain.NONNEGATIVE:
            return x >= 0
        case Domain.POSITIVE:
            return x > 0
        case Domain.FROM_ONE:
            return x >= 1
        case Domain.INSIDE:
            return np.abs(x) < 1


def test_each_has_values_and_code() -> None:
    assert NUMERICS.keys() == MATHS.keys() == CODES.keys()


@pytest.mark.corpus
@pytest.mark.parametrize("name", FLOATS)
def test_facts_hold_of_the_values(name: str) -> None:
    known, numerics = MATHS[name], NUMERICS[name]
    more = (np.full_like(POINTS, 0.5),) * (known.count - 1)
    with np.errstate(all="ignore"):
        values = numerics.value(POINTS, *more)
        given = [float(numerics.value(np.array([x]))[0]) for x, _ in known.at]
    assert given == [y for _, y in known.at]
    assert np.isfinite(values[inside(known.domain, POINTS)]).all()
    assert known.domain is Domain.ALL or not np.isfinite(values).all()
    finite = values[np.isfinite(values)]
    assert {1: (finite > 0).all(), 0: (finite >= 0).all(), -1: True}[known.least]


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name in FLOATS if not MATHS[name].tells])
def test_an_error_of_an_argument_stays_within_the_bound(name: str) -> None:
    """To first order: a tenth is left for the second."""
    known, numerics = MATHS[name], NUMERICS[name]
    x = POINTS[POINTS > 0] + 0.1
    x = x[inside(known.domain, x + 0.2)]
    more = (np.full_like(x, 1.5),) * (known.count - 1)
    for dx in (1e-3, 0.2) if numerics.exact else (1e-6, 1e-3):
        value = numerics.value(x, *more)
        bound = numerics.error(Point(value, x, np.full_like(x, dx), *more))
        moved = np.maximum(*(np.abs(numerics.value(x + s * dx, *more) - value) for s in (-1, 1)))
        assert (moved <= 1.1 * bound + 1e-15).all()
