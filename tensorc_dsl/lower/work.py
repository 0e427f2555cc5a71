"""The conditions without which the body of a loop changes nothing, wherever they stand: around its stores, or in folds."""

from __future__ import annotations

from collections.abc import Iterable

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, constant, free_vars
from tensorc_dsl.ir.memo import by_first
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Parallel, Shuffle, stores
from tensorc_dsl.proof.sets.store_guards import needed, parts

Needs = dict[Expr, bool]
"""Conditions in the order in which an iteration asks them, each with whether it is asked for certain where those before it
hold."""


def work(body: tuple[Flat, ...], above_zero: frozenset[str], own: frozenset[str] = frozenset()) -> Needs | None:
    """The conditions without one of which an iteration changes nothing; None if it changes nothing in any case.

    That a loop of the body runs is a condition like others. What an iteration stores in buffers of its own is no change:
    those that are made in it, and `own`.
    """
    return _all(body, own, above_zero)


def _all(body: tuple[Flat, ...], own: frozenset[str], above_zero: frozenset[str]) -> Needs | None:
    found = [_of(s, own, above_zero) for s in body]
    changes = [x for x in found if x is not None]
    if not changes:
        return None
    first, *others = changes
    out: Needs = {}
    certain = True
    for c, asked in first.items():
        if all(c in x for x in others):
            out[c] = certain and asked
        else:
            certain = False
    return out


def _of(s: Flat, own: frozenset[str], above_zero: frozenset[str]) -> Needs | None:
    match s:
        case Store():
            return None if s.buffer in own else dict.fromkeys(_needed(s, above_zero), True)
        case If(cond=cond):
            return _under(parts(cond), _all(s.body, own, above_zero))
        case Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
            made = {x.buffer for x in stores((s,))}
            return None if made and made <= own else {}
        case Loop():
            return _under(_runs(s.begin, s.end), _all(s.body, own, above_zero))
        case Parallel():
            return _under((c for e in s.extents for c in _runs(ZERO, e)), _all(s.body, own, above_zero))
        case Alloc(name=name):
            return _all(s.body, own | {name}, above_zero)


@by_first(4096)
def _needed(s: Store, above_zero: frozenset[str]) -> tuple[Expr, ...]:
    return needed(s, above_zero)


def in_folds(body: tuple[Flat, ...], above_zero: frozenset[str]) -> frozenset[Expr]:
    """The conditions of folds."""
    return frozenset(c for s in stores(body) for c in _needed(s, above_zero))


def _runs(begin: Expr, end: Expr) -> tuple[Expr, ...]:
    """The condition that a loop runs at all; none if it is known to."""
    low, high = constant(begin), constant(end)
    return () if low is not None and high is not None and low < high else (Compare("<", begin, end),)


def _under(conds: Iterable[Expr], found: Needs | None) -> Needs | None:
    return None if found is None else {**dict.fromkeys(conds, True), **found}


@by_first(512)
def asks(s: Flat, above_zero: frozenset[str]) -> frozenset[str]:
    """The names in the conditions of a statement."""
    if isinstance(s, Store):
        return frozenset[str]().union(*map(free_vars, _needed(s, above_zero)))
    own = frozenset[str]()
    if isinstance(s, If):
        own = free_vars(s.cond)
    elif isinstance(s, Loop):
        own = free_vars(s.begin) | free_vars(s.end)
    return own.union(*(asks(x, above_zero) for x in s.body))
