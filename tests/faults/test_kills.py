"""A `tune` that is killed at each of its moments leaves no process and loses no record."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from campaigns.kills import MOMENTS, kill

RESUMED = {"the database", "progress"}
"""A moment at which nothing is recorded, and one at which some trials are: they stand for the others. `make kills` resumes
after each."""


@pytest.mark.corpus
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_and_nothing_is_lost(tmp_path: Path, moment: str) -> None:
    assert kill(tmp_path, moment, 0.0, signal.SIGKILL, resume=moment in RESUMED) == []
