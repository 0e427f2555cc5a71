"""Compares strategies on recorded tables: `python -m bench.search.replay --seeds 20`.

A `+` behind a strategy gives it the tables of all other tasks as records. An `@` gives it those of the machines of
`--elsewhere`, the task itself among them unless it is `--left-out`; `+@` gives it both. Prints, for each strategy, the share
of the best known speed that was reached after some trials, and how many trials it took to come within 5 % of the best.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.search.tables import FOLDER, Array, Table, read_all, recorded_on
from bench.search.tabular import Past, Played, best_decisions, experience, others, play
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.records.database import ELSEWHERE
from tensorc_dsl.tuning.search.source import Experience

NEAR = 0.95
"""The share of the best known speed that counts as found."""

SOON = 24

AFTER = (1, 8, 16, 24, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Job:
    strategy: str
    task: str
    seed: int
    trials: int
    rows: int
    folder: Path
    elsewhere: tuple[Path, ...] = ()
    left_out: bool = False


@cache
def tables(folder: Path, rows: int) -> dict[str, Table]:
    return {name: t.first(rows) for name, t in read_all(folder).items()}


def replayed(job: Job) -> Played:
    table = tables(job.folder, job.rows)[job.task]
    with one_blas_thread():
        return play(job.strategy.rstrip("+@"), table, job.seed, job.trials, past_of(job))


def past_of(job: Job) -> Past:
    """What the strategy of the job may know."""
    here = tables(job.folder, job.rows)
    tasks: list[Experience] = []
    own: list[Mapping[str, Decision]] = []
    bests: list[Mapping[str, Decision]] = []
    if "+" in job.strategy:
        tasks += others(here, job.task)
        bests += [d for name, t in here.items() if name != job.task for d in best_decisions(t, 1)]
    for folder in job.elsewhere if "@" in job.strategy else ():
        machine = recorded_on(folder).machine
        there = {n: t for n, t in tables(folder, job.rows).items() if not (job.left_out and n == job.task)}
        tasks += [experience(t, machine) for t in there.values()]
        if job.task in there:
            # A schedule that the table lacks would stand for another one: only draws that both tables have.
            known = {tuple(sorted(t.decisions.items())) for t in here[job.task].traces}
            ranked = best_decisions(there[job.task], len(there[job.task].traces))
            own += [d for d in ranked if tuple(sorted(d.items())) in known][:ELSEWHERE]
        bests += [d for name, t in there.items() if name != job.task for d in best_decisions(t, 1)]
    machine = recorded_on(job.folder).machine if "@" in job.strategy else None
    return Past(tuple(tasks), tuple(bests), tuple(own), machine)


def curve(job: Job) -> Array:
    """The share of the best known speed after each trial."""
    return replayed(job).curve


def trials_to(curves: Array, share: float) -> Array:
    """The number of the first trial that reached the share, for each curve; twice the trials where none did."""
    hit = curves >= share
    return np.array([int(h.argmax()) + 1 if h.any() else 2 * len(h) for h in hit], dtype=np.float64)


def chance(gains: Array) -> float:
    """The probability of a mean gain at least as large if gains and losses were equally likely: a sign-flip test over tasks.

    Exact for up to 16 tasks, else from 65536 random flips.
    """
    if len(gains) <= 16:
        numbers = np.arange(1 << len(gains))
        signs = 1.0 - 2.0 * ((numbers[:, None] >> np.arange(len(gains))) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(1 << 16, len(gains)))
    return float((signs @ gains >= gains.sum() - 1e-12).mean())


def compared(curves: dict[tuple[str, str], Array], names: Sequence[str], tasks: Sequence[str]) -> str:
    """A table of means over the tasks, and paired tests against the first strategy."""
    trials = next(iter(curves.values())).shape[1]
    after = [n for n in AFTER if n <= trials]
    lines = [f"{'strategy':<14}" + "".join(f"{f'@{n}':>7}" for n in after) + "   trials to 95 %   worst task"]
    first = {t: curves[names[0], t] for t in tasks}
    for name in names:
        means = np.array([curves[name, t].mean(0) for t in tasks])
        reached = np.median([np.median(trials_to(curves[name, t], NEAR)) for t in tasks])
        cells = "".join(f"{means[:, n - 1].mean():7.3f}" for n in after)
        worst = int(np.argmin(means[:, -1]))
        lines.append(f"{name:<14}{cells}{reached:18.0f}   {means[worst, -1]:.3f} {tasks[worst]}")
    for name in names[1:]:
        gain = np.array([np.log(curves[name, t][:, -1] / first[t][:, -1]).mean() for t in tasks])
        early = [np.mean(curves[name, t][:, min(SOON, trials) - 1]) >= np.mean(first[t][:, -1]) for t in tasks]
        of_first = [np.median(trials_to(first[t], NEAR)) for t in tasks]
        fewer = np.median(
            [np.median(trials_to(curves[name, t], NEAR)) / n for t, n in zip(tasks, of_first, strict=True)]
        )
        lines += [
            f"{name} beside {names[0]}:",
            f"  at the end {100 * np.expm1(gain.mean()):+.1f} %, by chance with p = {chance(gain):.2g}",
            f"  at the end on the worst task {100 * np.expm1(gain.min()):+.1f} %",
            f"  as fast after {SOON} trials as that at the end on {sum(early)} of {len(tasks)} tasks",
            f"  {fewer:.2f} times as many trials to 95 %",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["evolutionary", "random", "bayes", "bayes+"])
    parser.add_argument("--tasks", nargs="*", help="by default those of all tables")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rows", type=int, default=100_000, help="at most so many rows of each table")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--elsewhere", nargs="*", type=Path, default=[], help="folders of tables of other machines")
    parser.add_argument(
        "--left-out", action="store_true", help="of other machines' tables, too, without the task itself"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--each", action="store_true", help="a line for each task too")
    chosen = parser.parse_args()
    there = tables(chosen.folder, chosen.rows)
    tasks: list[str] = chosen.tasks or list(there)
    jobs = [
        Job(name, task, seed, chosen.trials, chosen.rows, chosen.folder, tuple(chosen.elsewhere), chosen.left_out)
        for task in tasks
        for name in chosen.strategies
        for seed in range(chosen.seeds)
    ]
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(curve, jobs, chunksize=chosen.seeds))
    curves = {
        (name, task): np.array([c for j, c in zip(jobs, found, strict=True) if (j.strategy, j.task) == (name, task)])
        for name in chosen.strategies
        for task in tasks
    }
    if chosen.each:
        for task in tasks:
            cells = "  ".join(
                f"{name} " + " ".join(f"{curves[name, task].mean(0)[n - 1]:.2f}" for n in AFTER if n <= chosen.trials)
                + f" t95 {np.median(trials_to(curves[name, task], NEAR)):.0f}"
                for name in chosen.strategies
            )  # fmt: skip
            print(f"{task:<12}{len(there[task].traces):>5}  {cells}")
    print(compared(curves, chosen.strategies, tasks))


if __name__ == "__main__":
    main()
