"""Steps of sums in registers stand around the sums, so that what several of them have in common is loaded once for a step.

`unrolled for i { for k { C[i] += A[i, k] * B[k] } }` loads `B` for each of the sums. The loop over `k` is moved outside. Each
sum keeps the order of its terms, so floats are the same bits.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

from tensorc_dsl.affine.simplify import linear_form
from tensorc_dsl.ir.expr import Expr, Var, constant, free_vars, loads
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, store_loads

MOST_SUMS = 1024
"""The most sums whose places are compared: no thread has registers for more."""


def with_steps_outside(body: tuple[Flat, ...], private: Collection[str]) -> tuple[Flat, ...]:
    """The same sums, with terms in the same order, and loops over terms outside of loops over sums in private storage."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        moved = _moved(s, private)
        out.append(replace(s, body=with_steps_outside(s.body, private)) if moved is None else moved)
    return tuple(out)


def _moved(s: Flat, private: Collection[str]) -> Flat | None:
    """The nest with loops over terms outside, and its conditions inside; None if it has none to move, or may not."""
    nest: list[Loop | If] = []
    at = s
    while isinstance(at, Loop | If):
        nest.append(at)
        if len(at.body) != 1:
            return None
        (at,) = at.body
    if not isinstance(at, Store) or at.atomic or at.buffer not in private:
        return None
    every = [x for x in nest if isinstance(x, Loop)]
    first = next((n for n, x in enumerate(every) if x.kind is LoopKind.UNROLLED), len(every))
    terms = [x for x in every[first:] if x.kind is LoopKind.SERIAL and not x.scattered]
    sums = [x for x in every[first:] if x not in terms]
    if not terms or not _independent(nest, sums, terms) or not _adds_to_one_of(at, sums, terms):
        return None
    inner: Flat = at
    for x in reversed(nest):
        if isinstance(x, If):
            inner = replace(x, body=(inner,))
    for x in reversed((*every[:first], *terms, *sums)):
        inner = replace(x, body=(inner,))
    return inner


def _independent(nest: list[Loop | If], sums: list[Loop], terms: list[Loop]) -> bool:
    """Whether no bound or condition reads data, those of terms are the same for all sums, and those of sums are known."""
    own = {x.var for x in sums}
    if any(loads(e) for x in nest for e in ((x.cond,) if isinstance(x, If) else (x.begin, x.end))):
        return False
    if any(not free_vars(e).isdisjoint(own) for x in terms for e in (x.begin, x.end)):
        return False
    return all(constant(x.begin) is not None and constant(x.end) is not None for x in sums)


def _adds_to_one_of(s: Store, sums: list[Loop], terms: list[Loop]) -> bool:
    """Whether a store adds to what it writes, at a place that is the same for all terms and another one for each sum."""
    read = [x for x in store_loads(s) if x.buffer == s.buffer]
    if not read or any(x.indices != s.indices for x in read):
        return False
    (place,) = s.indices
    if not free_vars(place).isdisjoint(x.var for x in terms):
        return False
    form, _ = linear_form(place, {})
    steps: dict[Expr, int] = {Var(x.var): form.get(Var(x.var), 0) for x in sums}
    if any(not free_vars(e).isdisjoint(x.var for x in sums) for e in form if e not in steps):
        return False
    counts = [range((constant(x.end) or 0) - (constant(x.begin) or 0)) for x in sums]
    size = 1
    for n in counts:
        size *= len(n)
    if size > MOST_SUMS:
        return False
    places = {sum(a * b for a, b in zip(at, steps.values(), strict=True)) for at in product(*counts)}
    return len(places) == size
