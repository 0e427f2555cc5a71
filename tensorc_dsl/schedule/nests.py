"""Rewrites programs by path and by buffer, and makes nests of new loops over a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Expr, Load, Var, add, constant, transform
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Stmt, Store, fresh, replace_stmt
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify, simplify_where


def stmt_name(s: Stmt) -> str:
    return s.var if isinstance(s, For) else s.name


def remove_block(program: Program, block: str) -> Program:
    """The program without a block and without the loops that contained nothing else."""
    return replace_stmt(program, block, ())


def with_annotations(program: Program, loop: For, notes: Mapping[str, int | str]) -> Program:
    """The program with annotations added to a loop; a key that exists gets the new value."""
    items = tuple(sorted({**dict(loop.annotations), **notes}.items()))
    return replace_stmt(program, loop.var, (replace(loop, annotations=items),))


def replace_buffer(program: Program, name: str, new: tuple[Buffer, ...]) -> Program:
    """The program with an intermediate buffer's declaration replaced."""
    out = tuple(n for b in program.buffers for n in (new if b.name == name else (b,)))
    return replace(program, buffers=out)


def map_accesses(
    block: Block, buffer: str, access: Callable[[tuple[Expr, ...]], tuple[str, tuple[Expr, ...]]]
) -> Block:
    """The block with every load and store of a buffer moved to another buffer and other subscripts."""

    def load(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == buffer:
            name, indices = access(e.indices)
            return Load(name, indices, e.dtype)
        return e

    def store(s: Store) -> Store:
        indices = tuple(transform(i, load) for i in s.indices)
        name, indices = access(indices) if s.buffer == buffer else (s.buffer, indices)
        return Store(name, indices, transform(s.value, load))

    return replace(block, init=tuple(map(store, block.init)), body=tuple(map(store, block.body)))


def stem(iterator: str, n: int) -> str:
    """The name for the loop of an iterator: `i` for `vi`, `ax0` if there is no better one."""
    rest = iterator[1:]
    return rest if iterator.startswith("v") and rest.isidentifier() else f"ax{n}"


def nest_over(
    block: Block,
    box: Sequence[tuple[Expr, Expr]],
    around: Sequence[For],
    used: set[str],
    wrapped: Collection[int] = (),
) -> Stmt:
    """A nest of new loops, inside `around`, that runs `block` for the iterator values in a box.

    The box has a lower bound over `around` and an extent per iterator; a guard excludes values outside an iterator's own
    extent, but those of the iterators with the numbers `wrapped` count modulo it. An iterator with one value has no loop.
    The names of the loops are added to `used`, and those of the block.
    """
    used |= {block.name, *(it.name for it in block.iters)}
    loops: list[For] = []
    bindings: list[Expr] = []
    for n, (it, (lower, extent)) in enumerate(zip(block.iters, box, strict=True)):
        value = lower
        if constant(extent) != 1:
            loop = For(fresh(stem(it.name, n), used), extent, ())
            loops.append(loop)
            value = add(lower, Var(loop.var))
        bindings.append(Binary("%", value, it.extent) if n in wrapped else value)
    ranges = extent_ranges((*around, *loops))
    iters = tuple(replace(it, binding=simplify(b, ranges)) for it, b in zip(block.iters, bindings, strict=True))
    guards = [
        c
        for n, (it, (lower, extent)) in enumerate(zip(iters, box, strict=True))
        if n not in wrapped and not (lower == ZERO and extent == it.extent)
        for c in (Compare("<=", ZERO, it.binding), Compare("<", it.binding, it.extent))
    ]
    open_loops = [x for x in (*around, *loops) if constant(x.extent) is None]
    known = simplify_where([Compare("<", Var(x.var), x.extent) for x in open_loops], ranges)
    where = tuple(c for c in simplify_where(guards, ranges) if c not in known)
    stmt: Stmt = replace(block, iters=iters, where=where)
    for loop in reversed(loops):
        stmt = replace(loop, body=(stmt,))
    return stmt


def nest_of(stmt: Stmt, around: Sequence[For]) -> tuple[tuple[For, ...], Block]:
    """The block in a nest that stands inside `around`, with all loops around it."""
    loops = list(around)
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body[0]
    return tuple(loops), stmt


def copy_nest(name: str, target: str, source: Buffer, box: Sequence[tuple[Expr, Expr]], used: set[str]) -> Stmt:
    """A nest over a block `name` that copies a box of `source` to `target`, starting at index 0."""
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, extent, ZERO) for n, (_, extent) in enumerate(box))
    at = tuple(Var(it.name) for it in iters)
    value = Load(source.name, tuple(add(v, lower) for v, (lower, _) in zip(at, box, strict=True)), source.dtype)
    return nest_over(Block(name, iters, (Store(target, at, value),)), [(ZERO, e) for _, e in box], (), used)


def only_block(nest: Stmt) -> Block:
    """The block in a nest of loops without other statements."""
    while not isinstance(nest, Block):
        nest = nest.body[0]
    return nest


def guarded(nest: Stmt, guard: tuple[Expr, ...]) -> Stmt:
    """A nest of loops, with conditions added to each block in it."""
    if isinstance(nest, Block):
        return replace(nest, where=(*nest.where, *guard))
    return replace(nest, body=tuple(guarded(s, guard) for s in nest.body))
