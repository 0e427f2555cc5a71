"""Schedules of other tasks: which are worth a move, and what they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.faces.api import load
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.choices import Categorical
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.search.expansion import with_shared_draws
from tensorc_dsl.tuning.search.source import Experience, Source
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Setting, strategy_of
from tests.search.landscape import make_trace

FILE = """\
use std.cpu.default
use std.ops.{matmul}

task small = matmul(M=24, N=48, K=16)
task large = matmul(M=96, N=48, K=32)
"""


def traced(*names: str) -> Draw:
    return Draw(names[0], Categorical((1, 2), (0.5, 0.5)), 1)


def test_schedules_with_common_draws_are_alike_and_those_with_most_come_first() -> None:
    here = [make_trace([traced("a"), traced("b"), traced("c")]), make_trace([traced("x")])]
    bests: list[Mapping[str, Decision]] = [{"y": 1}, {"a": 1, "b": 1, "z": 1}, {"a": 2, "b": 1, "c": 1}, {"x": 2}, {}]
    assert with_shared_draws(bests, here) == [bests[2], bests[3], bests[1]]
    assert with_shared_draws([], here) == [] and with_shared_draws(bests, []) == []


def test_a_moved_schedule_keeps_what_fits_and_has_a_near_tile_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(FILE)
    tasks = load(path, threads=1)
    small, large = (Explorer(tasks[n].space, 1, n, tasks[n].target) for n in ("small", "large"))
    for given in small.draws(6):
        for moved in large.moved([given.decisions]):
            for d in moved.draws:
                if d.name in given.decisions and d.distribution.contains(given.decisions[d.name]):
                    assert d.decision == given.decisions[d.name]
                assert d.distribution.contains(d.decision)
    again = Explorer(tasks["large"].space, 1, "large", tasks["large"].target)
    assert again.moved([t.decisions for t in again.draws(3)]) == []


@pytest.mark.corpus("how good searches are")
def test_bayes_tries_schedules_of_other_tasks_first_where_they_are_predicted_to_be_the_fastest(tmp_path: Path) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(FILE)
    tasks = load(path, threads=1)
    small = Explorer(tasks["small"].space, 1, "small", tasks["small"].target)
    bests = [t.decisions for t in small.draws(4)]
    task = tasks["large"]
    explorer = Keeping(task.space, 1, "large", task.target)
    known = Explorer(task.space, 2, "large", task.target)
    fast, slow = 8 * known.moved(bests), known.draws(48)
    rows = np.array([known.describe(t) for t in (*fast, *slow)])
    past = [Experience(rows, np.repeat([0.0, -2.0], [len(fast), len(slow)]))]
    setting = Setting(explorer, 64, source=lambda median: Source.of(past, median()), bests=lambda: bests)
    asked = strategy_of("bayes")(setting)
    batch = {t.text for t in asked.propose(8, 1.0)}
    assert len(explorer.kept) >= 2
    assert len(batch & {t.text for t in explorer.kept}) >= 2


class Keeping(Explorer):
    """Keeps what it moved."""

    kept: tuple[Trace, ...] = ()

    def moved(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        found = super().moved(many)
        self.kept = tuple(found)
        return found
