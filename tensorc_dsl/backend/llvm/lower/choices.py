"""Takes choices that all lanes share out of vectorized loops: those of a row that may be the border of an image.

for j in 0 .. 64 vectorized { S[…] = a if i > 0 else b }
  ->  if i > 0 { for j … { S[…] = a } } if not i > 0 { for j … { S[…] = b } }

A choice in a vector is a branch for each vector otherwise, and what several vectors load is not shared across it. Most such
choices are decided where loops are cut; those of tiles that move with time are not, since their rows depend on several loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    Compare,
    Expr,
    Logic,
    Not,
    Select,
    children,
    conjunction,
    dtype_of,
    free_vars,
    loads,
    transform,
)
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, body_of, store_loads

MOST = 8
"""The largest number of versions of a loop."""


def take_out_choices(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The body with vectorized loops under the conditions that their lanes share."""
    out: list[Flat] = []
    for is_row, run in groupby(body, _is_row):
        if is_row:
            out.extend(_versions(tuple(run), MOST))
        else:
            out.extend(s if isinstance(s, Store) else replace(s, body=take_out_choices(s.body)) for s in run)
    return tuple(out)


def _is_row(s: Flat) -> bool:
    """Whether a statement is a vectorized loop over stores that do not add up: what adds up is in registers."""
    return (
        isinstance(s, Loop)
        and s.kind is LoopKind.VECTORIZED
        and all(
            isinstance(x, Store) and not any((r.buffer, r.indices) == (x.buffer, x.indices) for r in store_loads(x))
            for x in s.body
        )
    )


def _versions(run: tuple[Flat, ...], most: int) -> tuple[Flat, ...]:
    """At most so many versions of some rows, each under its conditions."""
    cond = next(_shared(run), None) if most > 1 else None
    if cond is None:
        return run
    yes, no = (tuple(_decided(s, cond, holds) for s in run) for holds in (True, False))
    return (If(cond, _versions(yes, most // 2)), If(Not(cond), _versions(no, most // 2)))


def _shared(run: tuple[Flat, ...]) -> Iterator[Expr]:
    """The conditions of choices that the lanes of all rows share, those of outer choices first."""
    lanes = frozenset(s.var for s in run if isinstance(s, Loop))
    for s in run:
        for x in body_of(s):
            stack = [x.value] if isinstance(x, Store) else []
            while stack:
                e = stack.pop()
                cond = _uniform(e, lanes) if isinstance(e, Select) else None
                if cond is not None:
                    yield cond
                stack.extend(reversed(children(e)))


def _uniform(e: Select, lanes: frozenset[str]) -> Expr | None:
    """The part of a choice's condition that is about positions and none of the lanes; None if there is none."""
    return conjunction(tuple(c for c in conjuncts(e.cond) if _is_about_positions(c) and lanes.isdisjoint(free_vars(c))))


def _is_about_positions(c: Expr) -> bool:
    """Whether a condition compares indices and loads nothing."""
    if isinstance(c, Compare):
        return dtype_of(c.lhs) == INDEX and not loads(c)
    return isinstance(c, (Logic, Not)) and all(map(_is_about_positions, children(c)))


def _decided(s: Flat, cond: Expr, holds: bool) -> Flat:
    """A row in which choices by that condition are made."""
    assert isinstance(s, Loop)  # see `_is_row`
    lanes = frozenset({s.var})

    def made(e: Expr) -> Expr:
        if not isinstance(e, Select) or _uniform(e, lanes) != cond:
            return e
        rest = conjunction(tuple(c for c in conjuncts(e.cond) if c not in conjuncts(cond)))
        return e.other if not holds else e.then if rest is None else Select(rest, e.then, e.other)

    return replace(s, body=tuple(replace(x, value=transform(x.value, made)) for x in s.body if isinstance(x, Store)))
