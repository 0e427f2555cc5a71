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
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.runtime.arrays import aligned_empty
from tensorc_dsl.runtime.threads import runtime, time_native

_numbers = itertools.count()


class NativeKernel:
    """A kernel in this process's memory. Call it with arrays; safe to call from several threads at once."""

    def __init__(self, compiled: Compiled) -> None:
        rt = runtime()
        library = llvm.JITLibraryBuilder().add_object_img(compiled.object_code).add_current_process()
        library.import_symbol(PARALLEL_FOR, rt.parallel_for).export_symbol(compiled.symbol)
        self.params = compiled.params
        self._tracker = library.link(rt.jit, f"kernel_{next(_numbers)}")
        self._address = int(self._tracker[compiled.symbol])
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._address)
        self._workspace_bytes = compiled.workspace
        self._workspace: Array | None = None
        self._workspace_lock = threading.Lock()

    @property
    def inputs(self) -> tuple[Param, ...]:
        return tuple(p for p in self.params if not p.output)

    @property
    def outputs(self) -> tuple[Param, ...]:
        return tuple(p for p in self.params if p.output)

    def __call__(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """Run once. Pass all parameters in order, or the inputs only: then new output arrays are made.

        Inputs are NumPy arrays or anything that speaks DLPack on the CPU. Returns the output, or a tuple of several.
        ValueError when a dtype, a shape or a layout is not the declared one, or when an output overlaps another argument.
        """
        bound = self._bind(arrays)
        pointers = _pointers(bound)
        workspace, locked = self._scratch()
        try:
            self._function(pointers, workspace.ctypes.data)
        finally:
            if locked:
                self._workspace_lock.release()
        outs = tuple(a for a, p in zip(bound, self.params, strict=True) if p.output)
        return outs[0] if len(outs) == 1 else outs

    def time(self, arrays: tuple[Any, ...] | list[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, measured in native code."""
        bound = self._bind(tuple(arrays))
        pointers = _pointers(bound)
        workspace, locked = self._scratch()
        try:
            return time_native(self._address, ctypes.addressof(pointers), workspace.ctypes.data, repeats)
        finally:
            if locked:
                self._workspace_lock.release()

    def _scratch(self) -> tuple[Array, bool]:
        """Scratch memory for one call: the kernel's own, locked, or new memory where another call has that."""
        if not self._workspace_lock.acquire(blocking=False):
            return aligned_empty((self._workspace_bytes,), np.dtype(np.uint8)), False
        try:
            if self._workspace is None:
                self._workspace = aligned_empty((self._workspace_bytes,), np.dtype(np.uint8))
            return self._workspace, True
        except BaseException:
            self._workspace_lock.release()
            raise

    def _bind(self, arrays: tuple[Any, ...]) -> list[Array]:
        inputs = self.inputs
        if len(arrays) == len(self.params):
            given = iter(arrays)
            bound = [_checked(next(given), p) for p in self.params]
        elif len(arrays) == len(inputs):
            given = iter(arrays)
            bound = [
                aligned_empty(p.shape, stored_dtype(p.dtype)) if p.output else _checked(next(given), p)
                for p in self.params
            ]
        else:
            raise ValueError(
                f"the kernel takes {len(self.params)} arrays ({', '.join(p.name for p in self.params)}), "
                f"or its {len(inputs)} inputs; {len(arrays)} given"
            )
        _no_overlap(self.params, bound)
        return bound


def load(compiled: Compiled) -> NativeKernel:
    """Put a compiled kernel into memory. It is freed with the last reference to the result."""
    return NativeKernel(compiled)


def _pointers(bound: list[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(bound))(*(a.ctypes.data for a in bound))


def _checked(value: Any, p: Param) -> Array:
    a: Array
    if isinstance(value, np.ndarray):
        a = cast(Array, value)
    elif hasattr(value, "__dlpack__"):
        a = np.from_dlpack(value)
    else:
        raise ValueError(f"{p.name}: expected an array, got {type(value).__name__}")
    want = stored_dtype(p.dtype)
    if a.dtype != want:
        raise ValueError(f"{p.name}: expected {want} ({p.dtype}), got {a.dtype}")
    if a.shape != p.shape:
        raise ValueError(f"{p.name}: expected shape {p.shape}, got {a.shape}")
    if not a.flags.c_contiguous:
        raise ValueError(
            f"{p.name}: the array is not C-contiguous (strides {a.strides}); pass numpy.ascontiguousarray of it"
        )
    if a.ctypes.data % want.itemsize:
        raise ValueError(f"{p.name}: the data is not aligned to its {want.itemsize}-byte elements")
    if p.output and not a.flags.writeable:
        raise ValueError(f"{p.name}: the array is read-only, but the kernel writes it")
    return a


def _no_overlap(params: tuple[Param, ...], bound: list[Array]) -> None:
    spans = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in bound]
    for i, p in enumerate(params):
        for j, q in enumerate(params):
            if p.output and i != j and spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]:
                raise ValueError(f"{p.name} and {q.name} share memory; an output needs memory of its own")
