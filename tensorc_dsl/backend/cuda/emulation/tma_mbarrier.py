"""Tiles that an emulated kernel copies, and the mbarriers that count their bytes: what the machine does, in Python.

A tile lands as late as it may: when a thread waits for its mbarrier. What a tensor map means is written here once more, from
the arguments of the driver, apart from the code that makes it; so is the order of units in shared memory, by bits of
addresses. An access to elements of a tile before it has landed is an error, and so is a tile that starts where a thread has
accessed elements since the last barrier.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.backend.cuda.emulation.watch import (
    BLOCK,
    EPOCH,
    FLAG,
    GONE,
    HELD,
    LANDING,
    LATE,
    MISALIGNED,
    OFFSET,
    OUTSIDE,
    PHASES,
    PLAIN,
    PROGRESS,
    RACE,
    RELEASED,
    REUSED,
    STILL,
    UNARMED,
    UNDER_WAY,
    UNKNOWN,
    UNMET,
    UNREAD,
    WARPS_OF_BLOCK,
    note_fault,
    same_epoch,
    word,
)
from tensorc_dsl.backend.cuda.lower.kernels import MOST_MBARRIERS, Shared
from tensorc_dsl.backend.cuda.maps import Encoding
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.ir.warp import LANES

# LLVM code that tests whether a phase of an mbarrier is complete, if no copy is pending and there is no fault.
#
# Each mbarrier has some words, which `landing` writes. Every thread tests its phase, and mostly only has to record the
# test. The functions of `landing` do the rest.


OF, OVER, MET, TOLD, COPIES, WAITED = range(6)
"""The words of an mbarrier: the block that has set it up, counted from 1; how many phases are over; the barrier since which
it was set up, or another thread than the first has waited for it; whether a release has told something; how many copies are
under way to it; and for each warp how often it had released something as it waited for the last phase, -1 if it has not."""

PHASE_WORDS = WAITED + WARPS_OF_BLOCK

PASSED = 3
"""The number of the function of `landing` that does the same for each case."""

PHASES_CODE = f"""
define internal i64 @tensorc_passed(ptr %s, i64 %number, i64 %parity, i64 %users, i64 %t) noinline nounwind {{
entry:
  {word("all", "s", PHASES, "ptr")}
  %known = icmp ult i64 %number, {MOST_MBARRIERS}
  br i1 %known, label %look, label %slow
look:
  %skip = mul i64 %number, {PHASE_WORDS}
  %m = getelementptr i64, ptr %all, i64 %skip
  {word("of", "m", OF)}
  {word("over", "m", OVER)}
  {word("met", "m", MET)}
  {word("told", "m", TOLD)}
  {word("copies", "m", COPIES)}
  {word("block", "s", BLOCK)}
  {word("epoch", "s", EPOCH)}
  %b1 = add i64 %block, 1
  %here = icmp eq i64 %of, %b1
  %odd = and i64 %over, 1
  %runs = icmp eq i64 %odd, %parity
  %none = icmp eq i64 %users, 0
  %one = icmp ult i64 %t, %users
  %own = or i1 %none, %one
  %other = icmp ne i64 %t, 0
  %meets = and i1 %own, %other
  %fresh = icmp eq i64 %over, 0
  %new = icmp eq i64 %met, %epoch
  %unmet0 = and i1 %fresh, %new
  %unmet = and i1 %unmet0, %meets
  %met.right = xor i1 %unmet, true
  %fine = and i1 %here, %met.right
  br i1 %fine, label %ask, label %slow
ask:
  br i1 %runs, label %waits, label %passes
waits:
  %empty = icmp eq i64 %copies, 0
  br i1 %empty, label %no, label %slow
no:
  ret i64 0
passes:
  %plain = icmp eq i64 %told, 0
  br i1 %plain, label %note, label %slow
note:
  %used = xor i1 %fresh, true
  %notes = and i1 %meets, %used
  %later = select i1 %notes, i64 %epoch, i64 %met
  store i64 %later, ptr %met.at
  %warp = udiv i64 %t, {LANES}
  br i1 %own, label %waited, label %yes
waited:
  {word("counts", "s", RELEASED, "ptr")}
  %count.at = getelementptr i64, ptr %counts, i64 %warp
  %count = load i64, ptr %count.at
  %nth = add i64 %warp, {WAITED}
  %waited.at = getelementptr i64, ptr %m, i64 %nth
  store i64 %count, ptr %waited.at
  br label %yes
yes:
  {word("come", "s", PROGRESS)}
  %more = add i64 %come, 1
  store i64 %more, ptr %come.at
  ret i64 1
slow:
  {word("table", "s", LANDING, "ptr")}
  %f.at = getelementptr i64, ptr %table, i64 {PASSED}
  %f = load ptr, ptr %f.at
  %out = call i64 %f(i64 %number, i64 %parity, i64 %t)
  ret i64 %out
}}
"""
"""`tensorc_passed(state, number, parity, users, thread)`: whether the phase of an mbarrier with a parity is over, as
`landing` says. The first `users` threads use what another role loads; 0 is without roles."""


# LLVM code that notes when each warp has read what tiles of another role have filled.
#
# No barrier stands between roles, so stamps do not order them. A warp counts how often it has released something. With each
# element the count is noted at which a warp has read it last. The role that loads has to know of a later release before a
# tile may come there (`landing`). An instruction of a warpgroup reads where it starts, and where its threads wait for it.


SLOTS_CODE = f"""
define internal void @tensorc_took(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %t) noinline nounwind {{
entry:
  {OFFSET}
  {word("times", "buffer", 5, "ptr")}
  {word("bytes", "buffer", 2)}
  %within = icmp ult i64 %off, %size
  %noted = icmp ne ptr %times, null
  %both = and i1 %within, %noted
  br i1 %both, label %some, label %out
some:
  %warp = udiv i64 %t, {LANES}
  {word("counts", "s", RELEASED, "ptr")}
  %count.at = getelementptr i64, ptr %counts, i64 %warp
  %count = load i64, ptr %count.at
  %next = add i64 %count, 1
  %time = trunc i64 %next to i32
  %all = udiv i64 %size, %bytes
  %own = mul i64 %warp, %all
  %nth = udiv i64 %off, %bytes
  %first = add i64 %own, %nth
  %many = udiv i64 %n, %bytes
  %stop = add i64 %first, %many
  br label %each
each:
  %e = phi i64 [ %first, %some ], [ %e1, %each ]
  %p = getelementptr i32, ptr %times, i64 %e
  store i32 %time, ptr %p
  %e1 = add i64 %e, 1
  %more = icmp ult i64 %e1, %stop
  br i1 %more, label %each, label %out
out:
  ret void
}}
"""
"""`tensorc_took(state, rows, row, address, bytes, thread)`: elements that a thread has read."""


# TMA stores of an emulated kernel: what the machine does, in Python.
#
# A tile is read as late as it may be, when the thread that has started it waits for its group, and is written to the array
# when its block ends. An access to an element of the array until then is an error, and so are stores to shared memory that
# the machine may not see, stores to a tile that is still read, and a block that ends before its tiles were read.


UNIT, LINE, SECTOR = 16, 128, 32
"""The bytes that a swizzle keeps together, those that begin each line, and those of a sector of global memory."""


@frozen
class Rectangle:
    """What a tile is copied by: the array as the bits of its elements and by its number among the buffers, sizes and
    distances in elements, the tile, and the bytes of the swizzle, 16 without one; the innermost dimension is the first."""

    array: Array
    row: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    def elements(self, corner: Sequence[int]) -> tuple[Array, Array]:
        """The places of the elements of a tile in the array, and which are inside of its sizes; in the order of the tile."""
        at = [c + np.arange(n) for c, n in zip(corner, self.box, strict=False)][::-1]
        inside = reduce(np.logical_and.outer, ((x >= 0) & (x < n) for x, n in zip(at, self.sizes[::-1], strict=True)))
        place = reduce(np.add.outer, (x * n for x, n in zip(at, self.steps[::-1], strict=True)))
        return place.reshape(-1), inside.reshape(-1)


@dataclass(slots=True)
class _Tile:
    """A tile under way: the thread and the block that have started it, the units of shared memory that it is read from, the
    elements of the buffer there and their stamps, and the elements of the array. It has values once it was read."""

    m: Rectangle
    thread: int
    block: int
    units: Array
    row: int
    elements: Array
    stamps: Array
    place: Array
    inside: Array
    site: int
    committed: bool = False
    values: Array | None = None


class Storing:
    """The TMA stores of the block that runs. `state` has the words of the emulation, `units` the shared memory of a block,
    `stamps` those of each buffer; `known` has the last barrier before which all stores of a thread are known. `tally` is None
    if nothing is counted. Several teams have `team` threads each, which no barrier orders; 0 is one team."""

    def __init__(
        self, state: Array, units: Array, stamps: Sequence[Array], tally: Array | None, known: Array, team: int
    ) -> None:
        self._state = state
        self._units = units
        self._stamps = stamps
        self._tally = tally
        self._known = known
        self._team = team
        self._tiles: list[_Tile] = []

    @property
    def functions(self) -> tuple[Function, ...]:
        """What compiled code calls besides `start`, with the kinds of results and the numbers of arguments."""
        return ((self._commit, None, 1), (self._wait, None, 1))

    def end(self) -> None:
        """What was read is in the arrays, as a block ends. Tell of tiles that were not."""
        for t in self._tiles:
            if t.values is None:
                self._fault(UNREAD, t.site, t.row, 0, 0, t.thread, t.block)
                continue
            t.m.array[t.place[t.inside]] = t.values[t.inside]
            written = self._stamps[t.m.row]
            written[2 * t.place[t.inside]] &= PLAIN
        self._tiles = []

    def start(
        self,
        m: Rectangle,
        units: Array,
        row: int,
        elements: Array,
        sites: tuple[int, int],
        thread: int,
        corner: Sequence[int],
    ) -> None:
        """A thread starts to store the tile at a corner of an array from some units of shared memory, which are `elements` of
        the buffer of a row. `sites` are the statements that read it and that write the array."""
        block, (read, write) = int(self._state[BLOCK]), sites
        if self._tiles and self._tiles[0].block != block:
            self.end()
        place, inside = m.elements(corner)
        wild = inside & ((place < 0) | (place >= m.array.size))
        if wild.any():
            self._fault(OUTSIDE, write, m.row, int(place[wild][0]), 0, thread, block)
            return
        stored = self._stamps[row][2 * elements].copy()
        if self._wrong_to_read(row, elements, stored, read, thread, block):
            return
        own = place[inside]
        if self._wrong_to_write(m.row, own, write, thread, block):
            return
        now = np.int64(block + 1 << 40 | int(self._state[EPOCH]) << 12 | thread << 1)
        self._stamps[m.row][2 * own] = now | np.int64(FLAG)
        self._tiles.append(_Tile(m, thread, block, units, row, elements, stored, place, inside, read))
        if self._tally is not None:
            size = m.array.itemsize
            self._tally[read] += np.array([1, place.size * size // LINE, place.size * size // LINE])
            moved = np.unique(own * size // SECTOR).size
            self._tally[write] += np.array([1, moved, -(-own.size * size // SECTOR)])

    def _wrong_to_read(self, row: int, elements: Array, stored: Array, site: int, thread: int, block: int) -> bool:
        """Whether elements may not be read: something is in flight to them, or a store is not known to the machine."""
        plain = stored & PLAIN
        here, who = plain >> 40 == block + 1, plain >> 1 & 0x7FF
        met = same_epoch(plain, block, int(self._state[EPOCH])) & (who != thread) | here & self._strangers(who, thread)
        hidden = here & (self._known[np.where(here, who, 0)] < (plain >> 12 & (1 << 28) - 1))
        for kind, wrong in ((UNDER_WAY, here & (stored < 0)), (RACE, met), (UNKNOWN, hidden)):
            if wrong.any():
                at = int(wrong.argmax())
                self._fault(kind, site, row, int(elements[at]), int(plain[at]), thread, block)
                return True
        return False

    def _wrong_to_write(self, row: int, own: Array, site: int, thread: int, block: int) -> bool:
        """Whether elements of an array may not be written: others access them without a barrier between."""
        for n in (0, 1):
            found = self._stamps[row][2 * own + n]
            plain = found & PLAIN
            strange = (plain != 0) & (plain >> 40 != block + 1)
            who, here = plain >> 1 & 0x7FF, (plain != 0) & ~strange
            met = same_epoch(plain, block, int(self._state[EPOCH])) & ((who != thread) | (plain & 1 != 0))
            met |= here & self._strangers(who, thread)
            flying = (found < 0) & ~strange & (n == 0)
            for kind, wrong in ((UNDER_WAY, flying), (RACE, strange | met)):
                if wrong.any():
                    at = int(wrong.argmax())
                    self._fault(kind, site, row, int(own[at]), int(plain[at]), thread, block)
                    return True
        return False

    def _strangers(self, threads: Array, thread: int) -> Array:
        """Which of some threads are in another team than this one."""
        return threads // self._team != thread // self._team if self._team else np.zeros(threads.shape, np.bool_)

    def _commit(self, thread: int) -> None:
        for t in self._tiles:
            t.committed |= t.thread == thread

    def _wait(self, thread: int) -> None:
        """What this thread has committed is read now."""
        for t in self._tiles:
            if t.thread == thread and t.committed and t.values is None and t.block == self._state[BLOCK]:
                self._read(t)
        self._state[PROGRESS] += 1

    def _read(self, t: _Tile) -> None:
        stamps = self._stamps[t.row]
        found = stamps[2 * t.elements]
        changed = found != t.stamps
        if changed.any():
            at = int(changed.argmax())
            self._fault(REUSED, t.site, t.row, int(t.elements[at]), int(found[at] & PLAIN), t.thread, t.block)
        t.values = self._units[t.units].reshape(-1).view(t.m.array.dtype).copy()
        now = np.int64(t.block + 1 << 40 | int(self._state[EPOCH]) << 12)
        own, read = now | np.int64(t.thread << 1), stamps[2 * t.elements + 1]
        stamps[2 * t.elements + 1] = np.where(read < now, own, np.where(read == own, read, read | 1))

    def _fault(self, kind: int, site: int, row: int, element: int, other: int, thread: int, block: int) -> None:
        note_fault(self._state, kind, site=site, row=row, element=element, other=other, thread=thread, block=block)


def rectangle(e: Encoding, arrays: Mapping[str, Array], rows: Sequence[str], sizes: Sizes) -> Rectangle:
    """A map for arrays and sizes of a call; `rows` are the arrays of a kernel."""
    a = arrays[e.array]
    bits = a.reshape(-1).view(np.dtype(f"u{a.itemsize}"))
    steps = (1, *(evaluate_size(x, sizes) // a.itemsize for x in e.strides))
    return Rectangle(
        bits, rows.index(e.array), tuple(evaluate_size(x, sizes) for x in e.sizes), steps, e.box, 16 << e.swizzle
    )


Function = tuple[Callable[..., Any], Any, int]
"""A function, the kind of its result, and the number of its arguments, which are words."""


class Callbacks:
    """Functions that compiled code calls, by their addresses in `table`. They cannot raise there, so that what one raises is
    kept for `end`."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self._error: BaseException | None = None
        words = [ctypes.c_int64]
        self._called = [ctypes.CFUNCTYPE(kind, *words * n)(self._kept(f)) for f, kind, n in functions]
        self.table = np.array([ctypes.cast(f, ctypes.c_void_p).value for f in self._called], np.int64)

    def _kept(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: int) -> Any:
            try:
                return f(*args)
            except BaseException as e:
                self._error = self._error or e
                return 1

        return called

    def end(self) -> None:
        """Raises what went wrong in the emulation itself."""
        if self._error is not None:
            raise self._error


