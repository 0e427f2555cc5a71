"""Reads the records of TVM's MetaSchedule, without TVM."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

FAILED = 1e9
"""Seconds from which on a time stands for a failure."""


def times_of(path: Path) -> tuple[float | None, ...]:
    """The mean times of the trials in TVM's records, in their order; None for a failure, which TVM gives a huge time."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    means = [fmean(seconds) if seconds else FAILED for _, (_, seconds, *_) in lines]
    return tuple(m if m < FAILED else None for m in means)
