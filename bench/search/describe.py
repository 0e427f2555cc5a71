"""Computes the features of recorded tables anew, after a change of what they are: `python -m bench.search.describe FOLDER`.

The decisions of each row are expanded and lowered again for the machine of the tables, and no kernel is timed; printed is
how long the features of a lowered kernel took at the median. A row whose decisions give another schedule today, since the
space has changed, is left out; a draw that the row lacks, and that can be False, is so: it is a rule that was not there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from bench.search.collect import WORKLOADS
from bench.search.tables import Array, Recorded, Table, read, recorded_on, write
from tensorc_dsl.backend.llvm.model.counts import counted
from tensorc_dsl.backend.llvm.model.cycles import COLUMNS, costs_on, numbers_of
from tensorc_dsl.backend.llvm.model.machine import Machine
from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.lower.flat import Kernel, LowerError
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Site, Trace, prior
from tensorc_dsl.tuning.search.expansion import meaning_of, stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="*", help="by default all of workloads.tsched")
    chosen = parser.parse_args()
    machine = recorded_on(chosen.folder)
    tasks = load(WORKLOADS, threads=1, native=machine.target)
    for name in chosen.tasks or list(tasks):
        path = chosen.folder / f"{name}.json.xz"
        if path.exists():
            begin = time.monotonic()
            table = read(path)
            again, each = described_anew(table, tasks[name], machine)
            write(again, path)
            count = f"{len(again.traces):>5} of {len(table.traces)} rows"
            took = f"{time.monotonic() - begin:6.0f} s, {1e3 * each:.2f} ms for the features of a row"
            print(f"{name:<12}{count}{took}", flush=True)


def described_anew(table: Table, task: Task, machine: Recorded) -> tuple[Table, float]:
    """The rows of a table that the task's space still has, with the features of today, and the seconds that those of a row
    took at the median."""
    kept: list[int] = []
    times: list[float] = []
    rows: list[Array] = []
    core = Machine(**machine.core)
    for n, old in enumerate(table.traces):
        new = _replayed(task, old, n)
        if new is not None:
            kept.append(n)
            try:
                kernel = lowered_once(new.program, task.target).kernel
            except LowerError:
                rows.append(np.zeros(len(COLUMNS)))
                continue
            assert isinstance(kernel, Kernel)
            begin = time.perf_counter()
            found = costs_on(counted(kernel, task.target, {}), task.target, core)
            rows.append(np.array(numbers_of(found, task.target)))
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
    """The trace of the row's decisions; None where it has others today."""
    wanted, otherwise = trace.decisions, prior(stream(0, task.name, f"row {number}"))
    added: dict[str, Decision] = {}

    def decide(site: Site) -> Decision | None:
        if site.hidden:
            return otherwise(site)
        found = wanted.get(site.name)
        if found is not None and site.distribution.contains(found):
            return found
        added[site.name] = False
        return False if site.distribution.contains(False) else otherwise(site)

    try:
        new = task.space.expand(decide)
    except ScheduleRefusal:
        return None
    return new if dict(new.decisions) == {**added, **wanted} else None


if __name__ == "__main__":
    main()
