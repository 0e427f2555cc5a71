"""Finds the open dimensions that are determined by the shapes of some arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorc_dsl.affine.simplify import linear_form
from tensorc_dsl.ir.expr import Dim, Expr, dims_in
from tensorc_dsl.ir.program import Buffer


def told_by(buffers: Iterable[Buffer], dims: Collection[Dim]) -> frozenset[Dim]:
    """The dimensions of `dims` that extents determine: each is the only unknown one of an extent that is linear in it."""
    unknown = set(dims)
    extents = [linear_form(e, {})[0] for b in buffers for e in b.shape]
    while told := {d for terms in extents for d in unknown if d in terms and unknown & _mentioned(terms) == {d}}:
        unknown -= told
    return frozenset(dims) - unknown


def _mentioned(terms: Iterable[Expr]) -> frozenset[Dim]:
    return frozenset[Dim]().union(*map(dims_in, terms))
