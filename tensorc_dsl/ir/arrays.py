"""NumPy types of arrays: those that buffers have in memory, and the wide types in which references compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.dtypes import BF16, DType

Array = NDArray[Any]

_STORED: dict[str, str] = {
    "f16": "float16", "bf16": "uint16", "f32": "float32", "f64": "float64", "bool": "bool", "index": "int64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
}  # fmt: skip


def stored_dtype(t: DType) -> np.dtype[Any]:
    """The NumPy type of a buffer in memory. NumPy has no bf16: such a buffer is its bit patterns, as uint16."""
    return np.dtype(_STORED[t.name])


def wide_dtype(t: DType) -> np.dtype[Any]:
    """The type in which references compute: float64, int64 or bool. It holds every value of `t`."""
    return np.dtype("float64" if t.is_float else "bool" if t.kind == "bool" else "int64")


def widen(a: Array, t: DType) -> Array:
    """The values of an array of `t`, in `wide_dtype(t)`. An array that is already wide is returned as it is."""
    if t == BF16 and a.dtype == np.uint16:
        return (a.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.asarray(a, dtype=wide_dtype(t), order="C")


def narrow(a: Array, t: DType) -> Array:
    """The values as a buffer of `t` stores them: floats rounded to nearest, ties to even; integers wrapped."""
    a = np.asarray(a)
    with np.errstate(over="ignore"):
        if t.is_float and t.bits == 16:
            a = np.asarray(_to_odd_single(a))  # of a single value NumPy makes a number
        if t == BF16:
            bits = a.view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return np.where(np.isnan(a), 0x7FC0, rounded).astype(np.uint16)
        return a.astype(stored_dtype(t))


def _to_odd_single(a: Array) -> Array:
    """Wide values in float32, rounded to odd: the last bit is set if others are lost, so a second rounding is exact."""
    if a.dtype.kind in "iu":  # 52 bits, so that float64 loses none of them
        a = a.astype(np.int64)
        large = (np.abs(a) >> 53 != 0) & (a & 0x7FF != 0)
        a = np.where(large, a & ~0x7FF | 0x800, a)
    wide = a.astype(np.float64)
    near = wide.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(wide))
    return (bits | ((back != wide) & ~np.isnan(wide))).astype(np.uint32).view(np.float32)


def wrap(a: Array, t: DType) -> Array:
    """int64 values modulo the width of `t`, as arithmetic on `t` wraps them."""
    return a if t.bits >= 64 or not t.is_integer else a.astype(stored_dtype(t)).astype(np.int64)


def unit_roundoff(t: DType) -> float:
    """Half the distance from 1 to the next larger number of the type; 0 for integers."""
    bits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}.get(t.name)
    return 0.0 if bits is None else 2.0**-bits


def smallest_normal(t: DType) -> float:
    """The smallest normal value of a float type, below which a result may be flushed to zero; 0 for integers."""
    exponent = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}.get(t.name)
    return 0.0 if exponent is None else 2.0**exponent
