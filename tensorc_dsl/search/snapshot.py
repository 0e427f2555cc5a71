"""Snapshots of a search: a resumed one goes on from the last, and chooses only what came after it again.

Without one, a resumed search chooses all its recorded trials again, which takes as long as choosing took. A snapshot counts
only where nothing could have come out differently: the same package, options, records and space.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.outputs import replace_file
from tensorc_dsl.records.keys import package_key
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.expansion import SpaceLike
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.past import Past
from tensorc_dsl.search.regret import Regret
from tensorc_dsl.search.space import Explorer
from tensorc_dsl.search.strategy import Strategy
from tensorc_dsl.trace.trace import Trace

GROWTH = 1.15
"""A snapshot is taken once there are so many times the trials of the last one: all of them together take as long as a few of
the longest, and a resumed search chooses at most so much again."""

FIRST = 8
"""Trials of the first one."""

LOOKED_AT = 4
"""Trials whose schedules are expanded again, to see whether the space is still the same."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A search between two batches. `keys` are the keys of the programs of its trials."""

    explorer: Explorer
    strategy: Strategy
    traces: tuple[Trace, ...]
    keys: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    curve: tuple[tuple[int, float | None], ...]
    regret: Regret | None
    low: int

    def fits(self, past: Past, space: SpaceLike) -> bool:
        """Whether these are recorded trials of the past search, and the space makes the same programs of its last ones."""
        if any(past.outcomes.get(k) != o for k, o in zip(self.keys, self.outcomes, strict=True)):
            return False
        try:
            return all(space.replay(t.decisions, np.random.default_rng(0)) == t for t in self.traces[-LOOKED_AT:])
        except ScheduleRefusal:
            return False


def due(trials: int, last: int) -> bool:
    """Whether it is time for a snapshot after so many trials, where the last was after so many."""
    return trials >= max(FIRST, GROWTH * last) and trials > last


class Keeper:
    """Keeps the last snapshot of a search in a file. The file is a pickle: only the user's own programs may write it.

    `shared` are objects that the snapshot refers to and that exist without it, such as the space.
    """

    def __init__(self, path: Path, options: SearchOptions, run: str, shared: Sequence[object]) -> None:
        self._path = path
        self._about = f"{package_key()} {options.trials} {options.seed} {options.strategy} {run}".encode()
        self._shared = {id(x): n for n, x in enumerate(shared)}
        self._objects = list(shared)

    def write(self, snapshot: Snapshot) -> None:
        """The file has the snapshot, or what it had before where there is no room: a snapshot only saves time."""
        made = io.BytesIO()
        _Writer(made, self._shared.get).dump(snapshot)
        with suppress(OSError):
            replace_file(self._path, self._head(made.getvalue()) + made.getvalue())

    def read(self) -> Snapshot | None:
        """The snapshot of this search by this package; None where there is none."""
        try:
            head, _, body = self._path.read_bytes().partition(b"\n")
        except OSError:
            return None
        if head + b"\n" != self._head(body):
            return None  # of another search or package, or cut off by a power failure
        found = _Reader(io.BytesIO(body), self._objects).load()
        return found if isinstance(found, Snapshot) else None

    def _head(self, body: bytes) -> bytes:
        return self._about + b" " + blake2b(body, digest_size=16).hexdigest().encode() + b"\n"


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, number: Callable[[int], int | None]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._number = number

    def persistent_id(self, obj: object) -> int | None:
        return self._number(id(obj))


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, objects: Sequence[object]) -> None:
        super().__init__(file)
        self._objects = objects

    def persistent_load(self, pid: int) -> object:
        return self._objects[pid]
