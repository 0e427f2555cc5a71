"""How many schedules win in searches with other seeds: what is counted, and that what was searched is not searched again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.search import winners
from bench.search.winners import Won, read, told

FILE = """
use std.cpu
use std.ops.{matmul}
task small = matmul(M=16, N=16, K=16)
"""


def test_winners_are_counted() -> None:
    every = [
        Won("t", seed, 8, winner, fastest, seconds, alike, 0.01)
        for seed, (winner, fastest, seconds, alike) in enumerate(
            [("a", "a", 1.0, 1), ("a", "b", 1.1, 3), ("a", "c", 1.0, 2), ("d", "d", 1.5, 0)]
        )
    ]
    assert told(every).splitlines()[2:] == ["| t | 4 | 4 | 2 | 3 | 1.5 | 1.0 % | 1.50 |"]


def test_searches_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.tsched"
    file.write_text(FILE)
    words = ["winners", "--file", str(file), "--seeds", "2", "--trials", "3", "--into", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    winners.main()
    first = capsys.readouterr().out
    found = read(tmp_path / winners.LINES)
    assert [(w.task, w.seed, w.trials) for w in found] == [("small", 0, 3), ("small", 1, 3)]
    winners.main()
    assert capsys.readouterr().out == first
    assert read(tmp_path / winners.LINES) == found
