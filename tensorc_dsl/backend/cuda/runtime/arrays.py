"""Arrays on the GPU: those of other libraries, by DLPack or `__cuda_array_interface__`, and new ones, which speak both."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.backend.cuda.lower.kernels import ALIGNMENT
from tensorc_dsl.backend.cuda.runtime.driver import Device
from tensorc_dsl.backend.memory import MOST_BYTES, out_of_memory
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, dlpack_code, stored_dtype
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.sizes import dense_strides, elements_spanned
from tensorc_dsl.lower.flat import Param

# DLPack's capsules, read and made: NumPy reads and makes only those of the CPU's memory.
#
# The layout is that of `DLManagedTensor`, which every version of DLPack has; its fields stand where the C header has them.


CUDA, CUDA_MANAGED = 2, 13
"""Device types whose memory GPUs of NVIDIA read: their own, and managed memory."""

_NAME = b"dltensor"


@frozen
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


@frozen
class Memory:
    """An array on the GPU for a parameter. `owner` keeps its memory alive."""

    address: int
    shape: tuple[int, ...]
    nbytes: int
    owner: object
    strides: tuple[int, ...]
    """In bytes."""


def is_on_gpu(value: Any) -> bool:
    """Whether an object says that its data are in memory that GPUs read."""
    if isinstance(value, np.ndarray | np.generic | int | float):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (CUDA, CUDA_MANAGED)
    return hasattr(value, "__cuda_array_interface__")


def memory_of(p: Param, value: Any, stream: int) -> Memory:
    """The memory of an array on the GPU, for launches in the order of that stream.

    Raises ValueError if its type, its layout or its place is not what the kernel takes.
    """
    name = f"{p.name}: {type(value).__name__}"
    if hasattr(value, "__dlpack__"):
        return _by_dlpack(p, name, value, stream)
    return _by_interface(p, name, value.__cuda_array_interface__)


def _by_dlpack(p: Param, name: str, value: Any, stream: int) -> Memory:
    try:
        kind, number = value.__dlpack_device__()
        capsule = value.__dlpack__(stream=stream or 1)  # DLPack's 1 is the legacy stream; its 0 is ambiguous
        tensor = tensor_in(capsule)
    except Exception as e:
        raise ValueError(f"{name} cannot be read by DLPack: {type(e).__name__}: {e}") from e
    if int(kind) == CUDA and number != 0:
        raise ValueError(f"{name}: it is on GPU {number}; kernels run on GPU 0: pass a copy that is there")
    if tensor.element != _element(p.dtype):
        code, bits = tensor.element
        kinds = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}
        raise ValueError(f"{p.name}: expected {p.dtype}, got {kinds.get(code, f'kind {code} of ')}{bits}")
    size = p.dtype.bytes
    strides = None if tensor.strides is None else tuple(n * size for n in tensor.strides)
    return _memory(p, tensor.address, tensor.shape, strides, (value, capsule))


def _by_interface(p: Param, name: str, interface: dict[str, Any]) -> Memory:
    want = stored_dtype(p.dtype)
    found = np.dtype(interface["typestr"])
    if found != want:
        raise ValueError(f"{p.name}: expected {want} ({p.dtype}), got {found}")
    if interface.get("mask") is not None:
        raise ValueError(f"{name}: kernels know no masks")
    address, read_only = interface["data"]
    if read_only and p.output:
        raise ValueError(f"{p.name}: the array is read-only, but the kernel writes it")
    shape = tuple(map(int, interface["shape"]))
    return _memory(p, int(address or 0), shape, interface.get("strides"), interface)


def _memory(p: Param, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, owner: object) -> Memory:
    size = p.dtype.bytes
    if not p.strides:
        _require_dense(p, shape, strides)
        strides = None
    if strides is None:
        strides = tuple(n * size for n in dense_strides(shape))
    if address % ALIGNMENT:
        raise ValueError(
            f"{p.name}: the data is not aligned to {ALIGNMENT} bytes, as kernels for GPUs need; pass a copy"
        )
    nbytes = elements_spanned(shape, [n // size for n in strides]) * size
    if nbytes and not address:
        raise ValueError(f"{p.name}: the array has no memory")
    return Memory(address, shape, nbytes, owner, strides)


def _require_dense(p: Param, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    """Raises ValueError unless the strides, in bytes, are those of an array without gaps, the last dimension fastest."""
    if strides is None or 0 in shape:
        return
    step = p.dtype.bytes
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            raise ValueError(
                f"{p.name}: the array is not C-contiguous (strides {tuple(strides)}); pass a contiguous copy"
            )
        step *= n


def _element(t: DType) -> tuple[int, int]:
    """DLPack's kind and bits of an element."""
    return dlpack_code(t), 8 * t.bytes


class DeviceArray:
    """A dense array on the GPU, which other libraries read by DLPack or `__cuda_array_interface__`.

    What a kernel has written into it is there for all that the stream with the handle `stream` does next.
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: DType, stream: int = 0) -> None:
        """Uninitialised memory. Raises KernelFault if the GPU has too little, OutOfMemory if every machine has."""
        self.shape = shape
        self.nbytes = prod(shape) * dtype.bytes
        if self.nbytes > MOST_BYTES:
            raise out_of_memory("an array on the GPU", self.nbytes)
        self._dtype = dtype
        self._device = device
        self._stream = stream
        # A stand-in of some bytes where there are no elements: the driver allocates no empty memory.
        self._allocation = device.allocate(max(self.nbytes, ALIGNMENT))
        self.address = int(self._allocation)

    def __del__(self) -> None:
        if hasattr(self, "_allocation"):  # else there was no memory
            self._device.free(self._allocation)

    @property
    def memory(self) -> Memory:
        strides = tuple(n * self._dtype.bytes for n in dense_strides(self.shape))
        return Memory(self.address, self.shape, self.nbytes, self, strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = stored_dtype(self._dtype).str
        data = (self.address if self.nbytes else 0, False)
        return {
            "shape": self.shape, "typestr": typestr, "data": data, "version": 3, "strides": None, "stream": self._stream or 1
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, *, stream: int | None = None, **_wishes: Any) -> Any:
        """A capsule; data are complete for the stream with that handle, -1 if its user takes care of that."""
        if stream != -1 and (stream or 1) != (self._stream or 1):
            with self._device.current():
                self._device.driver.Context.synchronize()
        return capsule_of(Tensor(self.address, self.shape, None, _element(self._dtype)), self)

    def fill(self, a: Array) -> None:
        """Copy an array of the CPU into it."""
        if self.nbytes:
            with self._device.current():
                self._device.driver.memcpy_htod(self._allocation, np.ascontiguousarray(a))

    def copy_to(self, a: Array) -> None:
        """Copy it into a contiguous array of the CPU, once all kernels have ended."""
        with self._device.current():
            if self.nbytes:
                self._device.driver.memcpy_dtoh(a.reshape(-1).view(np.uint8), self._allocation)
            else:
                self._device.driver.Context.synchronize()

    def numpy(self) -> Array:
        """A copy on the CPU."""
        out = np.empty(self.shape, stored_dtype(self._dtype))
        self.copy_to(out)
        return out
