"""Cuts loops over rows of open length at the borders of images, so that what is between them has whole vectors.

A row that is cut into vectors reads `X[min(max(x * 16 + j - 1, 0), W - 1)]`, so each vector is gathered. With `j` in 0 .. 16
the choices are decided from the first iteration of `x` on in which `x * 16 - 1 >= 0`, up to the one in which `x * 16 + 15`
passes `W`. Between the two the elements are adjacent. In an image smaller than a vector there is nothing between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.linear import FALSE, TRUE, negate
from tensorc_dsl.affine.simplify import follows, simplify
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    BinaryOp,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    transform,
)
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store, map_store
from tensorc_dsl.lower.borders import undecided_vectors
from tensorc_dsl.lower.flat import Flat, If, Loop, Parallel
from tensorc_dsl.lower.open_partition import between, cut_at, possible
from tensorc_dsl.lower.ranges import hull, within

ROUNDS = 2
"""How often the part between borders is cut again: a mirror is a remainder, and a minimum of it."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The iterations of a loop from `low` on and before `high`, if there are borders, and the conditions that hold there."""

    low: Expr | None
    high: Expr | None
    facts: tuple[Expr, ...]


def cut_open_rows(body: tuple[Flat, ...], ranges: Ranges | None = None) -> tuple[Flat, ...]:
    """The same stores in the same order, with loops of open length cut at the borders of the vectors in them."""
    known: Ranges = ranges or {}
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Loop():
                out.extend(_loop(s, known, ROUNDS))
            case Parallel():
                inside = within(known, s)
                out.append(replace(s, body=_branches(s, cut_open_rows(s.body, inside), inside)))
            case _:
                out.append(replace(s, body=cut_open_rows(s.body, known)))
    return tuple(out)


def _loop(s: Loop, ranges: Ranges, rounds: int) -> tuple[Flat, ...]:
    here = within(ranges, s)
    is_open = constant(s.begin) is None or constant(s.end) is None
    found = _inside(s.var, s.body, here) if rounds and is_open and s.kind is LoopKind.SERIAL else None
    if found is None:
        return (replace(s, body=cut_open_rows(s.body, here)),)
    near = s.begin if found.low is None else between(found.low, s.begin, s.end, here)
    far = s.end if found.high is None else between(found.high, near, s.end, here)
    border = cut_open_rows(s.body, here)
    out: list[Flat] = [replace(s, end=near, body=border)] if possible(Compare("<", s.begin, near), here) else []
    if possible(Compare("<", near, far), here):
        body = tuple(_decided(x, found.facts) for x in s.body)
        out += _loop(replace(s, begin=near, end=far, body=body), ranges, rounds - 1)
    if possible(Compare("<", far, s.end), here):
        out.append(replace(s, begin=far, body=border))
    return tuple(out)


def _branches(s: Parallel, body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
    """A parallel loop stays one loop: what is between the borders is a branch inside it."""
    for var, extent in zip(s.vars, s.extents, strict=True):
        found = _inside(var, body, ranges) if constant(extent) is None else None
        if found is not None:
            conds = [Compare(">=", Var(var), found.low)] if found.low is not None else []
            conds += [Compare("<", Var(var), found.high)] if found.high is not None else []
            inside = conjunction(tuple(conds))
            assert inside is not None  # there is a border
            decided = tuple(_decided(x, found.facts) for x in body)
            return (If(inside, decided), If(negate(inside), body))
    return body


def _inside(var: str, body: tuple[Flat, ...], ranges: Ranges) -> Inside | None:
    """The iterations in which choices of vectors are decided; None if no choice is decided by the loop variable.

    What changes at a number is at the beginning of a row, and what changes at an open size is at its end.
    """
    low: list[Expr] = []
    high: list[Expr] = []
    facts: dict[Expr, None] = {}
    # What is known of a variable has to hold wherever it occurs: loops that were cut before have several parts.
    inner = hull(body)
    for cond in dict.fromkeys(c for c, _ in undecided_vectors(body, {}) if var in free_vars(c)):
        cut = cut_at(cond, var, inner, ranges)
        if cut is None:
            continue
        if dims_in(cut.sure) or dims_in(cut.maybe):
            high.append(cut.sure if cut.first else cut.maybe)
            facts[cond if cut.first else negate(cond)] = None
        else:
            low.append(cut.maybe if cut.first else cut.sure)
            facts[negate(cond) if cut.first else cond] = None
    if not facts:
        return None
    return Inside(_extreme("max", low, ranges), _extreme("min", high, ranges), tuple(facts))


def _extreme(op: BinaryOp, of: list[Expr], ranges: Ranges) -> Expr | None:
    return reduce(lambda a, b: simplify(Binary(op, a, b), ranges), dict.fromkeys(of)) if of else None


def _decided(s: Flat, facts: tuple[Expr, ...]) -> Flat:
    """A statement with the choices of indices that the facts decide."""

    def new(e: Expr) -> Expr:
        match e:
            case Binary(op="min" | "max" as op, lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if follows(Compare("<=", a, b), facts):
                    return a if op == "min" else b
                if follows(Compare("<=", b, a), facts):
                    return b if op == "min" else a
            case Binary(op="%", lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if follows(Compare(">=", a, ZERO), facts) and follows(Compare("<", a, b), facts):
                    return a
            case Compare(lhs=a) if dtype_of(a) == INDEX:
                if follows(e, facts):
                    return TRUE
                if follows(negate(e), facts):
                    return FALSE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case _:
                pass
        return e

    if isinstance(s, Store):
        return map_store(s, lambda e: transform(e, new))
    return replace(s, body=tuple(_decided(x, facts) for x in s.body))
