"""The arguments of a call: arrays for parameters, also from other libraries by DLPack; the sizes that their shapes say, and
what is wrong with one.

A subclass of NumPy's arrays may return any shape, and a kernel would access what lies behind its memory. So an array is
known by its type, not by its `__class__`, and read by NumPy's own fields. A device whose memory the CPU cannot read is
refused by name before DLPack is asked. New outputs are made by the library that all inputs are of, and by NumPy if there
are several: the type of a result must not depend on the order of the arguments.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import numpy as np

from tensorc_dsl.backend.memory import aligned_empty, strided_empty
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, as_stored, dlpack_code, library_name, narrow
from tensorc_dsl.ir.dtypes import BF16, F8E4M3, F8E5M2, U8, U16, DType
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, free_vars
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.sizes import Sizes, always_apart, broken_by, elements_spanned, evaluate_size, number_strides
from tensorc_dsl.lower.flat import Param, format_shape
from tensorc_dsl.proof.sets.constants import alternatives, solve_sizes
from tensorc_dsl.syntax.names import did_you_mean

# The arguments of a call: what is an array for a parameter, and what is wrong with one.


class Sized(Protocol):
    """Anything with a size in bytes."""

    @property
    def nbytes(self) -> int: ...


def spanned_bytes(a: Sized) -> int:
    """The bytes from the first element of an array to the end of the last, with those between that are not its own."""
    if not isinstance(a, np.ndarray):
        return a.nbytes
    array = cast(Array, a)
    size = array.itemsize
    return elements_spanned(array.shape, [n // size for n in array.strides]) * size


def array_for(p: Param, value: object, want: np.dtype[Any]) -> Array:
    """The array for a parameter, of the right type: read from memory, whatever its class reports."""
    kind = type(value)
    a: Array
    if issubclass(kind, np.ma.MaskedArray):
        raise ValueError(
            f"{p.name}: kernels know no masks; pass `.filled(value)` of the array, or `.data` to use what is under the mask"
        )
    if issubclass(kind, np.ndarray):
        # Attributes of a subclass may be overridden; NumPy's own method reads the fields.
        found = cast(Array, value)
        a = found if kind is np.ndarray else np.ndarray.view(found, np.ndarray)
    elif _speaks_dlpack(value):
        a = imported(p.name, value, p.dtype)
    elif is_number(value) and not p.shape and not p.output:
        a = _single(p, value, want)
    else:
        raise ValueError(f"{p.name}: expected an array, got {kind.__name__}; `numpy.asarray` makes one of many things")
    a = as_stored(a, p.dtype)
    if a.dtype != want:
        raise ValueError(f"{p.name}: expected {want} ({p.dtype}), got {a.dtype}; {_of_type(p, want)}")
    return a


_NO_SIZES: Sizes = {}
_COPIED_BACK = "leave the output out, and copy the result into it"


def _of_type(p: Param, want: np.dtype[Any]) -> str:
    """The repair for an array of another type."""
    if p.output:
        return "leave the output out, and convert the result"
    if want.kind == "u" and str(p.dtype) != f"u{8 * want.itemsize}":  # a type that NumPy does not have
        return f"pass the bits of its elements as {want}"
    return f"convert it first, in NumPy by `.astype(numpy.{want})`, in PyTorch by `.to(torch.{want})`"


def _speaks_dlpack(value: object) -> bool:
    try:
        return hasattr(value, "__dlpack__")
    except Exception:
        return True  # the slow path reports the error


def is_number(value: object) -> bool:
    """Whether it is a single number, of Python or NumPy."""
    return isinstance(value, bool | int | float | np.generic)


def _single(p: Param, value: Any, want: np.dtype[Any]) -> Array:
    """A number as an input without dimensions: floats are rounded to its type, other numbers must be exact."""
    given = np.asarray(value)
    if p.dtype.kind == "bool" or given.dtype.kind == "b":
        fits = p.dtype.kind == "bool" and given.dtype.kind == "b"
    elif p.dtype.is_float:
        fits = given.dtype.kind in "iuf"
    else:
        limits = np.iinfo(want)
        fits = given.dtype.kind in "iu" and int(limits.min) <= int(given) <= int(limits.max)
    if not fits:
        raise ValueError(f"{p.name}: expected a value of {p.dtype}, got {value!r}")
    return narrow(given, p.dtype)


def check_array(a: Array, p: Param, shape: tuple[int, ...], address: int, sizes: Sizes = _NO_SIZES) -> None:
    """Raises ValueError unless the array is laid out as declared, aligned, of that shape, and writeable for an output."""
    if a.shape != shape:
        raise ValueError(f"{p.name}: expected shape {shape}, got {a.shape}")
    if p.strides:
        check_strides(p, shape, a.strides, sizes)
    elif not a.flags.c_contiguous:
        # A copy of an output would be filled in its place, and the caller's array would keep its old values.
        copies = "pass a copy, in NumPy by `numpy.ascontiguousarray`, in PyTorch by `.contiguous()`"
        repair = _COPIED_BACK if p.output else copies
        raise ValueError(
            f"{p.name}: the array is not C-contiguous (strides {a.strides}); {repair}, or declare its layout:"
            f" {parameter_for_layout(p, a)}"
        )
    if address % a.itemsize:
        repair = _COPIED_BACK if p.output else "pass a copy of it"
        raise ValueError(f"{p.name}: the data is not aligned to its {a.itemsize}-byte elements; {repair}")
    if p.output and not a.flags.writeable:
        raise ValueError(f"{p.name}: the array is read-only, but the kernel writes it; pass another one, or none")


def parameter_for_layout(p: Param, a: Array) -> str:
    """A declaration of a parameter that takes arrays of the layout of `a`: `A: f32[M, K] strides [1, S]`."""
    steps = [n // a.itemsize if n % a.itemsize == 0 else None for n in a.strides]
    if any(n is None or n < 0 for n in steps):
        return "strides are whole elements and not negative, so there is none"
    used = {d.name for e in p.shape for d in dims_in(e)}
    free = itertools.chain(["S"], (f"S{k}" for k in itertools.count(1)))
    names = (n for n in free if n not in used)
    return f"`{p.name}: {p.dtype}[…] strides [{', '.join(str(n) if n in (0, 1) else next(names) for n in steps)}]`"


def check_strides(p: Param, shape: tuple[int, ...], strides: tuple[int, ...], sizes: Sizes) -> None:
    """Raises ValueError unless these strides, in bytes, are the declared ones, and elements of an output are apart.

    Along an extent of 1, and in an array without elements, any stride is right.
    """
    want, size = number_strides(shape, p.strides, sizes), p.dtype.bytes
    told = ", ".join(f"{d.name} = {sizes[d.name]}" for d in sorted({d for e in p.strides for d in dims_in(e)}, key=str))
    text = f"strides {format_shape(p.strides)}{f' ({told})' * bool(told)}"
    if 0 not in shape and any(n > 1 and s != w * size for n, s, w in zip(shape, strides, want, strict=True)):
        raise ValueError(
            f"{p.name}: expected {text} in elements of {size} bytes, got {strides} in bytes; pass an array of that layout, or"
            " declare another one"
        )
    if p.output and not always_apart(shape, want):
        raise ValueError(f"{p.name}: with {text} elements of shape {shape} share a place; an output has one for each")


def in_order(params: Sequence[Param], arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The arrays of a call in the order of the parameters: those without a name are the first ones.

    Raises ValueError for a name that is none of a parameter, an array that is given twice, an input that is missing, and
    outputs of which only some are given.
    """
    names = [p.name for p in params]
    given = dict(zip(names, arrays, strict=False))
    if len(arrays) > len(names):
        raise ValueError(
            f"the kernel takes {len(names)} arrays ({', '.join(names)}); {len(arrays)} given without a name"
        )
    for name in named:
        if name not in names:
            close = did_you_mean(name, names)
            raise ValueError(f"the kernel has no array {name!r}" + (f"; {close}" if close else ""))
        if name in given:
            raise ValueError(f"{name}: given twice, without its name and with it")
    given |= named
    outputs = [p.name for p in params if not p.given]
    wanted = names if any(name in given for name in outputs) else [n for n in names if n not in outputs]
    if missing := [name for name in wanted if name not in given]:
        raise ValueError(f"{', '.join(missing)}: not given; the kernel takes all its inputs, and all outputs or none")
    return tuple(given[name] for name in wanted)


