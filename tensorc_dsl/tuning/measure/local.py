"""Builds and measures candidates on this machine: several builders at once, then one kernel at a time. Memory and time are
limited, and tasks that this machine cannot check are refused.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from math import floor, prod
from types import TracebackType
from typing import Self

import msgspec

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import IN_RANGE, Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.processes.machine import Turns, Use, available, usable_cores
from tensorc_dsl.processes.protocol import (
    LOADED,
    Worker,
    WorkerCrash,
    WorkerExhausted,
    WorkerTimeout,
    library_threads,
    wait_any,
)
from tensorc_dsl.proof.equivalence.bits import may_return_either_zero
from tensorc_dsl.reference.evaluate import shape_of, unscheduled_nests
from tensorc_dsl.reference.inputs import has_extremes
from tensorc_dsl.reference.values import alive_steps
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.measure.child import BUILDER, RUNNER, Build, Built, Failed, Prepare, Prepared, Ran, Run
from tensorc_dsl.tuning.measure.outcome import Outcome, Status, seconds_of

_FLOAT64_COPIES = 4
"""The reference, its tolerance, and what evaluating them holds at once, per element."""

_STORED_COPIES = 3
"""A parameter as it was made, as the kernel gets it, and as it is compared."""

_USABLE = 0.9
"""The share of what is available that children may fill; the rest is for what else the machine does."""

_LEAST = 512 << 20
"""A child needs about a third of this before it has seen a candidate."""

_MOST_TO_BUILD = 4 << 30
"""Most candidates take a tenth of this, LLVM included."""


ENOUGH_COMPARED = 0.9
"""The share of the results that a check compares at least, or a warning says how many."""


@problem(
    "W0706",
    "a right result says little: {share:.0%} of the elements are compared, and the reference has no numbers for the others",
    help="say what the inputs contain, so that they are drawn so: `assume A positive_definite`, `assume X in 0..1`",
)
def LITTLE_COMPARED(*, share: float) -> None: ...
@problem(
    "E0706",
    "checking `{task}` takes about {needed:.3g} GB; this machine has {there:.3g} GB to spare",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_MUCH_MEMORY(*, task: str, needed: float, there: float) -> None: ...
@problem(
    "E0706",
    "`{task}` cannot be checked: {why}",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_LARGE(*, task: str, why: str) -> None: ...
@problem(
    "E0707",
    "the reference of `{task}` takes more than {seconds:g} s",
    help="tune a smaller size of the same compute; `verify` and `compile --replay` take a schedule of this one without "
    "running it",
)
def TOO_SLOW(*, task: str, seconds: float) -> None: ...
@problem(
    "E0716",
    "there is no kernel of `{task}` with whose bits trials could be compared: {why}",
    help="search without `--same-bits`, or name a schedule that has a kernel with `--bits-of`",
)
def NO_BITS(*, task: str, why: str) -> None: ...


@frozen
class Memory:
    """The bytes that each builder and the runner may fill."""

    builder: int
    runner: int


def memory_of(there: int, builders: int) -> Memory:
    """The memory limits of children that share the available bytes.

    Builders compile at the same time. The runner works when they have nothing to do, and may have all: a schedule may keep
    copies.
    """
    return Memory(max(_LEAST, min(_MOST_TO_BUILD, there // max(builders, 1))), max(_LEAST, there))


def memory_needed(program: Program) -> int:
    """An estimate of the bytes that checking one kernel takes, at all the sizes at which it is checked."""
    found = sizing(program)
    every = [*found.checked, *(x for x in found.timed if x not in found.checked)]
    every += every[:1] if has_extremes(program) else []
    total = 0
    for bound in (resolved(bind(program, x)) for x in every):
        alive = alive_steps(bound, unscheduled_nests(bound))
        for b in (*bound.params, *bound.buffers):
            whole = shape_of(b)
            kept = alive[b.name].shape(whole) if b.name in alive else whole
            total += prod(whole) * _STORED_COPIES * b.dtype.bytes + prod(kept) * _FLOAT64_COPIES * 8
    return total


def require_memory(program: Program) -> int:
    """The bytes that children may fill. Raises TschedError (E0706) when checking a kernel of `program` takes more."""
    needed, there = memory_needed(program), int(_USABLE * available())
    if needed > there:
        raise TschedError(TOO_MUCH_MEMORY(None, task=program.name, needed=needed / 1e9, there=there / 1e9))
    return there


def little_compared(share: float) -> Diagnostic | None:
    """A warning where a check compares less than nine tenths of the results."""
    return LITTLE_COMPARED(None, share=floor(share * 100) / 100) if share < ENOUGH_COMPARED else None


def too_large(program: Program, why: str) -> TschedError:
    """The reference does not fit into what the runner may have (E0706)."""
    return TschedError(TOO_LARGE(None, task=program.name, why=why))


def too_slow(program: Program, seconds: float) -> TschedError:
    """The reference was not done in time (E0707)."""
    return TschedError(TOO_SLOW(None, task=program.name, seconds=seconds))


BUILD_SECONDS = 20.0
"""How long a candidate may take to compile; most take a tenth of a second."""

RUN_SECONDS = 20.0
"""How long checking and timing a candidate may take."""

PREPARE_SECONDS = 300.0
"""How long the inputs and the float64 reference may take to make."""

BUILDERS = 2
"""How many candidates are built at once."""

QUEUED_SECONDS = 0.3
"""For how long candidates wait for a builder before another one starts, which takes about as long."""

UNINTERRUPTED_SECONDS = 5.0
"""For how long a batch is built before what is built of it is checked and timed. Most batches are done by then; where builds
are slow, each of them is reported and recorded soon after its end."""

KEPT = 32
"""How many programs' machine code is kept for another look."""

