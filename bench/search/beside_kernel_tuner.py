"""Kernel Tuner's strategies on spaces that others have timed: `python -m bench.search.beside_kernel_tuner FOLDER --seeds 20`.

The tables and the figures are those of `bench.search.spaces`, whose searches are told the largest budget only. Many of Kernel
Tuner's strategies plan by the budget: each search here is told one, and each figure comes from the searches that were told
its own. Needs `kernel_tuner` (1.5), and for some strategies what they are built on; a strategy that cannot be imported is
left out. With `--json` the figures are printed as there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bench.search.replay import trials_to
from bench.search.spaces import AFTER, NEAR, Job, SpaceTable, scores, tables
from bench.search.tables import Array
from tensorc_dsl.processes.machine import one_blas_thread

# Any, whether the package is there for a checker of types or not.
interface: Any = import_module("kernel_tuner.interface")
searchspace: Any = import_module("kernel_tuner.searchspace")
util: Any = import_module("kernel_tuner.util")

ENDLESS = 200
"""A strategy that asks for so many times its budget, all of it known, would never end."""


ALL = tuple(name for name in interface.strategy_map if name != "brute_force")


class Recorded:
    """A runner of Kernel Tuner: looks times up in a table, and counts what is asked for the first time."""

    def __init__(self, table: SpaceTable, names: list[str], best: float) -> None:
        self.times = dict(zip(_rows(table), table.times, strict=True))
        self.names, self.best = names, best
        self.shares: dict[tuple[Any, ...], float] = {}
        self.asked = 0

    def run(self, parameter_space: Any, tuning_options: Any) -> list[dict[str, Any] | None]:
        out: list[dict[str, Any] | None] = []
        for row in map(tuple, parameter_space):
            self.asked += 1
            if tuning_options.budget.is_done() or self.asked > ENDLESS * tuning_options.budget.max_fevals:
                out.append(None)
                continue
            if row not in self.shares:
                tuning_options.budget.add_evaluations(1)
            time = self.times[row]
            self.shares[row] = 0.0 if time is None else self.best / time
            result = dict(zip(self.names, row, strict=True))
            out.append(
                {**result, "__error__": util.RuntimeFailedConfig()} if time is None else {**result, "time": time}
            )
        return out

    def add_strategy_time(self, _seconds: float) -> None:
        pass


def _rows(table: SpaceTable) -> list[tuple[Any, ...]]:
    """The values of each row in the order of parameters; None where a row does not have one."""
    names = [draw.name for draw in table.assignments.draws]
    each = map(table.assignments.decisions, range(len(table.assignments)))
    return [tuple(decisions.get(name) for name in names) for decisions in each]


def curve(job: Job) -> Array:
    """The share of the best known speed after each of the evaluations of a search that was told their number."""
    table = tables(job.folder)[job.table]
    names = [draw.name for draw in table.assignments.draws]
    rows = [dict(zip(names, row, strict=True)) for row in _rows(table)]
    values = {draw.name: list(draw.values) for draw in table.assignments.draws}
    random.seed(job.seed)
    np.random.seed(job.seed)  # noqa: NPY002 - what these strategies draw from
    runner = Recorded(table, names, table.best)
    options = interface.Options(
        strategy_options=interface.Options(max_fevals=job.trials),
        objective=["time"],
        objective_higher_is_better=[False],
        budget=util.TuningBudget(None, job.trials),
        verbose=False,
        tune_params=values,
        restrictions=[],
        cache={},
        strategy=job.strategy,
        seed=job.seed,
    )
    with one_blas_thread(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        space = searchspace.Searchspace(
            None, None, None, from_cache={"tune_params": values, "cache": dict(enumerate(rows))}
        )
        # Some fail at times that were inf or equal; what they have found by then counts.
        with contextlib.suppress(util.StopCriterionReached, ValueError):
            interface.strategy_map[job.strategy].tune(space, runner, options)
    shares = list(runner.shares.values())[: job.trials]
    return np.maximum.accumulate(np.array(shares + [0.0] * (job.trials - len(shares))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strategies", default="", help="names, separated by commas; all that can be imported without")
    parser.add_argument("--tables", default="", help="names of some of the tables, separated by commas")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    try:
        there = tables(chosen.folder)
    except (OSError, ValueError) as e:
        sys.exit(f"beside_kernel_tuner: {e}")
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        for name in chosen.strategies.split(",") if chosen.strategies else ALL:
            jobs = {
                trials: [
                    Job(name, table, seed, trials, chosen.folder)
                    for table in there
                    if not chosen.tables or table in chosen.tables.split(",")
                    for seed in range(chosen.seeds)
                ]
                for trials in AFTER
            }
            out: dict[str, Any] = {"share": {}, "score": {}}
            for trials, of in jobs.items():
                try:
                    curves = np.array(list(pool.map(curve, of)))
                except ImportError as e:
                    print(f"beside_kernel_tuner: {name} is left out: {e}", file=sys.stderr)
                    break
                by_table = {
                    table: curves[[n for n, job in enumerate(of) if job.table == table]]
                    for table in dict.fromkeys(job.table for job in of)
                }
                out["share"][str(trials)] = round(float(curves[:, -1].mean()), 4)
                out["score"][str(trials)] = round(
                    float(np.mean([scores(c, there[table])[:, -1].mean() for table, c in by_table.items()])), 4
                )
                if trials == AFTER[-1]:
                    out |= {key: float(np.median(trials_to(curves, share))) for key, share in NEAR.items()}
            else:
                found[name] = out
                shares = "  ".join(f"@{n} {share:.3f}" for n, share in out["share"].items())
                ahead = " ".join(f"{score:.2f}" for score in out["score"].values())
                line = f"{name:<24}{shares}  score {ahead}  t90 {out['t90']:.0f}  t95 {out['t95']:.0f}"
                print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)
    if chosen.json:
        print(json.dumps({"strategies": found}))


if __name__ == "__main__":
    main()
