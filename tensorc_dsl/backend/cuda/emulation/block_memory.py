"""The memory of a block that is emulated: its state, its shared memory, what is known of the elements of all buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.backend.cuda.emulation.access_costs import LOG_WORDS
from tensorc_dsl.backend.cuda.emulation.cp_async_queue import QUEUE_WORDS
from tensorc_dsl.backend.cuda.emulation.rendezvous import BESIDE_WORDS, KNOWN, warp_bytes
from tensorc_dsl.backend.cuda.emulation.tma_mbarrier import Landing, Released, rectangle
from tensorc_dsl.backend.cuda.emulation.watch import (
    BESIDE,
    FRAMES,
    LANDING,
    LOGS,
    MARKS,
    PHASES,
    QUEUES,
    RELEASED,
    ROW_WORDS,
    SPARE,
    STAMPS,
    STATE_WORDS,
    TALLY,
    WARPS,
    WARPS_OF_BLOCK,
)
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, consumers_of, staged_in
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT
from tensorc_dsl.backend.cuda.maps import encoding_of
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.warp import LANES

SPARE_BYTES = 1024
"""The size of the memory for accesses that are out of bounds, which is more than a vector has."""


@dataclass(frozen=True, slots=True)
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
        released = Released(consumers_of(k), np.zeros(WARPS_OF_BLOCK, np.int64), times)
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
