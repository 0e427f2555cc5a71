"""The draw of an `either`."""

import numpy as np

from tensorc_dsl.trace.draws.branch import Branch

EXAMPLES = [Branch((0.3, 0.0, 0.7))]


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
