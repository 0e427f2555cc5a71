"""Tensor maps as the driver makes them: the arguments of `cuTensorMapEncodeTiled`, the innermost dimension first.

CUDA Driver API, "Tensor Map Object Management". TMA loads are by elements of their type alone: other bits than those of
the array never appear, and what is outside of it are zeros.
"""

from __future__ import annotations

from functools import reduce

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, index, mul
from tensorc_dsl.lower.flat import TensorMap

MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""The size of a tensor map, and the alignment where the driver makes it."""

CACHED = 2
"""The driver's number for lines of 128 bytes, which a copy brings to the second-level cache."""

_TYPES = {
    "u8": 0, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "i8": 0, "i16": 1,
    "f8e4m3": 0, "f8e5m2": 0,
}  # fmt: skip
"""The driver's numbers of types of elements; there are none of small signed integers and of floats of 8 bits, and their bits
are copied alike."""

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""The driver's numbers of swizzles, by their bytes."""


@frozen
class Encoding:
    """The arguments of the driver for a map besides the address of the array: numbers of the type and of the swizzle, the
    elements along each dimension, the bytes between neighbours along each but the innermost, and the elements of a tile."""

    array: str
    kind: int
    swizzle: int
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]


def encoding_of(m: TensorMap) -> Encoding:
    """The arguments of the driver for a map."""
    size = index(m.dtype.bytes)
    strides = tuple(reduce(mul, m.shape[n:], size) for n in range(len(m.shape) - 1, 0, -1))
    return Encoding(m.array, _TYPES[m.dtype.name], _SWIZZLES[m.swizzle], m.shape[::-1], strides, m.sizes[::-1])
