"""Compares strategies on spaces that others have timed: `python -m bench.search.spaces FOLDER --seeds 20 --json`.

A file of the folder is a table, `.csv` or `.csv.gz`: a line for each assignment that is legal, a column for each parameter,
and the time in a column `time_ms`, or another of `TIMES`, else in the last one. An empty time is a failure; combinations
that are absent break a constraint. Prints, for each strategy, over tables and seeds, the mean share of the best known speed
that was found within some evaluations; the median evaluations to 90 and 95 % of it; and the score of Willemsen et al.
(Future Generation Computer Systems, 2024, doi 10.1016/j.future.2024.05.021) over so many evaluations: 0 is random search, 1
the optimum at once.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import lzma
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import IO, Any

import numpy as np

from bench.search.replay import trials_to
from bench.search.tables import Array
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.assignments import Assignments, ListedExplorer
from tensorc_dsl.tuning.search.strategy import Setting, strategy_of
from tensorc_dsl.tuning.search.strategy import strategies as all_strategies
from tensorc_dsl.tuning.search.tune import BATCH

AFTER = (25, 50, 100, 200)

NEAR = {"t90": 0.90, "t95": 0.95}

TIMES = ("time_ms", "time", "time_s", "time_us", "seconds", "runtime")
"""Names of the column of times, which is the last one where none has such a name."""

OPENERS: dict[str, Callable[..., Any]] = {
    ".csv": open,
    ".csv.gz": gzip.open,
    ".csv.xz": lzma.open,
    ".csv.bz2": bz2.open,
}


@dataclass(frozen=True)
class SpaceTable:
    """Assignments of one space with their times in any unit; None for a failure."""

    name: str
    assignments: Assignments
    times: tuple[float | None, ...]

    @cached_property
    def best(self) -> float:
        return min(t for t in self.times if t is not None)

    def by_chance(self, most: int) -> Array:
        """The expected least time after each number of draws without replacement up to `most`; a failure is as slow as the
        slowest."""
        valid = sorted(t for t in self.times if t is not None)
        times = np.array([*valid, *[valid[-1]] * (len(self.times) - len(valid))])
        count, left = len(times), np.arange(len(times), 0, -1.0)
        out = np.full(most, times[0])
        # The share of all draws of n in which the least is none of the first few: (count - few) over n, of count over n.
        beyond = np.ones(count)
        for n in range(min(most, count)):
            beyond = beyond * np.maximum(left - n, 0.0) / (count - n)
            out[n] = float(times @ (beyond - np.append(beyond[1:], 0.0)))
        return out


def read(path: Path) -> SpaceTable | None:
    """The table in a file; None if it has no time. Lines of another length are left out; of equal ones the fastest counts."""
    suffix = next(s for s in OPENERS if path.name.endswith(s))
    with OPENERS[suffix](path, "rt", encoding="utf-8-sig", newline="") as file:
        head, *lines = _lines(file) or [[]]
    lines = [line for line in lines if len(line) == len(head)]
    place = max((n for n, name in enumerate(head) if name.strip().lower() in TIMES), default=len(head) - 1)
    names = [name.strip() for n, name in enumerate(head) if n != place]
    columns = [_values([line[n] for line in lines]) for n in range(len(head)) if n != place]
    found: dict[tuple[Decision | None, ...], float | None] = {}
    for line, row in zip(lines, zip(*columns, strict=True), strict=True) if columns else ():
        time, known = _time(line[place]), found.get(row)
        found[row] = time if known is None else known if time is None else min(known, time)
    if all(t is None for t in found.values()):
        return None
    return SpaceTable(path.name.removesuffix(suffix), Assignments.of_rows(names, list(found)), tuple(found.values()))


def _lines(file: IO[str]) -> list[list[str]]:
    """The cells; the delimiter is what the first line has most of."""
    text = file.read()
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    return [line for line in csv.reader(text.splitlines(), delimiter=delimiter) if line]


def _time(cell: str) -> float | None:
    try:
        time = float(cell)
    except ValueError:
        return None
    return time if 0 < time < math.inf else None


def _values(cells: Sequence[str]) -> list[Decision | None]:
    """The values of a column: numbers if all of them are some, else bools, else texts; None where a cell is empty."""
    given = [c.strip() for c in cells]
    for read_one in (_whole, _number, _truth):
        values = {c: read_one(c) for c in set(given) if c}
        if None not in values.values():
            return [values.get(c) for c in given]
    return [c or None for c in given]


def _whole(cell: str) -> int | None:
    number = _number(cell)
    return int(number) if number is not None and number == int(number) else None


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _truth(cell: str) -> bool | None:
    return {"true": True, "false": False}.get(cell.lower())


@cache
def tables(folder: Path) -> dict[str, SpaceTable]:
    """The tables of the folder by name, sorted. Raises ValueError if there is none."""
    there: dict[str, SpaceTable] = {}
    for path in sorted(folder.iterdir()):
        if any(path.name.endswith(s) for s in OPENERS):
            try:
                table = read(path)
            except (OSError, EOFError, ValueError, csv.Error, lzma.LZMAError):
                table = None
            if table is not None:
                there[table.name] = table
            elif current_process().name == "MainProcess":
                print(f"spaces: {path.name} is left out: it has no time, or cannot be read", file=sys.stderr)
    if not there:
        raise ValueError(f"{folder} has no table with a time: files {', '.join(OPENERS)}")
    return there


@dataclass(frozen=True, slots=True)
class Job:
    strategy: str
    table: str
    seed: int
    trials: int
    folder: Path


def curve(job: Job) -> Array:
    """The share of the best known speed after each trial."""
    table = tables(job.folder)[job.table]
    with one_blas_thread():
        shares = [table.best / t if t is not None else 0.0 for t in _tried(job, table)]
    # A space of fewer assignments than trials ends the search.
    return np.maximum.accumulate(np.array(shares + [0.0] * (job.trials - len(shares))))


def _tried(job: Job, table: SpaceTable) -> Iterator[float | None]:
    # A search may list rows of its own; a table's are all listed, so that searches share it.
    explorer = ListedExplorer(table.assignments, job.seed, job.table)
    asked = strategy_of(job.strategy)(Setting(explorer, job.trials))
    made = 0
    while made < job.trials:
        batch = asked.propose(min(BATCH, job.trials - made), (job.trials - made) / job.trials)
        if not batch:
            return
        for trace in batch:
            time = table.times[explorer.row_of(trace)]
            asked.tell(trace, Outcome(Status.TIMEOUT) if time is None else Outcome(Status.OK, time, (time,)))
            made += 1
            yield time


def scores(curves: Array, table: SpaceTable) -> Array:
    """The score of each search over each number of evaluations: how much of the way from what random search has found by
    then to the optimum it is ahead, on the mean."""
    by_chance = table.by_chance(curves.shape[1])
    slowest = max(t for t in table.times if t is not None)
    times = np.where(curves > 0, table.best / np.maximum(curves, 1e-12), slowest)
    ahead = 1.0 - (times - table.best) / np.maximum(by_chance - table.best, 1e-3 * table.best)
    return np.asarray(np.cumsum(ahead, axis=1) / np.arange(1, curves.shape[1] + 1), dtype=np.float64)


def compared(
    curves: dict[tuple[str, str], Array], strategies: Sequence[str], there: dict[str, SpaceTable]
) -> dict[str, dict[str, Any]]:
    """By strategy: the mean shares after `AFTER` trials, of tables and seeds, the median trials to those of `NEAR`, and the
    mean scores. A search that does not come to a share counts as twice its trials. Tables count alike.
    """
    out: dict[str, dict[str, Any]] = {}
    for name in strategies:
        of = [c for (strategy, _), c in curves.items() if strategy == name]
        scored = [scores(c, there[table]) for (strategy, table), c in curves.items() if strategy == name]
        trials = of[0].shape[1]
        share = {str(n): round(float(np.mean([c[:, n - 1].mean() for c in of])), 4) for n in AFTER if n <= trials}
        near = {key: float(np.median(np.concatenate([trials_to(c, s) for c in of]))) for key, s in NEAR.items()}
        score = {str(n): round(float(np.mean([c[:, n - 1].mean() for c in scored])), 4) for n in AFTER if n <= trials}
        out[name] = {"share": share, **near, "score": score}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strategies", default="bayes,evolutionary,random", help="names, separated by commas")
    parser.add_argument("--tables", default="", help="names of some of the tables, separated by commas")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=AFTER[-1])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--each", action="store_true", help="the figures of each table too")
    chosen = parser.parse_args()
    try:
        there = tables(chosen.folder)
        names = [name for name in there if not chosen.tables or name in chosen.tables.split(",")]
    except (OSError, ValueError) as e:
        sys.exit(f"spaces: {e}")
    strategies: list[str] = chosen.strategies.split(",")
    for unknown in set(strategies) - set(all_strategies()):
        sys.exit(f"spaces: there is no strategy {unknown!r}: {', '.join(all_strategies())}")
    jobs = [
        Job(strategy, table, seed, chosen.trials, chosen.folder)
        for strategy in strategies
        for table in names
        for seed in range(chosen.seeds)
    ]
    if chosen.jobs == 1:
        found = list(map(curve, jobs))
    else:
        with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(curve, jobs))
    curves = {
        (strategy, table): np.array(
            [c for j, c in zip(jobs, found, strict=True) if (j.strategy, j.table) == (strategy, table)]
        )
        for strategy in strategies
        for table in names
    }
    result: dict[str, Any] = {"strategies": compared(curves, strategies, there)}
    if chosen.each:
        result["tables"] = {
            table: compared({k: c for k, c in curves.items() if k[1] == table}, strategies, there) for table in names
        }
    if chosen.json:
        print(json.dumps(result))
        return
    for table, figures in [*result.get("tables", {}).items(), ("all tables", result["strategies"])]:
        print(table)
        for name, one in figures.items():
            shares = "  ".join(f"@{n} {share:.3f}" for n, share in one["share"].items())
            ahead = " ".join(f"{score:.2f}" for score in one["score"].values())
            print(f"  {name:<14}{shares}  score {ahead}  t90 {one['t90']:.0f}  t95 {one['t95']:.0f}")


if __name__ == "__main__":
    main()
