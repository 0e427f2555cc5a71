"""Finds what changes inside of a vectorized loop: a `min`, a `max`, a remainder or the condition of a choice.

Such are the borders of an image. A vector that may reach beyond one gathers its elements one by one; where the choice is
decided, it is loaded at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Expr, children, constant, dtype_of, free_vars, index, sub
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, Loop, store_loads
from tensorc_dsl.lower.ranges import within
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds

LINE = 16
"""A vectorized loop is cut at multiples of this many iterations, so that what is between borders begins at a whole vector,
and at a cache line of 32-bit elements."""

MOST = 4
"""Choices that change at more places than these are no border: each part would have code of its own."""


def undecided(s: Loop, ranges: Ranges) -> Iterator[tuple[Compare, Ranges]]:
    """The conditions over the variable of a loop that decide the choices of vectors and, if the loop is unrolled, other ones,
    with the ranges of all loops around them."""
    own = frozenset({s.var}) if s.kind is LoopKind.UNROLLED else frozenset[str]()
    return ((c, r) for c, r in _inside((s,), ranges, own) if s.var in free_vars(c))


def on_whole_lines(cuts: list[int], begin: int, end: int) -> list[int]:
    """The places moved to multiples of `LINE`, each away from the nearer end, so that short pieces have the borders."""
    return sorted({-(-c // LINE) * LINE if c - begin <= end - c else c // LINE * LINE for c in cuts})


def _inside(body: tuple[Flat, ...], ranges: Ranges, lanes: frozenset[str]) -> Iterator[tuple[Compare, Ranges]]:
    for s in body:
        match s:
            case Store():
                for c in choices(s) if lanes else ():
                    if not lanes.isdisjoint(free_vars(c)):
                        yield from ((x, ranges) for x in conditions(c, ranges))
            case Loop():
                own = {s.var} if s.kind is LoopKind.VECTORIZED else set[str]()
                yield from _inside(s.body, within(ranges, s), lanes | own)
            case _:
                yield from _inside(s.body, within(ranges, s), lanes)


def conditions(e: Expr, ranges: Ranges) -> Iterator[Compare]:
    """The conditions on which the value of a choice depends."""
    match e:
        case Compare():
            yield e
        case Binary(op="min" | "max", lhs=a, rhs=b):
            yield from (Compare("<", sub(x, y), ZERO) for x in _operands(a) for y in _operands(b))
        case Binary(op="%", lhs=a, rhs=b):
            # Beyond a border of an image that repeats: remainders of more than one period inside are no border.
            period, (low, high) = constant(b), bounds(a, ranges)
            if period is None:
                yield Compare("<", a, ZERO)
                yield Compare("<", sub(a, b), ZERO)
            if period is not None and period > 0 and low is not None and high is not None:
                first, last = low // period, high // period
                if 0 < last - first <= MOST:
                    yield from (Compare("<", sub(a, index(period * k)), ZERO) for k in range(first + 1, last + 1))
        case _:
            pass


def _operands(e: Expr) -> tuple[Expr, ...]:
    """What an extreme of extremes is one of."""
    return (*_operands(e.lhs), *_operands(e.rhs)) if isinstance(e, Binary) and e.op in ("min", "max") else (e,)


@by_identity(4096)
def choices(s: Store) -> tuple[Expr, ...]:
    """The extremes, remainders and comparisons of indices in a store, each once. None if it adds to what it stores: the tile
    of a reduction stays whole, since it is in registers. A step of a scan reads other elements of its buffer."""
    if any((x.buffer, x.indices) == (s.buffer, s.indices) for x in store_loads(s)):
        return ()
    found: dict[Expr, None] = {}
    stack: list[Expr] = [*s.indices, s.value]
    while stack:
        e = stack.pop()
        if not free_vars(e):
            continue
        index_choice = isinstance(e, Binary) and e.op in ("min", "max", "%") and dtype_of(e) == INDEX
        if index_choice or (isinstance(e, Compare) and dtype_of(e.lhs) == INDEX):
            found[e] = None
        stack.extend(children(e))
    return tuple(found)
