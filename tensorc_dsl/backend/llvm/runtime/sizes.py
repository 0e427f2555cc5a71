"""The sizes of open dimensions, read off the shapes of the arrays that a kernel is called with."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.simplify import linear_form
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in, index, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Param, format_shape

Shape = tuple[int, ...]


def infer_sizes(dims: tuple[Dim, ...], given: Sequence[tuple[Param, Shape]]) -> dict[str, int]:
    """A size for each of `dims`, such that every array given has the shape that its parameter then has.

    ValueError when there is none: a wrong number of dimensions, two arrays that do not fit each other, a size out of its
    range, or shapes that do not tell a size.
    """
    sizes = told_sizes(dims, given)
    for d in dims:
        if d.name not in sizes:
            raise ValueError(f"the shapes given do not tell the size {d.name}; pass the outputs too")
    return sizes


def told_sizes(dims: tuple[Dim, ...], given: Sequence[tuple[Param, Shape]]) -> dict[str, int]:
    """The sizes that some arrays tell, by themselves. ValueError where they contradict what is declared, or each other."""
    for p, shape in given:
        if len(shape) != len(p.shape):
            raise ValueError(
                f"{p.name}: expected {_dimensions(len(p.shape))}, {format_shape(p.shape)}; got shape {shape}"
            )
    sizes: dict[str, int] = {}
    source: dict[str, str] = {}
    waiting = [(p, k, e, n) for p, shape in given for k, (e, n) in enumerate(zip(p.shape, shape, strict=True))]
    while True:
        later: list[tuple[Param, int, Expr, int]] = []
        for p, k, e, n in waiting:
            unknown = {d.name for d in dims_in(e)} - sizes.keys()
            found = _solved(e, n, sizes) if len(unknown) == 1 else None
            if found is not None:
                sizes[found[0]] = found[1]
                source[found[0]] = p.name
            if found is None and unknown:
                later.append((p, k, e, n))
            elif _value(e, sizes) != n:
                told = ", ".join(f"{d} = {sizes[d]} from {source[d]}" for d in sorted(d.name for d in dims_in(e)))
                raise ValueError(
                    f"{p.name}: dimension {k} is {n}, expected {format_expr(e)}{f' ({told})' * bool(told)}"
                )
        if len(later) == len(waiting):
            break
        waiting = later
    for d in dims:
        if d.name in sizes and (sizes[d.name] < d.low or (d.high is not None and sizes[d.name] > d.high)):
            limits = f"at least {d.low}" if d.high is None else f"{d.low} to {d.high}"
            raise ValueError(f"{source[d.name]}: {d.name} is {sizes[d.name]}; this kernel takes {limits}")
    return sizes


def shape_for(p: Param, sizes: Sizes) -> Shape:
    """The shape of a parameter for these sizes. ValueError when a dimension would be negative."""
    shape = tuple(_value(e, sizes) for e in p.shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"{p.name}: its shape {format_shape(p.shape)} is {shape} for {dict(sizes)}")
    return shape


def _value(e: Expr, sizes: Sizes) -> int:
    n = constant(e)
    return evaluate_size(e, sizes) if n is None else n


def _solved(e: Expr, n: int, sizes: Sizes) -> tuple[str, int] | None:
    """The one unknown of `e = n` and its value; None where the equation is not linear, or has no solution."""
    if isinstance(e, Dim):
        return e.name, n
    terms, rest = linear_form(substitute(e, {name: index(size) for name, size in sizes.items()}), {})
    if len(terms) != 1:
        return None
    ((atom, factor),) = terms.items()
    return (atom.name, (n - rest) // factor) if isinstance(atom, Dim) else None


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"
