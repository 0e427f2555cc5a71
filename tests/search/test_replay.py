"""Recorded tables: what is written is read again, and a search of one is a function of its seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.search.collect import WORKLOADS
from bench.search.describe import described_anew
from bench.search.replay import chance, trials_to
from bench.search.tables import FOLDER, Table, read, read_all, recorded_on, write
from bench.search.tabular import others, play
from bench.search.zero import Picked, told
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.search.expansion import columns_of


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {n: t.first(120) for n, t in read_all().items() if n in ("gemm_512", "soft_512", "gemm_prime")}


def test_a_table_is_read_as_it_was_written(tables: dict[str, Table], tmp_path: Path) -> None:
    for table in tables.values():
        path = tmp_path / f"{table.task}.json.xz"
        write(table, path)
        again = read(path)
        assert [t.draws for t in again.traces] == [t.draws for t in table.traces]
        assert again.seconds == table.seconds
        assert np.array_equal(again.features, table.features)


def test_rows_are_described_for_the_machine_that_timed_them(tables: dict[str, Table]) -> None:
    """Also those that lack a draw of today, which a rule has made since; `operations` and the next columns only count."""
    machine, table = recorded_on(FOLDER), tables["gemm_512"].first(1)
    task = load(WORKLOADS, threads=1, native=machine.target)["gemm_512"]
    again, _ = described_anew(table, task, machine)
    assert [t.draws for t in again.traces] == [t.draws for t in table.traces]
    assert again.seconds == table.seconds
    assert np.allclose(again.features[:, 1:5], table.features[:, 1:5], atol=1e-3)


def test_every_table_is_of_draws_that_their_distributions_allow() -> None:
    found = read_all()
    assert len(found) == len(list(FOLDER.glob("*.json.xz"))) >= 10
    for table in found.values():
        assert len(table.traces) == len(table.seconds) == len(table.features) >= 80
        assert table.features.shape[1] == len(columns_of(Target()))
        assert all(d.distribution.contains(d.decision) for t in table.traces for d in t.draws)


@pytest.mark.corpus
@pytest.mark.parametrize("strategy", ["bayes", "descent", "evolutionary", "index-gp", "random"])
def test_a_search_of_a_table_is_a_function_of_its_seed(tables: dict[str, Table], strategy: str) -> None:
    table = tables["gemm_512"]
    past = others(tables, "gemm_512")
    one, same, other = (play(strategy, table, seed, 24, past).shares for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert len(one) == 24
    assert (one > 0).any()


@pytest.mark.corpus("how good searches are")
def test_the_first_trials_are_good_with_a_model_of_the_processor_and_with_records() -> None:
    """The mean over tasks and seeds is a function of the code alone."""
    every = {n: t.first(200) for n, t in read_all().items()}

    def reached(learnt: bool) -> float:
        """The share of the best speed, as the mean over the first 8 trials."""
        ends = [
            play("bayes", every[n], seed, 8, others(every, n) if learnt else ()).curve
            for n in ("gemm_512", "c2d_28", "dep_14", "soft_512")
            for seed in range(2)
        ]
        return float(np.mean(ends))

    assert min(reached(True), reached(False)) > 0.8  # draws alone are at 0.7


def test_a_gain_on_all_tasks_is_no_chance() -> None:
    assert chance(np.full(10, 0.1)) == 2.0**-10
    assert chance(np.array([0.1, -0.1])) == 0.75
    assert chance(np.full(20, 0.1)) < 1e-3
    assert trials_to(np.array([[0.5, 0.96], [0.5, 0.5]]), 0.95).tolist() == [2, 4]


def test_zero_trials_are_told_beside_the_best_and_a_plain_schedule() -> None:
    rows = [
        Picked("a", 1e-3, 1.25e-3, 4e-3, 1.5),
        Picked("b", 1e-3, 2e-3, None, 1.5),
        Picked("c", 1e-3, None, 1e-3, 2.0),
    ]
    assert [r.share for r in rows] == [0.8, 0.5, 0.0] and [r.held for r in rows] == [True, False, False]
    text = told(rows)
    assert "| `a` | 0.80 | 0.67 | 0.25 |" in text and "| `c` | 0.00 | 0.50 | 1.00 |" in text
    assert "Medians: 0.50 of the best known speed, seed 0 0.25; 1 of 3 were as fast as stated" in text
    assert "Medians: - of" in told([])