@dataclass(slots=True)
class _Copy:
    """A tile under way: its values, their units of shared memory, and the elements of the buffer there."""

    values: Array
    units: Array
    row: int
    elements: Array


class _Mbarrier:
    """An mbarrier: the arrivals of a phase, of warps or of the thread that expects bytes, how many of these are missing,
    and how many bytes are missing. `known` is how often the warps that arrived had released something, by the numbers of
    their blocks in the cluster and their own, `last` the same of the phase before. `words` are those that `phases` reads."""

    def __init__(self, words: Array, of: int, met: int, expected: int = 1) -> None:
        self.expected = self.pending = expected
        self.bytes = 0
        self.copies: list[_Copy] = []
        self.known: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.words = words
        words[:] = -1
        words[OF], words[OVER], words[MET], words[TOLD], words[COPIES] = of + 1, 0, met, 0, 0

    @property
    def over(self) -> int:
        """How many phases are over."""
        return int(self.words[OVER])

    def settle(self) -> bool:
        """Whether the phase ends here, which is so if no arrival and no byte is missing."""
        self.words[COPIES] = len(self.copies)
        if self.pending or self.bytes:
            return False
        self.pending = self.expected
        self.words[OVER] += 1
        self.last, self.known = self.known, {}
        self.words[TOLD], self.words[WAITED:] = bool(self.last), -1
        return True


