"""The outcome of one candidate, with its times: how often a kernel is run, how its times are summarised, and the interface of
what makes outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target


class Status(StrEnum):
    """Only `OK` has a time. `REFUSED`: the lowering refuses the program, or an
    assembler has too few registers for it, and nothing was run. `TOO_FAST`: the result was
    right, and the time is shorter than the machine allows."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    WRONG_RESULT = "wrong_result"
    REFUSED = "refused"
    TOO_FAST = "too_fast"


class Quantity(StrEnum):
    """What a search makes small: the seconds of a call, or the cycles of a model, where kernels are emulated.

    Strategies see only how the figures of candidates compare, so cycles stand where an outcome, an event and a result have
    seconds. Whoever shows or writes such a figure does so by its quantity, and no record of times has one in cycles.
    """

    SECONDS = "seconds"
    CYCLES = "cycles"

    def shown(self, value: float) -> str:
        """For people: `1.31 ms`, or `4,012 cycles of the model`."""
        return units.seconds(value) if self is Quantity.SECONDS else f"{value:,.0f} cycles of the model"


@frozen
class Outcome:
    """A candidate's end. `seconds` summarizes `times` (seconds per call) and is None unless the result was right.

    `max_error` is the largest error met as a share of the tolerance (at most 1 when the result was right), None when no
    result came back.
    `censored`: timing was cut short, since the kernel is far slower than the best. `scale` is how many times slower the
    machine was than before, by which the summary is divided, and the times are not.
    `compared` is the share of the results of which the reference is a number or an infinity within a bound.
    `build_seconds` and `run_seconds` are what lowering with compiling and what checking with timing took.
    `at` are the seconds at each timed size of open dimensions, where there are several, as they were taken.
    `machine` is the name of the worker's machine, empty for this one.
    """

    status: Status
    seconds: float | None = None
    times: tuple[float, ...] = ()
    message: str = ""
    max_error: float | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    censored: bool = False
    scale: float = 1.0
    compared: float = 1.0
    at: tuple[float, ...] = ()
    machine: str = ""

    def __post_init__(self) -> None:
        if (self.seconds is not None) != (self.status is Status.OK):
            raise ValueError(f"an outcome has a time if and only if it is ok, not {self.status} with {self.seconds}")


def cache_of(target: Target) -> str:
    """The state of the caches before a timed call: "warm" if the call before was the same, on the same arrays; "flushed" if
    they were overwritten in between, as they are on GPUs."""
    return "flushed" if target.device else "warm"


ENOUGH_SECONDS = 0.08
"""A kernel is timed for about this long in all, unless its times agree sooner."""

LONGER = 3
"""One that may be the best is timed for up to this many times as long, until its times agree."""

CONTENDS = 1.1
"""A kernel may be the best as long as the lower end of its interval is below this many times the best time so far."""

LEAST, MOST = 5, 200
"""Fewest and most times to take of a kernel that is worth timing."""

CHUNK_SECONDS = 0.01
"""Calls are timed in chunks of about this length; between chunks it is decided whether to go on."""

GIVE_UP = 1.5
"""A candidate whose best time is beyond this many times the incumbent's is not timed further."""

INTERRUPTED = 0.1
"""A call that takes longer than so many seconds was not only interrupted by another process."""

AGREE = 0.01
"""Times agree when the 95 % interval of their lower quartile is no wider than this share of it."""

QUANTILE = 0.25


@frozen
class Taken:
    """Seconds of single calls, in order; `censored` where there are few, since the kernel is far slower than the best."""

    times: tuple[float, ...]
    censored: bool = False


def seconds_of(times: tuple[float, ...]) -> float:
    """The summary of the times of one kernel: their lower quartile.

    Other processes only ever add time, so the low end repeats better than the middle; the minimum would reward luck.
    """
    import numpy as np  # only a measurement needs it, not a command that reads its files first

    return float(np.quantile(times, QUANTILE))


def spread_of(times: Sequence[float]) -> float:
    """How much the times of one kernel vary: their interquartile range as a share of the lower quartile; 0 without times."""
    import numpy as np

    if not times:
        return 0.0
    low, high = np.quantile(times, (QUANTILE, 1.0 - QUANTILE))
    return float(high / low - 1.0)


