"""Measures the candidates of one search on the workers of a pool: the queue, and what becomes of each order.

The queue stays here. A worker that times has at most two orders, so that one waits while the other runs; everything else can
still go to whichever worker is free, joins late, or takes over what another one left. An order that is lost is given again
under the same id, and the first answer counts. So a trial is neither lost nor counted twice, whatever ends in between.

Workers have equal targets, and still differ: one is throttled, or busy. So each runs a reference kernel beside its
candidates, the first valid one of the search, and times count in those of the machine that ran it first.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import msgspec

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import IN_RANGE, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.processes.protocol import WorkerBug
from tensorc_dsl.proof.equivalence.bits import may_return_either_zero
from tensorc_dsl.tuning.cluster.pool import POLL, Ended, Lost, Pool, Seen
from tensorc_dsl.tuning.cluster.station import (
    Answer,
    BuildOrder,
    Job,
    Made,
    Order,
    Roofed,
    RoofOrder,
    Station,
    Timed,
    TimeOrder,
    Trouble,
)
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.child import Build, Prepare
from tensorc_dsl.tuning.measure.local import BUILDERS, NO_BITS, ROUNDS
from tensorc_dsl.tuning.measure.outcome import Late, MachineChange, Outcome, Status, spread_of
from tensorc_dsl.tuning.records.schema import LARGEST


@problem(
    "E0878",
    "no worker is left to time kernels of `{task}`, and none came within {seconds:g} s; {why}",
    help="the trials so far are recorded: start workers, and go on with `--resume`",
)
def NONE_LEFT(*, task: str, seconds: float, why: str) -> None: ...
@problem(
    "E0879",
    "the scheduler at `{address}` went away, and did not come back within {seconds:g} s",
    help="the trials so far are recorded: start the scheduler, and go on with `--resume`; workers look for it by themselves",
)
def GONE(*, address: str, seconds: float) -> None: ...


IN_FLIGHT = 2
"""Orders that a worker that times has at most: one waits, so that the device does not."""

LOOK_SECONDS = 0.5
"""How often it is looked at who is there, while a search runs."""

WAIT_SECONDS = 120.0
"""How long a search waits for workers where there are none any more, or for a scheduler that went away."""

DEATHS = 3
"""After so many workers ended while they ran it, a candidate runs alone: it may be innocent. After one more it is not."""

TURNS = 3
"""How often a candidate is timed, at most, until its worker is as fast after it as before."""

LEAST, SPREADS = 0.05, 3.0
"""Changes of a worker's speed that count: above this share, and above so many times what the reference's own times vary."""

SLOW, RUNNING = 1.5, 3
"""A worker that is so many times slower than the first one, so many times running, times nothing any more."""

UNSTEADY, WINDOW = 5, 8
"""So does one whose speed changed during so many of its last orders."""

STRAGGLER, MOST_OF, AWAITED = 2.0, 0.75, 0.5
"""A batch does not wait for trials that take so many times as long as its others, once such a share of it is done; but so
many seconds it always waits."""

KEPT = 64
"""How many programs' machine code is kept for another look."""


@dataclass(slots=True)
class _Trial:
    """A candidate. Once it is built, it has machine code or the outcome of a failure."""

    number: int
    key: str
    """That of its lowered kernel; empty if there is none."""
    request: Build | Outcome
    extremes: bool
    best: float | None = None
    made: Made | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Piece:
    """What a worker times in one order: a candidate, or several by turns."""

    trials: list[_Trial]
    rounds: int = 1
    turn: int = 0
    deaths: int = 0
    given: float = 0.0
    with_reference: bool = False
    held: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def place(self) -> int:
        return self.trials[0].number

    @property
    def alone(self) -> bool:
        return self.deaths >= DEATHS


@dataclass(slots=True)
class _Machine:
    """A worker as the search knows it."""

    seen: Seen
    factor: float = 1.0
    """How many times slower than the first one it was at the last look."""
    told: float = 1.0
    retired: str = ""
    slow: int = 0
    failures: int = 0
    """Times in a row at which orders came back without answers; those that it had at once fail together."""
    failed_at: float = -math.inf
    swings: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=WINDOW))


