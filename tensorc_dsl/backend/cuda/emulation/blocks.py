"""The blocks of an emulated kernel: the memory of each, and those that run side by side, since some wait for others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tensorc_dsl.backend.cuda.codegen.device import CALLS, SEEN
from tensorc_dsl.backend.cuda.emulation.access_costs import LOG_WORDS
from tensorc_dsl.backend.cuda.emulation.coroutine import OVER
from tensorc_dsl.backend.cuda.emulation.queues import QUEUE_WORDS
from tensorc_dsl.backend.cuda.emulation.rendezvous import BESIDE_WORDS, KNOWN, warp_bytes
from tensorc_dsl.backend.cuda.emulation.tma_mbarrier import Callbacks, Landing, Released, rectangle
from tensorc_dsl.backend.cuda.emulation.watch import (
    ASTRAY,
    BESIDE,
    BLOCK,
    COUNT,
    FRAMES,
    LANDING,
    LOGS,
    MARKS,
    PHASES,
    PROGRESS,
    QUEUES,
    RELEASED,
    ROW_WORDS,
    SPARE,
    STAMPS,
    STATE_WORDS,
    STUCK,
    TALLY,
    TEAM,
    TEAM_EPOCHS,
    UNSEEN,
    WARPS,
    WARPS_OF_BLOCK,
    note_fault,
)
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, consumers_of, staged_in, team_of
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT
from tensorc_dsl.backend.cuda.maps import encoding_of
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.warp import LANES

SPARE_BYTES = 1024
"""The size of the memory for accesses that are out of bounds, which is more than a vector has."""


@frozen
class Call:
    """A launch of a kernel on arrays. `stamps` are those of its arrays, `tally` has the counts, if anything is counted."""

    kernel: DeviceKernel
    arrays: Mapping[str, Array]
    sizes: Sizes
    stamps: list[Array]
    tally: Array | None
    order: str

    @property
    def addresses(self) -> list[ctypes.c_void_p]:
        """Those of the arrays."""
        return [ctypes.c_void_p(self.arrays[name].ctypes.data) for name in self.kernel.params]


@dataclass(slots=True)
class Room:
    """Room for a block: its memory, and the pointers to it that `runner` takes."""

    call: Call
    state: Array = field(init=False)
    landing: Landing = field(init=False)
    given: list[ctypes.c_void_p] = field(init=False)
    _kept: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        k, call = self.call.kernel, self.call
        self.state, marks = np.zeros(STATE_WORDS, np.int64), np.zeros(k.threads, np.int64)
        spare, shared = (
            aligned_empty((SPARE_BYTES,), np.dtype(np.uint8)),
            aligned_empty((k.shared_bytes + ALIGNMENT,), np.dtype(np.uint8)),
        )
        start = -shared.ctypes.data % ALIGNMENT
        warps = aligned_empty((2 * -(-k.threads // LANES) * warp_bytes(k) + 1,), np.dtype(np.uint8))
        queues, beside = np.zeros(QUEUE_WORDS * k.threads, np.int64), np.zeros(BESIDE_WORDS * k.threads, np.int64)
        logs = np.zeros(LOG_WORDS * LANES, np.int64)
        words = {
            MARKS: marks,
            SPARE: spare,
            WARPS: warps,
            QUEUES: queues,
            BESIDE: beside,
            FRAMES: np.zeros(k.threads, np.int64),
            TEAM_EPOCHS: np.zeros(WARPS_OF_BLOCK + 2, np.int64),
        }
        if call.tally is not None:
            words |= {LOGS: logs, TALLY: call.tally}
        rows, stamps, times = self._rows(shared, start)
        table, handles = np.array(rows or [0] * ROW_WORDS, np.int64), np.zeros(k.threads, np.uint64)
        turns = _turns(call.order, k.threads)
        self.given = [ctypes.c_void_p(a.ctypes.data) for a in (self.state, table)]
        self.given += [
            ctypes.c_void_p(shared.ctypes.data + start),
            *(ctypes.c_void_p(a.ctypes.data) for a in (handles, turns)),
        ]
        maps = [rectangle(encoding_of(m), call.arrays, k.params, call.sizes) for m in k.maps]
        known = beside.reshape(-1, BESIDE_WORDS)[:, KNOWN]
        self.state[TEAM] = team_of(k)
        released = Released(consumers_of(k), team_of(k), np.zeros(WARPS_OF_BLOCK, np.int64), times)
        self.landing = Landing(
            maps, self.state, shared[start:], k.shared, len(k.params), stamps, call.tally, released, known
        )
        words |= {RELEASED: released.counts, LANDING: self.landing.table, PHASES: self.landing.phases}
        for word, a in words.items():
            self.state[word] = a.ctypes.data
        self._kept = [*words.values(), *stamps, *times.values(), table, handles, turns, shared]

    def _rows(self, shared: Array, start: int) -> tuple[list[int], list[Array], dict[int, Array]]:
        """The words of each buffer, its stamps, and the times of those that tiles of a role fill."""
        k, call = self.call.kernel, self.call
        rows: list[int] = []
        stamps = list(call.stamps)
        for name, mine in zip(k.params, call.stamps, strict=True):
            a = call.arrays[name]
            rows += [a.ctypes.data, a.nbytes, a.itemsize, mine.ctypes.data, 0, 0]
        times: dict[int, Array] = {}
        slots = staged_in(k.body)
        for b in k.shared:
            if b.name in slots:
                times[len(stamps)] = np.zeros((-(-k.threads // LANES), b.size), np.int32)
            stamps.append(np.zeros(STAMPS * b.size, np.int64))
            rows += [
                shared.ctypes.data + start + b.offset,
                b.size * b.dtype.bytes,
                b.dtype.bytes,
                stamps[-1].ctypes.data,
                1,
                times[len(stamps) - 1].ctypes.data if b.name in slots else 0,
            ]
        return rows, stamps, times


def _turns(order: str, threads: int) -> Array:
    forward = np.arange(threads, dtype=np.int64)
    match order:
        case "forward":
            return forward
        case "reversed":
            return np.ascontiguousarray(forward[::-1])
        case _:
            return np.random.default_rng(0).permutation(forward)


# Blocks that run side by side, and the memory through which they wait for each other.
#
# A few blocks are resident at one time, as on a machine. Others begin when one has ended, in an order that is drawn: a
# machine promises none. Residents run in turns, in rounds whose order is drawn, so each of them runs again and again, as
# the machine promises of blocks that have begun. Where none of them comes further and none can begin, they wait for ever.
#
# Words that blocks pass on follow the views of Kang et al. (A Promising Semantics for Relaxed-Memory Concurrency, POPL
# 2017) without their promises, a stricter reading of PTX's memory model: each word keeps all values that it had, and a
# block has seen each word up to some value. A load returns that value or any later one, whichever is drawn. So stores are
# seen late, and in another order than they were made, unless a release and an acquire of what it stored pass a view on. An
# old value is drawn a few times only, so that a block that waits for a new one gets it.


RESIDENTS = {"forward": 3, "reversed": 2, "shuffled": 7}
"""The blocks that are resident at one time, by the order of threads, each of which has its own drawn order of blocks."""

_OLD = 2
"""How often a block gets an old value of a word."""

_STILL = 8
"""The rounds without progress of any block, besides those with reads of old values, after which a deadlock is reported."""

_BEGINS = 0.7
"""How likely another block begins in a round, if there is room."""

_WORD = 8
"""The bytes of a word."""


@dataclass(slots=True)
class _Word:
    """The values of a word, the oldest first, each with what its release passes on: the views of words by their addresses."""

    values: list[int]
    views: list[dict[int, int] | None]


@dataclass(slots=True)
class _Block:
    """What a block has seen: the number of a value of each word, and how often it got an old one."""

    view: dict[int, int] = field(default_factory=dict[int, int])
    old: dict[int, int] = field(default_factory=dict[int, int])


class Memory:
    """The words that blocks pass on, of arrays by their rows. `state` is that of the block that runs."""

    def __init__(self, arrays: Sequence[tuple[int, Array]], rng: np.random.Generator) -> None:
        self.progress = 0
        """How often something has come of an access."""
        self.state: Array = np.zeros(1, np.int64)
        self._rng = rng
        self._arrays = [(row, a.ctypes.data, a.reshape(-1).view(np.int64)) for row, a in arrays]
        self._words: dict[int, _Word] = {}
        self._blocks: dict[int, _Block] = {}
        functions = {"take": (self._take, 1), "put": (self._put, 3), "get": (self._get, 2)}
        self.calls = Callbacks([(f, ctypes.c_int64, n) for f, n in (functions[name] for name in CALLS)])
        """The functions of `CALLS`."""

    def _at(self, address: int) -> tuple[_Word, _Block]:
        """A word, and what the block that runs has seen; a word outside of all arrays is reported."""
        block = self._blocks.setdefault(int(self.state[BLOCK]), _Block())
        if address not in self._words:
            first = 0
            for _, base, values in self._arrays:
                if 0 <= address - base < values.nbytes and not (address - base) % _WORD:
                    first = int(values[(address - base) // _WORD])
                    break
            else:
                self._fault(ASTRAY, address)
            self._words[address] = _Word([first], [None])
        return self._words[address], block

    def _take(self, address: int) -> int:
        word, block = self._at(address)
        word.values.append(word.values[-1] + 1)
        word.views.append(None)
        block.view[address] = len(word.values) - 1
        self.progress += 1
        return word.values[-2]

    def _put(self, address: int, value: int, release: int) -> int:
        word, block = self._at(address)
        block.view[address] = len(word.values)
        word.values.append(value)
        word.views.append(dict(block.view) if release else None)
        self.progress += 1
        return 0

    def _get(self, address: int, seen: int) -> int:
        word, block = self._at(address)
        low, last = block.view.get(address, 0), len(word.values) - 1
        if SEEN[seen] == "known":
            if not low:
                self._fault(UNSEEN, address)
            return word.values[low]
        which = last
        if low < last and block.old.get(address, 0) < _OLD:
            which = int(self._rng.integers(low, last + 1))
            block.old[address] = block.old.get(address, 0) + (which < last)
        block.view[address] = which
        if SEEN[seen] == "acquire":
            for other, number in (word.views[which] or {}).items():
                block.view[other] = max(block.view.get(other, 0), number)
        self.progress += which > low
        return word.values[which]

    def _fault(self, kind: int, address: int) -> None:
        row, base, _ = next((x for x in self._arrays if 0 <= address - x[1] < x[2].nbytes), self._arrays[0])
        note_fault(self.state, kind, row=row, element=(address - base) // _WORD)


class _Resident(Protocol):
    """Room for a block that runs: the words of its emulation."""

    state: Array


@frozen
class Kernel:
    """The functions of `runner` for blocks that wait for others: `begin` makes a block of a number, `go` runs it on."""

    begin: Callable[[Any, int], None]
    go: Callable[[Any, bool], int]


def side_by_side(
    blocks: int, rooms: Sequence[_Resident], kernel: Kernel, memory: Memory, rng: np.random.Generator
) -> None:
    """Run all blocks, as many at one time as there are rooms, until they have ended or one has a fault, which is in its
    state."""
    waiting = list(map(int, rng.permutation(blocks)))
    free, running = list(range(len(rooms))), dict[int, bool]()
    still = 0
    while waiting or running:
        before = memory.progress
        while waiting and free and (not running or rng.random() < _BEGINS):
            running[free[-1]] = False
            kernel.begin(rooms[free.pop()], waiting.pop())
        ended: list[int] = []
        for n in map(int, rng.permutation(list(running))):
            memory.state = rooms[n].state
            over = kernel.go(rooms[n], running[n]) == OVER
            memory.calls.end()
            if rooms[n].state[COUNT]:
                return
            running[n] = True
            ended += [n] if over else []
        free += ended
        running = {n: True for n in running if n not in ended}
        stands = memory.progress == before and not ended and not (waiting and free)
        still = still + 1 if stands else 0
        if still > _STILL + _OLD * len(rooms):
            note_fault(rooms[min(running)].state, STUCK)
            return


# Blocks of clusters, which run at the same time: those of one after those of another.


def in_clusters(blocks: int, rooms: Sequence[Room], kernel: Kernel, order: str) -> None:
    """Run all blocks, those of a cluster at one time, as many as there are rooms, until they have ended or one has a fault,
    which is in its state. Each runs until it waits for others; which is first depends on the order of threads."""
    rng = np.random.default_rng(0)
    for room in rooms:
        room.landing.join([x.landing for x in rooms])
    for first in range(0, blocks, len(rooms)):
        for n, room in enumerate(rooms):
            room.landing.begin()
            kernel.begin(room, first + n)
        running, begun = list(range(len(rooms))), False
        while running:
            before, ended = [int(room.state[PROGRESS]) for room in rooms], list[int]()
            for n in _in_order(running, order, rng):
                if kernel.go(rooms[n], begun) == OVER:
                    ended.append(n)
                    rooms[n].landing.finish()
                if any(room.state[COUNT] for room in rooms):
                    return
            running = [n for n in running if n not in ended]
            if begun and not ended and before == [int(room.state[PROGRESS]) for room in rooms]:
                note_fault(rooms[running[0]].state, STUCK)
                return
            begun = True


def _in_order(numbers: Sequence[int], order: str, rng: np.random.Generator) -> list[int]:
    match order:
        case "forward":
            return list(numbers)
        case "reversed":
            return list(reversed(numbers))
        case _:
            return list(map(int, rng.permutation(numbers)))
