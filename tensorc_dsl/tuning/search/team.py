"""Processes that expand candidates for a search, each on a core of its own. This process does its share of the work.

Who makes an expansion does not change it, so a search depends neither on the number of processes nor on their speed. A
process that ends or breaks is not replaced: its order is made here, where an exception has a traceback and reaches the user.
A process runs this program and no kernel, so the two sides unpack what the other one packed.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Self

import msgspec

from tensorc_dsl.backend.once import Lowered, lowered_as, lowered_once
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.processes.machine import Turns, Use, available, usable_cores
from tensorc_dsl.processes.protocol import (
    LOADED,
    Purpose,
    Worker,
    WorkerBug,
    WorkerCrash,
    WorkerTimeout,
    library_threads,
    wait_any,
)
from tensorc_dsl.schedule.trace.handlers import Blocked, Conditioned
from tensorc_dsl.schedule.trace.kept import Kept
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.tuning.search.expansion import Expander, Order, SpaceLike, described, here, made, remember
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.space import modelled, remember_modelled_cycles


@frozen
class Ground:
    """What a search expands: a model, and the target and sizes that its programs are lowered and described for."""

    model: Model
    target: Target
    sizes: Sizes


@frozen
class Expanded:
    """A trace, with its lowered program (None if it cannot be lowered), the numbers of its loops, and its cycles by a model
    (None where there is no model)."""

    trace: Trace
    lowered: Lowered | None
    loops: Array
    cycles: float | None


def expanded(ground: Ground, order: Order) -> Expanded | None:
    """What the order gives on the ground; None if a step is refused."""
    trace = made(ground.model, order)
    if trace is None:
        return None
    try:
        lowered = lowered_once(trace.program, ground.target)
    except LowerError:
        lowered = None
    about = (trace.program, ground.sizes, ground.target)
    return Expanded(trace, lowered, described(*about), modelled(*about))


class Learn(msgspec.Struct, tag=True, frozen=True):
    """The ground of that number, packed."""

    number: int
    ground: bytes


class Expand(msgspec.Struct, tag=True, frozen=True):
    """An order on the ground of that number, packed."""

    number: int
    order: bytes


class Learnt(msgspec.Struct, tag=True, frozen=True):
    """The ground is known."""


class Done(msgspec.Struct, tag=True, frozen=True):
    """What the order gave, packed; None if it cannot be packed, as that of a very deep program."""

    expanded: bytes | None


MEMBER: Purpose[Learn | Expand, Learnt | Done] = Purpose(f"{__name__}:member", Learn | Expand, Learnt | Done)


def ground_of(data: bytes) -> Ground:
    """The ground that was packed."""
    found = pickle.loads(data)
    assert isinstance(found, Ground)
    return found


def order_of(data: bytes) -> Order:
    """The order that was packed."""
    found = pickle.loads(data)
    assert isinstance(found, Order)
    return found


def expanded_of(data: bytes) -> Expanded | None:
    """What was packed; None for a refusal."""
    found = pickle.loads(data)
    assert found is None or isinstance(found, Expanded)
    return found


def packed(value: Ground | Order | Expanded | None) -> bytes | None:
    """The value as bytes; None if it is too deep for that."""
    try:
        return pickle.dumps(value, 5)
    except RecursionError:
        return None


def member() -> None:
    """Expand candidates of the spaces that the parent taught, lower them and describe their loops."""
    grounds: dict[int, Ground] = {}

    def answer(request: Learn | Expand) -> Learnt | Done:
        match request:
            case Learn(number=number, ground=ground):
                grounds[number] = ground_of(ground)
                return Learnt()
            case Expand(number=number, order=order):
                found = expanded(grounds[number], order_of(order))
                if found is not None and found.lowered is not None:
                    found = replace(found, lowered=replace(found.lowered, content=found.lowered.packed))
                return Done(packed(found))

    gc.set_threshold(100_000, 20, 20)  # expansions make many objects and few cycles
    MEMBER.serve(answer)


MOST = 7
"""Processes of a team at most: a batch has a dozen expansions."""

WORTH = 0.5
"""Seconds of expansions in this process from which on a team is worth its start, which takes about as long. So a search pays
at most twice for what it needs, whether it goes on or ends; a short one starts no process."""

BYTES = 2 << 30
"""The memory of each process; a tenth of it is usual."""

SECONDS = 600.0
"""A process that takes longer for an order ends; this process makes it then, with no limit."""


class Member:
    """One process, with the order that it works on and the grounds that it learnt."""

    def __init__(self) -> None:
        self.worker = Worker(MEMBER, library_threads(1), min(BYTES, available()), LOADED)
        self.grounds: set[int] = set()
        self.idle = True
        self.order: int | None = None


class Team:
    """Expands the candidates of searches. Its processes start after some expansions, and end with `close`."""

    def __init__(self, processes: int | None = None, worth: float = WORTH) -> None:
        """A team of that many processes beside this one; by default, one on each other core.

        They start when expansions have taken `worth` seconds here.
        """
        self._wanted = min(MOST, usable_cores() - 1) if processes is None else processes
        self._worth = worth
        self._spent = 0.0
        self.members: list[Member] = []
        """The processes that run; empty before they are worth a start."""
        self._numbers = count()
        self._grounds: dict[int, bytes | None] = {}
        """By number each ground as other processes are sent it, None if it is too deep for that."""
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; later orders are executed in this one."""
        for m in self.members:
            m.worker.kill()
        self.members = []

    def expander(self, ground: Ground, turns: Turns) -> Expander:
        """An expander for the ground's model; in this process alone if others could not make the same of it.

        While the processes work, the search holds its build lock.
        """
        alone = here(ground.model)
        if not self._wanted or not _same_elsewhere(ground.model):
            return alone
        number = next(self._numbers)

        def expand(orders: Sequence[Order]) -> list[Trace | None]:
            first: list[Trace | None] = []
            while not self._begun and self._spent < self._worth and len(first) < len(orders):
                started = time.perf_counter()
                first += alone(orders[len(first) : len(first) + 1])
                self._spent += time.perf_counter() - started
            rest = orders[len(first) :]
            if len(rest) < 2 or (self._begun and not self.members) or self._packed(number, ground) is None:
                return [*first, *alone(rest)]
            if not self._begun:
                self._begin()
            with turns.use(Use.BUILDING):
                return [*first, *self._expand(ground, number, rest)]

        return expand

    def _packed(self, number: int, ground: Ground) -> bytes | None:
        if number not in self._grounds:
            self._grounds[number] = packed(ground)
        return self._grounds[number]

    def _expand(self, ground: Ground, number: int, orders: Sequence[Order]) -> list[Trace | None]:
        found: dict[int, Trace | None] = {}
        left = deque(range(len(orders)))
        try:
            while len(found) < len(orders):
                for m in [*self.members]:
                    self._attend(m, ground, number, orders, left, found)
                if left:
                    mine = left.popleft()
                    found[mine] = _own(ground, orders[mine])
                elif busy := [m.worker for m in self.members if m.order is not None]:
                    wait_any(busy, SECONDS)
        except BaseException:
            self.close()  # what they still say would answer the next request
            raise
        return [found[n] for n in range(len(orders))]

    def _begin(self) -> None:
        self._begun = True
        self.members = [Member() for _ in range(self._wanted)]
        for m in self.members:
            m.worker.start()

    def _attend(
        self,
        m: Member,
        ground: Ground,
        number: int,
        orders: Sequence[Order],
        left: deque[int],
        found: dict[int, Trace | None],
    ) -> None:
        """Take what the process has to say, and give it the next order if it has none."""
        try:
            while (said := m.worker.poll()) is not None:
                if isinstance(said, Done) and m.order is not None:
                    found[m.order] = self._taken(said, ground, orders[m.order])
                    m.order = None
                m.idle = True
            if m.worker.greeted and m.idle and left:
                if number not in m.grounds:
                    data = self._packed(number, ground)
                    assert data is not None
                    m.grounds.add(number)
                    m.idle = False
                    m.worker.send(Learn(number, data), SECONDS)
                else:
                    m.idle, m.order = False, left.popleft()
                    m.worker.send(Expand(number, pickle.dumps(orders[m.order], 5)), SECONDS)
        except (WorkerCrash, WorkerTimeout, WorkerBug):
            self.members.remove(m)
            if m.order is not None:
                left.appendleft(m.order)

    @staticmethod
    def _taken(said: Done, ground: Ground, order: Order) -> Trace | None:
        if said.expanded is None:
            return _own(ground, order)
        theirs = expanded_of(said.expanded)
        if theirs is None:
            return None
        program = theirs.trace.program
        if theirs.lowered is not None:
            lowered_as(program, ground.target, theirs.lowered)
        remember(program, ground.sizes, ground.target, theirs.loops)
        remember_modelled_cycles(program, ground.sizes, ground.target, theirs.cycles)
        return theirs.trace


def _own(ground: Ground, order: Order) -> Trace | None:
    """The trace of an order, lowered and described here: what is asked of it next is known, as of those that others make.

    It is done while the others work; after the request it would be done while they wait.
    """
    mine = expanded(ground, order)
    return None if mine is None else mine.trace


def _same_elsewhere(model: SpaceLike) -> bool:
    """Whether the model is a function of its fields, which another process can have; a user's own model may be none."""
    while isinstance(model, Conditioned | Blocked | Kept):
        model = model.model
    return isinstance(model, Space)
