"""Encodings of terms that integer sets cannot say: each becomes a variable with bounds, of which the term is remembered.

A proof for all values of a variable within its bounds holds for those that its term has. An encoding is *loose* if the term
may not have all of these values: then a point of the set refutes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import is_

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX, limits
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Call,
    Compare,
    Expr,
    Select,
    Var,
    add,
    children,
    constant,
    dims_in,
    dtype_of,
    factors_of,
    free_vars,
    index,
    mul,
    rebuild,
    sub,
)
from tensorc_dsl.proof.sets.linear_forms import Interval, Ranges, datum_range, is_datum, type_conditions
from tensorc_dsl.proof.sets.simplify import bounds, linear_form

_NO_RANGES: Ranges = {}
_NO_EXTENTS: Mapping[str, Expr] = {}


@dataclass(slots=True)
class Encoded:
    """Expressions with variables in place of terms. No loop has a name like those of the variables."""

    ranges: dict[str, Interval]
    """The range of each index that the expressions are over, and of each variable."""
    extents: dict[str, Expr]
    """The indices that the expressions are over, and the variables that are indices too, with their extents."""
    tag: str
    exprs: tuple[Expr, ...] = ()
    terms: dict[str, Expr] = field(default_factory=dict[str, Expr])
    """What each variable that is no index stands for."""
    conditions: list[Expr] = field(default_factory=list[Expr])
    """The bounds of these variables."""
    loose: bool = False
    variables: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    """The variable of each term."""

    def variable(self, term: Expr, name: str, interval: Interval, conditions: Iterable[Expr]) -> Expr:
        """A variable for a term, with its bounds as conditions too."""
        self.terms[name], self.ranges[name] = term, interval
        self.conditions += conditions
        self.variables[term] = made = Var(name)
        return made


@frozen
class Encoding:
    """What stands in place of a term whose parts are encoded already: the same term if this encoding is not for it."""

    stand: Callable[[Expr, Encoded], Expr]
    inside_xor: bool = True
    """Whether operands of `xor` are encoded: it is affine for what the text of an operand shows."""


def encoded(
    exprs: Iterable[Expr],
    *encodings: Encoding,
    extents: Mapping[str, Expr] = _NO_EXTENTS,
    ranges: Ranges = _NO_RANGES,
    tag: str = "",
) -> Encoded:
    """The expressions, over indices of these extents and ranges, by these encodings; equal terms share a variable. The tag
    tells variables from those of another call.
    """
    out = Encoded(dict(ranges), dict(extents), tag)
    out.exprs = tuple(_encode(e, encodings, out) for e in exprs)
    return out


def _encode(e: Expr, encodings: tuple[Encoding, ...], out: Encoded) -> Expr:
    if not is_datum(e) and (old := children(e)):
        below = encodings
        if isinstance(e, Binary) and e.op == "xor":
            below = tuple(x for x in encodings if x.inside_xor)
        new = tuple([_encode(c, below, out) for c in old])
        if not all(map(is_, old, new)):
            e = rebuild(e, new)
    for encoding in encodings:
        if (made := encoding.stand(e, out)) is not e:
            return made
    return e


# Data: any number of their type, whatever buffers contain.


def _datum(e: Expr, out: Encoded) -> Expr:
    if not is_datum(e):
        return e
    if (known := out.variables.get(e)) is not None:
        return known
    name = f"datum{out.tag}{len(out.terms)}'"
    return out.variable(e, name, datum_range(e), type_conditions(name, e))


DATA = Encoding(_datum)


# Quotients and remainders by numbers, exactly: a quotient is an integer between bounds. isl would give one to each
# occurrence, and look for what is superfluous after each condition: that is most of the time of a question.


def _by_number(e: Expr, out: Encoded) -> Expr:
    if not isinstance(e, Binary) or e.op not in ("/", "%") or (divisor := constant(e.rhs)) is None or divisor <= 0:
        return e
    quotient = Binary("/", e.lhs, e.rhs)
    value = out.variables.get(quotient)
    if value is None:
        name = f"{len(out.terms)}/"
        low = mul(e.rhs, Var(name))
        within = (Compare("<=", low, e.lhs), Compare("<", e.lhs, add(low, e.rhs)))
        value = out.variable(quotient, name, (None, None), within)
    return value if e.op == "/" else sub(e.lhs, mul(e.rhs, value))


QUOTIENTS_BY_NUMBERS = Encoding(_by_number, inside_xor=False)


# Quotients and remainders by open sizes, as indices of their own.
#
# Integer sets cannot divide by a parameter. A proof needs only the bounds of `i % M` and `i / M`, which hold for any M >=
# 1: a remainder is from 0 to M - 1, and the quotient of an `i` from 0 to K*M - 1 is from 0 to K - 1. So each becomes an
# index with that extent. A product of indices and sizes is largest where each index is. The relation to `i` is lost.


def _by_size(e: Expr, out: Encoded) -> Expr:
    return _part(e, out) if isinstance(e, Binary) and dims_in(e.rhs) else e


def _part(e: Expr, out: Encoded) -> Expr:
    if not isinstance(e, Binary) or e.op not in ("/", "%"):
        return e
    if (known := out.variables.get(e)) is not None:
        return known
    if free_vars(e.rhs) & out.extents.keys() or not _from(1, e.rhs):
        return e
    if (extent := e.rhs if e.op == "%" else _quotients(e, out.extents)) is None:
        return e
    name = f"part{len(out.extents)}'"
    high = bounds(extent, {})[1]
    out.extents[name], out.ranges[name] = extent, (0, None if high is None else max(high - 1, 0))
    out.loose = True
    out.variables[e] = made = Var(name)
    return made


QUOTIENTS_BY_SIZES = Encoding(_by_size)
QUOTIENTS = Encoding(_part)
"""Those by numbers, too: a product with an open size may be behind them."""


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


# Other terms that are not affine, as anything within their intervals. So `clamp(i / max(R, 1), 0, G - 1)` is proved by its
# clamp alone.


def _within_interval(e: Expr, out: Encoded) -> Expr:
    if _is_affine_in_parts(e):
        return e
    if (known := out.variables.get(e)) is not None:
        return known
    name = f"unknown{out.tag}{len(out.terms)}'"
    out.loose = True
    interval, (least, most) = bounds(e, out.ranges), limits(INDEX)
    low, high = least if interval[0] is None else interval[0], most if interval[1] is None else interval[1]
    return out.variable(
        e, name, interval, (Compare("<=", index(low), Var(name)), Compare("<=", Var(name), index(high)))
    )


def _is_affine_in_parts(e: Expr) -> bool:
    """Whether the operation keeps affine forms affine, or is none on indices."""
    match e:
        case Binary(op="*"):
            return constant(e.lhs) is not None or constant(e.rhs) is not None
        case Binary(op="/" | "%"):
            return (by := constant(e.rhs)) is not None and by > 0
        case Binary(op="xor"):
            return False
        case Select() | Call():
            return dtype_of(e) != INDEX
        case _:
            return True


INTERVALS = Encoding(_within_interval)
