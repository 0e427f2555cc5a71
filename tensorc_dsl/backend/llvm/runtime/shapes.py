"""Solves the shapes of the arrays in a call for the sizes of open dimensions, and checks that they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorc_dsl.affine.solve_sizes import alternatives, solve_sizes
from tensorc_dsl.backend.memory import aligned_empty, strided_empty
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.strides import number_strides
from tensorc_dsl.lower.flat import Param, format_shape

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
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
