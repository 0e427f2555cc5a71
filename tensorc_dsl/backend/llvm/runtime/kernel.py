"""Compiled kernels as callables on arrays."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.llvm.codegen.compile import Compiled, workspace_symbol
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.arguments import (
    Described,
    ShapeSolver,
    array_for,
    check_array,
    exported,
    in_order,
    is_number,
    library_of,
    new_array,
    require_apart,
    shape_for,
)
from tensorc_dsl.backend.llvm.runtime.native import Doorway, Opened, Wanted, doorway, runtime, time_native
from tensorc_dsl.backend.memory import ALIGNMENT, aligned_copy, aligned_empty
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.lower.flat import Param, format_shape
from tensorc_dsl.proof.sets.simplify import linear_form

_numbers = itertools.count()
_BYTE = np.dtype(np.uint8)
LARGEST = 2**63 - 1
"""In place of the largest size of a dimension without a limit."""


Arguments = ctypes.Array[ctypes.c_void_p]


@frozen
class Entry:
    """A function of machine code, `void (ptr arguments, ptr workspace)`, and the size of its scratch memory.

    One that prepares has also the size of the memory that it fills.
    """

    address: int
    run: Callable[[Arguments, int], None]
    workspace_bytes: Callable[[Arguments], int]
    prepared_bytes: Callable[[Arguments], int] = lambda _: 0
    teller: int = 0
    """The address of the machine code of `workspace_bytes`, if it is any."""

    @staticmethod
    def at(address: int, workspace_bytes: Callable[[Arguments], int]) -> Entry:
        return Entry(address, ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address), workspace_bytes)


class Code:
    """The machine code of a kernel in this process. `memory` is what the code lives in."""

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        dims: tuple[Dim, ...],
        kept: frozenset[str],
        main: Entry,
        preparation: Entry | None,
        memory: object,
    ) -> None:
        self.name = name
        self.params = params
        self.dims = dims
        self.kept = kept
        self.main = main
        self.preparation = preparation
        self.memory = memory
        self.constants = tuple(p for p in params if p.constant)
        self.dtypes = {p.name: stored_dtype(p.dtype) for p in params}
        self.arguments = ctypes.c_void_p * (len(params) + len(dims) + bool(self.constants))


def _linked(compiled: Compiled) -> Code:
    """A compiled kernel, linked into this process."""
    rt = runtime()
    library = llvm.JITLibraryBuilder().add_object_img(compiled.object_code).add_current_process()
    library.import_symbol(PARALLEL_FOR, rt.parallel_for)
    prepares = any(p.constant for p in compiled.params)
    entries = [compiled.symbol, *([compiled.prepare_symbol] if prepares else [])]
    tellers = [*map(workspace_symbol, entries), *([compiled.prepared_symbol] if prepares else [])]
    for symbol in (*entries, *tellers):
        library.export_symbol(symbol)
    tracker = library.link(rt.jit, f"kernel_{next(_numbers)}")

    def entry(symbol: str) -> Entry:
        teller = int(tracker[workspace_symbol(symbol)])
        return replace(Entry.at(int(tracker[symbol]), _teller(teller)), teller=teller)

    preparation = None
    if prepares:
        preparation = replace(
            entry(compiled.prepare_symbol), prepared_bytes=_teller(int(tracker[compiled.prepared_symbol]))
        )
    name = compiled.symbol.removeprefix("tensorc_")
    return Code(name, compiled.params, compiled.dims, compiled.kept, entry(compiled.symbol), preparation, tracker)


def _teller(address: int) -> Callable[[Arguments], int]:
    """A function of machine code that returns a number of bytes."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


@frozen
class Constants:
    """The constants of a bound kernel: the shapes of all constant inputs, copies of those that calls read, and the
    prepared memory."""

    shapes: dict[str, Described]
    copies: dict[str, Array]
    prepared: Array


