"""What a process needs to load and launch the kernels of a program, as bytes: their PTX, and the sizes of each launch.

Sizes depend on open dimensions. They are written as shapes of the parameters of a program, whose text has a parser.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.maps import encoding_of
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.dtypes import U8
from tensorc_dsl.ir.expr import Expr, index, mul
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.source import Source


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
