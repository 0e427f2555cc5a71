"""The GPU of this machine: found through PyCUDA, or what is missing for that; and what an error of the driver means."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache
from threading import Lock
from typing import Any

from tensorc_dsl.backend.cuda.codegen.ptx import TRIPLE
from tensorc_dsl.backend.cuda.lower.kernels import ALIGNMENT
from tensorc_dsl.backend.protocol import KernelFault, Processor
from tensorc_dsl.base.frozen import frozen


@frozen
class Missing:
    """What this machine lacks for running kernels on a GPU, as a clause, and the repair."""

    what: str
    repair: str


_HARMLESS = ("too many resources requested for launch", "invalid argument", "out of memory", "kernel image", "PTX")
"""Words of the driver about launches, allocations and code that it refuses. After any other error the context is lost."""


# Memory that is taken for one call and is there for the next: to free it, the driver would wait for all kernels.


_NO_TIMING = 2

_PAGE = 1 << 20
"""The bytes of which large pieces are multiples; smaller ones have a power of two."""


class Pool:
    """Pieces of a GPU's memory for what kernels keep between them. Safe to use from several threads at once."""

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[Any, Any]]] = {}
        self._lock = Lock()

    @contextmanager
    def taken(self, device: Device, sizes: Sequence[int], stream: Any) -> Generator[list[int]]:
        """The addresses of pieces of so many bytes, for what is queued on a stream until the end. Whoever takes a piece next
        waits on the GPU until that is done. The context is current."""
        pieces = [self._take(device, _rounded(n), stream) for n in sizes]
        yield [int(p) for _, p in pieces]
        if pieces:  # after an error of the GPU, none is taken again
            done = device.driver.Event(_NO_TIMING)
            done.record(stream)
            with self._lock:
                for size, piece in pieces:
                    self._free.setdefault(size, []).append((piece, done))

    def _take(self, device: Device, size: int, stream: Any) -> tuple[int, Any]:
        with self._lock:
            found = self._free.get(size)
            piece, done = found.pop(0) if found else (None, None)  # in order, so that a second call has the same
        if piece is None:
            return size, device.allocate(size)
        if stream is not None:  # the legacy stream waits for all of ours
            stream.wait_for_event(done)
        return size, piece

    def drain(self) -> bool:
        """Free what nobody has taken; whether there was anything. The context is current."""
        with self._lock:
            every = [piece for pieces in self._free.values() for piece, _ in pieces]
            self._free.clear()
        for piece in every:
            piece.free()
        return bool(every)


def _rounded(size: int) -> int:
    return 1 << max(size - 1, 1).bit_length() if size < _PAGE else -(-size // _PAGE) * _PAGE


@frozen
class Device:
    """A GPU: the module `pycuda.driver`, its device, and its primary context, which torch and CuPy use too."""

    driver: Any
    handle: Any
    context: Any
    pool: Pool = field(default_factory=Pool, compare=False)
    """Memory for what kernels keep between them."""

    @property
    def name(self) -> str:
        return str(self.handle.name())

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0) for `sm_90`."""
        major, minor = self.handle.compute_capability()
        return int(major), int(minor)

    @property
    def described(self) -> str:
        """Its name, then what distinguishes it from others of that name: clocks, memory, and the driver, which compiles."""
        version = int(self.driver.get_driver_version())
        facts = (
            f"{self.attribute('CLOCK_RATE') // 1000} MHz",
            f"memory of {int(self.handle.total_memory()) >> 20} MiB at {self.attribute('MEMORY_CLOCK_RATE') // 1000} MHz",
            f"{self.attribute('GLOBAL_MEMORY_BUS_WIDTH')} bits wide",
            f"driver {version // 1000}.{version % 1000 // 10}",
        )
        return ", ".join((self.name, *facts))

    def attribute(self, name: str) -> int:
        """A fact by CUDA's name, `CU_DEVICE_ATTRIBUTE_…`."""
        return int(self.handle.get_attribute(getattr(self.driver.device_attribute, name)))

    @contextmanager
    def current(self) -> Generator[None]:
        """The context is current in this thread, and errors of the driver are KernelFault."""
        with _faults(self.driver):
            self.context.push()
            try:
                yield
            finally:
                self.driver.Context.pop()

    def allocate(self, size: int) -> Any:
        """Memory of so many bytes, which `free` frees. Raises KernelFault if the GPU has too little."""
        with self.current():
            try:
                return self.driver.mem_alloc(size)
            except self.driver.MemoryError:
                if not self.pool.drain():
                    raise
                return self.driver.mem_alloc(size)

    def free(self, allocation: Any) -> None:
        """Free memory, in whichever thread this is: PyCUDA frees only where the context is current, and leaks it elsewhere.
        The memory of a context that is lost is gone."""
        with suppress(KernelFault), self.current():
            allocation.free()

    @contextmanager
    def memory(self, size: int) -> Generator[Any]:
        """Memory that is freed at the end."""
        found = self.allocate(size)
        try:
            yield found
        finally:
            self.free(found)