class BoundKernel:
    """A kernel whose constant inputs are given. Call it with the other ones; safe to call from several threads at once.

    `NativeKernel.bind` makes it.
    """

    def __init__(self, code: Code, fixed: Constants | None) -> None:
        """With `fixed` None no constants are bound, and each call prepares them."""
        self._code = code
        self._fixed = fixed
        self._known = {} if fixed is None else fixed.shapes
        self._params = tuple(p for p in code.params if p.name not in self._known)
        self._inputs = tuple(p for p in self._params if p.given)
        known = tuple(p for p in code.params if p.name in self._known)
        self._of_inputs, self._of_all = (
            ShapeSolver(code.dims, (*known, *given)) if code.dims else None for given in (self._inputs, self._params)
        )
        self._places = [n for n, p in enumerate(code.params) if p.name not in self._known]
        copies = {} if fixed is None else fixed.copies
        self._values = [copies[p.name].ctypes.data if p.name in copies else 0 for p in code.params]
        self._values += [0] * len(code.dims)
        if code.constants:
            self._values.append(0 if fixed is None else fixed.prepared.ctypes.data)
        self._preparation = code.preparation if fixed is None else None
        self._shapes = None if code.dims else tuple(shape_for(p, {}) for p in self._params)
        self._strided = any(p.strides for p in code.params)
        self._bytes = None if code.dims else self._needed(code.arguments())
        self._most = 0
        """The most bytes of scratch memory of calls with open sizes so far: the fast path has so many."""
        self._memory: Array | None = None
        self._memory_lock = threading.Lock()
        self._outputs = [n for n, p in enumerate(self._params) if p.output]

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run once. Pass the inputs that are not bound, or these and the outputs, as to `NativeKernel`."""
        if named:
            arrays = in_order(self._params, arrays, named)
        door = self._door
        if door is not None:
            made = len(arrays) == len(self._inputs) != len(self._params)
            given = self._with_outputs(arrays) if made else arrays
            out = None if given is None else door(*given)
            if given is not None and out is not None:
                return out if len(self._outputs) == 1 else tuple(given[n] for n in self._outputs)
        return self._call(arrays)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bound kernel holds memory of this process: pickle the kernel, and bind again")

    def __copy__(self) -> BoundKernel:
        return self

    def __deepcopy__(self, _: object) -> BoundKernel:
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{format_shape(p.shape)}" for p in self._params)
        return f"BoundKernel({params}; bound: {', '.join(self._known) or 'nothing'})"

    def _with_outputs(self, arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The given arrays, with new arrays in the positions of the outputs; None if an array that tells the size of one is
        none of NumPy's."""
        shapes = self._shapes
        if shapes is None and (shapes := self._shapes_of(arrays)) is None:
            return None
        given = iter(arrays)
        return tuple(
            aligned_empty(shape, self._code.dtypes[p.name], f"the output `{p.name}`") if not p.given else next(given)
            for p, shape in zip(self._params, shapes, strict=True)
        )

    def _shapes_of(self, inputs: tuple[Any, ...]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of all parameters by those of the inputs, whose sizes the fast path compares; empty for inputs."""
        sizes = self._told.copy()
        for n, number, at, added in self._tells:
            a = inputs[n]
            if type(a) is not np.ndarray or at >= a.ndim:
                return None
            sizes[number] = a.shape[at] - added
        out: list[tuple[int, ...]] = []
        for p, shape in zip(self._params, self._sizes or (), strict=True):
            own = () if p.given else tuple([n if k < 0 else sizes[k] + n for k, n in shape])
            if own and min(own) < 0:
                return None
            out.append(own)
        return tuple(out)

    @cached_property
    def _told(self) -> list[int]:
        """The open sizes that the bound constants tell; -1 for others."""
        code = self._code
        known = [p for p in code.params if p.name in self._known]
        told = ShapeSolver(code.dims, known).told_sizes([self._known[p.name] for p in known])
        return [told.get(d.name, -1) for d in code.dims]

    @cached_property
    def _sizes(self) -> tuple[tuple[tuple[int, int], ...], ...] | None:
        """The sizes of each parameter, as the fast path takes them; None if one is more than an open size and a number."""
        numbers = {d: n for n, d in enumerate(self._code.dims)}
        out: list[tuple[tuple[int, int], ...]] = []
        for p in self._params:
            forms = [linear_form(e, {}) for e in p.shape]
            if any(len(terms) > 1 or any(c != 1 or d not in numbers for d, c in terms.items()) for terms, _ in forms):
                return None
            out.append(tuple((next((numbers[d] for d in numbers if d in terms), -1), n) for terms, n in forms))
        return tuple(out)

    @cached_property
    def _tells(self) -> tuple[tuple[int, int, int, int], ...]:
        """For each open size that inputs tell: the input, the size's number, the dimension, what is added to it there."""
        found: dict[int, tuple[int, int, int, int]] = {}
        shapes = [s for p, s in zip(self._params, self._sizes or (), strict=True) if p.given]
        for a, shape in enumerate(shapes):
            for at, (number, added) in enumerate(shape):
                if number >= 0 and self._told[number] < 0:
                    found.setdefault(number, (a, number, at, added))
        return tuple(found.values())

    @cached_property
    def _door(self) -> Doorway | None:
        """The fast path for calls with all arrays; None if each call prepares constant inputs, or an array has declared
        strides or a size that is more than an open one and a number."""
        code, sizes = self._code, self._sizes
        if sizes is None or self._preparation is not None or self._strided:
            return None
        wanted = [
            Wanted(code.dtypes[p.name], shape, place, p.output)
            for p, shape, place in zip(self._params, sizes, self._places, strict=True)
        ]
        first = len(code.params)
        values = [*self._values[:first], *self._told, *self._values[first + len(code.dims) :]]
        limits = tuple((d.low, LARGEST if d.high is None else d.high) for d in code.dims)
        opened = Opened(first, limits, code.main.teller) if code.dims else None
        scratch = aligned_empty((self._most if self._bytes is None else self._bytes[0],), _BYTE, self._scratch)
        return doorway(code.main.address, scratch, values, wanted, opened)

    @property
    def _scratch(self) -> str:
        return f"the intermediate results of `{self._code.name}`"

    def _call(self, arrays: tuple[Any, ...]) -> Any:
        bound, arguments = self._bind(arrays)
        workspace, locked = self._prepared(arguments)
        try:
            self._code.main.run(arguments, workspace.ctypes.data)
        finally:
            if locked:
                self._memory_lock.release()
        outs = tuple((arrays if len(arrays) == len(bound) else self._made(arrays, bound))[n] for n in self._outputs)
        return outs[0] if len(outs) == 1 else outs

    def _made(self, inputs: tuple[Any, ...], bound: list[Array]) -> Sequence[Any]:
        """The bound arrays, with new ones converted to the inputs' library."""
        make = library_of(a for a in inputs if not is_number(a))
        given = iter(inputs)
        return [
            next(given) if p.given else a if make is None else exported(p.name, a, p.dtype, make)
            for p, a in zip(self._params, bound, strict=True)
        ]

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, measured in native code.

        Constant inputs are prepared before; that time is not included.
        """
        bound, arguments = self._bind(tuple(arrays))
        workspace, locked = self._prepared(arguments)
        try:
            address = ctypes.addressof(arguments)
            return time_native(self._code.main.address, address, workspace.ctypes.data, repeats)
        finally:
            del bound  # kept alive until here, since the arguments are addresses
            if locked:
                self._memory_lock.release()

    @staticmethod
    def turning(kernels: Sequence[BoundKernel], arrays: tuple[Any, ...]) -> Callable[[int], list[float]]:
        """Seconds of so many runs in a row on the same arrays, by kernels of the same code that are bound, in turn."""
        code = kernels[0]._code
        bound = [k._bind(arrays) for k in kernels]
        workspace, locked = kernels[0]._prepared(bound[0][1])
        if locked:
            kernels[0]._memory_lock.release()
        stride = ctypes.sizeof(bound[0][1])
        blocks = (ctypes.c_char * (stride * len(bound)))()
        for n, (_, arguments) in enumerate(bound):
            ctypes.memmove(ctypes.addressof(blocks) + n * stride, ctypes.addressof(arguments), stride)
        done = 0

        def run(repeats: int) -> list[float]:
            nonlocal done
            first, done = done % len(bound), done + repeats
            place, memory = ctypes.addressof(blocks), workspace.ctypes.data
            return time_native(
                code.main.address, place, memory, repeats, stride=stride, count=len(kernels), first=first
            )

        return run

    def _needed(self, arguments: Arguments) -> tuple[int, int]:
        """The bytes of scratch memory of a call, in whole lines, and those after it for inputs that it prepares itself."""
        scratch, prepared = self._code.main.workspace_bytes(arguments), 0
        if self._preparation is not None:
            prepared = self._preparation.prepared_bytes(arguments)
            scratch = max(scratch, self._preparation.workspace_bytes(arguments))
        return -(-scratch // ALIGNMENT) * ALIGNMENT, prepared

    def _prepared(self, arguments: Arguments) -> tuple[Array, bool]:
        """Scratch memory for one call, and whether it is the kernel's own, locked; new memory if another call uses that.

        If calls prepare constant inputs themselves, they are prepared here, in the same memory.
        """
        scratch, prepared = self._needed(arguments) if self._bytes is None else self._bytes
        if self._bytes is None and scratch > self._most:
            self._most = 2 * scratch
            self.__dict__.pop("_door", None)  # the next one has enough
        locked = self._memory_lock.acquire(blocking=False)
        try:
            memory = self._memory if locked else None
            if memory is None or memory.size < scratch + prepared:
                memory = aligned_empty((scratch + prepared,), _BYTE, self._scratch)
            if locked:
                self._memory = memory
            if prepared and self._preparation is not None:
                address = memory.ctypes.data
                arguments[-1] = address + scratch
                self._preparation.run(arguments, address)
            return memory, locked
        except BaseException:
            if locked:
                self._memory_lock.release()
            raise

    def _bind(self, arrays: tuple[Any, ...]) -> tuple[list[Array], Arguments]:
        """The arrays of all parameters that are not bound, in order, and the kernel's arguments: addresses and open sizes.

        Small kernels take a few microseconds, so each property of an array is read once.
        """
        named = self._params if len(arrays) == len(self._params) else self._inputs
        if len(arrays) != len(named):
            raise ValueError(
                f"the kernel takes {len(self._params)} arrays ({', '.join(p.name for p in self._params)}), "
                f"or its {counted(len(named), 'input')}; {len(arrays)} given"
            )
        dtypes = self._code.dtypes
        given = {p.name: array_for(p, value, dtypes[p.name]) for p, value in zip(named, arrays, strict=True)}
        values = self._values.copy()
        shapes = self._shapes
        sizes: Sizes = {}
        if shapes is None:
            solver = self._of_all if named is self._params else self._of_inputs
            assert solver is not None  # some dimensions are open
            sizes = solver.all_sizes([*self._known.values(), *map(Described.of, given.values())])
            shapes = tuple(shape_for(p, sizes) for p in self._params)
            first = len(self._code.params)
            values[first : first + len(sizes)] = [sizes[d.name] for d in self._code.dims]
        bound: list[Array] = []
        addresses: list[int] = []
        for p, place, shape in zip(self._params, self._places, shapes, strict=True):
            a = given.get(p.name)
            if a is None:
                a = new_array(p, shape, dtypes[p.name], sizes)
            address = values[place] = a.ctypes.data
            check_array(a, p, shape, address, sizes)
            bound.append(a)
            addresses.append(address)
        require_apart(self._params, bound, addresses)
        return bound, self._code.arguments(*values)


class NativeKernel:
    """A kernel in this process's memory. Call it with arrays; safe to call from several threads at once.

    The sizes of open dimensions are those of the arrays.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.code = _linked(compiled)
        self._unbound = BoundKernel(self.code, None)
        self.params = compiled.params
        self.inputs = tuple(p for p in self.params if p.given)
        self.outputs = tuple(p for p in self.params if p.output)
        self.constants = self.code.constants
        self.dims = compiled.dims

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run once. Pass all parameters, in order or by name, or the inputs only: then new output arrays are made.

        Arrays are NumPy's or support DLPack on the CPU; an input without dimensions may be a number.
        Returns the output, or a tuple of several: the arrays that were given for them, else new ones of the library of
        all input arrays, or of NumPy if there are several libraries.
        Raises ValueError if a dtype, a shape or a layout is not the declared one, an array has a mask or cannot be read,
        sizes contradict each other or are out of their range, or an output overlaps another argument; OutOfMemory if there
        is no memory for new outputs or for intermediate results. Constant inputs are prepared in each call; see `bind`.
        """
        return self._unbound(*arrays, **named)

    def time(self, arrays: Sequence[Any], repeats: int) -> list[float]:
        """Seconds of each of `repeats` runs in a row on the same arrays, measured in native code.

        Constant inputs are prepared once before; that time is not included.
        """
        return self._unbound.time(arrays, repeats)

    def turning(self, arrays: Sequence[Any], copies: int) -> Callable[[int], list[float]]:
        """A function as `time`, whose calls take that many copies of the constant inputs in turn: so each call finds in
        caches what of them is left behind the other copies."""
        constants = {p.name: a for p, a in zip(self.params, arrays, strict=True) if p.constant}
        others = tuple(a for p, a in zip(self.params, arrays, strict=True) if not p.constant)
        return BoundKernel.turning([self.bind(**constants) for _ in range(copies)], others)

    def bind(self, /, **constants: Any) -> BoundKernel:
        """The kernel for these constant inputs, all given by name. Values that depend on them alone are computed here, once.

        The result holds copies of the data that it needs, so the arrays may change afterwards. Raises ValueError as a call.
        """
        code = self.code
        if constants.keys() != {p.name for p in code.constants}:
            named = ", ".join(p.name for p in code.constants) or "none"
            raise ValueError(f"the constant inputs of this kernel are {named}; given: {', '.join(constants) or 'none'}")
        arrays = {p.name: array_for(p, constants[p.name], code.dtypes[p.name]) for p in code.constants}
        known = {name: Described.of(a) for name, a in arrays.items()}
        sizes = ShapeSolver(code.dims, code.constants).told_sizes([*known.values()])
        values: list[int] = []
        for p in code.params:
            values.append(arrays[p.name].ctypes.data if p.constant else 0)
            if p.constant:
                check_array(arrays[p.name], p, arrays[p.name].shape, values[-1], sizes)
        values += [sizes.get(d.name, 0) for d in code.dims]
        prepared = aligned_empty((0,), _BYTE)
        if code.preparation is not None:
            arguments = code.arguments(*values)
            what = f"what `{code.name}` computes from constant inputs"
            prepared = aligned_empty((code.preparation.prepared_bytes(arguments),), _BYTE, what)
            workspace = aligned_empty((code.preparation.workspace_bytes(arguments),), _BYTE, what)
            arguments[-1] = prepared.ctypes.data
            code.preparation.run(arguments, workspace.ctypes.data)
        return BoundKernel(code, Constants(known, {n: aligned_copy(arrays[n]) for n in code.kept}, prepared))


def load(compiled: Compiled) -> NativeKernel:
    """The compiled kernel, loaded into this process. It is freed with the last reference to the result."""
    return NativeKernel(compiled)
