"""Private storage: the elements of a `local` buffer that each thread owns, proved to be no other thread's.

A `local` buffer above the threads of its kernel is one array in the program. Here each thread has an array of its own with
the elements that it touches. That is the same if no two threads touch one element, which is counted for all threads of a
block: a subscript is the sum of a part that depends on the thread, the same in all accesses, and of a rest that does not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.simplify import bounds, conjuncts, linear_form, simplify
from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Local
from tensorc_dsl.backend.cuda.lower.numbers import Numbers, evaluate
from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Load,
    add,
    free_vars,
    index,
    mul,
    sub,
    substitute,
    transform,
)
from tensorc_dsl.ir.expr import floordiv as div
from tensorc_dsl.ir.expr import floormod as mod
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.lower.flat import Flat, If, Loop, LowerError, Shuffle, Store, buffers_of, store_loads
from tensorc_dsl.lower.ranges import within

MOST_VALUES = 1 << 16
"""The largest number of elements along one dimension that a thread may own; more cannot be in registers by far."""


@dataclass(frozen=True, slots=True)
class _Access:
    """Subscripts over `thread`, with the ranges of the loops around, the bound loops among them, and the conditions on the
    thread alone. All lanes of a warp contribute a value to a shuffle, which is not used if the thread has no element.
    """

    indices: tuple[Expr, ...]
    ranges: Ranges
    bound: tuple[str, ...]
    conditions: tuple[Expr, ...]
    gives: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """A subscript without its thread: atoms with their factors, and the constant."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int
    ranges: Ranges

    def values(self) -> Numbers:
        """All its values, sorted."""
        found = np.array([self.constant], np.int64)
        for atom, factor in self.terms:
            low, high = _range(atom, self.ranges)
            found = np.unique(found[:, None] + factor * np.arange(low, high + 1)[None, :])
            if len(found) > MOST_VALUES:
                raise LowerError(f"a thread would own {len(found)} elements of one buffer")
        return found


def _range(atom: Expr, ranges: Ranges) -> tuple[int, int]:
    """The smallest and largest value of an atom. Raises LowerError if they are not known."""
    low, high = bounds(atom, ranges)
    if low is None or high is None:
        raise LowerError(f"the values of `{format_expr(atom)}` are not known")
    return low, high


def own(body: tuple[Flat, ...], b: Buffer, home: Collection[str], axes: Axes) -> tuple[tuple[Flat, ...], Local]:
    """The body with one subscript in each access to a private buffer, and the storage of a thread.

    `home` are the loops each of whose iterations has a buffer of its own. Raises LowerError if two threads touch an element.
    """
    found = sorted(_accesses(body, b.name, axes), key=lambda a: a.gives)
    outer = {THREAD, *axes.of_grid, *home}
    split = [_split(a, outer, b.name) for a in found]
    columns = [[parts[d] for _, parts in split] for d in range(len(b.shape))]
    parts, on = _parts_of_threads(b, found, [t for t, _ in split], axes)
    values = [reduce(np.union1d, (p.values() for p in parts)) for parts in columns]
    _require_apart(b, parts, on, values, [v for v in home if axes.is_thread(v)], axes)
    sizes = [_dense(v) for v in values]
    table: dict[tuple[Expr, ...], Expr] = {}
    for a, (_, parts) in zip(found, split, strict=True):
        at: Expr = ZERO
        for part, (size, first, run, stride) in zip(parts, sizes, strict=True):
            rest = sub(_expression(part), index(first))
            if stride:
                rest = add(mul(div(rest, index(stride)), index(run)), mod(rest, index(stride)))
            at = add(mul(at, index(size)), simplify(rest, a.ranges))
        table[a.indices] = simplify(at, a.ranges)
    size = int(np.prod([s[0] for s in sizes], dtype=np.int64))
    return _rewritten(body, b.name, table, {v: axes.value(v) for v in axes.loops}), Local(b.name, b.dtype, size)


