"""The search over the layers of MobileNet-V2: the layers are those of the paper, and its log survives any end."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.search.long import LAYERS, LOG, Batch, Journal, Tried, Watching, read, weights_of
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.expr import Const
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.tuning.records.database import Queue
from tensorc_dsl.tuning.search.events import Learnt, Measured, Proposed
from tensorc_dsl.tuning.search.log import SearchInput
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.several import tune_all
from tensorc_dsl.tuning.search.tune import Search
from tests.search.landscape import TileSpace
from tests.search.test_resume import Dying
from tests.search.test_tune import TARGET, TASK, run

Shapes = tuple[tuple[int, ...], ...]

TABLE_2 = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
"""Expansion, channels, repetitions and stride of the blocks: table 2 of the paper."""


def layers() -> Counter[Shapes]:
    """How often the network has a layer with input, weight and output of these shapes."""
    found: Counter[Shapes] = Counter()

    def layer(size: int, channels: int, weight: tuple[int, ...], stride: int, out: int) -> None:
        after = size // stride
        found[(1, size, size, channels), weight, (1, after, after, out)] += 1

    layer(224, 3, (3, 3, 3, 32), 2, 32)
    size, channels = 112, 32
    for expansion, out, count, first in TABLE_2:
        for n in range(count):
            wide, stride = expansion * channels, first if n == 0 else 1
            if expansion > 1:
                layer(size, channels, (1, 1, channels, wide), 1, wide)
            layer(size, wide, (3, 3, wide), stride, wide)
            size //= stride
            layer(size, wide, (1, 1, wide, out), 1, out)
            channels = out
    layer(size, channels, (1, 1, channels, 1280), 1, 1280)
    found[(1, 1280), (1280, 1000), (1, 1000)] += 1
    return found


def shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(n.value for n in buffer.shape if isinstance(n, Const) and isinstance(n.value, int))


def test_the_layers_are_those_of_the_paper() -> None:
    tasks = load(LAYERS)
    weights, has = weights_of(list(tasks)), Counter[Shapes]()
    for name, task in tasks.items():
        x, f = task.program.inputs[:2]
        has[shape(x), shape(f), shape(task.program.outputs[0])] += weights[name]
    assert has == layers()
    assert sum(weights.values()) == 53  # the convolutions, and the classifier


def searched(folder: Path, dies_at: int = 1 << 30) -> bool:
    """Whether a search over two tasks, which goes on where it was, came to its end before that measurement."""
    weights = {"task0": 1, "task1": 2}
    watching, runner = Watching(weights, Journal(folder / LOG), lambda: 0.0), Dying(dies_at=dies_at)
    with ExitStack() as stack:
        queue = stack.enter_context(Queue.at(folder / "records.sqlite"))
        searches = [
            Search(
                SearchInput(
                    space=TileSpace(),
                    program=replace(TASK, name=name, annotations=(("name", name),)),
                    target=TARGET,
                    options=SearchOptions(40, 3, resume=True),
                    runner=runner,
                    threads=1,
                    records=queue,
                    on_event=watching.listener(name),
                    clock=lambda: 0.0,
                )
            )
            for name in weights
        ]
        try:
            tune_all(searches, list(weights.values()))
        except SystemExit:
            return False
    return True


def lines(folder: Path) -> list[Batch]:
    return [msgspec.structs.replace(b, recorded=0, memory=0) for b in read(folder / LOG)]


@pytest.mark.corpus
def test_the_log_of_a_search_that_is_killed_again_and_again_is_that_of_one_that_is_not(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert searched(whole)
    while not searched(killed, dies_at=21):
        pass
    assert lines(killed) == lines(whole)
    assert [b.trials for b in lines(whole)] == [8 * n for n in range(1, 11)]
    latencies = [b.latency for b in lines(whole) if b.latency is not None]
    assert len(latencies) == 9 and latencies == sorted(latencies, reverse=True)
    last = lines(whole)[-1]
    assert last.latency == last.best["task0"] + 2 * last.best["task1"]
    assert {b.recorded for b in read(killed / LOG)} > {0}


def seconds_of(folder: Path) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for b in read(folder / LOG):
        found.setdefault(b.task, []).extend(t.seconds for t in b.tried)
    return found


@pytest.mark.corpus
def test_lines_that_are_lost_are_written_again(tmp_path: Path) -> None:
    whole, lost = tmp_path / "whole", tmp_path / "lost"
    assert searched(whole)
    assert not searched(lost, dies_at=60)
    path, before = lost / LOG, lines(lost)
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:-2])[:-20])
    assert lines(lost) == before[:-3]
    assert searched(lost)
    assert seconds_of(lost) == seconds_of(whole)
    assert lines(lost)[-1].trials == 80 and lines(lost)[-1].latency == lines(whole)[-1].latency


@pytest.mark.parametrize("strategy", ["bayes", "random"])
def test_a_strategy_with_a_model_says_what_it_expects_of_a_batch(strategy: str) -> None:
    _, events = run(Dying(fail=(30,)), strategy=strategy, trials=40)
    proposed = [e for e in events if isinstance(e, Proposed)]
    said = [p for e in proposed for p in e.predictions]
    outcomes = [e.outcome for e in events if isinstance(e, Measured)]
    assert len(said) == len(outcomes) == 40 and len([e for e in events if isinstance(e, Learnt)]) == len(proposed)
    if strategy == "random":
        assert said == [None] * 40
        return
    assert said[:8] == [None] * 8 and None not in said[16:]
    errors = [p.error(o.seconds) for p, o in zip(said, outcomes, strict=True) if p and o.seconds is not None]
    speeds = [p.mean for p in said if p]
    assert min(speeds) >= 6.0 and max(map(abs, errors)) < 5.0  # times are between 10 µs and 1 ms


def test_a_failure_has_no_time_and_an_expectation(tmp_path: Path) -> None:
    _, events = run(Dying(fail=(30,)), strategy="bayes", trials=40)
    watching = Watching({"task": 1}, Journal(tmp_path / LOG), lambda: 0.0)
    hear = watching.listener("task")
    for event in events:
        hear(event)
    tried = [t for b in read(tmp_path / LOG) for t in b.tried]
    assert tried[0].mean is None and tried[0].seconds is not None
    assert tried[30].seconds is None and isinstance(tried[30], Tried) and tried[30].mean is not None
