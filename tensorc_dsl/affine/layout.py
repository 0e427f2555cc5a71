"""Layouts: injective maps from the indices of a buffer to other indices, and their inverses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.coverage import Digit, digit, is_last, missing_digits
from tensorc_dsl.affine.form import Context, Ranges
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.sets import NotAffine, mapping
from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Expr,
    Var,
    add,
    floordiv,
    floormod,
    free_vars,
    index,
    mul,
    substitute,
    xor,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a digit of an old index in the new ones: `xor((results[result] / weight) % size, mask)`."""

    result: int
    weight: int
    size: int
    digit: Digit
    mask: Expr
    """An expression over the old indices; 0 without an `xor`."""
    top: bool
    """Whether it is the highest digit of its result, so that `%` need not remove higher ones."""


def is_injective(params: Sequence[str], results: Sequence[Expr], extents: Sequence[int]) -> bool:
    """Whether different indices within the extents have different results. False if that cannot be decided."""
    if _places(params, results, extents, exact=False) is not None:
        return True
    within = [
        c
        for p, n in zip(params, extents, strict=True)
        for c in (Compare("<=", ZERO, Var(p)), Compare("<", Var(p), index(n)))
    ]
    ranges = {p: (0, n - 1) for p, n in zip(params, extents, strict=True)}
    try:
        return mapping(params, [simplify(r, ranges) for r in results], within).is_injective()
    except NotAffine:
        return False


def inverse(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[int], new: Sequence[Expr]
) -> tuple[Expr, ...] | None:
    """The old indices as expressions over the new ones; None if the map does not consist of digits.

    For new indices without an old index (padding), some old index is at or above its extent.
    """
    places = _places(params, results, extents, exact=True)
    if places is None:
        return None
    out: dict[str, Expr] = {}
    while len(out) < len(params):
        ready = next((p for p in params if p not in out and _masks(places, p) <= out.keys()), None)
        if ready is None:
            return None
        total: Expr = ZERO
        for place in sorted((x for x in places if x.digit.var == ready), key=lambda x: -x.digit.unit):
            value = floordiv(new[place.result], index(place.weight))
            if not place.top:
                value = floormod(value, index(place.size))
            total = add(total, mul(xor(value, substitute(place.mask, out)), index(place.digit.unit)))
        out[ready] = total
    return tuple(out[p] for p in params)


def _masks(places: Sequence[_Place], param: str) -> frozenset[str]:
    """The indices that must be known to compute `param` from its places."""
    return frozenset[str]().union(*(free_vars(x.mask) for x in places if x.digit.var == param))


def _places(params: Sequence[str], results: Sequence[Expr], extents: Sequence[int], exact: bool) -> list[_Place] | None:
    """The place of each digit, if every result is a mixed radix number of digits that determine all indices; else none.

    With `exact`, each weight is the product of the sizes below it, so that no value of a result is skipped.
    """
    ranges: Ranges = {p: (0, n - 1) for p, n in zip(params, extents, strict=True)}
    context = Context(ranges)
    forms = [linear(r, context) for r in results]
    plain = [d for f in forms for atom in f.terms if (d := digit(atom, context, rounded=True)) is not None]
    out: list[_Place] = []
    for r, form in enumerate(forms):
        if form.constant:
            return None
        reach = 1
        terms = sorted(form.terms.items(), key=lambda t: t[1])
        for n, (atom, weight) in enumerate(terms):
            d, mask = digit(atom, context, rounded=True), ZERO
            size = 0 if d is None else d.size
            if exact and isinstance(atom, Binary) and atom.op == "xor":
                d, mask = _mixed(atom, plain, context) or (None, ZERO)
                size = (context.atom_range(atom)[1] or 0) + 1
                if d is not None and size > d.size and not is_last(d, context):
                    return None
            if d is None or weight < reach or (exact and weight != reach):
                return None
            out.append(_Place(r, weight, size, d, mask, n == len(terms) - 1))
            reach = weight * size
    digits = [x.digit for x in out]
    complete = all(n == 1 or missing_digits(digits, p, n) is False for p, n in zip(params, extents, strict=True))
    return out if complete else None


def _mixed(e: Binary, plain: Sequence[Digit], context: Context) -> tuple[Digit, Expr] | None:
    """The operand of an `xor` that is a digit and does not occur alone, and the other operand."""
    for x, mask in ((e.lhs, e.rhs), (e.rhs, e.lhs)):
        d = digit(x.name if isinstance(x, Var) else x, context, rounded=True)
        if d is not None and not any(
            d.var == p.var and d.unit < p.unit * p.size and p.unit < d.unit * d.size for p in plain
        ):
            return d, mask
    return None
