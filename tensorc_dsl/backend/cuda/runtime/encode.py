"""Tensor maps of arrays on a GPU, made by the driver: PyCUDA has no function for it, so it is called as it is."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from tensorc_dsl.affine.tensor_maps import LONGEST
from tensorc_dsl.backend.cuda.maps import CACHED, MAP_ALIGNMENT, MAP_BYTES
from tensorc_dsl.backend.protocol import KernelFault


@cache
def library() -> Any:
    """The driver's library, which is loaded already."""
    return ctypes.CDLL("libcuda.so.1")


def encoded(
    kind: int, swizzle: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> bytes:
    """The map of an array at an address, with the driver's numbers and the innermost dimension first; strides are in bytes.

    Raises KernelFault if the driver makes none.
    """
    if max(sizes) > LONGEST:
        raise KernelFault(
            f"a tile of an array with {max(sizes)} elements along a dimension has numbers beyond 32 bits", lost=False
        )
    rank = len(sizes)
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = ctypes.addressof(room) + -ctypes.addressof(room) % MAP_ALIGNMENT
    code = library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(start),
        ctypes.c_int(kind),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*sizes),
        (ctypes.c_uint64 * rank)(*strides),  # one less than dimensions
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*(1 for _ in box)),
        ctypes.c_int(0),  # channels are not interleaved
        ctypes.c_int(swizzle),
        ctypes.c_int(CACHED),
        ctypes.c_int(0),  # zeros outside
    )
    if code:
        tiles = " x ".join(map(str, reversed(box)))
        raise KernelFault(f"the GPU's driver makes no tensor map of tiles of {tiles}: error {code}", lost=False)
    return ctypes.string_at(start, MAP_BYTES)