def require_apart(params: Sequence[Param], bound: Sequence[Sized], addresses: Sequence[int]) -> None:
    """Raises ValueError if an output shares memory with another argument."""
    ends = [address + spanned_bytes(a) for address, a in zip(addresses, bound, strict=True)]
    for i, p in enumerate(params):
        if not p.output:
            continue
        for j, q in enumerate(params):
            empty = bound[i].nbytes == 0 or bound[j].nbytes == 0
            if i != j and not empty and addresses[i] < ends[j] and addresses[j] < ends[i]:
                raise ValueError(f"{p.name} and {q.name} share memory; an output needs memory of its own")


# Solves the shapes of the arrays in a call for the sizes of open dimensions, and checks that they agree.


Shape = tuple[int, ...]


@frozen
class Described:
    """The shape of an array and its strides in bytes."""

    shape: Shape
    strides: Shape

    @staticmethod
    def of(a: Array) -> Described:
        return Described(a.shape, a.strides)


class ShapeSolver:
    """Computes sizes from the shapes of the arrays given for `params`, and from their strides where these are declared. The
    steps are found once, for all calls."""

    def __init__(self, dims: tuple[Dim, ...], params: Sequence[Param]) -> None:
        self._dims = dims
        self._params = tuple(params)
        self._steps = solve_sizes([p.shape for p in params])
        self._strides = alternatives([p.strides for p in params], dims)

    def all_sizes(self, arrays: Sequence[Described]) -> dict[str, int]:
        """A size for each open dimension, such that every array has the shape of its parameter.

        Raises ValueError if there are none: a wrong number of dimensions, arrays that contradict each other, a size out of
        its range, or shapes that do not determine a size.
        """
        sizes = self.told_sizes(arrays)
        for d in self._dims:
            if d.name not in sizes:
                raise ValueError(f"the arrays given do not tell the size {d.name}; pass the outputs too")
        return {d.name: sizes[d.name] for d in self._dims}

    def told_sizes(self, arrays: Sequence[Described]) -> dict[str, int]:
        """The sizes that the arrays determine. Raises ValueError if they contradict the declarations or each other."""
        shapes = [a.shape for a in arrays]
        for p, shape in zip(self._params, shapes, strict=True):
            if len(shape) != len(p.shape):
                raise ValueError(
                    f"{p.name}: expected {_dimensions(len(p.shape))}, {format_shape(p.shape)}; got shape {shape}"
                )
        sizes: dict[str, int] = {}
        source: dict[str, str] = {}
        for s in self._steps:
            if sizes.keys() >= {d.name for d in dims_in(s.factor) | dims_in(s.rest)} and (
                factor := _value(s.factor, sizes)
            ):
                sizes[s.dim.name] = (shapes[s.array][s.axis] - _value(s.rest, sizes)) // factor
                source[s.dim.name] = self._params[s.array].name
        for p, shape in zip(self._params, shapes, strict=True):
            for k, (e, n) in enumerate(zip(p.shape, shape, strict=True)):
                names = sorted(d.name for d in dims_in(e))
                if sizes.keys() >= set(names) and _value(e, sizes) != n:
                    told = ", ".join(f"{d} = {sizes[d]} from {source[d]}" for d in names)
                    raise ValueError(
                        f"{p.name}: dimension {k} is {n}, expected {format_expr(e)}{f' ({told})' * bool(told)}"
                    )
        self._tell_strides(arrays, sizes, source)
        for d in self._dims:
            if d.name in sizes and (sizes[d.name] < d.low or (d.high is not None and sizes[d.name] > d.high)):
                limits = f"at least {d.low}" if d.high is None else f"{d.low} to {d.high}"
                raise ValueError(f"{source[d.name]}: {d.name} is {sizes[d.name]}; this kernel takes {limits}")
        if (broken := broken_by(self._dims, sizes)) is not None:
            told = ", ".join(f"{n} is {sizes[n]} from {source[n]}" for n in sorted(free_vars(broken)))
            raise ValueError(f"{told}; this kernel takes {format_expr(broken)}")
        return sizes

    def _tell_strides(self, arrays: Sequence[Described], sizes: dict[str, int], source: dict[str, str]) -> None:
        """Add the sizes that strides tell. One along an extent of 1 or 0 may be any: if nothing else tells a size, it is the
        nearest in its range."""
        for free in (False, True):
            for s in self._strides:
                p, a, extent = self._params[s.array], arrays[s.array], arrays[s.array].shape[s.axis]
                known = sizes.keys() >= {d.name for d in dims_in(s.factor) | dims_in(s.rest)}
                if s.dim.name in sizes or not known or (extent <= 1 or 0 in a.shape) != free:
                    continue
                factor, stride = _value(s.factor, sizes), a.strides[s.axis] // p.dtype.bytes
                if factor:
                    told = (stride - _value(s.rest, sizes)) // factor
                    if free:
                        told = max(s.dim.low, told if s.dim.high is None else min(told, s.dim.high))
                    sizes[s.dim.name], source[s.dim.name] = told, p.name


