"""What remains behind the last whole tile of an open size.

Guards tell which rows of a tile there are. A serial loop over rows ends where they do. Rows of a register tile are written
out inside of the loop that adds up, so each step would ask for each row:

    for k { unrolled for i in 0 .. 4 { if i < M % 4 { S[i] = S[i] + A[i, k] * B[k] } } }
        ->  if M % 4 == 1 { for k { S[0] = … } } if M % 4 == 2 { for k { S[0] = … S[1] = … } } …

With code for each number of rows, the last tile reads what its rows share as often as a whole one, and takes as long as the
rows that there are.

Columns of a register tile are lanes of vectors. Lanes behind the last column are computed as well, since nobody reads them:

    if j < N % 16 { S[i, j] = S[i, j] + A[i, k] * B[N / 16, k, j] }  ->  S[i, j] = S[i, j] + A[i, k] * B[N / 16, k, j]

A mask would take a branch, a blend and a reload for each vector of each step. GPUs keep their guards: there threads of a warp
would part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as data_replace

from tensorc_dsl.backend.llvm.lower.code_size import code_size, fits_registers
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.expr import (
    ONE,
    Binary,
    Call,
    Compare,
    Expr,
    Load,
    Select,
    children,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    rebuild,
    zero_of,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    buffers_of,
    hull,
    store_loads,
    stores,
    within,
)
from tensorc_dsl.lower.partition import cuts_of, decided, possible
from tensorc_dsl.lower.trim_bounds import Around, Known, ended, extreme, plan_of, work
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, linear
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, is_multiple, prove

VECTOR = 8
"""Lanes of a vector, of which a last one may have a mask: those of 32 bits in 256."""

COPIED_CODE = 4096
"""The largest `code_size` of all copies in a kernel: it is as much again as one unrolled nest may have."""


def _is_instruction(s: Flat) -> bool:
    """Whether a statement is an instruction, or a nest that becomes one, of which no part changes."""
    return isinstance(s, Instruction | Collective | Shuffle) or (isinstance(s, Loop) and s.kind is LoopKind.TENSORIZED)


def end_loops(body: tuple[Flat, ...], known: Known, around: Around) -> tuple[Flat, ...]:
    """The same results, with serial loops that end at the latest where the conditions of their statements do."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store) or _is_instruction(s):
            out.append(s)
            continue
        if isinstance(s, Loop) and s.kind is LoopKind.SERIAL:
            s = ended(s, known, around.ranges, around.lanes, always=True)
        inner = around.within(s)
        if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED:
            inner = data_replace(inner, lanes=within(around.lanes, s))
        out.append(replace(s, body=end_loops(s.body, known, inner)))
    return tuple(out)


def copy_tiles(body: tuple[Flat, ...], known: Known, most: int = COPIED_CODE) -> tuple[Flat, ...]:
    """The same results, with a copy of each register tile for each number of rows that it may have, up to `most` code."""
    return _Copier(known, most).body(body, {})


@frozen
class _Rows:
    """Loops that are written out, whose work ends at `end`; at most `most` of their iterations are there."""

    end: Expr
    most: int


@dataclass(slots=True)
class _Copier:
    known: Known
    left: int
    """The `code_size` that further copies may have."""

    def body(self, body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Store) or _is_instruction(s):
                out.append(s)
                continue
            copies = _copies(s, self.known, ranges) if isinstance(s, Alloc) and fits_registers(s) else ()
            size = code_size(copies)
            if copies and size <= self.left:
                self.left -= size
                out += copies
            else:
                out.append(replace(s, body=self.body(s.body, within(ranges, s))))
        return tuple(out)


def _copies(s: Alloc, known: Known, ranges: Ranges) -> tuple[Flat, ...]:
    """The copies of a tile, each under its condition; none if its rows are always there."""
    found = Counter(_rows(s.body, known, Around(ranges)))
    end = found.most_common(1)[0][0].end if found else None
    if end is None or not _is_needed(s, end, known, ranges):
        return ()
    most = max(x.most for x in found if x.end == end)
    least, last = bounds(end, ranges)
    counts = range(max(1, least or 1), min(most, most if last is None else last + 1))
    out = [If(Compare("==", end, index(n)), (_cut(s, end, n, known, Around(ranges)),)) for n in counts]
    whole = Compare(">=", end, index(most))
    if possible(whole, ranges):
        out.append(If(whole, (_cut(s, end, most, known, Around(ranges)),)))
    return tuple(out)