def _accesses(body: tuple[Flat, ...], name: str, axes: Axes) -> list[_Access]:
    out: list[_Access] = []
    values = {v: axes.value(v) for v in axes.loops}

    def go(
        part: tuple[Flat, ...], ranges: Ranges, bound: tuple[str, ...], met: tuple[Expr, ...], gives: bool = False
    ) -> None:
        for s in part:
            if isinstance(s, Store):
                if name in buffers_of(s):
                    used = [s.indices] if s.buffer == name else []
                    used += [x.indices for x in store_loads(s) if x.buffer == name]
                    out.extend(
                        _Access(tuple(substitute(i, values) for i in u), ranges, bound, met, gives) for u in used
                    )
            elif isinstance(s, Loop):
                inner = (*bound, s.var) if s.var in axes.loops else bound
                go(s.body, within(ranges, s), inner, met)
            elif isinstance(s, If):
                conditions = (substitute(c, values) for c in conjuncts(s.cond))
                go(s.body, ranges, bound, (*met, *filter(_is_of_thread, conditions)))
            else:
                go(s.body, ranges, bound, met, isinstance(s, Shuffle))

    go(body, {THREAD: (0, axes.threads - 1)}, (), ())
    return out


def _split(a: _Access, outer: Collection[str], name: str) -> tuple[list[dict[Expr, int]], list[_Part]]:
    """Of each subscript the part that depends on the thread and on what is around, and the rest."""
    around: list[dict[Expr, int]] = []
    rest: list[_Part] = []
    for e in a.indices:
        terms, constant = linear_form(e, a.ranges)
        own: dict[Expr, int] = {}
        for atom, factor in terms.items():
            names = free_vars(atom)
            if names & set(outer):
                if any(v not in outer for v in names if v in a.ranges):
                    raise LowerError(
                        f"which elements of `{name}` a thread owns is not known: `{format_expr(atom)}` depends on the thread"
                        ' and on a loop inside it; make the tile of a thread a divisor, or store it in "shared"'
                    )
                own[atom] = factor
        around.append(own)
        rest.append(_Part(tuple((x, c) for x, c in terms.items() if x not in own), constant, a.ranges))
    return around, rest


def _is_of_thread(e: Expr) -> bool:
    """Whether an expression depends on the thread and on nothing else."""
    return free_vars(e) == frozenset((THREAD,))


def of_block(threads: int) -> dict[str, Numbers]:
    """The numbers of the threads of a block."""
    return {THREAD: np.arange(threads, dtype=np.int64)}


def of_threads(terms: dict[Expr, int], threads: int) -> Numbers:
    """The sum of the terms over `thread` alone, for each thread."""
    total = np.zeros(threads, np.int64)
    for atom, factor in terms.items():
        if _is_of_thread(atom):
            total += factor * evaluate(atom, of_block(threads))
    return total


def running(bound: Sequence[str], axes: Axes) -> NDArray[np.bool_]:
    """The threads that run a statement inside of these bound loops."""
    on = np.ones(axes.threads, np.bool_)
    for c in axes.conditions(bound):
        on &= evaluate(c, of_block(axes.threads)) != 0
    return on


def _runs(a: _Access, axes: Axes) -> NDArray[np.bool_]:
    """The threads that may make an access."""
    on = running(a.bound, axes)
    for c in a.conditions:
        on &= evaluate(c, of_block(axes.threads)) != 0
    return on


