"""The figures that are drawn from the log of a long search."""

from __future__ import annotations

import math

import pytest

from bench.search.long import Batch, Tried
from bench.search.plots import choosing, errors, latency, summary


def batch(
    trials: int, tried: list[Tried], *, latency: float | None = None, took: float = 4.0, recorded: int = 0
) -> Batch:
    return Batch(
        task="t",
        first=trials - len(tried),
        trials=trials,
        asking=0.75,
        learning=0.25,
        elapsed=took,
        recorded=recorded,
        tried=tried,
        best={},
        latency=latency,
        memory=10**8,
    )


BLIND = [Tried(1.0), Tried(None)]
"""Trials that no model predicted."""

GOOD = [Tried(math.exp(-2.0), 2.0, 0.5), Tried(math.exp(-3.0), 4.0, 0.5), Tried(None, 1.0, 1.0)]
"""One is as expected, one is slower by e, and a failure has no error."""


def test_a_network_has_a_latency_once_all_its_layers_have() -> None:
    found = latency([batch(2, BLIND), batch(4, BLIND, latency=0.5), batch(6, BLIND, latency=0.25)])
    assert list(found.trials) == [4, 6] and list(found.values) == [0.5, 0.25]


def test_errors_are_those_of_predicted_valid_trials() -> None:
    measured, stated = errors([batch(2, BLIND), batch(5, GOOD), batch(8, GOOD)])
    assert list(measured.trials) == list(stated.trials) == [5, 8]
    assert list(measured.values) == pytest.approx([math.sqrt(0.5)] * 2)
    assert list(stated.values) == pytest.approx([0.5] * 2)
    assert list(errors([batch(5, GOOD)], window=1)[0].values) == pytest.approx([1.0])  # the last one alone
    assert not len(errors([batch(2, BLIND)])[0].trials)


def test_the_share_of_choosing_leaves_resumed_batches_out() -> None:
    batches = [batch(2, BLIND), batch(4, BLIND, took=1e9, recorded=1), batch(6, BLIND, took=2.0)]
    lately, in_all = choosing(batches, window=2)
    assert list(lately.trials) == list(in_all.trials) == [2, 6]
    assert list(lately.values) == pytest.approx([0.25, 0.5])
    assert list(in_all.values) == pytest.approx([0.25, 2 / 6])


def test_the_summary_has_rows_up_to_the_last_trial() -> None:
    lines = summary([batch(500, BLIND), batch(900, GOOD, latency=0.5)]).splitlines()
    assert lines[2:] == ["| 500 |  |  |  | 25% | 25% | 100 |", "| 900 | 500.000 | 0.71 | 0.50 | 25% | 25% | 100 |"]
