"""Random schedules for several open sizes, of which not all occur together. See `make shapes`."""

from __future__ import annotations

from collections import Counter

import pytest

from campaigns.random_shapes import judge


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(8))
def test_kernels_are_right_at_sizes_that_occur(seed: int) -> None:
    assert judge(seed, Counter()) == ""
