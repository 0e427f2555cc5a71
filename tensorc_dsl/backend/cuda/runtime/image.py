"""What a process needs to load and launch the kernels of a program, as bytes: their PTX, and the sizes of each launch.

Sizes depend on open dimensions. They are written as shapes of the parameters of a program, whose text has a parser.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.dtypes import U8
from tensorc_dsl.ir.expr import Expr, index, mul
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.source import Source


class Launch(msgspec.Struct, frozen=True):
    """A kernel by its name in the PTX. `params` names its arrays; the open sizes come after them."""

    name: str
    params: tuple[str, ...]
    threads: int
    shared_bytes: int


class Image(msgspec.Struct, frozen=True):
    """The kernels in the order of their launches. `scratch` names the arrays in global memory besides the arguments.

    `sizes` is the text of a program: the shape of each parameter is the grid of a launch, or the bytes of a scratch array.
    """

    ptx: str
    launches: tuple[Launch, ...]
    scratch: tuple[str, ...]
    dims: tuple[str, ...]
    sizes: str


@dataclass(frozen=True, slots=True)
class Extents:
    """The grid of each launch, and the bytes of each scratch array, over the open dimensions."""

    grids: tuple[tuple[Expr, ...], ...]
    scratch: tuple[Expr, ...]

    def bound(self, sizes: Sizes) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Both as numbers."""
        grids = [(x, y, z) for x, y, z in ([evaluate_size(e, sizes) for e in g] for g in self.grids)]
        return grids, [evaluate_size(e, sizes) for e in self.scratch]


def pack(p: DeviceProgram, ptx: str) -> bytes:
    """The image of kernels."""
    shapes = [k.grid for k in p.kernels] + [(mul(x.size, index(x.dtype.bytes)),) for x in p.scratch]
    params = tuple(Buffer(f"size_{n}_", U8, shape) for n, shape in enumerate(shapes))
    sizes = format_program(Program(p.name, params, (), (), p.dims))
    launches = tuple(Launch(k.name, k.params, k.threads, k.shared_bytes) for k in p.kernels)
    scratch, dims = tuple(x.name for x in p.scratch), tuple(d.name for d in p.dims)
    return msgspec.msgpack.encode(Image(ptx, launches, scratch, dims, sizes))


def unpack(data: bytes) -> tuple[Image, Extents]:
    """The image, and its sizes. Raises msgspec.DecodeError if these are not the bytes of `pack`."""
    image = _images.decode(data)
    shapes = [b.shape for b in parse_program(Source("sizes", image.sizes)).params]
    count = len(image.launches)
    return image, Extents(tuple(shapes[:count]), tuple(e for (e,) in shapes[count:]))


_images = msgspec.msgpack.Decoder(Image)
