"""What a launch costs besides the driver, and the memory that kernels keep between them. The GPU is that of `fake/`."""

from __future__ import annotations

import threading
import timeit
from typing import Any

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.runtime import kernel as room
from tensorc_dsl.backend.cuda.runtime.arrays import DeviceArray
from tensorc_dsl.backend.cuda.runtime.driver import Device, find
from tensorc_dsl.ir.dtypes import F16, F32
from tests.gpu.products import HEAD, calls, kernel_of


def the_gpu() -> Device:
    found = find()
    assert isinstance(found, Device)
    return found


def zeros(shape: tuple[int, ...], dtype: Any = F32) -> DeviceArray:
    return DeviceArray(the_gpu(), shape, dtype)


def test_the_memory_between_kernels_is_taken_again_and_not_freed(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To free it, the driver would wait for all kernels."""
    monkeypatch.delenv("FAKE_PRODUCT")
    kernel = kernel_of("softmax(M=3, N=64)")
    x, y = zeros((3, 64)), zeros((3, 64))
    kernel(x, y)
    before = len(calls(gpu, "cuMemAlloc")), len(calls(gpu, "cuMemFree"))
    packed = [c[4] for c in calls(gpu, "cuLaunchKernel")]
    kernel(x, y)
    assert (len(calls(gpu, "cuMemAlloc")), len(calls(gpu, "cuMemFree"))) == before
    assert [c[4] for c in calls(gpu, "cuLaunchKernel")] == 2 * packed, "the same addresses"


def test_two_calls_at_once_have_memory_of_their_own(gpu: Any) -> None:
    device = the_gpu()
    with device.current():
        stream = gpu.Stream()
        with device.pool.taken(device, [100, 3 << 20], stream) as first:
            with device.pool.taken(device, [100], stream) as second:
                assert second[0] not in first
            with device.pool.taken(device, [100], stream) as third:
                assert third == second
            assert calls(gpu, "cuStreamWaitEvent") == [()], "the GPU waits for who had it before"
        with device.pool.taken(device, [(3 << 20) - 1], None) as last:
            assert last == [first[1]], "the legacy stream waits by itself"
        assert device.pool.drain() and not device.pool.drain()


def test_where_memory_is_short_what_nobody_has_taken_is_freed(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = the_gpu()
    with device.current(), device.pool.taken(device, [1 << 20], None):
        pass
    failed: list[int] = []

    def alloc(size: int) -> Any:
        if not failed:
            failed.append(size)
            raise gpu.MemoryError("cuMemAlloc failed: out of memory")
        return gpu.DeviceAllocation(size)

    monkeypatch.setattr(gpu, "mem_alloc", alloc)
    before = len(calls(gpu, "cuMemFree"))
    device.free(device.allocate(64))
    assert failed == [64] and len(calls(gpu, "cuMemFree")) == before + 2


def test_memory_is_freed_in_any_thread(gpu: Any) -> None:
    """PyCUDA leaks what a thread frees whose current context is another one, and warns."""
    device = the_gpu()
    arrays = [DeviceArray(device, (64,), F32)]
    freed = threading.Thread(target=arrays.clear)
    freed.start()
    freed.join()
    assert calls(gpu, "cuMemFree") == [()] and not gpu.WARNED


@pytest.mark.parametrize("space", ["default", "hopper"])
def test_a_launch_is_prepared_once(gpu: Any, space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch asks of Python beside the driver is less than 5 µs, with tensor maps too, which are made once."""
    made: list[int] = []
    monkeypatch.setattr(room, "encoded", lambda *_: made.append(1) or bytes(128))
    monkeypatch.delenv("FAKE_PRODUCT")
    use = f"use std.gpu.{space}.{{{space}}}\n" if space not in HEAD else ""
    t = td.loads(
        f"{HEAD}{use}task t = matmul(M=128, N=128, K=128, T=f16, Acc=f32) with {space}\n", target="native-cuda"
    )["t"]
    found = ((trace, t.compile(trace).view("ptx").count(".param .align 64")) for trace in map(t.sample, range(20)))
    trace, maps = next((trace, n) for trace, n in found if n or space == "default")
    native: Any = t.replay(trace)._native
    for _ in range(3):
        native(zeros((128, 128), F16), zeros((128, 128), F16), zeros((128, 128)))
    # The memory of a call may be where that of the call before was, or elsewhere.
    launches = next(reversed(native._module._prepared.values()))
    assert len(made) == maps * len(native._module._prepared) and (maps > 0) == (space == "hopper")
    monkeypatch.setattr(gpu.Function, "prepared_async_call", lambda *_, **__: None)
    assert min(timeit.repeat(lambda: launches(None), number=100, repeat=20)) / 100 < 5e-6
