"""What the warps of a kernel do, counted from lowered code: instructions by class, what they move, and how long they wait.

A warp, and an iteration of each loop, are drawn at random some times, the same in every run, and what the lanes of the warp
access there is counted as on the machine: instructions, sectors, passes over banks. The sums are those of the kernel where
warps and iterations are alike, and else estimates. Subscripts and conditions that depend on data are taken for scattered and
for true.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

import numpy as np

from tensorc_dsl.backend.cuda.lower.async_copies import bytes_of
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
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
    inside,
    tma_in,
)
from tensorc_dsl.backend.cuda.lower.private_storage import Numbers, evaluate
from tensorc_dsl.backend.cuda.lower.synchronization import loads_under
from tensorc_dsl.backend.cuda.model.machine import MACHINES, Machine
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.contraction import rounded_function
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    Load,
    Select,
    children,
    constant,
    dtype_of,
    free_vars,
    loads,
)
from tensorc_dsl.ir.program import Intrinsic, IterKind, LoopKind, Store, store_at
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, LowerError, Parallel, Shuffle, stride

SAMPLES = 32
"""The warps that are looked at."""

SECTOR, BANKS, WORD, WIDEST = 32, 32, 4, 128
"""The bytes of a sector of global memory, the banks of shared memory and the bytes of a word in one, the bytes of a pass."""

LINE = 128
"""The bytes of a line of the first-level cache, which takes one of a request in a cycle."""

OF_MEMORY, OF_NEAR, OF_SHARED, OF_INSTRUCTION, OF_BARRIER, OF_PRODUCT = 500.0, 35.0, 20.0, 4.0, 20.0, 32.0
"""The cycles that a warp waits for memory, for the first-level cache, for shared memory or another lane, for a result, for
the other warps, and for a product of tensor cores (Sun et al., Dissecting Tensor Cores via Microbenchmarks, 2022)."""

GROUP = 4
"""The warps of a warpgroup."""

MOST_APART = 16.0
"""The independent instructions that a warp has under way, at most: registers and queues are not endless."""

MOST_JOINED = 32
"""The iterations of an unrolled loop among which adjacent accesses are looked for."""

PLACES = 1 << 12
"""The iterations among which data choose one, where how many there are is not asked."""

LOOKS = 4.0
"""The blocks before it that one looks at, about: those that began at one time are at the same step."""

CALL, DEEP = 20, 12
"""The instructions of a maths function, and how many of them wait for each other, about."""

REPEATED = 3.0
"""The instructions of an iteration of a loop that is not unrolled, for the loop itself."""

FLOATS, INTEGERS, SPECIAL, ACCESSES, OTHERS = CLASSES = ("floats", "integers", "special", "accesses", "others")
"""The classes of instructions: what pipe of a multiprocessor has them. The last is every other one."""

ARITHMETIC = (FLOATS, INTEGERS, SPECIAL)


_FRAGMENTS = {"ldmatrix": "fragment", "ld": "shared load"}
"""What loads a fragment, by the first word of its code: the kind of access. Others set or store one."""

_MOVES = (*_FRAGMENTS, "stmatrix", "st")


@frozen
class Waits:
    """The cycles that a warp of a role waits, one instruction after the other, with what all roles do before and behind: for
    arithmetic, for all else, and for what was `started` ahead, as it begins and after what passes `ahead` of the wait. It has
    the `share` of all instructions."""

    arithmetic: float = 0.0
    others: float = 0.0
    started: float = 0.0
    ahead: float = 0.0
    share: float = 0.0
    by_role: bool = False

    def cycles(self, arithmetic: float, more: float) -> float:
        """All of them, with so many times the arithmetic, and instructions of all warps that take pipes for so many cycles
        `more`. What is started so many rounds ahead is there after its latency; another role starts it when the round before
        it in its place has ended."""
        waiting = self.others + self.arithmetic * arithmetic + self.share * more
        by_role = waiting * self.ahead / self.started if self.by_role and self.started else 0.0
        return max(waiting, self.ahead + by_role)


@frozen
class Counted:
    """What all warps of a kernel do together: instructions of warps by class, how often each kind of access, copy and product
    is asked for, sectors of global memory that they move and lines that their requests touch, passes over the banks of shared
    memory, the multiplications of tensor cores, by type of the factors and whether warpgroups do them, and what a warp of
    each role waits for.
    """

    instructions: Mapping[str, float] = field(default_factory=dict[str, float])
    requests: Mapping[str, float] = field(default_factory=dict[str, float])
    sectors: float = 0.0
    lines: float = 0.0
    passes: float = 0.0
    waits: tuple[Waits, ...] = ()
    products: Mapping[tuple[str, bool], float] = field(default_factory=dict[tuple[str, bool], float])

    @property
    def issued(self) -> float:
        """All instructions."""
        return sum(self.instructions.values())

    def latency(self, instructions: Mapping[str, float], pipes: Mapping[str, float]) -> float:
        """The cycles that a warp of the slowest role waits, where the kernel has so many instructions by class, each of which
        takes a pipe so many cycles. Those beyond what is counted are addresses above all, which wait for no result: a warp
        issues them one after the other."""
        own, code = (sum(x.get(of, 0.0) for of in ARITHMETIC) for x in (self.instructions, instructions))
        more = sum(max(0.0, instructions.get(of, 0.0) - self.instructions.get(of, 0.0)) * n for of, n in pipes.items())
        return max((w.cycles(min(1.0, code / own) if own else 1.0, more) for w in self.waits), default=0.0)


@dataclass(slots=True)
class _Stretch:
    """The cycles of loads that an assembler starts before any of their results is needed, since nothing that they read is
    written: the longest, and all of them, of all warps together."""

    longest: float = 0.0
    every: float = 0.0


@frozen
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
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Those of them between which there is no branch, with their first iteration and the one behind the last."""
    starts: bool = False
    """Whether copies only start here, and are waited for elsewhere."""
    role: str = ""
    warps: float = 1.0
    """The warps of a block that are here, those of the role."""
    inner: str = ""
    """The innermost loop that is not unrolled."""
    steps: str = ""
    """The innermost loop that threads run together."""
    stretch: _Stretch | None = None
    """The instructions around which there is no branch; None where a condition of each unrolled iteration is one."""

    def under(self, cond: Expr) -> _Here:
        try:
            return replace(self, active=self.active & (evaluate(cond, self.values) != 0))
        except LowerError:
            return self

    def among(self, first: int, threads: int) -> _Here:
        """Those of so many threads from number `first` on, which are counted from there."""
        own = self.values[THREAD] - first
        mine = self.active & (own >= 0) & (own < threads)
        return replace(self, values={**self.values, THREAD: own}, active=mine, warps=max(1.0, threads / LANES))


