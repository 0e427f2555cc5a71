"""Kernels of a program on the GPU, loaded once for each text of PTX, and their launches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, MOST_BLOCKS, DeviceProgram
from tensorc_dsl.backend.cuda.maps import CACHED, MAP_ALIGNMENT, MAP_BYTES, encoding_of
from tensorc_dsl.backend.cuda.runtime.driver import Device
from tensorc_dsl.backend.protocol import CompileError, KernelFault
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import U8
from tensorc_dsl.ir.expr import Expr, index, mul
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.proof.sets.instructions import LONGEST

# Tensor maps of arrays on a GPU, made by the driver: PyCUDA has no function for it, so it is called as it is.


@cache
def library() -> Any:
    """The driver's library, which is loaded already."""
    return ctypes.CDLL("libcuda.so.1")


def encoded(
    kind: int, swizzle: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> bytes:
    """The map of an array at an address, with the driver's numbers and the innermost dimension first; strides are in bytes.

    Raises KernelFault if the driver makes none.
    """
    if max(sizes) > LONGEST:
        raise KernelFault(
            f"a tile of an array with {max(sizes)} elements along a dimension has numbers beyond 32 bits", lost=False
        )
    rank = len(sizes)
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = ctypes.addressof(room) + -ctypes.addressof(room) % MAP_ALIGNMENT
    code = library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(start),
        ctypes.c_int(kind),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*sizes),
        (ctypes.c_uint64 * rank)(*strides),  # one less than dimensions
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*(1 for _ in box)),
        ctypes.c_int(0),  # channels are not interleaved
        ctypes.c_int(swizzle),
        ctypes.c_int(CACHED),
        ctypes.c_int(0),  # zeros outside
    )
    if code:
        tiles = " x ".join(map(str, reversed(box)))
        raise KernelFault(f"the GPU's driver makes no tensor map of tiles of {tiles}: error {code}", lost=False)
    return ctypes.string_at(start, MAP_BYTES)


# What a process needs to load and launch the kernels of a program, as bytes: their PTX, and the sizes of each launch.
#
# Sizes depend on open dimensions. They are written as shapes of the parameters of a program, whose text has a parser.


class Map(msgspec.Struct, frozen=True):
    """A tensor map of an array, as the driver makes it: see `Encoding`."""

    array: str
    kind: int
    swizzle: int
    box: tuple[int, ...]


class Launch(msgspec.Struct, frozen=True):
    """A kernel by its name in the PTX. `maps` are its first arguments, then `params`, which names its arrays; the open sizes
    come after them. The bytes of the scratch arrays in `cleared` are 0 when it starts."""

    name: str
    params: tuple[str, ...]
    threads: int
    shared_bytes: int
    maps: tuple[Map, ...]
    cleared: tuple[str, ...]


class Image(msgspec.Struct, frozen=True):
    """The kernels in the order of their launches. `scratch` names the arrays in global memory besides the arguments.

    `sizes` is the text of a program: the shape of each parameter is the grid of a launch, or the bytes of a scratch array, or
    the sizes of a tensor map and then its strides.
    """

    ptx: str
    launches: tuple[Launch, ...]
    scratch: tuple[str, ...]
    dims: tuple[str, ...]
    sizes: str


@dataclass(frozen=True, slots=True)
class Extents:
    """The grid of each launch, the bytes of each scratch array, sizes and strides of each map, over the open dimensions."""

    grids: tuple[tuple[Expr, ...], ...]
    scratch: tuple[Expr, ...]
    maps: tuple[tuple[Expr, ...], ...]

    def bound(self, sizes: Sizes) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Grids and scratch arrays as numbers."""
        grids = [(x, y, z) for x, y, z in ([evaluate_size(e, sizes) for e in g] for g in self.grids)]
        return grids, [evaluate_size(e, sizes) for e in self.scratch]

    def of_maps(self, sizes: Sizes) -> list[tuple[list[int], list[int]]]:
        """Sizes and strides of each map as numbers, in the order of the launches."""
        every = [[evaluate_size(e, sizes) for e in m] for m in self.maps]
        return [(m[: len(m) // 2 + 1], m[len(m) // 2 + 1 :]) for m in every]


def pack(p: DeviceProgram, ptx: str) -> bytes:
    """The image of kernels."""
    maps = [[encoding_of(m) for m in k.maps] for k in p.kernels]
    shapes = [k.grid for k in p.kernels] + [(mul(x.size, index(x.dtype.bytes)),) for x in p.scratch]
    shapes += [(*m.sizes, *m.strides) for own in maps for m in own]
    params = tuple(Buffer(f"size_{n}_", U8, shape) for n, shape in enumerate(shapes))
    sizes = format_program(Program(p.name, params, (), (), p.dims))
    launches = tuple(
        Launch(
            k.name,
            k.params,
            k.threads,
            k.shared_bytes,
            tuple(Map(m.array, m.kind, m.swizzle, m.box) for m in own),
            k.cleared,
        )
        for k, own in zip(p.kernels, maps, strict=True)
    )
    scratch, dims = tuple(x.name for x in p.scratch), tuple(str(d.name) for d in p.dims)
    return msgspec.msgpack.encode(Image(ptx, launches, scratch, dims, sizes))


def unpack(data: bytes) -> tuple[Image, Extents]:
    """The image, and its sizes. Raises msgspec.DecodeError if these are not the bytes of `pack`."""
    image = _images.decode(data)
    shapes = [b.shape for b in parse_program(Source("sizes", image.sizes)).params]
    count = len(image.launches)
    first = count + len(image.scratch)
    return image, Extents(tuple(shapes[:count]), tuple(e for (e,) in shapes[count:first]), tuple(shapes[first:]))


_images = msgspec.msgpack.Decoder(Image)


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
