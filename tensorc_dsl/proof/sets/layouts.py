"""Layouts: injective maps from the indices of a buffer to other indices, and their inverses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    add,
    ceildiv,
    children,
    constant,
    floordiv,
    floormod,
    free_vars,
    index,
    mul,
    sub,
    substitute,
    xor,
)
from tensorc_dsl.ir.program import Block
from tensorc_dsl.proof.sets.coverage import Digit, digit, is_last, missing_digits
from tensorc_dsl.proof.sets.linear_forms import Atom, Context, Linear, Ranges, expr_of, linear, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, mapping
from tensorc_dsl.proof.sets.simplify import bounds, iter_ranges, simplify


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


# Inverts a layout: from the indices of a place to those of the element in it, and the conditions that there is one.
#
# Each result is solved for the indices that it determines. A sum of digits determines all of them, in any order and
# direction: `36 - i`, `j*7 + k` with `k` below 5. If other indices are known already, they are subtracted first: `i + j`
# gives `i` if `j` is known, and `(i + j) % 5` and `xor(i, j % 4)` too. Sizes may be open, for an index that is a result
# itself or in quotient and remainder.


@dataclass(frozen=True, slots=True)
class Inverse:
    """The old indices over the new ones, and the conditions under which a place has an element."""

    values: tuple[Expr, ...]
    inside: tuple[Expr, ...]


def inverted(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[Expr], new: Sequence[Expr]
) -> Inverse | None:
    """The inverse of a layout. None if it is not made of such results that they tell all indices; then it may have one.

    A layout with an inverse is injective.
    """
    return _inverted(params, results, extents, new) or _from_shifted(params, results, extents, new)


def _from_shifted(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[Expr], new: Sequence[Expr]
) -> Inverse | None:
    """The inverse of a layout of shifted indices: of `(i + 3) / 4, (i + 3) % 4` that of the layout of `i + 3`, which has an
    element from 3 on.
    """
    shifts: dict[str, int] = {}
    for r in results:
        for e in _parts(r):
            match e:
                case Binary(op="+", lhs=Var(name=p), rhs=Const(value=int(n))) if n > 0 and p in params:
                    shifts.setdefault(p, n)
                case _:
                    pass
    if not shifts:
        return None
    by = [index(shifts.get(p, 0)) for p in params]
    longer = [simplify(add(e, n), {}) for e, n in zip(extents, by, strict=True)]
    back = {p: sub(Var(p), n) for p, n in zip(params, by, strict=True)}
    ranges = _ranges(params, longer)
    found = _inverted(params, [simplify(substitute(r, back), ranges) for r in results], longer, new)
    if found is None:
        return None
    values = tuple(sub(v, n) for v, n in zip(found.values, by, strict=True))
    inside = (Compare("<=", n, v) for v, n in zip(found.values, by, strict=True) if n != ZERO)
    return Inverse(values, (*found.inside, *inside))


def _parts(e: Expr) -> Iterator[Expr]:
    """The expression and all that it is made of."""
    yield e
    for c in children(e):
        yield from _parts(c)


def _inverted(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[Expr], new: Sequence[Expr]
) -> Inverse | None:
    """`inverted`, where no index is shifted below a quotient or a remainder."""
    sizes = [n for e in extents if (n := constant(e)) is not None]
    if len(sizes) == len(extents) and (values := inverse(params, results, sizes, new)) is not None:
        return Inverse(values, tuple(Compare("<", v, e) for v, e in zip(values, extents, strict=True)))
    known = _Known(_ranges(params, extents))
    left = list(zip(results, new, strict=True))
    while any(p not in known.values for p in params):
        told = [x for x in left if known.read(*x)]
        if not told:
            return None
        left = [x for x in left if x not in told]
    values = tuple(known.values[p] for p in params)
    inside: list[Expr] = []
    for v, e in zip(values, extents, strict=True):
        inside += [Compare("<=", ZERO, v), Compare("<", v, e)]
    at = dict(zip(params, values, strict=True))
    inside += [Compare("==", substitute(r, at), n) for r, n in zip(results, new, strict=True)]
    return Inverse(values, tuple(inside))


def size_of(result: Expr, params: Sequence[str], extents: Sequence[Expr]) -> Expr | None:
    """One more than the largest value of a result; None if it may be negative, or has no largest value that is known."""
    ranges = _ranges(params, extents)
    low, high = bounds(result, ranges)
    if low is None or low < 0:
        return None
    if high is not None:
        return index(high + 1)
    form = linear(result, Context(ranges))
    opened = {a: n for a in form.terms if (n := _open_size(a, params, extents)) is not None}
    if len(opened) != 1:
        return None
    ((atom, count),) = opened.items()
    rest = Linear({a: c for a, c in form.terms.items() if a != atom}, form.constant)
    high = bounds(to_expr(rest), ranges)[1]
    if form.terms[atom] < 1 or high is None:
        return None
    return simplify(add(mul(sub(count, index(1)), index(form.terms[atom])), index(high + 1)), {})


def _open_size(atom: Atom, params: Sequence[str], extents: Sequence[Expr]) -> Expr | None:
    """The number of values of an index without a known size, or of its quotient."""
    match atom:
        case str() as p:
            extent, n = extents[list(params).index(p)], 1
        case Binary(op="/", lhs=Var(name=p), rhs=Const(value=int(n))) if n > 0:
            extent = extents[list(params).index(p)]
        case _:
            return None
    return ceildiv(extent, index(n)) if constant(extent) is None else None


def _ranges(params: Sequence[str], extents: Sequence[Expr]) -> Ranges:
    return {p: (0, None if (n := constant(e)) is None else n - 1) for p, e in zip(params, extents, strict=True)}


_OPEN = 1 << 62
"""The size of a digit that has no limit."""


@dataclass(slots=True)
class _Known:
    """What is known of the old indices."""

    ranges: Ranges
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])
    digits: dict[str, dict[int, tuple[int, Expr]]] = field(default_factory=dict[str, dict[int, tuple[int, Expr]]])
    """For each index its digits that are known: by their unit, the size and the value."""

    def read(self, result: Expr, place: Expr) -> bool:
        """Solve a result for indices; false if it determines none until another index is known."""
        context = Context(self.ranges)
        form = linear(result, context)
        told = self._remainder(form, place, context) or self._sum(form, place, context)
        for d, value in told or ():
            mine = self.digits.setdefault(d.var, {})
            if d.size > 1 and not any(u < d.unit * d.size and d.unit < u * n for u, (n, _) in mine.items()):
                mine[d.unit] = (d.size, value)
        for p, (_, high) in self.ranges.items():
            if p not in self.values and (value := self._whole(p, None if high is None else high + 1)) is not None:
                self.values[p] = value
        return told is not None

    def _whole(self, p: str, extent: int | None) -> Expr | None:
        reach, total = 1, ZERO
        for unit, (size, value) in sorted(self.digits.get(p, {}).items()):
            if unit != reach:
                return None
            total = add(total, mul(value, index(unit)))
            reach *= size
        return total if reach >= (_OPEN if extent is None else extent) else None

    def _split(self, form: Linear) -> tuple[Expr, dict[Atom, int]]:
        """The value of the terms over known indices, and the other terms."""
        unknown = {a: c for a, c in form.terms.items() if not free_vars(expr_of(a)) <= self.values.keys()}
        rest = Linear({a: c for a, c in form.terms.items() if a not in unknown}, form.constant)
        return substitute(to_expr(rest), self.values), unknown

    def _remainder(self, form: Linear, place: Expr, context: Context) -> list[tuple[Digit, Expr]] | None:
        """Of `(known ± p) % n`, which determines `p % n`."""
        match list(form.terms.items()) if form.constant == 0 else []:
            case [(Binary(op="%", lhs=x, rhs=Const(value=int(n))), 1)] if n > 0:
                base, unknown = self._split(linear(x, context))
            case _:
                return None
        match list(unknown.items()):
            case [(str() as p, 1 | -1 as sign)]:
                high = self.ranges[p][1]
                value = sub(place, base) if sign == 1 else sub(base, place)
                return [(Digit(p, 1, n if high is None else min(n, high + 1)), floormod(value, index(n)))]
            case _:
                return None

    def _sum(self, form: Linear, place: Expr, context: Context) -> list[tuple[Digit, Expr]] | None:
        """Of a sum of known terms and of digits with factors so far apart that no value is made twice."""
        base, unknown = self._split(form)
        found: list[tuple[Digit, int, int, Expr]] = []
        reach = 1
        for atom, factor in sorted(unknown.items(), key=lambda t: abs(t[1])):
            d, size, mask = self._masked(atom, context)
            if d is None or abs(factor) < reach or (found and factor % found[-1][2]) or (size == _OPEN and factor < 1):
                return None
            found.append((d, size, factor, mask))
            reach = abs(factor) * size
        rest = sub(place, base)
        for _, size, factor, _ in found:
            rest = add(rest, index(-factor * (size - 1))) if factor < 0 else rest
        told: list[tuple[Digit, Expr]] = []
        for n, (d, size, factor, mask) in enumerate(found):
            value = floordiv(rest, index(abs(factor)))
            if n + 1 < len(found):
                value = floormod(value, index(abs(found[n + 1][2] // factor)))
            told.append((d, xor(sub(index(size - 1), value) if factor < 0 else value, mask)))
        return told

    def _masked(self, atom: Atom, context: Context) -> tuple[Digit | None, int, Expr]:
        """A digit, how many values the atom may have, and the known number that the digit is mixed with by `xor`, or 0."""
        if isinstance(atom, Binary) and atom.op == "xor":
            high = context.atom_range(atom)[1]
            for mask, x in ((atom.lhs, atom.rhs), (atom.rhs, atom.lhs)):
                if high is not None and free_vars(mask) <= self.values.keys():
                    return (
                        self._digit(x.name if isinstance(x, Var) else x, context),
                        high + 1,
                        substitute(mask, self.values),
                    )
        d = self._digit(atom, context)
        return d, 0 if d is None else d.size, ZERO

    def _digit(self, atom: Atom, context: Context) -> Digit | None:
        found = digit(atom, context, rounded=True)
        if found is not None:
            return found
        match atom:
            case str() if self.ranges[atom][1] is None:
                return Digit(atom, 1, _OPEN)
            case Binary(op="/", lhs=Var(name=p), rhs=Const(value=int(n))) if n > 0 and self.ranges[p][1] is None:
                return Digit(p, n, _OPEN)
            case Binary(op="%", lhs=Var(name=p), rhs=Const(value=int(n))) if n > 0 and self.ranges[p][1] is None:
                return Digit(p, 1, n)
            case _:
                return None


# Solves the subscripts of an access for the iterators in them.


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
