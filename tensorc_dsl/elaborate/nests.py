"""Turns stages into loops: each stage is one perfect nest of serial loops over one block.

The block has the name of the stage, a loop that of its index (made unique in the program), an iterator `v<index>`. The loop
of a scan is outermost, so that a step is complete before the next one begins."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.elaborate.declared import Declared
from tensorc_dsl.elaborate.reducers import ArgReducer, Reducer, flat
from tensorc_dsl.elaborate.stages import Computed
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.program import Annotation, Block, Buffer, For, Iter, IterKind, Stmt, Store, fresh
from tensorc_dsl.ir.reductions import REDUCER


def nest(c: Computed, used: set[str], best: Mapping[str, Buffer]) -> Stmt:
    """The loops and the block of a stage; the names of its loops are added to `used`.

    `best` has the buffer of the best values of each stage that computes positions.
    """
    if c.reducer is not None and any(ir.constant(size) == 0 for size in c.reduce.values()):
        # A block without instances never runs its `init`, so an empty reduction becomes the store of its identity.
        c = Computed(c.name, c.spatial, {}, None, _nothing(c), (), annotations=c.annotations)
    order = sorted(c.spatial, key=lambda n: n != c.scan)
    loops = {n: fresh(str(n), used) for n in (*order, *c.reduce)}
    avoid = set(used)
    names = {n: fresh(f"v{n}", avoid) for n in loops}
    kinds = {n: IterKind.SCAN if n == c.scan else IterKind.SPATIAL for n in order}
    sizes = {**c.spatial, **c.reduce}
    iters = tuple(Iter(names[n], kinds.get(n, IterKind.REDUCE), sizes[n], ir.Var(loops[n])) for n in loops)
    target = tuple(ir.Var(names[n]) for n in c.spatial)
    value = ir.substitute(c.value, {n: ir.Var(v) for n, v in names.items()})
    body, init, reducer = _stores(c, target, value, names, best)
    annotations = tuple(sorted((*c.annotations, *reducer), key=lambda a: a[0]))
    out: Stmt = Block(str(c.name), iters, body, init, annotations=annotations)
    for n in reversed(loops):
        out = For(loops[n], sizes[n], (out,))
    return out


def _nothing(c: Computed) -> ir.Const:
    match c.reducer:
        case Reducer() as reducer:
            return reducer.identity(c.dtype)
        case Declared(identity=start):
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
        case Declared(name=name, identity=start) as reducer:
            body = (Store(str(c.name), target, reducer.combine(old, value)),)
            return body, (Store(str(c.name), target, start),), ((REDUCER, name),)
        case ArgReducer(kind=kind) as reducer:
            kept = best[c.name]
            where = flat(c.reduce, names)[0]
            body, init = reducer.stores(c.name, kept.name, target, value, where, kept.dtype)
            return body, init, ((REDUCER, kind),)
