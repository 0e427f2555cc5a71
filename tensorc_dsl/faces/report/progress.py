"""Shows a search, or several as one, while it goes on: a line that is updated on a terminal, or occasional lines elsewhere,
with an estimate of the time left. `docs/tune.md` describes these.
"""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Protocol, TextIO, assert_never

from tensorc_dsl.base import units
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.report.results import tally
from tensorc_dsl.faces.report.terminal import follow, is_dumb
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.local import BUILDERS, ROUNDS, little_compared
from tensorc_dsl.tuning.measure.outcome import Quantity
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Corrected,
    Crew,
    Diverged,
    Drifted,
    Event,
    Exhausted,
    Finished,
    Informed,
    Learnt,
    Listener,
    Measured,
    Prepared,
    Preparing,
    Proposed,
    Resumed,
    Settled,
    Sharing,
    Slowed,
    Started,
    Unshipped,
    Verifying,
    Waiting,
)
from tensorc_dsl.tuning.search.strategy import Regret
from tensorc_dsl.tuning.search.tune import FINALISTS

# Estimates the time left of a search from the times of its parts so far.


@dataclass(slots=True)
class Pace:
    """The times of batches. The first one includes one-time work: starting processes, the reference."""

    batches: int = 0
    began: float = 0.0
    """The time at which the current batch was requested."""

    before: int = 0
    """The number of trials before the current batch."""

    done: int = 0
    valid: int = 0
    running: float = 0.0
    """Seconds for checking and timing the trials of all batches, and in `building` for building them, one by one."""

    building: float = 0.0
    later: float = 0.0
    """Seconds of the complete batches without the first, and in `later_trials` the number of their trials."""

    later_trials: int = 0

    def take(self, event: Event, now: float) -> None:
        match event:
            case Proposed(ask_seconds=ask_seconds):
                if self.batches > 1:
                    self.later += now - ask_seconds - self.began
                    self.later_trials += self.done - self.before
                self.batches, self.before, self.began = self.batches + 1, self.done, now - ask_seconds
            case Measured(trial=trial, outcome=outcome):
                self.done = trial + 1
                self.valid += outcome.seconds is not None
                self.running += outcome.run_seconds
                self.building += outcome.build_seconds
            case _:
                pass

    def left(self, trials: int, now: float) -> float | None:
        """Seconds until that many trials and the final comparison are done; None before a batch is complete."""
        if self.batches < 2:
            return None
        run, build = self.running / self.done, self.building / self.done / BUILDERS
        each = self.later / self.later_trials if self.later_trials else run + build
        last = min(FINALISTS, self.valid) * (ROUNDS * run + build)
        return max(each * (trials - self.before) - (now - self.began), each * (trials - self.done) / 2) + last


# The state of each of several searches that run together: a row of cells, of which as many are shown as fit.


GAP = 2
"""Blanks between cells."""

KEPT = (0, 2, 3, 1, 5, 4)
"""The cells in the order in which they are given room: name, best time, share of the roof, trials, regret, failures."""

NAME = 24
"""The most columns of a name, the mark before it included, and at most half of the line; a longer one is cut."""


@dataclass(slots=True)
class Row:
    """One task: its trials and what came of them."""

    name: str
    roof: Roof | None
    quantity: Quantity = Quantity.SECONDS
    trials: int = 0
    best: float | None = None
    regret: float | None = None
    failures: Counter[str] = field(default_factory=Counter[str])

    def take(self, event: Event) -> None:
        match event:
            case Measured(trial=trial, outcome=outcome, best_seconds=best):
                self.trials, self.best = trial + 1, best
                if outcome.seconds is None:
                    self.failures[outcome.status] += 1
            case Corrected(best_seconds=best):
                self.best = best
            case Regret(share=share):
                self.regret = share
            case _:
                pass

    def cells(self, current: bool, widest: int) -> tuple[str, ...]:
        """What there is to say, empty where nothing is known."""
        name = f"{'›' if current else ' '} {self.name}"
        share = None if self.best is None or self.roof is None else self.roof.share(self.best)
        return (
            name if len(name) <= widest else f"{name[: widest - 1]}…",
            units.counted(self.trials, "trial"),
            "" if self.best is None else self.quantity.shown(self.best),
            "" if share is None else f"{units.share(share)} of roof",
            tally(dict(self.failures)),
            "" if self.regret is None else f"regret {percent(self.regret)}",
        )


def percent(regret: float) -> str:
    """A regret as a percentage, with a digit behind the point where it is small."""
    return units.share(regret) if regret >= 0.095 else f"{100 * regret:.1f} %"


