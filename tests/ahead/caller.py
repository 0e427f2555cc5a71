"""Calls a library with `ctypes` and DLPack's descriptions of arrays, as a program without this package does.

Run as text by a Python without site packages, in front of a test's own program; the last argument is the file's path.
"""

import ctypes
import json
import sys
from array import array  # noqa: F401 (for the programs)

LIBRARY = sys.argv[-1]

INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


KINDS = {"f": (FLOAT, 32), "i": (INT, 32), "b": (INT, 8), "B": (UINT, 8), "H": (BFLOAT, 16)}


def ints(values):
    return (ctypes.c_int64 * len(values))(*values)


def describe(data, shape, /, **changes):
    """An `array.array` with a shape, as the library takes it."""
    code, bits = KINDS[data.typecode]
    fields = {
        "data": data.buffer_info()[0], "device_type": 1, "device_id": 0, "ndim": len(shape), "code": code,
        "bits": bits, "lanes": 1, "shape": ints(shape), "strides": None, "byte_offset": 0,
    }  # fmt: skip
    return Array(**{**fields, **changes})


def call(name, *arrays, count=None):
    """The status and the argument at fault."""
    library = ctypes.CDLL(LIBRARY)
    result = library[f"{name}_checked"]((Array * len(arrays))(*arrays), len(arrays) if count is None else count)
    return [result & 255, result >> 8]


def metadata(name):
    return json.loads(
        ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(LIBRARY), f"{name}_metadata")))
    )
