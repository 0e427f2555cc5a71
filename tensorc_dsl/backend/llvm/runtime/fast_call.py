"""The fast path from Python into a kernel: a function of machine code that Python calls as a built-in function.

Checking three arrays one attribute at a time takes 10 µs, longer than a small kernel runs. The fields of NumPy's arrays are
part of its C interface, so machine code may read them; it takes 0.3 µs. It only accepts or refuses: refused calls take the
slow path, which reports the reason.
"""

from __future__ import annotations

import ctypes
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.runtime.threads import runtime, runtime_text
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.target import Target

MOST = 64
"""The largest number of a kernel's arguments that the function supports."""

_FASTCALL = 0x80
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
"""Python's flag of functions that take an array of arguments, and NumPy's flags of arrays."""

Doorway = Callable[..., Array | None]
"""Takes all arrays in order. Returns the last output, or None if the call was refused and nothing was done."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requirements on an array, and the position of its address among the kernel's arguments."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    place: int
    output: bool


class _Param(ctypes.Structure):
    _fields_ = (
        ("descr", ctypes.c_void_p), ("rank", ctypes.c_int64), ("sizes", ctypes.c_void_p), ("flags", ctypes.c_int64),
        ("place", ctypes.c_int64), ("bytes", ctypes.c_int64), ("output", ctypes.c_int64),
    )  # fmt: skip


class _Table(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p), ("scratch", ctypes.c_void_p), ("busy", ctypes.c_int64), ("params", ctypes.c_int64),
        ("arguments", ctypes.c_int64), ("fixed", ctypes.c_void_p), ("wanted", ctypes.c_void_p), ("result", ctypes.c_int64),
    )  # fmt: skip


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _ArrayFields(ctypes.Structure):
    """CPython's header of an object and NumPy's `PyArrayObject_fields`."""

    _fields_ = (
        ("references", ctypes.c_int64), ("type", ctypes.c_void_p), ("data", ctypes.c_void_p), ("rank", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p),
        ("descr", ctypes.c_void_p), ("flags", ctypes.c_int),
    )  # fmt: skip


class _Address(int):
    """The address of a table. The memory of the table lives as long as the function that has this object as its `self`."""

    kept: tuple[object, ...]


_lock = threading.Lock()
_make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
_method: list[_MethodDef | None] = []


def doorway(kernel: int, scratch: Array, fixed: Sequence[int], wanted: Sequence[Wanted]) -> Doorway | None:
    """The function for a kernel at an address, with scratch memory for one call at a time.

    `fixed` has all arguments of the kernel, with any number for those of arrays; the caller keeps their memory alive.
    None if this Python's arrays have another layout, or there are too many arguments.
    """
    method = prepared()
    outputs = [n for n, w in enumerate(wanted) if w.output]
    if method is None or len(fixed) > MOST or len(wanted) > MOST or not outputs:
        return None
    sizes = [(ctypes.c_int64 * max(1, len(w.shape)))(*w.shape) for w in wanted]
    params = (_Param * len(wanted))(
        *(
            _Param(
                id(w.dtype), len(w.shape), ctypes.addressof(s), _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if w.output else 0),
                w.place, int(np.prod(w.shape, dtype=object)) * w.dtype.itemsize, w.output,
            )
            for w, s in zip(wanted, sizes, strict=True)
        )
    )  # fmt: skip
    values = (ctypes.c_void_p * len(fixed))(*fixed)
    table = _Table(
        kernel,
        scratch.ctypes.data,
        0,
        len(wanted),
        len(fixed),
        ctypes.addressof(values),
        ctypes.addressof(params),
        outputs[-1],
    )
    address = _Address(ctypes.addressof(table))
    address.kept = (table, params, values, sizes, wanted, scratch)
    return _make(ctypes.addressof(method), address, None)


def prepared() -> _MethodDef | None:
    """Python's description of the function, compiled on first use (some 10 ms); None if arrays have another layout."""
    with _lock:
        if not _method:
            _method.append(_load() if _as_expected() else None)
        return _method[0]


def _as_expected() -> bool:
    """Whether arrays have the memory layout that the function assumes."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    for shape, dtype in (((3, 5, 7), "f4"), ((2,), "i1")):
        a = np.zeros(shape, dtype)
        a.flags.writeable = dtype == "f4"
        found = _ArrayFields.from_address(id(a))
        if (
            (found.type, found.data, found.rank, found.descr)
            != (id(np.ndarray), a.ctypes.data, a.ndim, id(np.dtype(dtype)))
            or tuple(found.sizes[: a.ndim]) != a.shape
            or found.flags != a.flags.num
            or bool(found.flags & _WRITEABLE) != a.flags.writeable
        ):
            return False
    return True


def _load() -> _MethodDef:
    machine = Machine(Target(cpu=llvm.get_host_cpu_name(), features=""))
    text = runtime_text("doorway").replace("ARRAY_TYPE", str(id(np.ndarray)))
    library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
    library.export_symbol("tensorc_doorway")
    tracker = library.link(runtime().jit, "tensorc_doorway")
    # Python's function refers to this description and this code until the process ends.
    method = _MethodDef(b"kernel", int(tracker["tensorc_doorway"]), _FASTCALL, None)
    for forever in (tracker, method):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(forever))
    return method
