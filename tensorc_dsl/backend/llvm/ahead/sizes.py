"""How the sizes of open dimensions follow from the shapes of arrays, as steps for code to take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.simplify import linear_form
from tensorc_dsl.ir.expr import ZERO, Dim, Expr, add, dims_in, index, mul, sub
from tensorc_dsl.lower.flat import LowerError, Param


@dataclass(frozen=True, slots=True)
class Step:
    """`dim` is (the extent of an array's axis − `rest`) / `factor`, if it is anything; `rest` is over sizes found before."""

    dim: Dim
    param: int
    axis: int
    factor: int
    rest: Expr


def steps_to_sizes(params: Sequence[Param], dims: Sequence[Dim], given: Collection[Dim] = ()) -> tuple[Step, ...]:
    """A step for each of `dims` but those that are given. Raises LowerError where the shapes do not tell one."""
    known = {d.name for d in given}
    steps: list[Step] = []
    axes = [(k, axis, e) for k, p in enumerate(params) for axis, e in enumerate(p.shape)]
    while not known.issuperset(d.name for d in dims):
        step = next((s for at in axes if (s := _solved(*at, known)) is not None), None)
        if step is None:
            names = ", ".join(d.name for d in dims if d.name not in known)
            raise LowerError(f"the shapes of its arrays do not tell {names}")
        steps.append(step)
        known.add(step.dim.name)
    return tuple(steps)


def _solved(param: int, axis: int, e: Expr, known: set[str]) -> Step | None:
    """The one unknown of an extent, where the extent is linear in it."""
    if len({d.name for d in dims_in(e)} - known) != 1:
        return None
    terms, constant = linear_form(e, {})
    open_terms = [(atom, c) for atom, c in terms.items() if {d.name for d in dims_in(atom)} - known]
    if len(open_terms) != 1:
        return None
    ((dim, factor),) = open_terms
    if not isinstance(dim, Dim):
        return None
    rest: Expr = index(constant) if constant else ZERO
    for atom, c in terms.items():
        if atom is not dim:
            rest = add(rest, mul(atom, index(c))) if c > 0 else sub(rest, mul(atom, index(-c)))
    return Step(dim, param, axis, factor, rest)
