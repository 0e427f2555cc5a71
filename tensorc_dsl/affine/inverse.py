"""Maps a box of a buffer back to the block instances that access it."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.coverage import Digit, digit, is_last, missing_digits
from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.regions import Region
from tensorc_dsl.affine.simplify import extent_ranges
from tensorc_dsl.ir.expr import ZERO, Expr, constant, index, mul, sub
from tensorc_dsl.ir.program import Block, For, IterKind


def instances_writing(block: Block, indices: Sequence[Expr], region: Region) -> list[tuple[Expr, Expr]] | str:
    """For each iterator a range `(lower, extent)` that contains all instances whose subscripts lie in the region.

    Returns the name of a spatial iterator instead if the subscripts do not determine its value. Reduction iterators, and
    iterators that no subscript limits, have their whole range. A range may exceed the iterator's extent where the region
    does.
    """
    vague = _tells_apart(block, indices)
    if vague is not None:
        return vague
    context = Context(extent_ranges(For(it.name, it.extent, ()) for it in block.iters))
    found = [_limit(s, box, context) for s, box in zip(indices, region, strict=True)]
    limits = dict(x for x in found if x is not None)
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


def instances_reading(
    block: Block, indices: Sequence[Expr], region: Region, shape: Sequence[Expr]
) -> list[tuple[Expr, Expr]] | None:
    """For each iterator a range, such that exactly the instances in these ranges have subscripts in the region.

    None if ranges of single iterators cannot describe these instances. A range may exceed the iterator's extent, or be cut
    to it.
    """
    context = Context(extent_ranges(For(it.name, it.extent, ()) for it in block.iters))
    limits: dict[str, tuple[Expr, Expr]] = {}
    for subscript, (lower, extent), size in zip(indices, region, shape, strict=True):
        if lower == ZERO and extent == size:
            continue
        found = _limit(subscript, (lower, extent), context)
        if found is None or limits.setdefault(found[0], found[1]) != found[1]:
            return None
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


def _limit(subscript: Expr, box: tuple[Expr, Expr], context: Context) -> tuple[str, tuple[Expr, Expr]] | None:
    """The iterator and its range, if the subscript is `v + c` or `v / c`; else None."""
    form = linear(subscript, context)
    if len(form.terms) != 1:
        return None
    ((atom, factor),) = form.terms.items()
    lower, extent = box
    if factor != 1:
        return None
    if isinstance(atom, str):
        return atom, (sub(lower, index(form.constant)), extent)
    d = digit(atom, context, rounded=True)
    if d is None or not is_last(d, context) or form.constant:
        return None
    return d.var, (mul(lower, index(d.unit)), mul(extent, index(d.unit)))


def _tells_apart(block: Block, indices: Sequence[Expr]) -> str | None:
    """A spatial iterator whose value the subscripts do not determine; None if there is none."""
    context = Context(extent_ranges(For(it.name, it.extent, ()) for it in block.iters))
    used: list[Digit] = []
    direct: set[str] = set()
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


def _clipped(limit: tuple[Expr, Expr] | None, extent: Expr) -> tuple[Expr, Expr]:
    if limit is None:
        return ZERO, extent
    n, most = constant(limit[1]), constant(extent)
    whole = limit[1] == extent or (n is not None and most is not None and n >= most)
    return (ZERO, extent) if whole else limit
