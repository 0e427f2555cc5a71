"""`sample_categorical`: probabilities follow weights, and true is not 1."""

import math
from collections import Counter

import numpy as np

from tensorc_dsl.schedule.trace.draws.choices import Categorical

EXAMPLES = [Categorical((0, 16, True, "a", 0.5), (1.0, 2.0, 1.0, 0.0, 4.0))]


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def test_a_categorical_keeps_weights_and_tells_true_from_one():
    c = Categorical((1, True, "a"), (0.0, 1.0, 3.0))
    assert not c.contains(1)
    assert c.contains(True)
    assert c.moves(True) == ["a"]
    assert c.size() == 2
    assert math.isclose(c.log_prob("a"), math.log(0.75))
    source = rng(1)
    counts = Counter(c.sample(source) for _ in range(2000))
    assert 0.2 < counts[True] / 2000 < 0.3
    assert c.features("a") == (0.0, 0.0, 1.0)


def test_a_categorical_of_numbers_keeps_their_order_in_a_feature():
    c = Categorical((0, 16, 64), (1.0, 1.0, 1.0))
    assert c.features(16)[-1] < c.features(64)[-1]


def test_values_without_an_order_are_one_hot() -> None:
    assert Categorical(("a", 1), (1.0, 1.0)).features("a") == (1.0, 0.0)
    assert Categorical((-1, 1), (1.0, 1.0)).features(1) == (0.0, 1.0)


def test_the_legal_values_are_told_as_they_are_written() -> None:
    assert Categorical(("a", True, 0.5), (1.0, 1.0, 0.0)).describe() == 'one of "a", true'
    assert Categorical(tuple(range(20)), (1.0,) * 20).describe(3) == "one of 0, 1, 2, …"
