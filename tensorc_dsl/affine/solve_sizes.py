"""Solves the shapes of arrays for the sizes of open dimensions, as steps that run-time code and generated code take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.simplify import bounds, linear_form
from tensorc_dsl.ir.expr import ZERO, Binary, Dim, Expr, add, dims_in, index, mul, sub

Extents = tuple[Expr, ...]
"""The shape of an array, as expressions over open dimensions."""


@dataclass(frozen=True, slots=True)
class Step:
    """`dim` is (the extent of an array's axis − `rest`) / `factor`, if that is defined; both are over sizes found before.

    After all steps, every extent has to be compared with its value for the sizes that were found. Strides that an array
    declares are further extents: axes beyond its dimensions.
    """

    dim: Dim
    array: int
    axis: int
    factor: Expr
    rest: Expr

    @property
    def is_sure(self) -> bool:
        """Whether the factor is nonzero for all sizes."""
        low, high = bounds(self.factor, {})
        return (low is not None and low > 0) or (high is not None and high < 0)


def solve_sizes(shapes: Sequence[Extents], given: Iterable[Dim] = ()) -> tuple[Step, ...]:
    """A step for each open dimension that the shapes determine, besides those that are given, in an executable order.

    A step that is not sure is used only if no other one determines the size.
    """
    known = set(given)
    steps: list[Step] = []
    places = [(array, axis, e) for array, shape in enumerate(shapes) for axis, e in enumerate(shape)]
    while True:
        found = [s for at in places if (s := _solved(*at, known)) is not None]
        step = next((s for s in found if s.is_sure), None) or next(iter(found), None)
        if step is None:
            return tuple(steps)
        steps.append(step)
        known.add(step.dim)


def told_by(shapes: Sequence[Extents]) -> frozenset[Dim]:
    """The open dimensions that the shapes determine, for all sizes."""
    steps = solve_sizes(shapes)
    sure = next((n for n, s in enumerate(steps) if not s.is_sure), len(steps))
    return frozenset(s.dim for s in steps[:sure])


def alternatives(shapes: Sequence[Extents], dims: Iterable[Dim]) -> tuple[Step, ...]:
    """A step for each open dimension in each extent that is linear in it, over all other ones."""
    every = {*dims}
    places = [(array, axis, e) for array, shape in enumerate(shapes) for axis, e in enumerate(shape)]
    return tuple(s for at in places for d in dims_in(at[2]) if (s := _solved(*at, every - {d})) is not None)


def _solved(array: int, axis: int, e: Expr, known: set[Dim]) -> Step | None:
    """The step for the only unknown of an extent; None if the extent is not linear in it or has other unknowns."""
    unknown = dims_in(e) - known
    if len(unknown) != 1:
        return None
    (dim,) = unknown
    parts = _linear_in(dim, e)
    return None if parts is None or parts[0] == ZERO else Step(dim, array, axis, *parts)


def _linear_in(dim: Dim, e: Expr) -> tuple[Expr, Expr] | None:
    """A factor and a rest without `dim` such that the expression is `factor * dim + rest`; None if there are none."""
    if e == dim:
        return index(1), ZERO
    terms, constant = linear_form(e, {})
    factor: Expr = ZERO
    rest: Expr = index(constant)
    for atom, c in terms.items():
        parts = _atom_in(dim, atom)
        if parts is None:
            return None
        factor, rest = (_plus(x, part, c) for x, part in zip((factor, rest), parts, strict=True))
    return factor, rest


def _atom_in(dim: Dim, atom: Expr) -> tuple[Expr, Expr] | None:
    if dim not in dims_in(atom):
        return ZERO, atom
    if atom == dim:
        return index(1), ZERO
    if isinstance(atom, Binary) and atom.op == "*":
        inner, other = (atom.lhs, atom.rhs) if dim in dims_in(atom.lhs) else (atom.rhs, atom.lhs)
        parts = None if dim in dims_in(other) else _linear_in(dim, inner)
        return None if parts is None else (mul(parts[0], other), mul(parts[1], other))
    return None


def _plus(x: Expr, y: Expr, times: int) -> Expr:
    """`x + times * y`, written without a negative factor."""
    if y == ZERO:
        return x
    return add(x, mul(y, index(times))) if times > 0 else sub(x, mul(y, index(-times)))
