"""The draw of an `either`."""

import math

import numpy as np
import pytest

from tensorc_dsl.schedule.trace.draws.choices import Branch

EXAMPLES = [
    Branch((0.3, 0.0, 0.7)),
    Branch((0.3, 0.0, 0.7), ("panels", "none", "rows")),
    Branch((70.0, 30.0), (True, False)),
]


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def test_a_branch_is_a_number_below_its_weights():
    b = Branch((1.0, 0.0, 1.0))
    assert b.contains(0)
    assert not b.contains(1)
    assert not b.contains(3)
    assert not b.contains(True)
    assert b.moves(0) == [2]
    assert {b.sample(rng(n)) for n in range(20)} == {0, 2}


def test_a_branch_with_a_name_is_decided_by_it():
    b = Branch((1.0, 0.0, 3.0), ("panels", "none", "rows"))
    assert b.contains("panels")
    assert not b.contains("none")
    assert not b.contains(0)
    assert b.moves("panels") == ["rows"]
    assert b.features("rows") == (0.0, 0.0, 1.0)
    assert b.log_prob("rows") == pytest.approx(math.log(0.75))
    assert {b.sample(rng(n)) for n in range(20)} == {"panels", "rows"}
    assert b.meaning() != Branch((1.0, 0.0, 3.0)).meaning()


def test_true_is_a_branch_of_its_own_and_not_1():
    b = Branch((70.0, 30.0), (True, False))
    assert b.contains(True)
    assert not b.contains(1)
    assert b.features(False) == (0.0, 1.0)
