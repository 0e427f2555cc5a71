"""Tests of searches choose the first trials among as many schedules as searches of a user do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorc_dsl.tuning.search.strategies import bayes

AS_SHIPPED = (bayes.FIRST, bayes.ROUNDS)
"""When this file is imported, no test has begun, so nothing has replaced them."""


@pytest.fixture(scope="package", autouse=True)
def first_trials_are_chosen_among_all() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as m:
        for name, number in zip(("FIRST", "ROUNDS"), AS_SHIPPED, strict=True):
            m.setattr(bayes, name, number)
        yield
