"""Replaces quotients and remainders by open sizes with indices of their own.

Integer sets cannot divide by a parameter. A proof needs only the bounds of `i % M` and `i / M`, which hold for any M >= 1: a
remainder is from 0 to M - 1, and the quotient of an `i` from 0 to K*M - 1 is from 0 to K - 1. So each becomes an index with
that extent. A product of indices and sizes is largest where each index is. The relation to `i` is lost: a proof
for all values of the new index also holds for those that occur, but a value that leaves an array may not occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.simplify import bounds, linear_form
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Expr,
    Var,
    add,
    dims_in,
    factors_of,
    free_vars,
    index,
    mul,
    sub,
    transform,
)


@dataclass(frozen=True, slots=True)
class Divided:
    """Expressions with indices in place of quotients and remainders, and the extents of these indices."""

    exprs: tuple[Expr, ...]
    extents: Mapping[str, Expr]


def divided(exprs: Iterable[Expr], extents: Mapping[str, Expr], *, numbers: bool) -> Divided:
    """The expressions, over indices within `extents`, without the quotients and remainders by open sizes whose bounds
    are known; with `numbers`, also without those by numbers.
    """
    found: dict[str, Expr] = {}
    names: dict[Expr, Expr] = {}

    def replaced(e: Expr) -> Expr:
        if not isinstance(e, Binary) or e.op not in ("/", "%") or not (numbers or dims_in(e.rhs)):
            return e
        if e not in names:
            known = {**extents, **found}
            if free_vars(e.rhs) & known.keys() or not _from(1, e.rhs):
                return e
            if (extent := e.rhs if e.op == "%" else _quotients(e, known)) is None:
                return e
            name = f"part{len(names)}'"  # no loop's name ends in a quote
            found[name], names[e] = extent, Var(name)
        return names[e]

    return Divided(tuple(transform(e, replaced) for e in exprs), found)


def smallest(e: Expr, extents: Mapping[str, Expr], ranges: Ranges) -> Expr | None:
    """A lower bound of `e` over sizes only: its value with each index at one of its ends. None if no such bound is
    known.
    """
    terms, rest = linear_form(e, ranges)
    least: Expr = index(rest)
    for atom, factor in terms.items():
        names = free_vars(atom) & extents.keys()
        if names:
            corner = _corner(atom, extents)
            if corner is None:
                return None
            atom = corner if factor < 0 else ZERO
        least = add(least, mul(index(factor), atom))
    return least


def _corner(atom: Expr, extents: Mapping[str, Expr]) -> Expr | None:
    """The largest value of a nonnegative product of indices and sizes; None for other atoms."""
    out: Expr = ONE
    for f in factors_of(atom):
        if isinstance(f, Var) and f.name in extents:
            out = mul(out, sub(extents[f.name], ONE))
        elif free_vars(f) & extents.keys() or not _from(0, f):
            return None
        else:
            out = mul(out, f)
    return out


def _from(low: int, e: Expr) -> bool:
    """Whether an expression over sizes is at least `low`."""
    least = bounds(e, {})[0]
    return least is not None and least >= low


def _quotients(e: Binary, extents: Mapping[str, Expr]) -> Expr | None:
    """An upper bound K of `n / c` for a nonnegative n: n is less than K*c. None if none is known."""
    least, opposite = smallest(e.lhs, extents, {}), smallest(sub(ZERO, e.lhs), extents, {})
    if least is None or opposite is None or not _from(0, least):
        return None
    terms, rest = linear_form(sub(ONE, opposite), {})  # n is less than this
    divisors, unit = linear_form(e.rhs, {})
    (by, scale), *more = (*divisors.items(), *([(ONE, unit)] if unit else []))
    if more or scale < 0:
        return None
    count: Expr = index(max(0, -(-rest // scale)))
    for atom, factor in terms.items():
        if not _from(0, atom):
            return None
        if factor > 0:  # dropping a subtracted term only raises the bound
            count = add(count, mul(index(-(-factor // scale)), _without(atom, by)))
    return count


def _without(atom: Expr, by: Expr) -> Expr:
    """`x` if the atom is `x * by`; else the atom itself, which is no smaller than its quotient."""
    rest = factors_of(atom)
    for f in factors_of(by) if by != ONE else []:
        if f not in rest:
            return atom
        rest.remove(f)
    return reduce(mul, rest, ONE)