def _rows(
    body: Sequence[Flat], known: Known, around: Around, bound: frozenset[str] = frozenset(), *, steps: bool = False
) -> Iterator[_Rows]:
    """The ends of loops that are written out in a loop of `steps`, over what does not change in the tile; `bound` are the
    variables that do."""
    for s in body:
        if isinstance(s, Store) or _is_instruction(s):
            continue
        if isinstance(s, Loop) and s.kind is LoopKind.UNROLLED and steps:
            end, most = _end(s, known, around), constant(s.end)
            if end is not None and most is not None and free_vars(end).isdisjoint(bound):
                yield _Rows(end, most)
        own = {s.var} if isinstance(s, Loop) else set[str]()
        serial = isinstance(s, Loop) and s.kind is LoopKind.SERIAL
        yield from _rows(s.body, known, around.within(s), bound | own, steps=steps or serial)


def _end(s: Loop, known: Known, around: Around) -> Expr | None:
    """Where the work of a loop that begins at 0 ends, if that is known before it; None if it is its end."""
    plan = plan_of(s, known, around) if constant(s.begin) == 0 else None
    if plan is None or not plan.ends:
        return None
    highs = [x.maybe for x in plan.stages[0].highs if not loads(x.maybe)]
    return extreme("min", highs[0], highs[1:], around.ranges) if highs else None


def _is_needed(s: Flat, end: Expr, known: Known, ranges: Ranges) -> bool:
    """Whether a tile changes nothing unless `end` is positive: an iteration from 0 on is before it."""
    every = {**ranges, **hull((s,))}
    for cond in work((s,), known.above_zero) or ():
        for v in free_vars(cond):
            low = every.get(v, (None, None))[0]
            if low is not None and low >= 0 and any(x.first and x.maybe == end for x in cuts_of(cond, v, {}, every)):
                return True
    return False


def _cut(s: Flat, end: Expr, count: int, known: Known, around: Around) -> Flat:
    """The statement where `end` is `count`."""
    if isinstance(s, Store) or _is_instruction(s):
        return s
    if isinstance(s, Loop) and s.kind is LoopKind.UNROLLED and _end(s, known, around) == end:
        plan, last = plan_of(s, known, around), constant(s.end)
        assert plan is not None and last is not None  # `_end` asks for both
        s = replace(s, end=index(min(count, last)), body=decided(s.body, plan.ends))
    inner = around.within(s)
    return replace(s, body=tuple(_cut(x, end, count, known, inner) for x in s.body))


# Columns.


def fill_lanes(body: tuple[Flat, ...], known: Known, sizes: Mapping[str, Expr], ranges: Ranges) -> tuple[Flat, ...]:
    """The same results, with all lanes of register tiles computed, also those behind the last column, which nobody reads.

    `sizes` has the numbers of elements of the buffers around. What a lane behind the last column reads of others is inside of
    them if they consist of whole panels; else it is a choice, since nothing may be read behind their end.
    """
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store) or _is_instruction(s):
            out.append(s)
            continue
        inner = {**sizes, s.name: s.size} if isinstance(s, Alloc) else sizes
        s = replace(s, body=fill_lanes(s.body, known, inner, within(ranges, s)))
        every = {**ranges, **hull((s,))}
        columns = _columns(s, every) if isinstance(s, Alloc) and fits_registers(s) else None
        if isinstance(s, Alloc) and columns is not None and _is_needed(s, columns.end, known, ranges):
            filler = _Filler(s.name, columns, inner, every)
            s = replace(s, body=tuple(x for y in filler.body(s.body) for x in filler.stored(y)))
            some = Compare(">=", columns.end, ONE)
            s = s if prove(some, ranges) else If(some, (s,))
        out.append(s)
    return tuple(out)


@frozen
class _Columns:
    """The columns of a tile: `end` of the `width` lanes of a row are there."""

    width: int
    end: Expr