def shape_for(p: Param, sizes: Sizes) -> Shape:
    """The shape of a parameter for these sizes. Raises ValueError if a dimension would be negative."""
    shape = tuple(_value(e, sizes) for e in p.shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"{p.name}: its shape {format_shape(p.shape)} is {shape} for {dict(sizes)}")
    return shape


def new_array(p: Param, shape: Shape, dtype: np.dtype[Any], sizes: Sizes) -> Array:
    """An uninitialised array for a parameter, laid out as declared."""
    what = f"the output `{p.name}`"
    if not p.strides:
        return aligned_empty(shape, dtype, what)
    return strided_empty(shape, number_strides(shape, p.strides, sizes), dtype, what)


def _value(e: Expr, sizes: Sizes) -> int:
    if isinstance(e, Dim):
        return sizes[e.name]
    n = constant(e)
    return evaluate_size(e, sizes) if n is None else n


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"


# Exchanges arrays with other libraries by DLPack: imports them as NumPy arrays, and exports NumPy arrays.
#
# NumPy imports the capsule of an exporter and refuses arrays that it does not support. This module adds two things. NumPy has
# no bf16 and no floats of 8 bits: the element type in the capsule is replaced by that of the bit patterns, or the reverse,
# before it is read. And NumPy takes a null address for a request for new memory.


