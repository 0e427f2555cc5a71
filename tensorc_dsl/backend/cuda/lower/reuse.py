"""Steps of sums in registers stand around the sums, so that what several of them have in common is done once for a step.

`unrolled for i { for k { C[i] += A[i, k] * B[k] } }` loads `B` for each of the sums. The loop over `k` is moved outside. Each
sum keeps the order of its terms, so floats are the same bits. A condition of all terms of a step becomes a guard around them:
`(A[i, k] * B[k] if k < 9 else 0.0)` chooses between values for each of the sums.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from math import prod

from tensorc_dsl.affine.needed import needed
from tensorc_dsl.affine.simplify import linear_form
from tensorc_dsl.ir.expr import Expr, Var, conjunction, constant, free_vars, loads
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.decided import decided
from tensorc_dsl.lower.flat import Flat, If, Loop, store_loads

FEWEST_SUMS = 8
"""The fewest sums of a step that are worth a branch around them."""

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
    size = prod(map(len, counts))
    if size > MOST_SUMS:
        return False
    places = {sum(a * b for a, b in zip(at, steps.values(), strict=True)) for at in product(*counts)}
    return len(places) == size


def with_guards_of_steps(
    body: tuple[Flat, ...], private: Collection[str], above_zero: frozenset[str]
) -> tuple[Flat, ...]:
    """The same sums in private storage, with guards in place of conditions of terms that are the same in all sums of a step.

    `above_zero` are the buffers of `never_negative_zero`.
    """
    return tuple(
        s if isinstance(s, Store) else _guarded(s, private, above_zero) or _inside(s, private, above_zero) for s in body
    )


def _inside(s: Flat, private: Collection[str], above_zero: frozenset[str]) -> Flat:
    return s if isinstance(s, Store) else replace(s, body=with_guards_of_steps(s.body, private, above_zero))


def _guarded(s: Flat, private: Collection[str], above_zero: frozenset[str]) -> Flat | None:
    """An unrolled nest around a sum, under the conditions without which it changes nothing; None if there are none."""
    nest: list[Loop] = []
    at = s
    while isinstance(at, Loop) and at.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) and len(at.body) == 1:
        nest.append(at)
        (at,) = at.body
    if not isinstance(at, Store) or at.buffer not in private:
        return None
    count = prod((constant(x.end) or 0) - (constant(x.begin) or 0) for x in nest)
    own = {x.var for x in nest}
    found = tuple(c for c in needed(at, above_zero) if not loads(c) and free_vars(c).isdisjoint(own))
    cond = conjunction(found)
    if cond is None or count < FEWEST_SUMS:
        return None
    (inner,) = decided((at,), found)
    for x in reversed(nest):
        inner = replace(x, body=(inner,))
    return If(cond, (inner,))
