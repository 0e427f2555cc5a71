"""Times NumPy on the same task and number of threads: the baseline beside a tuned kernel.

Run as a module, it is the child process that is timed, since NumPy's libraries read their number of threads when they load. A
function that computes another result than the program has no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
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
from tensorc_dsl.processes.child import serve
from tensorc_dsl.processes.memory import available
from tensorc_dsl.processes.messages import Bug, Exhausted, Ready
from tensorc_dsl.processes.worker import Worker, WorkerBug, WorkerCrash, WorkerTimeout, library_threads
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.machine.numpy_text import numpy_texts
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
    replies = msgspec.msgpack.Decoder(Ready | Exhausted | Bug | Fastest | Unlike)
    worker = Worker("tensorc_dsl.tuning.machine.baseline", replies, library_threads(threads), available())
    with closing(worker):
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


def _time(what: Question) -> Fastest | Unlike:
    calls, _ = right_calls(parse_program(Source("task", what.program)))
    return fastest(calls, what.seconds) if calls else Unlike()


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


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        serve(msgspec.msgpack.Decoder(Question), _time)
