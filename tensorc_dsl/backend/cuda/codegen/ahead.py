"""Finds the reads of a nest of loops that an emulated thread can check together, before the nest.

A thread runs from one barrier to the next before any other does. So what a read meets is the same at every place of a nest
without a barrier, and an element that is read again needs no second look. Where a read is made in each iteration, its
subscript is linear in the loops, and these have constant bounds, its elements are known before the nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from tensorc_dsl.affine.form import Linear
from tensorc_dsl.ir.expr import (
    Compare,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    children,
    constant,
    free_vars,
    index,
    loads,
    substitute,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, store_loads

_KINDS = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A read that is made in each iteration of a nest, so many `times` in each. `loops` are those of the nest around it, and
    `moves` the elements from one iteration of each to the next. `first` is the subscript of the lowest element."""

    store: Store
    load: Load
    loops: tuple[Loop, ...]
    moves: tuple[int, ...]
    first: Expr
    times: int

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """The elements, as distances and how many there are of each, the smallest distance first."""
        out: list[tuple[int, int]] = []
        for move, count in sorted((abs(m), count_of(x)) for m, x in zip(self.moves, self.loops, strict=True) if m):
            step, before = out[-1] if out else (0, 0)
            if out and move % step == 0 and move // step <= before:  # no gap is between them
                out[-1] = (step, before + (count - 1) * (move // step))
            elif count > 1:
                out.append((move, count))
        return tuple(out) or ((1, 1),)

    @property
    def vector(self) -> Loop | None:
        """The vectorized loop, if there is one."""
        return next((x for x in self.loops if x.kind is LoopKind.VECTORIZED), None)


@dataclass(frozen=True, slots=True)
class Nest:
    """The reads of a nest that are checked before it. `whole` says that no other access is to a watched buffer."""

    ahead: tuple[Ahead, ...]
    whole: bool


def nest_of(s: Loop, known: Collection[str], watched: Collection[str], form: Callable[[Expr], Linear]) -> Nest | None:
    """The reads of `known` buffers that can be checked before a loop; None if there are none, or threads may meet in it.

    `watched` are all buffers whose accesses are looked at, and `form` gives the linear form of a subscript.
    """
    places = list(_places((s,), (), True))
    if None in places:
        return None
    every = [x for x in places if x is not None]
    unsure = {id(x) for x, loops in every if loops is None}
    ahead: list[Ahead] = []
    whole = True
    for x, loops in every:
        mine = [] if loops is None or id(x) in unsure or x.atomic else list(_reads(x, loops, known, form))
        ahead += mine
        others = [y for y in store_loads(x) if y.buffer in watched and y not in {a.load for a in mine}]
        whole &= x.buffer not in watched and not others
    return Nest(tuple(ahead), whole) if ahead else None


def count_of(s: Loop) -> int:
    """The iterations of a loop of constant bounds."""
    return (constant(s.end) or 0) - (constant(s.begin) or 0)


def _places(
    body: tuple[Flat, ...], loops: tuple[Loop, ...], sure: bool
) -> Iterator[tuple[Store, tuple[Loop, ...] | None] | None]:
    """The stores with the loops around them, None where they may not run in each iteration; and None for all else."""
    for s in body:
        match s:
            case Store():
                yield s, loops if sure else None
            case If(cond=cond) if not loads(cond):
                yield from _places(s.body, loops, False)
            case Loop() if not loads(s.begin) and not loads(s.end):
                fixed = constant(s.begin) is not None and constant(s.end) is not None and count_of(s) > 0
                runs = fixed and s.kind in _KINDS and not s.scattered
                yield from _places(s.body, (*loops, s), sure and runs)
            case _:
                yield None


def _reads(
    s: Store, loops: tuple[Loop, ...], known: Collection[str], form: Callable[[Expr], Linear]
) -> Iterator[Ahead]:
    if any(x.kind is LoopKind.VECTORIZED and x.var not in free_vars(s.indices[0]) for x in loops):
        return  # its lanes are folded
    names = {x.var for x in loops}
    for load, times in Counter(_certain(s.value)).items():
        at = load.indices[0]
        terms = form(at).terms
        if load.buffer not in known or loads(at) or any(not isinstance(a, str) and names & free_vars(a) for a in terms):
            continue
        moves = tuple(terms.get(x.var, 0) for x in loops)
        lowest = {
            x.var: x.begin if m >= 0 else index((constant(x.end) or 0) - 1) for x, m in zip(loops, moves, strict=True)
        }
        if any(m not in (0, 1) and x.kind is LoopKind.VECTORIZED for x, m in zip(loops, moves, strict=True)):
            continue
        yield Ahead(s, load, loops, moves, substitute(at, lowest), times)


def _certain(e: Expr) -> Iterator[Load]:
    """The loads that are made whenever an expression is evaluated; those of conditions and subscripts are left out."""
    if isinstance(e, Select | Logic | Not | Compare):
        return
    if isinstance(e, Load):
        yield e
        return
    for x in children(e):
        yield from _certain(x)
