"""Maps a box of a buffer back to the block instances that access it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.coverage import Digit, digit, is_last, missing_digits
from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.regions import Region
from tensorc_dsl.affine.simplify import is_multiple, iter_ranges, simplify
from tensorc_dsl.ir.expr import ZERO, Expr, add, ceildiv, constant, index, mul, sub
from tensorc_dsl.ir.program import Block, IterKind


def instances_writing(
    block: Block, indices: Sequence[Expr], region: Region, known: Collection[str] = ()
) -> list[tuple[Expr, Expr]] | str:
    """For each iterator a range `(lower, extent)` that contains all instances whose subscripts lie in the region.

    Returns the name of a spatial iterator instead if the subscripts do not determine its value, nor is it `known`.
    Reduction iterators, and iterators that no subscript limits, have their whole range. A range may exceed the iterator's
    extent where the region does.
    """
    vague = undetermined(block, indices, known)
    if vague is not None:
        return vague
    context = Context(iter_ranges(block.iters))
    parts = [_Part(s, *box, None) for s, box in zip(indices, region, strict=True)]
    limits = {name: found[-1].range for name, found in _limits(parts, context)[0].items()}
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


def undetermined(block: Block, indices: Sequence[Expr], known: Collection[str] = ()) -> str | None:
    """A spatial iterator whose value the subscripts do not determine, and that is not `known`; None if there is none."""
    context = Context(iter_ranges(block.iters))
    used: list[Digit] = []
    direct = set(known)
    for subscript in indices:
        form = linear(subscript, context)
        if len(form.terms) == 1:
            ((atom, _),) = form.terms.items()
            d = digit(atom, context, rounded=True)
            if isinstance(atom, str):
                direct.add(atom)
            elif d is not None:
                used.append(d)
    for it in block.iters:
        extent = constant(it.extent)
        if it.kind is not IterKind.SPATIAL or it.name in direct or extent == 1:
            continue
        if extent is None or missing_digits(used, it.name, extent) is not False:
            return it.name
    return None


def instances_reading(
    block: Block, indices: Sequence[Expr], region: Region, shape: Sequence[Expr]
) -> list[tuple[Expr, Expr]] | None:
    """For each iterator a range, such that exactly the instances in these ranges have subscripts in the region.

    None if ranges of single iterators cannot describe these instances. A range may exceed the iterator's extent, or be cut
    to it.
    """
    context = Context(iter_ranges(block.iters))
    parts = [_Part(s, *box, size) for s, box, size in zip(indices, region, shape, strict=True)]
    found, other = _limits(parts, context)
    if other or any(not x.exact or x.range != each[0].range for each in found.values() for x in each):
        return None
    limits = {name: each[0].range for name, each in found.items()}
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


@dataclass(frozen=True, slots=True)
class _Part:
    """A subscript, its range in a box, and the size of the dimension; None where a range may have other instances, too."""

    subscript: Expr
    lower: Expr
    extent: Expr
    size: Expr | None

    def has_all(self, values: int | None = None) -> bool:
        """Whether the range is all of the dimension, or has all values of a digit with so many."""
        most = constant(self.extent)
        return self.lower == ZERO and (
            self.extent == self.size or (most is not None and values is not None and most >= values)
        )


@dataclass(frozen=True, slots=True)
class _Limit:
    """A range `(lower, extent)` of an iterator that contains all instances, and whether it has no others."""

    range: tuple[Expr, Expr]
    exact: bool


def _limits(parts: Sequence[_Part], context: Context) -> tuple[dict[str, list[_Limit]], bool]:
    """By iterator, the ranges that subscripts `f*v + c` and those that are digits of `v` give; and whether another subscript
    is limited, too.
    """
    out: dict[str, list[_Limit]] = {}
    digits: dict[str, dict[_Part, Digit]] = {}
    other = False
    for p in parts:
        form = linear(p.subscript, context)
        ((atom, factor),) = form.terms.items() if len(form.terms) == 1 else (("", 0),)
        d = digit(atom, context, rounded=True) if factor == 1 and not isinstance(atom, str) else None
        if d is not None and not form.constant:
            digits.setdefault(d.var, {})[p] = d
        elif factor and isinstance(atom, str) and not p.has_all():
            out.setdefault(atom, []).append(_by_factor(p, factor, form.constant))
        else:
            other |= not p.has_all()
    for name, found in digits.items():
        if not all(p.has_all(d.size) for p, d in found.items()):
            limit = _by_digits(found, context)
            other |= limit is None
            out.setdefault(name, []).extend([] if limit is None else [limit])
    return {name: each for name, each in out.items() if each}, other


def _by_factor(p: _Part, factor: int, shift: int) -> _Limit:
    """The range of a variable whose multiple, and a constant, are a subscript.

    One element of so many as the factor belongs to an instance. If the range is not made of whole groups of as many, where it
    begins determines how many instances it has.
    """
    low = sub(p.lower, index(shift)) if factor > 0 else sub(index(shift + 1), add(p.lower, p.extent))
    n = abs(factor)
    if n == 1:
        return _Limit((low, p.extent), exact=True)
    whole = is_multiple(p.extent, n, {}) or is_multiple(low, n, {})
    return _Limit((simplify(ceildiv(low, index(n)), {}), simplify(ceildiv(p.extent, index(n)), {})), exact=whole)


def _by_digits(found: Mapping[_Part, Digit], context: Context) -> _Limit | None:
    """The range of a variable of which some digits are limited; None if they limit no range.

    Digits with one value each, from the highest on, and a range of the next one make a range, of which all lower digits take
    all values. Only of a dimension with as many elements as the digit has values it is known that the range has no others.
    """
    ordered = sorted(found.items(), key=lambda x: -x[1].unit)
    if not is_last(ordered[0][1], context) or ordered[0][0].has_all(ordered[0][1].size):
        return None
    low: Expr = ZERO
    size: Expr = ZERO
    above, exact = 0, True
    for n, (p, d) in enumerate(ordered):
        if n and (constant(size) != above or d.unit * d.size != above or p.has_all(d.size)):
            exact &= all(x.has_all(y.size) for x, y in ordered[n:])
            break
        exact &= not n or p.size == index(d.size)
        low, size, above = add(low, mul(p.lower, index(d.unit))), mul(p.extent, index(d.unit)), d.unit
    return _Limit((low, size), exact)


def _clipped(limit: tuple[Expr, Expr] | None, extent: Expr) -> tuple[Expr, Expr]:
    if limit is None:
        return ZERO, extent
    n, most = constant(limit[1]), constant(extent)
    whole = limit[1] == extent or (n is not None and most is not None and n >= most)
    return (ZERO, extent) if whole else limit
