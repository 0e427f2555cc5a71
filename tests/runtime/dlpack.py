"""Exporters of DLPack, built field by field, so that each field can be wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

CPU, CUDA = 1, 2
INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)
READ_ONLY = 1


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int32), ("dtype", _Type),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Unversioned(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_kept: list[object] = []
"""Consumers read an exporter's fields until they are done: these are never freed."""


class Exporter:
    """Exports `memory` as it is told to, true or not; `codes` are the kind, bits and lanes of an element."""

    def __init__(
        self,
        memory: np.ndarray[Any, Any],
        *,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        codes: tuple[int, int, int] = (FLOAT, 32, 1),
        device: int = CPU,
        byte_offset: int = 0,
        major: int = 1,
        flags: int = 0,
        versioned: bool = True,
        name: bytes | None = None,
        null: bool = False,
    ) -> None:
        extents: Sequence[int] = memory.shape if shape is None else shape
        sizes = (ctypes.c_int64 * max(1, len(extents)))(*extents)
        steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = _Tensor(
            None if null else memory.ctypes.data, _Device(device, 0), len(extents), _Type(*codes), ctypes.addressof(sizes),
            None if steps is None else ctypes.addressof(steps), byte_offset,
        )  # fmt: skip
        managed = _Versioned(major, 0, None, None, flags, tensor) if versioned else _Unversioned(tensor)
        _kept.append((memory, sizes, steps, managed))
        self._device = device
        self._capsule = _new(
            ctypes.addressof(managed), name or (b"dltensor_versioned" if versioned else b"dltensor"), None
        )

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0
