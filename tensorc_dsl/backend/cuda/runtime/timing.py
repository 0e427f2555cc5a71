"""Times kernels by events of the GPU, with its cache flushed before each of them."""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.backend.cuda.runtime.driver import Device

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
        flushed = driver.mem_alloc(size)
        pairs = [(driver.Event(), driver.Event()) for _ in range(repeats)]
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
        source, target = driver.mem_alloc(size), driver.mem_alloc(size)
        driver.memset_d8_async(source, 0, size)
        pairs = [(driver.Event(), driver.Event()) for _ in range(_COPIES)]
        for start, end in pairs:
            start.record()
            for _ in range(_ROUNDS):
                driver.memcpy_dtod_async(target, source, size)
            end.record()
        driver.Context.synchronize()
        return 2 * size * _ROUNDS / min(end.time_since(start) * 1e-3 for start, end in pairs)


_COPIES, _ROUNDS = 8, 8
