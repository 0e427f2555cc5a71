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
from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.backend.cuda.codegen.phases import COPIES, MET, OF, OVER, PHASE_WORDS, TOLD, WAITED
from tensorc_dsl.backend.cuda.codegen.watch import (
    AT_BLOCK,
    AT_THREAD,
    BLOCK,
    COUNT,
    ELEMENT,
    EPOCH,
    FLAG,
    HELD,
    KIND,
    LATE,
    MISALIGNED,
    OTHER,
    OUTSIDE,
    PLAIN,
    PROGRESS,
    RACE,
    ROW,
    SITE,
    STILL,
    UNARMED,
    UNDER_WAY,
    UNMET,
    same_epoch,
)
from tensorc_dsl.backend.cuda.lower.kernels import MOST_MBARRIERS, Shared
from tensorc_dsl.backend.cuda.maps import Encoding
from tensorc_dsl.backend.cuda.storing import LINE, SECTOR, UNIT, Rectangle, Storing
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.warp import LANES


def rectangle(e: Encoding, arrays: Mapping[str, Array], rows: Sequence[str], sizes: Sizes) -> Rectangle:
    """A map for arrays and sizes of a call; `rows` are the arrays of a kernel."""
    a = arrays[e.array]
    bits = a.reshape(-1).view(np.dtype(f"u{a.itemsize}"))
    steps = (1, *(evaluate_size(x, sizes) // a.itemsize for x in e.strides))
    return Rectangle(
        bits, rows.index(e.array), tuple(evaluate_size(x, sizes) for x in e.sizes), steps, e.box, 16 << e.swizzle
    )


@dataclass(slots=True)
class _Copy:
    """A tile under way: its values, their units of shared memory, and the elements of the buffer there."""

    values: Array
    units: Array
    row: int
    elements: Array


class _Mbarrier:
    """An mbarrier: the arrivals of a phase, of warps or of the thread that expects bytes, how many of these are missing,
    and how many bytes are missing. `known` is how often the warps that arrived had released something, `last` the same of
    the phase before. `words` are those that `phases` reads."""

    def __init__(self, words: Array, of: int, met: int, expected: int = 1) -> None:
        self.expected = self.pending = expected
        self.bytes = 0
        self.copies: list[_Copy] = []
        self.known: dict[int, int] = {}
        self.last: dict[int, int] = {}
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


@dataclass(frozen=True, slots=True)
class Released:
    """What passes between roles: the first `users` threads, 0 without roles, read what others fetch. `counts` has how often
    each warp has released something; `times`, of the buffers that are loaded, one more than that as of the last read by each
    warp of each element."""

    users: int
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
        self._known = np.zeros_like(released.counts)
        self._maps = maps
        self._state = state
        self._units = shared[: len(shared) // UNIT * UNIT].reshape(-1, UNIT)
        self._buffers = buffers
        self._first = first
        self._stamps = stamps
        self._tally = tally
        self._storing = Storing(state, self._units, stamps, tally, known)
        self._mbarriers: list[_Mbarrier] = []
        self.phases: Array = np.zeros(MOST_MBARRIERS * PHASE_WORDS, np.int64)
        """The words of each mbarrier."""
        self._armed = -1
        kinds: tuple[tuple[Callable[..., Any], Any, int], ...] = (
            (self._arm, None, 2),
            (self._expect, None, 3),
            (self._box, None, 11),
            (self._passed, ctypes.c_int64, 3),
            (self._release, None, 2),
            (self._put_out, None, 11),
            *self._storing.functions,
        )
        self._error: BaseException | None = None
        self._called = [ctypes.CFUNCTYPE(kind, *([ctypes.c_int64] * n))(self._kept(f)) for f, kind, n in kinds]
        self.table = np.array([ctypes.cast(f, ctypes.c_void_p).value for f in self._called], np.int64)
        """The addresses of the functions: to set up mbarriers, to expect bytes, to start a TMA load, to ask whether a
        phase is over, to say that a warp has read; to start a TMA store, to commit those of a thread, to wait for them."""

    def _kept(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """A function that compiled code calls: it cannot raise there, so that what it raises is kept for `end`."""

        def called(*args: int) -> Any:
            try:
                return f(*args)
            except BaseException as e:
                self._error = self._error or e
                return 1

        return called

    def end(self) -> None:
        """Tell of tiles that are still under way as a block ends. Raises what went wrong in the emulation itself."""
        if self._error is not None:
            raise self._error
        self._storing.end()
        if any(a.copies or a.bytes for a in self._mbarriers):
            self._fault(STILL, 0, 0, 0, 0)
        self._mbarriers = []
        self.phases.fill(0)

    def _arm(self, number: int, warps: int) -> None:
        if number == 0:
            self.end()
            self._armed = int(self._state[BLOCK])
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
            waited, known = a.words[WAITED:][:warps], self._known[:warps]
            if a.over and not ((waited >= 0) & (waited < known)).all():
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
        if own and thread:
            a.words[MET] = self._state[EPOCH]
        if own:
            a.words[WAITED + thread // LANES] = self._released.counts[thread // LANES]
        for warp, count in a.last.items():
            self._known[warp] = max(self._known[warp], count)
        self._state[PROGRESS] += 1
        return 1

    def _is_user(self, thread: int) -> bool:
        """Whether a thread uses what is loaded, as all do where there are no roles."""
        return not self._released.users or thread < self._released.users

    def _release(self, number: int, thread: int) -> None:
        """A warp has read what it has waited for: who waits for this phase knows of all that it has released until here."""
        a, warp, counts = self._at(number), thread // LANES, self._released.counts
        counts[warp] += 1
        a.known[warp] = int(counts[warp])
        a.pending -= 1
        self._state[PROGRESS] += 1
        a.settle()

    def _land(self, a: _Mbarrier) -> None:
        c = a.copies.pop(0)
        self._units[c.units] = c.values
        self._stamps[c.row][2 * c.elements] = 0  # threads that wait for it may access it
        a.bytes -= c.values.size
        self._state[PROGRESS] += 1
        a.settle()

    def _box(self, number: int, place: int, at: int, row: int, read: int, write: int, *corner: int) -> None:
        m = self._maps[number]
        values = self._read(m, corner, read)
        units, elements = self._places(m, place, row)
        if not self._is_there(place, row, write, elements):
            return
        self._start(row, write, elements)
        if self._tally is not None:
            self._tally[write] += np.array([1, values.size // LINE, values.size // LINE])
        a = self._at(at)
        a.copies.append(_Copy(values, units, row, elements))
        a.words[COPIES] = len(a.copies)

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

    def _start(self, row: int, site: int, elements: Array) -> None:
        """Look at the stamps of elements to which a tile is started, and mark them."""
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
            late = times[:, which] > self._known[: len(times), None].astype(np.int32)
            if late.any():
                self._fault(HELD, site, row, int(numbers[late.any(axis=0).argmax()]), 0)
                return
            stamps[which, 1] = 0  # what they say is older than what was released
        stamps[which, 0] = np.int64((block + 1) << 40 | epoch << 12) | np.int64(FLAG)

    def _fault(self, kind: int, site: int, row: int, element: int, other: int) -> None:
        s = self._state
        s[COUNT] += 1
        if s[COUNT] == 1:
            for word, value in ((KIND, kind), (SITE, site), (ROW, row), (ELEMENT, element), (OTHER, other)):
                s[word] = value
            s[AT_THREAD], s[AT_BLOCK] = self._released.users, s[BLOCK]  # the one that loads


def _permuted(units: Array, swizzle: int) -> Array:
    """The places of units of 16 bytes: bits 7 and up of an address are added to bits 4 and up, as many as a swizzle has."""
    return units ^ (units >> 3 & swizzle // UNIT - 1)
