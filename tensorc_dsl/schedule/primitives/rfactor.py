"""`rfactor`: make partial results of a reduction, one per iteration of a loop, and combine them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        _partial_buffer(program.buffer(name), names[name], places[name], factor.extent)
        for part in parts
        for name, _ in part.places
    )
    split = _Split(b, around, counting, factor, names, places)
    behind = _combined(b, parts, split, around[top:], used)
    made = _partial(program, b, parts, split, partial)
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


def _partial_buffer(old: Buffer, name: str, axis: int, extent: Expr) -> Buffer:
    return Buffer(name, old.dtype, _inserted(old.shape, axis, extent), old.scope)


def _inserted(items: tuple[Expr, ...], axis: int, new: Expr) -> tuple[Expr, ...]:
    return (*items[:axis], new, *items[axis:])


@dataclass(frozen=True, slots=True)
class _Split:
    """The new loops, iterators and subscripts of the partial results."""

    block: Block
    around: tuple[For, ...]
    counting: tuple[str, ...]
    factor: For
    buffers: dict[str, str]
    axes: dict[str, int]

    def iterator(self, loop: str) -> str:
        """The name of the iterator for a reduction loop."""
        used = {it.name for it in spatial(self.block)} | {x.var for x in self.around}
        return fresh(f"v{loop}", used)

    def place(self, place: Element) -> Element:
        name, at = place
        return self.buffers[name], _inserted(at, self.axes[name], Var(self.iterator(self.factor.var)))


def _partial(program: Program, b: Block, parts: Sequence[Part], split: _Split, name: str) -> Block:
    """The block that makes the partial results, in the place of `b`; each loop of the reduction is one of its iterators."""
    loops = [x for x in split.around if x.var in split.counting]
    own = {x.var: split.iterator(x.var) for x in loops}
    iters = [
        Iter(own[x.var], IterKind.SPATIAL if x is split.factor else IterKind.REDUCE, x.extent, Var(x.var))
        for x in sorted(loops, key=lambda x: x is not split.factor)
    ]
    variables: dict[str, Expr] = {loop: Var(v) for loop, v in own.items()}
    values = {it.name: substitute(it.binding, variables) for it in b.iters if it.kind is IterKind.REDUCE}
    every = (*spatial(b), *iters)
    ranges = extent_ranges(For(it.name, it.extent, ()) for it in every)
    where, guard = _guards(program, b, split, variables)
    alone = len(loops) == 1
    init: list[Store] = []
    body: list[Store] = []
    for part in parts:
        places = tuple(map(split.place, part.places))
        given = [simplify(substitute(v, values), ranges) for v in part.values]
        if guard is not None:
            if not part.keeps_start():
                reason = "skips steps, and its reducer does not leave its identity alone with itself"
                repair = "let the reducer make its identity of twice its identity, or split without `partial`"
                raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)
            given = [Select(simplify(guard, ranges), v, s) for v, s in zip(given, part.start, strict=True)]
        if alone:
            body += stored(places, given)
        else:
            init += stored(places, part.start)
            body += part.stores(places, given)
    kept = tuple(a for a in b.annotations if a[0] == REDUCER and not alone)
    return Block(name, every, tuple(body), tuple(init), where, kept)


def _guards(
    program: Program, b: Block, split: _Split, variables: dict[str, Expr]
) -> tuple[tuple[Expr, ...], Expr | None]:
    """The conditions on elements, and the condition on steps of the reduction, over the iterators of the new block."""
    steps: list[Expr] = []
    known = {**variables, **{it.binding.name: Var(it.name) for it in spatial(b) if isinstance(it.binding, Var)}}
    for c in b.where:
        if free_vars(c) & set(split.counting):
            others = free_vars(c) & {x.var for x in split.around} - known.keys()
            if others:
                reason = f"skips steps by a condition over `{min(others)}`, which is none of its iterators"
                repair = f"make partial results before splitting or fusing `{min(others)}`"
                raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)
            steps.append(substitute(c, known))
    if steps and b.init:
        _require_begun(program, b, split)
    where = tuple(c for c in b.where if not free_vars(c) & set(split.counting))
    return where, conjunction(tuple(steps))


def _require_begun(program: Program, b: Block, split: _Split) -> None:
    """Refuse if conditions on steps may leave out the first step of an element, which initialises it.

    The block goes on with what it finds there, or has no step, and what combines partial results initialises each element.
    """
    if (c := without_first_step(b, split.around, split.counting)) is not None:
        reason = f"may go on with what it finds: `{format_expr(c)}` leaves out its first step"
        repair = "take this step before the one that made the condition"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)


def _combined(b: Block, parts: Sequence[Part], split: _Split, inner: Sequence[For], used: set[str]) -> Stmt:
    """The nest that combines the partial results: the loops of `b` from the outermost reduction loop on, without the other
    reduction loops than the one that counts the partial results.
    """
    kept = [x for x in inner if x.var not in split.counting or x is split.factor]
    nest = [replace(x, var=fresh(x.var, used), annotations=()) for x in kept]
    renamed: dict[str, Expr] = {old.var: Var(new.var) for old, new in zip(kept, nest, strict=True)}
    v = split.iterator(split.factor.var)
    iters = [replace(it, binding=substitute(it.binding, renamed)) for it in spatial(b)]
    iters.append(Iter(v, IterKind.REDUCE, split.factor.extent, renamed[split.factor.var]))
    where = tuple(substitute(c, renamed) for c in b.where if not free_vars(c) & set(split.counting))
    body: list[Store] = []
    for part in parts:
        results = [Load(*split.place(p), s.dtype) for p, s in zip(part.places, part.start, strict=True)]
        body += part.stores(part.places, results)
    stmt: Stmt = replace(b, iters=tuple(iters), body=tuple(body), where=where)
    for x in reversed(nest):
        stmt = replace(x, body=(stmt,))
    return stmt
