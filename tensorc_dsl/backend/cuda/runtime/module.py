"""Kernels of a program on the GPU, loaded once for each text of PTX, and their launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, MOST_BLOCKS
from tensorc_dsl.backend.cuda.maps import MAP_BYTES
from tensorc_dsl.backend.cuda.runtime.driver import Device
from tensorc_dsl.backend.cuda.runtime.encode import encoded
from tensorc_dsl.backend.cuda.runtime.image import Image, unpack
from tensorc_dsl.backend.protocol import CompileError, KernelFault
from tensorc_dsl.ir.bind import Sizes


class Module:
    """The kernels of an image in the context of a device."""

    def __init__(self, device: Device, image: bytes) -> None:
        """Raises CompileError if the driver does not take the PTX, or has no room for the shared memory of a block."""
        self.device = device
        self.image, self._extents = unpack(image)
        try:
            self._functions = self._load(self.image)
        except KernelFault as e:
            if e.lost:
                raise
            raise CompileError(str(e)) from e

    def _load(self, image: Image) -> list[Any]:
        driver = self.device.driver
        with self.device.current():
            self._module = driver.module_from_buffer(image.ptx.encode() + b"\0")
            functions = [self._module.get_function(x.name) for x in image.launches]
            for f, x in zip(functions, image.launches, strict=True):
                # Up to 48 KB need no attribute; above, the driver requires one.
                if x.shared_bytes:
                    f.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, x.shared_bytes)
                # Maps are first: the driver requires them at multiples of 64 bytes, and packing aligns nothing.
                f.prepare(f"{MAP_BYTES}s" * len(x.maps) + "P" * len(x.params) + "q" * len(image.dims))
        return functions

    def scratch_bytes(self, sizes: Sizes) -> list[int]:
        """The bytes of each array in `image.scratch`."""
        return self._extents.bound(sizes)[1]

    def launch(self, addresses: dict[str, int], sizes: Sizes, stream: Any) -> None:
        """Queue all kernels on a stream. `addresses` has those of arguments and of scratch arrays. The context is current.

        Raises ValueError if sizes ask for more blocks than a grid can have.
        """
        grids, bytes_of = self._extents.bound(sizes)
        for grid in grids:
            for axis, size, most in zip(BLOCK_AXES, grid, MOST_BLOCKS, strict=True):
                if size > most:
                    raise ValueError(
                        f"with these sizes a grid has {size} blocks along `{axis}`, and up to {most} are there"
                    )
        room = dict(zip(self.image.scratch, bytes_of, strict=True))
        numbers: Sequence[int] = [sizes[d] for d in self.image.dims]
        extents = iter(self._extents.of_maps(sizes))
        for f, x, grid in zip(self._functions, self.image.launches, grids, strict=True):
            known = [(m, next(extents)) for m in x.maps]
            if 0 not in grid:
                maps = [encoded(m.kind, m.swizzle, addresses[m.array], *both, m.box) for m, both in known]
                for name in x.cleared:
                    self.device.driver.memset_d8_async(addresses[name], 0, room[name], stream)
                given = (*maps, *(addresses[name] for name in x.params), *numbers)
                f.prepared_async_call(grid, (x.threads, 1, 1), stream, *given, shared_size=x.shared_bytes)


_loaded: WeakValueDictionary[bytes, Module] = WeakValueDictionary()


def module_of(device: Device, image: bytes) -> Module:
    """The module of an image. As long as a kernel has it, an equal image is not loaded again. Raises CompileError."""
    found = _loaded.get(image)
    if found is None or found.device is not device:
        found = _loaded[image] = Module(device, image)
    return found
