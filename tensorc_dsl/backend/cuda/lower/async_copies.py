"""Copies that run beside the threads that start them: which statements the machine can start, and what they need.

A thread can start a copy of 4, 8 or 16 bytes from global to shared memory, both aligned to that size, or as many zeros. A
statement whose stores are all such copies starts them; every other one is run where it stands.

One thread starts TMA copies of whole tiles. Loads count their bytes at mbarriers, where they are waited for: a copy that its
pipeline starts ahead has one for each iteration under way. Every other one is waited for at once, behind those that start
with it. One thread sets all mbarriers up as the kernel begins.

A TMA store reads shared memory asynchronously to all threads, and writes an array at some time before the kernel ends. Its
result is for later kernels: no statement of this one reads or writes the array in another way, and no element is in two
stores of a block, which is proved. PTX ISA 9.2, section 9.7.9.25: "Asynchronous copy", "Bulk async-groups". CUTLASS and the
CUDA C++ Programming Guide ("Using TMA to transfer multi-dimensional arrays") end a kernel when its stores have read shared
memory: those in flight are complete when the kernel is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import prod

from tensorc_dsl.backend.cuda.lower.bodies import whole_vectors
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    MOST_MBARRIERS,
    Barrier,
    Device,
    DeviceKernel,
    Guard,
    InitMbarriers,
    Mbarriers,
    Role,
    Steps,
    TmaLoad,
    TmaStore,
    WaitMbarrier,
    inside,
    outgoing_in,
    staged_in,
    stores_in,
    tma_in,
    tma_loads_in,
    tma_stores_in,
    with_values,
)
from tensorc_dsl.backend.cuda.lower.synchronization import Loops
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, constant, index, loads, mul, substitute
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import (
    Collective,
    Flat,
    If,
    Loop,
    LowerError,
    TensorMap,
    TmaTile,
    store_loads,
    stores,
    substituted,
)
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts, is_multiple
from tensorc_dsl.proof.sets.store_guards import filled

# Copies of threads.


SIZES = (ALIGNMENT, 8, 4)
"""The bytes that one copy can have, the most first: arrays, buffers and their versions begin at multiples of all of them."""


@frozen
class Copying:
    """What a kernel's copies may access: the buffers in shared memory that are private to an iteration, the arrays that the
    kernel does not write, and the element types of both."""

    targets: Collection[str]
    sources: Collection[str]
    dtypes: dict[str, DType]


@frozen
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
                first = next(stores(s.body))
                raise NoCopy(first, "is part of an instruction, or has storage of its own")


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
    inner = list(stores(loop.body))
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


# Tiles of arrays that one thread copies.


def loaded_bytes(body: Sequence[Flat]) -> int | None:
    """The bytes of the tiles that statements load; None if these are not whole loops of a known length around loads."""
    total = 0
    for s in body:
        if isinstance(s, Collective) and s.tile is not None and not s.tile.stores:
            total += bytes_of(s.tile)
        elif isinstance(s, Loop) and constant(s.begin) == 0 and s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            inner, count = loaded_bytes(s.body), constant(s.end)
            if inner is None or count is None:
                return None
            total += count * inner
        else:
            return None
    return total


def only_stores(body: Sequence[Flat]) -> bool:
    """Whether statements are loops and conditions around TMA stores."""
    return all(
        s.tile is not None and s.tile.stores
        if isinstance(s, Collective)
        else isinstance(s, Loop | If) and only_stores(s.body)
        for s in body
    )


def bytes_of(tile: TmaTile) -> int:
    """The bytes of a tile."""
    return prod(tile.map.sizes) * tile.map.dtype.bytes


def maps_of(bodies: Sequence[Sequence[Flat]]) -> tuple[TensorMap, ...]:
    """The different tensor maps of tiles, in their order."""
    return tuple(dict.fromkeys(s.tile.map for body in bodies for s in tma_in(tuple(body)) if s.tile is not None))


MBARRIER_BYTES = 8
"""The size of an mbarrier, and its alignment."""


def in_place(body: Sequence[Device]) -> list[Device]:
    """The statements with waits for tiles behind all loads that follow each other: these are under way together."""
    out: list[Device] = []
    late: list[Device] = []
    for s in body:
        if isinstance(s, WaitMbarrier):
            late.append(s)
            continue
        if not isinstance(s, TmaLoad):
            out += late
            late.clear()
        out.append(s)
    return [*out, *late]


def load_of(body: Sequence[Device]) -> TmaLoad | None:
    """What a statement starts that copies tiles and does nothing else; None if it does something else."""
    found = [s for s in body if isinstance(s, TmaLoad)]
    if not found or not all(isinstance(s, TmaLoad | WaitMbarrier) for s in body):
        return None
    return TmaLoad(found[0].at, sum(s.size for s in found), tuple(x for s in found for x in s.body))


def unnumbered_mbarrier(buffer: str) -> str:
    """The variable that stands for the mbarrier of what is waited for at once, until all others have their numbers."""
    return f"{buffer}.mbarrier"


def with_tiles(k: DeviceKernel, awaited: Sequence[int]) -> DeviceKernel:
    """The kernel with memory for its mbarriers, which are set up first, and the maps of its tiles; those with
    numbers are `awaited`. Raises LowerError if there are too many."""
    loads, outgoing = list(tma_loads_in(k.body)), list(tma_stores_in(k.body))
    if outgoing:
        _require_stores_alone(k)
    maps = maps_of([s.body for s in (*loads, *outgoing)])
    if not loads:
        return replace(k, maps=maps)
    others = dict.fromkeys(s.at.name for s in loads if isinstance(s.at, Var))
    numbers: dict[str, Expr] = {name: index(len(awaited) + n) for n, name in enumerate(others)}
    every = (*awaited, *(0 for _ in numbers))
    count = len(every)
    if count > MOST_MBARRIERS:
        raise LowerError(
            f"a block needs {count} mbarriers, and {MOST_MBARRIERS} is the most; let copies run less far ahead"
        )
    return replace(
        k,
        body=(InitMbarriers(every), Barrier(), *with_values(k.body, numbers)),
        mbarriers=Mbarriers(count, k.shared_bytes),
        shared_bytes=k.shared_bytes + count * MBARRIER_BYTES,
        maps=maps,
    )


# What TMA stores may not meet.


@frozen
class _Stored:
    """A tile that is stored, in loops and under conditions."""

    tile: TmaTile
    loops: Loops
    conds: tuple[Expr, ...]


def _require_stores_alone(k: DeviceKernel) -> None:
    """Raises LowerError if a kernel may access what its TMA stores write, or another role fills what they read."""
    tiles = list(_tiles(k.body, (), ()))
    arrays = {t.tile.map.array for t in tiles}
    own = list(stores_in(k.body))
    read = {x.buffer for s in own for x in store_loads(s)}
    read |= {
        x.buffer
        for s in inside(k.body)
        if isinstance(s, Steps | Guard)
        for x in loads(s.end if isinstance(s, Steps) else s.cond)
    }
    if both := sorted(arrays & (read | {s.buffer for s in own})):
        does = "reads" if both[0] in read else "writes"
        raise LowerError(
            f"TMA stores tiles of `{both[0]}`, and the kernel {does} `{both[0]}` in other statements; store by threads"
        )
    extents = k.extents
    for a, b in combinations_with_replacement(tiles, 2):
        if a.tile.map.array == b.tile.map.array and _meet(a, b, extents, a is b):
            raise LowerError(
                f"TMA stores of `{a.tile.map.array}` may write one element twice, in no order; store by threads"
            )
    if both := sorted(staged_in(k.body) & outgoing_in(k.body).keys()):
        raise LowerError(f"TMA stores read `{both[0]}`, which another role loads; leave roles out, or copy it")


def _tiles(body: tuple[Device, ...] | tuple[Flat, ...], loops: Loops, conds: tuple[Expr, ...]) -> Iterator[_Stored]:
    for s in body:
        match s:
            case Collective(tile=TmaTile() as tile) if tile.stores:
                yield _Stored(tile, loops, conds)
            case Steps(var=var, end=end, body=inner) | Loop(var=var, end=end, body=inner):
                yield from _tiles(inner, (*loops, (var, end)), conds)
            case Guard(cond=cond, body=inner) | If(cond=cond, body=inner):
                yield from _tiles(inner, loops, (*conds, *conjuncts(cond)))
            case Role(body=inner) | TmaStore(body=inner):
                yield from _tiles(inner, loops, conds)
            case _:
                pass


def _meet(a: _Stored, b: _Stored, extents: dict[str, Expr], same: bool) -> bool:
    """Whether an element of a block may be in both; of the same store, in different iterations."""
    names = {v: Var(f"{v}'") for v, _ in a.loops}
    extents = {**extents, **{f"{v}'": substitute(e, names) for v, e in a.loops}, **dict(b.loops)}
    conds = [*(substitute(c, names) for c in a.conds), *b.conds]
    for x, y, m, n in zip(a.tile.origin, b.tile.origin, a.tile.map.sizes, b.tile.map.sizes, strict=True):
        x = substitute(x, names)
        conds += [Compare("<", x, add(y, index(n))), Compare("<", y, add(x, index(m)))]
    differ: list[tuple[Expr, ...]] = [(Compare("!=", names[v], Var(v)),) for v, _ in a.loops] if same else [()]
    try:
        return any(feasible(extents, affine_only((*conds, *other))) for other in differ)
    except NotAffine:
        return True
