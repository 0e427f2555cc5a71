"""TMA stores of an emulated kernel: what the machine does, in Python.

A tile is read as late as it may be, when the thread that has started it waits for its group, and is written to the array when
its block ends. An access to an element of the array until then is an error, and so are stores to shared memory that the
machine may not see, stores to a tile that is still read, and a block that ends before its tiles were read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tensorc_dsl.backend.cuda.codegen.watch import (
    AT_BLOCK,
    AT_THREAD,
    BLOCK,
    COUNT,
    ELEMENT,
    EPOCH,
    FLAG,
    KIND,
    OTHER,
    OUTSIDE,
    PLAIN,
    PROGRESS,
    RACE,
    REUSED,
    ROW,
    SITE,
    UNDER_WAY,
    UNKNOWN,
    UNREAD,
    same_epoch,
)
from tensorc_dsl.ir.arrays import Array

UNIT, LINE, SECTOR = 16, 128, 32
"""The bytes that a swizzle keeps together, those that begin each line, and those of a sector of global memory."""


@dataclass(frozen=True, slots=True)
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
    if nothing is counted."""

    def __init__(self, state: Array, units: Array, stamps: Sequence[Array], tally: Array | None, known: Array) -> None:
        self._state = state
        self._units = units
        self._stamps = stamps
        self._tally = tally
        self._known = known
        self._tiles: list[_Tile] = []

    @property
    def functions(self) -> tuple[tuple[Callable[..., None], None, int], ...]:
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
        met = same_epoch(plain, block, int(self._state[EPOCH])) & (who != thread)
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
            met = same_epoch(plain, block, int(self._state[EPOCH])) & (
                (plain >> 1 & 0x7FF != thread) | (plain & 1 != 0)
            )
            flying = (found < 0) & ~strange & (n == 0)
            for kind, wrong in ((UNDER_WAY, flying), (RACE, strange | met)):
                if wrong.any():
                    at = int(wrong.argmax())
                    self._fault(kind, site, row, int(own[at]), int(plain[at]), thread, block)
                    return True
        return False

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
        s = self._state
        s[COUNT] += 1
        if s[COUNT] == 1:
            s[KIND], s[SITE], s[ROW], s[ELEMENT], s[OTHER] = kind, site, row, element, other
            s[AT_THREAD], s[AT_BLOCK] = thread, block
