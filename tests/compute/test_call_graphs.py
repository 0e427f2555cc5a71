"""Computes that call computes that call computes: work follows what is written, and all that is accepted is proved."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from campaigns.call_graphs import call_graph, parts

MOST_CALLS = 3_000_000
"""Calls of functions for one part of the work on a graph: a second's work, about."""


@pytest.mark.parametrize("seed", [1, 5, 20])
def test_a_random_graph_takes_little_work_on_every_path(tmp_path: Path, seed: int) -> None:
    for name, part in parts(call_graph(seed), tmp_path).items():
        calls = 0

        def count(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal calls
            calls += event == "call"
            assert calls <= MOST_CALLS, name  # noqa: B023

        sys.setprofile(count)
        try:
            found = part()
        finally:
            sys.setprofile(None)
        assert all(re.fullmatch(r"E\d{4}|W\d{4}", code) for code in found), found
