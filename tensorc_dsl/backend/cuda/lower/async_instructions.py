"""Instructions that run beside the threads that start them: what stands before and behind each run of them.

They read shared memory, and read and write registers of four warps, while threads go on. So before a run a thread is done
with these registers, and behind it it waits, before anything else: the run ends where another statement begins. In a loop
where nothing that they read is written meanwhile, a thread waits for those of the round before (`overlap`). What threads have
stored in memory that such an instruction reads is made known to it before the next barrier, which stands there by proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.barriers import Access, accesses
from tensorc_dsl.backend.cuda.lower.bodies import whole_vectors
from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, is_of_group, operands_of
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    BLOCK_AXES,
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
    collectives_in,
    inside,
    outgoing_in,
)
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Var, add, constant, index, mul, sub, substitute
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.warp import is_described
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, buffers_of, store_loads, stores, substituted
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts, is_multiple, prove, simplify
from tensorc_dsl.proof.sets.store_guards import filled

# Which loops may leave the products of a round under way while they begin the next.
#
# Behind the products of a round a thread then waits for those of the round before. So what these have read may be
# overwritten from there on, behind a barrier, and what those of the round read may not. Where another role loads, it is
# released there, one round late. In the part of a round before its products, nothing that products read is written. Whether
# a write meets what is being read is decided by integer sets, for all threads.


@dataclass(frozen=True, slots=True)
class Around:
    """The extents of blocks, threads and loops around a statement, and the buffers of which instructions get descriptors."""

    extents: tuple[tuple[str, Expr], ...]
    described: Collection[str]

    def among(self, threads: int) -> Around:
        """The same, for so many threads."""
        return replace(self, extents=tuple((v, index(threads) if v == THREAD else e) for v, e in self.extents))


def overlapped(s: Steps, around: Around) -> tuple[Device, ...] | None:
    """The loop with the products of a round under way in the next; None if it has none, or that is not known to be right."""
    ends = [n for n, x in enumerate(s.body) if isinstance(x, WgmmaWait)]
    if len(ends) != 1 or sum(isinstance(x, WgmmaWait) for x in inside(s.body)) != 1:
        return None
    (end,) = ends
    begin = next(n for n, x in enumerate(s.body) if isinstance(x, WgmmaFence))
    head, run, tail = s.body[:begin], s.body[begin + 1 : end], s.body[end + 1 :]
    finish = s.body[end]
    assert isinstance(finish, WgmmaWait)
    others = [*head, *tail]
    if any(not set(finish.buffers).isdisjoint(buffers_of(x)) for x in _overlap_stores(others)):
        return None
    if any(x.buffer in around.described for x in _overlap_stores(head)):
        return None
    inner = replace(around, extents=(*around.extents, (s.var, s.end)))
    reads = [
        a for x in inside(tuple(run)) if isinstance(x, Phase) for a in accesses(x.body, finish.buffers) if not a.write
    ]
    loops = tuple((x.var, x.end) for x in inside(tuple(run)) if isinstance(x, Steps))
    reads = [replace(a, loops=(*loops, *a.loops)) for a in reads if a.buffer in around.described]
    if not _apart(tail, reads, inner, (), False):
        return None
    if any(isinstance(x, ArriveMbarrier) and x.slots == 1 for x in tail):
        return None
    released = [x for x in tail if isinstance(x, ArriveMbarrier)]
    rest = [x for x in tail if not isinstance(x, ArriveMbarrier)]
    late = tuple(_released(x, sub(Var(s.var), ONE), Compare(">", Var(s.var), ZERO), s.var) for x in released)
    last = tuple(_released(x, sub(s.end, ONE), Compare(">", s.end, ZERO), s.var) for x in released)
    body = (*head, WgmmaFence(finish.buffers), *run, WgmmaWait((), 1), *late, *rest)
    return (replace(s, body=body), replace(finish, ends_group=False), *last)


def _released(x: ArriveMbarrier, iteration: Expr, cond: Expr, var: str) -> Device:
    """The release of an iteration, if there is one."""
    own = replace(x, at=simplify(substitute(x.at, {var: iteration}), {}))
    return own if prove(cond, {}) else Guard(cond, (own,))


def _overlap_stores(body: Sequence[Device]) -> list[Store]:
    flat = [x.body for x in inside(tuple(body)) if isinstance(x, Phase | TmaLoad)]
    return [x for one in flat for x in stores(one)]


def _apart(
    body: Sequence[Device], reads: Sequence[Access], around: Around, guards: tuple[Expr, ...], cleared: bool
) -> bool:
    """Whether each write to what products read is behind a barrier, and to no element that those of the round read."""
    for s in body:
        match s:
            case Barrier():
                cleared = True
            case Guard(cond=cond, body=inner):
                if not _apart(inner, reads, around, (*guards, *conjuncts(cond)), cleared):
                    return False
            case Steps(var=var, end=end, body=inner):
                deeper = replace(around, extents=(*around.extents, (var, end)))
                if not _apart(inner, reads, deeper, guards, cleared):
                    return False
            case Phase(body=inner) | TmaLoad(body=inner):
                for a in accesses(inner, ()):
                    if a.write and a.buffer in around.described:
                        mine = replace(a, conds=(*a.conds, *guards))
                        if not cleared or any(_meet(mine, b, around) for b in reads if b.buffer == a.buffer):
                            return False
            case _:
                pass
    return True


def _meet(a: Access, b: Access, around: Around) -> bool:
    """Whether a thread can write an element in the iteration in which any thread reads it."""
    names = {v: Var(f"{v}'") for v in (THREAD, *(v for v, _ in a.loops))}
    extents = dict(around.extents)
    extents |= {f"{v}'": e for v, e in (*a.loops, (THREAD, extents[THREAD]))}
    extents |= dict(b.loops)
    conds = (Compare("==", substitute(a.index, names), b.index), *(substitute(c, names) for c in a.conds), *b.conds)
    try:
        return feasible(extents, affine_only(conds))
    except NotAffine:
        return True


def with_waits(k: DeviceKernel) -> DeviceKernel:
    """The kernel with what its instructions of warpgroups and its TMA stores need around them."""
    described = described_in(collectives_in(k.body))
    known = described | outgoing_in(k.body).keys()
    if not known:
        return k
    _, body = _published(k.body, known, False)
    sizes = (*zip(BLOCK_AXES, k.grid, strict=True), (THREAD, index(k.threads)))
    return replace(k, body=_waited(body, Around(sizes, described)))


def described_in(every: Iterable[Collective]) -> frozenset[str]:
    """The buffers of which instructions get descriptors."""
    return frozenset(x.buffer for s in every for b, x in accesses_of(s) if is_described(b.scope))


def registers_in(body: tuple[Device, ...]) -> tuple[str, ...]:
    """The buffers in registers that instructions of warpgroups access: sums, and factors without a descriptor."""
    every = (s for s in collectives_in(body) if is_of_group(s.intrinsic))
    return tuple(dict.fromkeys(x.buffer for s in every for x in operands_of(s).values()))


def _waited(body: tuple[Device, ...], around: Around) -> tuple[Device, ...]:
    out: list[Device] = []
    run: list[Device] = []

    def end() -> None:
        if run:
            names = registers_in(tuple(run))
            out.extend((WgmmaFence(names), *run, WgmmaWait(names)))
            run.clear()

    for s in body:
        if _runs_beside(s):
            run.append(s)
            continue
        end()
        if isinstance(s, Steps):
            deeper = replace(around, extents=(*around.extents, (s.var, s.end)))
            s = replace(s, body=_waited(s.body, deeper))
            out.extend(overlapped(s, around) or (s,))
        elif isinstance(s, Role):
            out.append(replace(s, body=_waited(s.body, around.among(s.threads))))
        else:
            out.append(replace(s, body=_waited(s.body, around)) if isinstance(s, Guard) else s)
    end()
    return tuple(out)


def _runs_beside(s: Device) -> bool:
    """Whether a statement is such instructions alone."""
    match s:
        case Phase(body=inner):
            return not s.asynchronous and all(map(_is_alone, inner))
        case Steps(body=inner) | Guard(body=inner):
            return bool(inner) and all(map(_runs_beside, inner))
        case _:
            return False


def _is_alone(s: Flat) -> bool:
    if isinstance(s, Collective):
        return is_of_group(s.intrinsic)
    return not isinstance(s, Store) and all(map(_is_alone, s.body))


def _published(body: tuple[Device, ...], described: Collection[str], stored: bool) -> tuple[bool, tuple[Device, ...]]:
    """The statements with what makes stores known before barriers, and whether there are others behind the last one.

    `stored` says so of those before.
    """
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner):
                stored |= not s.asynchronous and _stores(inner, described)
                out.append(s)
            case WaitGroup(landed=landed):
                stored |= _stores(landed, described)
                out.append(s)
            case Barrier():
                out += [ProxyFence(), s] if stored else [s]
                stored = False
            case Steps() | Guard() | Role():
                before = stored
                if isinstance(s, Steps):  # its body follows itself
                    stored |= _published(s.body, described, stored)[0]
                after, inner = _published(s.body, described, stored)
                out.append(replace(s, body=inner))
                stored = before | after
            case LookBack():
                stored |= _stores(s.shown, described)
                out.append(s)
            case TmaStore():  # what its own thread has stored needs no barrier
                out += [ProxyFence(), s] if stored else [s]
                stored = False
            case (
                CommitGroup()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | InitMbarriers()
                | TmaLoad()
                | WaitTmaStores()
                | WaitMbarrier()
                | ArriveMbarrier()
                | Ticket()
            ):
                out.append(s)
            case _:
                assert_never(s)
    return stored, tuple(out)


def _stores(body: tuple[Flat, ...], described: Collection[str]) -> bool:
    return any(s.buffer in described for s in stores(body))


# The rule for copies that run beside other work: which statements the machine can start and wait for later.
#
# A thread can start a copy of 4, 8 or 16 bytes from global to shared memory, both aligned to that size, or as many zeros. A
# statement whose stores are all such copies starts them; every other one is run where it stands.


SIZES = (ALIGNMENT, 8, 4)
"""The bytes that one copy can have, the most first: arrays, buffers and their versions begin at multiples of all of them."""


@dataclass(frozen=True, slots=True)
class Copying:
    """What a kernel's copies may access: the buffers in shared memory that are private to an iteration, the arrays that the
    kernel does not write, and the element types of both."""

    targets: Collection[str]
    sources: Collection[str]
    dtypes: dict[str, DType]


@dataclass(frozen=True, slots=True)
class NoCopy(Exception):
    """A statement that cannot be started, and the reason."""

    store: Store
    reason: str

    def __str__(self) -> str:
        return f"`{format_store(self.store)}` {self.reason}"


def as_copies(body: tuple[Flat, ...], allowed: Copying) -> tuple[Flat, ...]:
    """The statements with each store, or each vectorized loop around one, as a copy of 4, 8 or 16 aligned bytes.

    Raises NoCopy if one is not a copy, or not of such a size.
    """
    return tuple(_copies(whole_vectors(body), allowed))


def _copies(body: tuple[Flat, ...], allowed: Copying) -> Iterator[Flat]:
    for s in body:
        match s:
            case Store():
                _require_plain(s, allowed)
                _lanes(s, None, 1, allowed)
                yield s
            case Loop(kind=LoopKind.VECTORIZED):
                yield _divided(s, allowed)
            case Loop() | If():
                yield replace(s, body=tuple(_copies(s.body, allowed)))
            case _:
                first = next(_copies_stores(s.body))
                raise NoCopy(first, "is part of an instruction, or has storage of its own")


def _copies_stores(body: tuple[Flat, ...]) -> Iterator[Store]:
    for s in body:
        if isinstance(s, Store):
            yield s
        else:
            yield from _copies_stores(s.body)


def _require_plain(s: Store, allowed: Copying) -> None:
    copied = filled(s.value)
    if copied is None:
        raise NoCopy(s, "computes, and only copies run beside other work, of elements or of zeros")
    if s.buffer not in allowed.targets:
        raise NoCopy(
            s, f"writes `{s.buffer}`, which is not a buffer in shared memory that each iteration has for itself"
        )
    if written := {x.buffer for x in store_loads(s)} - set(allowed.sources):
        raise NoCopy(s, f"reads `{min(written)}`, which is not an array that the kernel only reads")
    if allowed.dtypes[s.buffer] != copied.load.dtype:
        raise NoCopy(s, f"converts {copied.load.dtype} to {allowed.dtypes[s.buffer]}")


def _divided(loop: Loop, allowed: Copying) -> Loop:
    """A vectorized loop as one of the widest copies for which all its stores are aligned."""
    count = constant(loop.end)
    assert count is not None  # it is a whole vector
    inner = list(_copies_stores(loop.body))
    for s in inner:
        _require_plain(s, allowed)
    lanes = min(_lanes(s, loop.var, count, allowed) for s in inner)
    if lanes == count:
        return loop
    if lanes == 1:
        return replace(loop, kind=LoopKind.UNROLLED)
    outer = f"{loop.var}.copy"
    at = {loop.var: add(mul(Var(outer), index(lanes)), Var(loop.var))}
    part = Loop(loop.var, ZERO, index(lanes), LoopKind.VECTORIZED, tuple(substituted(s, at) for s in loop.body))
    return Loop(outer, ZERO, index(count // lanes), LoopKind.UNROLLED, (part,))


def _lanes(s: Store, var: str | None, count: int, allowed: Copying) -> int:
    """The largest number of lanes of a store that are one copy. Raises NoCopy if there is none."""
    copied = filled(s.value)
    assert copied is not None  # as `_require_plain` asks
    size = allowed.dtypes[s.buffer].bytes
    first = {} if var is None else {var: ZERO}
    both = [substitute(i, first) for i in (*s.indices, *copied.load.indices)]
    for total in SIZES:
        lanes = total // size
        if total % size == 0 and 1 <= lanes <= count and count % lanes == 0:
            if lanes == 1 or all(is_multiple(i, lanes, {}) for i in both):
                return lanes
    wide = count * size
    if wide < SIZES[-1]:
        raise NoCopy(s, f"copies {wide} byte{'s' * (wide != 1)} a thread, and copies beside other work have 4, 8 or 16")
    raise NoCopy(s, f"copies {wide} bytes a thread that are not known to be aligned to 4, 8 or 16")
