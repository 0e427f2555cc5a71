"""Runs kernels of a GPU on the CPU, thread by thread, and reports faults."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, assert_never

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.cuda.emulation.access_costs import TALLY_WORDS
from tensorc_dsl.backend.cuda.emulation.blocks import (
    RESIDENTS,
    Call,
    Kernel,
    Memory,
    Room,
    in_clusters,
    side_by_side,
)
from tensorc_dsl.backend.cuda.emulation.coroutine import emulation_module, runs_beside_others
from tensorc_dsl.backend.cuda.emulation.statements import Site
from tensorc_dsl.backend.cuda.emulation.watch import (
    APART,
    ASTRAY,
    AT_BLOCK,
    AT_THREAD,
    CHANGED,
    COUNT,
    EARLY,
    ELEMENT,
    EPOCH,
    GONE,
    HELD,
    KIND,
    LATE,
    MISALIGNED,
    OTHER,
    OUTSIDE,
    PASSING,
    PROXY,
    REUSED,
    ROW,
    SITE,
    STAMPS,
    STILL,
    STUCK,
    TOUCHED,
    UNARMED,
    UNDER_WAY,
    UNKNOWN,
    UNMET,
    UNREAD,
    UNSEEN,
    stamp,
)
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    DeviceProgram,
    Guard,
    InitMbarriers,
    LookBack,
    Phase,
    ProxyFence,
    Role,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
    chains_in,
    consumers_of,
)
from tensorc_dsl.backend.llvm.codegen.machine import Machine, host_processor
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import ORDERS, CompileError, Counts, Traffic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.expr import Const, Expr
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.sizes import Sizes, elements_spanned, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import GROUP, LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Parallel, Shuffle

# Counts the statements that the threads of kernels run.


_TERMS = 4
"""The terms of an instruction's sums that take as long as a statement."""


def most_statements(p: DeviceProgram) -> float:
    """The statements that all threads of all kernels run together, at most; infinity if an extent is no number."""
    return sum(math.prod(map(_number, k.grid)) * k.threads * _most(k.body) for k in p.kernels)


def _most(body: tuple[Device | Flat, ...]) -> float:
    """The statements that one thread runs at most."""
    count = 0.0
    for s in body:
        match s:
            case (
                Store()
                | CommitGroup()
                | WaitGroup()
                | Barrier()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | InitMbarriers()
                | WaitMbarrier()
                | ArriveMbarrier()
            ):
                count += 1
            case Ticket() | LookBack():
                count += 1
            case TmaLoad() | TmaStore() | WaitTmaStores():  # of one thread
                count += 1
            case Phase(body=inner) | Guard(body=inner) | Role(body=inner) | If(body=inner) | Alloc(body=inner):
                count += _most(inner)
            case Instruction(body=inner) | Shuffle(body=inner):
                count += _most(inner)
            case Collective(
                intrinsic=i, body=inner
            ):  # a lane loads and stores its elements, and has a part of the sums
                lanes = GROUP if is_of_group(i) else LANES
                count += _elements(inner) + math.prod(a.extent for a in i.axes) / lanes / _TERMS
            case Steps(end=end, body=inner):
                count += _number(end) * _most(inner)
            case Loop(begin=begin, end=end, body=inner):
                count += (_number(end) - _least(begin)) * _most(inner)
            case Parallel(extents=extents, body=inner):
                count += math.prod(map(_number, extents)) * _most(inner)
            case _:
                assert_never(s)
    return count


def _elements(body: tuple[Flat, ...]) -> float:
    """The elements of all operands that a lane has: `body` is one loop over them in the other."""
    return sum(_number(s.end) + _elements(s.body) for s in body if isinstance(s, Loop))


def _number(e: Expr) -> float:
    return e.value if isinstance(e, Const) else math.inf


def _least(begin: Expr) -> float:
    return begin.value if isinstance(begin, Const) else -math.inf


