"""Mixed-radix digits of indices, and layouts made of them: injective maps between indices, with their inverses.

A *digit* of a variable is `(var / unit) % size`. Digits of one variable at disjoint places, and digits of different
variables, take their values independently of each other. So a sum of multiples of digits says what each of them is, if its
factors lie far enough apart, and all digits together say what the variable is. Triton's linear layouts are the case in which
all radices are 2.

Integer sets could invert every injective map, but in several pieces, whose conditions would be in the program's subscripts.
That the layout of the inverse is the place is itself the condition of an element, so a mistake here can leave one out, which
the proof of the schedule finds, and cannot put another in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tensorc_dsl.base.frozen import frozen
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
from tensorc_dsl.proof.sets.linear_forms import Atom, Context, Linear, Ranges, expr_of, linear, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, mapping
from tensorc_dsl.proof.sets.simplify import bounds, simplify


@frozen
class Digit:
    """`(var / unit) % size`. A whole variable is the digit of unit 1 and its extent."""

    var: str
    unit: int
    size: int


def digit(atom: Atom, context: Context, rounded: bool = False) -> Digit | None:
    """The digit that an atom of a linear form is; None for other atoms.

    Divisors must divide the extents that they cut, unless `rounded`: then a last digit may be incomplete, and digits of one
    variable are no longer independent of each other.
    """
    match atom:
        case str() | Var():
            name = atom if isinstance(atom, str) else atom.name
            low, high = context.atom_range(name)
            return Digit(name, 1, high + 1) if low == 0 and high is not None else None
        case Binary(op="/" | "%" as op, lhs=lhs, rhs=Const(value=int(c))) if c > 0:
            inner = digit(lhs, context, rounded)
            if inner is None or (inner.size % c and not (rounded and is_highest_digit(inner, context))):
                return None
            if op == "/":
                return Digit(inner.var, inner.unit * c, -(-inner.size // c))
            return Digit(inner.var, inner.unit, min(c, inner.size))
        case _:
            return None


def is_highest_digit(d: Digit, context: Context) -> bool:
    """Whether the digit is the highest of its variable."""
    high = context.atom_range(d.var)[1]
    return high is not None and d.unit * d.size > high


def missing_digits(used: Iterable[Digit], var: str, extent: int) -> bool | None:
    """Whether the digits of `var` fail to distinguish some of its values; None if two of them overlap."""
    reach = 1
    for d in sorted((d for d in used if d.var == var and d.size > 1), key=lambda d: d.unit):
        if d.unit < reach:
            return None
        if d.unit > reach:
            return True
        reach *= d.size
    return reach < extent


def numeral(e: Expr, context: Context) -> tuple[int, list[tuple[int, Digit]]] | None:
    """`constant + sum of factor * digit`, the least factor first; None if the expression does not have that form."""
    form = linear(e, context)
    terms = [(factor, digit(atom, context)) for atom, factor in form.terms.items()]
    found = [(factor, d) for factor, d in terms if d is not None]
    return (form.constant, sorted(found, key=lambda t: abs(t[0]))) if len(found) == len(terms) else None


def overlap(used: Sequence[Digit]) -> bool:
    """Whether two digits cover a common place of one variable."""
    return any(
        a.var == b.var and a.unit < b.unit * b.size and b.unit < a.unit * a.size
        for i, a in enumerate(used)
        for b in used[:i]
    )


# Inverts a layout: from the indices of a place to those of the element in it, and the conditions that there is one.
#
# Each result is solved for the indices that it determines. A sum of digits determines all of them, in any order and
# direction: `36 - i`, `j*7 + k` with `k` below 5. If other indices are known already, they are subtracted first: `i + j`
# gives `i` if `j` is known, and `(i + j) % 5` and `xor(i, j % 4)` too. Sizes may be open, for an index that is a result
# itself or in quotient and remainder.


@frozen
class Inverse:
    """The old indices over the new ones, and the conditions under which a place has an element."""

    values: tuple[Expr, ...]
    inside: tuple[Expr, ...]


def is_injective(params: Sequence[str], results: Sequence[Expr], extents: Sequence[int]) -> bool:
    """Whether different indices within the extents have different results. False if that cannot be decided."""
    if _solved(params, results, list(map(index, extents)), results) is not None:
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


def solve(block: Block, subscripts: Sequence[Expr], at: Sequence[Expr]) -> Mapping[str, Expr] | None:
    """The value of each iterator of a block in an instance whose subscripts are `at`, if there is such an instance.

    None if the subscripts do not determine all iterators, or have a form that is not supported.
    """
    found = _solved([it.name for it in block.iters], subscripts, [it.extent for it in block.iters], at)
    return None if found is None else found.values


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
    found = _solved(params, results, extents, new)
    if found is None:
        return None
    values = tuple(found.values[p] for p in params)
    below = [Compare("<", v, e) for v, e in zip(values, extents, strict=True)]
    if found.exact:
        return Inverse(values, tuple(below))
    at = dict(zip(params, values, strict=True))
    inside = [c for v, last in zip(values, below, strict=True) for c in (Compare("<=", ZERO, v), last)]
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


def _solved(
    params: Sequence[str], results: Sequence[Expr], extents: Sequence[Expr], new: Sequence[Expr]
) -> _Solution | None:
    """The indices over the results, which are called `new`; None if the results do not tell all of them."""
    out = _Solution(_ranges(params, extents), exact=all(constant(e) is not None for e in extents))
    out.settle()
    left = list(zip(results, new, strict=True))
    while any(p not in out.values for p in params):
        told = [x for x in left if out.read(*x)]
        if not told:
            return None
        left = [x for x in left if x not in told]
    out.exact &= not left
    return out


@dataclass(slots=True)
class _Solution:
    """What results that were read say of the old indices."""

    ranges: Ranges
    exact: bool
    """Whether each value of the results is one of indices, unless an index is beyond its extent: each result is a number of
    which the digits have the weights of a mixed radix, and each digit occurs once."""
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])
    digits: dict[str, dict[int, tuple[int, Expr]]] = field(default_factory=dict[str, dict[int, tuple[int, Expr]]])
    """For each index its digits that are known: by their unit, the size and the value."""

    def read(self, result: Expr, place: Expr) -> bool:
        """Solve a result for indices; false if it determines none until another index is known."""
        context = Context(self.ranges)
        form = linear(result, context)
        told = self._sum(form, place, context)
        if told is None:
            told = self._remainder(form, place, context)
        for d, value in told or ():
            mine = self.digits.setdefault(d.var, {})
            apart = not any(u < d.unit * d.size and d.unit < u * n for u, (n, _) in mine.items())
            self.exact &= apart
            if d.size > 1 and apart:
                mine[d.unit] = (d.size, value)
        self.settle()
        return told is not None

    def settle(self) -> None:
        """Compute the indices of which all digits are known."""
        for p, (_, high) in self.ranges.items():
            if p not in self.values and (value := self._whole(p, None if high is None else high + 1)) is not None:
                self.values[p] = value

    def _whole(self, p: str, extent: int | None) -> Expr | None:
        reach, total = 1, ZERO
        for unit, (size, value) in sorted(self.digits.get(p, {}).items()):
            if unit != reach:
                return None
            total = add(mul(value, index(unit)), total)
            reach *= size
        return total if reach >= (_OPEN if extent is None else extent) else None

    def _split(self, form: Linear) -> tuple[Expr, dict[Atom, int]]:
        """The value of the terms over known indices, and the other terms."""
        unknown = {a: c for a, c in form.terms.items() if not self._is_known(expr_of(a))}
        rest = Linear({a: c for a, c in form.terms.items() if a not in unknown}, form.constant)
        return substitute(to_expr(rest), self.values), unknown

    def _is_known(self, e: Expr) -> bool:
        return free_vars(e) & self.ranges.keys() <= self.values.keys()

    def _remainder(self, form: Linear, place: Expr, context: Context) -> list[tuple[Digit, Expr]] | None:
        """Of `(known ± p) % n`, which determines `p % n`."""
        match list(form.terms.items()) if form.constant == 0 else []:
            case [(Binary(op="%", lhs=x, rhs=Const(value=int(n))), 1)] if n > 0:
                base, unknown = self._split(linear(x, context))
            case _:
                return None
        match list(unknown.items()):
            case [(str() as p, 1 | -1 as sign)]:
                self.exact = False
                high = self.ranges[p][1]
                value = sub(place, base) if sign == 1 else sub(base, place)
                return [(Digit(p, 1, n if high is None else min(n, high + 1)), floormod(value, index(n)))]
            case _:
                return None

    def _sum(self, form: Linear, place: Expr, context: Context) -> list[tuple[Digit, Expr]] | None:
        """Of a sum of known terms and of digits with factors so far apart that no value is made twice."""
        base, unknown = self._split(form)
        match list(unknown.items()):
            case [(str() as p, -1)]:
                self.exact = False
                high = self.ranges[p][1]
                return [(Digit(p, 1, _OPEN if high is None else high + 1), sub(base, place))]
            case _:
                pass
        found: list[tuple[Digit, int, int, Expr]] = []
        reach, exact = 1, base == ZERO
        for atom, factor in sorted(unknown.items(), key=lambda t: abs(t[1])):
            d, size, mask = self._masked(atom, context)
            if d is None or abs(factor) < reach or (found and factor % found[-1][2]) or (size == _OPEN and factor < 1):
                return None
            found.append((d, size, factor, mask))
            exact &= factor == reach and (size <= d.size or is_highest_digit(d, context))
            reach = abs(factor) * size
        self.exact &= exact
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
                if high is not None and self._is_known(mask):
                    d = self._digit(x.name if isinstance(x, Var) else x, context)
                    return d, high + 1, substitute(mask, self.values)
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
