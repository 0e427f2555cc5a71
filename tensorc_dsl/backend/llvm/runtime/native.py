"""Native code of this process: the thread pool and timing, to which kernels are linked, and the function by which Python
calls a kernel. Each is compiled once, and never unloaded."""

from __future__ import annotations

import ctypes
import sysconfig
import threading
from collections.abc import Callable, Sequence
from importlib import resources
from statistics import median
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.target import Target, architecture_of

# The thread pool's code, for the target of the kernels.


_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def runtime_text(name: str) -> str:
    """The text of one of this folder's files of LLVM IR."""
    return resources.files("tensorc_dsl.backend.llvm.runtime").joinpath(f"{name}.ll").read_text("utf-8")


def pool_text(triple: str) -> str:
    """The LLVM IR of the pool for a triple such as `aarch64-unknown-linux-gnu`; it defines `PARALLEL_FOR`."""
    declaration, pause = _PAUSES.get(architecture_of(triple), ("", ""))
    # The number of the clock depends on the system: Linux or macOS.
    text = runtime_text("pool").replace("CLOCK_MONOTONIC", "1" if "linux" in triple else "6")
    text += runtime_text("placement_linux" if "linux" in triple else "placement_none")
    return f"{text}\n{declaration}\ndefine internal void @pause() alwaysinline {{\n  {pause}\n  ret void\n}}\n"


@frozen
class Runtime:
    """The addresses of the runtime's functions, and the JIT in which kernels are linked."""

    jit: llvm.LLJIT
    parallel_for: int
    time: int
    empty_loop: int
    run_calls: int
    copy: int
    time_calls: int


_runtime_lock = threading.Lock()
_loaded: list[Runtime] = []


def runtime() -> Runtime:
    """The runtime of this process, compiled on first use (some 20 ms)."""
    with _runtime_lock:
        if not _loaded:
            _loaded.append(_load_runtime())
        return _loaded[0]


def _load_runtime() -> Runtime:
    machine = Machine(Target(cpu=llvm.get_host_cpu_name(), features=""))
    jit = machine.jit()
    text = pool_text(machine.triple) + runtime_text("calls") + runtime_text("timing")
    names = (
        PARALLEL_FOR, "tensorc_time", "tensorc_empty_loop", "tensorc_run_calls", "tensorc_copy", "tensorc_time_calls",
    )  # fmt: skip
    library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
    for name in names:
        library.export_symbol(name)
    tracker = library.link(jit, "tensorc_runtime")
    addresses = [int(tracker[name]) for name in names]
    # Worker threads run this code until the process ends, so it must not be freed at interpreter shutdown.
    for forever in (jit, tracker):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(forever))
    return Runtime(jit, *addresses)


def fork_join_seconds(threads: int, repeats: int = 2000) -> float:
    """Seconds to start and join an empty parallel loop: the median of `repeats` in a row."""
    rt = runtime()
    count = ctypes.c_int64(threads)
    return median(time_native(rt.empty_loop, ctypes.addressof(count), 0, repeats))


def time_native(
    kernel: int, arguments: int, workspace: int, repeats: int, *, stride: int = 0, count: int = 1, first: int = 0
) -> list[float]:
    """Seconds of each of `repeats` calls in a row, measured in native code.

    The calls take `count` blocks of `stride` bytes of arguments in turn, the block `first` first.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    out = (ctypes.c_int64 * repeats)()
    numbers = [ctypes.c_int64] * 3
    timer = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_void_p, *numbers)(runtime().time)
    timer(kernel, arguments, workspace or None, repeats, ctypes.addressof(out), stride, count, first)
    return [ns * 1e-9 for ns in out]


# The fast path from Python into a kernel: a function of machine code that Python calls as a built-in function.
#
# Checking three arrays one attribute at a time takes 10 µs, longer than a small kernel runs. The fields of NumPy's arrays are
# part of its C interface, so machine code may read them; it takes 0.3 µs. It only accepts or refuses: refused calls take the
# slow path, which reports the reason.


MOST = 512
"""The largest number of arguments that the function supports, of a kernel or of a model with states."""

_FASTCALL = 0x80
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
"""Python's flag of functions that take an array of arguments, and NumPy's flags of arrays."""

Doorway = Callable[..., Array | None]
"""Takes all arrays in order. Returns the last output, or None if the call was refused and nothing was done."""


@frozen
class Wanted:
    """The requirements on an array, and the position of its address among the kernel's arguments.

    A size is the number of an open one, or -1, and what is added to it.
    """

    dtype: np.dtype[Any]
    shape: tuple[tuple[int, int], ...]
    place: int
    output: bool


@frozen
class Opened:
    """The open sizes of a kernel: the place of the first one among the arguments, the least and the largest of each, and the
    address of the function that tells the bytes of scratch memory for the arguments."""

    first: int
    limits: tuple[tuple[int, int], ...]
    workspace: int


class _Size(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int64), ("added", ctypes.c_int64))


class _Param(ctypes.Structure):
    _fields_ = (
        ("descr", ctypes.c_void_p), ("rank", ctypes.c_int64), ("sizes", ctypes.c_void_p), ("flags", ctypes.c_int64),
        ("place", ctypes.c_int64), ("bytes", ctypes.c_int64), ("output", ctypes.c_int64),
    )  # fmt: skip


class _Table(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p), ("scratch", ctypes.c_void_p), ("busy", ctypes.c_int64), ("params", ctypes.c_int64),
        ("arguments", ctypes.c_int64), ("fixed", ctypes.c_void_p), ("wanted", ctypes.c_void_p), ("result", ctypes.c_int64),
        ("opens", ctypes.c_int64), ("first", ctypes.c_int64), ("limits", ctypes.c_void_p), ("workspace", ctypes.c_void_p),
        ("there", ctypes.c_int64),
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


def doorway(
    kernel: int, scratch: Array, fixed: Sequence[int], wanted: Sequence[Wanted], opened: Opened | None = None
) -> Doorway | None:
    """The function for a kernel at an address, with scratch memory for one call at a time.

    `fixed` has all arguments of the kernel, with any number for those of arrays, and -1 for open sizes that arrays tell; the
    caller keeps their memory alive. Calls that need more scratch memory are refused. None if this Python's arrays have
    another layout, or there are too many arguments.
    """
    method = prepared()
    outputs = [n for n, w in enumerate(wanted) if w.output]
    if method is None or len(fixed) > MOST or len(wanted) > MOST or not outputs:
        return None
    sizes = [(_Size * max(1, len(w.shape)))(*w.shape) for w in wanted]
    limits = (_Size * (len(opened.limits) if opened else 0))(*(opened.limits if opened else ()))
    params = (_Param * len(wanted))(
        *(
            _Param(
                id(w.dtype), len(w.shape), ctypes.addressof(s), _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if w.output else 0),
                w.place, w.dtype.itemsize, w.output,
            )
            for w, s in zip(wanted, sizes, strict=True)
        )
    )  # fmt: skip
    values = (ctypes.c_int64 * len(fixed))(*fixed)
    table = _Table(
        kernel,
        scratch.ctypes.data,
        0,
        len(wanted),
        len(fixed),
        ctypes.addressof(values),
        ctypes.addressof(params),
        outputs[-1],
        len(limits),
        opened.first if opened else 0,
        ctypes.addressof(limits),
        opened.workspace if opened else None,
        scratch.nbytes,
    )
    address = _Address(ctypes.addressof(table))
    address.kept = (table, params, values, sizes, limits, wanted, scratch)
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