_DEVICES = {2: "a CUDA device", 8: "a Metal device", 10: "a ROCm device"}
_HOST = (1, 3, 11, 13)
"""Device types whose memory the CPU can read: its own, pinned for CUDA or ROCm, or managed by CUDA."""

_BITS = {BF16: U16, F8E4M3: U8, F8E5M2: U8}
"""The types that NumPy has not, with those of their bits."""

_TYPE = {b"dltensor": 20, b"dltensor_versioned": 52}
"""The offset of the element type in the struct of each capsule name: 8 bits of kind, 8 of bits, 16 of lanes."""

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Recoded:
    """Exports the array of another exporter, with one type of elements called another one of the same width."""

    def __init__(self, exporter: Any, found: DType, called: DType) -> None:
        self._exporter = exporter
        self._found = dlpack_code(found), found.bits
        self._called = dlpack_code(called)

    def __dlpack_device__(self) -> Any:
        return self._exporter.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        capsule = self._exporter.__dlpack__(**wishes)
        for name, offset in _TYPE.items():
            if _is_valid(capsule, name):
                start = _pointer(capsule, name)
                # Another major version may have other offsets. NumPy reports that it does not know the version.
                known = name == b"dltensor" or ctypes.c_uint32.from_address(start).value == 1
                kind, bits = (ctypes.c_uint8.from_address(start + offset + n) for n in (0, 1))
                if known and (kind.value, bits.value) == self._found:
                    kind.value = self._called
        return capsule


def imported(name: str, value: Any, dtype: DType) -> Array:
    """The memory of an exporter as an array, for a parameter of that name and type. Raises ValueError if it is unreadable."""
    where = f"{name}: {type(value).__name__}"
    try:
        device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _HOST[0]
        a: Array | None = None
        if int(device) in _HOST:
            a = np.from_dlpack(_Recoded(value, dtype, _BITS[dtype]) if dtype in _BITS else value)
    except Exception as e:
        said = str(e).partition("\n")[0].rstrip(".")
        raise ValueError(f"{where} cannot be read by DLPack: {type(e).__name__}: {said}{_repair(value, dtype)}") from e
    if a is None:
        known = _DEVICES.get(int(device), f"device type {device}")
        raise ValueError(f"{where}: it is on {known}; kernels run on the CPU: pass a copy that is there")
    if a.size and a.flags.owndata:
        raise ValueError(f"{where}: it has no memory")
    return a


def _repair(value: object, dtype: DType) -> str:
    """What else can be passed for an array that its library does not export."""
    kind = type(value)
    if "Tracer" in kind.__name__ and kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return "; call kernels outside of jit, grad and vmap, or by jax.pure_callback"
    found, takes = "", library_name(dtype)
    with suppress(Exception):  # of an attribute of the library's
        found = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return (
        f"; it has elements {found}, the kernel takes {takes} ({dtype}): convert it first"
        if found not in ("", takes)
        else ""
    )


FromDLPack = Callable[[Any], Any]


def library_of(values: Iterable[Any]) -> FromDLPack | None:
    """`from_dlpack` of the single library of all of the arrays; None if that is NumPy, or there are several.

    A library is found by the package in which an array's type, or a base of it, is defined; else by the array's
    namespace.
    """
    found = {_library(v) for v in values}
    return found.pop() if len(found) == 1 else None


def _library(value: object) -> FromDLPack | None:
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return None
    for t in kind.__mro__:
        maker = getattr(sys.modules.get(t.__module__.partition(".")[0]), "from_dlpack", None)
        if callable(maker):
            return maker
    namespace = getattr(value, "__array_namespace__", None)
    return None if namespace is None else namespace().from_dlpack


def exported(name: str, a: Array, dtype: DType, make: FromDLPack) -> Any:
    """A new array as an array of another library over the same memory. Raises ValueError if the library refuses it."""
    try:
        return make(_Recoded(a, _BITS[dtype], dtype) if dtype in _BITS else a)
    except Exception as e:
        raise ValueError(
            f"{name}: the library of the inputs does not take {dtype} by DLPack: {type(e).__name__}: {e}; pass an output too"
        ) from e