ROUNDS = 3
"""How often each finalist runs in a comparison."""


@frozen
class _Build:
    """The result of a build, and its duration."""

    reply: Built | Outcome
    seconds: float
    extremes: bool = True
    """Whether it has to be right for factors of scans whose products leave their type: the schedule says nothing else."""


class Timer:
    """Checks and times kernels of one task, one after another, in a child process that starts when it is needed.

    The `task` is sent to each new child, after `complete` has added what it needs at the first. `on_preparing` is called when
    the inputs and the reference begin to be computed (true), and when they are there (false).
    """

    def __init__(
        self,
        program: Program,
        task: Prepare,
        threads: int,
        memory: int,
        *,
        turns: Turns,
        run_seconds: float = RUN_SECONDS,
        complete: Callable[[Prepare], Prepare] = lambda task: task,
        on_preparing: Callable[[bool], None] | None = None,
    ) -> None:
        self._program = program
        self.task = task
        self._threads = threads
        self._turns = turns
        self._run_seconds = run_seconds
        self._complete: Callable[[Prepare], Prepare] | None = complete
        self._on_preparing = on_preparing
        self.worker = Worker(RUNNER, library_threads(task.threads), memory, LOADED)
        self.compared = 1.0
        """The share of the results that checks compare with numbers, once the reference is there."""

    def run(self, code: Code, best: float | None, build_seconds: float = 0.0, extremes: bool = True) -> Outcome:
        """Check and time one kernel; the clock of its time limit starts with it. Raises WorkerBug, and TschedError (E0706,
        E0707, E0716) where the task cannot be prepared."""
        self._prepare()
        started = time.monotonic()
        status, message, max_error = Status.OK, "", None
        times: tuple[float, ...] = ()
        censored = False
        at: tuple[float, ...] = ()
        try:
            with self._turns.use(Use.TIMING):
                started = time.monotonic()
                reply = self.worker.ask(Run(code, self._threads, best, extremes), self._run_seconds)
            match reply:
                case Ran():
                    times, max_error, censored, at = reply.times, reply.max_error, reply.censored, reply.at
                case Failed():
                    status, message, max_error = Status(reply.status), reply.message, reply.max_error
                case Prepared():
                    raise TypeError("a runner answers a kernel as a task")
        except WorkerTimeout:
            status, message = Status.TIMEOUT, f"running takes more than {self._run_seconds:g} s"
        except WorkerCrash as e:
            status, message = Status.CRASH, str(e)
        return Outcome(
            status,
            seconds_of(times) if status is Status.OK else None,
            times,
            message,
            None if max_error is None or math.isnan(max_error) else max_error,
            build_seconds,
            time.monotonic() - started,
            censored,
            compared=self.compared,
            at=at,
        )

    def _prepare(self) -> None:
        """Send the task to the current runner, unless it has it."""
        self.worker.ready()
        if self.worker.prepared:
            return
        self._tell(True)
        if self._complete is not None:
            self.task, self._complete = self._complete(self.task), None
        try:
            reply = self.worker.prepare(self.task, PREPARE_SECONDS)
        except WorkerTimeout:
            raise too_slow(self._program, PREPARE_SECONDS) from None
        except WorkerExhausted as e:
            raise too_large(self._program, str(e)) from None
        if not isinstance(reply, Prepared):
            raise TypeError(f"a runner answers a task with {type(reply).__name__}")
        self.compared = reply.compared
        self._tell(False)

    def _tell(self, begins: bool) -> None:
        if self._on_preparing is not None:
            self._on_preparing(begins)


