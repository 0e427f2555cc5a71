"""Runs the only iteration of a scattered loop that changes anything: the one that data choose."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.ir.expr import ONE, Compare, Expr, add, conjunction, constant
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, hull, within
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import simplify_where
from tensorc_dsl.proof.sets.store_guards import Guarded, NotChosen, chosen_of


def scatter(body: tuple[Flat, ...], ranges: Ranges | None = None) -> tuple[Flat, ...]:
    """The same results, with each scattered loop as one iteration where the data choose one, and none elsewhere.

    scattered for b in 0 .. n { H[b] = H[b] + (1 if X[i] == b else 0) }
        ->  if 0 <= X[i] and X[i] < n { for b in X[i] .. X[i] + 1 { H[b] = … } }

    A loop for which the choice is not found runs all of its iterations.
    """
    known: Ranges = ranges or {}
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Loop(scattered=True):
                out.extend(_scattered(s, known))
            case _:
                out.append(replace(s, body=scatter(s.body, within(known, s))))
    return tuple(out)


def _scattered(s: Loop, ranges: Ranges) -> tuple[Flat, ...]:
    below = hull(s.body)
    own = within(ranges, s)
    try:
        found = chosen_of(s.var, frozenset(below), tuple(_stores(s.body, ())), {**own, **below})
    except NotChosen:
        return (replace(s, body=scatter(s.body, own), scattered=False),)
    if found is None:
        return ()
    one = Loop(s.var, found.at, add(found.at, ONE), LoopKind.SERIAL, scatter(s.body, own))
    inside_it = simplify_where((Compare(">=", found.at, s.begin), Compare("<", found.at, s.end)), ranges)
    alone = _guarded(inside_it, one)
    runs = () if constant(s.begin) is not None and constant(s.end) is not None else (Compare("<", s.begin, s.end),)
    return (_guarded((*runs, *found.path), alone),)


def _guarded(conds: tuple[Expr, ...], s: Flat) -> Flat:
    cond = conjunction(conds)
    return s if cond is None else If(cond, (s,))


def _stores(body: tuple[Flat, ...], guards: tuple[Expr, ...]) -> Iterator[Guarded]:
    """The stores with the conditions around them. Raises NotChosen for statements that are more than loops and guards."""
    for s in body:
        match s:
            case Store():
                yield guards, s
            case If():
                yield from _stores(s.body, (*guards, s.cond))
            case Loop():
                yield from _stores(s.body, guards)
            case _:
                raise NotChosen("holds more than stores")
