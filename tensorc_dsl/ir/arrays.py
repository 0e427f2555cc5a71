"""NumPy types of arrays: those that buffers have in memory, and the wide types in which references compute."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.ir.dtypes import BF16, U64, DType, code_of, largest_finite, overflows_above, value_of

Array = NDArray[Any]

_STORED: dict[str, str] = {
    "f8e4m3": "uint8", "f8e5m2": "uint8",
    "f16": "float16", "bf16": "uint16", "f32": "float32", "f64": "float64", "bool": "bool", "index": "int64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64",
}  # fmt: skip


def stored_dtype(t: DType) -> np.dtype[Any]:
    """The NumPy type of a buffer in memory. Of bf16 and of floats of 8 bits, which NumPy lacks, it is that of their bits."""
    return np.dtype(_STORED[t.name])


_EXTENSIONS = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
"""The names of types that the package `ml_dtypes` adds to NumPy: those of JAX, TensorFlow and others."""


def library_name(t: DType) -> str:
    """The name that array libraries have for the type."""
    return _EXTENSIONS.get(t.name) or _STORED[t.name]


def in_numpy(t: DType) -> bool:
    """Whether NumPy has the type by itself."""
    return t.name not in _EXTENSIONS


def as_stored(a: Array, t: DType) -> Array:
    """An array as `stored_dtype(t)` over the same memory, if its elements are the values of `t` in a type added to NumPy."""
    return a.view(stored_dtype(t)) if a.dtype.name == _EXTENSIONS.get(t.name) else a


_DLPACK = {"f8e4m3": 10, "f8e5m2": 12, "bf16": 4}
_DLPACK_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}


def dlpack_code(t: DType) -> int:
    """DLPack's code of the kind of a type, `DLDataTypeCode`."""
    return _DLPACK.get(t.name, _DLPACK_KINDS[t.kind])


def wide_dtype(t: DType) -> np.dtype[Any]:
    """The type in which references compute: float64, int64, bool, or uint64 for u64. It holds every value of `t`.

    NumPy makes float64 of int64 and uint64 together, so values of u64 never meet others before they are converted.
    """
    if t == U64:
        return np.dtype("uint64")
    return np.dtype("float64" if t.is_float else "bool" if t.kind == "bool" else "int64")


def widen(a: Array, t: DType) -> Array:
    """The values of an array of `t`, in `wide_dtype(t)`. An array that is already wide is returned as it is."""
    if t == BF16 and a.dtype == np.uint16:
        return (a.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if t.is_float and t.bits == 8 and a.dtype == np.uint8:
        return _octets(t)[a]
    return np.asarray(a, dtype=wide_dtype(t), order="C")


def narrow(a: Array, t: DType) -> Array:
    """The values as a buffer of `t` stores them: floats rounded to nearest, ties to even; integers wrapped."""
    a = np.asarray(a)
    if t.is_float and t.bits == 8:
        return _to_octets(a, t)
    with np.errstate(over="ignore"):
        if t.is_float and t.bits == 16:
            a = np.asarray(_to_odd_single(a))  # of a single value NumPy makes a number
        if t == BF16:
            bits = a.view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return np.where(np.isnan(a), 0x7FC0, rounded).astype(np.uint16)
        return a.astype(stored_dtype(t))


@cache
def _octets(t: DType) -> Array:
    """The value of each code of a float of 8 bits."""
    return np.array([value_of(code, t) for code in range(256)])


@cache
def _steps(t: DType) -> Array:
    """Above zero, the ends of the numbers that round to each finite code but 0, in order: the middles between neighbours."""
    finite = _octets(t)[: code_of(largest_finite(t), t) + 1]
    return np.append((finite[1:] + finite[:-1]) / 2, overflows_above(t))


def _to_octets(a: Array, t: DType) -> Array:
    """Codes of the nearest values of a float of 8 bits, by a search among the middles. A middle goes to the even code."""
    wide = a.astype(np.float64)  # an integer that this rounds is far beyond the largest number
    size, steps = np.abs(wide), _steps(t)
    code = np.searchsorted(steps, size)  # as many middles are below
    middle = steps[np.minimum(code, len(steps) - 1)] == size
    code = np.where(middle, code + (code & 1), code)
    code = np.where(code == len(steps), code_of(math.inf, t), code)
    none = code_of(math.nan, t)
    return np.where(np.isnan(wide) | (code == none), none, code | np.signbit(wide) * 128).astype(np.uint8)


def _to_odd_single(a: Array) -> Array:
    """Wide values in float32, rounded to odd: the last bit is set if others are lost, so a second rounding is exact."""
    if a.dtype.kind in "iu":  # 52 bits, so that float64 loses none of them
        a = a.astype(np.uint64 if a.dtype == np.uint64 else np.int64)
        lost = a & a.dtype.type(0x7FF)
        large = ((a if a.dtype == np.uint64 else np.abs(a)) >> 53 != 0) & (lost != 0)
        a = np.where(large, a - lost | a.dtype.type(0x800), a)
    wide = a.astype(np.float64)
    near = wide.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(wide))
    return (bits | ((back != wide) & ~np.isnan(wide))).astype(np.uint32).view(np.float32)


def wrap(a: Array, t: DType) -> Array:
    """Wide values modulo the width of `t`, as arithmetic on `t` wraps them."""
    return a if not t.is_integer else a.astype(stored_dtype(t), copy=False).astype(wide_dtype(t), copy=False)
