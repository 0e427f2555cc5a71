"""The stated regret: against the true one of recorded tables, and as the end of a search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import numpy as np
import pytest

from bench.search.coverage import by_goal, by_trials, ended, true_regret
from bench.search.tables import Table, read_all
from bench.search.tabular import Played, TableExplorer, others, play
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.model import Memory, Model
from tensorc_dsl.tuning.search.strategies.random import Random
from tensorc_dsl.tuning.search.strategy import CHANCE, DRAWS, Regret, Setting, regret_of, states_regret, strategy_of
from tests.search.test_tune import FakeRunner, run


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with one_blas_thread():
        yield


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {n: t.first(200) for n, t in read_all().items() if n in ("gemm_512", "soft_512", "c2d_14", "c2d_56")}


@pytest.mark.corpus("how good searches are")
def test_the_true_regret_is_within_the_stated_one_about_as_often_as_said(tables: dict[str, Table]) -> None:
    found = [play("bayes", t, seed, 40) for t in tables.values() for seed in range(3)]
    pairs = [(true_regret(p, n), r.share) for p in found for n, r in p.regrets]
    assert len(pairs) == len(found) * 4  # after 16, 24, 32 and 40 trials
    assert np.mean([true <= said for true, said in pairs]) >= CHANCE - 0.1
    assert np.median([said for _, said in pairs]) < 1.0  # saying that anything may come is no statement
    assert all(0 <= r.held <= r.intervals for p in found for _, r in p.regrets)
    assert "| 40 | " in by_trials(found) and "| 20% | " in by_goal(found, 40)


class Mute:
    """`bayes` without queries of its regret."""

    def __init__(self, setting: Setting) -> None:
        asked = strategy_of("bayes")(setting)
        self.propose, self.tell = asked.propose, asked.tell


def test_who_asks_for_the_regret_changes_no_trial(tables: dict[str, Table]) -> None:
    for past in ((), others(tables, "c2d_14")):
        asked = play("bayes", tables["c2d_14"], 3, 48, past)
        with patch("bench.search.tabular.strategy_of", lambda _: Mute):
            mute = play("bayes", tables["c2d_14"], 3, 48, past)
        assert asked.regrets and not mute.regrets
        assert np.array_equal(asked.shares, mute.shares)


def stated(speeds: Sequence[float], waiting: Sequence[float]) -> float:
    """The regret after trials at places 0, 1, … with these log speeds, while candidates at some places wait."""
    rows, memory = np.arange(float(len(speeds)))[:, None], Memory()
    model = Model.of(rows, [float(np.exp(-s)) for s in speeds], np.zeros(len(speeds)), memory)
    others_ = np.array(waiting)[:, None] if waiting else np.zeros((0, 0))
    return regret_of(model, np.array(speeds), others_, np.zeros(len(waiting)), memory).share


def test_where_all_are_alike_none_is_missed() -> None:
    assert stated([1.0] * 12, []) == 0.0
    assert stated([1.0] * 12, [3.5, 20.0]) < 0.01


def test_what_waits_beside_faster_ones_may_be_faster_than_all() -> None:
    rising = [0.1 * n for n in range(12)]
    assert stated(rising, [12.0, 13.0]) > stated(rising, [0.5, 1.5])


def test_a_tail_that_thins_out_promises_less_than_one_that_does_not() -> None:
    """Without anything that waits, the tail of the trials alone says what further ones may be."""
    crowded = [1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.5, 0.4, 0.3, 0.2]
    sparse = [1.0, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2]
    assert 0.0 < stated(crowded, []) < stated(sparse, []) < 1.0


def test_failures_are_not_the_fastest() -> None:
    rows, memory = np.arange(16.0)[:, None], Memory()
    seconds = [None if n >= 8 else float(np.exp(-0.1 * n)) for n in range(16)]
    model = Model.of(rows, seconds, np.zeros(16), memory)
    speeds = np.array([-math.log(s) for s in seconds if s is not None])
    beyond = np.array([[12.5], [14.5]])
    with patch.object(Model, "log_feasible", lambda *_: np.zeros(2)):
        hopeful = regret_of(model, speeds, beyond, np.zeros(2), memory).share
    assert regret_of(model, speeds, beyond, np.zeros(2), memory).share < hopeful


def test_where_all_that_waits_fails_the_trials_speak() -> None:
    rows, memory = np.arange(8.0)[:, None], Memory()
    speeds = np.array([0.1 * n for n in range(8)])
    model = Model.of(rows, [float(np.exp(-s)) for s in speeds], np.zeros(8), memory)
    with patch.object(Model, "log_feasible", lambda *_: np.full(200, -50.0)):
        share = regret_of(model, speeds, np.linspace(8.0, 20.0, 200)[:, None], np.zeros(200), memory).share
    assert 0.0 <= share < 1.0


def test_the_estimate_is_of_enough_draws() -> None:
    assert DRAWS * (1.0 - CHANCE) > 20


class Saying(Random):
    """Random draws that state regrets in turn."""

    says: Sequence[float | None] = ()

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._left = list(self.says)

    def regret(self) -> Regret | None:
        share = self._left.pop(0)
        return None if share is None else Regret(share, 8, 8)


@pytest.mark.parametrize(
    ("says", "trials"),
    [
        ([None, 0.01, 0.02, 0.5, 0.5, 0.5], 24),  # twice running
        ([0.01, 0.03, 0.01, 0.03, 0.01, 0.03], 48),  # never twice running
        ([0.01, 0.03, 0.02, 0.02, 0.5, 0.5], 32),
        ([None] * 6, 48),
    ],
)
def test_a_search_ends_when_the_regret_was_low_twice_running(says: list[float | None], trials: int) -> None:
    with patch.object(Saying, "says", says), patch("tensorc_dsl.tuning.search.tune.strategy_of", lambda _: Saying):
        result, events = run(FakeRunner(), trials=48, until=0.02)
        endless, _ = run(FakeRunner(), trials=48)
    assert result.trials == trials and result.enough == (trials < 48)
    assert result.best is not None and result.exhausted is None and not result.interrupted
    told = [e for e in events if isinstance(e, Regret)]
    assert [e.share for e in told] == [s for s in says[: trials // 8] if s is not None]
    assert result.regret == (told[-1] if told else None)
    assert endless.trials == 48 and not endless.enough


def test_only_who_states_a_regret_can_end_at_one() -> None:
    assert states_regret(strategy_of("bayes")) and not states_regret(strategy_of("random"))
    with pytest.raises(ValueError, match="the strategy 'random' states no regret that could end the search"):
        run(FakeRunner(), until=0.02)
    for share in (0.0, -0.5, float("nan")):
        with pytest.raises(ValueError, match="a share above 0"):
            run(FakeRunner(), strategy="bayes", until=share)


def test_the_end_of_a_played_search() -> None:
    regrets = tuple((8 * n, Regret(share, 0, 0)) for n, share in enumerate((0.3, 0.04, 0.04, 0.01, 0.01), 1))
    played = Played(np.full(40, 0.8), regrets)
    assert [ended(played, goal) for goal in (0.02, 0.05, 0.001)] == [40, 24, None]
    assert true_regret(played, 8) == pytest.approx(0.25)


def test_a_search_that_cannot_model_yet_states_nothing(tables: dict[str, Table]) -> None:
    table = tables["gemm_512"]
    explorer = TableExplorer(table, 0)
    asked = strategy_of("bayes")(Setting(explorer, 64))  # type: ignore[arg-type]
    assert states_regret(type(asked))
    for trace in asked.propose(8, 1.0):
        asked.tell(trace, Outcome(Status.CRASH))
    assert asked.regret() is None  # type: ignore[attr-defined]