@contextmanager
def _faults(driver: Any) -> Generator[None]:
    try:
        yield
    except driver.Error as e:
        said = str(e).strip()
        raise KernelFault(f"the GPU reports: {said}", lost=not any(words in said for words in _HARMLESS)) from e


@cache
def find() -> Device | Missing:
    """The first GPU that the driver shows, which `CUDA_VISIBLE_DEVICES` chooses; else the first thing that is missing."""
    try:
        driver: Any = importlib.import_module("pycuda.driver")
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != "pycuda":
            return Missing(f"PyCUDA cannot be loaded ({e})", "install PyCUDA again")
        return Missing(
            "PyCUDA is not installed",
            "install tensorc-dsl with its extra `cuda`, which compiles PyCUDA with the CUDA toolkit",
        )
    except ImportError as e:
        if "libcuda.so" in str(e):
            return Missing(f"NVIDIA's driver is not there ({e})", "install the driver, or let a container see it")
        return Missing(
            f"PyCUDA cannot be loaded ({e})", "build PyCUDA again, with this Python and the CUDA toolkit that is here"
        )
    try:
        driver.init()
        if not driver.Device.count():
            return Missing("the driver shows no GPU", _SHOW)
        handle = driver.Device(0)
        return Device(driver, handle, handle.retain_primary_context())
    except driver.Error as e:
        return Missing(f"the driver shows no GPU ({str(e).strip()})", _SHOW)


_SHOW = "see what `nvidia-smi` lists, and what `CUDA_VISIBLE_DEVICES` hides"


# The facts of the GPU of this machine, as a target has them.


_FACTS = {
    "cores": "MULTIPROCESSOR_COUNT",
    "threads": "MAX_THREADS_PER_BLOCK",
    "shared_memory": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "registers": "MAX_REGISTERS_PER_BLOCK",
    "l1": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "l2": "L2_CACHE_SIZE",
}
"""The facts of a target, and CUDA's names of them. Shared memory and the first-level cache are one memory, of which CUDA
reports only the part that may be shared."""


def number_of(cpu: str) -> int:
    """The compute capability in LLVM's name of a GPU: 90 for `sm_90` and `sm_90a`."""
    return int("".join(filter(str.isdigit, cpu)))


def processor_of(device: Device, known: Sequence[str]) -> Processor:
    """The GPU as the newest of the `known` ones, the oldest first, whose code it runs.

    Code for `sm_90a` runs on GPUs of this very capability. The features are the names of all whose code it runs.
    """
    major, minor = device.capability
    own = 10 * major + minor
    runs = [cpu for cpu in known if (number_of(cpu) <= own if cpu[-1].isdigit() else cpu == f"sm_{own}a")]
    facts: dict[str, int | str] = {name: device.attribute(theirs) for name, theirs in _FACTS.items()}
    facts["device"] = device.described
    name = runs[-1] if runs else f"sm_{major}{minor}"
    return Processor(name, ",".join(f"+{cpu}" for cpu in runs), 8 * ALIGNMENT, TRIPLE, facts)


