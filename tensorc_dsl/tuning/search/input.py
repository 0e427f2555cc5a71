"""The input of a search: the task, the options, and the runner that measures its candidates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.proof.equivalence.validate import Report
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records.database import Queue
from tensorc_dsl.tuning.search.drift import Watch
from tensorc_dsl.tuning.search.events import Event, Listener
from tensorc_dsl.tuning.search.expansion import Expander, SpaceLike
from tensorc_dsl.tuning.search.options import SearchOptions

# The interface between a search and the runner that measures its candidates.


class RunnerLike(Protocol):
    """Builds, checks and times programs; `tuning.measure.local.LocalRunner` is one."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        """An outcome per program, in order, each as soon as it is known. One far slower than `best` is timed briefly."""
        ...

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured again, in turns, so that a drift of the machine hits all of them alike."""
        ...


# The input of a search.


def _unheard(_: Event) -> None:
    pass


def _of_no_modules(_: Trace) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInput:
    """A search looks in `space` for the fastest way to run `program` (unscheduled) on `target` with `threads` threads.

    `runner` measures its candidates, and `records` keeps the trials, if it is given. `on_event` hears of each event.
    `verify` proves a schedule or refutes it; one that it refutes does not win, and is recorded as wrong. `made_by` gives the
    versions of the modules that made a trace, for its record. `watch` detects that the machine became slower. `expander`
    makes the traces of `space`; by default, this process does. Given the measured times and the `clock`, in seconds,
    the search is a function of the other fields.
    """

    space: SpaceLike
    program: Program
    target: Target
    options: SearchOptions
    runner: RunnerLike
    threads: int
    records: Queue | None = None
    on_event: Listener = _unheard
    verify: Callable[[Trace], Report] | None = None
    made_by: Callable[[Trace], Mapping[str, str]] = _of_no_modules
    watch: Watch | None = None
    expander: Expander | None = None
    clock: Callable[[], float] = time.perf_counter
