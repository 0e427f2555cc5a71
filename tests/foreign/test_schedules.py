"""Schedules written after the tests of other projects: a wrong step is refused, and what is accepted computes the same."""

from __future__ import annotations

import pytest

from tests.foreign.judged import faults
from tests.foreign.own import differences
from tests.foreign.steps import Case, all_cases, write_back

CASES = all_cases()


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_schedule_is_refused_or_right(case: Case, accept: bool) -> None:
    found = case.outcome()
    refused = found if isinstance(found, str) else ""
    if accept and refused != case.refused:
        write_back(case, refused)
        return
    assert refused == case.refused
    if not isinstance(found, str):
        assert list(faults(found.before, found.after, case.is_compute)) == []
        assert list(differences(found.before, found.after, case.numpy)) == []
