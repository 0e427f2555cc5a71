"""Products of indices in subscripts as data: `A[min(i * j, 9)]` reads the element that a number decides.

Integer sets say nothing of a product of two variables. What it is follows from its operands, as for a number that is read:
the proof compares the operands, and the elements for every value of the product. Arithmetic on indices does not leave 64
bits, so the product is one of `i64`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorc_dsl.affine.safety import ranges_of
from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.ir.dtypes import I64, INDEX
from tensorc_dsl.ir.expr import ONE, ZERO, Binary, Cast, Expr, Load, constant, dtype_of, sub, transform
from tensorc_dsl.ir.program import Block


def products_as_data(b: Block, shapes: Mapping[str, tuple[Expr, ...]]) -> Block:
    """The block, where products, quotients and remainders of two variables in the subscripts of loads are data.

    A subscript that stays inside of its array by the ranges of iterators is one that is limited to it. That tells the sets
    what the product would, and it is the same on both sides of a proof, however loops are cut.
    """
    ranges = ranges_of({it.name: it.extent for it in b.iters})

    def datum(x: Expr) -> Expr:
        if not isinstance(x, Binary) or x.op not in "*/%" or dtype_of(x) != INDEX:
            return x
        if constant(x.rhs) is not None or (x.op == "*" and constant(x.lhs) is not None):
            return x
        made = Cast(Binary(x.op, Cast(x.lhs, I64), Cast(x.rhs, I64)), INDEX)
        positive = x.op == "%" and (bounds(x.rhs, ranges)[0] or 0) > 0
        return limited(made, x.rhs) if positive else made

    def inside(i: Expr, extent: Expr) -> bool:
        low, high = bounds(i, ranges)
        return low is not None and high is not None and low >= 0 and high < (constant(extent) or 0)

    def subscript(i: Expr, extent: Expr) -> Expr:
        if (made := transform(i, datum)) == i:
            return i
        return limited(made, extent) if inside(i, extent) and not inside(made, extent) else made

    def load(x: Expr) -> Expr:
        if not isinstance(x, Load):
            return x
        return replace(x, indices=tuple(map(subscript, x.indices, shapes[x.buffer])))

    init, body = (tuple(replace(s, value=transform(s.value, load)) for s in stores) for stores in (b.init, b.body))
    return b if (init, body) == (b.init, b.body) else replace(b, init=init, body=body)


def limited(e: Expr, extent: Expr) -> Expr:
    """The nearest number from 0 to below the extent."""
    return Binary("min", Binary("max", e, ZERO), sub(extent, ONE))
