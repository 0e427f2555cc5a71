"""`sample_permutation`: orders as positions."""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Items
from tensorc_dsl.schedule.trace.draws.choices import MAX_ITEMS, Permutation, sample_permutation

EXAMPLES = [Permutation(4)]

EMPTY = Program("p", (), (), ())


def test_every_order_is_drawn_equally_often() -> None:
    source = np.random.Generator(np.random.Philox(3))
    counts = Counter(Permutation(3).sample(source) for _ in range(3000))
    assert set(counts) == set(permutations(range(3)))
    assert all(400 < c < 600 for c in counts.values())


def test_moves_swap_two_and_features_say_where_each_went() -> None:
    assert Permutation(3).moves((2, 0, 1)) == [(0, 2, 1), (1, 0, 2), (2, 1, 0)]
    assert Permutation(3).features((2, 0, 1)) == (1.0, 2.0, 0.0)


def test_the_value_is_the_list_in_that_order() -> None:
    offer = sample_permutation(EMPTY, Items(("a", "b", "c")))
    assert offer.value((2, 0, 1)) == ("c", "a", "b")


def test_lists_of_none_and_of_one_have_one_order() -> None:
    for count, only in ((0, ()), (1, (0,))):
        p = Permutation(count)
        assert p.size() == 1
        assert p.contains(only)
        assert p.moves(only) == []
        assert p.log_prob(only) == 0.0


def test_a_long_list_is_refused() -> None:
    with pytest.raises(TschedError, match="E0503"):
        sample_permutation(EMPTY, Items(tuple(range(MAX_ITEMS + 1))))
    assert math.isfinite(Permutation(MAX_ITEMS).log_prob(tuple(range(MAX_ITEMS))))


@pytest.mark.parametrize("bad", [(0, 1), (0, 1, 1), (0, 1, 3), (0, 1, True), 0, "x", (0.0, 1.0, 2.0)])
def test_what_is_no_order_is_not_contained(bad: object) -> None:
    assert not Permutation(3).contains(bad)  # type: ignore[arg-type]
