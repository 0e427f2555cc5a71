"""Random schedules of open computes: one kernel is right at every size. `OPEN_FUZZ=500` runs as many of each compute."""

from __future__ import annotations

import os

import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tests.open.random_open import CASES, check

COUNT = int(os.environ.get("OPEN_FUZZ", "5"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(COUNT))
def test_one_kernel_is_right_at_all_sizes(name: str, seed: int) -> None:
    check(name, seed, steps=18)