@frozen
class Released:
    """What passes between roles: the first `users` threads, 0 without roles, read what others fetch, each `team` of so many
    in turn, or 0 if all do. `counts` has how often each warp has released something; `times`, of the buffers that are
    loaded, one more than that as of the last read by each warp of each element."""

    users: int
    team: int
    counts: Array
    times: Mapping[int, Array]


class Landing:
    """The mbarriers of the block that runs. `state` has the words of the emulation, `stamps` those of each buffer; `shared`
    is the memory of a block, and `first` the number of the first of its `buffers` among all. `tally` is None if nothing is
    counted."""

    def __init__(
        self,
        maps: Sequence[Rectangle],
        state: Array,
        shared: Array,
        buffers: Sequence[Shared],
        first: int,
        stamps: Sequence[Array],
        tally: Array | None,
        released: Released,
        known: Array,
    ) -> None:
        self._released = released
        self._known = np.zeros((1, *released.counts.shape), released.counts.dtype)
        self._cluster: Sequence[Landing] = (self,)
        self._rank = 0
        self._restarted()
        self._maps = maps
        self._state = state
        self._units = shared[: len(shared) // UNIT * UNIT].reshape(-1, UNIT)
        self._buffers = buffers
        self._first = first
        self._stamps = stamps
        self._tally = tally
        self._storing = Storing(state, self._units, stamps, tally, known, released.team)
        self._mbarriers: list[_Mbarrier] = []
        self.phases: Array = np.zeros(MOST_MBARRIERS * PHASE_WORDS, np.int64)
        """The words of each mbarrier."""
        self._armed = -1
        kinds: tuple[Function, ...] = (
            (self._arm, None, 2),
            (self._expect, None, 3),
            (self._box, None, 12),
            (self._passed, ctypes.c_int64, 3),
            (self._release, None, 3),
            (self._put_out, None, 11),
            *self._storing.functions,
            (self._meet, ctypes.c_int64, 1),
        )
        self._calls = Callbacks(kinds)
        self.table = self._calls.table
        """The addresses of the functions: to set up mbarriers, to expect bytes, to start a TMA load, to ask whether a
        phase is over, to say that a warp has read; to start a TMA store, to commit those of a thread, to wait for them; to
        meet the other blocks of the cluster."""

    def join(self, cluster: Sequence[Landing]) -> None:
        """The block that runs here is one of a cluster, which has the blocks that run in these places."""
        self._cluster, self._rank = cluster, list(cluster).index(self)
        self._known = np.zeros((len(cluster), *self._released.counts.shape), self._released.counts.dtype)

    def begin(self) -> None:
        """A block of a cluster begins."""
        self._armed = -1
        self._restarted()

    def _restarted(self) -> None:
        self._met = 0
        """How often the block has come to a barrier of its cluster."""
        self._met_at = -1
        self._armed_at = 0
        self._reached = -1
        """How often the blocks that have accessed this one had come to such a barrier, at most."""
        self._ended = False

    def finish(self) -> None:
        """A block of a cluster ends, which no other one accesses any more."""
        self.end()
        self._ended = True
        if self._reached >= self._met:
            self._fault(GONE, 0, 0, 0, 0)

    def _meet(self, thread: int) -> int:
        """Whether all blocks of a cluster have come to the barrier of it at which a thread is."""
        if self._met_at != self._state[EPOCH]:
            self._met_at = int(self._state[EPOCH])
            self._met += 1
            self._state[PROGRESS] += 1
        if not all(x._ended or x._met >= self._met for x in self._cluster):
            return 0
        self._state[PROGRESS] += 1
        return 1

    def _places_of(self, blocks: int) -> list[Landing]:
        """Where the blocks of a cluster are whose numbers are bits; this one if there are none. Those that are not known to
        have set up their mbarriers, or to go on until they were accessed, are reported."""
        out: list[Landing] = []
        for rank, x in enumerate(self._cluster):
            if not blocks and x is self:
                out.append(x)
            if not blocks >> rank & 1:
                continue
            if x is not self:
                if x._ended:
                    self._fault(GONE, 0, 0, 0, 0)
                    continue
                if x._armed != x._state[BLOCK] or self._met <= x._armed_at:
                    self._fault(UNARMED, 0, 0, 0, 0)
                    continue
                x._reached = max(x._reached, self._met)
            out.append(x)
        if blocks >> len(self._cluster):
            self._fault(GONE, 0, 0, 0, 0)
        return out

    def end(self) -> None:
        """Tell of tiles that are still under way as a block ends. Raises what went wrong in the emulation itself."""
        self._calls.end()
        self._storing.end()
        if any(a.copies or a.bytes for a in self._mbarriers):
            self._fault(STILL, 0, 0, 0, 0)
        self._mbarriers = []
        self.phases.fill(0)

    def _arm(self, number: int, warps: int) -> None:
        if number == 0:
            self.end()
            self._armed, self._armed_at = int(self._state[BLOCK]), self._met
            for each in (self._known, self._released.counts, *self._released.times.values()):
                each.fill(0)
        each = max(warps, 1)
        self._mbarriers[number:] = [self._new(number, int(self._state[EPOCH]), each)]

    def _new(self, number: int, met: int, expected: int) -> _Mbarrier:
        known = number < MOST_MBARRIERS
        words = self.phases[number * PHASE_WORDS :][:PHASE_WORDS] if known else np.zeros(PHASE_WORDS, np.int64)
        return _Mbarrier(words, int(self._state[BLOCK]), met, expected)

    def _at(self, number: int) -> _Mbarrier:
        """An mbarrier; one that is not initialised is reported."""
        if self._armed != self._state[BLOCK]:
            self._fault(UNARMED, 0, 0, 0, 0)
            self._arm(0, 0)
        while number >= len(self._mbarriers):
            self._fault(UNARMED, 0, 0, 0, 0)
            self._mbarriers.append(self._new(len(self._mbarriers), -1, 1))
        return self._mbarriers[number]

    def _expect(self, number: int, size: int, thread: int) -> None:
        a = self._at(number)
        if not self._is_user(thread):
            warps = self._released.users // LANES
            # A warp that has not waited for the last phase would wait for the next but one, which has the same parity.
            waited, known = a.words[WAITED:][:warps], self._known[self._rank, :warps]
            there = ((waited >= 0) & (waited < known)).reshape(
                -1, (self._released.team or self._released.users) // LANES
            )
            if a.over and not there.all(axis=1).any():  # all warps of the team whose bytes come with this mbarrier
                self._fault(LATE, 0, 0, 0, 0)
        elif a.over and a.words[MET] == self._state[EPOCH]:
            self._fault(UNMET, 0, 0, 0, 0)
        a.pending -= 1
        a.bytes += size
        self._state[PROGRESS] += 1
        a.settle()

    def _passed(self, number: int, parity: int, thread: int) -> int:
        """Whether the phase with a parity is over: if not, what is under way lands, tile by tile, until it is."""
        a = self._at(number)
        own = self._is_user(thread)
        if own and thread and not a.over and a.words[MET] == self._state[EPOCH]:
            self._fault(UNMET, 0, 0, 0, 0)
        while a.over % 2 == parity:
            if not a.copies:
                return 0
            self._land(a)
        if own and thread and a.over:  # else it began as if all had come, for each thread
            a.words[MET] = self._state[EPOCH]
        if own:
            a.words[WAITED + thread // LANES] = self._released.counts[thread // LANES]
        else:
            for warp, count in a.last.items():
                self._known[warp] = max(self._known[warp], count)  # of a block of the cluster
        self._state[PROGRESS] += 1
        return 1

    def _is_user(self, thread: int) -> bool:
        """Whether a thread uses what is loaded, as all do where there are no roles."""
        return not self._released.users or thread < self._released.users

    def _release(self, number: int, thread: int, blocks: int) -> None:
        """A warp has read what it has waited for: who waits for this phase, in its block or in so many of a cluster, knows
        of all that it has released until here."""
        warp, counts = thread // LANES, self._released.counts
        counts[warp] += 1
        for x in self._places_of((1 << blocks) - 1 if blocks > 1 else 0):
            a = x._at(number)
            a.known[self._rank, warp] = int(counts[warp])
            a.pending -= 1
            x._state[PROGRESS] += 1
            a.settle()

    def _land(self, a: _Mbarrier) -> None:
        c = a.copies.pop(0)
        self._units[c.units] = c.values
        self._stamps[c.row][2 * c.elements] = 0  # threads that wait for it may access it
        a.bytes -= c.values.size
        self._state[PROGRESS] += 1
        a.settle()

    def _box(self, number: int, place: int, at: int, row: int, read: int, write: int, *others: int) -> None:
        m, (*corner, blocks) = self._maps[number], others
        values = self._read(m, corner, read)
        units, elements = self._places(m, place, row)
        if not self._is_there(place, row, write, elements):
            return
        for x in self._places_of(blocks):
            x._start(row, write, elements, self._known[x._rank])
            if self._tally is not None:
                self._tally[write] += np.array([1, values.size // LINE, values.size // LINE])
            a = x._at(at)
            a.copies.append(_Copy(values, units, row, elements))
            a.words[COPIES] = len(a.copies)
            x._state[PROGRESS] += x is not self

    def _put_out(self, number: int, place: int, thread: int, row: int, read: int, write: int, *corner: int) -> None:
        m = self._maps[number]
        units, elements = self._places(m, place, row)
        if self._is_there(place, row, read, elements):
            self._storing.start(m, units, row, elements, (read, write), thread, corner)

    def _places(self, m: Rectangle, place: int, row: int) -> tuple[Array, Array]:
        """The units of shared memory of a tile at a place, and the elements of the buffer of a row there."""
        b, count = self._buffers[row - self._first], prod(m.box) * m.array.itemsize // UNIT
        units = _permuted(place // UNIT + np.arange(count), m.swizzle)
        each = UNIT // b.dtype.bytes
        return units, ((units - b.offset // UNIT)[:, None] * each + np.arange(each)).reshape(-1)

    def _is_there(self, place: int, row: int, site: int, elements: Array) -> bool:
        """Whether a tile begins where it may, and is inside of its buffer; one that is not is reported."""
        if place % LINE:
            self._fault(MISALIGNED, site, row, int(elements[0]), LINE)
        elif elements.min() < 0 or elements.max() >= self._buffers[row - self._first].size:
            self._fault(OUTSIDE, site, row, int(elements.max()), 0)
        else:
            return True
        return False

    def _read(self, m: Rectangle, corner: Sequence[int], site: int) -> Array:
        """The units of a tile: zeros where it is outside of the array."""
        if self._tally is None and all(
            c >= 0 and c + n <= size for c, n, size in zip(corner, m.box, m.sizes, strict=False)
        ):
            begin = sum(c * n for c, n in zip(corner, m.steps, strict=False))
            if begin >= 0 and begin + sum((n - 1) * x for n, x in zip(m.box, m.steps, strict=True)) < m.array.size:
                steps = [n * m.array.itemsize for n in m.steps[::-1]]
                whole = np.lib.stride_tricks.as_strided(m.array[begin:], m.box[::-1], steps)
                return np.ascontiguousarray(whole).reshape(-1).view(np.uint8).reshape(-1, UNIT)
        place, inside = m.elements(corner)
        wild = inside & ((place < 0) | (place >= m.array.size))
        if wild.any():
            self._fault(OUTSIDE, site, m.row, int(place[wild][0]), 0)
        found = np.where(inside & ~wild, place, 0)
        values = np.where(inside, m.array[found], m.array.dtype.type(0))
        if self._tally is not None:
            size = m.array.itemsize
            moved = np.unique(place[inside] * size // SECTOR).size
            self._tally[site] += np.array([1, moved, -(-int(inside.sum()) * size // SECTOR)])
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(-1, UNIT)

    def _start(self, row: int, site: int, elements: Array, known: Array) -> None:
        """Look at the stamps of elements to which a tile is started, and mark them. `known` is how often each warp is known
        to have released something."""
        block, epoch = int(self._state[BLOCK]), int(self._state[EPOCH])
        first, last = int(elements.min()), int(elements.max()) + 1
        which = slice(first, last) if last - first == elements.size else elements
        """The elements in any order: those of a tile mostly follow each other."""
        numbers = np.arange(first, last) if isinstance(which, slice) else elements
        stamps = self._stamps[row][: 2 * self._buffers[row - self._first].size].reshape(-1, 2)
        for n in (0, 1):
            found = stamps[which, n]
            plain = found & PLAIN
            flying = (found < 0) & (n == 0) & ((plain >> 40) == block + 1)
            if flying.any():
                self._fault(UNDER_WAY, site, row, int(numbers[flying.argmax()]), 0)
                return
            if row in self._released.times:
                continue
            met = same_epoch(plain, block, epoch) & (((plain >> 1) & 0x7FF != 0) | (plain & 1 != 0))
            if met.any():
                at = int(met.argmax())
                self._fault(RACE, site, row, int(numbers[at]), int(plain[at]))
                return
        if row in self._released.times:
            times = self._released.times[row]
            late = times[:, which] > known[: len(times), None].astype(np.int32)
            if late.any():
                self._fault(HELD, site, row, int(numbers[late.any(axis=0).argmax()]), 0)
                return
            stamps[which, 1] = 0  # what they say is older than what was released
        stamps[which, 0] = np.int64((block + 1) << 40 | epoch << 12) | np.int64(FLAG)

    def _fault(self, kind: int, site: int, row: int, element: int, other: int) -> None:
        loads = self._released.users  # the thread that does
        note_fault(self._state, kind, site=site, row=row, element=element, other=other, thread=loads)


def _permuted(units: Array, swizzle: int) -> Array:
    """The places of units of 16 bytes: bits 7 and up of an address are added to bits 4 and up, as many as a swizzle has."""
    return units ^ (units >> 3 & swizzle // UNIT - 1)
