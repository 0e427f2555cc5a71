"""Random schedules of open computes: one kernel is right at every size. `OPEN_FUZZ=500` runs as many of each compute."""

from __future__ import annotations

import os
import random

import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.base.diagnostic import TschedError
from tests.open.random_open import CASES, check, check_steps, open_compute

COUNT = int(os.environ.get("OPEN_FUZZ", "5"))


@pytest.mark.corpus
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(COUNT))
def test_one_kernel_is_right_at_all_sizes(name: str, seed: int) -> None:
    check(name, seed, steps=18)


NOT_PROVED = {"E0404", "E0412"}
"""A size may be negative, or an access is not proved, where the size it depends on is open."""


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_kernel_of_a_random_compute_is_right_at_all_sizes(seed: int) -> None:
    rng = random.Random(f"open {seed}")
    found: set[str] = set()
    try:
        check_steps(open_compute(rng, seed), rng, seed, steps=30)
    except TschedError as e:
        found = {d.code for d in e.diagnostics}
    assert found <= NOT_PROVED
