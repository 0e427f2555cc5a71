"""Searches of a user's own function: what it is called with is chosen by a strategy, and what it returns is a time.

The assignments of its space are listed, so a strategy judges all of them (`assignments`). Trials are kept as JSON
Lines, from which a search goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.outputs import append_line, lines_of, reason
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.tuning.measure.outcome import Outcome, Status, seconds_of
from tensorc_dsl.tuning.records.trial import digest
from tensorc_dsl.tuning.search.assignments import Assignments, ListedExplorer
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.strategy import Setting, strategy_of
from tensorc_dsl.tuning.search.tune import BATCH

Timed = float | Sequence[float] | None
"""What a function may return: seconds, several measurements of them, or None where it failed."""


@frozen
class FunctionTrial:
    """One call: its decisions; the seconds, None for a failure; the times that these summarise; why it failed."""

    decisions: Mapping[str, Decision]
    seconds: float | None
    times: tuple[float, ...] = ()
    message: str = ""


@frozen
class FunctionResult:
    """The result of a search. `best` has the decisions of the fastest call and `seconds` its time; both are None if no call
    succeeded. `trials` are all calls, in order, with those of a resumed search. `text` is a schedule with the decisions of
    the best pinned, empty without one or where a name is none of the language. It is `exhausted` if every assignment was
    tried, `interrupted` if Ctrl-C ended it. `unkept` says why trials are not in the file of records, from
    the first one that could not be written on.
    """

    best: Mapping[str, Decision] | None
    seconds: float | None
    trials: tuple[FunctionTrial, ...]
    text: str
    interrupted: bool = False
    exhausted: bool = False
    unkept: str = ""

    def __str__(self) -> str:
        return self.text or repr(self)

    def __repr__(self) -> str:
        """The best, and how many calls there were; without a best the first reason."""
        failed = [t for t in self.trials if t.seconds is None]
        shown_best = "None" if self.seconds is None else f"{dict(self.best or {})}, {units.seconds(self.seconds)}"
        why = f", the first: {failed[0].message!r}" if failed and self.seconds is None else ""
        counts = f"{len(self.trials)} trials, {len(failed)} failed{why}"
        ends = "".join(f", {name}" for name in ("interrupted", "exhausted") if getattr(self, name))
        lost = f", records were not written: {self.unkept}" if self.unkept else ""
        return f"FunctionResult({shown_best}; {counts}{ends}{lost})"


def search_function(
    f: Callable[..., Timed],
    assignments: Assignments,
    options: SearchOptions,
    *,
    name: str,
    written: Callable[[Mapping[str, Decision]], str],
    records: Path | None = None,
    on_trial: Callable[[FunctionTrial], None] | None = None,
) -> FunctionResult:
    """Call `f` with the assignments that the strategy proposes, and find the fastest.

    Given what `f` returns, the calls are a function of the options. `written` makes the text of the best. Trials are added to
    the file `records`. Where the search is resumed, what the file has of the same name, space, seed and strategy is not
    called again. An exception of `f` is a failure of that trial; StopIteration ends the search, and is no trial.
    """
    log = _Records(records, name, assignments, options)
    past = log.kept() if options.resume else {}
    explorer = ListedExplorer(assignments, options.seed, name)
    asked = strategy_of(options.strategy)(Setting(explorer, options.trials))
    trials: list[FunctionTrial] = []
    began = time.perf_counter()
    interrupted = exhausted = ended = False

    def late() -> bool:
        return options.budget is not None and time.perf_counter() - began >= options.budget

    try:
        while len(trials) < options.trials and not late() and not ended:
            left = options.trials - len(trials)
            with one_blas_thread():
                batch = asked.propose(min(BATCH, left), left / options.trials)
            if not batch:
                exhausted = explorer.followed([])
                break
            for trace in batch:
                if late():
                    break
                known = past.pop(_key(trace.decisions), None)
                try:
                    trial = known or timed_call(f, trace.decisions)
                except StopIteration:
                    ended = True
                    break
                if known is None:
                    log.add(trial)
                trials.append(trial)
                if on_trial is not None:
                    on_trial(trial)
                asked.tell(trace, _outcome(trial))
    except KeyboardInterrupt:
        interrupted = True
    trials += past.values()
    best = min((t for t in trials if t.seconds is not None), key=lambda t: t.seconds or 0.0, default=None)
    return FunctionResult(
        best=None if best is None else dict(best.decisions),
        seconds=None if best is None else best.seconds,
        trials=tuple(trials),
        text="" if best is None else written(best.decisions),
        interrupted=interrupted,
        exhausted=exhausted,
        unkept=log.unkept,
    )


def timed_call(f: Callable[..., Timed], decisions: Mapping[str, Decision]) -> FunctionTrial:
    """The trial of one call. Raises StopIteration where `f` does."""
    try:
        found = f(**decisions)
    except StopIteration:
        raise
    except Exception as e:
        return FunctionTrial(decisions, None, message=f"{type(e).__name__}: {e}")
    try:
        times = () if found is None else tuple(float(t) for t in np.atleast_1d(np.asarray(found, dtype=np.float64)))
    except (TypeError, ValueError):
        return FunctionTrial(decisions, None, message=f"it returned {found!r}, which is no time")
    # A function that returns whether it succeeded has measured nothing: True is no second.
    if not times or not all(0 < t < math.inf for t in times) or np.asarray(found).dtype == np.bool_:
        return FunctionTrial(decisions, None, message=f"it returned {found!r}")
    return FunctionTrial(decisions, seconds_of(times), times)


def pinned(name: str, assignments: Assignments, decisions: Mapping[str, Decision]) -> str:
    """A schedule of the draws with these decisions pinned, for a space that was not written as one."""
    lines = [
        f"    let {d.name} ~ sample_categorical([{', '.join(map(shown, d.values))}]) := {shown(decisions[d.name])}\n"
        for d in assignments.draws
        if d.name in decisions
    ]
    return f"schedule {name} for {name} {{\n{''.join(lines)}}}\n"


def _outcome(trial: FunctionTrial) -> Outcome:
    if trial.seconds is None:
        return Outcome(Status.CRASH, message=trial.message)
    return Outcome(Status.OK, trial.seconds, trial.times)


def _key(decisions: Mapping[str, Decision]) -> str:
    return repr(sorted((name, type(v).__name__, v) for name, v in decisions.items()))


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A trial in a file."""

    function: str
    space: str
    strategy: str
    seed: int
    decisions: dict[str, Any]
    seconds: float | None
    times: list[float] = []
    message: str = ""


