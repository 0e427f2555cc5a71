"""Writes the records that come with the package: `python -m bench.search.ship FOLDER…`.

Each folder has the tables of one machine (`bench.search.collect`), of tasks of `workloads.tsched`. With `--check` nothing is
written; exit status 1 says that the file is not what the tables make.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from bench.search.tables import TABLES, Table, read_all, recorded_on
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.records.database import ELSEWHERE
from tensorc_dsl.tuning.records.shipped import FILE, ShippedFile, ShippedMachine, ShippedTask, written
from tensorc_dsl.tuning.records.trial import encode_decisions, program_key
from tensorc_dsl.tuning.search.expansion import meaning_of

WORKLOADS = Path(__file__).parent / "workloads.tsched"

DIGITS = 2
"""Places behind the point of features: forests distinguish 32 values of a column."""


def content(folders: Sequence[Path]) -> ShippedFile:
    """What ships of the tables in these folders. Raises SystemExit for features of another version."""
    keys = {name: program_key(task.program) for name, task in load(WORKLOADS, threads=1).items()}
    return ShippedFile(meaning_of(Target()), [_machine(folder, keys) for folder in folders])


def _machine(folder: Path, keys: Mapping[str, str]) -> ShippedMachine:
    there, tables = recorded_on(folder), read_all(folder)
    if old := [name for name, t in tables.items() if t.columns != meaning_of(Target())]:
        raise SystemExit(f"{folder}: the features of {', '.join(old)} are those of another version")
    return ShippedMachine(there.target_key, there.facts, [_task(keys[name], t) for name, t in sorted(tables.items())])


def _task(key: str, table: Table) -> ShippedTask:
    timed = [(s, n) for n, s in enumerate(table.seconds) if s is not None]
    rows = [n for _, n in timed]
    columns = np.round(table.features[rows], DIGITS).T + 0.0  # no negative zeros
    best = [msgspec.Raw(encode_decisions(table.traces[n].decisions).encode()) for _, n in sorted(timed)[:ELSEWHERE]]
    return ShippedTask(key, [s for s, _ in timed], columns.tolist(), best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=sorted(p for p in TABLES.iterdir() if p.is_dir()))
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    made = written(content(chosen.folders))
    if not chosen.check:
        FILE.write_bytes(made)
        print(f"{FILE.name}: {len(made):,} bytes")
    elif not FILE.exists() or FILE.read_bytes() != made:
        raise SystemExit(f"{FILE}: the tables make another file")


if __name__ == "__main__":
    main()
