"""Kernels of a GPU as callables on arrays, of the CPU or of the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorc_dsl.backend.cuda.runtime.arrays import DeviceArray, Memory, is_on_gpu, memory_of
from tensorc_dsl.backend.cuda.runtime.driver import Device, current_stream, ordered, time_launches
from tensorc_dsl.backend.cuda.runtime.module import Module
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
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import U8
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.lower.flat import Param


@dataclass(frozen=True, slots=True)
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
        with self._device.current():
            scratch = self._scratch(call.sizes)
            with ordered(self._device, call.stream) as stream:
                self._module.launch(self._addresses(call, scratch), call.sizes, stream)
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
        scratch = self._scratch(call.sizes)
        addresses = self._addresses(call, scratch)
        times = time_launches(self._device, lambda: self._module.launch(addresses, call.sizes, None), repeats)
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

    def _scratch(self, sizes: Sizes) -> dict[str, DeviceArray]:
        names = self._module.image.scratch
        return {
            name: DeviceArray(self._device, (count,), U8)
            for name, count in zip(names, self._module.scratch_bytes(sizes), strict=True)
        }

    @staticmethod
    def _addresses(call: _Call, scratch: Mapping[str, DeviceArray]) -> dict[str, int]:
        return {n: m.address for n, m in call.memory.items()} | {n: a.address for n, a in scratch.items()}

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
