"""DLPack's capsules, read and made: NumPy reads and makes only those of the CPU's memory.

The layout is that of `DLManagedTensor`, which every version of DLPack has; its fields stand where the C header has them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

CUDA, CUDA_MANAGED = 2, 13
"""Device types whose memory GPUs of NVIDIA read: their own, and managed memory."""

_NAME = b"dltensor"


@dataclass(frozen=True, slots=True)
class Tensor:
    """The array in a capsule. Strides are in elements, None if it is dense; `element` is DLPack's kind, and bits."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    element: tuple[int, int]


class _Managed(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def tensor_in(capsule: Any) -> Tensor:
    """The array in an unconsumed capsule, which keeps its memory. Raises ValueError for another object."""
    if not _valid(id(capsule), _NAME):
        raise ValueError("it gives no `dltensor` capsule")
    t = _Managed.from_address(_pointer(id(capsule), _NAME))
    if t.lanes != 1:
        raise ValueError(f"its elements are vectors of {t.lanes}")
    shape, strides = tuple(t.shape[: t.rank]), tuple(t.strides[: t.rank]) if t.strides else None
    return Tensor((t.data or 0) + t.byte_offset, shape, strides, (t.code, t.bits))


def capsule_of(tensor: Tensor, owner: object, device: int = CUDA) -> Any:
    """A capsule of an array on a device, the first of its type. The owner lives until the consumer deletes the array."""
    rank = len(tensor.shape)
    shape = (ctypes.c_int64 * max(1, rank))(*tensor.shape)
    code, bits = tensor.element
    managed = _Managed(
        tensor.address, device, 0, rank, code, bits, 1, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0, None,
        ctypes.cast(_delete, ctypes.c_void_p),
    )  # fmt: skip
    address = ctypes.addressof(managed)
    _kept[address] = (managed, shape, owner)
    return _new(address, _NAME, ctypes.cast(_drop, ctypes.c_void_p))


_kept: dict[int, tuple[object, ...]] = {}
"""What the consumers of capsules still use, by the address of the struct."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    """DLPack's deleter, which the consumer calls."""
    _kept.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    """The destructor of a capsule: the consumer renames a capsule that it has taken."""
    if _valid(capsule, _NAME):
        _kept.pop(_pointer(capsule, _NAME), None)