@frozen
class _Lanes:
    """The loop over the columns of a statement, and the conditions under which it runs."""

    loop: Loop
    conds: tuple[Expr, ...]

    def ends(self, ranges: Ranges) -> dict[Expr, Expr]:
        """The conditions that the first columns meet, each with the number of these."""
        found = [(c, cuts_of(c, self.loop.var, {}, ranges)) for c in self.conds]
        return {c: cuts[0].maybe for c, cuts in found if len(cuts) == 1 and cuts[0].first}


def _columns(s: Alloc, ranges: Ranges) -> _Columns | None:
    """The columns of a tile of which no statement reads another than its own, and only those that there are unless it updates
    the tile; None if that is not known, or if all are there."""
    found = set[_Columns]()
    for x, around in _statements(s.body, ()):
        asked = [e for a in around for e in ((a.cond,) if isinstance(a, If) else (a.begin, a.end))]
        if any(r.buffer == s.name for e in asked for r in loads(e)):
            return None
        if not isinstance(x, Store):
            if s.name in {b for y in stores((x,)) for b in buffers_of(y)}:
                return None
            continue
        if s.name not in buffers_of(x):
            continue
        lanes = _lanes_of(x, s.name, around)
        if lanes is None:
            return None
        width, ends = constant(lanes.loop.end) or 0, set(lanes.ends(ranges).values())
        if ends:
            found |= {_Columns(width, e) for e in ends}
        elif x.buffer != s.name:
            return None
        if not is_multiple(s.size, width, {}):
            return None
    (only,) = found if len(found) == 1 else (None,)
    if only is None or loads(only.end) or not free_vars(only.end).isdisjoint(hull(s.body)):
        return None  # the number of columns changes in the tile, or may
    return only


def _statements(body: tuple[Flat, ...], around: tuple[Loop | If, ...]) -> Iterator[tuple[Flat, tuple[Loop | If, ...]]]:
    """Stores, and what no pass changes, with the loops and conditions around each. Threads share no tile of registers."""
    for s in body:
        if isinstance(s, Store) or _is_instruction(s) or isinstance(s, Parallel):
            yield s, around
        else:
            yield from _statements(s.body, (*around, s) if isinstance(s, Loop | If) else around)


def _lanes_of(x: Store, name: str, around: Sequence[Loop | If]) -> _Lanes | None:
    """The loop along whose columns a statement accesses the tile `name`, one behind whole rows; None if there is none."""
    places = [r.indices[0] for r in store_loads(x) if r.buffer == name]
    places += [x.indices[0]] if x.buffer == name else []
    for n, s in enumerate(around):
        if isinstance(s, Loop) and constant(s.begin) == 0 and all(_is_panel(e, s) for e in places):
            conds = tuple(c for a in around[n:] if isinstance(a, If) for c in conjuncts(a.cond))
            return _Lanes(s, conds)
    return None


def _is_panel(e: Expr, s: Loop) -> bool:
    """Whether a subscript is the number of a column behind a multiple of all columns."""
    width, form = constant(s.end), linear(e, Context({}))
    if not width or form.terms.get(s.var) != 1 or form.constant % width:
        return False
    return all(a == s.var or (not c % width and _is_apart(a, s.var)) for a, c in form.terms.items())


def _is_apart(atom: str | Expr, var: str) -> bool:
    return isinstance(atom, str) or var not in free_vars(atom)


