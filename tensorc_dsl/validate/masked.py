"""Leaves out terms of sums that are 0 because a mask makes the operand of their exponential infinite.

`exp((-inf - m) * c) * v` is 0 for every `m` above -inf, if `v` is finite: floats are real numbers here, and `v` is one. So a
sum has the same value with such terms and without. Of a row in which nothing is left they are not left out: there `m` is
-inf, and each of them NaN. That `m` is above -inf is seen by another term, which has an exponential of one of the values that
`m` is the maximum of. Where that value is -inf, `m` may be, too, and then this term is NaN, with the others and without.

Whether `v` is finite is not known of an input. So only exponentials alone, and products with padding, which is 0, are left
out, unless the scheduled program has the annotation `FINITE`, which says it of all factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.shifts import Extreme
from tensorc_dsl.ir.expr import Binary, Cast, Const, dtype_of
from tensorc_dsl.ir.reductions import identity
from tensorc_dsl.validate.code import label
from tensorc_dsl.validate.corrected import Corrections, Factor, Unmet, factors_of
from tensorc_dsl.validate.facts import Undecided
from tensorc_dsl.validate.located import Location, composed, united
from tensorc_dsl.validate.nodes import At, Node, Term, Terms
from tensorc_dsl.validate.terms import operator
from tensorc_dsl.validate.values import Values


def without_masked(terms: Terms, kind: str, values: Values, finite: bool) -> Terms:
    """The terms without those that are 0 by a mask, if they are the terms of a sum of floats. Factors of exponentials are
    `finite`, or not known to be."""
    corrections = values.corrections
    if not isinstance(corrections, Corrections) or operator(kind) != "+" or len(terms.found) == 0:
        return terms
    extremes: tuple[Extreme, ...] = ("max", "min")
    for op in extremes:
        try:
            found = _without(terms, op, values, corrections, finite)
        except (Unmet, Undecided):
            continue
        if found is not None:
            return found
    return terms


def _without(terms: Terms, op: Extreme, values: Values, corrections: Corrections, finite: bool) -> Terms | None:
    """The terms without those that are 0 by a mask; None if there are none, or a row would have no term left."""
    kept: list[Term] = []
    left_out = list[tuple[isl.Map, list[Factor]]]()
    own: list[Location] = []
    for t in terms.found:
        asked = t.leaf.intersect_domain(t.path.range()).range()
        factors = factors_of(values, t.node, op, asked)
        known = (
            asked if finite or factors_of(values, t.node, op, asked, alone=True) else _zeros(values, t.node, op, asked)
        )
        certain = t.leaf.intersect_range(known).domain()
        masked: isl.Map | None = None
        of_masked: list[Factor] = []
        for f in factors or ():
            infinity = label(identity(op, dtype_of(f.form.value)))
            at = corrections.of(f.value)
            points = t.leaf.apply_range(f.instances)
            if infinity in at:
                path = t.path.intersect_range(points.intersect_range(at[infinity].domain()).domain().intersect(certain))
                if not path.is_empty():
                    masked = path if masked is None else masked.union(path)
                    of_masked.append(replace(f, instances=path.apply_range(points)))
            others = {text: m for text, m in at.items() if text != infinity}
            own.append(composed(t.path.apply_range(points), others))
        if masked is None:
            kept.append(t)
            continue
        left_out.append((masked, of_masked))
        if not (rest := t.path.subtract(masked)).is_empty():
            kept.append(replace(t, path=rest))
    if not left_out:
        return None
    left = united(own)
    for masked, factors in left_out:
        greatest = corrections.extremes(factors, op, finite=False)
        rows = masked.domain()
        for text, m in greatest.items():
            if text in left:
                rows = rows.subtract(m.intersect(left[text]).domain())
        if not rows.is_empty():
            return None
    return replace(terms, found=kept)


def _zeros(values: Values, node: Node, op: Extreme, domain: isl.Set) -> isl.Set:
    """The instances in `domain` at which another factor than the exponential is the number 0."""
    return _where(values, node, domain, lambda n, own: _zero_beside(values, n, op, own))


def _zero_beside(values: Values, node: At, op: Extreme, domain: isl.Set) -> isl.Set:
    s = node.statement
    match node.expr:
        case Cast(operand=x, dtype=t) if t.is_float and dtype_of(x).is_float:
            return _zeros(values, At(s, x), op, domain)
        case Binary(op="*", lhs=x, rhs=y):
            of_factor, other = (x, y) if factors_of(values, At(s, x), op, domain) is not None else (y, x)
            beside = _where(values, At(s, other), domain, lambda n, own: _zero(values, n, own))
            return beside.union(_zeros(values, At(s, of_factor), op, domain))
        case _:
            return isl.Set.empty(domain.get_space())


def _zero(values: Values, node: At, domain: isl.Set) -> isl.Set:
    match node.expr:
        case Const(value=v) if v == 0:
            return domain
        case Cast(operand=x, dtype=t) if t.is_float and dtype_of(x).is_float:
            return _where(values, At(node.statement, x), domain, lambda n, own: _zero(values, n, own))
        case _:
            return isl.Set.empty(domain.get_space())


def _where(values: Values, node: Node, domain: isl.Set, told: Callable[[At, isl.Set], isl.Set]) -> isl.Set:
    """The instances in `domain` for which `told` says so of what the node is a copy of."""
    if not isinstance(node, At):
        return isl.Set.empty(domain.get_space())
    steps = values.steps(node)
    if steps is None:
        return told(node, domain)
    out = isl.Set.empty(domain.get_space())
    for n, m in steps:
        own = m.intersect_domain(domain)
        if not own.is_empty():
            out = out.union(own.intersect_range(_where(values, n, own.range(), told)).domain())
    return out
