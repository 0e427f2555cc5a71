"""What a worker does: it builds and times the kernels that a search sends it, one timing at a time, in child processes, and
says how it fares.

An order has an id, under which its answer is kept: a search that asks again, since a connection broke, gets the same answer,
and nothing is measured twice. A kernel that crashes ends a child, and no worker. The clock of a time limit starts with the
kernel, not while it waits for its turn.
"""

from __future__ import annotations

import asyncio
import queue
import time
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from socket import gethostname

import msgspec

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import Turns, Use, available, usable_cores
from tensorc_dsl.processes.protocol import LOADED, Worker, WorkerBug, WorkerCrash, WorkerTimeout, library_threads
from tensorc_dsl.tuning.cluster.access import is_tagged, tag_of
from tensorc_dsl.tuning.machine.roof import Roof, roof_of
from tensorc_dsl.tuning.measure.child import BUILDER, Build, Built, Failed, Prepare
from tensorc_dsl.tuning.measure.local import (
    BUILD_SECONDS,
    PREPARE_SECONDS,
    RUN_SECONDS,
    Timer,
    lost_build,
    memory_of,
    merged,
    require_memory,
)
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.trial import package_key

# What a search and a worker say to each other. Each message is signed by the token.


class Order(msgspec.Struct, frozen=True, tag=True):
    """A request, by an id that no other one has."""

    id: str


class BuildOrder(Order, frozen=True, tag=True):
    """Compile a kernel."""

    build: Build


class Job(msgspec.Struct, frozen=True):
    """A kernel to check and time, at extremes unless its schedule says that inputs have none."""

    code: Code
    extremes: bool = True


class TimeOrder(Order, frozen=True, tag=True):
    """Check and time kernels of a task by turns, so many `rounds`; one far slower than `best` is timed briefly.

    Before and after that the `reference` is timed, if there is one, which takes `unit` seconds on another machine.
    """

    task: Prepare
    threads: int
    jobs: tuple[Job, ...]
    best: float | None = None
    rounds: int = 1
    reference: Code | None = None
    unit: float = 0.0


class RoofOrder(Order, frozen=True, tag=True):
    """Measure the roof of an unscheduled program, and be patient for so many seconds."""

    program: str
    threads: int
    patience: float


class Made(msgspec.Struct, frozen=True, tag=True):
    """A kernel, or the outcome of a candidate that is none; it took `seconds`."""

    code: Code | None
    outcome: Outcome | None
    seconds: float


class Timed(msgspec.Struct, frozen=True, tag=True):
    """The outcome of each kernel, and the seconds of the reference before and after."""

    outcomes: tuple[Outcome, ...]
    before: float | None = None
    after: float | None = None


class Roofed(msgspec.Struct, frozen=True, tag=True):
    """The roof."""

    roof: Roof


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot do it: `why` has the reason, or the traceback of a `bug`."""

    why: str
    bug: bool = False


Orders = BuildOrder | TimeOrder | RoofOrder
Answer = Made | Timed | Roofed | Trouble

_orders: msgspec.msgpack.Decoder[Orders] = msgspec.msgpack.Decoder(Orders)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class Facts(msgspec.Struct, frozen=True):
    """What a worker announces: the machine that it is on, by its name, the target that it times kernels for, if it times any,
    how many kernels it builds at once, and the version and the digest of its package. The `proof` says that it has the token.
    """

    id: str
    machine: str
    target: Target
    times: bool
    builders: int
    version: str
    code: str
    proof: bytes

    def is_proved(self, token: bytes) -> bool:
        """Whether the worker has this token."""
        return is_tagged(token, self.proof, (b"worker", self.id.encode()))


class Standing(msgspec.Struct, frozen=True):
    """What a worker does now: the order that it times, for how many seconds, and how many it may take; what it has done; the
    least and the last seconds of the reference; and its last error."""

    doing: str = ""
    seconds: float = 0.0
    limit: float = 0.0
    timed: int = 0
    built: int = 0
    least: float | None = None
    last: float | None = None
    error: str = ""

    @property
    def drift(self) -> float | None:
        """How many times longer the reference took at the last look than at its fastest; None before there is one."""
        return None if self.least is None or self.last is None else self.last / self.least

    @property
    def hangs(self) -> bool:
        """Whether what it does takes longer than it may."""
        return bool(self.doing) and self.seconds > self.limit


def sealed(token: bytes, message: Order | Answer) -> bytes:
    """The message as bytes, behind the proof of the token."""
    body = msgspec.msgpack.encode(message)
    return tag_of(token, body) + body


TAG = 32
"""The bytes of the proof."""


def _opened(token: bytes, data: bytes) -> bytes:
    if not is_tagged(token, data[:TAG], (data[TAG:],)):
        raise PermissionError("it was sent by someone without the token of this search or worker")
    return data[TAG:]


def order_of(token: bytes, data: bytes) -> Orders:
    """The order in sealed bytes. Raises PermissionError for another token, msgspec.DecodeError for nonsense."""
    return _orders.decode(_opened(token, data))


def answer_of(token: bytes, data: bytes) -> Answer:
    """The answer in sealed bytes. Raises as `order_of`."""
    return _answers.decode(_opened(token, data))


# What a worker does.


KEPT_ANSWERS = 256
"""Answers that are kept for a search whose connection broke."""

KEPT_TASKS = 2
"""Tasks whose processes are kept; those of others start again."""

SHARE = 8.0
"""A look at the reference holds for so many times its own length."""

BRIEF = 0.5
"""A look is given this share of the reference's time as the time to beat, so that it is short."""