def interval(times: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the lower quartile, for any distribution of the times.

    The ranks of the binomial distribution: Conover, Practical Nonparametric Statistics (1999), 3.2. Where there are too few
    times for an end, it is 0 or infinite.
    """
    count = len(times)
    middle, half = count * QUANTILE, 1.96 * math.sqrt(count * QUANTILE * (1 - QUANTILE))
    low, high = math.floor(middle - half), math.ceil(middle + half)
    ordered = sorted(times)
    return ordered[low] if low >= 0 else 0.0, ordered[high] if high < count else math.inf


def weighted_times(of_sizes: Sequence[tuple[float, ...]], weights: Sequence[float]) -> tuple[float, ...]:
    """The times of one kernel at several sizes as times of their mean: its quantiles are the means of theirs.

    There are as many as at the size with the fewest, and one for each quarter at least: a slow size that is timed twice says
    nothing of how the times of the others are summarised.
    """
    if len(of_sizes) == 1:
        return of_sizes[0]
    # With a multiple of four steps one of the times is the lower quartile.
    count = 4 * max(1, round((min(map(len, of_sizes)) - 1) / 4)) + 1
    import numpy as np

    steps = np.linspace(0.0, 1.0, count)
    means = np.zeros(count)
    for weight, times in zip(weights, of_sizes, strict=True):
        means += weight * np.quantile(times, steps)
    return tuple(map(float, means))


def take_times(time_calls: Callable[[int], list[float]], best: float | None, enough: float = ENOUGH_SECONDS) -> Taken:
    """Times of single calls, in order, after one call to warm up.

    `time_calls(n)` runs the kernel n times and returns the seconds of each call. A kernel that is far slower than
    `best` is timed a few times; one call decides that only where it is too long for an interruption. Others are timed until
    the times agree, or for `enough` seconds; a kernel that may be the best, for a multiple of that.
    """
    (warm_up,) = time_calls(1)
    if best is not None and warm_up > (far := 10 * GIVE_UP * best):
        if warm_up <= INTERRUPTED:
            warm_up = min(time_calls(max(1, min(LEAST, int(CHUNK_SECONDS / warm_up)))))
        if warm_up > far:
            return Taken((warm_up,), censored=True)
    times: list[float] = []
    while True:
        typical = min([warm_up, *times])
        times += time_calls(max(1, min(MOST - len(times), int(CHUNK_SECONDS / max(typical, 1e-9)))))
        if best is not None and min(warm_up, *times) > GIVE_UP * best:
            return Taken(tuple(times), censored=True)
        if len(times) >= MOST or sum(times) > 5 * enough:
            break
        low, high = interval(times)
        if len(times) >= LEAST and high - low <= AGREE * seconds_of(tuple(times)):
            break
        contends = best is None or low < CONTENDS * best
        if len(times) >= LEAST and sum(times) >= enough * (LONGER if contends else 1):
            break
    return Taken(tuple(times))


# The interface of what makes outcomes.


@frozen
class Late:
    """Stands for the outcome of a program that is not waited for; `Concurrent.late` has it once it is known."""

    program: Program


class RunnerLike(Protocol):
    """Builds, checks and times programs; `tuning.measure.local.LocalRunner` is one."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome | Late]:
        """An outcome per program, in order, each as soon as it is known. One far slower than `best` is timed briefly."""
        ...

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured again, in turns, so that a drift of the machine hits all of them alike."""
        ...


Change = Literal["joined", "left", "retired", "drifted", "scheduler lost", "scheduler found"]


@frozen
class MachineChange:
    """Something that a search tells of a machine of its workers, and why."""

    machine: str
    change: Change
    why: str = ""


@runtime_checkable
class Concurrent(RunnerLike, Protocol):
    """A runner that times several programs at once; `tuning.cluster.runner.ClusterRunner` is one."""

    @property
    def lanes(self) -> int:
        """How many it times at once now, at least 1."""
        ...

    @property
    def open(self) -> int:
        """How many programs it was given that have no outcome yet."""
        ...

    def pump(self) -> None:
        """Wait for a moment, in which it and others that share its machines take what has ended, and give out more."""
        ...

    def late(self, wait: bool = False) -> list[tuple[Program, Outcome]]:
        """The outcomes of late programs that are known now; with `wait`, those of all."""
        ...
