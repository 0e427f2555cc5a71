"""Times draws from the prior of each task and writes them as tables: `python -m bench.search.collect --count 1000`.

Tables grow: what is there already is kept, and draws that are in it are not timed again. Kernels run on one thread. A draw
that is far slower than the best of its table is timed a few times only.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import msgspec
import numpy as np

from bench.search.tables import FOLDER, MACHINE, Recorded, Table, read, recorded_on, write
from tensorc_dsl.backend.llvm.model.machine import facts, measured
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.records.trial import subject, target_key
from tensorc_dsl.tuning.search.expansion import meaning_of
from tensorc_dsl.tuning.search.space import Explorer

WORKLOADS = Path(__file__).parent / "workloads.tsched"

CHUNK = 20
"""Draws that are timed before it is the turn of the next task."""

SEED = 20261122
"""A run draws from the seed plus the number of rows that are there before it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="rows of each table at the end")
    parser.add_argument("--tasks", nargs="*", help="by default all of workloads.tsched")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new draws are timed after so many seconds")
    chosen = parser.parse_args()
    tasks = load(WORKLOADS, threads=1)
    names = chosen.tasks or list(tasks)
    tell_machine(tasks[names[0]], chosen.folder)
    growing = {name: Growing(tasks[name], chosen.folder) for name in names}
    begin = time.monotonic()
    while any(g.count < chosen.count for g in growing.values()):
        for name, g in sorted(growing.items(), key=lambda item: item[1].count):
            if time.monotonic() - begin > chosen.seconds:
                return
            if g.count < chosen.count and not g.grow(min(CHUNK, chosen.count - g.count)):
                print(f"{name} has nothing new", flush=True)
                growing = {n: other for n, other in growing.items() if n != name}
                break
            print(f"{time.monotonic() - begin:6.0f} s  {name:<12}{g.count:>6} rows", flush=True)


class Growing:
    """A table that grows, in its file."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._path = folder / f"{task.name}.json.xz"
        self._table = read(self._path) if self._path.exists() else None
        if self._table is not None and self._table.columns != meaning_of(task.target):
            raise SystemExit(
                f"{self._path}: the features of this table are those of another version: `bench.search.describe`"
            )
        known = () if self._table is None else self._table.traces
        self._known = {tuple(sorted(t.decisions.items())) for t in known}
        self._explorer = Explorer(task.model, SEED + len(known), task.name, task.target)
        self._runner = LocalRunner(task.program, task.target, threads=1, builders=1)

    @property
    def count(self) -> int:
        return 0 if self._table is None else len(self._table.traces)

    def grow(self, count: int) -> bool:
        """Whether there were new draws, which are in the table and in its file now."""
        traces: list[Trace] = []
        while len(traces) < count:
            trace = self._explorer.draw()
            if trace is None:
                break
            if tuple(sorted(trace.decisions.items())) not in self._known:
                traces.append(trace)
        if not traces:
            return False
        best = None if self._table is None else self._table.best
        seconds: list[float | None] = []
        for outcome in self._runner.measure([t.program for t in traces], best):
            seconds.append(outcome.seconds)
            best = min((s for s in (best, outcome.seconds) if s is not None), default=None)
        self._runner.close()
        features = np.array([self._explorer.describe(t) for t in traces])
        old = self._table
        self._table = Table(
            self._task.name,
            machine_of(self._task),
            meaning_of(self._task.target),
            (*(old.traces if old else ()), *traces),
            (*(old.seconds if old else ()), *seconds),
            features if old is None else np.vstack([old.features, features]),
        )
        write(self._table, self._path)
        return True


def tell_machine(task: Task, folder: Path) -> None:
    """Write beside the tables on which machine they are recorded, which is measured now; SystemExit if they are of another
    one."""
    known = msgspec.json.decode(subject(task.program, task.target, 1).facts, type=dict[str, int | float | str])
    key, path = target_key(task.target, 1), folder / MACHINE
    if path.exists():
        old = recorded_on(folder)
        if (old.target_key, old.facts) != (key, known):
            raise SystemExit(f"{path}: these tables are of another machine; choose another folder")
        return
    folder.mkdir(parents=True, exist_ok=True)
    new = Recorded(key, known, dict(facts(measured(task.target))))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(new, order="sorted"), indent=1) + b"\n")


def machine_of(task: Task) -> str:
    """What a reader of the table wants to know of the machine."""
    t = task.target
    return f"{t.cpu}, {t.vector_bits}-bit vectors, {t.cores} core, caches of {t.l1}, {t.l2} and {t.l3} bytes"


if __name__ == "__main__":
    main()
