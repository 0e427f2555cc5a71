"""Schedules that earlier versions have drawn and frozen: each is replayed, and says the same again.

`frozen/EXAMPLE.TASK.N.tsched` is what `sample` printed for a task of `examples/`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.verify import verify

FROZEN = sorted((Path(__file__).parent / "frozen").glob("*.tsched"))
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_there_are_some() -> None:
    assert len(FROZEN) > 10


@pytest.mark.corpus
@pytest.mark.parametrize("path", FROZEN, ids=lambda p: p.stem)
def test_a_frozen_schedule_replays(path: Path) -> None:
    example, task, *_ = path.name.split(".")
    text = path.read_text(encoding="utf-8")
    trace = load(EXAMPLES / f"{example}.tsched", threads=2)[task].expand(Source(path.name, text))
    assert trace.refused == ()
    assert trace.open_draws == ()
    assert trace.text == text
    verify(trace.program)
