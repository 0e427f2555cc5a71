"""Solves the shapes of the arrays in a call for the sizes of open dimensions, and checks that they agree."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.solve_sizes import solve_sizes
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Param, format_shape

Shape = tuple[int, ...]


class ShapeSolver:
    """Computes sizes from the shapes of the arrays given for `params`. The steps are found once, for all calls."""

    def __init__(self, dims: tuple[Dim, ...], params: Sequence[Param]) -> None:
        self._dims = dims
        self._params = tuple(params)
        self._steps = solve_sizes([p.shape for p in params])

    def all_sizes(self, shapes: Sequence[Shape]) -> dict[str, int]:
        """A size for each open dimension, such that every array has the shape of its parameter.

        Raises ValueError if there are none: a wrong number of dimensions, arrays that contradict each other, a size out of
        its range, or shapes that do not determine a size.
        """
        sizes = self.told_sizes(shapes)
        for d in self._dims:
            if d.name not in sizes:
                raise ValueError(f"the shapes given do not tell the size {d.name}; pass the outputs too")
        return {d.name: sizes[d.name] for d in self._dims}

    def told_sizes(self, shapes: Sequence[Shape]) -> dict[str, int]:
        """The sizes that the arrays determine. Raises ValueError if they contradict the declarations or each other."""
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
        for d in self._dims:
            if d.name in sizes and (sizes[d.name] < d.low or (d.high is not None and sizes[d.name] > d.high)):
                limits = f"at least {d.low}" if d.high is None else f"{d.low} to {d.high}"
                raise ValueError(f"{source[d.name]}: {d.name} is {sizes[d.name]}; this kernel takes {limits}")
        return sizes


def shape_for(p: Param, sizes: Sizes) -> Shape:
    """The shape of a parameter for these sizes. Raises ValueError if a dimension would be negative."""
    shape = tuple(_value(e, sizes) for e in p.shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"{p.name}: its shape {format_shape(p.shape)} is {shape} for {dict(sizes)}")
    return shape


def _value(e: Expr, sizes: Sizes) -> int:
    if isinstance(e, Dim):
        return sizes[e.name]
    n = constant(e)
    return evaluate_size(e, sizes) if n is None else n


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"
