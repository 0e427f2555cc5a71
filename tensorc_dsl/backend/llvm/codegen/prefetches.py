"""Which lines of caches a loop fetches ahead, and where: a few at the beginning of an iteration, many by the loops inside.

A tile of a product reads the next panel for the first time all at once, and waits for memory; the tiles after it read the
panel from caches. A line that is fetched in every few steps of the tiles before comes while they compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import ONE, Expr, Var, add, constant, free_vars, index, mul, sub, substitute
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.ir.target import CACHE_LINE
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, Parallel, inside, store_loads, stores
from tensorc_dsl.proof.sets.simplify import simplify

MOST_LINES = 16
"""The most lines of a buffer that an iteration fetches ahead: a core waits for about as many at once."""

FIRST, SECOND = 3, 2
"""The nearest cache that a line is fetched into, in LLVM's numbers. What is read in a while would push out of the first one
what is read now."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """In each iteration of `loop` the lines of these elements are fetched into this cache."""

    loop: Loop
    places: tuple[Expr, ...]
    cache: int


def fetch_ahead(s: Loop, buffer: str, distance: int, size: int) -> Fetch | None:
    """How the loop fetches what it reads of a buffer, with elements of `size` bytes, `distance` iterations later; None if
    that is too much, or if it is not known what that is."""
    places = lines_ahead(s, buffer, distance, size)
    return Fetch(s, places, FIRST) if places else _spread(s, buffer, distance, max(1, CACHE_LINE // size))


def lines_ahead(s: Loop, buffer: str, distance: int, size: int) -> tuple[Expr, ...]:
    """The first elements of the lines of a buffer, with elements of `size` bytes, that the loop reads `distance` iterations
    later; none if these are too many, or if which they are is not known."""
    out: dict[Expr, None] = {}
    within = [x for x in inside(s.body) if isinstance(x, Loop)]
    for e in _read(s.body, buffer):
        region = _later(s, e, distance, within)
        if region is None:
            return ()
        begin, span = region
        out |= {simplify(add(begin, index(n)), {}): None for n in range(0, span + 1, max(1, CACHE_LINE // size))}
    return tuple(out) if len(out) <= MOST_LINES else ()


def _read(body: Sequence[Flat], buffer: str) -> list[Expr]:
    """The indices at which statements read a buffer."""
    return list({x.indices[0]: None for t in stores(tuple(body)) for x in store_loads(t) if x.buffer == buffer})


def _later(s: Loop, e: Expr, distance: int, within: Sequence[Loop]) -> tuple[Expr, int] | None:
    """The least of the indices in the iteration `distance` later, and how far from it the largest is; None if not known."""
    later: dict[str, Expr] = {s.var: add(Var(s.var), index(distance))}
    begin = simplify(substitute(e, {**later, **{x.var: x.begin for x in within}}), {})
    end = substitute(e, {**later, **{x.var: sub(x.end, ONE) for x in within}})
    span = constant(simplify(sub(end, begin), {}))
    bound = {x.var for x in inside(s.body) if isinstance(x, Loop)}
    bound |= {v for x in inside(s.body) if isinstance(x, Parallel) for v in x.vars}
    return (begin, span) if span is not None and span >= 0 and free_vars(begin).isdisjoint(bound) else None


def _spread(s: Loop, buffer: str, distance: int, line: int) -> Fetch | None:
    """Lines of so many elements, a few in each iteration of an innermost loop, of the loops with the most iterations."""
    found: list[tuple[int, Fetch]] = []
    for chain in _chains(s.body, buffer):
        trips = [constant(simplify(sub(x.end, x.begin), {})) for x in chain]
        read = _read(chain[-1].body, buffer)
        inner = [x for x in inside(chain[-1].body) if isinstance(x, Loop)]
        region = _later(s, read[0], distance, (*chain, *inner)) if len(read) == 1 else None
        if region is None or any(n is None or n < 1 for n in trips):
            continue
        begin, span = region
        count, step = 1, ONE
        number: Expr = index(0)
        for x, n in zip(reversed(chain), reversed(trips), strict=True):
            number = add(number, mul(sub(Var(x.var), x.begin), step))
            count *= n or 1
            step = index(count)
        if not _is_dense(read[0], (*chain, *inner), span):
            continue
        lines = -(-(span + 1) // (line * count))
        apart = line * lines if span + 1 >= line * count else -(-(span + 1) // count)
        if lines <= MOST_LINES:
            first = add(begin, mul(number, index(apart)))
            places = tuple(simplify(add(first, index(n * line)), {}) for n in range(lines))
            found.append((count, Fetch(chain[-1], places, SECOND)))
    return max(found, key=lambda x: x[0])[1] if found else None


def _chains(body: Sequence[Flat], buffer: str) -> Iterator[tuple[Loop, ...]]:
    """The serial loops around each innermost one that reads the buffer, from the outermost."""
    for s in body:
        if not _read((s,), buffer):
            continue
        if isinstance(s, Loop) and s.kind is LoopKind.SERIAL:
            below = list(_chains(s.body, buffer))
            yield from ((s, *c) for c in below or [()])
        elif isinstance(s, (If, Alloc)):
            yield from _chains(s.body, buffer)


def _is_dense(e: Expr, loops: Sequence[Loop], span: int) -> bool:
    """Whether the loops read every element in between, as far as their number tells."""
    read = 1
    for x in loops:
        if x.var in free_vars(e):
            read *= constant(simplify(sub(x.end, x.begin), {})) or 1
    return read > span
