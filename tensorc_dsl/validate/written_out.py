"""Pairs the updates of a short reduction with the terms of an expression in which it is written out, in their order.

Such a pairing is one to one, so the two are equal if all of its pairs are. Matching terms by what they are made of would do,
too, but takes apart the sums in terms as well, of which a pipeline of stencils has thousands.
"""

from __future__ import annotations

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.ir.expr import Const
from tensorc_dsl.validate.flow import Total
from tensorc_dsl.validate.nodes import At
from tensorc_dsl.validate.plain import first_of
from tensorc_dsl.validate.terms import is_neutral
from tensorc_dsl.validate.values import step_of

MOST = 64
"""The largest number of updates that are paired: longer reductions are not written out."""


def in_order(total: Total, written: At) -> list[tuple[At, isl.Map, At]] | None:
    """For each update of a total, in their order, its term, the map from the total's instances to it, and its counterpart.

    None if the expression does not have the form of all updates in their order. The instances that are asked for are often
    many pieces, in which a first update is hard to find; all of them are one.
    """
    domain = total.at.domain
    neutral = all(isinstance(s.store.value, Const) and is_neutral(total.kind, s.store.value) for s, _ in total.start)
    if not neutral or len(total.terms) != 1:
        return None
    (update, instances) = total.terms[0]
    rest = instances.intersect_domain(domain)
    steps: list[isl.Map] = []
    while not rest.is_empty():
        renew()
        first = first_of(rest)
        if len(steps) == MOST or not domain.is_subset(first.domain()):
            return None
        steps.append(first)
        rest = rest.subtract(first)
    if not steps or update.accumulates is None:
        return None
    term, node = At(update, update.accumulates.term), written
    out: list[tuple[At, isl.Map, At]] = []
    for step in reversed(steps[1:]):
        found = step_of(node)
        if found is None or found[0] != total.kind:
            return None
        node, last = found[1]
        out.append((term, step, last))
    return [*out, (term, steps[0], node)]
