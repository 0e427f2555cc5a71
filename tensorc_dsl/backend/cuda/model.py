"""A model of the time of kernels on GPUs: what their threads do, counted from lowered code, and what a machine makes of it.

Nothing is run. The model ranks schedules; its cycles are no measurement.

A warp, and an iteration of each loop, are drawn at random some times, the same in every run, and what the lanes of the warp
access there is counted as on the machine: instructions, sectors, passes over banks. The sums are those of the kernel where
warps and iterations are alike, and else estimates. Subscripts and conditions that depend on data are taken for scattered and
for true.

Cycles are those of the slowest of what a multiprocessor does at once, or of waiting that too few warps hide: a roofline
(Williams, Waterman, Patterson, Roofline, 2009) of instructions, tensor cores, shared memory, the second-level cache and
memory, with a bound by latency after Little's law: the warps that are there at one time wait for what each of them does in
turn (Volkov, Understanding Latency Hiding on GPUs, 2016). Latencies and rates are of the order of published ones (Jia et al.,
Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018). None was measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf, prod

import numpy as np

from tensorc_dsl.backend.cuda.compiled import cpu_of
from tensorc_dsl.backend.cuda.lower.async_copies import bytes_of
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    THREAD,
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
    roles_in,
)
from tensorc_dsl.backend.cuda.lower.pipelines import first_registers
from tensorc_dsl.backend.cuda.lower.private_storage import Numbers, evaluate
from tensorc_dsl.backend.cuda.lower.synchronization import loads_under
from tensorc_dsl.backend.cuda.runtime.driver import number_of
from tensorc_dsl.ir.expr import ZERO, Binary, Call, Expr, Load, children, free_vars, loads
from tensorc_dsl.ir.program import Intrinsic, IterKind, LoopKind, Store, store_at
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, LowerError, Parallel, Shuffle, stride

SAMPLES = 32
"""The warps that are looked at."""

SECTOR, BANKS, WORD, WIDEST = 32, 32, 4, 128
"""The bytes of a sector of global memory, the banks of shared memory and the bytes of a word in one, the bytes of a pass."""

OF_MEMORY, OF_SHARED, OF_INSTRUCTION, OF_BARRIER, OF_PRODUCT = 500.0, 20.0, 4.0, 20.0, 32.0
"""The cycles that a warp waits for memory, for shared memory or another lane, for a result, for the other warps, and for a
product of tensor cores (Sun et al., Dissecting Tensor Cores via Microbenchmarks, 2022)."""

GROUP = 4
"""The warps of a warpgroup."""

MOST_APART = 8.0
"""The independent instructions that a warp has under way, at most: registers and queues are not endless."""

PLACES = 1 << 12
"""The iterations among which data choose one, where how many there are is not asked."""

LOOKS = 4.0
"""The blocks before it that one looks at, about: those that began at one time are at the same step."""

CALL = 20
"""The instructions of a maths function, about."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What all warps of a kernel do together: instructions of warps, sectors of global memory that they move, passes over the
    banks of shared memory, the cycles that they wait, each by itself, one instruction after the other, and the
    multiplications of tensor cores, by type of the factors and whether warpgroups do them."""

    instructions: float = 0.0
    sectors: float = 0.0
    passes: float = 0.0
    waiting: float = 0.0
    products: Mapping[tuple[str, bool], float] = field(default_factory=dict[tuple[str, bool], float])


@dataclass(frozen=True, slots=True)
class _Here:
    """The warps that are looked at: the values of variables in their lanes, which lanes are active, and for how many
    iterations each stands."""

    values: Mapping[str, Numbers]
    active: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    weight: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    lanes: tuple[str, int] | None = None
    """The loop that is one vector, and its extent."""
    unrolled: Mapping[str, float] = field(default_factory=dict[str, float])
    """The unrolled loops inside of the last one that is not, with their iterations, which are independent of each other."""
    starts: bool = False
    """Whether copies only start here, and are waited for elsewhere."""

    def under(self, cond: Expr) -> _Here:
        try:
            return replace(self, active=self.active & (evaluate(cond, self.values) != 0))
        except LowerError:
            return self

    def among(self, first: int, threads: int) -> _Here:
        """Those of so many threads from number `first` on."""
        mine = (self.values[THREAD] >= first) & (self.values[THREAD] < first + threads)
        return replace(self, active=self.active & mine)


@dataclass(slots=True)
class _Counter:
    shared: Mapping[str, int]
    params: Mapping[str, int]
    rng: np.random.Generator
    warps: int
    mbarriers: int
    """TMA loads that are under way at one time, at most."""
    found: dict[str, float] = field(default_factory=dict[str, float])
    products: dict[tuple[str, bool], float] = field(default_factory=dict[tuple[str, bool], float])

    def device(self, body: tuple[Device, ...], here: _Here) -> None:
        for s in body:
            match s:
                case Phase(body=inner, asynchronous=asynchronous):
                    self.flat(inner, replace(here, starts=asynchronous))
                case Steps(var=var, end=end, body=inner):
                    self.device(inner, self._inside(var, ZERO, end, here))
                case Guard(cond=cond, body=inner):
                    self.device(inner, here.under(cond))
                case Barrier():
                    self._does(here, OF_BARRIER)
                case TmaLoad(size=size):  # one thread of the block starts it, and no lane moves its bytes
                    self._does(here, OF_INSTRUCTION)
                    self._add("sectors", here, size / SECTOR / self.warps)
                    self._add("passes", here, size / WIDEST / self.warps)
                case TmaStore(body=inner):
                    self._tma_stores(inner, here)
                case WaitTmaStores():  # what was started a tile ago has mostly read
                    self._does(here, OF_SHARED)
                case Role(first=first, threads=threads, body=inner):
                    self.device(inner, here.among(first, threads))
                case WaitGroup(groups=groups):  # so many more are under way, and each has been for as long
                    self._does(here, OF_MEMORY / (groups + 1))
                case WaitMbarrier():
                    self._does(here, OF_MEMORY / max(1, self.mbarriers))
                case WgmmaWait(groups=groups):
                    self._does(here, OF_INSTRUCTION if groups else OF_PRODUCT)
                case Ticket():
                    self._does(here, OF_MEMORY + OF_BARRIER)
                case LookBack():
                    self._look_back(s, here.among(0, 1))
                case InitMbarriers() | ArriveMbarrier() | CommitGroup() | ProxyFence() | WgmmaFence():
                    self._does(here, OF_INSTRUCTION)

    def flat(self, body: tuple[Flat, ...], here: _Here) -> None:
        for s in body:
            match s:
                case Store():
                    self._store(s, here)
                case Loop(kind=LoopKind.VECTORIZED, var=var):
                    count = int(evaluate(s.end, here.values).max())
                    values = {**here.values, var: np.zeros_like(here.values[THREAD])}
                    self.flat(s.body, replace(here, values=values, lanes=(var, count)))
                case Loop(var=var, begin=begin, end=end, kind=kind, body=inner):
                    inside = self._inside(var, begin, end, here)
                    if kind is LoopKind.UNROLLED:
                        times = float(inside.weight.sum() / max(float(here.weight.sum()), 1.0))
                        inside = replace(inside, unrolled={**here.unrolled, var: max(times, 1.0)})
                    else:
                        inside = replace(inside, unrolled={})
                    self.flat(inner, inside)
                case If(cond=cond, body=inner):
                    self._does(here, OF_INSTRUCTION)
                    self.flat(inner, here.under(cond))
                case Alloc(body=inner):
                    self.flat(inner, here)
                case Collective(intrinsic=i, body=inner):
                    self._multiplies(i, here)
                    group = is_of_group(i)
                    self._does(here, OF_INSTRUCTION if group else OF_PRODUCT if _is_product(i) else OF_SHARED)
                    for x in _accesses(inner):
                        self.flat((x,), here)
                case Shuffle():
                    self._does(here, OF_SHARED)
                case Parallel() | Instruction():
                    raise AssertionError("no pass of GPUs makes them")

    def _tma_stores(self, body: tuple[Flat, ...], here: _Here) -> None:
        for s in body:
            if isinstance(s, Collective) and s.tile is not None:
                size = bytes_of(s.tile)
                self._does(here, OF_INSTRUCTION)
                self._add("sectors", here, size / SECTOR / self.warps)
                self._add("passes", here, size / WIDEST / self.warps)
            elif isinstance(s, Loop):
                self._tma_stores(s.body, self._inside(s.var, s.begin, s.end, here))
            elif isinstance(s, If):
                self._tma_stores(s.body, here.under(s.cond))

    def _look_back(self, s: LookBack, here: _Here) -> None:
        """One thread makes two words known, and finds those of a block that is done behind a few that are not."""
        self.flat(s.shown, here)
        self._does(here, OF_MEMORY, LOOKS)
        self._add("sectors", here, LOOKS + 2)

    def _inside(self, var: str, begin: Expr, end: Expr, here: _Here) -> _Here:
        """One iteration of a loop, which stands for all of them; the only one, if data choose it or say where the loop begins
        or ends, each lane its own."""
        if loads(begin) or loads(end):
            chosen = self.rng.integers(0, PLACES, here.active.shape)
            return replace(here, values={**here.values, var: chosen})
        first, last = evaluate(begin, here.values), evaluate(end, here.values)
        count = np.maximum(last - first, 0).max(axis=1)
        at = first + np.floor(self.rng.random(len(count)) * count).astype(np.int64)[:, None]
        values = {**here.values, var: np.minimum(at, np.maximum(last - 1, first))}
        return replace(here, values=values, weight=here.weight * count)

    def _add(self, what: str, here: _Here, each: object) -> None:
        self.found[what] = self.found.get(what, 0.0) + float(
            np.sum(here.weight * here.active.any(axis=1) * np.asarray(each))
        )

    def _multiplies(self, i: Intrinsic, here: _Here) -> None:
        if _is_product(i):
            factor = next(b.dtype.name for b in i.operands if b.name != i.store.buffer)
            warps, kind = GROUP if is_of_group(i) else 1, (factor, is_of_group(i))
            count = prod(a.extent for a in i.axes) / warps * float(np.sum(here.weight * here.active.any(axis=1)))
            self.products[kind] = self.products.get(kind, 0.0) + count

    def _does(self, here: _Here, latency: float, count: float = 1.0) -> None:
        """So many instructions of this latency, which those of other iterations of unrolled loops do not wait for."""
        apart = min(MOST_APART, count * prod(here.unrolled.values()))
        self._add("instructions", here, count)
        self._add("waiting", here, count * latency / max(apart, 1.0))

    def _store(self, s: Store, here: _Here) -> None:
        for x, conds in dict.fromkeys(loads_under(s.value, ())):
            if s.atomic and x.buffer == s.buffer:
                continue  # an update is one access
            self._access(x.buffer, x.indices[0], _once(x, s, reduce(_Here.under, conds, here)))
        self._access(s.buffer, s.indices[0], here)
        if count := _operations(s.value) * (here.lanes[1] if here.lanes else 1):
            self._does(here, OF_INSTRUCTION, float(count))

    def _access(self, buffer: str, at: Expr, here: _Here) -> None:
        """One access of each lane, of a vector if there is one."""
        if buffer not in self.shared and buffer not in self.params:
            return  # in registers
        size = self.shared.get(buffer) or self.params[buffer]
        count = 1
        if here.lanes is not None and stride(at, here.lanes[0]) == 1:
            count = here.lanes[1]
        kind = "shared" if buffer in self.shared else "global"
        waits = OF_INSTRUCTION if here.starts else OF_SHARED if kind == "shared" else OF_MEMORY
        self._does(here, waits)
        try:
            first = evaluate(at, here.values) * size
        except LowerError:
            first = np.arange(here.active.size, dtype=np.int64).reshape(here.active.shape) * WIDEST
        moved = (
            _passes(first, size * count, here.active)
            if kind == "shared"
            else _sectors(first, size * count, here.active)
        )
        self._add("passes" if kind == "shared" else "sectors", here, moved)


def counted(k: DeviceKernel, sizes: Sizes, bytes_of: Mapping[str, int]) -> Counted:
    """What the warps of a kernel do; `bytes_of` has the sizes of elements of its arrays."""
    rng = np.random.default_rng(0)
    warps = -(-k.threads // LANES)
    shape = (SAMPLES, LANES)
    lane, one = np.arange(LANES, dtype=np.int64)[None, :], np.ones(shape, np.int64)
    values: dict[str, Numbers] = {d: n * one for d, n in sizes.items()}
    values[THREAD] = (np.arange(SAMPLES, dtype=np.int64) * warps // SAMPLES)[:, None] * LANES + lane
    blocks = 1
    for axis, extent in zip(BLOCK_AXES, k.grid, strict=True):
        n = int(evaluate(extent, {**values, "": one}).max())
        values[axis] = rng.integers(0, max(n, 1), SAMPLES)[:, None] * one
        blocks *= n
    here = _Here(values, values[THREAD] < k.threads, np.full(SAMPLES, blocks * warps / SAMPLES))
    mbarriers = 0 if k.mbarriers is None else k.mbarriers.count
    sizes_of = {b.name: b.dtype.bytes for b in k.shared}
    counter = _Counter(sizes_of, {n: bytes_of[n] for n in k.params}, rng, warps, mbarriers)
    if blocks:
        counter.device(k.body, here)
    return Counted(**counter.found, products=counter.products)


def _is_product(i: Intrinsic) -> bool:
    """Whether an instruction adds up products."""
    return any(a.kind is IterKind.REDUCE for a in i.axes)


def _once(x: Load, s: Store, here: _Here) -> _Here:
    """The place of a load that stays in a register for the iterations of unrolled loops that do not change it."""
    if x.buffer == s.buffer:
        return here
    same = prod(n for v, n in here.unrolled.items() if v not in free_vars(x.indices[0]))
    return replace(here, weight=here.weight / same)


def _operations(e: Expr) -> int:
    """The instructions of an expression, about: a product that is added is one with the sum; subscripts are counted with
    their accesses."""
    match e:
        case Load():
            return 0
        case Binary(op="+", lhs=a, rhs=Binary(op="*", lhs=b, rhs=c)):
            return 1 + sum(map(_operations, (a, b, c)))
        case Call(args=args):
            return CALL + sum(map(_operations, args))
        case _:
            parts = children(e)
            return bool(parts) + sum(map(_operations, parts))


def _accesses(body: tuple[Flat, ...]) -> list[Store]:
    """What a lane accesses of an instruction, each address once."""
    out: list[Store] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
        else:
            inner = _accesses(s.body)
            out += [store_at(x, {s.var: ZERO}) if isinstance(s, Loop) else x for x in inner]
    return out


def _sectors(first: Numbers, size: int, active: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Numbers:
    """The sectors that the lanes of each warp touch."""
    places = [np.where(active, (first + n) // SECTOR, -1) for n in range(0, size, SECTOR)]
    places.append(np.where(active, (first + size - 1) // SECTOR, -1))
    return _distinct(np.concatenate(places, axis=1))


def _distinct(rows: Numbers) -> Numbers:
    """The different numbers of each row that are not negative."""
    ordered = np.sort(rows, axis=1)
    new = np.diff(ordered, axis=1, prepend=-1) != 0
    return np.sum(new & (ordered >= 0), axis=1)


def _passes(first: Numbers, size: int, active: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Numbers:
    """The passes over the banks that the lanes of each warp need: the most words in one bank, for so many lanes at a time."""
    together = min(LANES, max(1, WIDEST // max(size, WORD)))
    total = np.zeros(len(first), np.int64)
    for start in range(0, LANES, together):
        part = slice(start, start + together)
        words = [np.where(active[:, part], first[:, part] // WORD + n, -1) for n in range(max(1, size // WORD))]
        every = np.concatenate(words, axis=1)
        total += np.max([_distinct(np.where(every % BANKS == bank, every, -1)) for bank in range(BANKS)], axis=0)
    return total


# What a multiprocessor has, by compute capability, and how many blocks of a kernel it runs at one time.


SPILLED = 255
"""The most registers of a thread; what needs more is in memory."""

_UNIT = 256
"""Registers are given to a warp in so many."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A multiprocessor: the warps, blocks, registers and bytes of shared memory for blocks that are there at one time, and
    the bytes of memory that each of them can have in a cycle if all read at once.

    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; a block takes 1 KB of shared memory for
    the system. The rates are those of the GPU named: its memory's, and that of its tensor cores by type of the factors, by
    its boost clock and its multiprocessors. Instructions of a warp reach the share `of_warps` of the latter.
    """

    warps: int
    blocks: int
    shared: int
    memory_rate: float
    products: Mapping[str, float]
    """Multiplications with additions in a cycle, of matrices that are not sparse, with sums of f32."""
    of_warps: float = 1.0
    registers: int = 65536
    reserved: int = 1024

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """The blocks that run at one time on a multiprocessor: by warps, by number, by registers and by shared memory."""
        warps = -(-threads // LANES)
        of_warp = -(-min(registers, SPILLED) * LANES // _UNIT) * _UNIT
        return min(
            self.warps // warps,
            self.blocks,
            self.registers // (of_warp * warps),
            self.shared // (shared + self.reserved),
        )

    def product_cycles(self, dtype: str, count: float, *, of_group: bool) -> float:
        """The cycles of so many multiplications of this type on tensor cores, by instructions of warpgroups or of warps."""
        rate = self.products.get(dtype, self.products["f16"])
        return count / (rate if of_group else rate * self.of_warps)


_KB = 1024


def _rates(half: float, f64: float, byte: float = 2.0) -> dict[str, float]:
    """From those of f16: as many of bf16, half as many of tf32, and of bytes and floats of 8 bits so many times as many."""
    bytes_, octets = dict.fromkeys(("i8", "u8"), byte * half), dict.fromkeys(("f8e4m3", "f8e5m2"), 2.0 * half)
    return {"f16": half, "bf16": half, "f32": half / 2, "f64": f64, **bytes_, **octets}


MACHINES = {
    80: Machine(64, 32, 164 * _KB, 10.2, _rates(1024, 64)),  # A100: 1555 GB/s, 1.41 GHz, 108; 312 TFLOP/s
    86: Machine(48, 16, 100 * _KB, 6.7, _rates(256, 2, 4)),  # RTX 3090: 936 GB/s, 1.70 GHz, 82; 71 TFLOP/s
    89: Machine(48, 24, 100 * _KB, 3.1, _rates(256, 2, 4)),  # RTX 4090: 1008 GB/s, 2.52 GHz, 128; 165 TFLOP/s
    90: Machine(64, 32, 228 * _KB, 14.5, _rates(2048, 128), 0.62),  # H100 SXM: 3350 GB/s, 1.755 GHz, 132; 989 TFLOP/s
}
"""By compute capability, 80 for 8.0. The rates of tensor cores are those of NVIDIA's papers on the architectures; the share
of an instruction of a warp on the last is the one that Luo et al. measured (Benchmarking and Dissecting the Nvidia Hopper
GPU Architecture via Microbenchmarking, 2024)."""


def machine_of(cpu: str) -> Machine:
    """The multiprocessor of a GPU, `sm_80`; of the last one before it that is known."""
    number = number_of(cpu)
    return MACHINES[max((n for n in MACHINES if n <= number), default=min(MACHINES))]


LAUNCH = 4000.0
"""The cycles from one kernel to the next, about 3 µs."""

ISSUED, CACHE = 4.0, 64.0
"""What a multiprocessor does in a cycle: instructions of warps, bytes from the second-level cache."""

NONE: Mapping[str, int] = {}
"""Registers of no kernel are known."""

SPARE = 32
"""The registers for addresses and what is under way, besides what a schedule keeps in them; as in `std.gpu.limits`."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cycles of a kernel, and what they are by each bound; `resident` blocks run on a multiprocessor at one time."""

    kernel: str
    resident: int
    instructions: float
    products: float
    shared: float
    cache: float
    memory: float
    latency: float

    @property
    def cycles(self) -> float:
        """The largest bound, and the launch."""
        if not self.resident:
            return inf
        return LAUNCH + max(self.instructions, self.products, self.shared, self.cache, self.memory, self.latency)


