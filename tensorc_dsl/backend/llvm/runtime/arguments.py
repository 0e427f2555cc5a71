"""The arguments of a call: what is an array for a parameter, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from tensorc_dsl.backend.llvm.runtime.dlpack import imported
from tensorc_dsl.ir.arrays import Array, as_stored, narrow
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.syntax.names import did_you_mean


class Sized(Protocol):
    """Anything with a size in bytes."""

    @property
    def nbytes(self) -> int: ...


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


def check_array(a: Array, p: Param, shape: tuple[int, ...], address: int) -> None:
    """Raises ValueError unless the array is dense, aligned, of that shape, and writeable for an output."""
    if a.shape != shape:
        raise ValueError(f"{p.name}: expected shape {shape}, got {a.shape}")
    if not a.flags.c_contiguous:
        # A copy of an output would be filled in its place, and the caller's array would keep its old values.
        copies = "pass a copy, in NumPy by `numpy.ascontiguousarray`, in PyTorch by `.contiguous()`"
        repair = _COPIED_BACK if p.output else copies
        raise ValueError(f"{p.name}: the array is not C-contiguous (strides {a.strides}); {repair}")
    if address % a.itemsize:
        repair = _COPIED_BACK if p.output else "pass a copy of it"
        raise ValueError(f"{p.name}: the data is not aligned to its {a.itemsize}-byte elements; {repair}")
    if p.output and not a.flags.writeable:
        raise ValueError(f"{p.name}: the array is read-only, but the kernel writes it; pass another one, or none")


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
    outputs = [p.name for p in params if p.output]
    wanted = names if any(name in given for name in outputs) else [n for n in names if n not in outputs]
    if missing := [name for name in wanted if name not in given]:
        raise ValueError(f"{', '.join(missing)}: not given; the kernel takes all its inputs, and all outputs or none")
    return tuple(given[name] for name in wanted)


def require_apart(params: Sequence[Param], bound: Sequence[Sized], addresses: Sequence[int]) -> None:
    """Raises ValueError if an output shares memory with another argument."""
    ends = [address + a.nbytes for address, a in zip(addresses, bound, strict=True)]
    for i, p in enumerate(params):
        if not p.output:
            continue
        for j, q in enumerate(params):
            empty = bound[i].nbytes == 0 or bound[j].nbytes == 0
            if i != j and not empty and addresses[i] < ends[j] and addresses[j] < ends[i]:
                raise ValueError(f"{p.name} and {q.name} share memory; an output needs memory of its own")
