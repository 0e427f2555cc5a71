"""The GPU of this machine: found through PyCUDA, or what is missing for that; and what an error of the driver means."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensorc_dsl.backend.protocol import KernelFault


@dataclass(frozen=True, slots=True)
class Missing:
    """What this machine lacks for running kernels on a GPU, as a clause, and the repair."""

    what: str
    repair: str


_HARMLESS = ("too many resources requested for launch", "invalid argument", "out of memory", "kernel image", "PTX")
"""Words of the driver about launches, allocations and code that it refuses. After any other error the context is lost."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: the module `pycuda.driver`, its device, and its primary context, which torch and CuPy use too."""

    driver: Any
    handle: Any
    context: Any

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