def estimates(p: DeviceProgram, target: Target, sizes: Sizes, known: Mapping[str, int] = NONE) -> tuple[Estimate, ...]:
    """The cycles of each kernel at these sizes, on the GPU of a target. `known` has registers of threads, by kernels."""
    machine = machine_of(cpu_of(target))
    resident = [machine.resident(k.threads, registers(k, known), k.shared_bytes) for k in p.kernels]
    return tuple(
        _estimate(p, k, counted(k, sizes, _bytes(p)), machine, n, target, sizes)
        for k, n in zip(p.kernels, resident, strict=True)
    )


def registers(k: DeviceKernel, known: Mapping[str, int]) -> int:
    """The registers of a thread, as `known`, or those for its private storage, and some to spare; as it begins, if roles
    change them."""
    if k.name in known:
        return known[k.name]
    if any(r.registers for r in roles_in(k.body)):
        return first_registers(k.threads)
    return SPARE + sum(-(-b.size * b.dtype.bytes // 4) for b in k.local)


def _bytes(p: DeviceProgram) -> dict[str, int]:
    return {x.name: x.dtype.bytes for x in (*p.params, *p.scratch)}


def _estimate(
    p: DeviceProgram, k: DeviceKernel, c: Counted, m: Machine, resident: int, target: Target, sizes: Sizes
) -> Estimate:
    blocks = prod(evaluate_size(n, sizes) for n in k.grid)
    most = -(-blocks // target.cores)
    share = most / max(blocks, 1)  # of the busiest multiprocessor
    warps = -(-k.threads // LANES)
    arrays = {x.name: prod(evaluate_size(n, sizes) for n in x.shape) for x in p.params}
    arrays |= {x.name: evaluate_size(x.size, sizes) for x in p.scratch}
    touched = sum(arrays[n] * _bytes(p)[n] for n in k.params)
    at_once = max(1, min(resident, most)) * warps
    return Estimate(
        k.name,
        resident,
        instructions=c.instructions * share / ISSUED,
        products=share * sum(m.product_cycles(t, n, of_group=group) for (t, group), n in c.products.items()),
        shared=c.passes * share,
        cache=c.sectors * SECTOR * share / CACHE,
        memory=min(touched, c.sectors * SECTOR) / (m.memory_rate * target.cores),
        latency=c.waiting * share / at_once,
    )


_BOUNDS = ("instructions", "products", "shared", "cache", "memory", "latency")


def explained(found: tuple[Estimate, ...]) -> str:
    """What bounds each kernel, for people."""
    lines: list[str] = []
    for e in found:
        by = {name: float(getattr(e, name)) for name in _BOUNDS}
        worst = max(by, key=lambda name: by[name])
        runs = f"{e.resident} blocks on a multiprocessor" if e.resident else "no block fits on a multiprocessor"
        lines.append(f"kernel {e.kernel}: about {e.cycles:,.0f} cycles, {runs}, bound by {worst}")
        lines += [f"    {name:<12} {n:>12,.0f}" for name, n in sorted(by.items(), key=lambda one: -one[1]) if n]
    return "\n".join(lines) + "\n"
