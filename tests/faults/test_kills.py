"""A `tune` that is killed at each of its moments leaves no process and loses no record."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bench.kills import MOMENTS, kill

UNRECORDED = {"start", "a child", "a builder"}
"""Moments before which nothing is recorded: "the database" stands for resuming after them. `make kills` resumes each."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_and_nothing_is_lost(tmp_path: Path, moment: str) -> None:
    assert kill(tmp_path, moment, 0.0, signal.SIGKILL, resume=moment not in UNRECORDED) == []
