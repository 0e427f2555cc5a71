"""Blocks that run side by side in the emulation, and the memory through which they wait for each other.

A few blocks are resident at one time, as on a machine. Others begin when one has ended, in an order that is drawn: a machine
promises none. Residents run in turns, in rounds whose order is drawn, so each of them runs again and again, as the machine
promises of blocks that have begun. Where none of them comes further and none can begin, they wait for ever.

Words that blocks pass on follow the views of Kang et al. (A Promising Semantics for Relaxed-Memory Concurrency, POPL 2017)
without their promises, a stricter reading of PTX's memory model: each word keeps all values that it had, and a block has seen
each word up to some value. A load returns that value or any later one, whichever is drawn. So stores are seen late, and in
another order than they were made, unless a release and an acquire of what it stored pass a view on. An old value is drawn a
few times only, so that a block that waits for a new one gets it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tensorc_dsl.backend.cuda.codegen.device import CALLS, SEEN
from tensorc_dsl.backend.cuda.emulation.scheduler import OVER
from tensorc_dsl.backend.cuda.emulation.watch import ASTRAY, AT_BLOCK, BLOCK, COUNT, ELEMENT, KIND, ROW, STUCK, UNSEEN
from tensorc_dsl.ir.arrays import Array

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
        self._error: BaseException | None = None
        functions = {"take": (self._take, 1), "put": (self._put, 3), "get": (self._get, 2)}
        kinds = [functions[name] for name in CALLS]
        self._called = [ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * n)(self._kept(f)) for f, n in kinds]
        self.table = np.array([ctypes.cast(f, ctypes.c_void_p).value for f in self._called], np.int64)
        """The addresses of `CALLS`."""

    def end(self) -> None:
        """Raises what went wrong in the emulation itself."""
        if self._error is not None:
            raise self._error

    def _kept(self, f: Callable[..., int]) -> Callable[..., int]:
        """A function that compiled code calls: it cannot raise there."""

        def called(*args: int) -> int:
            try:
                return f(*args)
            except BaseException as e:
                self._error = self._error or e
                return 0

        return called

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
        s = self.state
        s[COUNT] += 1
        if s[COUNT] == 1:
            row, base, _ = next((x for x in self._arrays if 0 <= address - x[1] < x[2].nbytes), self._arrays[0])
            s[KIND], s[ROW], s[ELEMENT], s[AT_BLOCK] = kind, row, (address - base) // _WORD, s[BLOCK]


class Resident(Protocol):
    """Room for a block that runs: the words of its emulation."""

    state: Array


@dataclass(frozen=True, slots=True)
class Kernel:
    """The functions of `runner` for blocks side by side: `begin` makes a block of a number, `go` runs it on."""

    begin: Callable[[Any, int], None]
    go: Callable[[Any, bool], int]


def side_by_side(
    blocks: int, rooms: Sequence[Resident], kernel: Kernel, memory: Memory, rng: np.random.Generator
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
            memory.end()
            if rooms[n].state[COUNT]:
                return
            running[n] = True
            ended += [n] if over else []
        free += ended
        running = {n: True for n in running if n not in ended}
        stands = memory.progress == before and not ended and not (waiting and free)
        still = still + 1 if stands else 0
        if still > _STILL + _OLD * len(rooms):
            state = rooms[min(running)].state
            state[COUNT], state[KIND], state[AT_BLOCK] = 1, STUCK, state[BLOCK]
            return
