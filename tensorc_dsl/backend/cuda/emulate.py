"""Runs kernels of a GPU on the CPU, thread by thread, and says what is wrong with them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.cuda.codegen.coroutine import emulation_module
from tensorc_dsl.backend.cuda.codegen.factors import BESIDE_WORDS
from tensorc_dsl.backend.cuda.codegen.rendezvous import warp_bytes
from tensorc_dsl.backend.cuda.codegen.tally import LOG_WORDS, TALLY_WORDS
from tensorc_dsl.backend.cuda.codegen.threads import Site
from tensorc_dsl.backend.cuda.codegen.under_way import QUEUE_WORDS
from tensorc_dsl.backend.cuda.codegen.watch import (
    APART,
    AT_BLOCK,
    AT_THREAD,
    BESIDE,
    CHANGED,
    COUNT,
    EARLY,
    ELEMENT,
    EPOCH,
    HELD,
    KIND,
    LANDING,
    LATE,
    LOGS,
    MARKS,
    MISALIGNED,
    OTHER,
    OUTSIDE,
    PROXY,
    QUEUES,
    RELEASED,
    ROW,
    ROW_WORDS,
    SITE,
    SPARE,
    STAMPS,
    STATE_WORDS,
    STILL,
    STUCK,
    TALLY,
    TOUCHED,
    UNARMED,
    UNDER_WAY,
    UNKNOWN,
    UNMET,
    WARPS,
    WARPS_OF_BLOCK,
    stamp,
)
from tensorc_dsl.backend.cuda.landing import Landing, Released, rectangle
from tensorc_dsl.backend.cuda.lower.descriptors import ALIGNMENT
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, DeviceProgram, slots_of, users_of
from tensorc_dsl.backend.cuda.lower.work import most_statements
from tensorc_dsl.backend.cuda.maps import encoding_of
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.host import host_processor
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import ORDERS, CompileError, Counts, Traffic
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import LANES

SPARE_BYTES = 1024
"""The size of the memory for accesses that are out of bounds, which is more than a vector has."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """Kernels as code for this CPU. `run` may be called again and again."""

    program: DeviceProgram
    addresses: tuple[int, ...]
    code: tuple[llvm.LLJIT, llvm.ResourceTracker]
    """What the addresses point into, which lives as long as this object."""
    sites: tuple[Site, ...]

    def run(self, arrays: Mapping[str, Array], sizes: Sizes, order: str) -> str:
        """Run all kernels on arrays of the parameters, in one of the protocol's `ORDERS`.

        Returns what is wrong with the first that has a fault, or "". Arrays that are written are changed.
        """
        return self._all(arrays, sizes, order, None)

    def count(self, arrays: Mapping[str, Array], sizes: Sizes) -> tuple[str, tuple[Counts, ...]]:
        """As `run` in the first order, with what each kernel costs."""
        counts: list[Counts] = []
        fault = self._all(arrays, sizes, ORDERS[0], counts)
        return fault, tuple(counts)

    def _all(self, arrays: Mapping[str, Array], sizes: Sizes, order: str, counts: list[Counts] | None) -> str:
        every = dict(arrays)
        for s in self.program.scratch:
            every[s.name] = aligned_empty((evaluate_size(s.size, sizes),), stored_dtype(s.dtype))
            every[s.name].view(np.uint8).fill(0xFF)
        for k, address in zip(self.program.kernels, self.addresses, strict=True):
            if fault := self._run(k, address, every, sizes, order, counts):
                return fault
        return ""

    def _run(
        self,
        k: DeviceKernel,
        address: int,
        arrays: Mapping[str, Array],
        sizes: Sizes,
        order: str,
        counts: list[Counts] | None,
    ) -> str:
        state, marks = np.zeros(STATE_WORDS, np.int64), np.zeros(k.threads, np.int64)
        spare, shared = (
            aligned_empty((SPARE_BYTES,), np.dtype(np.uint8)),
            aligned_empty((k.shared_bytes + ALIGNMENT,), np.dtype(np.uint8)),
        )
        start = -shared.ctypes.data % ALIGNMENT
        warps = aligned_empty((2 * -(-k.threads // LANES) * warp_bytes(k) + 1,), np.dtype(np.uint8))
        queues = np.zeros(QUEUE_WORDS * k.threads, np.int64)
        state[MARKS], state[SPARE], state[WARPS] = marks.ctypes.data, spare.ctypes.data, warps.ctypes.data
        state[QUEUES] = queues.ctypes.data
        beside = np.zeros(BESIDE_WORDS * k.threads, np.int64)
        state[BESIDE] = beside.ctypes.data
        logs, tally = np.zeros(LOG_WORDS * LANES, np.int64), np.zeros((len(self.sites) + 1, TALLY_WORDS), np.int64)
        if counts is not None:
            state[LOGS], state[TALLY] = logs.ctypes.data, tally.ctypes.data
        rows: list[int] = []
        stamps: list[Array] = []
        for name in k.params:
            a = arrays[name]
            stamps.append(np.zeros(STAMPS * max(a.size, 1), np.int64))
            rows += [a.ctypes.data, a.nbytes, a.itemsize, stamps[-1].ctypes.data, 0, 0]
        times: dict[int, Array] = {}
        slots = slots_of(k.body)
        for b in k.shared:
            if b.name in slots:
                times[len(stamps)] = np.zeros((b.size, WARPS_OF_BLOCK), np.int32)
            stamps.append(np.zeros(STAMPS * b.size, np.int64))
            rows += [
                shared.ctypes.data + start + b.offset,
                b.size * b.dtype.bytes,
                b.dtype.bytes,
                stamps[-1].ctypes.data,
                1,
                times[len(stamps) - 1].ctypes.data if b.name in slots else 0,
            ]
        table, handles = np.array(rows or [0] * ROW_WORDS, np.int64), np.zeros(k.threads, np.uint64)
        turns = _turns(order, k.threads)
        grid = [evaluate_size(n, sizes) for n in k.grid]
        given = [ctypes.c_void_p(a.ctypes.data) for a in (state, table)]
        given += [
            ctypes.c_void_p(shared.ctypes.data + start),
            *(ctypes.c_void_p(a.ctypes.data) for a in (handles, turns)),
        ]
        more = [ctypes.c_void_p(arrays[name].ctypes.data) for name in k.params]
        whole = [*grid, *(sizes[d.name] for d in self.program.dims)]
        kinds = (
            [ctypes.c_void_p] * 5
            + [ctypes.c_int64] * 3
            + [ctypes.c_void_p] * len(more)
            + [ctypes.c_int64] * (len(whole) - 3)
        )
        maps = [rectangle(encoding_of(m), arrays, k.params, sizes) for m in k.maps]
        counted = None if counts is None else tally
        released = Released(users_of(k), np.zeros(WARPS_OF_BLOCK, np.int64), times)
        state[RELEASED] = released.counts.ctypes.data
        landing = Landing(maps, state, shared[start:], k.shared, len(k.params), stamps, counted, released)
        state[LANDING] = landing.table.ctypes.data
        function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)
        function(*given, *whole[:3], *more, *whole[3:])
        landing.end()
        if state[COUNT]:
            return self._said(k, state)
        if counts is not None:
            counts.append(Counts(k.name, int(np.prod(grid)), max(int(state[EPOCH]) - 1, 0), self._traffic(k, tally)))
        return ""

    def _traffic(self, k: DeviceKernel, tally: Array) -> tuple[Traffic, ...]:
        """The accesses of a kernel that were made, in the order of its text, with their counts."""
        found: dict[tuple[str, str, bool, bool], Array] = {}
        for site, row in zip(self.sites, tally[:-1], strict=True):
            if site.kernel == k.name and row[0]:
                name = (site.into, site.buffer, site.write, site.shared)
                found[name] = found[name] + row if name in found else row
        return tuple(Traffic(*name, *map(int, row)) for name, row in found.items())

    def _said(self, k: DeviceKernel, state: Array) -> str:
        """The first fault as a sentence."""
        kind, site, row, element, thread, other, block = (
            int(state[n]) for n in (KIND, SITE, ROW, ELEMENT, AT_THREAD, OTHER, AT_BLOCK)
        )
        count = int(state[COUNT])
        more = f" ({count} faults)" if count > 1 else ""
        where = f"in `{k.name}`, {_who(thread)} of block {block}"
        if kind == APART:
            return f"{where} and thread {other} come to different barriers or instructions{more}"
        if kind == STUCK and users_of(k):
            return f"{where} waits at an arrival for what does not come, boxes or the release of others{more}"
        if kind in _OF_ARRIVALS:
            return f"{where} {_OF_ARRIVALS[kind]}{more}"
        if kind in (TOUCHED, EARLY):
            does, lacks = (
                ("starts", "is not done with its sums") if kind == TOUCHED else ("runs", "has not waited for its sums")
            )
            return f"{where} {does} `{self.sites[site].statement}`, and {lacks}{more}"
        name = (*k.params, *(b.name for b in k.shared))[row]
        at = f"element {element} of `{name}` in `{self.sites[site].statement}`"
        if kind == OUTSIDE:
            return f"{where} accesses {at}, which is out of bounds{more}"
        if kind == UNDER_WAY:
            return f"{where} accesses {at}, to which a copy is under way{more}"
        if kind == MISALIGNED:
            return f"{where} accesses {at}, whose address is not a multiple of {other}{more}"
        theirs, mate = stamp(other)
        if kind == CHANGED:
            return f"{where} reads {at}, which thread {mate} has stored before the instruction was waited for{more}"
        if kind == UNKNOWN:
            return f"{where} reads {at}, which thread {mate} has stored, and not made known to it{more}"
        who = "others" if other == -1 else _who(mate) + (f" of block {theirs}" if theirs != block else "")
        return f"{where} and {who} meet without a barrier between them at {at}{more}"


_OF_ARRIVALS = {
    UNARMED: "uses an arrival for boxes that is not set up",
    STUCK: "waits for boxes, and not all the bytes that it was told of come",
    HELD: "starts boxes where a warp may still read what has come before",
    LATE: "and others are at different phases of an arrival",
    UNMET: "and others meet without a barrier between them at an arrival for boxes",
    STILL: "ends while boxes are under way",
}


def _who(thread: int) -> str:
    """A thread, or the instructions of a warpgroup, which run beside it."""
    return f"thread {thread}" if thread < PROXY else f"an instruction of warpgroup {thread - PROXY}"


_CONVERSIONS = "+f16c"
"""The instructions of x86 for f16. Nothing else of this CPU is used, so that results are the same on all."""


def _turns(order: str, threads: int) -> Array:
    forward = np.arange(threads, dtype=np.int64)
    match order:
        case "forward":
            return forward
        case "reversed":
            return np.ascontiguousarray(forward[::-1])
        case _:
            return np.random.default_rng(0).permutation(forward)


_SHORT = 40
"""The statements of all threads for each character of LLVM's text up to which kernels run sooner as they are than after they
were optimised: a character takes about 2 µs, and without that a statement takes 50 ns longer in three orders of threads."""


def emulation(p: DeviceProgram) -> Emulation:
    """The kernels, compiled for this CPU. Raises CompileError."""
    text, sites = emulation_module(p)
    target = Target(features=",".join({*host_processor().features.split(",")} & {_CONVERSIONS}))
    machine = Machine(target, optimises=most_statements(p) > _SHORT * len(text))
    try:
        jit = llvm.create_lljit_compiler(machine.machine)
        library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
        names = [f"{k.name}.run" for k in p.kernels]
        for name in names:
            library.export_symbol(name)
        tracker = library.link(jit, "emulation")
    except RuntimeError as e:
        raise CompileError(str(e)) from e
    return Emulation(p, tuple(int(tracker[name]) for name in names), (jit, tracker), sites)
