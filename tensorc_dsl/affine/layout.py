"""Layouts: injective maps from the indices of a buffer to those of another, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.coverage import Digit, digit, missing_digits
from tensorc_dsl.affine.form import Context, Ranges
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.sets import NotAffine, mapping
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, floordiv, floormod, index, mul


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a digit of an old index stands in the new ones: `(results[result] / weight) % digit.size`."""

    result: int
    weight: int
    digit: Digit
    top: bool
    """It is the last one of its result, so that nothing stands above it to be taken off by `%`."""


def is_injective(params: Sequence[str], results: Sequence[Expr], extents: Sequence[int]) -> bool:
    """Whether two indices within the extents never have the same results. False when that cannot be decided."""
    if _places(params, results, extents, exact=False) is not None:
        return True
    within = [
        c
        for p, n in zip(params, extents, strict=True)
        for c in (Compare("<=", ZERO, Var(p)), Compare("<", Var(p), index(n)))
    ]
    try:
        return mapping(params, results, within).is_injective()
    except NotAffine:
        return False


def inverse(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[int], new: Sequence[Expr]
) -> tuple[Expr, ...] | None:
    """The old indices as expressions over the new ones; None when the map is not made of digits.

    For new indices that no old index has (padding), some old index comes out at or above its extent.
    """
    places = _places(params, results, extents, exact=True)
    if places is None:
        return None
    out: list[Expr] = []
    for p in params:
        total: Expr = ZERO
        for place in sorted((x for x in places if x.digit.var == p), key=lambda x: -x.digit.unit):
            value = floordiv(new[place.result], index(place.weight))
            if not place.top:
                value = floormod(value, index(place.digit.size))
            total = add(total, mul(value, index(place.digit.unit)))
        out.append(total)
    return tuple(out)


def _places(params: Sequence[str], results: Sequence[Expr], extents: Sequence[int], exact: bool) -> list[_Place] | None:
    """Where each digit goes, when every result is a mixed radix number of digits that give all indices back.

    With `exact`, each weight is the product of the sizes below it, so that no value of a result is skipped.
    """
    ranges: Ranges = {p: (0, n - 1) for p, n in zip(params, extents, strict=True)}
    context = Context(ranges)
    out: list[_Place] = []
    for r, result in enumerate(results):
        form = linear(result, context)
        if form.constant:
            return None
        reach = 1
        terms = sorted(form.terms.items(), key=lambda t: t[1])
        for n, (atom, weight) in enumerate(terms):
            d = digit(atom, context, rounded=True)
            if d is None or weight < reach or (exact and weight != reach):
                return None
            out.append(_Place(r, weight, d, n == len(terms) - 1))
            reach = weight * d.size
    digits = [x.digit for x in out]
    complete = all(n == 1 or missing_digits(digits, p, n) is False for p, n in zip(params, extents, strict=True))
    return out if complete else None
