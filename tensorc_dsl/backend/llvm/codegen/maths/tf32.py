"""`tf32`: the rounding of operands of tensor cores."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.ir.dtypes import F32

_KEPT = 10
"""The bits of a fraction that are kept, after the first one."""

_LEAST = -126
"""The exponent of the least normal f32: of smaller numbers, bits down to this many places below it are kept."""


def tf32(x: Lanes) -> Lanes:
    """The nearest number with 11 significant bits, halves away from zero: half a unit is added to the bits of the size, and
    what is below the unit is cut off. NaN stays as it is, since the sum could reach its sign."""
    dropped = (23 if x.value.dtype == F32 else 52) - _KEPT
    bits = x.bits()
    rounded = ((bits + (1 << (dropped - 1))) & -(1 << dropped)).bits()
    if x.value.dtype != F32:
        scale = 2.0 ** (_KEPT - _LEAST)
        small = ((x.size() * scale + 0.5).below() * (1.0 / scale)).signed_as(x)
        rounded = (x.size() < 2.0**_LEAST).choose(small, rounded)
    return x.equals(x).choose(rounded, x)
