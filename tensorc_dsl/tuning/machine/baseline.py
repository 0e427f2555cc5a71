"""What a tuned kernel stands beside: the roof of the machine, and NumPy on the same task and number of threads.

A NumPy function that computes another result than the program has no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.memory import laid_out
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind, strides_of
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import available
from tensorc_dsl.processes.protocol import (
    Purpose,
    Worker,
    WorkerBug,
    WorkerCrash,
    WorkerTimeout,
    library_threads,
)
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.machine.numpy_text import numpy_texts
from tensorc_dsl.tuning.machine.roof import GLANCE, MEASURING, PATIENCE, Roof, roof_of
from tensorc_dsl.tuning.measure.check import compare

ROUNDS, SECONDS, PAUSE = 12, 0.1, 0.03
"""The number of rounds of timed calls at most, the seconds of a round, and the pause after each."""

LEAST, ALIKE, AGREE = 4, 3, 0.01
"""After so many rounds, the fastest calls of so many of them differ by no more than this share: no other round is needed."""

DISTURBED = 1.1
"""NumPy was disturbed if the fastest calls of no so many rounds were within this factor."""

LIMIT = 60.0
"""The time limit in seconds of the child process for one size, including the check."""

Array = NDArray[Any]


class Question(msgspec.Struct, tag=True, frozen=True):
    """A request: an unscheduled program without open sizes, and the seconds of a round."""

    program: str
    seconds: float


class Fastest(msgspec.Struct, tag=True, frozen=True):
    """Seconds of the fastest call; `disturbed` if too few rounds met about the same one, since other work slowed it down."""

    seconds: float
    disturbed: bool


class Unlike(msgspec.Struct, tag=True, frozen=True):
    """NumPy computes another result."""


NUMPY: Purpose[Question, Fastest | Unlike] = Purpose(f"{__name__}:time_numpy", Question, Fastest | Unlike)


def has_numpy(program: Program) -> bool:
    """Whether NumPy has functions for the program, at all sizes at which it is timed."""
    return all(numpy_texts(bind(program, sizes)) for sizes in sizing(program).timed)


def numpy_seconds(program: Program, threads: int) -> Fastest | None:
    """The time of a call in seconds; for open sizes the mean, at the sizes and with the weights of a kernel's time.

    The program must have NumPy functions. None if they compute another result, or take longer than the limit.
    """
    found, total, disturbed = sizing(program), 0.0, False
    for sizes, weight in zip(found.timed, found.weights, strict=True):
        timed = _timed_in_child(bind(program, sizes), threads)
        if timed is None:
            return None
        total += weight * timed.seconds
        disturbed |= timed.disturbed
    return Fastest(total, disturbed)


def _timed_in_child(program: Program, threads: int) -> Fastest | None:
    with closing(Worker(NUMPY, library_threads(threads), available())) as worker:
        try:
            reply = worker.ask(Question(format_program(program), SECONDS), LIMIT)
        except (WorkerBug, WorkerCrash, WorkerTimeout):
            return None
    return reply if isinstance(reply, Fastest) else None


def right_calls(program: Program) -> tuple[list[Callable[[], object]], list[str]]:
    """The ways to compute the program with NumPy that give the right result, as calls, and the errors of the others."""
    inputs = make_inputs(program, 0)
    expected, allowed = bounded(program, inputs)
    calls: list[Callable[[], object]] = []
    faults: list[str] = []
    for text in numpy_texts(program):
        names: dict[str, Any] = {"np": np}
        exec(compile(text, "<numpy>", "exec"), names)
        arguments = [laid_out(inputs[p.name], strides_of(p)) for p in program.inputs]
        function: Callable[..., tuple[Array, ...]] = names["call"]
        fault = _fault(program, function(*arguments), expected, allowed)
        if fault:
            faults.append(fault)
        else:
            calls.append(lambda f=function, a=arguments: f(*a))
    return calls, faults


def _fault(
    program: Program, found: tuple[Array, ...], expected: dict[str, Array], allowed: dict[str, NDArray[np.float64]]
) -> str:
    for p, got in zip(program.outputs, found, strict=True):
        if got.shape != expected[p.name].shape:
            return f"{p.name} has shape {got.shape}"
        verdict = compare(p.name, got, expected[p.name], allowed[p.name], p.dtype)
        if verdict.fault:
            return verdict.fault
    return ""


def time_numpy() -> None:
    """Time NumPy on what the parent asks. Its libraries read their number of threads when this process loads them."""

    def answer(what: Question) -> Fastest | Unlike:
        calls, _ = right_calls(parse_program(Source("task", what.program)))
        return fastest(calls, what.seconds) if calls else Unlike()

    with np.errstate(all="ignore"):
        NUMPY.serve(answer)


def fastest(calls: Sequence[Callable[[], object]], seconds: float = SECONDS) -> Fastest:
    """The fastest call of all, in rounds of so many seconds.

    Other load only slows calls down, and pauses let the system redistribute the threads. Rounds go on until several of them
    have met about the same fastest call.
    """
    found: list[float] = []
    while True:
        found.append(_fastest_of_a_round(calls, seconds))
        found.sort()
        if len(found) == ROUNDS or (len(found) >= LEAST and found[ALIKE - 1] <= (1 + AGREE) * found[0]):
            return Fastest(found[0], found[ALIKE - 1] > DISTURBED * found[0])
        time.sleep(PAUSE)


def _fastest_of_a_round(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    best = math.inf
    for call in calls:
        until = time.perf_counter() + seconds / len(calls)
        while (start := time.perf_counter()) < until:
            call()
            best = min(best, time.perf_counter() - start)
    return best


BUSY = 1.3
"""A machine with this many times less than the highest peak or bandwidth that was seen is busy. Both vary by some percent."""


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """`numpy_seconds` is per call; None if NumPy has no functions for the task, or was not timed. It is `numpy_disturbed` if
    its calls did not agree, or the machine was busy."""

    roof: Roof
    numpy_seconds: float | None = None
    numpy_disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Measuring:
    """Measures both for a task on a number of threads; `begin` is called before each measurement.

    A search shows only the roof while it runs, which is measured quickly. NumPy is timed afterwards.
    """

    program: Program
    target: Target
    threads: int
    begin: Callable[[str], None]

    def first(self) -> Yardsticks:
        """The roof by a short measurement, which is repeated later."""
        self.begin(f"{MEASURING} on {self.target.workers(self.threads)}")
        return Yardsticks(self._roof(GLANCE))

    def beside_numpy(self, known: Yardsticks) -> Yardsticks:
        """The known values, and NumPy's time if it has functions for the task, and runs on the same machine: not for GPUs."""
        if self.target.device or not has_numpy(self.program):
            return known
        self.begin("timing NumPy")
        timed = numpy_seconds(self.program, self.threads)
        if timed is None:
            return known
        busy = _slower(self._roof(GLANCE), known.roof) > BUSY
        return replace(known, numpy_seconds=timed.seconds, numpy_disturbed=busy or timed.disturbed)

    def again(self, known: Yardsticks) -> Yardsticks:
        """The higher of two roofs, since other load can only lower a measured one."""
        self.begin("measuring the machine again")
        return replace(known, roof=known.roof.better(self._roof(PATIENCE)))

    def _roof(self, patience: float) -> Roof:
        return roof_of(self.program, self.target, self.threads, patience)


def _slower(now: Roof, best: Roof) -> float:
    """How many times slower the machine is than it was at its best, at computing or at moving data."""
    computing = best.peak / now.peak if best.peak and now.peak else 1.0
    return max(computing, now.moving / best.moving if best.moving else 1.0)
