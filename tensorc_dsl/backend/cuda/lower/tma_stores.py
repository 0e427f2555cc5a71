"""Where the thread that starts TMA stores waits for them, and what a kernel with some may not do.

A TMA store reads shared memory asynchronously to all threads, and writes an array at some time before the kernel ends. So no
thread may overwrite what it reads until it has read: the thread that has started it waits before the next write, and before
its block ends. Its result is for later kernels: no statement of this one reads or writes the array in another way, and no
element is in two stores of a block, which is proved.

PTX ISA 9.2, section 9.7.9.25: "Asynchronous copy", "Bulk async-groups". CUTLASS and the CUDA C++ Programming Guide ("Using
TMA to transfer multi-dimensional arrays") end a kernel after the same wait: stores in flight are complete when the kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from tensorc_dsl.affine.sets import NotAffine, affine_only, feasible
from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    Device,
    DeviceKernel,
    Guard,
    LookBack,
    Nested,
    Phase,
    Role,
    Shared,
    Steps,
    TmaLoad,
    TmaStore,
    WaitTmaStores,
    inside,
    outgoing_in,
    staged_in,
    tma_stores_in,
)
from tensorc_dsl.ir.expr import Compare, Expr, Var, add, index, loads, substitute
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, LowerError, Store, TmaTile, store_loads, stores

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
