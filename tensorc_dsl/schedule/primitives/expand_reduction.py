"""`expand_reduction`: compute all terms of a reduction in one expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tensorc_dsl.ir.expr import Expr, Load, constant, dtype_of, free_vars, index, rewrite_expr, substitute
from tensorc_dsl.ir.program import Block, For, IterKind, LoopKind, Program, blocks_in, find_loop, replace_stmt
from tensorc_dsl.ir.reductions import Fold, combine, fold_of, identity
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.reductions import begins_once
from tensorc_dsl.proof.sets.simplify import extent_ranges, iter_ranges, simplify
from tensorc_dsl.schedule.accumulation import not_at_zero, spatial
from tensorc_dsl.schedule.motion import writers
from tensorc_dsl.schedule.nests import NO_BLOCK, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal
from tensorc_dsl.syntax.layout import MOST_LEVELS


@refusal(
    "E0644",
    "cannot write out the terms of `{block}`: {reason}",
    help="write out a short sum over numbers, such as a window of 3 × 3, and before other steps on its loops",
    at="block",
)
def NOT_SHORT(*focus: str, block: str, reason: str) -> None: ...


@primitive(NO_BLOCK, NOT_SHORT)
def expand_reduction(program: Program, block: BlockRef, most: int = 64) -> Rewrite[None]:
    """The block computes an element in one step: its reduction is an expression with all terms, in their order.

    for i, k in 3: Y[i] += X[i + k]   ->   for i: Y[i] = X[i] + X[i + 1] + X[i + 2]

    Afterwards the block maps elements: it can be inlined, and vectors can run along its loops. `most` limits the terms.
    In Halide: `unroll` over the dimensions of an inline reduction, as `sum(…)` over an `RDom` is.
    Cases: tests/primitives/expand_reduction.md
    """
    around, b = the_block(program, block)

    def refuse(reason: str) -> Exception:
        return NOT_SHORT(program, b.name, block=b.name, reason=reason)

    fold = fold_of(b.body[0]) if len(b.body) == len(b.init) == 1 else None
    if fold is None or b.init[0].indices != b.body[0].indices or any(it.kind is IterKind.SCAN for it in b.iters):
        raise refuse("it is no reduction by `+`, `*`, `min`, `max`, `and` or `or` that begins in the block")
    store = b.body[0]
    others = [w.name for _, w in writers(program, store.buffer) if w.name != b.name]
    if others:
        raise refuse(f"`{others[0]}` writes `{store.buffer}` too")
    reduced = {it.name: it.binding for it in b.iters if it.kind is IterKind.REDUCE}
    counting = frozenset[str]().union(*map(free_vars, reduced.values()))
    steps = [x for x in around if x.var in counting]
    for x in steps:
        if constant(x.extent) is None:
            raise refuse(f"the number of iterations of `{x.var}` is open")
        if x.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
            raise refuse(f"`{x.var}` is {x.kind}")
        if inside := [o.name for o in blocks_in((x,)) if o.name != b.name]:
            raise refuse(f"`{x.var}` is a loop around `{inside[0]}` too")
    fixed = (*(it.binding for it in spatial(b)), *b.where)
    if shared := sorted(counting & frozenset[str]().union(*map(free_vars, fixed))):
        raise refuse(f"`{shared[0]}` decides more than the term")
    if (it := not_at_zero(b, around, counting)) is not None:
        raise refuse(f"`{it.name}` is not 0 where its loops begin, and only there")
    first = next((n for n, x in enumerate(around) if x.var in counting), len(around))
    if not begins_once(around[first:], b, counting, extent_ranges(around)):
        raise refuse(f"loops inside of `{around[first].var}` run it again for the same element")
    count = prod(constant(x.extent) or 0 for x in steps)
    if count > most:
        raise refuse(f"it has {count} terms, and at most {most} are asked for")
    if count > MOST_LEVELS:
        raise refuse(f"it has {count} terms, and no expression has more than {MOST_LEVELS}")

    whole = replace(b, iters=spatial(b), init=(), body=(replace(store, value=_terms(b, fold, steps, reduced)),))
    result = replace_stmt(program, b.name, (whole,))
    for x in steps:
        result = replace_stmt(result, x.var, find_loop(result, x.var)[1].body)
    return Rewrite(result, None)


def _terms(b: Block, fold: Fold, steps: Sequence[For], reduced: Mapping[str, Expr]) -> Expr:
    """All terms in the order of the loops, behind the start unless that is neutral."""
    ranges = iter_ranges(b.iters)
    start = b.init[0].value
    value = None if start == identity(fold.op, dtype_of(start)) else start
    for at in product(*(range(constant(x.extent) or 0) for x in steps)):
        loops: dict[str, Expr] = {x.var: index(n) for x, n in zip(steps, at, strict=True)}
        step = {name: simplify(substitute(binding, loops), {}) for name, binding in reduced.items()}
        term = _at(fold.value, step, ranges)
        value = term if value is None else combine(fold.op, value, term)
    return start if value is None else value


def _at(e: Expr, step: Mapping[str, Expr], ranges: Ranges) -> Expr:
    """A term of one step, with short subscripts."""

    def load(x: Expr) -> Expr:
        return replace(x, indices=tuple(simplify(i, ranges) for i in x.indices)) if isinstance(x, Load) else x

    return rewrite_expr(substitute(e, step), load)
