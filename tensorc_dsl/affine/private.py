"""Buffers with a copy per iteration of a loop.

A buffer of a scope other than "global" belongs to the innermost loop that contains all blocks that access it (`home`), and
is new in each iteration of that loop. This separates the iterations only if none reads an element that an earlier one wrote.
So every read must be proved to come after a write of the same element in the same iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from tensorc_dsl.affine.accesses import Access, accesses, home
from tensorc_dsl.affine.data import freed
from tensorc_dsl.affine.distance import common_loops
from tensorc_dsl.affine.fill import fills, fills_all, starts_itself
from tensorc_dsl.affine.sets import NotAffine, affine_only, affine_text, covers
from tensorc_dsl.affine.simplify import bounds, extent_ranges
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Var, add, index, substitute
from tensorc_dsl.ir.program import For, Program, fresh


def is_private(program: Program, buffer: str, var: str) -> bool:
    """Whether each iteration of the loop `var` has its own copy of the buffer, and reads only elements that it wrote."""
    around = home(program, program.buffer(buffer))
    if around is None or all(loop.var != var for loop in around):
        return False
    outer = tuple((x.var, x.extent) for x in around[:-1])
    return _written_first(outer, around[-1], buffer, program.buffer(buffer).shape)


def follow_writes(program: Program, buffer: str, block: str, within: int = 0) -> bool:
    """Whether each read of the buffer by a block comes after a write of the element, or no block writes the buffer.

    For a buffer with a copy per iteration the write must be in the same iteration; and in the same one of the outermost
    `within` loops, which the block and all writers share.
    """
    found = accesses((), program.body, frozenset((buffer,)))
    writes = [x for x in found if x.is_write]
    reads = [x for x in found if not x.is_write and x.block.name == block]
    b = program.buffer(buffer)
    return not writes or _all_follow(reads, writes, max(within, len(home(program, b) or ())), b.shape)


@lru_cache(maxsize=4096)
def _written_first(outer: tuple[tuple[str, Expr], ...], loop: For, buffer: str, shape: tuple[Expr, ...]) -> bool:
    """Whether every read of a buffer of this shape in an iteration of `loop` comes after a write of the element in it."""
    around = tuple(For(v, e, ()) for v, e in outer)
    found = accesses(around, (loop,), frozenset((buffer,)))
    writes = [x for x in found if x.is_write]
    return _all_follow([x for x in found if not x.is_write], writes, len(around) + 1, shape)


def _all_follow(reads: Sequence[Access], writes: Sequence[Access], equal: int, shape: tuple[Expr, ...]) -> bool:
    """Whether each read comes after a write of the element in the same iteration of the first `equal` loops."""
    # A stage that was inlined at several places reads the same elements again and again; the first read decides.
    different = {(r.block.name, r.guard, r.indices, r.update): r for r in reversed(reads)}
    open_: dict[object, list[tuple[Access, list[int]]]] = {}
    for r in different.values():
        if starts_itself(r, writes, equal):
            continue
        if not any(fills(w, r) or fills_all(w, r, shape) for w in writes):
            shapes, offsets = zip(*map(_offset, r.indices), strict=True) if r.indices else ((), ())
            open_.setdefault((r.block.name, r.guard, shapes), []).append((r, list(offsets)))
    return all(
        (len(window) > 1 and _covered(_window(window), writes, equal, shape))
        or all(_covered(r, writes, equal, shape) for r, _ in window)
        for window in open_.values()
    )


_HOLE = Var("offset'")  # no loop of a program has a name with a quote, so none is taken for one of a window


def _offset(e: Expr) -> tuple[Expr, int]:
    """A subscript with a hole in place of the number that it adds, also below a remainder; and that number."""
    match e:
        case Binary(op="%", lhs=inner, rhs=n):
            shape, offset = _offset(inner)
            return Binary("%", shape, n), offset
        case Binary(op="+", lhs=rest, rhs=Const(value=int(n))):
            return Binary("+", rest, _HOLE), n
        case _:
            return Binary("+", e, _HOLE), 0


def _window(reads: Sequence[tuple[Access, list[int]]]) -> Access:
    """A read of the box of elements that contains what reads at different offsets read, as a stencil's do: if each element of
    it was written, one question answers all of them.
    """
    first = min((r for r, _ in reads), key=lambda r: r.seq)
    indices: list[Expr] = []
    loops: list[For] = []
    for d, e in enumerate(first.indices):
        least, most = (of(offsets[d] for _, offsets in reads) for of in (min, max))
        loop = For(f"offset{d}'", index(most - least + 1), ())
        loops.append(loop)
        indices.append(substitute(_offset(e)[0], {_HOLE.name: add(Var(loop.var), index(least))}))
    return replace(first, indices=tuple(indices), loops=(*first.loops, *loops))


def _covered(r: Access, writes: Sequence[Access], equal: int, shape: tuple[Expr, ...]) -> bool:
    """Exactly: each instance of the read, for any value of its data, has an earlier instance of a write to its element, in
    one home iteration. A condition of the read that is not affine leaves no instance out, and a subscript that is not has
    all values of its interval inside the buffer.
    """
    used = {x.var for x in r.loops} | {x.var for w in writes for x in w.loops}
    read = freed(r.indices)
    ranges = {**extent_ranges(r.loops), **read.intervals}
    rough = {d: f"any{d}'" for d, e in enumerate(read.exprs) if not _is_affine(e)}
    limits = [c for d, name in rough.items() for c in _within(name, shape[d], bounds(read.exprs[d], ranges))]
    places = [Var(rough[d]) if d in rough else e for d, e in enumerate(read.exprs)]
    given: list[tuple[list[For], list[Expr]]] = []
    later: list[tuple[list[For], list[Expr]]] = []
    for w in writes:
        common = common_loops(w, r)[equal:]
        names = {x.var: Var(fresh(f"{x.var}_w", used)) for x in w.loops[equal:]}
        own = [For(names[x.var].name, substitute(w.extent(x), names), ()) for x in w.loops[equal:]]
        base = [substitute(c, names) for c in w.guard]
        base += [Compare("==", substitute(i, names), j) for i, j in zip(w.indices, places, strict=True)]
        same: list[Expr] = []
        for x in common:
            later.append((own, [*base, *same, Compare("<", names[x.var], Var(x.var))]))
            same.append(Compare("==", names[x.var], Var(x.var)))
        if w.seq < r.seq:
            given.append((own, [*base, *same]))
    try:
        needed = (*affine_only((*r.guard, *limits)), *read.ranges)
        return covers(r.loops, needed, [*given, *later], (*read.data, *rough.values()))
    except NotAffine:
        return False


def _is_affine(e: Expr) -> bool:
    try:
        affine_text(e)
    except NotAffine:
        return False
    return True


def _within(name: str, size: Expr, interval: tuple[int | None, int | None]) -> tuple[Expr, ...]:
    """The conditions that keep a subscript in a dimension of this size and in an interval, as far as that has ends."""
    low, high = interval
    most = () if high is None else (Compare("<=", Var(name), index(high)),)
    return Compare("<=", index(max(0, low or 0)), Var(name)), Compare("<", Var(name), size), *most
