"""Values that are kept between two others: by `clamp`, or, with a conversion, by `saturate`."""

from __future__ import annotations

from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.numbers import largest_finite, limits


def kept(value: ir.Expr, low: ir.Expr, high: ir.Expr) -> ir.Expr:
    """The value, limited to the other two."""
    return ir.Binary("min", ir.Binary("max", value, low), high)


def saturated(x: ir.Expr, to: DType) -> ir.Expr:
    """The number of an integer type that is nearest to `x`; of a float without its fraction, of NaN 0. The finite number of a
    float of 8 bits that is nearest to `x`; of NaN NaN.

    Only ends that the type of `x` goes beyond are compared with. A conversion of a float to an integer keeps to the ends by
    itself.
    """
    t = ir.dtype_of(x)
    if to.is_float:
        largest = int(largest_finite(to))
        if t.is_float:
            return ir.Cast(kept(x, ir.Const(-float(largest), t), ir.Const(float(largest), t)), to)
        low, high = limits(t)
        if low < -largest:
            x = ir.Binary("max", x, ir.Const(-largest, t))
        if largest < high:
            x = ir.Binary("min", x, ir.Const(largest, t))
        return ir.Cast(x, to)
    if not t.is_float:
        (least, most), (low, high) = limits(to), limits(t)
        if isinstance(x, ir.Const):
            return ir.Const(min(max(int(x.value), least), most), to)
        if low < least:
            x = ir.Binary("max", x, ir.Const(least, t))
        if most < high:
            x = ir.Binary("min", x, ir.Const(most, t))
    return x if t == to else ir.Cast(x, to)
