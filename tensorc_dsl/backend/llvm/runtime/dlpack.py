"""Exchanges arrays with other libraries by DLPack: imports them as NumPy arrays, and exports NumPy arrays.

NumPy imports the capsule of an exporter and refuses arrays that it does not support. This module adds two things. NumPy has
no bf16 and no floats of 8 bits: the element type in the capsule is replaced by that of the bit patterns, or the reverse,
before it is read. And NumPy takes a null address for a request for new memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from tensorc_dsl.ir.arrays import Array, dlpack_code, library_name
from tensorc_dsl.ir.dtypes import BF16, F8E4M3, F8E5M2, U8, U16, DType

_DEVICES = {2: "a CUDA device", 8: "a Metal device", 10: "a ROCm device"}
_HOST = (1, 3, 11, 13)
"""Device types whose memory the CPU can read: its own, pinned for CUDA or ROCm, or managed by CUDA."""

_BITS = {BF16: U16, F8E4M3: U8, F8E5M2: U8}
"""The types that NumPy has not, with those of their bits."""

_TYPE = {b"dltensor": 20, b"dltensor_versioned": 52}
"""The offset of the element type in the struct of each capsule name: 8 bits of kind, 8 of bits, 16 of lanes."""

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Recoded:
    """Exports the array of another exporter, with one type of elements called another one of the same width."""

    def __init__(self, exporter: Any, found: DType, called: DType) -> None:
        self._exporter = exporter
        self._found = dlpack_code(found), found.bits
        self._called = dlpack_code(called)

    def __dlpack_device__(self) -> Any:
        return self._exporter.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        capsule = self._exporter.__dlpack__(**wishes)
        for name, offset in _TYPE.items():
            if _is_valid(capsule, name):
                start = _pointer(capsule, name)
                # Another major version may have other offsets. NumPy reports that it does not know the version.
                known = name == b"dltensor" or ctypes.c_uint32.from_address(start).value == 1
                kind, bits = (ctypes.c_uint8.from_address(start + offset + n) for n in (0, 1))
                if known and (kind.value, bits.value) == self._found:
                    kind.value = self._called
        return capsule


def imported(name: str, value: Any, dtype: DType) -> Array:
    """The memory of an exporter as an array, for a parameter of that name and type. Raises ValueError if it is unreadable."""
    where = f"{name}: {type(value).__name__}"
    try:
        device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _HOST[0]
        a: Array | None = None
        if int(device) in _HOST:
            a = np.from_dlpack(_Recoded(value, dtype, _BITS[dtype]) if dtype in _BITS else value)
    except Exception as e:
        said = str(e).partition("\n")[0].rstrip(".")
        raise ValueError(f"{where} cannot be read by DLPack: {type(e).__name__}: {said}{_repair(value, dtype)}") from e
    if a is None:
        known = _DEVICES.get(int(device), f"device type {device}")
        raise ValueError(f"{where}: it is on {known}; kernels run on the CPU: pass a copy that is there")
    if a.size and a.flags.owndata:
        raise ValueError(f"{where}: it has no memory")
    return a


def _repair(value: object, dtype: DType) -> str:
    """What else can be passed for an array that its library does not export."""
    kind = type(value)
    if "Tracer" in kind.__name__ and kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return "; call kernels outside of jit, grad and vmap, or by jax.pure_callback"
    found, takes = "", library_name(dtype)
    with suppress(Exception):  # of an attribute of the library's
        found = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return (
        f"; it has elements {found}, the kernel takes {takes} ({dtype}): convert it first"
        if found not in ("", takes)
        else ""
    )


FromDLPack = Callable[[Any], Any]


def library_of(values: Iterable[Any]) -> FromDLPack | None:
    """`from_dlpack` of the single library of all of the arrays; None if that is NumPy, or there are several.

    A library is found by the package in which an array's type, or a base of it, is defined; else by the array's
    namespace.
    """
    found = {_library(v) for v in values}
    return found.pop() if len(found) == 1 else None


def _library(value: object) -> FromDLPack | None:
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return None
    for t in kind.__mro__:
        maker = getattr(sys.modules.get(t.__module__.partition(".")[0]), "from_dlpack", None)
        if callable(maker):
            return maker
    namespace = getattr(value, "__array_namespace__", None)
    return None if namespace is None else namespace().from_dlpack


def exported(name: str, a: Array, dtype: DType, make: FromDLPack) -> Any:
    """A new array as an array of another library over the same memory. Raises ValueError if the library refuses it."""
    try:
        return make(_Recoded(a, _BITS[dtype], dtype) if dtype in _BITS else a)
    except Exception as e:
        raise ValueError(
            f"{name}: the library of the inputs does not take {dtype} by DLPack: {type(e).__name__}: {e}; pass an output too"
        ) from e
