"""Solves the subscripts of an access for the iterators in them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.layout import inverse
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.simplify import iter_ranges
from tensorc_dsl.ir.expr import ZERO, Expr, constant, index, sub
from tensorc_dsl.ir.program import Block


def solve(block: Block, subscripts: Sequence[Expr], at: Sequence[Expr]) -> dict[str, Expr] | None:
    """The value of each iterator of a block in an instance whose subscripts are `at`, if there is such an instance.

    None if the subscripts do not determine all iterators, or have a form that is not supported.
    """
    context = Context(iter_ranges(block.iters))
    forms = [linear(s, context) for s in subscripts]
    found: dict[str, Expr] = {it.name: ZERO for it in block.iters if constant(it.extent) == 1}
    for form, place in zip(forms, at, strict=True):
        if len(form.terms) == 1:
            ((atom, factor),) = form.terms.items()
            if isinstance(atom, str) and factor in (1, -1):
                rest = sub(place, index(form.constant)) if factor == 1 else sub(index(form.constant), place)
                found.setdefault(atom, rest)
    names = [it.name for it in block.iters]
    if len(found) == len(names):
        return found
    extents = [constant(it.extent) for it in block.iters]
    sizes = [n for n in extents if n is not None]
    if len(sizes) < len(names):
        return None
    shifted = [sub(s, index(f.constant)) for s, f in zip(subscripts, forms, strict=True)]
    values = inverse(names, shifted, sizes, [sub(p, index(f.constant)) for p, f in zip(at, forms, strict=True)])
    return None if values is None else dict(zip(names, values, strict=True))
