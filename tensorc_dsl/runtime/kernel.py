"""Compiled kernels as callables on arrays."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.codegen.llvm.compile import Compiled
from tensorc_dsl.codegen.llvm.statements import PARALLEL_FOR
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.bind import Sizes
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.runtime.arrays import aligned_empty
from tensorc_dsl.runtime.sizes import infer_sizes, shape_for
from tensorc_dsl.runtime.threads import runtime, time_native

_numbers = itertools.count()


class NativeKernel:
    """A kernel in this process's memory. Call it with arrays; safe to call from several threads at once.

    The sizes of open dimensions are those of the arrays.
    """

    def __init__(self, compiled: Compiled) -> None:
        rt = runtime()
        library = llvm.JITLibraryBuilder().add_object_img(compiled.object_code).add_current_process()
        library.import_symbol(PARALLEL_FOR, rt.parallel_for)
        library.export_symbol(compiled.symbol).export_symbol(compiled.workspace_symbol)
        self.params = compiled.params
        self.inputs = tuple(p for p in self.params if not p.output)
        self.outputs = tuple(p for p in self.params if p.output)
        self.dims = compiled.dims
        self._dtypes = {p.name: stored_dtype(p.dtype) for p in self.params}
        self._arguments = ctypes.c_void_p * (len(self.params) + len(self.dims))
        self._tracker = library.link(rt.jit, f"kernel_{next(_numbers)}")
        self._address = int(self._tracker[compiled.symbol])
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._address)
        self._need = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(int(self._tracker[compiled.workspace_symbol]))
        self._shapes = None if self.dims else tuple(shape_for(p, {}) for p in self.params)
        self._workspace_bytes = None if self.dims else int(self._need(None))
        self._workspace: Array | None = None
        self._workspace_lock = threading.Lock()

    def __call__(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """Run once. Pass all parameters in order, or the inputs only: then new output arrays are made.

        Inputs are NumPy arrays or anything that speaks DLPack on the CPU. Returns the output, or a tuple of several.
        ValueError when a dtype, a shape or a layout is not the declared one, when sizes do not fit each other or are out of
        their range, or when an output overlaps another argument.
        """
        bound, arguments = self._bind(arrays)
        workspace, locked = self._scratch(arguments)
        try:
            self._function(arguments, workspace.ctypes.data)
        finally:
            if locked:
                self._workspace_lock.release()
        outs = tuple(a for a, p in zip(bound, self.params, strict=True) if p.output)
        return outs[0] if len(outs) == 1 else outs

    def time(self, arrays: tuple[Any, ...] | list[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, measured in native code."""
        bound, arguments = self._bind(tuple(arrays))
        workspace, locked = self._scratch(arguments)
        try:
            return time_native(self._address, ctypes.addressof(arguments), workspace.ctypes.data, repeats)
        finally:
            del bound  # alive until here: the arguments are addresses
            if locked:
                self._workspace_lock.release()

    def _scratch(self, arguments: ctypes.Array[ctypes.c_void_p]) -> tuple[Array, bool]:
        """Scratch memory for one call: the kernel's own, locked, or new memory where another call has that."""
        size = int(self._need(arguments)) if self._workspace_bytes is None else self._workspace_bytes
        if not self._workspace_lock.acquire(blocking=False):
            return aligned_empty((size,), np.dtype(np.uint8)), False
        try:
            if self._workspace is None or self._workspace.size < size:
                self._workspace = aligned_empty((size,), np.dtype(np.uint8))
            return self._workspace, True
        except BaseException:
            self._workspace_lock.release()
            raise

    def _bind(self, arrays: tuple[Any, ...]) -> tuple[list[Array], ctypes.Array[ctypes.c_void_p]]:
        """The arrays of all parameters, in order, and what the kernel gets: their addresses, and the open sizes.

        Small kernels take a few microseconds, so this asks NumPy for each thing once.
        """
        named = self.params if len(arrays) == len(self.params) else self.inputs
        if len(arrays) != len(named):
            raise ValueError(
                f"the kernel takes {len(self.params)} arrays ({', '.join(p.name for p in self.params)}), "
                f"or its {len(named)} inputs; {len(arrays)} given"
            )
        given = {p.name: _array(p, value, self._dtypes[p.name]) for p, value in zip(named, arrays, strict=True)}
        sizes: Sizes = {}
        shapes = self._shapes
        if shapes is None:
            sizes = infer_sizes(self.dims, [(p, given[p.name].shape) for p in self.params if p.name in given])
            shapes = tuple(shape_for(p, sizes) for p in self.params)
        bound: list[Array] = []
        addresses: list[int] = []
        for p, shape in zip(self.params, shapes, strict=True):
            a = given.get(p.name)
            if a is None:
                a = aligned_empty(shape, self._dtypes[p.name])
            address = a.ctypes.data
            _check(a, p, shape, address)
            bound.append(a)
            addresses.append(address)
        _no_overlap(self.params, bound, addresses)
        return bound, self._arguments(*addresses, *(sizes[d.name] for d in self.dims))


def load(compiled: Compiled) -> NativeKernel:
    """Put a compiled kernel into memory. It is freed with the last reference to the result."""
    return NativeKernel(compiled)


def _array(p: Param, value: Any, want: np.dtype[Any]) -> Array:
    """The array that was passed for a parameter, of the right type."""
    a: Array
    if isinstance(value, np.ndarray):
        a = cast(Array, value)
    elif hasattr(value, "__dlpack__"):
        a = np.from_dlpack(value)
    else:
        raise ValueError(f"{p.name}: expected an array, got {type(value).__name__}")
    if a.dtype != want:
        raise ValueError(f"{p.name}: expected {want} ({p.dtype}), got {a.dtype}")
    return a


def _check(a: Array, p: Param, shape: tuple[int, ...], address: int) -> None:
    if a.shape != shape:
        raise ValueError(f"{p.name}: expected shape {shape}, got {a.shape}")
    if not a.flags.c_contiguous:
        raise ValueError(
            f"{p.name}: the array is not C-contiguous (strides {a.strides}); pass numpy.ascontiguousarray of it"
        )
    if address % a.itemsize:
        raise ValueError(f"{p.name}: the data is not aligned to its {a.itemsize}-byte elements")
    if p.output and not a.flags.writeable:
        raise ValueError(f"{p.name}: the array is read-only, but the kernel writes it")


def _no_overlap(params: tuple[Param, ...], bound: list[Array], addresses: list[int]) -> None:
    ends = [address + a.nbytes for address, a in zip(addresses, bound, strict=True)]
    for i, p in enumerate(params):
        if not p.output:
            continue
        for j, q in enumerate(params):
            if i != j and addresses[i] < ends[j] and addresses[j] < ends[i]:
                raise ValueError(f"{p.name} and {q.name} share memory; an output needs memory of its own")
