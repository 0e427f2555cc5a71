"""What a model of the machine says before the first trial: it chooses among draws, and loses its say where it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.expansion import Order
from tensorc_dsl.tuning.search.space import Explorer, modelled
from tensorc_dsl.tuning.search.strategy import Setting, strategy_of
from tensorc_dsl.tuning.search.team import Ground, expanded
from tests.search.landscape import TileSpace, seconds

GPU = """
use std.ops.{matmul}
use std.gpu.default.{default}
use std.gpu.targets.{sm_80}
task t = matmul(M=64, N=64, K=16) with default
"""


class Told(Explorer):
    """An explorer whose machine has a model."""

    says: Callable[[Trace], float | None]

    def modelled(self, trace: Trace, sizes: Sizes | None = None) -> float | None:
        return self.says(trace)


def right(trace: Trace) -> float | None:
    """Cycles that follow the time; a crash is foreseen."""
    found = seconds(trace)
    return math.inf if found is None else 1e9 * found


def wrong(trace: Trace) -> float | None:
    """Cycles that fall where the time grows; a crash is the best of all."""
    return 1e3 / (seconds(trace) or 1e3)


def fastest(says: Callable[[Trace], float | None], seed: int, trials: int) -> float:
    """The fastest of so many trials."""
    explorer = Told(TileSpace(), seed, "task", Target())
    explorer.says = says
    asked = strategy_of("bayes")(Setting(explorer, trials))
    found: list[float] = []
    tried = 0
    with one_blas_thread():
        while tried < trials and (batch := asked.propose(min(8, trials - tried), 1 - tried / trials)):
            tried += len(batch)
            for t in batch:
                took = seconds(t)
                asked.tell(t, Outcome(Status.CRASH) if took is None else Outcome(Status.OK, took, (took,)))
                found += [] if took is None else [took]
    return min(found)


@pytest.mark.corpus("how good searches are")
def test_a_model_chooses_among_draws_before_the_first_trial() -> None:
    told, untold = ([fastest(says, seed, 8) for seed in range(4)] for says in (right, lambda _: None))
    assert np.median(told) < 0.7 * np.median(untold)


@pytest.mark.corpus("how good searches are")
def test_a_model_that_is_wrong_costs_trials_and_not_the_search() -> None:
    told, untold = (min(fastest(says, seed, 32) for seed in range(2)) for says in (wrong, lambda _: None))
    assert told < 2 * untold


def test_kernels_of_gpus_and_cpus_have_cycles(tmp_path: Path) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(GPU)
    t = load(path)["t"]
    trace = t.sample(0)
    cycles = modelled(trace.program, {}, t.target)
    assert cycles is not None and cycles > 0
    assert Explorer(t.space, 0, "t", t.target).modelled(trace) == cycles
    found = expanded(Ground(t.space, t.target, {}), Order(0, "t", "prior/1", None))
    assert found is not None and found.cycles == modelled(found.trace.program, {}, t.target)
    path.write_text("use std.ops.{matmul}\nuse std.cpu.{default}\ntask t = matmul(M=64, N=64, K=16) with default\n")
    t = load(path)["t"]
    found = expanded(Ground(t.space, t.target, {}), Order(0, "t", "prior/1", None))
    assert found is not None and found.cycles is not None and found.cycles > 0


@pytest.mark.parametrize("cycles", [None, math.inf])
def test_candidates_of_which_a_model_says_nothing_are_tried_as_well(cycles: float | None) -> None:
    assert fastest(lambda t: cycles if t.decisions["unroll"] else right(t), 0, 24) < math.inf
