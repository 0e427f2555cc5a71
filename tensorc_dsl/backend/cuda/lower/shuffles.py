"""Reads of what other lanes of a warp have in registers, which become shuffles.

The lane that stores an element of a buffer in "warp" has it. A lane that reads an element of another gets it by a shuffle,
which all lanes of the warp run together, whether they use the value or not. So a shuffle stands outside of all conditions
that differ between threads, and only what uses its value is inside. Which lane has an element is counted for all
threads of a block. Apart from that such a buffer is private to threads like a "local" one.

A dimension may count lanes and, in steps that lead to no other lane, what a lane has itself: rows `r * 8 + lane / 4` of a
fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Local
from tensorc_dsl.backend.cuda.lower.private_storage import Numbers, evaluate, of_block, of_threads, running
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Load,
    Var,
    add,
    constant,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Buffer, Store, map_store
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Flat, If, Loop, LowerError, Move, Shuffle, store_loads, stores, substituted, within
from tensorc_dsl.proof.sets.accesses import guarded_loads
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import conjuncts, linear_form

SCOPE = "warp"

WIDTHS = (16, 8, 4, 2)
"""The lanes of a group in which each gets what one of them has, where the whole warp is no such group."""


@frozen
class _Place:
    """Where the code is: the ranges of the loops around, the bound ones of them, conditions, and what the nest of threads
    writes that the code is in."""

    ranges: Ranges
    bound: tuple[str, ...] = ()
    conds: tuple[Expr, ...] = ()
    written: frozenset[str] | None = None


@frozen
class _Owner:
    """A store of a buffer, whose threads have its elements: the numbers of the subscripts that depend on the thread, these
    subscripts, and of each thread that runs it the values of their parts that do.

    What loops of a thread add to such a part is its own: that no two threads touch an element is counted later (`own`).
    """

    lanes: tuple[int, ...]
    parts: tuple[_Part, ...]
    threads: Mapping[tuple[int, ...], int]

    def moves_lane(self, d: int, step: int, count: int) -> bool:
        """Whether so many steps along a subscript lead from what one thread has to what another one has."""
        values = {key[self.lanes.index(d)] for key in self.threads}
        return any(v + k * step in values for v in values for k in range(1, count))


def shuffled(body: tuple[Flat, ...], buffers: Mapping[str, Buffer], axes: Axes) -> tuple[tuple[Flat, ...], list[Local]]:
    """The statements with shuffles for reads of buffers in "warp" that other lanes have, and storage for what they give.

    Raises LowerError if a read needs more than one shuffle.
    """
    if not buffers:
        return body, []
    maker = _Maker(axes, buffers, {})
    maker.find_owners(body, _Place({THREAD: (0, axes.threads - 1)}))
    return maker.run(body, _Place({THREAD: (0, axes.threads - 1)})), maker.local


def guarded(body: tuple[Flat, ...], cond: Expr | None) -> tuple[Flat, ...]:
    """The statements under a condition that may differ between the lanes of a warp: all lanes run the shuffles in them."""
    if cond is None:
        return body
    out: list[Flat] = []
    kept: list[Flat] = []
    for s in (*body, None):
        if s is not None and not _shuffles(s):
            kept.append(s)
            continue
        if kept:
            out.append(If(cond, tuple(kept)))
            kept = []
        if s is not None:
            out.append(s if isinstance(s, Shuffle | Store) else replace(s, body=guarded(s.body, cond)))
    return tuple(out)


def _early(body: Iterable[Flat]) -> tuple[Flat, ...]:
    """The statements with each shuffle before the stores that it does not depend on.

    These and what uses its value are then under one condition without a branch between them: a sum of terms of several lanes
    stays in a register, and is stored once.
    """
    out: list[Flat] = []
    for s in body:
        at = len(out)
        while isinstance(s, Shuffle) and at and _stores_alone(out[at - 1]) and not _touch(s, out[at - 1]):
            at -= 1
        out.insert(at, s)
    return tuple(out)


def _stores_alone(s: Flat) -> bool:
    return isinstance(s, Store) or (isinstance(s, If) and all(map(_stores_alone, s.body)))


def _touch(s: Shuffle, before: Flat) -> bool:
    """Whether a statement accesses what a shuffle writes, or writes what it reads."""
    written = {x.buffer for x in stores(s.body)}
    read = {y.buffer for x in stores(s.body) for y in store_loads(x)}
    return any(
        x.buffer in read | written or any(y.buffer in written for y in store_loads(x)) for x in stores((before,))
    )


def _shuffles(s: Flat) -> bool:
    return isinstance(s, Shuffle) or (not isinstance(s, Store) and any(map(_shuffles, s.body)))


@frozen
class _Part:
    """A subscript in two parts: what depends on the thread, with its value in each, and what is the same in all of them."""

    numbers: Numbers
    of_thread: Expr
    rest: Expr
    of_block: Mapping[Expr, int]
    """Of the rest what depends on the block."""


def _sum(terms: Mapping[Expr, int], first: int) -> Expr:
    total: Expr = index(first)
    for atom, factor in terms.items():
        total = add(total, mul(atom, index(factor)))
    return total


@frozen
class _Maker:
    axes: Axes
    buffers: Mapping[str, Buffer]
    owners: dict[str, _Owner]
    local: list[Local] = field(default_factory=list[Local])

    def find_owners(self, body: tuple[Flat, ...], at: _Place) -> None:
        for s in body:
            if isinstance(s, Store):
                if s.buffer in self.buffers and s.buffer not in self.owners:
                    self.owners[s.buffer] = self._owner(s, at)
            else:
                self.find_owners(s.body, self._inside(s, at))

    def _owner(self, s: Store, at: _Place) -> _Owner:
        indices = tuple(substitute(i, self._values()) for i in s.indices)
        lanes = tuple(d for d, e in enumerate(indices) if THREAD in free_vars(e))
        found = [self._part(indices[d], at) for d in lanes]
        rows = np.flatnonzero(self._active(at))
        threads = {tuple(int(p.numbers[t]) for p in found): int(t) for t in rows}
        return _Owner(lanes, tuple(found), threads)

    def run(self, body: tuple[Flat, ...], at: _Place) -> tuple[Flat, ...]:
        """The statements with shuffles."""
        return _early(self._statements(body, at))

    def _statements(self, body: tuple[Flat, ...], at: _Place) -> Iterator[Flat]:
        for s in body:
            if isinstance(s, Store):
                yield from self._store(s, at)
            elif not self._reads_lanes(s):
                yield s
            elif isinstance(s, Loop) and constant(s.end) == 0:
                continue  # in a loop without iterations no lane has stored what is read
            elif isinstance(s, Loop) and s.var not in self.axes.loops and self._counts_lanes(s, at):
                for k in range(_count(s)):
                    yield from self.run(tuple(substituted(x, {s.var: index(k)}) for x in s.body), at)
            elif isinstance(s, If):
                inner = self.run(s.body, self._inside(s, at))
                yield from guarded(inner, s.cond) if self._differs(s.cond) else (replace(s, body=inner),)
            else:
                if isinstance(s, Loop) and self._differs(s.end):
                    raise LowerError(
                        f"`{s.var}` runs a different number of times in lanes that read each other's registers"
                    )
                yield replace(s, body=self.run(s.body, self._inside(s, at)))

    def _reads_lanes(self, s: Flat) -> bool:
        return any(x.buffer in self.buffers for st in stores((s,)) for x in store_loads(st))

    def _differs(self, e: Expr) -> bool:
        """Whether a value may differ between the lanes of a warp."""
        return THREAD in free_vars(substitute(e, self._values())) or bool(loads(e))

    def _values(self) -> dict[str, Expr]:
        return {v: self.axes.value(v) for v in self.axes.loops}

    def _inside(self, s: Flat, at: _Place) -> _Place:
        """The place inside of a statement."""
        match s:
            case Loop():
                at = replace(at, ranges=within(at.ranges, s))
                if s.var in self.axes.loops:
                    at = replace(at, bound=(*at.bound, s.var))
                    if at.written is None and self.axes.is_thread(s.var):
                        at = replace(at, written=frozenset(x.buffer for x in stores((s,))))
                return at
            case If():
                return replace(at, conds=(*at.conds, *conjuncts(substitute(s.cond, self._values()))))
            case _:
                return at

    def _counts_lanes(self, loop: Loop, at: _Place) -> bool:
        """Whether the variable of a loop says which lane has what is read in it."""
        inner = self._inside(loop, at)
        return any(self._counts_in(s, loop, inner) for s in loop.body)

    def _counts_in(self, s: Flat, loop: Loop, at: _Place) -> bool:
        if not isinstance(s, Store):
            return any(self._counts_in(x, loop, self._inside(s, at)) for x in s.body)
        for x in store_loads(s):
            owner = self.owners.get(x.buffer)
            for d in () if owner is None else owner.lanes:
                terms, _ = linear_form(substitute(x.indices[d], self._values()), at.ranges)
                mine = {atom: step for atom, step in terms.items() if loop.var in free_vars(atom)}
                step, count = mine.pop(Var(loop.var), 0), constant(loop.end)
                if mine or (step and (count is None or (owner is not None and owner.moves_lane(d, step, count)))):
                    return True
        return False

    def _part(self, e: Expr, at: _Place) -> _Part:
        terms, first = linear_form(e, at.ranges)
        rest = {x: n for x, n in terms.items() if THREAD not in free_vars(x)}
        mine = {x: n for x, n in terms.items() if x not in rest}
        numbers = of_threads(mine, self.axes.threads) + first
        of_block = {x: n for x, n in rest.items() if free_vars(x).isdisjoint(at.ranges)}
        return _Part(numbers, _sum(mine, first), _sum(rest, 0), of_block)

    def _active(self, at: _Place) -> NDArray[np.bool_]:
        """The threads that run a statement, as far as their numbers say so."""
        return running(at.bound, self.axes) & self._where(at.conds)

    def _where(self, conds: Sequence[Expr]) -> NDArray[np.bool_]:
        """The threads for which conditions hold, as far as their numbers say so."""
        on = np.ones(self.axes.threads, np.bool_)
        for c in conds:
            if free_vars(c) <= {THREAD} and not loads(c):
                on &= evaluate(c, of_block(self.axes.threads)) != 0
        return on

    def _reading(self, s: Store, x: Load) -> NDArray[np.bool_]:
        """The threads that use what they read at `x`: a choice evaluates one of its branches."""
        on = np.zeros(self.axes.threads, np.bool_)
        for read, conds in (r for e in (s.value, *s.indices) for r in guarded_loads(e)):
            if read == x:
                on |= self._where([part for c in conds for part in conjuncts(substitute(c, self._values()))])
        return on

    def _store(self, s: Store, at: _Place) -> Iterator[Flat]:
        given: dict[Load, Load] = {}
        for x in dict.fromkeys(store_loads(s)):
            if x.buffer in self.owners:
                written = at.written if at.written is not None else frozenset((s.buffer,))
                own, move = self._move(s, x, at)
                if move is None:
                    given[x] = own
                    continue
                if x.buffer in written:
                    raise LowerError(
                        f"`{format_store(s)}` reads what another lane has of `{x.buffer}`, which the same threads write, and"
                        " which comes first is not known; store it in a buffer of its own"
                    )
                name = f"{x.buffer}.{len(self.local)}"
                self.local.append(Local(name, x.dtype, 1))
                yield Shuffle(*move, (Store(name, (ZERO,), own),))
                given[x] = Load(name, (ZERO,), x.dtype)

        def here(e: Expr) -> Expr:
            return given.get(e, e) if isinstance(e, Load) else e

        yield map_store(s, lambda e: rewrite_expr(e, here))

    def _move(self, s: Store, x: Load, at: _Place) -> tuple[Load, tuple[Move, int, int] | None]:
        """What a thread has itself of what it reads, and the shuffle by which it gets another one's, if there is one."""
        owner = self.owners[x.buffer]
        indices = tuple(substitute(i, self._values()) for i in x.indices)
        for d, e in enumerate(indices):
            if d not in owner.lanes and THREAD in free_vars(e):
                raise self._refused(s, x, "one lane has what is read of several")
        parts = [self._part(indices[d], at) for d in owner.lanes]
        if any(mine.of_block != other.of_block for mine, other in zip(parts, owner.parts, strict=True)):
            raise self._refused(s, x, "which lane has it is not known")
        rows = np.flatnonzero(self._active(at) & self._reading(s, x))
        keys = [tuple(int(p.numbers[t]) for p in parts) for t in rows]
        if any(key not in owner.threads for key in keys):
            raise self._refused(s, x, "no lane has stored it")
        sources = np.array([owner.threads[key] for key in keys], np.int64)
        given = dict(
            zip(owner.lanes, (add(o.of_thread, p.rest) for o, p in zip(owner.parts, parts, strict=True)), strict=True)
        )
        own = Load(x.buffer, tuple(given.get(d, i) for d, i in enumerate(indices)), x.dtype)
        if not len(rows) or np.array_equal(sources, rows):
            return own, None
        if np.any(sources // LANES != rows // LANES):
            raise self._refused(s, x, "another warp has it")
        if self.axes.threads % LANES:
            raise self._refused(s, x, f"the {self.axes.threads} threads of a block are no whole warps")
        by_move: dict[Move, Numbers] = {
            "down": sources - rows, "up": rows - sources, "xor": sources ^ rows, "lane": sources % LANES,
        }  # fmt: skip
        for move, by in by_move.items():
            if by[0] >= 0 and np.all(by == by[0]):
                return own, (move, int(by[0]), LANES)
        for width in (w for w in WIDTHS if np.array_equal(sources // w, rows // w)):
            by = sources % width
            if np.all(by == by[0]):
                return own, ("lane", int(by[0]), width)
        raise self._refused(s, x, "its lanes are at several distances")

    def _refused(self, s: Store, x: Load, why: str) -> LowerError:
        at = ", ".join(map(format_expr, x.indices))
        return LowerError(
            f'`{format_store(s)}` reads `{x.buffer}[{at}]`, in "warp", and {why}: one shuffle does not bring it; store'
            f' `{x.buffer}` in "shared"'
        )


def _count(s: Loop) -> int:
    n = constant(s.end)
    if n is None or n > LANES:
        raise LowerError(f"`{s.var}` counts lanes whose registers are read, and a warp has {LANES}")
    return n
