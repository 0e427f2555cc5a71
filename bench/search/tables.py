"""Tables of timed draws from the prior, from which a search can be replayed without building anything.

A table is a file of compressed JSON. It holds the draws with their distributions, so a strategy sees the space as it was,
whatever the modules have become since.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical, Integer, Permutation
from tensorc_dsl.schedule.trace.draws.compute_location import ComputeLocation
from tensorc_dsl.schedule.trace.draws.tiles import PartialTile, PartitionedTile, PerfectTile
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.records.trial import Machine, facts_text

Array = NDArray[np.float64]

TABLES = Path(__file__).parent / "tables"
"""A folder for each processor, named after the vendor's line and the last cache."""

FOLDER = TABLES / "xeon-480mb"
"""The tables that programs read if no other folder is named."""

MACHINE = "machine.json"
"""The file beside the tables of a folder that says on which machine they were recorded."""

KINDS: dict[str, type[Distribution]] = {
    kind.__name__: kind
    for kind in (
        Branch,
        Categorical,
        ComputeLocation,
        Integer,
        PartialTile,
        PartitionedTile,
        PerfectTile,
        Permutation,
    )
}

DIGITS = 4
"""Significant digits of times; places behind the point of features."""


class _Row(msgspec.Struct, array_like=True):
    """The numbers of the draws in the table, with their decisions; seconds or null; the numbers of the loops."""

    draws: list[tuple[int, Any]]
    seconds: float | None
    features: list[float]


class Recorded(msgspec.Struct):
    """The machine of a folder of tables, as records have it: the key of its target, and its facts. `core` has numbers of the
    model of its processor, as measured there; of the three folders there are, rounded ones of such processors."""

    target_key: str
    facts: dict[str, int | float | str]
    core: dict[str, float] = {}

    @property
    def target(self) -> Target:
        """The target of the kernels that were timed."""
        return Target(**{f.name: self.facts[f.name] for f in fields(Target) if f.name in self.facts})  # pyright: ignore[reportArgumentType]

    @property
    def machine(self) -> Machine:
        return Machine.of(self.target_key, facts_text(self.facts))


def recorded_on(folder: Path) -> Recorded:
    """The machine of the tables in the folder."""
    return msgspec.json.decode((folder / MACHINE).read_bytes(), type=Recorded)


class _File(msgspec.Struct):
    task: str
    machine: str
    columns: str
    draws: list[tuple[str, str, dict[str, Any], bool]]
    """Name, kind, fields and whether it is pinned, of each draw that occurs."""
    rows: list[_Row]


@dataclass(frozen=True)
class Table:
    """Draws from the prior of one task, in the order in which they were drawn.

    `seconds` is None for a failure. `features` has a row for each trace. `columns` tells the meaning of the features.
    """

    task: str
    machine: str
    columns: str
    traces: tuple[Trace, ...]
    seconds: tuple[float | None, ...]
    features: Array

    @property
    def best(self) -> float:
        return min(s for s in self.seconds if s is not None)

    @cached_property
    def codes(self) -> tuple[dict[tuple[str, Decision], int], NDArray[np.float32]]:
        """A number for each decision of each open draw, and a row for each trace with 1 at its decisions."""
        made = [[(d.name, d.decision) for d in t.open_draws] for t in self.traces]
        places = {decision: n for n, decision in enumerate(dict.fromkeys(x for row in made for x in row))}
        matrix = np.zeros((len(made), len(places)), dtype=np.float32)
        for row, decisions in zip(matrix, made, strict=True):
            row[[places[x] for x in decisions]] = 1.0
        return places, matrix

    def first(self, count: int) -> Table:
        """The table of the first so many draws."""
        return Table(
            self.task,
            self.machine,
            self.columns,
            self.traces[:count],
            self.seconds[:count],
            self.features[:count],
        )


def write(table: Table, path: Path) -> None:
    numbers: dict[Draw, int] = {}
    rows: list[_Row] = []
    for trace, seconds, features in zip(table.traces, table.seconds, table.features, strict=True):
        draws = [(numbers.setdefault(_bare(d), len(numbers)), d.decision) for d in trace.draws]
        time = None if seconds is None else float(f"{seconds:.{DIGITS}g}")
        rows.append(_Row(draws, time, [round(x, DIGITS) for x in features.tolist()]))
    kinds = [(d.name, type(d.distribution).__name__, msgspec.to_builtins(d.distribution), d.pinned) for d in numbers]
    text = msgspec.json.encode(_File(table.task, table.machine, table.columns, kinds, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text, preset=9))


def read(path: Path) -> Table:
    file = msgspec.json.decode(lzma.decompress(path.read_bytes()), type=_File)
    kinds = [(name, msgspec.convert(fields, KINDS[kind]), pinned) for name, kind, fields, pinned in file.draws]
    traces: list[Trace] = []
    for row in file.rows:
        draws = [
            Draw(kinds[n][0], kinds[n][1], tuple(x) if isinstance(x, list) else x, kinds[n][2])  # pyright: ignore[reportUnknownArgumentType]
            for n, x in row.draws
        ]
        traces.append(Trace(file.task, file.task, (), tuple(draws), _NOTHING))
    features = np.array([r.features for r in file.rows])
    return Table(file.task, file.machine, file.columns, tuple(traces), tuple(r.seconds for r in file.rows), features)


def read_all(folder: Path = FOLDER) -> dict[str, Table]:
    """The tables of the folder by the names of their tasks, sorted."""
    return {t.task: t for t in map(read, sorted(folder.glob("*.json.xz")))}


_NOTHING = Program("nothing", (), (), ())
"""Stands for the programs, which no strategy looks at."""


def _bare(draw: Draw) -> Draw:
    """The draw without its decision."""
    return Draw(draw.name, draw.distribution, 0, draw.pinned)