class BatchRunner(ABC):
    """Measures candidates for one task, built in processes of this machine, as files of a `form` if there is one.

    The processes start with the first measurement and end with `close`. Where kernels are checked and timed is up to `run`.
    TschedError when this machine is too small to check them.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        *,
        threads: int,
        builders: int,
        build_seconds: float,
        turns: Turns,
        bits_of: Program | None,
        form: str = "",
    ) -> None:
        self._memory = memory_of(require_memory(program), builders)
        self._bits_of = bits_of
        self._turns = turns
        self._known: OrderedDict[str, _Build] = OrderedDict()
        self._program = program
        self._target = target
        self._threads = threads
        self._build_seconds = build_seconds
        self._form = form
        # One thread for libraries in the builders; the runner has what the kernels may use.
        self._builders = [Worker(BUILDER, library_threads(1), self._memory.builder, LOADED) for _ in range(builders)]

    @abstractmethod
    def run(self, built: Built, best: float | None, build_seconds: float = 0.0, extremes: bool = True) -> Outcome:
        """Check and time one kernel."""

    @abstractmethod
    def _warm_up(self) -> None:
        """Begin what takes a while and is needed after the first build."""

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome]:
        """An outcome per program, in order: all are built first, then each is checked and timed alone.

        Where that takes long, those that are built are timed before others are begun. `best` is the time to beat; a far
        slower candidate is timed briefly. Raises WorkerBug for our mistakes.
        """
        waiting = list(programs)
        while waiting:
            builds = self._build(waiting, UNINTERRUPTED_SECONDS)
            del waiting[: len(builds)]
            for build in builds:
                outcome = self._finish(build, best)
                if outcome.seconds is not None:
                    best = min(outcome.seconds, best or outcome.seconds)
                yield outcome

    def again(self, program: Program, best: float | None = None) -> Outcome:
        """The outcome of a program that was measured lately, checked and timed once more; briefly if it is far slower than
        `best`."""
        (build,) = self._build([program])
        return self._finish(build, best)

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured in turns, several times round; one that fails in any round has failed."""
        builds = self._build(programs)
        rounds = [[self._finish(b, None) for b in builds] for _ in range(ROUNDS)]
        return [merged([r[i] for r in rounds]) for i in range(len(builds))]

    def _build(self, programs: Sequence[Program], seconds: float = math.inf) -> list[_Build]:
        """The programs compiled, several at once, each within its own time limit; those that were lately are not again.

        After so many `seconds` no other build begins: those of the first few programs are returned, of one at least.
        """
        self._builders[0].start()
        self._warm_up()
        new = {format_program(p): p for p in programs}
        texts = [*new]
        for known in self._known.keys() & new.keys():
            del new[known]
        if new:
            with self._turns.use(Use.BUILDING):
                self._known |= zip(new, self._all_built([*new.values()], seconds), strict=False)
        texts = [*takewhile(self._known.__contains__, texts)]
        for text in texts:
            self._known.move_to_end(text)
        found = [self._known[text] for text in takewhile(self._known.__contains__, map(format_program, programs))]
        while len(self._known) > max(KEPT, len(texts)):
            self._known.popitem(last=False)
        return found

    def _all_built(self, programs: Sequence[Program], seconds: float) -> list[_Build]:
        try:
            return self._build_all(programs, seconds)
        except BaseException:
            # Interrupted: what the builders still say would answer the next request.
            for w in self._builders:
                w.kill()
            raise

    def _request(self, program: Program) -> Build | Outcome:
        """The request to a builder; an outcome if the lowering refuses the program."""
        try:
            packed = lowered_once(program, self._target).packed
        except LowerError as e:
            return Outcome(Status.REFUSED, message=str(e))
        return Build(program.name, packed.data, packed.parts, self._target, self._threads, self._form)

    def _build_all(self, programs: Sequence[Program], seconds: float) -> list[_Build]:
        """The builds of the first programs: of all, or of those that were begun within `seconds`."""
        begun, done = 0, dict[int, _Build]()
        busy: dict[Worker[Build, Built | Failed], tuple[int, float]] = {}
        until, queued = time.monotonic() + seconds, math.inf
        speaking: list[Worker[Build, Built | Failed]] = []
        while busy or (begun < len(programs) and (not begun or time.monotonic() < until)):
            for w in self._builders:
                if begun < len(programs) and w not in busy and (not begun or time.monotonic() < until):
                    if busy and not w.greeted and w not in speaking:
                        if time.monotonic() >= queued:
                            w.start()
                        continue
                    number, begun = begun, begun + 1
                    request = self._request(programs[number])
                    if isinstance(request, Outcome):
                        done[number] = _Build(request, 0.0)
                        continue
                    w.ready()
                    started = time.monotonic()
                    queued = min(queued, started + QUEUED_SECONDS)
                    try:
                        w.send(request, self._build_seconds)
                        busy[w] = (number, started)
                    except (WorkerCrash, WorkerTimeout) as e:
                        done[number] = _Build(lost_build(e), time.monotonic() - started)
            if not busy:
                continue
            now = time.monotonic()
            first_deadline = min(started for _, started in busy.values()) + self._build_seconds
            # Another builder is waited for as well: until it may start, and then until it has.
            others = [w for w in self._builders if w not in busy and not w.greeted] if begun < len(programs) else []
            if others and now < queued:
                first_deadline = min(first_deadline, queued)
            speaking = wait_any([*busy, *(w for w in others if w.pid)], first_deadline - now)
            for w, (number, started) in list(busy.items()):
                taken = time.monotonic() - started
                ended = self._hear(w) if w in speaking else None
                if ended is None and taken >= self._build_seconds:
                    w.kill()
                    ended = Outcome(Status.TIMEOUT, message=f"compiling takes more than {self._build_seconds:g} s")
                if ended is not None:
                    done[number] = _Build(ended, taken)
                    del busy[w]
        return [replace(done[n], extremes=(IN_RANGE, True) not in programs[n].annotations) for n in range(begun)]

    @staticmethod
    def _hear(builder: Worker[Build, Built | Failed]) -> Built | Outcome | None:
        try:
            reply = builder.poll()
        except (WorkerCrash, WorkerTimeout) as e:
            return lost_build(e)
        return Outcome(Status(reply.status), message=reply.message) if isinstance(reply, Failed) else reply

    def _finish(self, build: _Build, best: float | None) -> Outcome:
        if isinstance(build.reply, Outcome):
            o = build.reply
            return Outcome(o.status, message=o.message, build_seconds=build.seconds)
        return self.run(build.reply, best, build.seconds, build.extremes)

    def _with_bits(self, program: Program) -> Built:
        """The kernel that has the bits that all are to give. Raises TschedError (E0716) if there is none."""
        (build,) = self._build_all([program], 0.0)
        if isinstance(build.reply, Outcome):
            raise TschedError(NO_BITS(None, task=self._program.name, why=build.reply.message))
        return build.reply

    def close(self) -> None:
        """End all processes of this runner."""
        for w in self._builders:
            w.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class LocalRunner(BatchRunner):
    """Checks and times candidates on this machine.

    `program` is the unscheduled program; kernels are checked against it on inputs made from `seed`. `on_preparing` is called
    when the inputs and the reference begin to be computed (true), and when they are there (false). Kernels are timed in
    `turns` with other processes, and with so many `copies` of the constant inputs, which calls take in turn. They give the
    bits of the program `bits_of`, if there is one.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        *,
        threads: int,
        seed: int = 0,
        builders: int = BUILDERS,
        build_seconds: float = BUILD_SECONDS,
        run_seconds: float = RUN_SECONDS,
        on_preparing: Callable[[bool], None] | None = None,
        turns: Turns | None = None,
        copies: int = 1,
        bits_of: Program | None = None,
    ) -> None:
        super().__init__(
            program,
            target,
            threads=threads,
            builders=builders,
            build_seconds=build_seconds,
            turns=turns or Turns(),
            bits_of=bits_of,
        )
        self._timer = Timer(
            program,
            Prepare(format_program(program), target.kind, seed, min(threads, usable_cores()), copies),
            threads,
            self._memory.runner,
            turns=self._turns,
            run_seconds=run_seconds,
            complete=self._task_with_bits,
            on_preparing=on_preparing,
        )

    @property
    def compared(self) -> float:
        """The share of the results that checks compare with numbers, once the reference is there."""
        return self._timer.compared

    def run(self, built: Built, best: float | None, build_seconds: float = 0.0, extremes: bool = True) -> Outcome:
        return self._timer.run(built.code, best, build_seconds, extremes)

    def _warm_up(self) -> None:
        self._timer.worker.start()

    def _task_with_bits(self, task: Prepare) -> Prepare:
        if self._bits_of is None:
            return task
        code, zeros = self._with_bits(self._bits_of).code, may_return_either_zero(self._bits_of)
        return msgspec.structs.replace(task, bits_of=code, zeros=zeros)

    def close(self) -> None:
        super().close()
        self._timer.worker.kill()


def lost_build(e: WorkerCrash | WorkerTimeout) -> Outcome:
    """The outcome of a candidate whose builder died."""
    match e:
        case WorkerExhausted():
            return Outcome(Status.COMPILE_ERROR, message=f"compiling fails: {e}")
        case WorkerCrash():
            return Outcome(Status.COMPILE_ERROR, message=f"the compiler crashed: {e}")
        case WorkerTimeout():
            return Outcome(Status.TIMEOUT, message="compiling takes too long")


def merged(rounds: list[Outcome]) -> Outcome:
    """One outcome for several of the same kernel: the first failure, or all the times together."""
    for o in rounds:
        if o.status is not Status.OK:
            return o
    times = tuple(t for o in rounds for t in o.times)
    return Outcome(
        Status.OK,
        seconds_of(times),
        times,
        "",
        max(o.max_error or 0.0 for o in rounds),
        rounds[0].build_seconds,
        sum(o.run_seconds for o in rounds),
        compared=rounds[0].compared,
        at=tuple(map(min, *(o.at for o in rounds))) if len(rounds) > 1 else rounds[0].at,
    )
