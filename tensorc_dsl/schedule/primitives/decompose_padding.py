"""`decompose_padding`: fill a padded buffer first, then store the elements that are not padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.ir.expr import Compare, Expr, Select, Var, add, constant, free_vars, index, loads, sub, substitute
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Stmt, Store, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.linear_forms import negate
from tensorc_dsl.proof.sets.simplify import conjuncts, extent_ranges, linear_form, simplify, simplify_where
from tensorc_dsl.schedule.motion import read_indices
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_block, the_loop
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0658",
    "cannot tell the padding of `{block}` from the rest: {reason}",
    help="decompose a block that stores `X[…] if … else 0`, each element once",
    at="block",
)
def NO_PADDING(*focus: str, block: str, reason: str) -> None: ...
@refusal(
    "E0659",
    "the padding of `{block}` cannot be filled before `{loop}`: `{inner}` holds other statements too",
    help="take a loop inside `{inner}`, or decompose before moving others there",
    at="loop",
)
def NOT_ALONE(*focus: str, block: str, loop: str, inner: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, NOT_AROUND, NO_PADDING, NOT_ALONE)
def decompose_padding(program: Program, block: BlockRef, loop: LoopRef) -> Rewrite[BlockRef]:
    """`<block>_fill`, in loops of its own before `loop`, stores the padding everywhere; `block` stores the other elements.

    for i in 10: P[i] = X[i-1] if 1 <= i < 9 else 0   ->   for i_fill in 10: P[i_fill] = 0
                                                           for i in 8: P[i + 1] = X[i]

    If a condition depends on a single loop, that loop runs over the other elements only; other conditions stay on the block.
    The new block is the result. In TVM: `decompose_padding`.  Cases: tests/primitives/decompose_padding.md
    """
    around, b = the_block(program, block)
    the_loop(program, loop)
    names = [x.var for x in around]
    if loop.name not in names:
        facts = {"loop": loop.name, "block": b.name, "loops": ", ".join(names) or "none"}
        raise NOT_AROUND(program, loop.name, b.name, **facts)
    inner = around[names.index(loop.name) :]
    for x in inner:
        if len(x.body) > 1:
            raise NOT_ALONE(program, x.var, b.name, block=b.name, loop=loop.name, inner=x.var)
    kept, rest, padding = _choice(program, b)

    used = used_names(program)
    outer = around[: len(around) - len(inner)]
    renamed: dict[str, Expr] = {x.var: Var(fresh(f"{x.var}_fill", used)) for x in inner}
    store = b.body[0]
    fill = Block(
        fresh(f"{b.name}_fill", used),
        tuple(replace(it, binding=substitute(it.binding, renamed)) for it in b.iters),
        (Store(store.buffer, store.indices, padding),),
        where=tuple(substitute(c, renamed) for c in b.where),
    )
    nest = [replace(x, var=new.name, annotations=()) for x in inner if isinstance(new := renamed[x.var], Var)]
    ranges = extent_ranges(around)
    bound = {it.name: it.binding for it in b.iters}
    where = simplify_where((*b.where, *(substitute(c, bound) for c in conjuncts(kept))), ranges)
    narrow = _narrowed(inner, where, ranges)
    values: dict[str, Expr] = {v: add(Var(v), index(low)) for v, (low, _) in narrow.items() if low}
    loops = [replace(x, extent=index(narrow[x.var][1] - narrow[x.var][0])) if x.var in narrow else x for x in inner]
    now = extent_ranges((*outer, *loops))
    interior = replace(
        b,
        iters=tuple(replace(it, binding=simplify(substitute(it.binding, values), now)) for it in b.iters),
        body=(replace(store, value=rest),),
        where=simplify_where((substitute(c, values) for c in where), now),
    )
    stmts = (_nest(nest, fill), _nest(loops, interior))
    return Rewrite(replace_stmt(program, inner[0].var, stmts), BlockRef(fill.name))


def _choice(program: Program, b: Block) -> tuple[Expr, Expr, Expr]:
    """The condition under which the block stores no padding, the value that it stores then, and the padding."""

    def refuse(reason: str) -> Exception:
        return NO_PADDING(program, b.name, block=b.name, reason=reason)

    store = b.body[0]
    if len(b.body) != 1 or b.init or any(it.kind is not IterKind.SPATIAL for it in b.iters):
        raise refuse("it needs more than one step for an element")
    names = {i.name for i in store.indices if isinstance(i, Var)}
    if len(names) != len(store.indices) or names != {it.name for it in b.iters} or read_indices(b, store.buffer):
        raise refuse("its subscripts are not its iterators, each once")
    if not isinstance(store.value, Select):
        raise refuse("it stores the same expression everywhere")
    kept, rest, padding = store.value.cond, store.value.then, store.value.other
    if loads(padding):
        kept, rest, padding = negate(kept), padding, rest
    if loads(padding) or loads(kept):
        raise refuse("what decides, or what it stores as padding, is read from a buffer")
    return kept, rest, padding


def _narrowed(
    inner: Sequence[For], where: Sequence[Expr], ranges: dict[str, tuple[int | None, int | None]]
) -> dict[str, tuple[int, int]]:
    """The loops that conditions over a single loop restrict, with half-open ranges; none if a range would be empty."""
    out: dict[str, tuple[int, int]] = {}
    for x in inner:
        low, high = 0, constant(x.extent)
        if high is None:
            continue
        for c in where:
            if isinstance(c, Compare) and free_vars(c) == frozenset((x.var,)):
                low, high = _cut(c, x.var, low, high, ranges)
        if (low, high) != (0, constant(x.extent)):
            out[x.var] = (low, high)
    return out if all(low < high for low, high in out.values()) else {}


def _cut(
    c: Compare, var: str, low: int, high: int, ranges: dict[str, tuple[int | None, int | None]]
) -> tuple[int, int]:
    """The part of [low, high) in which `c`, a comparison of `var` with a number, holds; all of it if that is no interval."""
    terms, rest = linear_form(sub(c.lhs, c.rhs), ranges)
    factor = terms.get(Var(var))
    if len(terms) != 1 or factor not in (1, -1) or c.op not in ("<", "<=", ">", ">="):
        return low, high
    # factor * var + rest is compared with 0; as what is not negative:
    strict = 1 if c.op in ("<", ">") else 0
    sign = -1 if c.op in ("<", "<=") else 1
    factor, rest = factor * sign, rest * sign - strict
    return (max(low, -rest), high) if factor > 0 else (low, min(high, rest + 1))


def _nest(loops: Sequence[For], stmt: Stmt) -> Stmt:
    for x in reversed(loops):
        stmt = replace(x, body=(stmt,))
    return stmt
