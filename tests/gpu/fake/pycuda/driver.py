"""The part of `pycuda.driver` that is used, with memory of the CPU: it checks what the driver would, and writes down calls.

A launch of three addresses multiplies matrices of f32, whose sizes are in FAKE_PRODUCT, `M,N,K`. FAKE_FAULT is a call and
what the driver says of it, `cuLaunchKernel: an illegal memory access was encountered`; FAKE_NO_GPU has `cuInit` fail.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading

import numpy as np


class Error(Exception):
    pass


class MemoryError(Error):  # noqa: A001 (PyCUDA's name)
    pass


class LogicError(Error):
    pass


class RuntimeError(Error):  # noqa: A001 (PyCUDA's name)
    pass


class LaunchError(Error):
    pass


CALLS: list[tuple[object, ...]] = []
CURRENT: list[Context] = []
MAIN = threading.current_thread()
WARNED: list[str] = []
"""What PyCUDA warns of."""
ALLOCATED: dict[int, int] = {}
"""The bytes of each allocation, by its address."""

CLOCK = [0.0]
"""Milliseconds."""
_LOST: list[str] = []


def _call(name: str, *facts: object) -> None:
    """Write down a call of the driver's function, which fails if it is to."""
    CALLS.append((name, *facts))
    if name not in ("cuInit", "cuMemFree", "cuCtxPopCurrent") and not CURRENT:
        raise LogicError(f"{name} failed: invalid device context")
    if _LOST:
        raise LogicError(f"{name} failed: {_LOST[0]}")
    told, _, said = os.environ.get("FAKE_FAULT", "").partition(": ")
    if told == name:
        if "illegal" in said or "launch failure" in said:
            _LOST.append(said)
        kind = MemoryError if said == "out of memory" else LaunchError if "launch" in said else LogicError
        raise kind(f"{name} failed: {said}")


def init(flags: int = 0) -> None:
    _call("cuInit")
    if os.environ.get("FAKE_NO_GPU"):
        raise RuntimeError("cuInit failed: no CUDA-capable device is detected")


def get_driver_version() -> int:
    return 12080


class device_attribute:  # noqa: N801 (PyCUDA's name)
    MULTIPROCESSOR_COUNT = "132"
    MAX_THREADS_PER_BLOCK = "1024"
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = "232448"
    MAX_REGISTERS_PER_BLOCK = "65536"
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = "233472"
    L2_CACHE_SIZE = "4194304"
    CLOCK_RATE = "1980000"
    MEMORY_CLOCK_RATE = "3201000"
    GLOBAL_MEMORY_BUS_WIDTH = "6144"


class function_attribute:  # noqa: N801 (PyCUDA's name)
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class Device:
    def __init__(self, number: int) -> None:
        assert number == 0

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "Fake H200"

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def total_memory(self) -> int:
        return 140 << 30

    def get_attribute(self, attribute: str) -> int:
        return int(attribute)

    def retain_primary_context(self) -> Context:
        return Context()


class Context:
    def push(self) -> None:
        CURRENT.append(self)

    @staticmethod
    def pop() -> None:
        CURRENT.pop()

    @staticmethod
    def synchronize() -> None:
        _call("cuCtxSynchronize")