@frozen
class _Filler:
    """Takes the conditions on columns from the statements that update a tile."""

    name: str
    columns: _Columns
    sizes: Mapping[str, Expr]
    ranges: Ranges

    def body(self, body: tuple[Flat, ...], around: tuple[Loop | If, ...] = ()) -> tuple[Flat, ...]:
        return tuple(x for s in body for x in self._filled(s, around))

    def _filled(self, s: Flat, around: tuple[Loop | If, ...]) -> tuple[Flat, ...]:
        if isinstance(s, Store) or _is_instruction(s):
            return (s,)
        if isinstance(s, If) and (freed := self._freed(s, (*around, s))) is not None:
            return freed
        return (replace(s, body=self.body(s.body, (*around, s) if isinstance(s, Loop | If) else around)),)

    def _freed(self, s: If, around: tuple[Loop | If, ...]) -> tuple[Flat, ...] | None:
        """The updates of the tile without their condition on columns; None if there is other work under it."""
        out: list[Flat] = []
        rest = conjuncts(s.cond)
        for x in s.body:
            if not isinstance(x, Store) or x.buffer != self.name or not _is_total(x.value):
                return None
            lanes = _lanes_of(x, self.name, around)
            ends = {} if lanes is None else lanes.ends(self.ranges)
            own = [c for c in conjuncts(s.cond) if ends.get(c) == self.columns.end]
            if lanes is None or lanes.loop.kind is not LoopKind.VECTORIZED or not own:
                return None
            if any(lanes.loop.var in free_vars(c) for c in lanes.conds if c not in own):
                return None  # what it reads may be known to exist for none of its lanes
            rest = tuple(c for c in rest if c not in own)
            cond = conjunction(tuple(own))
            assert cond is not None  # there is one
            out.append(replace(x, value=self._guarded(x.value, lanes.loop, cond)))
        left = conjunction(rest)
        return tuple(out) if left is None else (If(left, tuple(out)),)

    def stored(self, s: Flat) -> tuple[Flat, ...]:
        """A statement that stores the tile elsewhere, for each number of whole vectors that are there: only the last has a
        mask. Each sum is used in several branches, so that LLVM leaves it before them, with those of the other rows."""
        found: dict[str, tuple[Expr, ...]] = {}
        for x, around in _statements((s,), ()):
            if not isinstance(x, Store) or x.buffer == self.name or self.name not in buffers_of(x):
                return (s,)  # it does more than that
            lanes = _lanes_of(x, self.name, around)
            ends = {} if lanes is None else lanes.ends(self.ranges)
            own = tuple(c for c in ends if ends[c] == self.columns.end)
            if lanes is None or lanes.loop.kind is not LoopKind.VECTORIZED or not own:
                return (s,)
            found[lanes.loop.var] = own
        width, end = self.columns.width, self.columns.end
        if width % VECTOR or not found:
            return (s,)
        out: list[Flat] = []
        for first in range(0, width + 1, VECTOR):
            conds = [Compare(">=", end, index(first))] if first else []
            conds += [Compare("<", end, index(first + VECTOR))] if first < width else []
            if all(possible(c, self.ranges) for c in conds):
                cond = conjunction(tuple(c for c in conds if prove(c, self.ranges) is None))
                part = self._cut(s, found, first)
                out += part if cond is None else (If(cond, part),)
        return tuple(out)

    def _cut(self, s: Flat, conds: Mapping[str, tuple[Expr, ...]], first: int) -> tuple[Flat, ...]:
        """The statement where the columns before `first` are there, and of the others less than a vector."""
        if isinstance(s, Store):
            return (s,)
        if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED and s.var in conds:
            whole = replace(s, end=index(first), body=decided(s.body, conds[s.var]))
            last = replace(s, begin=index(first), end=index(first + VECTOR))
            return (whole,) * (first > 0) + (last,) * (first < self.columns.width)
        return (replace(s, body=tuple(x for y in s.body for x in self._cut(y, conds, first))),)

    def _guarded(self, e: Expr, s: Loop, cond: Expr) -> Expr:
        """The value where columns that are not there read nothing behind the end of a buffer."""
        if not isinstance(e, Load):
            parts = children(e)
            return rebuild(e, tuple(self._guarded(x, s, cond) for x in parts)) if parts else e
        if e.buffer == self.name or s.var not in free_vars(e):
            return e
        size = self.sizes.get(e.buffer)
        if size is not None and is_multiple(size, self.columns.width, {}) and _is_panel(e.indices[0], s):
            return e
        return Select(cond, e, zero_of(e.dtype))


def _is_total(e: Expr) -> bool:
    """Whether a value can be computed of anything at no great cost: functions of lanes that are not there cost as much as of
    others, and integers may not be divided by 0."""
    if isinstance(e, Call) or (isinstance(e, Binary) and e.op in ("/", "%") and not dtype_of(e).is_float):
        return False
    return isinstance(e, Load) or all(map(_is_total, children(e)))
