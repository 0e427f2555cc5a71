"""`sample_int`: both ends are included, for ranges of any size."""

import math

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Interval
from tensorc_dsl.schedule.trace.draws.choices import LIMIT, Integer, sample_int

EXAMPLES = [Integer(-3, 40)]

EMPTY = Program("p", (), (), ())


def test_both_ends_are_drawn() -> None:
    source = np.random.Generator(np.random.Philox(0))
    assert {Integer(-1, 2).sample(source) for _ in range(100)} == {-1, 0, 1, 2}
    assert Integer(5, 5).sample(source) == 5


def test_moves_step_double_and_halve_within_the_range() -> None:
    assert Integer(1, 64).moves(8) == [7, 9, 16, 4]
    assert Integer(1, 10).moves(1) == [2]
    assert Integer(0, 10).moves(0) == [1]
    assert Integer(-8, 8).moves(-4) == [-5, -3, -8, -2]
    assert Integer(3, 3).moves(3) == []


def test_features_are_logarithmic_with_the_sign() -> None:
    d = Integer(-100, 100)
    assert d.features(7) == (3.0,)
    assert d.features(-7) == (-3.0,)
    assert d.features(0) == (0.0,)


def test_ranges_that_are_empty_or_too_large_are_refused() -> None:
    for low, high in ((3, 2), (0, LIMIT + 1), (-LIMIT - 1, 0)):
        with pytest.raises(TschedError, match="E0503"):
            sample_int(EMPTY, Interval(low, high))
    whole = Integer(-LIMIT, LIMIT)
    assert whole.contains(whole.sample(np.random.Generator(np.random.Philox(0))))
    assert math.isclose(whole.log_prob(0), -63 * math.log(2))


@pytest.mark.parametrize("bad", [0, 11, 2.0, True, "2", (2,)])
def test_what_is_outside_is_not_contained(bad: object) -> None:
    assert not Integer(1, 10).contains(bad)  # type: ignore[arg-type]
