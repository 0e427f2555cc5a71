"""The stream of the caller's library: kernels run after what it has queued, and before what it queues next.

PyCUDA cannot launch on a stream of another library. Its legacy stream orders itself with that of others; for any other
stream of theirs, kernels run on a stream of ours, and events of the driver order the two.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

from tensorc_dsl.backend.cuda.runtime.driver import Device
from tensorc_dsl.backend.protocol import KernelFault

LEGACY = (0, 1)
"""The handles of the legacy stream, CUDA's default."""

_NO_TIMING = 2


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
def ordered(device: Device, theirs: int) -> Generator[Any]:
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
    """The driver's own functions."""
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
