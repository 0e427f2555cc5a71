"""Kernels for open sizes at many of their sizes, at both ends and one past them. See `make ranges`."""

from __future__ import annotations

import pytest

from campaigns.every_size import MOST, faults

SIZES = [
    *range(1, 70),
    *(n + d for k in range(7, 12) for n in (1 << k,) for d in (-1, 0, 1)),
    1000,
    3001,
    MOST - 1,
    MOST,
]


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(2))
def test_kernels_are_right_at_each_size(seed: int) -> None:
    assert faults(seed, SIZES) == []