def _in_memory(a: Array) -> Array:
    """All that an array spans, from its first to its last element, as it lies in memory."""
    if a.flags.c_contiguous:
        return a
    count = elements_spanned(a.shape, [n // a.itemsize for n in a.strides])
    return np.lib.stride_tricks.as_strided(a, (count,), (a.itemsize,))


@frozen
class Emulation:
    """Kernels as code for this CPU. `run` may be called again and again."""

    program: DeviceProgram
    addresses: tuple[Mapping[str, int], ...]
    """Those of the functions of each kernel, by what they do."""
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
        every = {name: _in_memory(a) for name, a in arrays.items()}
        for s in self.program.scratch:
            every[s.name] = aligned_empty((evaluate_size(s.size, sizes),), stored_dtype(s.dtype))
            every[s.name].view(np.uint8).fill(0xFF)
        for k, called in zip(self.program.kernels, self.addresses, strict=True):
            for name in k.cleared:
                every[name].view(np.uint8).fill(0)
            if fault := self._run(k, called, every, sizes, order, counts):
                return fault
        return ""

    def _run(
        self,
        k: DeviceKernel,
        called: Mapping[str, int],
        arrays: Mapping[str, Array],
        sizes: Sizes,
        order: str,
        counts: list[Counts] | None,
    ) -> str:
        tally = None if counts is None else np.zeros((len(self.sites) + 1, TALLY_WORDS), np.int64)
        stamps = [np.zeros(STAMPS * max(arrays[name].size, 1), np.int64) for name in k.params]
        call = Call(k, arrays, sizes, stamps, tally, order)
        grid = [evaluate_size(n, sizes) for n in k.grid]
        numbers = [sizes[d.name] for d in self.program.dims]
        run = _side_by_side if runs_beside_others(k) else _one_by_one
        rooms = run(call, called, grid, numbers)
        for room in [room for room in rooms if room.state[COUNT]] or rooms:
            room.landing.end()
            if room.state[COUNT]:
                return self._said(k, room.state)
        if counts is not None and tally is not None:
            barriers = max(0, *(int(room.state[EPOCH]) - 1 for room in rooms))
            counts.append(Counts(k.name, prod(grid), barriers, self._traffic(k, tally)))
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
        if kind == STUCK and chains_in(k.body):
            return f"in `{k.name}`, block {block} waits for what no other block makes known{more}"
        if kind == STUCK and consumers_of(k):
            return f"{where} waits at an mbarrier whose phase never completes{more}"
        if kind in _OF_MBARRIERS:
            return f"{where} {_OF_MBARRIERS[kind]}{more}"
        if kind in (TOUCHED, EARLY):
            does, lacks = (
                ("starts", "has used its accumulators since wgmma.fence")
                if kind == TOUCHED
                else ("runs", "has not waited for its accumulators (wgmma.wait_group)")
            )
            return f"{where} {does} `{self.sites[site].statement}`, and {lacks}{more}"
        name = (*k.params, *(b.name for b in k.shared))[row]
        if kind in (ASTRAY, UNSEEN):
            lacks = "which is outside of it" if kind == ASTRAY else "which no flag has made known to it"
            return f"{where} accesses word {element} of `{name}`, {lacks}{more}"
        at = f"element {element} of `{name}` in `{self.sites[site].statement}`"
        if kind == OUTSIDE:
            return f"{where} accesses {at}, which is out of bounds{more}"
        if kind == UNDER_WAY:
            return f"{where} accesses {at}, to which an asynchronous copy is in flight{more}"
        if kind == MISALIGNED:
            return f"{where} accesses {at}, whose address is not a multiple of {other}{more}"
        theirs, mate = stamp(other)
        if kind == CHANGED:
            return f"{where} reads {at}, which thread {mate} has stored before wgmma.wait_group{more}"
        if kind == REUSED:
            return (
                f"{where} has a TMA store in flight that reads {at}, and {_who(mate)} stores it before"
                f" cp.async.bulk.wait_group.read{more}"
            )
        if kind == UNKNOWN:
            return f"{where} reads {at}, which thread {mate} has stored without fence.proxy.async{more}"
        who = "others" if other == -1 else _who(mate) + (f" of block {theirs}" if theirs != block else "")
        return f"{where} and {who} meet without a barrier between them at {at}{more}"


def _one_by_one(call: Call, called: Mapping[str, int], grid: list[int], numbers: list[int]) -> list[Room]:
    """Run the blocks of a kernel one after the other. Returns the room that they had."""
    room = Room(call)
    _function(called["run"], ctypes.c_int64, _kinds(call, numbers))(*room.given, *grid, *call.addresses, *numbers)
    return [room]


def _side_by_side(call: Call, called: Mapping[str, int], grid: list[int], numbers: list[int]) -> list[Room]:
    """Run the blocks of a kernel side by side, since some wait for others. Returns the rooms that they had."""
    k, blocks = call.kernel, prod(grid)
    rng = np.random.default_rng(list(RESIDENTS).index(call.order))
    count = k.cluster if k.shared_loads else min(RESIDENTS[call.order], max(blocks, 1))
    rooms = [Room(call) for _ in range(count)]
    memory = Memory([(k.params.index(name), call.arrays[name]) for name in sorted(chains_in(k.body))], rng)
    for room in rooms:
        room.state[PASSING] = memory.calls.table.ctypes.data
    begin = _function(called["begin"], None, _kinds(call, numbers))
    go = _function(called["go"], ctypes.c_int64, [ctypes.c_bool])
    free = _function(called["free"], None, [])
    run = Kernel(
        lambda room, b: begin(*room.given, *grid[:2], b, *call.addresses, *numbers),
        lambda room, again: go(*room.given, again),
    )
    if k.shared_loads:
        in_clusters(blocks, rooms, run, call.order)
    else:
        side_by_side(blocks, rooms, run, memory, rng)
    for room in rooms:
        free(*room.given)
    return rooms


def _kinds(call: Call, numbers: list[int]) -> list[Any]:
    """The types of what a kernel takes: three numbers of a grid or a block, the addresses of its arrays, and its sizes."""
    return [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * len(call.kernel.params), *[ctypes.c_int64] * len(numbers)]


def _function(address: int, result: Any, kinds: list[Any]) -> Callable[..., Any]:
    """A function of `runner`, which takes the pointers to a room, and then values of `kinds`."""
    return ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * 5, *kinds)(address)


_OF_MBARRIERS = {
    UNARMED: "uses an mbarrier that is not initialised",
    STUCK: "waits at an mbarrier, and not all the bytes of its expect_tx come",
    HELD: "starts a TMA load to shared memory that a warp may still read",
    LATE: "and others are in different phases of an mbarrier",
    UNMET: "and others meet without a barrier between them at an mbarrier",
    STILL: "ends while TMA loads are in flight",
    UNREAD: "ends while TMA stores still read shared memory",
    GONE: "and another one of its cluster access each other's shared memory, and may have ended",
}


def _who(thread: int) -> str:
    """A thread, or the instructions of a warpgroup, which run beside it."""
    return f"thread {thread}" if thread < PROXY else f"an instruction of warpgroup {thread - PROXY}"


_CONVERSIONS = "+f16c"
"""The instructions of x86 for f16. Nothing else of this CPU is used, so that results are the same on all."""


_SHORT = 40
"""The statements of all threads for each character of LLVM's text up to which kernels run sooner as they are than after they
were optimised: a character takes about 2 µs, and without that a statement takes 50 ns longer in three orders of threads."""


_LEAST = 50_000
"""The characters that the text of any kernel has."""


def emulation(p: DeviceProgram) -> Emulation:
    """The kernels, compiled for this CPU. Raises CompileError."""
    statements = most_statements(p)
    text, sites = emulation_module(p, ahead=statements > _SHORT * _LEAST)
    target = Target(features=",".join({*host_processor().features.split(",")} & {_CONVERSIONS}))
    machine = Machine(target, optimises=statements > _SHORT * len(text))
    try:
        jit = machine.jit()
        library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
        called = [("begin", "go", "free") if runs_beside_others(k) else ("run",) for k in p.kernels]
        names = [{does: f"{k.name}.{does}" for does in some} for k, some in zip(p.kernels, called, strict=True)]
        for name in (x for some in names for x in some.values()):
            library.export_symbol(name)
        tracker = library.link(jit, "emulation")
    except RuntimeError as e:
        raise CompileError(str(e)) from e
    addresses = tuple({does: int(tracker[name]) for does, name in some.items()} for some in names)
    return Emulation(p, addresses, (jit, tracker), sites)
