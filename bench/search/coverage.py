"""Compares what `bayes` says of itself with recorded tables: `python -m bench.search.coverage --seeds 8`.

Prints Markdown. By number of trials: the true regret, the stated one, how often the true one was within the stated one, and
how many trials were in their interval of 95 %, predicted one batch ahead. Then, for searches that end at a regret: how many
trials they took, and how often the true regret was as low. A `+` gives the tables of all other tasks as records.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.search.replay import Job, replayed, tables
from bench.search.tables import FOLDER
from bench.search.tabular import Played
from tensorc_dsl.tuning.search.strategy import TWICE

GOALS = (0.02, 0.05, 0.1, 0.2)


def true_regret(played: Played, trials: int) -> float:
    """By how much the best of the table is faster than the best of the first trials."""
    return 1.0 / max(float(played.curve[trials - 1]), 1e-9) - 1.0


def by_trials(found: list[Played]) -> str:
    """A row for each number of trials after which regrets were stated; the intervals are those of its last batch."""
    lines = [
        "| trials | true regret, median | 90 % | stated, median | true within stated | trials in their interval |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    before = [(0, 0)] * len(found)
    for n in sorted({n for p in found for n, _ in p.regrets}):
        stated = [next((r for m, r in p.regrets if m == n), None) for p in found]
        pairs = [(true_regret(p, n), r) for p, r in zip(found, stated, strict=True) if r is not None]
        true, said = np.array([t for t, _ in pairs]), np.array([r.share for _, r in pairs])
        after = [b if r is None else (r.held, r.intervals) for b, r in zip(before, stated, strict=True)]
        held, made = (np.array(after) - np.array(before)).sum(axis=0)
        before = after
        lines.append(
            f"| {n} | {np.median(true):.1%} | {np.quantile(true, 0.9):.1%} | {np.median(said):.1%} "
            f"| {(true <= said + 1e-9).mean():.1%} | {held / made:.1%} of {made} |"
        )
    held, made = np.sum(before, axis=0)
    return "\n".join([*lines, f"\n{held / made:.1%} of all {made} predicted trials were in their interval."])


def ended(played: Played, goal: float) -> int | None:
    """After how many trials a search with this goal ends; None where its trials do not suffice."""
    low = 0
    for n, regret in played.regrets:
        low = low + 1 if regret.share <= goal else 0
        if low == TWICE:
            return n
    return None


def by_goal(found: list[Played], trials: int) -> str:
    lines = [
        f"| goal | searches that end before {trials} trials | trials, median | true regret, median | as low as the goal |",
        "| --- | --- | --- | --- | --- |",
    ]
    for goal in GOALS:
        ends = [(n, true_regret(p, n)) for p in found if (n := ended(p, goal)) is not None and n < trials]
        row = f"| {goal:.0%} | {len(ends)} of {len(found)} |"
        if ends:
            n, true = np.array(ends).T
            row += f" {np.median(n):.0f} | {np.median(true):.1%} | {(true <= goal).mean():.1%} |"
        else:
            row += " | | |"
        lines.append(row)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["bayes", "bayes+"])
    parser.add_argument("--tasks", nargs="*", help="by default those of all tables")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rows", type=int, default=100_000, help="at most so many rows of each table")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    tasks: list[str] = chosen.tasks or list(tables(chosen.folder, chosen.rows))
    for name in chosen.strategies:
        jobs = [
            Job(name, task, seed, chosen.trials, chosen.rows, chosen.folder)
            for task in tasks
            for seed in range(chosen.seeds)
        ]
        with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(replayed, jobs, chunksize=chosen.seeds))
        print(
            f"{name}, {len(tasks)} tables, {chosen.seeds} seeds\n\n{by_trials(found)}\n\n{by_goal(found, chosen.trials)}\n"
        )


if __name__ == "__main__":
    main()
