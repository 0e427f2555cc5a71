"""`rfactor`: make partial results of a reduction, one per iteration of a loop, and combine them afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, Load, Select, Var, conjunction, free_vars, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.proof.sets.reductions import Element, Part
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify
from tensorc_dsl.schedule.accumulation import (
    IN_BETWEEN,
    MIXED_LOOP,
    NO_PARTS,
    NOT_AT_ZERO,
    NOT_COUNTING,
    accumulation_loops,
    parts_to_combine,
    require_alone,
    require_begun_once,
    spatial,
    stored,
    without_first_step,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, NOT_SERIAL, require_serial, stmt_name, the_block
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0652",
    "`{buffer}` has no place {axis} for one more dimension",
    help="it takes one at the places 0 to {rank}; -1 is the last",
    at="axis",
)
def NO_AXIS(*focus: str, buffer: str, axis: int, rank: int) -> None: ...
@primitive(
    NO_BLOCK, NO_LOOP, NOT_SERIAL, NO_PARTS, NOT_COUNTING, NO_AXIS, MIXED_LOOP, NOT_AT_ZERO, IN_BETWEEN
)  # fmt: skip
def rfactor(program: Program, block: BlockRef, loop: LoopRef, axis: int = 0) -> Rewrite[BlockRef]:
    """`<block>_rf` makes a partial result per iteration of the reduction loop; `block`, after it, combines them.

    for i, k0, k1: C[i] += e   ->   for i, k0, k1: C_rf[k1, i] += e
                                    for i, k1_1: C[i] += C_rf[k1_1, i]

    The new dimension of `C_rf` is number `axis` of its dimensions; -1 is the last. Each partial result starts from the
    neutral value, so parts without an iteration have no effect; `block` keeps its own initial value. The loops
    stay around the new block, which is the result; `block` gets new loops behind those of the reduction.
    The operation must be associative and commutative; floats count as such.
    In TVM: `rfactor`; in Halide: `rfactor`; in Exo: `stage_mem` of the accumulator.  Cases: tests/primitives/rfactor.md
    """
    around, b = the_block(program, block)
    parts = parts_to_combine(program, b)
    counting = accumulation_loops(program, around, b, loop, single=True)
    if len(counting) > 1:  # otherwise a part is one term
        require_begun_once(program, around, b, counting)
    factor = next(x for x in around if x.var == loop.name)
    require_serial(program, factor, "make partial results of")
    places = _axes(program, parts, axis)

    top = min(n for n, x in enumerate(around) if x.var in counting)
    while top and len(around[top - 1].body) == 1:
        top -= 1
    require_alone(program, b, around[top])

    used = used_names(program)
    partial = fresh(f"{b.name}_rf", used)
    names = {
        name: partial if name == b.name else fresh(f"{name}_rf", used) for part in parts for name, _ in part.places
    }
    buffers = tuple(
        partial_buffer(program.buffer(name), names[name], places[name], (factor.extent,))
        for part in parts
        for name, _ in part.places
    )
    split = Split(b, around, counting, (factor,), names, places)
    kept = [x for x in around[top:] if x.var not in counting or x is factor]
    behind = combined(parts, split, kept, split.where(counting), used)
    where, steps = _guards(program, b, split)
    if steps is not None and not all(part.keeps_start() for part in parts):
        reason = "skips steps, and its reducer does not leave its identity alone with itself"
        repair = "let the reducer make its identity of twice its identity, or split without `partial`"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)
    made = partial_results(parts, split, partial, where, steps)
    result = replace_stmt(program, b.name, (made,))
    first = next(s for _, s in walk(result.body) if stmt_name(s) == around[top].var)
    result = replace_stmt(result, around[top].var, (first, behind))
    return Rewrite(replace(result, buffers=(*result.buffers, *buffers)), BlockRef(partial))


def _axes(program: Program, parts: Sequence[Part], axis: int) -> dict[str, int]:
    """The position of the new dimension in each buffer."""
    out: dict[str, int] = {}
    for name, at in (place for part in parts for place in part.places):
        rank = len(at)
        out[name] = axis + rank + 1 if axis < 0 else axis
        if not 0 <= out[name] <= rank:
            raise NO_AXIS(program, name, buffer=name, axis=axis, rank=rank)
    return out


def partial_buffer(old: Buffer, name: str, axis: int, extents: tuple[Expr, ...]) -> Buffer:
    """A buffer for the partial results of another one, which counts them by dimensions from number `axis` on."""
    return Buffer(name, old.dtype, _inserted(old.shape, axis, extents), old.scope)


def _inserted(items: tuple[Expr, ...], axis: int, new: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (*items[:axis], *new, *items[axis:])


@frozen
class Split:
    """The iterators and subscripts of partial results of a block, one for each iteration of the loops `factors`.

    `counting` are all loops of the reduction; `buffers` and `axes` have the name of the partial results of each buffer and
    the position of their new dimensions.
    """

    block: Block
    around: tuple[For, ...]
    counting: tuple[str, ...]
    factors: tuple[For, ...]
    buffers: dict[str, str]
    axes: dict[str, int]

    def iterator(self, loop: str) -> str:
        """The name of the iterator for a reduction loop."""
        used = {it.name for it in spatial(self.block)} | {x.var for x in self.around}
        return fresh(f"v{loop}", used)

    def place(self, place: Element) -> Element:
        name, at = place
        counts = tuple(Var(self.iterator(x.var)) for x in self.factors)
        return self.buffers[name], _inserted(at, self.axes[name], counts)

    def where(self, steps: Collection[str]) -> tuple[Expr, ...]:
        """The conditions of the block without those over the loops `steps`."""
        return tuple(c for c in self.block.where if free_vars(c).isdisjoint(steps))


def partial_results(
    parts: Sequence[Part], split: Split, name: str, where: tuple[Expr, ...], steps: Expr | None = None
) -> Block:
    """The block that makes the partial results; each loop of the reduction is one of its iterators.

    Where `steps`, a condition over its iterators, is false, a step has the neutral value.
    """
    b = split.block
    loops = [x for x in split.around if x.var in split.counting]
    own = {x.var: split.iterator(x.var) for x in loops}
    factors = {x.var for x in split.factors}
    iters = [
        Iter(own[x.var], IterKind.SPATIAL if x.var in factors else IterKind.REDUCE, x.extent, Var(x.var))
        for x in sorted(loops, key=lambda x: x.var not in factors)
    ]
    variables: dict[str, Expr] = {loop: Var(v) for loop, v in own.items()}
    values = {it.name: substitute(it.binding, variables) for it in b.iters if it.kind is IterKind.REDUCE}
    every = (*spatial(b), *iters)
    ranges = extent_ranges(For(it.name, it.extent, ()) for it in every)
    alone = len(loops) == len(factors)
    init: list[Store] = []
    body: list[Store] = []
    for part in parts:
        places = tuple(map(split.place, part.places))
        given = [simplify(substitute(v, values), ranges) for v in part.values]
        if steps is not None:
            given = [Select(simplify(steps, ranges), v, s) for v, s in zip(given, part.start, strict=True)]
        if alone:
            body += stored(places, given)
        else:
            init += stored(places, part.start)
            body += part.stores(places, given)
    kept = tuple(a for a in b.annotations if a[0] == REDUCER and not alone)
    return Block(name, every, tuple(body), tuple(init), where, kept)


def _guards(program: Program, b: Block, split: Split) -> tuple[tuple[Expr, ...], Expr | None]:
    """The conditions on elements, and the condition on steps of the reduction, over the iterators of the new block."""
    steps: list[Expr] = []
    own: dict[str, Expr] = {v: Var(split.iterator(v)) for v in split.counting}
    known = {**own, **{it.binding.name: Var(it.name) for it in spatial(b) if isinstance(it.binding, Var)}}
    for c in b.where:
        if free_vars(c) & set(split.counting):
            others = free_vars(c) & {x.var for x in split.around} - known.keys()
            if others:
                reason = f"skips steps by a condition over `{min(others)}`, which is none of its iterators"
                repair = f"make partial results before splitting or fusing `{min(others)}`"
                raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)
            steps.append(substitute(c, known))
    if steps and b.init:
        require_begun(program, split)
    return split.where(split.counting), conjunction(tuple(steps))


def require_begun(program: Program, split: Split) -> None:
    """Refuse if conditions on steps may leave out the first step of an element, which initialises it.

    The block goes on with what it finds there, or has no step, and what combines partial results initialises each element.
    """
    b = split.block
    if (c := without_first_step(b, split.around, split.counting)) is not None:
        reason = f"may go on with what it finds: `{format_expr(c)}` leaves out its first step"
        repair = "take this step before the one that made the condition"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)


def combined(
    parts: Sequence[Part], split: Split, loops: Sequence[For], where: tuple[Expr, ...], used: set[str]
) -> Stmt:
    """The nest that combines the partial results, in new loops of the same names as `loops`; outer ones stay around it."""
    nest = [replace(x, var=fresh(x.var, used), annotations=()) for x in loops]
    renamed: dict[str, Expr] = {old.var: Var(new.var) for old, new in zip(loops, nest, strict=True)}
    iters = [replace(it, binding=substitute(it.binding, renamed)) for it in spatial(split.block)]
    for x in split.factors:
        iters.append(Iter(split.iterator(x.var), IterKind.REDUCE, x.extent, renamed.get(x.var, Var(x.var))))
    body: list[Store] = []
    for part in parts:
        results = [Load(*split.place(p), s.dtype) for p, s in zip(part.places, part.start, strict=True)]
        body += part.stores(part.places, results)
    conditions = tuple(substitute(c, renamed) for c in where)
    stmt: Stmt = replace(split.block, iters=tuple(iters), body=tuple(body), where=conditions)
    for x in reversed(nest):
        stmt = replace(x, body=(stmt,))
    return stmt
