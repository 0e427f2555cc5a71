"""What emulations count: the runner that counts, and its records, lines of JSON in a file beside the database of times.

A count is a function of the schedule, the target and this package, and no time. The database of times has a column of
seconds, by which it ranks, exports and teaches. So counts have a file of another form, which nothing that learns from times
can read by mistake. A line is written whole when its schedule is done; one that was cut off is no record.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.outputs import append_line, lines_of
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import default_path
from tensorc_dsl.tuning.records.errors import unreadable, unwritable
from tensorc_dsl.tuning.records.trial import package_key, program_key, subject, target_key

NAME = "emulated.jsonl"
"""The name of the file, in the folder of the database."""


@frozen
class Counted:
    """What an emulation found in a kernel that is right; or the fault of one that is wrong; or why there is no kernel, or
    none with a number of cycles. Its numbers are finite, as JSON's are."""

    found: Emulated | None = None
    fault: str = ""
    refused: str = ""

    @staticmethod
    def of(found: Emulated) -> Counted:
        if found.fault:
            return Counted(fault=found.fault)
        if found.cycles is not None and not math.isfinite(found.cycles):
            return Counted(refused="no multiprocessor has room for a block of it")
        return Counted(found)

    def outcome(self, cores: int, run_seconds: float = 0.0) -> Outcome:
        """The outcome for a search that makes cycles small, on a GPU of so many multiprocessors."""
        if self.found is None:
            status = Status.WRONG_RESULT if self.fault else Status.REFUSED
            return Outcome(status, message=self.fault or self.refused, run_seconds=run_seconds)
        # Where there is no model, what the busiest multiprocessor moves takes it about a cycle each.
        cycles = float(self.found.busiest(cores)) if self.found.cycles is None else self.found.cycles
        error, compared = self.found.max_error, self.found.compared
        return Outcome(Status.OK, cycles, max_error=error, run_seconds=run_seconds, compared=compared)


@frozen
class SearchKey:
    """A search among the records: what its counts are about, its seed and its strategy."""

    about: str
    seed: int
    strategy: str


@frozen
class Emulation:
    """A trial of a search: the key of its program, its decisions as `encode_decisions` writes them, and what was counted."""

    search: SearchKey
    program: str
    decisions: str
    counted: Counted


def counts_key(program: Program, target: Target) -> str:
    """What counts depend on besides the schedule: the task, the target and this package."""
    return f"{subject(program, target, 1).task_key} {target_key(target, 1)} {package_key()}"


def place(records: Path | None) -> Path:
    """The file beside a database."""
    return (records or default_path()).with_name(NAME)


def kept(path: Path, search: SearchKey) -> Mapping[str, Emulation]:
    """The records of a search by their programs, the last ones. Raises TschedError (E0708)."""
    try:
        lines = lines_of(path)
    except OSError as e:
        raise unreadable(path, e.strerror or str(e)) from e
    out: dict[str, Emulation] = {}
    for line in lines:
        try:
            one = msgspec.json.decode(line, type=Emulation)
        except (msgspec.DecodeError, ValueError):
            continue  # cut off, or of another version
        if one.search == search:
            out[one.program] = one
    return out


def keep(path: Path, one: Emulation) -> None:
    """The record is the last line of the file. Raises TschedError (E0703)."""
    try:
        append_line(path, msgspec.json.encode(one))
    except OSError as e:
        raise unwritable(path, e.strerror or str(e)) from e


class EmulatingRunner:
    """Outcomes with the cycles of a model. No program is emulated twice, since counts do not vary; `found` has what was
    found for each program, by its key."""

    def __init__(self, emulate: Callable[[Program], Counted], cores: int, found: Mapping[str, Counted]) -> None:
        self._emulate = emulate
        self._cores = cores
        self.found = dict(found)

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        """An outcome per program, in order; all are counted alike, whatever the `best` is."""
        del best
        for program in programs:
            key, began = program_key(program), time.perf_counter()
            if key not in self.found:
                self.found[key] = self._emulate(program)
            yield self.found[key].outcome(self._cores, time.perf_counter() - began)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The same outcomes once more."""
        return list(self.measure(programs, None))
