"""Rows of images in flat loops: vectorized loops that map elements, and the loops around them.

A condition over such a loop, `x * 64 + j < W`, is cut at the innermost loop around the row that it names, once for all that
is outside: cut at each loop, a tile with five stages would have a copy of all of them for each piece of each loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.ir.expr import Compare, constant, free_vars
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.borders import LINE, choices, conditions
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, buffers_of, inside, store_loads, stores
from tensorc_dsl.proof.sets.simplify import conjuncts

REGISTER_BYTES = 32 * 64
"""The size in bytes of the largest register file (AVX-512). A smaller buffer may be in registers, if the loops over it are
written out, which takes loops of constant length."""


def kept(body: tuple[Flat, ...]) -> frozenset[str]:
    """The buffers that may be in registers."""
    small = (s for s in inside(body) if isinstance(s, Alloc) and s.space == "stack")
    return frozenset(s.name for s in small if (constant(s.size) or 0) * s.dtype.bytes <= REGISTER_BYTES)


def lanes_of(s: Flat) -> int:
    """The number of lanes of a vectorized loop; 0 for other statements."""
    if not isinstance(s, Loop) or s.kind is not LoopKind.VECTORIZED:
        return 0
    begin, end = constant(s.begin), constant(s.end)
    return 0 if begin is None or end is None else end - begin


def is_row(s: Flat, registers: frozenset[str]) -> bool:
    """Whether a statement is a vectorized loop that maps elements of buffers in memory."""
    return lanes_of(s) >= LINE and all(is_mapped(x, registers) for x in stores((s,)))


def is_mapped(s: Store, registers: frozenset[str]) -> bool:
    """Whether a store is no sum, and accesses memory only."""
    return registers.isdisjoint(buffers_of(s)) and not any(x.buffer == s.buffer for x in store_loads(s))


def holds_rows(s: Flat, registers: frozenset[str]) -> bool:
    """Whether a statement is a loop, serial or written out, with vectors that are all rows."""
    if not isinstance(s, Loop) or s.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return False
    vectors = [x for x in inside(s.body) if lanes_of(x)]
    return bool(vectors) and all(is_row(x, registers) for x in vectors)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A condition over the lanes of vectors. A serial loop over rows decides it later, if it is over the variable of one."""

    cond: Compare
    later: bool


def undecided(body: tuple[Flat, ...], registers: frozenset[str]) -> Iterator[Undecided]:
    """The conditions that decide the choices of vectors, the masks of rows and, of rows that are written out, which of them
    are there and read at a border."""
    return _undecided(body, registers, frozenset(), frozenset())


def _undecided(
    body: tuple[Flat, ...], registers: frozenset[str], lanes: frozenset[str], serial: frozenset[str]
) -> Iterator[Undecided]:
    for s in body:
        match s:
            case Store():
                for c in choices(s) if lanes else ():
                    if not lanes.isdisjoint(free_vars(c)):
                        yield from (Undecided(x, not serial.isdisjoint(free_vars(c))) for x in conditions(c, {}))
            case If():
                for c in conjuncts(s.cond):
                    if not isinstance(c, Compare) or lanes.isdisjoint(free_vars(c)):
                        continue
                    if all(is_mapped(x, registers) for x in stores(s.body)):
                        yield Undecided(c, not serial.isdisjoint(free_vars(c)))
                yield from _undecided(s.body, registers, lanes, serial)
            case Loop():
                rows = holds_rows(s, registers)
                own = {s.var} if s.kind is LoopKind.VECTORIZED or (rows and s.kind is LoopKind.UNROLLED) else set[str]()
                around = {s.var} if rows and s.kind is LoopKind.SERIAL else set[str]()
                yield from _undecided(s.body, registers, lanes | own, serial | around)
            case _:
                yield from _undecided(s.body, registers, lanes, serial)
