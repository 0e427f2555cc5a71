"""Rewrites the statements below a loop when its variable is replaced by an expression over new loops."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from tensorc_dsl.ir.expr import ZERO, Expr, constant, free_vars, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import For, Iter, Stmt, with_body
from tensorc_dsl.proof.sets.linear_forms import Interval
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify, simplify_where


def replace_variables(
    stmts: tuple[Stmt, ...],
    values: Mapping[str, Expr],
    around: tuple[For, ...],
    guard: tuple[Expr, ...] = (),
) -> tuple[Stmt, ...]:
    """`stmts`, which stand inside the loops `around`, with variables replaced and `guard` added to every block.

    Expressions with a replaced variable are simplified for the ranges of the loops around them.
    """
    return _statements(stmts, values, extent_ranges(around), guard)


def _statements(
    stmts: tuple[Stmt, ...], values: Mapping[str, Expr], ranges: Mapping[str, Interval], guard: tuple[Expr, ...]
) -> tuple[Stmt, ...]:
    names = values.keys()

    def new(e: Expr) -> Expr:
        return e if names.isdisjoint(free_vars(e)) else simplify(substitute(e, values), ranges)

    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            loop = s if (extent := new(s.extent)) is s.extent else replace(s, extent=extent)
            body = _statements(s.body, values, {**ranges, **extent_ranges((loop,))}, guard)
            out.append(loop if all(map(is_, body, s.body)) else with_body(loop, body))
        else:
            iters = tuple(
                [it if (e := new(it.binding)) is it.binding else Iter(it.name, it.kind, it.extent, e) for it in s.iters]
            )
            where = s.where
            if guard or any(not names.isdisjoint(free_vars(c)) for c in where):
                where = simplify_where((*(substitute(c, values) for c in where), *guard), ranges)
            same = where is s.where and all(map(is_, iters, s.iters))
            out.append(s if same else replace(s, iters=iters, where=where))
    return tuple(out)


def without_single(loop: For, around: tuple[For, ...]) -> For:
    """The loop; if it runs at most once, with 0 in place of its variable in all statements below it.

    So no reduction iterator depends on a loop that does not run in order, even if the loop has a single iteration.
    """
    extent = constant(loop.extent)
    if extent is None or extent > 1:
        return loop
    return replace(loop, body=replace_variables(loop.body, {loop.var: ZERO}, (*around, loop)))


def loops_below(loop: For) -> tuple[For, ...]:
    """The loops inside a loop, itself not included, in text order."""
    out: list[For] = []
    for s in loop.body:
        if isinstance(s, For):
            out += (s, *loops_below(s))
    return tuple(out)