LOOSE = 1.05
"""A look that differs by more is repeated in full; the faster of the two counts, since other work only adds time."""


@frozen
class _Look:
    of: tuple[bytes, bytes]
    seconds: float
    until: float


class Station:
    """Builds and times kernels for a target, in child processes that start when they are needed and end with `close`.

    `builders` kernels are built at once, and one is timed if it `times`. They take `turns` with other processes.
    """

    def __init__(
        self,
        target: Target,
        token: bytes,
        *,
        machine: str = "",
        builders: int = 1,
        times: bool = True,
        turns: Turns | None = None,
    ) -> None:
        self._token = token
        self._turns = turns or Turns()
        number = uuid.uuid4().hex
        self.facts = Facts(
            number,
            machine or gethostname(),
            target,
            times,
            builders,
            version("tensorc-dsl"),
            package_key(),
            tag_of(token, b"worker", number.encode()),
        )
        self._idle: queue.SimpleQueue[Worker[Build, Built | Failed]] = queue.SimpleQueue()
        most = memory_of(available(), builders).builder
        self._builders = [Worker(BUILDER, library_threads(1), most, LOADED) for _ in range(builders)]
        for worker in self._builders:
            self._idle.put(worker)
        self._timers: OrderedDict[bytes, Timer] = OrderedDict()
        # A child dies with the thread that started it: these live as long as the worker.
        self._building = ThreadPoolExecutor(max(1, builders), "building")
        self._timing = ThreadPoolExecutor(1, "timing")
        self._asked: OrderedDict[str, Future[Answer]] = OrderedDict()
        self._look: _Look | None = None
        self._doing, self._since, self._limit = "", 0.0, 0.0
        self._timed = self._built = 0
        self._least: float | None = None
        self._last: float | None = None
        self._error = ""

    def standing(self) -> Standing:
        """What it does now."""
        doing, since = self._doing, self._since
        seconds = time.monotonic() - since if doing else 0.0
        return Standing(
            doing, seconds, self._limit, self._timed, self._built, self._least, self._last, self._error
        )  # fmt: skip

    async def perform(self, data: bytes) -> bytes:
        """The sealed answer to a sealed order. Raises PermissionError for an order of another token."""
        try:
            order = order_of(self._token, data)
        except PermissionError:
            self._error = "it was sent work by someone without its token, and took none"
            raise
        return sealed(self._token, await asyncio.wrap_future(self.begin(order)))

    def begin(self, order: Orders) -> Future[Answer]:
        """The answer to the order, which is carried out by a thread; one that was asked before is not again."""
        if (known := self._asked.get(order.id)) is not None and not known.cancelled():
            self._asked.move_to_end(order.id)
            return known
        threads = self._building if isinstance(order, BuildOrder) else self._timing
        found = self._asked[order.id] = threads.submit(self._done, order)
        for old in [key for key, one in self._asked.items() if one.done()][: len(self._asked) - KEPT_ANSWERS]:
            del self._asked[old]
        return found

    def _done(self, order: Orders) -> Answer:
        try:
            return self.do(order)
        except TschedError as e:
            found = Trouble("; ".join(f"{d.code}: {d.message}" for d in e.diagnostics))
        except (OSError, MemoryError) as e:
            found = Trouble(f"{type(e).__name__}: {e}")
        except WorkerBug as e:
            found = Trouble(str(e), bug=True)
        except Exception:
            found = Trouble(traceback.format_exc(), bug=True)
        self._error = found.why.strip().splitlines()[-1] if found.why.strip() else "an error without words"
        return found

    def do(self, order: Orders) -> Answer:
        """Carry out an order in this thread, and wait for its end."""
        match order:
            case BuildOrder():
                return self._make(order.build)
            case TimeOrder():
                return self._time(order)
            case RoofOrder():
                program = parse_program(Source("task", order.program))
                with self._busy(order.id, PREPARE_SECONDS), self._turns.use(Use.TIMING):
                    return Roofed(roof_of(program, self.facts.target, order.threads, order.patience))

    def _make(self, request: Build) -> Made:
        worker = self._idle.get()
        started = time.monotonic()
        try:
            with self._turns.use(Use.BUILDING):
                worker.ready()
                started = time.monotonic()
                reply = worker.ask(request, BUILD_SECONDS)
        except (WorkerCrash, WorkerTimeout) as e:
            reply = lost_build(e)
        finally:
            self._idle.put(worker)
        self._built += 1
        taken = time.monotonic() - started
        match reply:
            case Built():
                return Made(reply.code, None, taken)
            case Failed():
                return Made(None, Outcome(Status(reply.status), message=reply.message), taken)
            case Outcome():
                return Made(None, reply, taken)

    def _time(self, order: TimeOrder) -> Timed:
        key = msgspec.msgpack.encode((order.task, order.threads))
        timer = self._timer(key, order)
        limit = PREPARE_SECONDS + RUN_SECONDS * (len(order.jobs) * order.rounds + 4)
        with self._busy(order.id, limit):
            look = (key, msgspec.msgpack.encode(order.reference)), timer, order
            before = self._looked(*look)
            rounds = [
                [timer.run(job.code, order.best, 0.0, job.extremes) for job in order.jobs] for _ in range(order.rounds)
            ]
            after = self._looked(*look)
        self._timed += len(order.jobs)
        found = [merged([r[n] for r in rounds]) if order.rounds > 1 else rounds[0][n] for n in range(len(order.jobs))]
        return Timed(tuple(found), before, after)

    def _timer(self, key: bytes, order: TimeOrder) -> Timer:
        if key not in self._timers:
            program = parse_program(Source("task", order.task.program))
            memory = memory_of(require_memory(program), 1).runner
            task = msgspec.structs.replace(order.task, threads=min(order.threads, usable_cores()))
            self._timers[key] = Timer(program, task, order.threads, memory, turns=self._turns)
        self._timers.move_to_end(key)
        while len(self._timers) > KEPT_TASKS:
            _, old = self._timers.popitem(last=False)
            old.worker.kill()
        return self._timers[key]

    def _looked(self, of: tuple[bytes, bytes], timer: Timer, order: TimeOrder) -> float | None:
        """The seconds of the reference now, or as of the last look, which is as good for a while; None without one."""
        if order.reference is None:
            return None
        began = time.monotonic()
        if self._look is not None and self._look.of == of and began < self._look.until:
            return self._look.seconds
        first = timer.run(order.reference, BRIEF * order.unit, 0.0, False).seconds
        found = [] if first is None else [first]
        if first is None or not order.unit / LOOSE <= first <= order.unit * LOOSE:
            second = timer.run(order.reference, None, 0.0, False).seconds
            found += [] if second is None else [second]
        if not found:
            return None
        ended, seconds = time.monotonic(), min(found)
        if self._look is None or self._look.of != of:
            self._least = None  # of another kernel
        self._look = _Look(of, seconds, ended + SHARE * (ended - began))
        self._last, self._least = seconds, min(seconds, self._least or seconds)
        return seconds

    def _busy(self, order: str, limit: float) -> _Busy:
        return _Busy(self._set, order, limit)

    def _set(self, order: str, limit: float) -> None:
        self._since, self._limit = time.monotonic(), limit
        self._doing = order

    def close(self) -> None:
        """End its processes; what was asked and not begun is dropped."""
        for threads in (self._timing, self._building):
            threads.shutdown(wait=False, cancel_futures=True)
        for worker in (*self._builders, *(t.worker for t in self._timers.values())):
            worker.kill()


@frozen
class _Busy:
    """A context in which a worker times the order, for at most so many seconds."""

    tell: Callable[[str, float], None]
    order: str
    limit: float

    def __enter__(self) -> None:
        self.tell(self.order, self.limit)

    def __exit__(self, *_: object) -> None:
        self.tell("", 0.0)
