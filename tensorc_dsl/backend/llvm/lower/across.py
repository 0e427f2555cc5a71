"""Combines partial results in registers across the lanes of vectors, as a tree instead of a chain.

A loop qualifies if it only folds contiguous elements of small private buffers into one element, such as the loop that
`rfactor` leaves after a vectorized loop. Its order is free, since folds are associative and commutative.
"""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.lower.bounds import stride
from tensorc_dsl.lower.flat import Alloc, Flat, Loop, Parallel, store_loads

FEWEST = 4
"""The number of partial results below which a tree is no shorter than a chain."""


def fold_across(body: tuple[Flat, ...], small: frozenset[str] = frozenset()) -> tuple[Flat, ...]:
    """The body with serial and unrolled loops over partial results vectorized; `small` has the private buffers around."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                pass
            case Loop(kind=LoopKind.VECTORIZED):
                pass  # the lanes are already in use
            case Loop() if _folds(s, small):
                s = replace(s, kind=LoopKind.VECTORIZED)
            case Alloc(name=name, space=space):
                s = replace(s, body=fold_across(s.body, small | {name} if space == "stack" else small - {name}))
            case Parallel():
                s = replace(s, body=fold_across(s.body))
            case _:
                s = replace(s, body=fold_across(s.body, small))
        out.append(s)
    return tuple(out)


def _folds(s: Loop, small: frozenset[str]) -> bool:
    begin, end = constant(s.begin), constant(s.end)
    if begin is None or end is None or end - begin < FEWEST or len(s.body) != 1:
        return False
    (store,) = s.body
    if not isinstance(store, Store) or fold_of(store) is None or s.var in free_vars(store.indices[0]):
        return False
    moving = [x for x in store_loads(store) if s.var in free_vars(x.indices[0])]
    return bool(moving) and all(x.buffer in small and stride(x.indices[0], s.var) == 1 for x in moving)