@dataclass(slots=True)
class _Counter:
    shared: Mapping[str, int]
    params: Mapping[str, int]
    read: frozenset[str]
    """The arrays that the kernel does not write."""
    rng: np.random.Generator
    machine: Machine
    awaited: tuple[int, ...]
    """The warps that each mbarrier waits for, 0 for one that waits for bytes."""
    joins: bool
    """Whether adjacent accesses of unrolled iterations are one."""
    approx: float
    """The relative error that functions of f32 may have."""
    found: dict[str, float] = field(default_factory=dict[str, float])
    waits: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """The cycles of all warps of a role, by what they wait for, as `Waits` has it."""
    ahead: dict[tuple[str, str], tuple[float, float]] = field(
        default_factory=dict[tuple[str, str], tuple[float, float]]
    )
    """The cycles `ahead` and those that were `started`, by role and loop: what a round waits for passes at the same time, so
    the longest wait of a round is all of them."""
    issued: dict[str, float] = field(default_factory=dict[str, float])
    """The instructions of each role."""
    roles: dict[str, float] = field(default_factory=dict[str, float])
    """The warps of each role."""
    products: dict[tuple[str, bool], float] = field(default_factory=dict[tuple[str, bool], float])

    def device(self, body: tuple[Device, ...], here: _Here) -> None:
        for s in body:
            match s:
                case Phase(body=inner, asynchronous=asynchronous):
                    self._straight(inner, replace(here, starts=asynchronous))
                case Steps(var=var, end=end, body=inner):
                    self.device(inner, replace(self._inside(var, ZERO, end, here), steps=var))
                case Guard(cond=cond, body=inner):
                    self.device(inner, here.under(cond))
                case Barrier():
                    self._does(here, OF_BARRIER, of=OTHERS)
                case TmaLoad(body=inner):
                    self._tiles(inner, here, "tile")
                case TmaStore(body=inner):
                    self._tiles(inner, here)
                case WaitTmaStores():  # what was started a tile ago has mostly read
                    self._does(here, OF_SHARED, of=OTHERS)
                case Role(name=name, first=first, threads=threads, alone=alone, body=inner):
                    mine = here.among(first, LANES if alone else threads)
                    self.roles[name] = mine.warps * float(np.sum(here.weight * here.active.any(axis=1))) / here.warps
                    self.device(inner, replace(mine, role=name))
                case WaitGroup(groups=groups):  # so many more are under way, and each has been for as long
                    self._does(here, OF_INSTRUCTION, of=OTHERS)
                    self._ahead(here, groups + 1)
                case WaitMbarrier(at=at):
                    self._does(here, OF_INSTRUCTION, of=OTHERS)
                    if not self._is_of_warps(at, here):  # as many loads are under way as there are slots
                        self._ahead(here, self._slots(at) - (not here.role) or 1)
                case WgmmaWait(buffers=buffers, ends_group=ends_group):  # behind other work it is mostly over
                    self._does(here, OF_PRODUCT if buffers and ends_group else OF_INSTRUCTION, of=OTHERS)
                case Ticket():
                    self._does(here, OF_MEMORY + OF_BARRIER, of=ACCESSES)
                case LookBack():
                    self._look_back(s, here.among(0, 1))
                case InitMbarriers() | ArriveMbarrier() | CommitGroup() | ProxyFence() | WgmmaFence():
                    self._does(here, OF_INSTRUCTION, of=OTHERS)

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
                        first, last = constant(begin), constant(end)
                        own = {} if first is None or last is None else {var: (first, last)}
                        inside = replace(
                            inside,
                            unrolled={**here.unrolled, var: max(times, 1.0)},
                            spans={**here.spans, **own},
                        )
                        self.flat(inner, inside)
                    else:
                        inside = replace(inside, unrolled={}, spans={}, inner=var)
                        self._does(inside, OF_INSTRUCTION / REPEATED, REPEATED)
                        self._straight(inner, inside)
                case If(cond=cond, body=inner):
                    self._does(here, OF_INSTRUCTION, _operations(cond, self.approx)[INTEGERS] or 1.0)
                    inside = replace(here.under(cond), spans={}, stretch=None)
                    self.flat(inner, inside) if here.unrolled else self._straight(inner, inside)
                case Alloc(body=inner):
                    self.flat(inner, here)
                case Collective(intrinsic=i, body=inner):
                    self._together(i, s.code, inner, here)
                case Shuffle():
                    self._does(here, OF_SHARED, of=ACCESSES, kind="shuffle")
                case Parallel() | Instruction():
                    raise AssertionError("no pass of GPUs makes them")

    def _straight(self, body: tuple[Flat, ...], here: _Here) -> None:
        """Statements around which branches may be: their loads pass at the same time, as far as there are registers."""
        own = _Stretch()
        self.flat(body, replace(here, stretch=own))
        times = _times(here)
        self._waits(here, max(own.longest, own.every / MOST_APART / times if times else 0.0))

    def _together(self, i: Intrinsic, code: str, body: tuple[Flat, ...], here: _Here) -> None:
        """An instruction of all lanes: a product, or a fragment that is loaded, stored or set."""
        words = Counter(re.findall(r"(?:^|[{;])\s*(\w+)\.", code))
        if not _is_product(i):
            for word, n in words.items():
                waits = OF_SHARED if word in _FRAGMENTS else OF_INSTRUCTION
                self._does(here, waits, n, of=ACCESSES if word in _MOVES else OTHERS, kind=_FRAGMENTS.get(word, ""))
            for x in _accesses(body):
                self._store(x, here, alone=False)
            return
        group = is_of_group(i)
        factor = next(b.dtype.name for b in i.operands if b.name != i.store.buffer)
        count = prod(a.extent for a in i.axes) / (GROUP if group else 1)
        every = count * float(np.sum(here.weight * here.active.any(axis=1)))
        self.products[factor, group] = self.products.get((factor, group), 0.0) + every
        own = self.machine.product_cycles(factor, count * GROUP, of_group=group)  # of a quarter of the multiprocessor
        n = max(1, words["wgmma" if group else "mma"])  # which do not wait for each other
        self._does(here, own if group else OF_PRODUCT, n, of=OTHERS, kind="group" if group else "product", least=own / n,
                   apart=n * prod(here.unrolled.values()))  # fmt: skip
        if group:  # it reads shared memory by itself: what of its operands is there
            for b in i.operands:
                if b.name != i.store.buffer and any(x.buffer in self.shared for x in _loads_of(body, b.dtype.name)):
                    self._add("passes", here, prod(constant(n) or 1 for n in b.shape) * b.dtype.bytes / WIDEST / GROUP)

    def _tiles(self, body: tuple[Flat, ...], here: _Here, kind: str = "") -> None:
        """Tiles that one thread of those here starts to copy, so no lane moves their bytes."""
        for s in body:
            if isinstance(s, Collective) and s.tile is not None:
                size, blocks = bytes_of(s.tile), max(s.tile.blocks.bit_count(), 1)
                self._does(here, OF_INSTRUCTION, of=ACCESSES, kind=kind)
                self._add("sectors", here, size / SECTOR / here.warps)
                self._add("passes", here, blocks * size / WIDEST / here.warps)
            elif isinstance(s, Loop):
                self._tiles(s.body, self._inside(s.var, s.begin, s.end, here), kind)
            elif isinstance(s, If):
                shared = max((x.tile.blocks.bit_count() for x in tma_in(s.body) if x.tile is not None), default=0)
                # What is loaded for all blocks of a cluster is loaded by one of them.
                own = replace(here, weight=here.weight / shared) if shared else here.under(s.cond)
                self._tiles(s.body, own, kind)

    def _is_of_warps(self, at: Expr, here: _Here) -> bool:
        """Whether an mbarrier waits for warps."""
        try:
            number = int(evaluate(at, here.values).flat[0])
        except LowerError:
            return False
        return bool(self.awaited[number]) if number < len(self.awaited) else False

    def _slots(self, at: Expr) -> int:
        """The mbarriers that an expression names in turn."""
        turns = [n for x in (at, *children(at)) if isinstance(x, Binary) and x.op == "%" and (n := constant(x.rhs))]
        return max(1, *turns) if turns else 1

    def _look_back(self, s: LookBack, here: _Here) -> None:
        """One thread makes two words known, and finds those of a block that is done behind a few that are not."""
        self.flat(s.shown, here)
        self._does(here, OF_MEMORY, LOOKS, of=ACCESSES)
        self._add("sectors", here, LOOKS + 2)

    def _inside(self, var: str, begin: Expr, end: Expr, here: _Here) -> _Here:
        """One iteration of a loop, which stands for all of them; the only one, if data choose it or say where the loop begins
        or ends, each lane its own."""
        if loads(begin) or loads(end):
            chosen = self.rng.integers(0, PLACES, here.active.shape)
            return replace(here, values={**here.values, var: chosen})
        first, last = evaluate(begin, here.values), evaluate(end, here.values)
        count = np.maximum(last - first, 0).max(axis=1)
        at = first + np.floor(_spread(self.rng, len(count)) * count).astype(np.int64)[:, None]
        values = {**here.values, var: np.minimum(at, np.maximum(last - 1, first))}
        return replace(here, values=values, weight=here.weight * count)

    def _add(self, what: str, here: _Here, each: object) -> None:
        self.found[what] = self.found.get(what, 0.0) + float(
            np.sum(here.weight * here.active.any(axis=1) * np.asarray(each))
        )

    def _does(
        self,
        here: _Here,
        latency: float,
        count: float = 1.0,
        of: str = INTEGERS,
        kind: str = "",
        least: float = 1.0,
        apart: float = 0.0,
    ) -> None:
        """So many instructions of a class and of this latency, which those of other iterations of unrolled loops do not wait
        for, or `apart` others. None takes less than `least`."""
        if not count:
            return
        self._add(of, here, count)
        self.issued[here.role] = self.issued.get(here.role, 0.0) + count * _times(here)
        if kind:
            self._add(f"{_ASKS}{kind}", here, count)
        together = min(MOST_APART, apart or prod(here.unrolled.values()))
        waits = "arithmetic" if of in ARITHMETIC else "others"
        self._waits(here, count * max(latency / max(together, 1.0), least), waits)

    def _waits(self, here: _Here, cycles: float, what: str = "others") -> None:
        self.waits[here.role, what] = self.waits.get((here.role, what), 0.0) + _times(here) * cycles

    def _ahead(self, here: _Here, rounds: int) -> None:
        """A wait for what was started so many rounds ago."""
        every = _times(here) * OF_MEMORY
        self.ahead[here.role, here.steps] = max(
            self.ahead.get((here.role, here.steps), (0.0, 0.0)), (every / rounds, every)
        )

    def of_role(self, role: str) -> Waits:
        def of_warp(cycles: Callable[[str], float]) -> float:
            return sum(cycles(r) / n for r, n in {"": self.roles[""], role: self.roles[role]}.items())

        def loops(which: int) -> float:
            return of_warp(lambda r: sum(both[which] for (own, _), both in self.ahead.items() if own == r))

        return Waits(
            of_warp(lambda r: self.waits.get((r, "arithmetic"), 0.0)),
            of_warp(lambda r: self.waits.get((r, "others"), 0.0)),
            started=loops(1),
            ahead=loops(0),
            share=of_warp(lambda r: self.issued.get(r, 0.0)) / max(sum(self.issued.values()), 1.0),
            by_role=bool(role),
        )

    def _store(self, s: Store, here: _Here, *, alone: bool = True) -> None:
        """A store with the loads of its value, whose latencies pass at the same time; not `alone`, it is a part of an
        instruction that has been counted."""
        latency = early = 0.0
        if any(x.buffer == s.buffer for x in loads(s.value)):  # a store may be of what the next iteration loads
            here = replace(here, spans={})
        for x, conds in dict.fromkeys(loads_under(s.value, ())):
            if s.atomic and x.buffer == s.buffer:
                continue  # an update is one access
            place = _once(x, s, reduce(_Here.under, conds, replace(here, spans={}) if conds else here))
            found = self._access(x.buffer, x.indices[0], place, loads=True, alone=alone)
            if here.stretch is not None and x.buffer in self.read and not conds:
                early = max(early, found)
            else:
                latency = max(latency, found)
        starts = here.starts and s.buffer in self.shared
        self._access(s.buffer, s.indices[0], here, loads=False, alone=alone and not starts)
        if not alone:
            return
        if starts:
            latency = early = 0.0
        if here.stretch is not None:
            here.stretch.longest = max(here.stretch.longest, early)
            here.stretch.every += _times(here) * early
        self._waits(here, latency / max(1.0, min(MOST_APART, prod(here.unrolled.values()))))
        times = here.lanes[1] if here.lanes else 1
        own = any(x.buffer == s.buffer for x in loads(s.value))
        known = free_vars(s.indices[0]) if own else None
        apart = prod(n for v, n in here.unrolled.items() if known is None or v in known) * times
        for of, count in _operations(s.value, self.approx).items():
            self._does(here, OF_INSTRUCTION * DEEP / CALL if count >= CALL else OF_INSTRUCTION, float(count * times), of=of,
                       apart=apart)  # fmt: skip

    def _access(self, buffer: str, at: Expr, here: _Here, *, loads: bool, alone: bool) -> float:
        """One access of each lane, of a vector if there is one. The latency of a load."""
        if buffer not in self.shared and buffer not in self.params:
            return 0.0  # in registers
        size = self.shared.get(buffer) or self.params[buffer]
        count = 1
        if here.lanes is not None and stride(at, here.lanes[0]) == 1:
            count = here.lanes[1]
        near = buffer in self.shared
        first = self._first(at, here)
        if alone and not here.starts and first is not None and (wide := self._joined(at, count, size, here)) > 1:
            count *= wide
            first, here = first // count * count, replace(here, weight=here.weight / wide)
        if first is None:
            places = np.arange(here.active.size, dtype=np.int64).reshape(here.active.shape) * WIDEST
        else:
            places = first * size
        if alone:
            kind = "copy" if here.starts else f"{'shared' if near else 'global'} {'load' if loads else 'store'}"
            self._does(here, OF_INSTRUCTION if loads else 1.0, of=ACCESSES, kind=kind)
            if here.inner in free_vars(at):  # the address of the next iteration
                self._does(here, 1.0, 1.0 if near else 2.0)
        if near:
            self._add("passes", here, _passes(places, size * count, here.active))
            return OF_SHARED
        self._add("sectors", here, _sectors(places, size * count, here.active))
        self._add("lines", here, _sectors(places, size * count, here.active, LINE))
        return OF_MEMORY if first is None or not loads else self._of_memory(at, first, size, here)

    def _joined(self, at: Expr, count: int, size: int, here: _Here) -> int:
        """How many accesses to `count` elements, of unrolled iterations, LLVM makes one: they are adjacent, and begin at a
        multiple of the bytes of them all, of which there are up to 16."""
        joined, used = 1, free_vars(at)
        for var, (begin, end) in here.spans.items() if self.joins else ():
            own = joined * count
            wide = max((n for n in (2, 4, 8, 16) if n * own * size <= ALIGNMENT), default=1)
            if var not in used or not 1 < end - begin <= MOST_JOINED or wide == 1:
                continue
            if (step := stride(at, var)) is not None and step != own:
                continue
            every = [self._first(at, replace(here, values={**here.values, var: n + 0 * here.values[THREAD]}))
                     for n in range(begin, end)]  # fmt: skip
            places = [x for x in every if x is not None]
            apart = [x - places[0] for x in places]
            if len(places) < end - begin or any((x != x.flat[0]).any() for x in apart):
                continue
            steps = np.sort([int(x.flat[0]) for x in apart])
            while wide > 1 and not _is_whole(places[0], steps, wide, own):
                wide //= 2
            joined *= wide
        return joined

    def _first(self, at: Expr, here: _Here) -> Numbers | None:
        """The elements that lanes access; None if data say which."""
        try:
            return evaluate(at, here.values)
        except LowerError:
            return None

    def _of_memory(self, at: Expr, first: Numbers, size: int, here: _Here) -> float:
        """The latency of a load: the first-level cache has lines that the iteration before has read."""
        if not here.inner:
            return OF_MEMORY
        before = self._first(at, replace(here, values={**here.values, here.inner: here.values[here.inner] - 1}))
        if before is None:
            return OF_MEMORY
        new = float(np.not_equal(first * size // LINE, before * size // LINE).mean())
        return OF_NEAR + (OF_MEMORY - OF_NEAR) * new


_ASKS = "asks "
"""What names of counts of requests begin with."""


def counted(
    k: DeviceKernel,
    sizes: Sizes,
    bytes_of: Mapping[str, int],
    machine: Machine | None = None,
    *,
    joins: bool = True,
    approx: float = 0.0,
    block: int | None = None,
) -> Counted:
    """What the warps of a kernel do, or of the `block` of that number; `bytes_of` has the sizes of elements of its arrays.
    Adjacent accesses are one if it `joins` them, as the code of a GPU has them and an emulation does not. Functions of f32
    may have the error `approx`."""
    rng = np.random.default_rng(0)
    warps = -(-k.threads // LANES)
    shape = (SAMPLES, LANES)
    lane, one = np.arange(LANES, dtype=np.int64)[None, :], np.ones(shape, np.int64)
    values: dict[str, Numbers] = {d: n * one for d, n in sizes.items()}
    own = np.arange(SAMPLES, dtype=np.int64) * warps // SAMPLES
    values[THREAD] = own[:, None] * LANES + lane
    blocks = 1
    for axis, extent in k.extents.items():
        n = int(evaluate(extent, {**values, "": one}).max())
        some = np.floor(_spread(rng, SAMPLES) * max(n, 1)).astype(np.int64)[:, None]
        values[axis] = one * (some if block is None else block // blocks % max(n, 1))
        blocks *= n
    blocks = blocks if block is None else 1
    weight = blocks * warps / SAMPLES * np.ones(SAMPLES)
    if warps <= SAMPLES:  # each of them is among those that are looked at
        weight = blocks / np.bincount(own, minlength=warps)[own]
    here = _Here(values, values[THREAD] < k.threads, weight, warps=warps)
    awaited = next((s.awaited for s in inside(k.body) if isinstance(s, InitMbarriers)), ())
    sizes_of = {b.name: b.dtype.bytes for b in k.shared}
    params = {n: bytes_of[n] for n in k.params}
    counter = _Counter(
        sizes_of, params, frozenset(k.params) - k.written, rng, machine or MACHINES[80], awaited, joins, approx
    )
    counter.roles[""] = max(blocks, 1) * warps
    if blocks:
        counter.device(k.body, here)
    found = counter.found
    return Counted(
        {of: found[of] for of in CLASSES if of in found},
        {name.removeprefix(_ASKS): n for name, n in found.items() if name.startswith(_ASKS)},
        found.get("sectors", 0.0),
        found.get("lines", 0.0),
        found.get("passes", 0.0),
        tuple(counter.of_role(role) for role in counter.roles),
        counter.products,
    )


def _is_whole(first: Numbers, steps: Numbers, wide: int, own: int) -> bool:
    """Whether accesses to `own` elements, so many elements behind a first one, are whole groups of `wide` that are adjacent,
    each at a multiple of its size."""
    if len(steps) % wide:
        return False
    groups = steps.reshape(-1, wide)
    adjacent = (groups - groups[:, :1] == own * np.arange(wide)).all()
    return bool(adjacent) and all(((first + n) % (wide * own) == 0).all() for n in groups[:, 0])


def _times(here: _Here) -> float:
    """How often all warps that are here run a statement."""
    return float(np.sum(here.weight * here.active.any(axis=1)))


def _spread(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """So many random numbers from 0 to 1, one in each of as many equal parts, in random order."""
    return (rng.permutation(count) + rng.random(count)) / count


def _is_product(i: Intrinsic) -> bool:
    """Whether an instruction adds up products."""
    return any(a.kind is IterKind.REDUCE for a in i.axes)


def _once(x: Load, s: Store, here: _Here) -> _Here:
    """The place of a load that stays in a register for the iterations of unrolled loops that do not change it."""
    if x.buffer == s.buffer:
        return here
    same = prod(n for v, n in here.unrolled.items() if v not in free_vars(x.indices[0]))
    return replace(here, weight=here.weight / same)


def _operations(e: Expr, approx: float) -> dict[str, int]:
    """The instructions of an expression by class, about: a product that is added is one with the sum; subscripts are counted
    with their accesses; a function that may be that near is one instruction behind one that scales its argument."""
    out: dict[str, int] = dict.fromkeys((FLOATS, INTEGERS, SPECIAL), 0)
    _add_operations(e, approx, out)
    return out


def _add_operations(e: Expr, approx: float, out: dict[str, int]) -> None:
    short = rounded_function(e, approx)
    match e:
        case Load():
            return
        case _ if not free_vars(e) and not any(loads(e)):
            return  # a constant, whatever it is of
        case _ if short is not None:
            parts, count = short.args, 1
            out[SPECIAL] += 1
        case Binary(op="+", lhs=a, rhs=Binary(op="*", lhs=b, rhs=c)):
            parts, count = (a, b, c), 1
        case Call(args=args):
            parts, count = args, CALL
        case _:
            parts = children(e)
            count = int(bool(parts))
    chooses = isinstance(e, Select | Compare | Cast) or (isinstance(e, Binary) and e.op in ("min", "max"))
    out[FLOATS if dtype_of(e).is_float and not chooses else INTEGERS] += count
    for x in parts:
        _add_operations(x, approx, out)


def _loads_of(body: tuple[Flat, ...], dtype: str) -> Iterator[Load]:
    """The loads of elements of a type in what a lane accesses."""
    for s in _accesses(body):
        yield from (x for x in loads(s.value) if x.dtype.name == dtype)


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


def _sectors(
    first: Numbers, size: int, active: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], unit: int = SECTOR
) -> Numbers:
    """The sectors, or other units, that the lanes of each warp touch."""
    places = [np.where(active, (first + n) // unit, -1) for n in range(0, size, unit)]
    places.append(np.where(active, (first + size - 1) // unit, -1))
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
