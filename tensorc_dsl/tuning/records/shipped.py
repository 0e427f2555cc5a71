"""The records that come with the package: the suite of `bench.search`, measured on the processors seen so far.

A search on a new machine begins with what they teach. `python -m bench.search.ship` writes the file from tables of our own
measurements. It is read when a search first asks, and a damaged one is left out: nothing depends on it.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import msgspec

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.records.database import ELSEWHERE, Asked, Measured, kind_in, threads_in
from tensorc_dsl.tuning.records.schema import SHORTEST
from tensorc_dsl.tuning.records.trial import Machine, decode_decisions, facts_text

FILE = Path(__file__).with_name("shipped.json.xz")

LARGEST = 64 << 20
"""Bytes of the text that is read: ten times those of the file with two processors."""


@problem(
    "W0707",
    "the records that come with the package are left out: {why}",
    help="install the package again, or pass `--no-shipped`",
)
def NOT_SHIPPED(*, why: str) -> None: ...


class ShippedTask(msgspec.Struct):
    """The trials of a task in the order of their draws, by columns, and the decisions of the fastest few of them."""

    task_key: str
    seconds: list[float]
    features: list[list[float]]
    best: list[msgspec.Raw]


class ShippedMachine(msgspec.Struct):
    target_key: str
    facts: dict[str, int | float | str]
    tasks: list[ShippedTask]


class ShippedFile(msgspec.Struct):
    """`columns` identifies the definition of the features."""

    columns: str
    machines: list[ShippedMachine]


def written(content: ShippedFile) -> bytes:
    """The content of the file, the same bytes for the same content."""
    return lzma.compress(msgspec.json.encode(content, order="sorted"), preset=9)


@frozen
class Shipped:
    """Trials that a search may learn from, as `Teaches` has it. They have no date: all are older than any search."""

    content: ShippedFile

    def others(self, task: Asked, target_key: str, columns: str, before: float) -> Iterator[Measured]:
        """Those of that target, then the others of its kind. Of a machine with that target the task itself teaches, too: its
        records are none of the user's."""
        del task, before
        for machine in self._machines(target_key) if columns == self.content.columns else ():
            place = (
                None if machine.target_key == target_key else Machine.of(machine.target_key, facts_text(machine.facts))
            )
            for t in machine.tasks:
                rows = zip(*t.features, strict=True)
                # As a database has them: the latest first.
                for seconds, features in [*zip(t.seconds, rows, strict=True)][::-1]:
                    yield Measured(t.task_key, seconds, features, place)

    def best_decisions(self, task: Asked, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        del before
        threads = threads_in(target_key)
        there = [(m, t) for m in self._machines(target_key) for t in m.tasks]
        itself = [t for m, t in there if t.task_key == task.key and not m.target_key.endswith(threads)]
        return _decoded(x for t in (*itself, *(t for _, t in there if t.task_key != task.key)) for x in t.best[:1])

    def decisions_elsewhere(self, task_key: str, target_key: str, before: float) -> list[Mapping[str, Decision]]:
        """Of each machine the fastest, then of each the second one, and so on."""
        del before
        machines = [m for m in self._machines(target_key) if m.target_key.endswith(threads_in(target_key))]
        best = [t.best[:ELSEWHERE] for m in machines for t in m.tasks if t.task_key == task_key]
        return _decoded(x for rank in zip_longest(*best) for x in rank if x is not None)

    def _machines(self, target_key: str) -> list[ShippedMachine]:
        """Those with the target, then the others of its kind."""
        kind = kind_in(target_key)
        there = [m for m in self.content.machines if m.target_key.startswith(kind)]
        return sorted(there, key=lambda m: m.target_key != target_key)


def _decoded(texts: Iterable[msgspec.Raw]) -> list[Mapping[str, Decision]]:
    return [decode_decisions(bytes(x).decode()) for x in texts]


def shipped(columns: str, path: Path = FILE) -> Shipped | Diagnostic:
    """The records of the file, or why they are left out. `columns` are those that this version of the package describes."""
    try:
        with lzma.open(path) as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            return NOT_SHIPPED(None, why=f"{path} is larger than {LARGEST} bytes")
        content = msgspec.json.decode(text, type=ShippedFile)
        _verify(content)
    except FileNotFoundError:
        return NOT_SHIPPED(None, why=f"{path} is missing")
    except (OSError, EOFError, lzma.LZMAError, msgspec.DecodeError, ValueError) as e:
        return NOT_SHIPPED(None, why=f"{path} is damaged: {e}")
    if content.columns != columns:
        return NOT_SHIPPED(None, why=f"{path} describes loops as another version does")
    return Shipped(content)


def _verify(content: ShippedFile) -> None:
    """Raises ValueError where the numbers cannot be those of trials."""
    for machine in content.machines:
        for task in machine.tasks:
            count = len(task.seconds)
            if not task.features or any(len(column) != count for column in task.features):
                raise ValueError(f"columns of the task {task.task_key} have other lengths than its times")
            if not all(SHORTEST <= s < math.inf for s in task.seconds):
                raise ValueError(f"a time of the task {task.task_key} is none")
            for best in task.best:
                decode_decisions(bytes(best).decode())
