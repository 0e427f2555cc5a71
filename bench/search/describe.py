"""Computes the features of recorded tables anew, after a change of what they are: `python -m bench.search.describe FOLDER`.

The decisions of each row are expanded and lowered again, and no kernel is timed; printed is how long the features of a
lowered kernel took at the median. A row whose decisions give another schedule today, since the space has changed, is left
out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from bench.search.collect import WORKLOADS
from bench.search.tables import Table, read, write
from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import described, meaning_of, stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="*", help="by default all of workloads.tsched")
    chosen = parser.parse_args()
    tasks = load(WORKLOADS, threads=1)
    for name in chosen.tasks or list(tasks):
        path = chosen.folder / f"{name}.json.xz"
        if path.exists():
            begin = time.monotonic()
            table = read(path)
            again, each = described_anew(table, tasks[name])
            write(again, path)
            count = f"{len(again.traces):>5} of {len(table.traces)} rows"
            took = f"{time.monotonic() - begin:6.0f} s, {1e3 * each:.2f} ms for the features of a row"
            print(f"{name:<12}{count}{took}", flush=True)


def described_anew(table: Table, task: Task) -> tuple[Table, float]:
    """The rows of a table that the task's space still has, with the features of today, and the seconds that those of a row
    took at the median."""
    kept: list[int] = []
    times: list[float] = []
    rows: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    for n, old in enumerate(table.traces):
        new = _replayed(task, old, n)
        if new is not None and dict(new.decisions) == dict(old.decisions):
            kept.append(n)
            lowered_once(new.program, task.target)
            begin = time.perf_counter()
            rows.append(described(new.program, {}, task.target))
            times.append(time.perf_counter() - begin)
    made = Table(
        table.task,
        table.machine,
        meaning_of(task.target),
        tuple(table.traces[n] for n in kept),
        tuple(table.seconds[n] for n in kept),
        np.array(rows),
    )
    return made, float(np.median(times)) if times else 0.0


def _replayed(task: Task, trace: Trace, number: int) -> Trace | None:
    try:
        return task.space.replay(trace.decisions, stream(0, task.name, f"row {number}"))
    except ScheduleRefusal:
        return None


if __name__ == "__main__":
    main()
