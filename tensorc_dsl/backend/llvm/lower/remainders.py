"""What remains behind the last whole tile of an open size.

Guards tell which rows of a tile there are. A serial loop over rows ends where they do. Rows of a register tile are written
out inside of the loop that adds up, so each step would ask for each row:

    for k { unrolled for i in 0 .. 4 { if i < M % 4 { S[i] = S[i] + A[i, k] * B[k] } } }
        ->  if M % 4 == 1 { for k { S[0] = … } } if M % 4 == 2 { for k { S[0] = … S[1] = … } } …

With code for each number of rows, the last tile reads what its rows share as often as a whole one, and takes as long as the
rows that there are. GPUs keep their guards: there threads of a warp would part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as data_replace

from tensorc_dsl.backend.llvm.lower.code_size import code_size, fits_registers
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.expr import Compare, Expr, constant, free_vars, index, loads
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Shuffle, hull, within
from tensorc_dsl.lower.partition import cuts_of, decided, possible
from tensorc_dsl.lower.trim_bounds import Around, Known, ended, extreme, plan_of, work
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds

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
