"""`skip_zeros`: leave out the steps of a sum that add zero times a finite number, such as those in the border of an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

from tensorc_dsl.ir.dtypes import holds
from tensorc_dsl.ir.expr import Binary, Cast, Const, Expr, Load, Select, Var, dtype_of, free_vars, loads, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, IterKind, Program, Property, assumed, replace_stmt
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import conjuncts, extent_ranges, simplify_where
from tensorc_dsl.schedule.motion import is_param, writers
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, REPEATED, refuse_repeated, the_block, the_loop
from tensorc_dsl.schedule.primitives.decompose_reduction import NOT_AROUND
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0698", "no steps of `{block}` can be left out: {reason}", at="block")
def NO_ZEROS(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0699",
    "where `{zero}` is 0, the product is 0 only if `{factor}` is finite",
    help="write `assume {input} finite` in the compute, or leave the steps in",
    at="block",
)
def NOT_FINITE(*focus: str, zero: str, factor: str, input: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, REPEATED, NOT_AROUND, NO_ZEROS, NOT_FINITE)
def skip_zeros(program: Program, block: BlockRef, *loops: LoopRef) -> Rewrite[None]:
    """Steps of a sum that add 0 do not run, as far as `loops` decide which these are.

    for i, k: C[i] += P[i + k] * F[k]   ->   for i, k: if 1 <= i + k < 9: C[i] += P[i + k] * F[k]
        where P[h] is X[h - 1] if 1 <= h < 9 else 0

    One factor of the terms is, or was stored as, `… if condition else 0`. The other one must be finite, since 0 times
    infinity is NaN: an integer, an element of an input of which the compute assumes it, `assume F finite`, or of a copy. The
    block has no `init`: `decompose_reduction` comes before. Comparisons in which one of `loops` occurs become conditions
    of the block. oneDNN leaves out the border of an image in the same way.  Cases: tests/primitives/skip_zeros.md
    """
    around, b = the_block(program, block)
    names = [x.var for x in around]
    refuse_repeated(program, loops)
    for x in loops:
        the_loop(program, x)
        if x.name not in names:
            raise NOT_AROUND(program, x.name, b.name, loop=x.name, block=b.name, loops=", ".join(names) or "none")
    zero, other = _factors(program, b)
    if not _is_finite(program, other):
        inputs = [x.buffer for x in loads(other)]
        raise NOT_FINITE(program, b.name, zero=format_expr(zero[0]), factor=format_expr(other), input=(*inputs, "…")[0])
    ranges = extent_ranges(around)
    wanted = {x.name for x in loops}
    found = simplify_where((substitute(c, bindings(b)) for c in conjuncts(zero[1])), ranges)
    where = tuple(c for c in found if free_vars(c) & wanted)
    if not where:
        reason = f"where `{format_expr(zero[0])}` is 0 does not depend on {', '.join(sorted(wanted)) or 'no loop'}"
        raise _none(program, b, reason, f"name a loop that `{format_expr(zero[1])}` depends on")
    return Rewrite(replace_stmt(program, b.name, (replace(b, where=simplify_where((*b.where, *where), ranges)),)), None)


def _none(program: Program, b: Block, reason: str, repair: str) -> Exception:
    return NO_ZEROS(program, b.name, block=b.name, reason=reason, repair=repair)


def _factors(program: Program, b: Block) -> tuple[tuple[Expr, Expr], Expr]:
    """The factor that may be 0, with the condition under which it is not, and the other one."""
    if b.init:
        raise _none(program, b, "its first step also initialises", "call `decompose_reduction` before")
    fold = fold_of(b.body[0]) if len(b.body) == 1 else None
    term = fold.value if fold is not None and fold.op == "+" else None
    if not isinstance(term, Binary) or term.op != "*":
        raise _none(program, b, "it does not add products", "take a block that adds products of two factors")
    for factor, other in ((term.lhs, term.rhs), (term.rhs, term.lhs)):
        cond = next(_conditions(program, factor), None)
        if cond is not None:
            return (factor, cond), other
    reason = f"no factor of `{format_expr(term)}` is `… if … else 0`, nor is stored so by the only block that writes it"
    raise _none(program, b, reason, "take a block that reads a border of zeros")


def _conditions(program: Program, e: Expr) -> Iterator[Expr]:
    """The condition unless which the value is 0, over the iterators of the block that reads it; none if there is none."""
    match e:
        case Cast(operand=x):
            yield from _conditions(program, x)
        case Select(cond=cond, other=Const(value=value)) if value == 0 and not loads(cond):
            yield cond
        case Load() if not is_param(program, e.buffer) and len(found := writers(program, e.buffer)) == 1:
            w = found[0][1]
            (first, *more), own = w.body, [it.name for it in w.iters]
            plain = not more and not w.init and all(it.kind is IterKind.SPATIAL for it in w.iters)
            at = [i.name for i in first.indices if isinstance(i, Var)]
            if plain and len(at) == len(first.indices) and sorted(at) == sorted(own):
                read = dict(zip(at, e.indices, strict=True))
                yield from (substitute(c, read) for c in _conditions(program, first.value))
        case _:
            pass


def _is_finite(program: Program, e: Expr) -> bool:
    """Whether a value is proved to be no infinity and no NaN."""
    t = dtype_of(e)
    match e:
        case _ if not t.is_float:
            return True
        case Const(value=value):
            return isfinite(value)
        case Cast(operand=x):
            return holds(t, dtype_of(x)) and _is_finite(program, x)
        case Select(then=x, other=y):
            return _is_finite(program, x) and _is_finite(program, y)
        case Load() if is_param(program, e.buffer):
            return not writers(program, e.buffer) and Property.FINITE in assumed(program, e.buffer)
        case Load():
            stores = [s for _, w in writers(program, e.buffer) for s in (*w.init, *w.body)]
            return bool(stores) and all(_is_finite(program, s.value) for s in stores)
        case _:
            return False