# The stream of the caller's library: kernels run after what it has queued, and before what it queues next.
#
# PyCUDA cannot launch on a stream of another library. Its legacy stream orders itself with that of others; for any other
# stream of theirs, kernels run on a stream of ours, and events of the driver order the two.


LEGACY = (0, 1)
"""The handles of the legacy stream, CUDA's default."""


def current_stream(values: Iterable[Any]) -> int:
    """The handle of the stream that the library of these arrays works on now: torch's or CuPy's current one, or what
    `__cuda_array_interface__` names; the legacy stream if none says."""
    for value in values:
        package = type(value).__module__.partition(".")[0]
        library: Any = sys.modules.get(package)
        if package == "torch" and library is not None:
            return int(library.cuda.current_stream(value.device).cuda_stream)
        if package == "cupy" and library is not None:
            return int(library.cuda.get_current_stream().ptr)
        named = getattr(value, "__cuda_array_interface__", {}).get("stream")
        if named:
            return int(named)
    return LEGACY[0]


@contextmanager
def ordered_stream(device: Device, theirs: int) -> Generator[Any]:
    """PyCUDA's stream for launches that run in the order of a stream with that handle; None is the legacy stream."""
    if theirs in LEGACY:
        yield None
        return
    ours = device.driver.Stream()
    _wait(int(ours.handle), theirs)
    yield ours
    _wait(theirs, int(ours.handle))


@cache
def library() -> Any:
    """The driver's own functions, for what PyCUDA has none. Its library is loaded already."""
    return ctypes.CDLL("libcuda.so.1")


def _wait(stream: int, other: int) -> None:
    """What is queued on a stream from now on waits for what is on the other."""
    driver, event = library(), ctypes.c_void_p()
    _require(driver.cuEventCreate(ctypes.byref(event), _NO_TIMING), "cuEventCreate")
    try:
        _require(driver.cuEventRecord(event, ctypes.c_void_p(other)), "cuEventRecord")
        _require(driver.cuStreamWaitEvent(ctypes.c_void_p(stream), event, 0), "cuStreamWaitEvent")
    finally:
        driver.cuEventDestroy_v2(event)  # the driver keeps it until the wait is over


def _require(result: int, function: str) -> None:
    if result:
        raise KernelFault(f"the GPU reports: {function} failed with error {result}", lost=True)


# Times kernels by events of the GPU, with its cache flushed before each of them.


FLUSHES = 2
"""The memory that a flush writes, in sizes of the second-level cache."""


def time_launches(device: Device, launch: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of each of `repeats` launches in a row on the legacy stream, which is otherwise idle.

    The launches are queued together, so that no launch waits for the CPU. Before each the cache is overwritten, so that
    all find it in the same state: without their data.
    """
    driver = device.driver
    with device.current():
        size = FLUSHES * max(device.attribute("L2_CACHE_SIZE"), 1 << 20)
        pairs = [(driver.Event(), driver.Event()) for _ in range(repeats)]
        with device.memory(size) as flushed:
            for start, end in pairs:
                driver.memset_d8_async(flushed, 0, size)
                start.record()
                launch()
                end.record()
            driver.Context.synchronize()
        return [end.time_since(start) * 1e-3 for start, end in pairs]


def copy_rate(device: Device) -> float:
    """Bytes/s of copying memory that fits into the cache, read and written ones counted: no kernel moves data faster."""
    driver = device.driver
    with device.current():
        size = max(device.attribute("L2_CACHE_SIZE") // 4, 1 << 20)
        pairs = [(driver.Event(), driver.Event()) for _ in range(_COPIES)]
        with device.memory(size) as source, device.memory(size) as target:
            driver.memset_d8_async(source, 0, size)
            for start, end in pairs:
                start.record()
                for _ in range(_ROUNDS):
                    driver.memcpy_dtod_async(target, source, size)
                end.record()
            driver.Context.synchronize()
        return 2 * size * _ROUNDS / min(end.time_since(start) * 1e-3 for start, end in pairs)


_COPIES, _ROUNDS = 8, 8