def shown(rows: Sequence[Row], current: int | None, width: int, height: int) -> list[str]:
    """At most `height` lines of at most `width` columns, their cells below each other, the current task among them.

    There is height for two lines.
    """
    if len(rows) > height:
        first = min(max(0, (current or 0) - (height - 1) // 2), len(rows) - height + 1)
        some = range(first, first + height - 1)
    else:
        some = range(len(rows))
    table = [rows[n].cells(n == current, min(NAME, width // 2)) for n in some]
    widths = [max(len(cells[m]) for cells in table) for m in range(len(KEPT))]
    kept: list[int] = []
    used = -GAP
    for m in KEPT:
        if widths[m] and used + GAP + widths[m] <= width:
            kept.append(m)
            used += GAP + widths[m]
    kept.sort()
    lines = [(" " * GAP).join(cells[m].ljust(widths[m]) for m in kept).rstrip() for cells in table]
    hidden = len(rows) - len(table)
    return [*lines, f"  and {units.counted(hidden, 'more task')}"[:width]] if hidden else lines


# Describes the state of a search in words.
#
# Work without trials to count is announced when it begins, so the longest silence is that of its longest part.


SLOW_BUILD = 5.0
"""Builds that take longer, in seconds, are reported: most take a tenth of one."""


@dataclass(slots=True)
class Standing:
    """The state of a search: current work, results so far, and the roof, once it is known. Results are of the quantity."""

    clock: Callable[[], float] = time.perf_counter
    roof: Roof | None = None
    quantity: Quantity = Quantity.SECONDS
    trials: int = 0
    done: int = 0
    counting: bool = False
    current: str = ""
    best: float | None = None
    regret: float | None = None
    goal: float | None = None
    """The regret that ends the search."""

    failures: Counter[str] = field(default_factory=Counter[str])
    pace: Pace = field(default_factory=Pace)
    tasks: list[Row] = field(default_factory=list[Row])
    """The searches, where there are several."""

    task: int | None = None
    """Which of them goes on."""

    workers: int = 0
    """How many workers time kernels; 0 where this machine does."""

    timed: Counter[str] = field(default_factory=Counter[str])
    """How many trials each worker's machine has timed."""

    _workers_began: float = 0.0
    _phase_began: float = 0.0
    _until: float | None = None

    def enter(self) -> None:
        """Begin work without trials to count."""
        self.counting, self._phase_began = False, self.clock()

    def turn(self, number: int) -> None:
        """The search of another task goes on."""
        row = self.tasks[number]
        self.task, self.roof, self.best, self.regret = number, row.roof, row.best, row.regret
        self.enter()

    def take(self, event: Event) -> str | None:
        """The line for an event that begins work or reports an error; None for other events."""
        self.pace.take(event, self.clock())
        line = self._begins(event)
        if line is not None:
            self.enter()
        match event:
            case Started(trials=trials, budget=budget, until=until):
                self.trials, self.goal = trials, until
                self._until = None if budget is None else self.clock() + budget
            case Exhausted(programs=programs):
                self.trials = programs
            case Corrected(best_seconds=best):
                self.counting, self.best = True, best
            case Measured(trial=trial, outcome=outcome, best_seconds=best):
                self.counting, self.done, self.best = True, trial + 1, best
                if outcome.machine:
                    self.timed[outcome.machine] += 1
                if outcome.seconds is None:
                    self.failures[outcome.status] += 1
                    self.current = outcome.status.replace("_", " ")
                else:
                    self.current = self.quantity.shown(outcome.seconds)
                if outcome.build_seconds >= SLOW_BUILD:
                    self.current += f" after a build of {units.seconds(outcome.build_seconds)}"
            case Regret(share=share):
                self.regret = share
            case Waiting(unkept=unkept):
                return unkept.waiting()
            case Prepared(compared=share) if (little := little_compared(share)) is not None:
                return f"warning[{little.code}]: {little.message}: {', '.join(n.text for n in little.notes)}"
            case Proposed() | Learnt() | Preparing() | Prepared() | Comparing() | Verifying() | Finished():
                pass
            case (
                Resumed()
                | Informed()
                | Unshipped()
                | Diverged()
                | Drifted()
                | Settled()
                | Slowed()
                | Sharing()
                | Crew()
            ):
                if isinstance(event, Crew):
                    self._workers_began = self._workers_began if self.workers else self.clock()
                    self.workers = event.machines
                return said(event)
            case _:
                assert_never(event)
        return line

    def _begins(self, event: Event) -> str | None:
        match event:
            case Proposed(traces=traces) if not self.done:
                how = "building" if self.quantity is Quantity.SECONDS else "emulating"
                return f"{how} the first {units.counted(len(traces), 'program')}"
            case Preparing():
                return "computing the reference that results are compared with"
            case Exhausted():
                return exhaustion_message(event)
            case Comparing() if self.quantity is Quantity.CYCLES:
                return None  # counts do not vary, so nothing is done again
            case Comparing(finalists=1):
                return "measuring the best one again"
            case Comparing(finalists=count):
                return f"comparing the best {count} by turns"
            case Verifying(finalist=0, finalists=count):
                return f"verifying the best {count} against the task" if count > 1 else "verifying it against the task"
            case _:
                return None

    def left(self) -> float | None:
        """The estimated seconds left; None before there is a pace."""
        left = self.pace.left(self.trials, self.clock())
        if self._until is None:
            return left
        until = max(0.0, self._until - self.clock())
        return until if left is None else min(left, until)

    def count(self) -> str:
        """The counter, `12/64`; only `12` if the search ends by the clock."""
        return f"{self.done}/{self.trials}" if self._until is None else f"{self.done}"

    def parts(self, best: bool = True) -> list[tuple[int, str]]:
        """The parts of the line while trials are counted, in order, each with a rank; lower ranks are kept longer.

        Without `best` the text does not mention the best schedule.
        """
        left = self.left()
        out = [(0, f"[{self.count()}]")]
        if left is not None and self.done < self.trials:
            out.append((1, f"{units.seconds(left)} left"))
        if best and self.best is not None:
            out.append((2, f"best {self.quantity.shown(self.best)}"))
            if self.roof is not None:
                out += ((5 + n, part) for n, part in enumerate(self.roof.facts(self.best)))
        if best and self.regret is not None:
            goal = "" if self.goal is None else f" of {percent(self.goal)}"
            out.append((4, f"regret {percent(self.regret)}{goal}"))
        if self.failures:
            out.append((3, tally(dict(self.failures))))
        if self.timed:
            out.append((9, self._rates()))
        out.append((7, f"now {self.current}"))
        return out

    def _rates(self) -> str:
        """`2 workers: board 12 trials/min, rack 30`, the fastest first."""
        minutes = max(self.clock() - self._workers_began, 1e-3) / 60
        first, *others = (f"{visible_line(name)} {count / minutes:.0f}" for name, count in self.timed.most_common())
        return f"{units.counted(self.workers, 'worker')}: {', '.join([f'{first} trials/min', *others])}"

    def text(self) -> str:
        """`[12/64] 14.0 s left, best 1.31 ms, 205 GFLOP/s, 93 % of f32 FMA peak, 2 timeouts, now 1.42 ms`."""
        return _joined(text for _, text in self.parts())

    def fitting(self, width: int) -> str:
        """As much of the text as fits, the counter and the time left first; between trials, the time of the current work."""
        if not self.counting:
            return units.seconds(self.clock() - self._phase_began)
        parts = self.parts(best=not self.tasks)
        chosen: list[int] = []
        for n in sorted(range(len(parts)), key=lambda n: parts[n][0]):
            if len(_joined(parts[m][1] for m in sorted([*chosen, n]))) <= width:
                chosen.append(n)
        return _joined(parts[n][1] for n in sorted(chosen))


def said(event: Resumed | Informed | Unshipped | Diverged | Drifted | Settled | Slowed | Sharing | Crew) -> str:
    """The line for an unusual event."""
    match event:
        case Resumed(trials=0):
            return "no search with this seed and strategy is recorded for the task on this machine: it begins anew"
        case Resumed(trials=count):
            return f"going on with the last search: {units.counted(count, 'trial')} recorded"
        case Informed(trials=trials, tasks=tasks, elsewhere=0):
            return f"learns from {trials:,} trials of {units.counted(tasks, 'other task')} on this machine"
        case Informed(trials=trials, tasks=tasks, elsewhere=elsewhere, machines=machines):
            where = f"{elsewhere:,} of them on {units.counted(machines, 'other machine')}"
            return f"learns from {trials:,} trials of {units.counted(tasks, 'task')}, {where}"
        case Unshipped(why=why):
            return f"warning[{why.code}]: {why.message}: {', '.join(n.text for n in why.notes)}"
        case Diverged(trials=count):
            records = units.counted(count, "record")
            return f"the search asks for other programs than it did: {records} of it may be of no use"
        case Drifted(factor=factor):
            return f"the machine is {factor:.2f} times slower than it was: waiting for it"
        case Settled(factor=factor, waited=waited, trials=count):
            again = f"{units.counted(count, 'trial')} measured again"
            if waited:
                return f"the machine is as fast as before, after {units.seconds(waited)}: {again}"
            return f"the machine was {f'{factor:.2f} times ' if factor != 1.0 else ''}slower for a while: {again}"
        case Slowed(factor=1.0, memory=memory):
            return f"the memory of the machine stays {memory:.2f} times slower: times remain uncertain by that"
        case Slowed(factor=factor):
            return f"the machine stays {factor:.2f} times slower: times are divided by that"
        case Sharing(given_up=False):
            return "another process times kernels on this machine: taking turns"
        case Sharing():
            return "another process does not end its turn on this machine: times may be longer than they need be"
        case Crew(news=news, machines=count):
            what = f"{news.machine} {news.change}".strip()
            why = f": {visible_line(news.why)}" if news.why else ""
            return f"{visible_line(what)}{why}; kernels are timed by {units.counted(count, 'worker')}"
        case _:
            assert_never(event)


def _joined(parts: Iterable[str]) -> str:
    counter, *rest = parts
    return f"{counter} {', '.join(rest)}".rstrip()


def exhaustion_message(found: Exhausted) -> str:
    """The reason why there are fewer trials than requested."""
    if found.whole:
        return f"the space has {units.counted(found.programs, 'program')}"
    return f"the space gave nothing new after {units.counted(found.programs, 'program')}"


# Shows the progress of a search: one line that is updated on a terminal, or occasional lines elsewhere.


PLAIN_SECONDS = 5.0
"""Without a terminal, a line is printed at least this often, one for each improvement after `PAUSE`, and one for each
slow build."""

PAUSE = 0.5


class Follower(Protocol):
    """Shows events of a search, and lines between them."""

    def __call__(self, event: Event) -> None: ...

    def begin(self, line: str) -> None:
        """Show the beginning of work for which the search sends no events."""
        ...

    def turn(self, number: int) -> None:
        """The events that follow are of this task, of several."""
        ...


def is_shown_live(out: TextIO | None) -> bool:
    """Whether a person watches the stream: it is a terminal, or this is a notebook."""
    return out is not None and (out.isatty() or _in_notebook())


def _in_notebook() -> bool:
    """Whether this is a notebook, whose output goes into the cell."""
    if "ipykernel" not in sys.modules:
        return False  # notebooks load ipykernel, so rich need not be imported

    from rich.console import Console

    return Console().is_jupyter


def _has_widgets() -> bool:
    """Whether a line can be overwritten in a cell, which takes a widget. One that cannot be loaded is none."""
    try:
        import_module("ipywidgets")
    except ImportError:
        return False
    return True


@contextmanager
def show_progress(standing: Standing, out: TextIO | None) -> Generator[Follower, None, None]:
    """A context in which the search is shown on `out`, or in the cell of a notebook.

    Without an output, such as a standard error that was closed at the start, nothing is shown.
    """
    out = out or io.StringIO()
    if (out.isatty() and not is_dumb()) or (_in_notebook() and _has_widgets()):
        from tensorc_dsl.faces.report.live import on_terminal  # only where there is one

        with on_terminal(standing, out) as follower:
            yield follower
    else:
        yield _Lines(standing, out)


class _Lines:
    """Plain lines, few enough for a log."""

    def __init__(self, standing: Standing, out: TextIO) -> None:
        self._standing = standing
        self._out = out
        self._shown_at = standing.clock()
        self._shown_best: float | None = None

    def begin(self, line: str) -> None:
        self._standing.enter()
        follow(line, self._out)

    def turn(self, number: int) -> None:
        self._standing.turn(number)
        follow(f"{self._standing.tasks[number].name}:", self._out)

    def __call__(self, event: Event) -> None:
        s = self._standing
        line = s.take(event)
        if line is not None:
            follow(line, self._out)
        if isinstance(event, Measured):
            pause = PAUSE if s.best != self._shown_best else PLAIN_SECONDS
            slow = event.outcome.build_seconds >= SLOW_BUILD
            if slow or s.clock() - self._shown_at >= pause or s.done == s.trials:
                self._shown_at, self._shown_best = s.clock(), s.best
                follow(s.text(), self._out)


# Shows several searches as one: trials are counted over all of them, and the current task is named.


class Together:
    """Passes the events of several searches, of so many `trials` in all, to one follower. The events of a single search are
    passed unchanged; of what several learn from, the first says it for all."""

    def __init__(
        self, standing: Standing, follower: Follower, roofs: Sequence[Roof | None], names: Sequence[str], trials: int
    ) -> None:
        self._standing = standing
        self._follower = follower
        self._total = trials
        self._done = 0
        self._informed = False
        standing.roof = roofs[0]
        if len(names) > 1:
            standing.tasks = [Row(name, roof, standing.quantity) for name, roof in zip(names, roofs, strict=True)]

    def listener(self, number: int) -> Listener:
        """The listener for the search of that number."""
        return self._follower if not self._standing.tasks else lambda event: self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        if number != self._standing.task and not isinstance(event, Started | Finished | Informed):
            self._follower.turn(number)
        self._standing.tasks[number].take(event)
        match event:
            case Informed():
                if not self._informed:
                    self._follower(event)
                self._informed = True
            case Started():
                self._follower(replace(event, trials=self._total))
            case Measured():
                self._done += 1
                self._follower(replace(event, trial=self._done - 1))
            case Exhausted() | Proposed():
                pass  # the end or beginning of one search, not of all
            case _:
                self._follower(event)
