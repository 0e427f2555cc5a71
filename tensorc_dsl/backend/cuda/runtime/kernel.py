"""Kernels of a program on the GPU: loaded once for each text of PTX, launched, and as callables on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, MOST_BLOCKS, DeviceProgram
from tensorc_dsl.backend.cuda.maps import CACHED, MAP_ALIGNMENT, MAP_BYTES, encoding_of
from tensorc_dsl.backend.cuda.runtime.arrays import DeviceArray, Memory, is_on_gpu, memory_of
from tensorc_dsl.backend.cuda.runtime.driver import Device, current_stream, library, ordered_stream, time_launches
from tensorc_dsl.backend.llvm.runtime.arguments import (
    Described,
    ShapeSolver,
    array_for,
    check_array,
    check_strides,
    in_order,
    is_number,
    library_of,
    require_apart,
    shape_for,
)
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import CompileError, KernelFault
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import U8
from tensorc_dsl.ir.expr import Dim, Expr, index, mul
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.proof.sets.instructions import LONGEST

# Tensor maps of arrays on a GPU, made by the driver: PyCUDA has no function for it, so it is called as it is.


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


@frozen
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
        self._prepared: dict[tuple[object, ...], Launches] = {}
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

    def prepared(self, addresses: Mapping[str, int], sizes: Sizes) -> Launches:
        """What launches the kernels with these addresses, of arguments and of scratch arrays: made once, with the tensor
        maps, and kept for the calls that follow. The context is current.

        Raises ValueError if sizes ask for more blocks than a grid can have.
        """
        key = (*addresses.items(), *sizes.items())
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= KEPT:
                self._prepared.clear()
            found = self._prepared[key] = self._prepare(addresses, sizes)
        return found

    def _prepare(self, addresses: Mapping[str, int], sizes: Sizes) -> Launches:
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
        clear, out = self.device.driver.memset_d8_async, list[Queued]()
        for f, x, grid in zip(self._functions, self.image.launches, grids, strict=True):
            known = [(m, next(extents)) for m in x.maps]
            if 0 not in grid:
                maps = [encoded(m.kind, m.swizzle, addresses[m.array], *both, m.box) for m, both in known]
                out += [partial(clear, addresses[name], 0, room[name]) for name in x.cleared]
                given = (*maps, *(addresses[name] for name in x.params), *numbers)
                out.append(_launch(f, grid, (x.threads, 1, 1), given, x.shared_bytes))
        return Launches(tuple(out))


KEPT = 256
"""The launches that a module keeps, by addresses and sizes."""

Queued = Callable[[Any], None]
"""What queues one piece of work on a stream."""


def _launch(f: Any, grid: tuple[int, ...], block: tuple[int, ...], given: tuple[Any, ...], shared: int) -> Queued:
    return lambda stream: f.prepared_async_call(grid, block, stream, *given, shared_size=shared)


@frozen
class Launches:
    """Kernels with all that they are launched with. Call it with a stream of PyCUDA, None for the legacy one."""

    queued: tuple[Queued, ...]

    def __call__(self, stream: Any) -> None:
        for queue in self.queued:
            queue(stream)


_loaded: WeakValueDictionary[bytes, Module] = WeakValueDictionary()


def module_of(device: Device, image: bytes) -> Module:
    """The module of an image. As long as a kernel has it, an equal image is not loaded again. Raises CompileError."""
    found = _loaded.get(image)
    if found is None or found.device is not device:
        found = _loaded[image] = Module(device, image)
    return found


@frozen
class _Call:
    """The arrays of a call on the GPU, those of the CPU that they are copies of, and the open sizes."""

    memory: dict[str, Memory]
    copies: dict[str, tuple[DeviceArray, Array]]
    made: dict[str, DeviceArray | Array]
    sizes: Sizes
    stream: int


class GpuKernel:
    """The kernels of a program on the GPU. Call it with arrays; safe to call from several threads at once.

    Arrays of the CPU are copied to the GPU and back. With arrays that are on the GPU, a call returns before the kernels have
    ended, and they run in the order of the stream that the library of the arrays works on. Constant inputs are inputs.
    """

    def __init__(
        self,
        device: Device,
        module: Module,
        params: tuple[Param, ...],
        dims: tuple[Dim, ...],
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        self.params = params
        self._device = device
        self._module = module
        self._dims = dims
        self._fixed = dict(fixed or {})
        self._free = tuple(p for p in params if p.name not in self._fixed)
        self._inputs = tuple(p for p in self._free if p.given)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run once. Pass all parameters, in order or by name, or the inputs only: then new output arrays are made.

        Outputs are the arrays that were given for them, else new ones: of NumPy if no array was on the GPU, else of the
        library of the arrays there. Raises ValueError as kernels of CPUs do, and KernelFault for an error of the GPU.
        """
        if named:
            arrays = in_order(self._free, arrays, named)
        call = self._bind(arrays)
        with (
            self._device.current(),
            ordered_stream(self._device, call.stream) as stream,
            self._device.pool.taken(self._device, self._module.scratch_bytes(call.sizes), stream) as scratch,
        ):
            self._module.prepared(self._addresses(call, scratch), call.sizes)(stream)
        for p in self.params:
            if p.output and p.name in call.copies:
                on_gpu, ours = call.copies[p.name]
                on_gpu.copy_to(ours)
        named_arrays = self._free if len(arrays) == len(self._free) else self._inputs
        given = {p.name: a for p, a in zip(named_arrays, arrays, strict=True)}
        there = [a for a in arrays if not is_number(a) and is_on_gpu(a)]
        make = library_of(there) if there else None
        outs = [
            given[p.name] if p.name in given else self._handed(call.made[p.name], make) for p in self.params if p.output
        ]
        return outs[0] if len(outs) == 1 else tuple(outs)

    @staticmethod
    def _handed(made: DeviceArray | Array, make: Any) -> Any:
        return make(made) if make is not None and isinstance(made, DeviceArray) else made

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, by the GPU's clock, without copies to it and back.

        Arrays of the CPU have what the last run left in theirs on the GPU, inputs included.
        """
        call = self._bind(tuple(arrays))
        with (
            self._device.current(),
            self._device.pool.taken(self._device, self._module.scratch_bytes(call.sizes), None) as scratch,
        ):
            launches = self._module.prepared(self._addresses(call, scratch), call.sizes)
            times = time_launches(self._device, lambda: launches(None), repeats)
        for on_gpu, ours in call.copies.values():
            if ours.flags.writeable:
                on_gpu.copy_to(ours)
        return times

    def bind(self, /, **constants: Any) -> GpuKernel:
        """The kernel for these constant inputs, all given by name, whose copies on the GPU it keeps."""
        named = [p for p in self.params if p.constant]
        if constants.keys() != {p.name for p in named}:
            wanted = ", ".join(p.name for p in named) or "none"
            raise ValueError(
                f"the constant inputs of this kernel are {wanted}; given: {', '.join(constants) or 'none'}"
            )
        if apart := [p.name for p in named if p.strides]:
            raise ValueError(
                f"{', '.join(apart)}: constant inputs with strides are not kept on the GPU; pass them in calls"
            )
        kept: dict[str, Any] = {}
        for p in named:
            value = constants[p.name]
            if is_on_gpu(value):
                with self._device.current():
                    there = memory_of(p, value, current_stream([value]))
                    copy = DeviceArray(self._device, there.shape, p.dtype)
                    self._device.driver.memcpy_dtod(copy.address, there.address, there.nbytes)
            else:
                a = array_for(p, value, stored_dtype(p.dtype))
                check_array(a, p, a.shape, a.ctypes.data)
                copy = self._uploaded(a, p)
            kept[p.name] = copy
        return GpuKernel(self._device, self._module, self.params, self._dims, kept)

    def _uploaded(self, a: Array, p: Param) -> DeviceArray:
        out = DeviceArray(self._device, a.shape, p.dtype)
        out.fill(a)
        return out

    def _addresses(self, call: _Call, scratch: Sequence[int]) -> dict[str, int]:
        own = {n: m.address for n, m in call.memory.items()}
        return own | dict(zip(self._module.image.scratch, scratch, strict=True))

    def _bind(self, arrays: tuple[Any, ...]) -> _Call:
        """The arrays of all parameters on the GPU. Raises ValueError if one does not fit its parameter."""
        named = self._free if len(arrays) == len(self._free) else self._inputs
        if len(arrays) != len(named):
            raise ValueError(
                f"the kernel takes {len(self._free)} arrays ({', '.join(p.name for p in self._free)}), "
                f"or its {counted(len(named), 'input')}; {len(arrays)} given"
            )
        given: dict[str, Any] = self._fixed | {p.name: value for p, value in zip(named, arrays, strict=True)}
        there = {n: value for n, value in given.items() if is_on_gpu(value)}
        stream = current_stream(value for n, value in there.items() if n not in self._fixed)
        memory: dict[str, Memory] = {}
        ours: dict[str, Array] = {}
        for p in self.params:
            if p.name in there:
                memory[p.name] = memory_of(p, given[p.name], stream)
            elif p.name in given:
                ours[p.name] = array_for(p, given[p.name], stored_dtype(p.dtype))
        arrays_given = {n: Described(a.shape, a.strides) for n, a in (*memory.items(), *ours.items())}
        known = [p for p in self.params if p.name in arrays_given]
        sizes = ShapeSolver(self._dims, known).all_sizes([arrays_given[p.name] for p in known])
        if apart := [p.name for p in self.params if p.strides and p.name not in memory]:
            raise ValueError(f"{', '.join(apart)}: arrays with strides have to be on the GPU; none is copied or made")
        copies: dict[str, tuple[DeviceArray, Array]] = {}
        made: dict[str, DeviceArray | Array] = {}
        on_gpu = bool(there.keys() - self._fixed.keys())
        for p in self.params:
            shape = shape_for(p, sizes)
            if p.name in memory:
                if memory[p.name].shape != shape:
                    raise ValueError(f"{p.name}: expected shape {shape}, got {memory[p.name].shape}")
                if p.strides:
                    check_strides(p, shape, memory[p.name].strides, sizes)
            elif p.name in ours:
                a = ours[p.name]
                check_array(a, p, shape, a.ctypes.data)
            elif on_gpu:
                made[p.name] = new = DeviceArray(self._device, shape, p.dtype, stream)
                memory[p.name] = new.memory
            else:
                made[p.name] = ours[p.name] = aligned_empty(shape, stored_dtype(p.dtype), f"the output `{p.name}`")
        host = [p for p in self.params if p.name in ours]
        require_apart(host, [ours[p.name] for p in host], [ours[p.name].ctypes.data for p in host])
        for p in host:
            # Outputs too: what a kernel does not write has its old value.
            copy = self._uploaded(ours[p.name], p)
            copies[p.name], memory[p.name] = (copy, ours[p.name]), copy.memory
        every = [memory[p.name] for p in self.params]
        require_apart(self.params, every, [m.address for m in every])
        return _Call(memory, copies, made, sizes, stream)