@dataclass(slots=True)
class _Records:
    path: Path | None
    name: str
    assignments: Assignments
    options: SearchOptions
    unkept: str = ""
    """Why trials could not be written."""
    _space: str = field(init=False)

    def __post_init__(self) -> None:
        self._space = digest(repr([(d.name, d.values) for d in self.assignments.draws]))

    def kept(self) -> dict[str, FunctionTrial]:
        """What the file has of this search, by decisions; lines that are none of a trial are passed over."""
        out: dict[str, FunctionTrial] = {}
        for text in [] if self.path is None else lines_of(self.path):
            try:
                line = msgspec.json.decode(text, type=_Line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            mine = (line.function, line.space, line.strategy, line.seed) == (
                self.name, self._space, self.options.strategy, self.options.seed,
            )  # fmt: skip
            row = self.assignments.row(line.decisions) if mine else None
            if row is not None and (line.seconds is None or 0 < line.seconds < math.inf):
                decisions = self.assignments.decisions(row)
                out[_key(decisions)] = FunctionTrial(decisions, line.seconds, tuple(line.times), line.message)
        return out

    def add(self, trial: FunctionTrial) -> None:
        """Write the trial behind the others. If that fails, such as on a full disk, the search goes on, and says so."""
        if self.path is None or self.unkept:
            return
        line = _Line(
            self.name,
            self._space,
            self.options.strategy,
            self.options.seed,
            dict(trial.decisions),
            trial.seconds,
            list(trial.times),
            trial.message,
        )
        try:
            append_line(self.path, msgspec.json.encode(line))
        except OSError as e:
            self.unkept = f"{self.path}: {reason(e)}"
