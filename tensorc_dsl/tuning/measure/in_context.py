"""Times kernels in context: in the sequence of calls of a model, on what the calls before left, with weights out of caches.

A kernel that is called again and again on the same arrays finds them in the caches of its core. In a model it does not: a
depthwise convolution of MobileNet-V2 took 24 µs alone, and 36 µs between its neighbours. So what is chosen in the end is
chosen in whole runs. Each run takes one of the choices of each task, and a round has each choice of each task, so that a
round costs as many runs as the task with the most choices has, however many tasks there are. As all rounds make the same
calls, one that takes longer than others was disturbed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from statistics import median

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.measure.outcome import seconds_of

Call = Callable[[], object]

Clock = Callable[[], float]


@frozen
class Lineup:
    """A sequence of calls of these tasks, with one choice for each, by its number. `time` makes all calls, and returns their
    seconds."""

    tasks: Sequence[str]
    choices: Mapping[str, int]
    time: Callable[[], Sequence[float]]


def lineups(counts: Mapping[str, int]) -> list[dict[str, int]]:
    """The choices in each run of a round, for tasks with so many: the first of all, the second of all, and so on. A task with
    fewer has its first in the other runs."""
    runs = max(counts.values(), default=1)
    return [{task: n if n < count else 0 for task, count in counts.items()} for n in range(runs)]


def by_turns(runs: Sequence[Call], seconds: float, clock: Clock = time.perf_counter) -> list[tuple[float, ...]]:
    """The seconds of a call of each, one figure a turn, by turns for so many seconds; each has `FEWEST_TURNS` at least.

    Threads that wait for work after a call would take the cores of the next one, so each turn has a pause before it and
    calls for a moment, of which the first does not count and the median does.
    """
    times: list[list[float]] = [[] for _ in runs]
    until = clock() + seconds
    while len(times[0]) < FEWEST_TURNS or clock() < until:
        for run, held in zip(runs, times, strict=True):
            time.sleep(PAUSE)
            run()
            taken: list[float] = []
            begin = last = clock()
            while last - begin < TURN:
                run()
                now = clock()
                taken.append(now - last)
                last = now
            held.append(median(taken))
    return [tuple(held) for held in times]


FEWEST_TURNS = 9
"""Of a slow model: while other work came and went, medians of three turns were 0.95 and 1.11 of each other for equal runs."""

PAUSE, TURN = 0.1, 0.05
"""Seconds before a turn, and of its calls, at least. Threads of ONNX Runtime look for work for 60 ms where others want their
cores: after a pause of 5 ms MobileNet-V2 took 7.8 ms beside them, and 3.7 alone."""

LEAST_FLUSHED = 1 << 25
"""Bytes that are written to empty caches whose size is not known."""


MOST_COPIES = 64

FULL = 2
"""How many times the bytes of a cache go by until nothing of what it had is left, as caches that are no perfect LRU need."""

MOST_PASSING = 1 << 27
"""The most bytes of all copies, since a trial makes them anew. The last cache of a server is larger, but most of it is other
cores'."""


def copies_of_constants(program: Program, target: Target, passing: int) -> int:
    """How many copies of its constant inputs a kernel's calls take in turn, to find as much of them in caches as behind other
    `passing` bytes: those of the other weights of a model, which are read between two calls. 1 where they stay in the second
    cache, or there are none."""
    bound = bind(program, sizing(program).timed[-1])
    own = sum(p.dtype.bytes * prod(shape_of(p)) for p in bound.inputs if p.constant)
    if not own or passing <= target.l2 * target.cores:
        return 1
    return min(MOST_COPIES, 1 - -min(passing, FULL * target.l3, MOST_PASSING) // own)


def flusher(target: Target) -> Call:
    """What overwrites the caches of a target, last level included."""
    memory = np.zeros(max(target.l3, LEAST_FLUSHED) // 8, np.int64)

    def flush() -> None:
        np.add(memory, 1, out=memory)

    return flush


ROUNDS, FEWEST = 16, 4
"""Undisturbed rounds that are enough, and those without which no choice is trusted."""

LIMIT = 60.0
"""The most seconds that a comparison takes, waits included."""

PART = 0.5
"""Seconds of rounds between two looks at the machine."""

DISTURBED = 1.15
"""A round is disturbed if it takes more than this many times as long as the fastest."""


@frozen
class InContext:
    """What a comparison found: `times` has, by task and choice, the seconds of a call, means over the task's calls in a run.

    They are of undisturbed rounds, if there are enough; else the choice is not `trusted`, and they are of all.
    """

    times: Mapping[str, tuple[tuple[float, ...], ...]]
    rounds: int
    trusted: bool

    def seconds(self, task: str) -> tuple[float, ...]:
        """The time of each choice of a task."""
        return tuple(map(seconds_of, self.times[task]))


@frozen
class _Round:
    """The seconds of a round, and those of each task's calls in each run, with the choice."""

    seconds: float
    taken: tuple[tuple[str, int, float], ...]


def compare_in_context(
    runs: Sequence[Lineup],
    flush: Call,
    slower: Callable[[], float] = lambda: 1.0,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    clock: Clock = time.perf_counter,
) -> InContext:
    """The times of all choices in these runs, each of which begins with `flush`.

    `slower` says how many times slower the machine is than it was, 1 if it is not; what is measured before or after it is
    slower does not count. `turn` is entered for each part.
    """
    rng = np.random.default_rng(0)

    def round_() -> _Round:
        taken: list[tuple[str, int, float]] = []
        total = 0.0
        order: list[int] = rng.permutation(len(runs)).tolist()
        for n in order:
            flush()
            run, times = runs[n], runs[n].time()
            total += sum(times)
            calls = Counter(run.tasks)
            seconds = dict.fromkeys(calls, 0.0)
            for task, s in zip(run.tasks, times, strict=True):
                seconds[task] += s
            taken += ((task, run.choices[task], s / calls[task]) for task, s in seconds.items())
        return _Round(total, tuple(taken))

    all_: list[_Round] = []
    calm: list[_Round] = []
    with turn():
        round_()  # the first call of each kernel also takes memory
    end = clock() + LIMIT
    quiet = slower() == 1.0
    while not all_ or (len(_alike(calm)) < ROUNDS and clock() < end):
        part: list[_Round] = []
        with turn():
            until = clock() + PART
            while not part or clock() < until:
                part.append(round_())
        was, quiet = quiet, slower() == 1.0
        all_ += part
        calm += part if was and quiet else []
    kept = _alike(calm)
    trusted = len(kept) >= FEWEST
    if not trusted:
        kept = all_
    made = {(task, r.choices[task]) for r in runs for task in r.tasks}
    counts = Counter(task for task, _ in made)
    found = {task: [list[float]() for _ in range(count)] for task, count in counts.items()}
    for one in kept:
        for task, choice, seconds in one.taken:
            found[task][choice].append(seconds)
    return InContext({task: tuple(map(tuple, each)) for task, each in found.items()}, len(kept), trusted)


def _alike(rounds: Sequence[_Round]) -> list[_Round]:
    """The rounds that took about as long as the fastest."""
    least = min((r.seconds for r in rounds), default=0.0)
    return [r for r in rounds if r.seconds <= DISTURBED * least]