class DeviceAllocation:
    def __init__(self, size: int) -> None:
        assert size > 0, "the driver allocates no empty memory"
        _call("cuMemAlloc", size)
        self._data = ctypes.create_string_buffer(size + 512)
        self._address = -(-ctypes.addressof(self._data) // 256) * 256
        ctypes.memset(self._address, 0xEE, size)
        ALLOCATED[self._address] = size

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        """As PyCUDA, which frees in the thread that made the context, or where it is current."""
        if getattr(self, "_address", 0) not in ALLOCATED:
            return
        if threading.current_thread() is not MAIN and not CURRENT:
            WARNED.append("a clean-up operation failed")
            return
        del ALLOCATED[self._address]
        CALLS.append(("cuMemFree",))

    __del__ = free


def mem_alloc(size: int) -> DeviceAllocation:
    return DeviceAllocation(size)


def _inside(address: int, size: int) -> None:
    if not any(a <= address and address + size <= a + n for a, n in ALLOCATED.items()):
        raise LogicError("an illegal memory access was encountered")


def memcpy_htod(dest: DeviceAllocation, src: np.ndarray) -> None:
    _call("cuMemcpyHtoD", src.nbytes)
    _inside(int(dest), src.nbytes)
    ctypes.memmove(int(dest), src.ctypes.data, src.nbytes)


def memcpy_dtoh(dest: np.ndarray, src: DeviceAllocation) -> None:
    assert dest.flags.c_contiguous
    _call("cuMemcpyDtoH", dest.nbytes)
    _inside(int(src), dest.nbytes)
    ctypes.memmove(dest.ctypes.data, int(src), dest.nbytes)


def memcpy_dtod(dest: int, src: int, size: int) -> None:
    _call("cuMemcpyDtoD", size)
    _inside(dest, size)
    _inside(src, size)
    ctypes.memmove(dest, src, size)


def memcpy_dtod_async(dest: DeviceAllocation, src: DeviceAllocation, size: int, stream: Stream | None = None) -> None:
    CLOCK[0] += size / 4e12 * 1e3
    memcpy_dtod(int(dest), int(src), size)


def memset_d8_async(dest: DeviceAllocation, data: int, count: int, stream: Stream | None = None) -> None:
    _call("cuMemsetD8Async", data, count)
    _inside(int(dest), count)
    ctypes.memset(int(dest), data, count)


class Stream:
    def __init__(self, flags: int = 0) -> None:
        _call("cuStreamCreate", flags)
        self.handle = 4096

    def wait_for_event(self, event: Event) -> None:
        assert event._time is not None
        _call("cuStreamWaitEvent")


class Event:
    def __init__(self, flags: int = 0) -> None:
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        _call("cuEventRecord")
        self._time = CLOCK[0]

    def time_since(self, start: Event) -> float:
        """Milliseconds."""
        assert self._time is not None and start._time is not None
        return self._time - start._time


def module_from_buffer(buffer: bytes, options: tuple[object, ...] = (), message_handler: object = None) -> Module:
    _call("cuModuleLoadDataEx", bytes(buffer))
    assert buffer.endswith(b"\0"), "PTX is a text that ends with 0"
    return Module(bytes(buffer))


class Module:
    def __init__(self, ptx: bytes) -> None:
        self._ptx = ptx

    def get_function(self, name: str) -> Function:
        _call("cuModuleGetFunction", name)
        if f".entry {name}(".encode() not in self._ptx:
            raise LogicError("cuModuleGetFunction failed: named symbol not found")
        return Function(name)


class Function:
    def __init__(self, name: str) -> None:
        self._name = name
        self._most_shared = 48 << 10
        self._format = ""

    def set_attribute(self, attribute: int, value: int) -> None:
        _call("cuFuncSetAttribute", self._name, attribute, value)
        assert attribute == function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        if value > 232448:
            raise LogicError("cuFuncSetAttribute failed: invalid argument")
        self._most_shared = value

    def prepare(self, arg_types: str) -> Function:
        self._format = "".join(arg_types)
        return self

    def prepared_async_call(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: Stream | None,
        *args: int,
        shared_size: int = 0,
    ) -> None:
        packed = struct.pack(self._format, *args)
        handle = 0 if stream is None else stream.handle
        _call("cuLaunchKernel", self._name, grid, block, handle, packed, shared_size)
        if shared_size > self._most_shared or min(*grid, *block) < 1:
            raise LogicError("cuLaunchKernel failed: invalid argument")
        if block[0] * block[1] * block[2] > 1024:
            raise LaunchError("cuLaunchKernel failed: too many resources requested for launch")
        CLOCK[0] += 1e-2 + 1e-7 * grid[0] * block[0]
        if self._format == "PPP" and "FAKE_PRODUCT" in os.environ:
            m, n, k = map(int, os.environ["FAKE_PRODUCT"].split(","))
            a, b, c = (_f32(address, shape) for address, shape in zip(args, ((m, k), (k, n), (m, n)), strict=True))
            c[...] = a @ b


def _f32(address: int, shape: tuple[int, int]) -> np.ndarray:
    _inside(address, 4 * shape[0] * shape[1])
    return np.ctypeslib.as_array((ctypes.c_float * (shape[0] * shape[1])).from_address(address)).reshape(shape)
