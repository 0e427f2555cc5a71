"""Computes the box of a buffer that one iteration accesses: a box per access, with its corner over the outer loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, constant, free_vars, sub
from tensorc_dsl.lower.flat import Flat, If, Loop, Parallel, Store, buffers_of, store_loads
from tensorc_dsl.lower.ranges import most, span
from tensorc_dsl.proof.sets.data_subscripts import depends_on_data
from tensorc_dsl.proof.sets.linear_forms import Atom, Context, Linear, Ranges, linear, to_expr
from tensorc_dsl.proof.sets.sets import extremes
from tensorc_dsl.proof.sets.simplify import conjuncts, simplify


@dataclass(frozen=True, slots=True)
class GuardedAccess:
    """One read or write inside a loop body, with the ranges of the loops in between and the guards around it.

    If `exact`, the loops run through their whole ranges; a loop with an open end may stop earlier.
    """

    write: bool
    indices: tuple[Expr, ...]
    inner: Ranges
    conds: tuple[Expr, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of a box: from `corner` + low to `corner` + high, inclusive; `corner` is over outer loops."""

    corner: Linear
    low: int
    high: int


def accesses(body: tuple[Flat, ...], buffer: str) -> list[GuardedAccess]:
    """Every access to `buffer`, in the order of one iteration: the reads of a store come before its write."""

    def go(part: tuple[Flat, ...], inner: Ranges, conds: tuple[Expr, ...], exact: bool) -> Iterator[GuardedAccess]:
        for s in part:
            match s:
                case Store():
                    if buffer not in buffers_of(s):
                        continue
                    for x in store_loads(s):
                        if x.buffer == buffer:
                            yield GuardedAccess(False, x.indices, inner, conds, exact)
                    if s.buffer == buffer:
                        yield GuardedAccess(True, s.indices, inner, conds, exact)
                case Loop(var=v, end=end):
                    known = exact and constant(end) is not None
                    yield from go(s.body, {**inner, v: span(end)}, conds, known)
                case Parallel(vars=names, extents=extents):
                    more = {v: span(e) for v, e in zip(names, extents, strict=True)}
                    known = exact and all(constant(e) is not None for e in extents)
                    yield from go(s.body, {**inner, **more}, conds, known)
                case If(cond=cond):
                    yield from go(s.body, inner, (*conds, *conjuncts(cond)), exact)
                case _:
                    yield from go(s.body, inner, conds, exact)

    return list(go(body, {}, (), True))


def side(e: Expr, inner: Ranges, outer: Ranges) -> Side | None:
    """The values of a subscript over the inner loops; None if they are unbounded or cannot be separated."""
    context = Context({**outer, **inner})
    form = linear(e, context)
    own: dict[Atom, int] = {}
    around: dict[Atom, int] = {}
    for a, c in form.terms.items():
        names = frozenset((a,)) if isinstance(a, str) else free_vars(a)
        moves = names & inner.keys() or (not isinstance(a, str) and depends_on_data((a,)))
        (own if moves else around)[a] = c
    low, high = context.range_of_terms(own, form.constant)
    return None if low is None or high is None else Side(Linear(around, 0), low, high)


def join(a: Side, b: Side) -> Side | None:
    """The smallest side that contains both; None if the difference of their corners is not a number."""
    if a.corner.terms != b.corner.terms:
        return None
    return Side(a.corner, min(a.low, b.low), max(a.high, b.high))


def reached(found: Sequence[GuardedAccess], d: int, outer: Ranges) -> Side | None:
    """The side along dimension `d` that contains what all accesses reach; None if it is not known.

    The guards of an access are used where it alone would make the side larger: the last round of a copy by many threads is
    cut, and has lines after the box that are not stored.
    """
    own = [side(a.indices[d], a.inner, outer) for a in found]
    box: Side | None = None
    for a, s in sorted(zip(found, own, strict=True), key=lambda x: bool(x[0].conds)):
        if s is None or (box is not None and join(box, s) is None):
            return None
        if a.conds and (box is None or s.low < box.low or s.high > box.high):
            s = _guarded(s, a, d, outer)
        box = s if box is None else join(box, s)
    return box


def _guarded(s: Side, a: GuardedAccess, d: int, outer: Ranges) -> Side:
    """The part of a side that an access reaches where its guards hold."""
    ends = extremes(sub(a.indices[d], to_expr(s.corner)), {**outer, **a.inner}, a.conds)
    return s if ends is None else Side(s.corner, max(s.low, ends[0]), min(s.high, ends[1]))


def clip(s: Side, extent: Expr) -> Side:
    """The part of a side inside the buffer; it is cut only if the corner is a number."""
    n = most(extent)
    return s if s.corner.terms else Side(s.corner, max(s.low, 0), s.high if n is None else min(s.high, n - 1))


def corner(s: Side) -> Expr:
    """The least subscript of a side."""
    return to_expr(s.corner.plus_constant(s.low))


def bounds_own_index(cond: Expr, indices: tuple[Expr, ...], shape: tuple[Expr, ...], ranges: Ranges) -> bool:
    """Whether a guard only requires that one of the subscripts is in bounds."""
    want = simplify(cond, ranges)
    for i, n in zip(indices, shape, strict=True):
        from_below, from_above = Compare(">=", i, ZERO), Compare("<", i, n)
        if want in (simplify(from_below, ranges), simplify(from_above, ranges)):
            return True
    return False
