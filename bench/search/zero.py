"""What a task has before its first trial: `python -m bench.search.zero --into build/search`, after `bench.search.live` there.

For each task, the pick of `run` from the cold searches of all other tasks with one seed is timed by turns beside the best
program that any of the searches found, and the schedule with seed 0, which `run` takes without records. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.search.live import WORKLOADS, Journal
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.search.source import PROBABILITY, guess


@dataclass(frozen=True, slots=True)
class Picked:
    """Times of a task, in seconds: of the best known program, of the pick and of the schedule with seed 0; None for one that
    failed. The pick takes at most `slower` times as long as the best one, as it is stated."""

    task: str
    best: float | None
    pick: float | None
    plain: float | None
    slower: float

    @property
    def share(self) -> float:
        """The share of the best known speed that the pick has; 0 if it failed."""
        return 0.0 if self.pick is None or self.best is None else self.best / self.pick

    @property
    def held(self) -> bool:
        return self.share * self.slower >= 1.0


def picked(journal: Journal, task: Task, seed: int) -> Picked | None:
    """The times of the task; None if the records of the others predict nothing."""
    past = Database.reading(journal.folder / f"past-{seed}.sqlite")
    if past is None:
        return None
    plain = task.sample(0)
    with past:
        found = guess(task.model, task.program, task.target, plain, past)
    if found is None:
        return None
    searches = [s for s in journal.searches if s.task == task.name]
    best = min(searches, key=lambda s: min(x for x in s.seconds if x is not None)).best
    programs = [task.expand(Source("<best>", best)).program, found.traces[0].program, plain.program]
    with LocalRunner(task.program, task.target, threads=task.threads) as runner:
        times = [o.seconds for o in runner.compare(programs)]
    return Picked(task.name, times[0], times[1], times[2], found.forecast.slower)


def told(rows: Sequence[Picked]) -> str:
    """A row for each task, then the medians."""
    lines = [
        "| task | share of the best known speed | stated at least | seed 0 |",
        "| --- | --- | --- | --- |",
    ]
    plain = [0.0 if r.plain is None or r.best is None else r.best / r.plain for r in rows]
    lines += [
        f"| `{r.task}` | {r.share:.2f} | {1 / r.slower:.2f} | {p:.2f} |" for r, p in zip(rows, plain, strict=True)
    ]
    shares = [r.share for r in rows]
    held = sum(r.held for r in rows)
    last = f"{held} of {len(rows)} were as fast as stated with a probability of {PROBABILITY:.0%}"
    lines += ["", f"Medians: {_middle(shares)} of the best known speed, seed 0 {_middle(plain)}; {last}."]
    return "\n".join(lines)


def _middle(shares: Sequence[float]) -> str:
    return f"{np.median(shares):.2f}" if shares else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--into", type=Path, default=Path("build/search"), help="the folder that the live searches filled"
    )
    chosen = parser.parse_args()
    journal = Journal(chosen.into)
    tasks = load(WORKLOADS, threads=chosen.threads)
    names = sorted({s.task for s in journal.searches if s.seed == chosen.seed})
    print(told([row for n in names if (row := picked(journal, tasks[n], chosen.seed)) is not None]))


if __name__ == "__main__":
    main()