def _parts_of_threads(
    b: Buffer, found: Sequence[_Access], around: Sequence[list[dict[Expr, int]]], axes: Axes
) -> tuple[list[Numbers], NDArray[np.bool_]]:
    """For each dimension the part of the subscripts that a thread has in all of its accesses, and the threads that have one.

    Raises LowerError if a thread has another part in one access than in another.
    """
    on = np.zeros(axes.threads, np.bool_)
    first = np.zeros(axes.threads, np.int64)
    parts = [np.zeros(axes.threads, np.int64) for _ in b.shape]
    known: dict[frozenset[tuple[Expr, int]], Numbers] = {}  # most accesses have the same part
    for n, (a, terms) in enumerate(zip(found, around, strict=True)):
        own = _runs(a, axes) & on if a.gives else _runs(a, axes)
        for d, x in enumerate(terms):
            key = frozenset(x.items())
            if key not in known:
                known[key] = of_threads(x, axes.threads)
            here = known[key]
            apart = own & on & (here != parts[d])
            if n and _not_of_thread(x) != _not_of_thread(around[0][d]):
                apart = np.ones(axes.threads, np.bool_)
            if apart.any():
                other = found[int(first[int(np.argmax(apart))])]
                raise LowerError(
                    f"threads own other elements of `{b.name}` in one nest than in another: dimension {d} is"
                    f" `{format_expr(other.indices[d])}` and `{format_expr(a.indices[d])}`; divide both nests among"
                    ' threads in one way, or store it in "shared"'
                )
            parts[d] = np.where(own & ~on, here, parts[d])
        first = np.where(own & ~on, n, first)
        on |= own
    return parts, on


def _not_of_thread(terms: dict[Expr, int]) -> dict[Expr, int]:
    return {e: c for e, c in terms.items() if not _is_of_thread(e)}


def _require_apart(
    b: Buffer,
    parts: Sequence[Numbers],
    on: NDArray[np.bool_],
    values: Sequence[Numbers],
    home: Sequence[str],
    axes: Axes,
) -> None:
    """Raises LowerError if two threads of one home touch the same element. `parts` are those of `on`, the threads that
    touch one.
    """
    columns = [p[on] for p in parts]
    columns += [evaluate(simplify(axes.value(v), {}), of_block(axes.threads))[on] for v in home]
    none = np.zeros(1, np.int64)
    rows = np.stack([*columns, np.zeros(int(on.sum()), np.int64)], axis=1)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    clash = bool((counts > 1).any())
    if not clash and len(kinds) > 1:
        meet = np.ones((len(kinds), len(kinds)), np.bool_)
        for d, v in enumerate((*values, *([none] * len(home)))):
            apart = kinds[:, None, d] - kinds[None, :, d]
            meet &= np.isin(apart, np.unique(v[:, None] - v[None, :]))
        np.fill_diagonal(meet, False)
        clash = bool(meet.any())
    if clash:
        raise LowerError(
            f"two threads touch the same element of `{b.name}`, of which each thread would have a copy of its own; store it"
            ' in "shared", or divide it among the threads'
        )


def _dense(values: Numbers) -> tuple[int, int, int, int]:
    """How values are numbered densely: how many numbers, the first value, and the length and distance of runs (0: one run).

    Runs at one distance, as virtual threads make them, are moved together; other holes stay.
    """
    if not len(values):  # in loops without iterations
        return 1, 0, 0, 0
    first, last = int(values[0]), int(values[-1])
    size = last - first + 1
    if size == len(values):
        return size, first, 0, 0
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    run = int(breaks[0])
    stride = int(values[run] - first)
    n = np.arange(len(values))
    if len(values) % run == 0 and np.array_equal(values, first + n // run * stride + n % run):
        return len(values), first, run, stride
    return size, first, 0, 0


def _expression(part: _Part) -> Expr:
    total: Expr = index(part.constant)
    for atom, factor in part.terms:
        total = add(total, mul(atom, index(factor)))
    return total


def _rewritten(
    body: tuple[Flat, ...], name: str, table: dict[tuple[Expr, ...], Expr], values: dict[str, Expr]
) -> tuple[Flat, ...]:
    def expr(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == name:
            return Load(name, (table[tuple(substitute(i, values) for i in e.indices)],), e.dtype)
        return e

    def stmt(s: Flat) -> Flat:
        if not isinstance(s, Store):
            return replace(s, body=tuple(map(stmt, s.body)))
        if name not in buffers_of(s):
            return s
        indices = tuple(transform(i, expr) for i in s.indices)
        if s.buffer == name:
            indices = (table[tuple(substitute(i, values) for i in s.indices)],)
        return replace(s, indices=indices, value=transform(s.value, expr))

    return tuple(map(stmt, body))
