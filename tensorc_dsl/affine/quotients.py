"""Quotients and remainders by open sizes, as indices of their own.

Integer sets do not divide by a parameter. What a proof needs of `i % M` and `i / M` is between which two numbers they are,
and that holds for any M from 1 on: a remainder is from 0 to M - 1, and the quotient of an `i` from 0 to K*M - 1 from 0 to
K - 1. So each becomes an index with that extent; and a product of indices and sizes is largest where each index is. That a
part is tied to `i` is forgotten: what is proved of all its values holds of those that it has, and a value that leaves an
array may be none of them.
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
    """Expressions with indices in place of quotients and remainders, and the extents of these."""

    exprs: tuple[Expr, ...]
    extents: Mapping[str, Expr]


def divided(exprs: Iterable[Expr], extents: Mapping[str, Expr], *, numbers: bool) -> Divided:
    """The expressions, over indices within `extents`, without those quotients and remainders by open sizes of which bounds
    are known; by `numbers` too, where they are asked for.
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
            name = f"part{len(names)}'"  # no loop's name holds the sign that ends it
            found[name], names[e] = extent, Var(name)
        return names[e]

    return Divided(tuple(transform(e, replaced) for e in exprs), found)


def smallest(e: Expr, extents: Mapping[str, Expr], ranges: Ranges) -> Expr | None:
    """An expression over sizes that is nowhere more than `e`: its value where each index is at one of its ends. None where no
    such is known.
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
    """The largest value of a product of indices and sizes, which is nowhere negative; None for any other atom."""
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
    """How many values `n / c` has for an n that is not negative: K where n is less than K*c. None where it is not known."""
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
        if factor > 0:  # what is taken away need not be known
            count = add(count, mul(index(-(-factor // scale)), _without(atom, by)))
    return count


def _without(atom: Expr, by: Expr) -> Expr:
    """`x` where the atom is `x * by`; the atom itself, which is no less than its quotient, where it is no such product."""
    rest = factors_of(atom)
    for f in factors_of(by) if by != ONE else []:
        if f not in rest:
            return atom
        rest.remove(f)
    return reduce(mul, rest, ONE)
