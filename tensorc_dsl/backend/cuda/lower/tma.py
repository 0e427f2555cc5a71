"""Tiles of arrays that one thread copies to shared memory or back, and what they have in all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import prod

from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    MOST_MBARRIERS,
    Barrier,
    Device,
    DeviceKernel,
    Guard,
    InitMbarriers,
    LookBack,
    Mbarriers,
    Nested,
    Phase,
    Role,
    Shared,
    Steps,
    TmaLoad,
    TmaStore,
    WaitMbarrier,
    WaitTmaStores,
    inside,
    outgoing_in,
    staged_in,
    tma_in,
    tma_loads_in,
    tma_stores_in,
)
from tensorc_dsl.backend.cuda.lower.threads import with_values
from tensorc_dsl.ir.expr import Compare, Expr, Var, add, constant, index, loads, substitute
from tensorc_dsl.ir.program import Buffer, Intrinsic, LoopKind, Store
from tensorc_dsl.ir.warp import described, is_tma_store
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, LowerError, TensorMap, TmaTile, store_loads, stores
from tensorc_dsl.proof.sets.instructions import Match, array_of, dimensions_of
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts


def tile_of(i: Intrinsic, match: Match, array: Buffer) -> TmaTile:
    """The tile that an instruction copies."""
    there = array_of(i, match)
    (here,) = (x for x in match.tiles if x is not there)
    along, lines = dimensions_of(there), described(i, here.operand)
    assert along is not None and lines is not None  # as `no_tensor_map` and `tma_difference` ask
    sizes = [1] * len(array.shape)
    for n, extent in zip(along, there.operand.shape, strict=True):
        sizes[n] = constant(extent) or 0
    own = TensorMap(array.name, array.dtype, array.shape, tuple(sizes), lines.swizzle)
    return TmaTile(own, there.origin, is_tma_store(i))


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


# Where tiles that are copied beside the threads are waited for: at mbarriers, which count the bytes that are to come.
#
# A copy that its pipeline starts ahead has an mbarrier for each iteration under way. Every other one is waited for at once,
# behind those that start with it. One thread sets all of them up as the kernel begins.


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


def with_mbarriers(k: DeviceKernel, awaited: Sequence[int]) -> DeviceKernel:
    """The kernel with memory for its mbarriers, which are set up first, and the maps of its tiles; those with
    numbers are `awaited`. Raises LowerError if there are too many."""
    loads = list(tma_loads_in(k.body))
    maps = maps_of([s.body for s in (*loads, *tma_stores_in(k.body))])
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


# Where the thread that starts TMA stores waits for them, and what a kernel with some may not do.
#
# A TMA store reads shared memory asynchronously to all threads, and writes an array at some time before the kernel ends. So
# no thread may overwrite what it reads until it has read: the thread that has started it waits before the next write, and
# before its block ends. Its result is for later kernels: no statement of this one reads or writes the array in another way,
# and no element is in two stores of a block, which is proved.
#
# PTX ISA 9.2, section 9.7.9.25: "Asynchronous copy", "Bulk async-groups". CUTLASS and the CUDA C++ Programming Guide
# ("Using TMA to transfer multi-dimensional arrays") end a kernel after the same wait: stores in flight are complete when
# the kernel is.


Loops = tuple[tuple[str, Expr], ...]


def with_tma_stores(k: DeviceKernel) -> DeviceKernel:
    """The kernel with waits for its TMA stores. Raises LowerError if it may access what they write."""
    if not any(tma_stores_in(k.body)):
        return k
    _require_alone(k)
    places = {b.name: b for b in k.shared}
    if both := sorted(staged_in(k.body) & outgoing_in(k.body).keys()):
        raise LowerError(f"TMA stores read `{both[0]}`, which another role loads; leave roles out, or copy it")
    return replace(k, body=_ended(k.body, places))


def _ended(body: tuple[Device, ...], places: dict[str, Shared]) -> tuple[Device, ...]:
    """Statements with their waits, and one for what is under way at their end."""
    if any(isinstance(s, Role) for s in body):
        return tuple(replace(s, body=_ended(s.body, places)) if isinstance(s, Role) else s for s in body)
    out, busy = _waited(body, {}, places)
    return (*out, _wait(busy, places)) if busy else out


def _waited(
    body: tuple[Device, ...], busy: dict[str, None], places: dict[str, Shared]
) -> tuple[tuple[Device, ...], dict[str, None]]:
    """Statements with their waits, and the buffers that may be read at their end; `busy` are those at their beginning."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, TmaStore):
            busy = busy | outgoing_in((s,))
        elif isinstance(s, Nested) and outgoing_in((s,)):
            entered = busy | outgoing_in((s,)) if isinstance(s, Steps) else busy  # its body follows itself
            inner, after = _waited(s.body, entered, places)
            s, busy = replace(s, body=inner), busy | after
        elif not busy.keys().isdisjoint(x.buffer for x in _stores((s,))):
            out.append(_wait(busy, places))
            busy = {}
        out.append(s)
    return tuple(out), busy


def _wait(busy: dict[str, None], places: dict[str, Shared]) -> WaitTmaStores:
    return WaitTmaStores(tuple((b, places[b].size) for b in busy))


def _stores(body: tuple[Device, ...]) -> Iterator[Store]:
    """The stores of statements, but for TMA stores."""
    for s in inside(body):
        if isinstance(s, Phase | TmaLoad):
            yield from stores(s.body)
        elif isinstance(s, LookBack):
            yield from stores(s.shown)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tile that is stored, in loops and under conditions."""

    tile: TmaTile
    loops: Loops
    conds: tuple[Expr, ...]


def _require_alone(k: DeviceKernel) -> None:
    tiles = list(_tiles(k.body, (), ()))
    arrays = {t.tile.map.array for t in tiles}
    own = list(_stores(k.body))
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
    extents: dict[str, Expr] = dict(zip(BLOCK_AXES, k.grid, strict=True))
    for a, b in combinations_with_replacement(tiles, 2):
        if a.tile.map.array == b.tile.map.array and _meet(a, b, extents, a is b):
            raise LowerError(
                f"TMA stores of `{a.tile.map.array}` may write one element twice, in no order; store by threads"
            )


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