class ClusterRunner:
    """Measures candidates of one task on the workers of a pool that have the target; as `LocalRunner`, on many machines.

    `told` hears what becomes of machines, and `on_preparing` when workers begin to compute the reference (true), and when
    the first one has (false). `patience` is how long it waits for workers, or for the scheduler. Raises TschedError (E0878,
    E0879) when none comes, and WorkerBug for our mistakes.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        pool: Pool,
        *,
        threads: int,
        seed: int = 0,
        copies: int = 1,
        bits_of: Program | None = None,
        told: Callable[[MachineChange], None] = lambda _: None,
        on_preparing: Callable[[bool], None] = lambda _: None,
        patience: float = WAIT_SECONDS,
    ) -> None:
        self._program = program
        self._target = target
        self._pool = pool
        self._threads = threads
        self._task = Prepare(format_program(program), target.kind, seed, threads, copies)
        self._bits_of = bits_of
        self._tell = told
        self._on_preparing = on_preparing
        self._patience = patience
        self._run = uuid.uuid4().hex
        self._connection = pool.connections
        pool.users.append(self)
        self._count = 0
        self._machines: dict[str, _Machine] = {}
        self._by_address: dict[str, str] = {}
        self._met = False
        """Whether there was a worker."""
        self._looked = 0.0
        self._alone_since: float | None = None
        self._known: OrderedDict[str, Made] = OrderedDict()
        self._to_build: deque[_Trial] = deque()
        self._to_time: list[_Piece] = []
        self._ordered: dict[str, _Trial | _Piece | RoofOrder] = {}
        self._only_built = set[int]()
        """The trials that are timed later, together."""
        self._own: Station | None = None
        self._here: dict[str, Future[Answer]] = {}
        self._left: dict[int, tuple[Program, _Trial]] = {}
        self._reference: tuple[Code, str] | None = None
        self._unit, self._limit = 0.0, LEAST
        self._roof: Roof | None = None
        self.compared = 1.0
        """The share of the results that checks compare with numbers, once a kernel was checked."""
        self._told_prepared: bool | None = None
        self._took: list[float] = []
        """The seconds of all trials that ended, from their orders to their answers."""

    # What a search asks.

    @property
    def timing(self) -> int:
        """How many workers time its kernels, as far as it knows."""
        return len(self._timing())

    @property
    def lanes(self) -> int:
        """How many kernels are timed at once now, at least 1."""
        self._connected(self._look_around)
        return max(1, len(self._timing()))

    @property
    def open(self) -> int:
        """How many trials are waiting or under way."""
        given = (x for x in self._ordered.values() if not isinstance(x, RoofOrder))
        return len(self._to_build) + sum(len(p.trials) for p in self._to_time) + sum(_count(x) for x in given)

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome | Late]:
        """An outcome per program, in order. One that a slow worker holds back is `Late`, and comes with `late`.

        Workers have the programs as soon as this returns, before the first outcome is asked for.
        """
        trials = [self._trial(p, best) for p in programs]
        self._begin(trials)
        self._connected(self._give_out)
        return self._outcomes(programs, trials)

    def _outcomes(self, programs: Sequence[Program], trials: Sequence[_Trial]) -> Iterator[Outcome | Late]:
        first = len(self._took)
        try:
            for program, trial in zip(programs, trials, strict=True):
                while trial.outcome is None:
                    # The search may have been away for a while: what has ended meanwhile is taken before a worker is slow.
                    self.pump()
                    if trial.outcome is None and self._straggles(trials, self._took[first:]):
                        break
                if trial.outcome is None:
                    self._left[trial.number] = program, trial
                    yield Late(program)
                    continue
                self._improve(trial.outcome, trials)
                yield trial.outcome
        finally:
            self._drop({t.number for t in trials if t.outcome is None} - self._left.keys())

    def late(self, wait: bool = False) -> list[tuple[Program, Outcome]]:
        """The outcomes of late programs that are known now; those of all of them, after a while, with `wait`."""
        while wait and any(trial.outcome is None for _, trial in self._left.values()):
            self.pump()
        found = [(n, program, trial.outcome) for n, (program, trial) in self._left.items() if trial.outcome is not None]
        for n, _, _ in found:
            del self._left[n]
        return [(program, outcome) for _, program, outcome in found]

    def again(self, program: Program, best: float | None = None) -> Outcome:
        """The outcome of a program, checked and timed once more."""
        trial = self._trial(program, best)
        self._begin([trial])
        while trial.outcome is None:
            self.pump()
        return trial.outcome

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        """The programs measured by turns on one machine, several times round; one that fails in any round has failed."""
        trials = [self._trial(p, None) for p in programs]
        self._begin(trials, together=True)
        while any(t.outcome is None for t in trials):
            self.pump()
        return [t.outcome for t in trials if t.outcome is not None]

    def roof(self, patience: float) -> Roof:
        """The roof of the task, measured on a worker."""
        order = RoofOrder(f"{self._run}-roof-{self._number()}", format_program(self._program), self._threads, patience)
        self._roof = None
        while self._roof is None:
            if order.id not in self._ordered:
                for machine in self._timing()[:1]:
                    self._connected(partial(self._give, machine, order, order))
            self.pump()
        return self._roof

    def close(self) -> None:
        """Give up what is under way. The pool stays as it is, for its other users."""
        if self in self._pool.users:
            self._pool.users.remove(self)
        self._pool.forget([m.seen.address for m in self._machines.values()], self._run)
        if self._own is not None:
            self._own.close()

    # The queue.

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _trial(self, program: Program, best: float | None) -> _Trial:
        key = ""
        try:
            lowered = lowered_once(program, self._target)
            key, packed = lowered.key, lowered.packed
            request = Build(program.name, packed.data, packed.parts, self._target, self._threads)
        except LowerError as e:
            request = Outcome(Status.REFUSED, message=str(e))
        extremes = (IN_RANGE, True) not in program.annotations
        return _Trial(self._number(), key, request, extremes, best)

    def _begin(self, trials: Sequence[_Trial], together: bool = False) -> None:
        """Queue the trials: each for itself, or to be timed by turns."""
        if self._told_prepared is None:
            self._told_prepared = False
            self._on_preparing(True)
        if self._bits_of is not None and self._task.bits_of is None:
            self._task = self._with_bits(self._bits_of)
        if together:
            self._build_all(trials)
            for t in trials:
                if t.made is not None and t.made.code is None:
                    self._finish(t, self._failed(t.made))
            if good := [t for t in trials if t.outcome is None]:
                self._to_time.append(_Piece(good, ROUNDS))
            return
        for t in trials:
            self._to_build.append(t)

    def _build_all(self, trials: Sequence[_Trial]) -> None:
        for t in trials:
            t.best = None
        waiting = [*trials]
        self._to_build.extend(waiting)
        self._only_built = {t.number for t in waiting}
        try:
            while any(t.made is None for t in waiting):
                self.pump()
        finally:
            self._only_built = set[int]()

    def _with_bits(self, program: Program) -> Prepare:
        """The task with the kernel that has the bits that all are to give. Raises TschedError (E0716) if it has none."""
        trial = self._trial(program, None)
        self._build_all([trial])
        assert trial.made is not None
        if trial.made.code is None:
            why = self._failed(trial.made).message
            raise TschedError(NO_BITS(None, task=self._program.name, why=why))
        return msgspec.structs.replace(self._task, bits_of=trial.made.code, zeros=may_return_either_zero(program))

    def pump(self) -> None:
        """Give out what can be given, and take what has ended within a moment: of all users of the pool."""
        try:
            self._pool.serve(POLL)
        except Lost:
            self._reconnect()

    def feed(self) -> None:
        """Give out what can be given, and take what was built here. Raises Lost, and TschedError (E0878)."""
        if self._connection != self._pool.connections:
            self._connected_anew()
        for key in [key for key, one in self._here.items() if one.done()]:
            found = self._here.pop(key).result()
            self._take(Ended(BuildOrder(key, _NO_BUILD), "", found))
        self._look_around()
        self._give_out()

    def take(self, ended: Ended) -> bool:
        if ended.order.id not in self._ordered:
            return False
        self._take(ended)
        return True

    def _connected(self, what: Callable[[], None]) -> None:
        """Do it, or wait for the scheduler if that is gone."""
        try:
            what()
        except Lost:
            self._reconnect()

    def _reconnect(self) -> None:
        """Wait for the scheduler to come back, and give out again what workers had."""
        self._tell(MachineChange("", "scheduler lost"))
        until = time.monotonic() + self._patience
        while True:
            try:
                self._pool.connect()
                break
            except TschedError as e:
                if time.monotonic() >= until:
                    gone = GONE(None, address=self._pool.address.text, seconds=self._patience)
                    raise TschedError(gone) from e
                time.sleep(POLL)
        self._connected_anew()
        self._tell(MachineChange("", "scheduler found"))

    def _connected_anew(self) -> None:
        """Give out again what workers had, of which the pool knows nothing any more."""
        self._connection = self._pool.connections
        for key in [key for key in self._ordered if key not in self._here]:
            self._return(key, died=False)
        self._machines, self._by_address = {}, {}
        self._looked = 0.0

    def _timing(self) -> list[_Machine]:
        """The machines that time kernels of this search."""
        return [m for m in self._machines.values() if m.seen.facts.times and not m.retired]

    def _look_around(self) -> None:
        """Take note of who came, who left, and who hangs."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        seen_now = self._pool.workers()
        there = {
            s.facts.id: s
            for s in seen_now
            if not s.unfit and (s.facts.target == self._target or (not s.facts.times and s.facts.builders))
        }
        for key in [*self._machines]:
            machine = self._machines[key]
            if key not in there or there[key].address != machine.seen.address:
                del self._machines[key]
                self._abandon(machine, died=True)
                if not machine.retired:
                    self._tell(MachineChange(machine.seen.name, "left", there[key].unfit if key in there else ""))
        for key, seen in there.items():
            if key in self._machines:
                self._machines[key].seen = seen
                if seen.standing.hangs and not self._machines[key].retired:
                    self._retire(self._machines[key], f"it hangs: an order takes more than {seen.standing.limit:g} s")
            else:
                self._machines[key] = _Machine(seen)
                self._by_address[seen.address] = key
                self._met = True
                self._tell(MachineChange(seen.name, "joined"))
        if self._timing():
            self._alone_since = None
            return
        self._alone_since = self._alone_since or now
        if now - self._alone_since >= self._patience:
            told = [f"{m.seen.name}: {m.retired}" for m in self._machines.values() if m.retired]
            why = "; ".join([*told, *(f"{s.name}: {s.unfit}" for s in seen_now if s.unfit)])
            why = why or ("all have left" if self._met else "there was none")
            left = NONE_LEFT(None, task=self._program.name, seconds=self._patience, why=why)
            raise TschedError(left)

    def _abandon(self, machine: _Machine, died: bool) -> None:
        """Queue again what the machine had. If it died, it ran the first of its timings."""
        ran = True
        for order in self._pool.forget([machine.seen.address], self._run):
            times = isinstance(order, TimeOrder)
            self._return(order.id, died=died and times and ran)
            ran &= not times

    def _retire(self, machine: _Machine, why: str) -> None:
        if machine.retired:
            return  # both of its orders failed at once
        machine.retired = why
        self._abandon(machine, died=False)
        self._tell(MachineChange(machine.seen.name, "retired", why))

    def _return(self, key: str, died: bool) -> None:
        """An order comes back without an answer."""
        what = self._ordered.pop(key, None)
        match what:
            case _Trial():
                self._to_build.appendleft(what)
            case _Piece():
                what.deaths += died
                if what.deaths > DEATHS:
                    message = f"{counted(what.deaths, 'worker')} ended while they ran it, the last one alone"
                    for t in what.trials:
                        self._finish(t, Outcome(Status.CRASH, message=message))
                else:
                    self._to_time.append(what)
            case _:
                pass

    def _give_out(self) -> None:
        self._give_builds()
        self._to_time.sort(key=lambda p: (p.alone, p.place))
        for most in range(1, IN_FLIGHT + 1):
            # Each machine has one before any has two; the fewer it has, the earlier.
            for machine in self._timing():
                orders = [o for o in self._pool.at(machine.seen.address) if not isinstance(o, BuildOrder)]
                if len(orders) < most and (piece := self._next(machine, orders)) is not None:
                    self._to_time.remove(piece)
                    self._time(machine, piece)
        self._level()

    def _next(self, machine: _Machine, orders: Sequence[Order]) -> _Piece | None:
        """What the machine is to time next: what may be the death of it only while nobody else does anything."""
        if any(isinstance(p := self._ordered.get(o.id), _Piece) and p.alone for o in orders):
            return None
        first = next(iter(self._to_time), None)
        if first is None or not first.alone:
            return first
        busy = bool(orders) or any(isinstance(x, _Piece) for x in self._ordered.values())
        return None if busy or self._to_build else first

    def _level(self) -> None:
        """Where a machine is idle and nothing is left for it, it gets what waits behind another order elsewhere."""
        if self._to_time:
            return
        machines = self._timing()
        orders = {
            m.seen.address: [
                o for o in self._pool.at(m.seen.address) if isinstance(o, TimeOrder) and o.id in self._ordered
            ]
            for m in machines
        }
        idle = [m for m in machines if not self._pool.at(m.seen.address)]
        for machine in idle:
            crowded = [a for a, some in orders.items() if len(some) > 1]
            if not crowded or not self._pool.recall(orders[crowded[0]][-1].id):
                return
            moved = orders[crowded[0]].pop()
            piece = self._ordered.pop(moved.id)
            assert isinstance(piece, _Piece)
            self._time(machine, piece)

    def _give_builds(self) -> None:
        builders = [m for m in self._machines.values() if m.seen.facts.builders and not m.retired]
        if not builders:
            self._build_here()
            return
        room = {
            id(m): IN_FLIGHT * m.seen.facts.builders
            - sum(isinstance(o, BuildOrder) for o in self._pool.at(m.seen.address))
            for m in builders
        }
        while self._to_build:
            machine = max(builders, key=lambda m: room[id(m)] / m.seen.facts.builders)
            if room[id(machine)] <= 0:
                return
            trial = self._to_build.popleft()
            if (request := self._wanted(trial)) is not None:
                room[id(machine)] -= 1
                self._give(machine, BuildOrder(f"{self._run}-{trial.number}-built", request), trial)

    def _wanted(self, trial: _Trial) -> Build | None:
        """What is to be built for a trial; None if there is nothing, and it goes on at once."""
        if isinstance(trial.request, Outcome):
            self._built(trial, Made(None, trial.request, 0.0))
        elif (known := self._known.get(trial.key)) is not None:
            self._known.move_to_end(trial.key)
            self._built(trial, known)
        else:
            return trial.request
        return None

    def _build_here(self) -> None:
        """Build in processes of this machine, where no worker does."""
        if not self._to_build or not self._machines:
            return
        if self._own is None:
            self._own = Station(self._target, b"", builders=BUILDERS, times=False)
        while self._to_build and len(self._here) < IN_FLIGHT * BUILDERS:
            trial = self._to_build.popleft()
            if (request := self._wanted(trial)) is not None:
                key = f"{self._run}-{trial.number}-built"
                self._ordered[key] = trial
                self._here[key] = one = self._own.begin(BuildOrder(key, request))
                one.add_done_callback(lambda _: self._pool.wake())

    def _time(self, machine: _Machine, piece: _Piece) -> None:
        jobs = tuple(
            Job(t.made.code, t.extremes) for t in piece.trials if t.made is not None and t.made.code is not None
        )
        best = piece.trials[0].best
        code = None if self._reference is None else self._reference[0]
        piece.with_reference, piece.given = code is not None, time.monotonic()
        order = TimeOrder(
            f"{self._run}-{piece.place}-{piece.turn}",
            self._task,
            self._threads,
            jobs,
            None if best is None else best * machine.factor,
            piece.rounds,
            code,
            self._unit,
        )
        self._give(machine, order, piece)

    def _give(self, machine: _Machine, order: Order, what: _Trial | _Piece | RoofOrder) -> None:
        self._ordered[order.id] = what
        self._pool.give(machine.seen, order)

    # The answers.

    def _take(self, ended: Ended) -> None:
        """Take what has ended."""
        key = ended.order.id
        if key not in self._ordered:
            return
        machine = self._machines.get(self._by_address.get(ended.worker, ""))
        match ended.answer:
            case None:
                self._return(key, died=False)
                now = time.monotonic()
                if machine is not None and not machine.retired and now - machine.failed_at >= LOOK_SECONDS:
                    machine.failures, machine.failed_at = machine.failures + 1, now
                    if machine.failures >= DEATHS:
                        self._retire(machine, ended.why)
                return
            case Trouble(why=why, bug=bug):
                name = "this machine" if machine is None else machine.seen.name
                if bug:
                    raise WorkerBug(f"on {name}: {why}")
                self._return(key, died=False)
                if machine is not None:
                    self._retire(machine, why)
                elif ended.worker == "":
                    raise WorkerBug(f"on {name}: {why}")
                return
            case _:
                pass
        what = self._ordered.pop(key)
        if machine is not None:
            machine.failures = 0
        match ended.answer, what:
            case Made() as made, _Trial() as trial:
                self._known[trial.key] = made
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
                self._built(trial, made)
            case Timed() as timed, _Piece() as piece:
                if machine is None:
                    self._to_time.append(piece)
                    return
                self._settle(piece, timed, machine)
                self._took.append(time.monotonic() - piece.given)
            case Roofed(roof=roof), RoofOrder():
                self._roof = roof
            case _:
                raise TypeError(f"a worker answers an order with {type(ended.answer).__name__}")

    def _built(self, trial: _Trial, made: Made) -> None:
        trial.made = made
        if trial.number in self._only_built:
            return
        if made.code is None:
            self._finish(trial, self._failed(made))
        else:
            self._to_time.append(_Piece([trial]))

    @staticmethod
    def _failed(made: Made) -> Outcome:
        assert made.outcome is not None
        return replace(made.outcome, build_seconds=made.seconds)

    def _finish(self, trial: _Trial, outcome: Outcome) -> None:
        trial.outcome = outcome

    def _settle(self, piece: _Piece, timed: Timed, machine: _Machine) -> None:
        """Take the outcomes of a piece, in times of the first machine; or have it timed again if that cannot be."""
        if self._told_prepared is False and timed.outcomes:
            self._told_prepared, self.compared = True, timed.outcomes[0].compared
            self._on_preparing(False)
        factor, same = 1.0, True
        if timed.before is not None:
            before = timed.before / self._unit
            after = before if timed.after is None else timed.after / self._unit
            same = self._same(before, after)
            factor = min(before, after)
            factor = 1.0 if self._same(factor, 1.0) else factor
            self._see(machine, factor, same)
        elif self._reference is not None and machine.seen.name != self._reference[1]:
            same = any(o.seconds is None for o in timed.outcomes)  # nothing says how fast that machine is
        found = [self._corrected(o, factor, machine) for o in timed.outcomes]
        if all(o.seconds is not None for o in found) and piece.held:
            found = [min(a, b, key=lambda o: o.seconds or 0.0) for a, b in zip(found, piece.held, strict=True)]
        piece.turn += 1
        if not same and piece.turn < TURNS and all(o.seconds is not None for o in found):
            if timed.before is not None:
                piece.held = found
            self._to_time.append(piece)
            return
        for trial, outcome in zip(piece.trials, found, strict=True):
            seconds = 0.0 if trial.made is None else trial.made.seconds
            self._finish(trial, replace(outcome, build_seconds=seconds))
            self._adopt(trial, outcome, machine)

    def _adopt(self, trial: _Trial, outcome: Outcome, machine: _Machine) -> None:
        """Make the first valid candidate the reference, in times of its machine."""
        if self._reference is None and outcome.seconds is not None and trial.made is not None and trial.made.code:
            self._reference = trial.made.code, machine.seen.name
            self._unit = outcome.seconds
            self._limit = max(LEAST, SPREADS * spread_of(outcome.times))

    def _same(self, one: float, other: float) -> bool:
        return max(one, other) <= (1.0 + self._limit) * min(one, other)

    @staticmethod
    def _corrected(outcome: Outcome, factor: float, machine: _Machine) -> Outcome:
        named = replace(outcome, machine=machine.seen.name)
        factor = min(max(factor, 1.0 / LARGEST), LARGEST)
        if outcome.seconds is None or factor == 1.0:
            return named
        return replace(named, seconds=outcome.seconds / factor, scale=factor)

    def _see(self, machine: _Machine, factor: float, same: bool) -> None:
        """Take note of a machine's speed; tell of a change, and retire it if its times say little."""
        machine.factor = factor
        machine.swings.append(not same)
        machine.slow = machine.slow + 1 if factor > SLOW else 0
        if not self._same(factor, machine.told):
            machine.told = factor
            self._tell(MachineChange(machine.seen.name, "drifted", f"{factor:.2f} times as long as at first"))
        if len(self._timing()) < 2:
            return
        if machine.slow >= RUNNING:
            self._retire(machine, f"the reference kernel takes {factor:.2f} times as long as elsewhere")
        elif sum(machine.swings) >= UNSTEADY:
            self._retire(machine, f"its speed changed during {sum(machine.swings)} of its last {WINDOW} orders")

    # A batch.

    def _drop(self, numbers: set[int]) -> None:
        """Expect nothing more of the trials with these numbers."""
        if not numbers:
            return
        self._to_build = deque(t for t in self._to_build if t.number not in numbers)
        self._to_time = [p for p in self._to_time if p.place not in numbers]
        for key, what in [*self._ordered.items()]:
            place = what.number if isinstance(what, _Trial) else what.place if isinstance(what, _Piece) else None
            if place in numbers:
                del self._ordered[key]
                self._pool.recall(key)

    def _improve(self, outcome: Outcome, trials: Sequence[_Trial]) -> None:
        """What is timed from now on is timed against this outcome, if it is the best."""
        if outcome.seconds is not None:
            for t in trials:
                t.best = outcome.seconds if t.best is None else min(t.best, outcome.seconds)

    def _straggles(self, trials: Sequence[_Trial], took: Sequence[float]) -> bool:
        """Whether the batch goes on without its open trials: all of them take far longer than those that are done, and some
        worker has nothing to do."""
        open_ = [t for t in trials if t.outcome is None]
        if len(open_) > (1.0 - MOST_OF) * len(trials) or not took or self._to_build or self._to_time:
            return False
        given = {t.number: p.given for p in self._ordered.values() if isinstance(p, _Piece) for t in p.trials}
        now, long = time.monotonic(), max(AWAITED, STRAGGLER * median(took))
        idle = any(not self._pool.at(m.seen.address) for m in self._timing())
        return idle and all(t.number in given and now - given[t.number] > long for t in open_)


def _count(what: _Trial | _Piece) -> int:
    return len(what.trials) if isinstance(what, _Piece) else 1


_NO_BUILD = Build("", b"", 0, Target(), 1)
"""What stands in an answer from this process, of which only the id counts."""
