"""Theorems that name the write that filled an element before it is read; they spare most questions about integer sets.

Each names one instance of a write for every instance of a read: the value of each of the write's loops, in terms of the
read's. What is left to prove is that this instance runs, so each of its conditions must follow from the conditions and
ranges of the read. A theorem that does not apply proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc_dsl.affine.accesses import Access, mentions
from tensorc_dsl.affine.distance import common_loops
from tensorc_dsl.affine.form import Context, Linear, decide
from tensorc_dsl.affine.linear import difference, linear, recombine
from tensorc_dsl.affine.simplify import conjuncts, extent_ranges
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import ZERO, Compare, CompareOp, Expr, Var, constant, dtype_of, free_vars, loads, substitute
from tensorc_dsl.ir.program import IterKind


def starts_itself(r: Access, writes: Sequence[Access], equal: int) -> bool:
    """Theorem: the running value of a reduction has been initialised if the reduction iterators are sums of positive
    multiples of loops within the home on which the element does not depend. For then the iteration with those loops at 0 is
    the same or an earlier one of the same home iteration, and runs `init` for that element if its conditions hold there.
    Extents are positive constants.
    """
    if r.update is None or any((n := constant(x.extent)) is None or n <= 0 for x in r.loops):
        return False
    inside = {x.var for x in r.loops[equal:]} - frozenset[str]().union(*map(free_vars, r.indices))
    context = Context(extent_ranges(r.loops))
    counting: set[str] = set()
    for it in r.block.iters:
        if it.kind is IterKind.REDUCE:
            form = linear(it.binding, context)
            if form.constant or not all(isinstance(x, str) and x in inside and c > 0 for x, c in form.terms.items()):
                return False
            counting.update(free_vars(it.binding))
    if not counting <= inside:
        return False
    first: Mapping[str, Expr] = dict.fromkeys(counting, ZERO)
    facts = _negatives(r.guard, context)
    return any(
        w.is_init
        and w.block is r.block
        and w.indices == r.indices
        and all(_follows(substitute(c, first), {}, r, facts, context) for c in w.guard)
        for w in writes
    )


def fills(w: Access, r: Access) -> bool:
    """Theorem: an earlier write fills a box that contains the read, in one iteration of the loops around both.

    Each of the write's own loops, with positive constant extents, occurs in one subscript or in none. If the factors of a
    subscript's loops, smallest first, leave no gap (each is at most 1 more than the largest sum of the smaller terms), the
    subscripts take all values of a box independently. So there are values of these loops at which each subscript is that of
    the read; the other loops are 0. A condition of the write over a whole subscript is then one over the read's.
    """
    if w.seq >= r.seq:
        return False
    common = common_loops(w, r)
    own = {x.var: constant(x.extent) or 0 for x in w.loops[len(common) :]}
    if not all(n > 0 for n in own.values()):
        return False
    context = Context(extent_ranges((*w.loops, *r.loops[len(common) :])))
    facts = _negatives(r.guard, context)
    seen: dict[str, tuple[dict[str, int], Linear]] = {}
    for i, j in zip(w.indices, r.indices, strict=True):
        form = linear(i, context)
        steps = {a: c for a, c in form.terms.items() if isinstance(a, str) and a in own}
        base = Linear({a: c for a, c in form.terms.items() if a not in steps}, form.constant)
        if any(not isinstance(a, str) and mentions(a, own.keys()) for a in base.terms) or seen.keys() & steps.keys():
            return False
        reach = 0
        for a, c in sorted(steps.items(), key=lambda step: step[1]):
            if not 0 < c <= reach + 1:
                return False
            reach += c * (own[a] - 1)
        wanted = linear(j, context).minus(base)
        ends = (wanted.times(-1).plus_constant(-1), wanted.plus_constant(-1 - reach))
        if not all(_is_negative(end, facts, context) for end in ends):
            return False
        seen |= dict.fromkeys(steps, (steps, wanted))
    idle: Mapping[str, Expr] = {x: ZERO for x in own if x not in seen}
    return all(_follows(substitute(c, idle), seen, r, facts, context) for c in w.guard)


def fills_all(w: Access, r: Access, shape: Sequence[Expr]) -> bool:
    """Theorem: an earlier write fills the whole buffer, and so what is read of it, in one iteration of the loops around both.

    Its subscripts are its own loops, each once and over a whole dimension, and no condition leaves an element out. Extents
    may be open; all that is read is in the buffer.
    """
    if w.seq >= r.seq or w.guard or w.zero:
        return False
    own = {x.var: x.extent for x in w.loops[len(common_loops(w, r)) :]}
    names = [i.name for i in w.indices if isinstance(i, Var)]
    return sorted(names) == sorted(own) and tuple(own[n] for n in names) == tuple(shape)


def _follows(
    condition: Expr,
    solved: Mapping[str, tuple[dict[str, int], Linear]],
    r: Access,
    facts: Sequence[Linear],
    context: Context,
) -> bool:
    """Whether a condition holds in every instance of the read, with `solved` loops at the values that were named: the sum
    of their multiples, as in the first part of the entry, is the second part.
    """
    for c in conjuncts(condition):
        if c in r.guard and free_vars(c).isdisjoint(solved):
            continue
        if not isinstance(c, Compare) or dtype_of(c.lhs) != INDEX or loads(c):
            return False
        form = difference(c.lhs, c.rhs, context)
        rest = dict(form.terms)
        found = Linear({}, form.constant)
        for name, (steps, value) in solved.items():
            if name not in rest:
                continue
            times, apart = divmod(rest[name], steps[name])
            if apart or any(rest.pop(x, 0) != times * n for x, n in steps.items()):
                return False
            found = found.plus(value.times(times))
        if any(not isinstance(a, str) and mentions(a, solved.keys()) for a in rest):
            return False
        found = recombine(found.plus(Linear(rest, 0)), context)
        if decide(c.op, *context.range_of(found)):
            continue
        less = _negative(c.op, found)
        if less is None or not _is_negative(less, facts, context):
            return False
    return True


def _is_negative(form: Linear, facts: Sequence[Linear], context: Context) -> bool:
    """Whether a form is negative wherever all the `facts` are, as far as intervals can show from one of them."""
    high = context.range_of(form)[1]
    if high is not None and high < 0:
        return True
    return any((most := context.range_of(form.minus(f))[1]) is not None and most <= 0 for f in facts)


def _negatives(conditions: Sequence[Expr], context: Context) -> list[Linear]:
    """Forms that are negative where the conditions hold."""
    found: list[Linear] = []
    for c in conditions:
        for part in conjuncts(c):
            if isinstance(part, Compare) and dtype_of(part.lhs) == INDEX:
                form = _negative(part.op, difference(part.lhs, part.rhs, context))
                found += [] if form is None else [form]
    return found


def _negative(op: CompareOp, d: Linear) -> Linear | None:
    """A form that is negative exactly if `d op 0`; None for equations."""
    match op:
        case "<" | "<=":
            return d if op == "<" else d.plus_constant(-1)
        case ">" | ">=":
            return d.times(-1) if op == ">" else d.times(-1).plus_constant(-1)
        case "==" | "!=":
            return None
