"""Products of indices in subscripts as data: `A[min(i * j, 9)]` reads the element that a number decides.

Integer sets say nothing of a product of two variables. What it is follows from its operands, as for a number that is read:
the proof compares the operands, and the elements for every value of the product. Arithmetic on indices does not leave 64
bits, so the product is one of `i64`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import is_

from tensorc_dsl.affine.conditions import negate
from tensorc_dsl.affine.safety import check_access, ranges_of
from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.ir.dtypes import I64, INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Cast,
    Dim,
    Expr,
    Load,
    Select,
    children,
    constant,
    dtype_of,
    rebuild,
    sub,
)
from tensorc_dsl.ir.program import Block


def products_as_data(b: Block, shapes: Mapping[str, tuple[Expr, ...]], dims: tuple[Dim, ...]) -> Block:
    """The block, where products, quotients and remainders of two variables in the subscripts of loads are data.

    A subscript that stays inside of its array by the ranges of iterators and the conditions around it is one that is limited
    to it, for all sizes of the open dimensions `dims`. That tells the sets what the product would, and it is the same on
    both sides of a proof, however loops are cut.
    """
    extents = {it.name: it.extent for it in b.iters}
    ranges = ranges_of(extents)

    def datum(x: Expr) -> Expr:
        if not isinstance(x, Binary) or x.op not in "*/%" or dtype_of(x) != INDEX:
            return x
        if constant(x.rhs) is not None or (x.op == "*" and constant(x.lhs) is not None):
            return x
        made = Cast(Binary(x.op, Cast(x.lhs, I64), Cast(x.rhs, I64)), INDEX)
        positive = x.op == "%" and (bounds(x.rhs, ranges)[0] or 0) > 0
        return limited(made, x.rhs) if positive else made

    def arithmetic(i: Expr) -> Expr:
        """Without what is computed of values that are read: a stage may hold it as well, and there it is no subscript."""
        if isinstance(i, Cast) or not (old := children(i)):
            return i
        new = tuple(map(arithmetic, old))
        return datum(i if all(map(is_, old, new)) else rebuild(i, new))

    def inside(i: Expr, extent: Expr) -> bool:
        low, high = bounds(i, ranges)
        return low is not None and high is not None and low >= 0 and high < (constant(extent) or 0)

    def stays(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> bool:
        return inside(i, extent) or check_access(extents, given, (i,), (extent,), dims) is None

    def subscript(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> Expr:
        if (made := arithmetic(i)) == i:
            return i
        return limited(made, extent) if not inside(made, extent) and stays(i, extent, given) else made

    def value(e: Expr, given: tuple[Expr, ...]) -> Expr:
        if not (old := children(e)):
            return e
        around = (given,) * len(old)
        if isinstance(e, Select):
            around = (given, (*given, e.cond), (*given, negate(e.cond)))
        new = tuple(map(value, old, around))
        e = e if all(map(is_, old, new)) else rebuild(e, new)
        if not isinstance(e, Load):
            return e
        return replace(
            e, indices=tuple(subscript(i, n, given) for i, n in zip(e.indices, shapes[e.buffer], strict=True))
        )

    init, body = (tuple(replace(s, value=value(s.value, b.where)) for s in stores) for stores in (b.init, b.body))
    return b if (init, body) == (b.init, b.body) else replace(b, init=init, body=body)


def limited(e: Expr, extent: Expr) -> Expr:
    """The nearest number from 0 to below the extent."""
    return Binary("min", Binary("max", e, ZERO), sub(extent, ONE))
