"""Turns stages into loops: each stage is one perfect nest of serial loops over one block.

The block has the name of the stage, a loop that of its index (made unique in the program), an iterator `v<index>`. The loop
of a scan is outermost, so that a step is complete before the next one begins. If a step reduces earlier elements of the scan,
this loop also contains the nests of those reductions, before that of the scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tensorc_dsl.elaborate.reducers import ArgReducer, Reducer, flat
from tensorc_dsl.elaborate.stages import Computed
from tensorc_dsl.elaborate.user_reducers import UserReducer
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.program import Annotation, Block, Buffer, For, Iter, IterKind, Stmt, Store, fresh
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.proof.sets.safety import ranges_of
from tensorc_dsl.proof.sets.simplify import simplify


def nests(stages: Iterable[Computed], used: set[str], best: Mapping[str, Buffer]) -> tuple[Stmt, ...]:
    """The loops and the blocks of all stages; the names of the loops are added to `used`.

    `best` has the buffer of the best values of each stage that computes positions.
    """
    out: list[Stmt] = []
    parts: list[Computed] = []
    for c in stages:
        parts.append(c)
        if c.within is None:
            out.append(_steps(parts, used, best) if len(parts) > 1 else _nest(c, used, best))
            parts = []
    return tuple(out)


def _steps(parts: list[Computed], used: set[str], best: Mapping[str, Buffer]) -> Stmt:
    """One loop over the steps of a scan, the last of `parts`, around the nests of all that a step computes."""
    scan = parts[-1]
    assert scan.scan is not None  # only a scan has parts
    loop = fresh(str(scan.scan), used)
    return For(loop, scan.spatial[scan.scan], tuple(_nest(c, used, best, loop) for c in parts))


def _nest(c: Computed, used: set[str], best: Mapping[str, Buffer], step: str | None = None) -> Stmt:
    """The loops and the block of a stage, those alone that stand in the loop `step` of a scan where there is one."""
    if c.reducer is not None and any(ir.constant(size) == 0 for size in c.reduce.values()):
        # A block without instances never runs its `init`, so an empty reduction becomes the store of its identity.
        c = replace(c, reduce={}, reducer=None, value=_nothing(c), loads=())
    order = sorted(c.spatial, key=lambda n: n != c.scan)
    loops = {n: step if step is not None and n == c.scan else fresh(str(n), used) for n in (*order, *c.reduce)}
    avoid = set(used)
    names = {n: fresh(f"v{n}", avoid) for n in loops}
    kinds = {n: IterKind.SCAN if n == c.scan else IterKind.SPATIAL for n in order}
    sizes = {**c.spatial, **c.reduce}
    iters = tuple(Iter(names[n], kinds.get(n, IterKind.REDUCE), sizes[n], ir.Var(loops[n])) for n in loops)
    at: dict[str, ir.Expr] = {str(n): ir.Var(v) for n, v in names.items()}
    if c.back and c.scan is not None:
        ranges = ranges_of({names[n]: size for n, size in sizes.items()})
        at[c.scan] = simplify(ir.sub(ir.sub(c.spatial[c.scan], ir.ONE), at[c.scan]), ranges)
        value = simplify(ir.substitute(c.value, at), ranges)
    else:
        value = ir.substitute(c.value, at)
    target = tuple(at[n] for n in c.spatial)
    body, init, reducer = _stores(c, target, value, names, best)
    annotations = tuple(sorted((*c.annotations, *reducer), key=lambda a: a[0]))
    out: Stmt = Block(str(c.name), iters, body, init, annotations=annotations)
    for n in reversed(loops):
        if loops[n] == step:
            break  # it is outermost
        out = For(loops[n], sizes[n], (out,))
    return out


def _nothing(c: Computed) -> ir.Const:
    match c.reducer:
        case Reducer() as reducer:
            return reducer.identity(c.dtype)
        case UserReducer(identity=start):
            return start
        case _:
            raise AssertionError("a reducer of positions refuses an empty reduction")


def _stores(
    c: Computed,
    target: tuple[ir.Expr, ...],
    value: ir.Expr,
    names: Mapping[str, str],
    best: Mapping[str, Buffer],
) -> tuple[tuple[Store, ...], tuple[Store, ...], tuple[Annotation, ...]]:
    """The stores of a block, the stores of its `init`, and the annotation with its reducer's name."""
    old = ir.Load(c.name, target, c.dtype)
    match c.reducer:
        case None:
            return (Store(str(c.name), target, value),), (), ()
        case Reducer() as reducer:
            start = reducer.identity(c.dtype)
            return (Store(str(c.name), target, reducer.combine(old, value)),), (Store(str(c.name), target, start),), ()
        case UserReducer(name=name, identity=start) as reducer:
            body = (Store(str(c.name), target, reducer.combine(old, value)),)
            return body, (Store(str(c.name), target, start),), ((REDUCER, name),)
        case ArgReducer(kind=kind) as reducer:
            kept = best[c.name]
            where = flat(c.reduce, names)[0]
            body, init = reducer.stores(c.name, kept.name, target, value, where, kept.dtype)
            return body, init, ((REDUCER, kind),)
