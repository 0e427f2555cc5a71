"""Finds where the terms of a maximum end: behind a mask they are infinite, and exponentials of them are 0."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import ONE, Compare, Const, Expr, Load, Select, dims_in, dtype_of, free_vars, sub
from tensorc_dsl.ir.expr import substitute as substituted
from tensorc_dsl.ir.program import Iter, IterKind, Program
from tensorc_dsl.ir.reductions import identity
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, difference, to_expr
from tensorc_dsl.proof.sets.reductions import Extreme
from tensorc_dsl.proof.sets.simplify import conjuncts, iter_ranges, simplify
from tensorc_dsl.schedule.motion import writers
from tensorc_dsl.schedule.shifted import NotFresh, Reduction, Relative, Sum, nest_alone


def last_term(program: Program, peak: Reduction, op: Extreme) -> Expr | None:
    """The last step of the reduction, over its other iterators, behind which all terms are the infinity that it starts from;
    None if no condition over these iterators says so."""
    for c in _finite_where(program, peak.term, op):
        if (found := _last(c, peak.counts, peak.spatial)) is not None:
            return found
    return None


def adds_nothing_behind(last: Expr, peak: Reduction, relative: Relative, s: Sum) -> bool:
    """Whether a sum adds 0 for each term behind the last one of its row, whatever it multiplies exponentials by."""
    if s.mask is None:
        return relative.is_alone(s.term, s.sources)
    own = substituted(last, peak.by_target(s.row))
    ranges = iter_ranges(s.spatial)
    found = [_last(c, s.counts, s.spatial) for c in conjuncts(s.mask)]
    return any(x is not None and simplify(sub(x, own), ranges) == simplify(sub(own, own), ranges) for x in found)


def _finite_where(program: Program, e: Expr, op: Extreme) -> tuple[Expr, ...]:
    """Conditions without one of which a value is the infinity that is neutral for `op`."""
    match e:
        case Select(cond=c, then=x, other=Const() as behind) if behind == identity(op, dtype_of(e)):
            return (*conjuncts(c), *_finite_where(program, x, op))
        case Load():
            value = _stored(program, e)
            return () if value is None else _finite_where(program, value, op)
        case _:
            return ()


def _stored(program: Program, e: Load) -> Expr | None:
    """What a stage that maps elements stores in the element that is read; None for other buffers."""
    found = writers(program, e.buffer)
    if len(found) != 1:
        return None
    try:
        n = nest_alone(*found[0])
    except NotFresh:
        return None
    if n.block.is_reduction or any(it.kind is not IterKind.SPATIAL for it in n.block.iters):
        return None
    return substituted(n.block.body[0].value, n.by_target(e.indices))


def _last(cond: Expr, counts: Iter, others: tuple[Iter, ...]) -> Expr | None:
    """The greatest value of an iterator for which a condition over it and others can hold."""
    names = {it.name for it in others}
    if not isinstance(cond, Compare) or dtype_of(cond.lhs) != INDEX or not free_vars(cond) <= {counts.name, *names}:
        return None
    if dims_in(cond) or cond.op not in ("<", "<=", ">", ">="):
        return None
    greater, less = (cond.rhs, cond.lhs) if cond.op in ("<", "<=") else (cond.lhs, cond.rhs)
    ranges: Mapping[str, tuple[int | None, int | None]] = iter_ranges((counts, *others))
    form = difference(greater, less, Context(ranges))
    if form.terms.get(counts.name) != -1:
        return None
    rest = {a: c for a, c in form.terms.items() if a != counts.name}
    if any(not isinstance(a, str) and counts.name in free_vars(a) for a in rest):
        return None
    greatest = to_expr(Linear(rest, form.constant))
    return simplify(greatest if "=" in cond.op else sub(greatest, ONE), ranges)
