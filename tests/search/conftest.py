"""Tests of searches choose the first trials, and first choices, among as many schedules as searches of a user do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorc_dsl.tuning.search import source
from tensorc_dsl.tuning.search.strategies import bayes

CHOSEN_AMONG = (
    (bayes, "FIRST"), (bayes, "ROUNDS"), (bayes, "FORESEEN"), (source, "SOON"), (source, "NEARBY"),
)  # fmt: skip
AS_SHIPPED = [getattr(module, name) for module, name in CHOSEN_AMONG]
"""When this file is imported, no test has begun, so nothing has replaced them."""


@pytest.fixture(scope="package", autouse=True)
def first_trials_are_chosen_among_all() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as m:
        for (module, name), number in zip(CHOSEN_AMONG, AS_SHIPPED, strict=True):
            m.setattr(module, name, number)
        yield
