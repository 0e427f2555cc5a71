"""The input of a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.records.queue import Queue
from tensorc_dsl.search.drift import Watch
from tensorc_dsl.search.events import Event, Listener
from tensorc_dsl.search.expansion import Expander, SpaceLike
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.runner import RunnerLike
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.validate.validate import Report


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
