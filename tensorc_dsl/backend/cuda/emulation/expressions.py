"""Writes expressions of an emulated thread, whose accesses to shared memory are checked one by one, or together before a
nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tensorc_dsl.backend.cuda.emulation.access_costs import MOST_TIMES, key
from tensorc_dsl.backend.cuda.emulation.watch import LOGS
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, atomics_in, staged_in
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Piece, Scalar, SymbolTable
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
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, store_loads
from tensorc_dsl.proof.sets.linear_forms import Linear

# Finds the reads of a nest of loops that an emulated thread can check together, before the nest.
#
# A thread runs from one barrier to the next before any other does. So what a read meets is the same at every place of a
# nest without a barrier, and an element that is read again needs no second look. Where a read is made in each iteration,
# its subscript is linear in the loops, and these have constant bounds, its elements are known before the nest.


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


# Writes expressions of an emulated thread, whose accesses to memory that threads share are watched and noted.


_WORD = 4
"""The bytes of a word of a bank."""


@dataclass(frozen=True, slots=True)
class Site:
    """An access to memory that threads share: the kernel, the statement, as text and by the buffer that it writes, and the
    buffer that is accessed."""

    kernel: str
    statement: str
    into: str
    buffer: str
    write: bool
    shared: bool


class Watched(Expressions):
    """Expressions whose accesses to memory that threads share are watched, and noted to be counted."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site]) -> None:
        super().__init__(f, scope)
        self.rows = {name: n for n, name in enumerate((*k.params, *(b.name for b in k.shared)))}
        self._kernel = k
        self._sites = sites
        self._slots = staged_in(k.body)
        self._atomic = atomics_in(k.body)
        self._updates = False
        self.statement = self.into = ""
        self.starts_copies = False
        """Whether accesses are those of copies, which are aligned to their sizes."""
        self.done: frozenset[Load] = frozenset()
        """The reads of the present statement that were checked before."""

    def pointer(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, False)

    def target(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, True)

    def _watched(self, buffer: str, e: Expr, piece: Piece | None, write: bool) -> str:
        place = super().pointer(buffer, e, piece)
        if buffer not in self.rows or (not write and any(x.buffer == buffer and x.indices[0] == e for x in self.done)):
            return place
        size, align = self.scope.buffers[buffer][1].bytes, 1
        if piece is not None and self.stride(e, piece) == 1:
            align, size = self.alignment(buffer, e, piece, size), size * piece.width
        return self._checked(buffer, place, size, size if self.starts_copies else align, write)

    def update(self, buffer: str, e: Expr) -> str:
        """The address of an element that is updated atomically, as other threads may do at once."""
        self._updates = True
        place = self._watched(buffer, e, None, True)
        self._updates = False
        return place

    def together(self, buffer: str, e: Expr, size: int, write: bool) -> str:
        """The address of an element, from which on so many bytes are accessed at once."""
        place = super().pointer(buffer, e, None)
        return place if buffer not in self.rows else self._checked(buffer, place, size, size, write)

    def place(self, buffer: str, e: Expr) -> str:
        """The address of an element, which is not accessed."""
        return super().pointer(buffer, e, None)

    def site(self, buffer: str, *, write: bool = False, shared: bool = True) -> int:
        """The number of an access by the present statement that no thread makes itself."""
        self._sites.append(Site(self._kernel.name, self.statement, self.into, buffer, write, shared))
        return len(self._sites) - 1

    def _checked(self, buffer: str, place: str, size: int, align: int, write: bool) -> str:
        shared, number = self.rows[buffer] >= len(self._kernel.params), len(self._sites)
        self._sites.append(Site(self._kernel.name, self.statement, self.into, buffer, write, shared))
        how, width = self._watch(shared, buffer, write), self.scope.buffers[buffer][1].bytes.bit_length() - 1
        shift = "" if how in ("tensorc_watch", "tensorc_update") else f"i64 {width}, "
        what = f"i64 {size}, {shift}i64 {align}, i1 {'true' if write else 'false'}, i64 {number}, i64 %thread"
        place = self.f.op(f"call ptr @{how}(ptr %state, ptr %rows, i64 {self.rows[buffer]}, ptr {place}, {what})")
        noted = f"i64 {key(number, shared, size)}, ptr {place}, i64 %thread"
        self.f.line(f"call void @tensorc_note(ptr %state, {noted})")
        if buffer in self._slots and not write:
            took = f"i64 {self.rows[buffer]}, ptr {place}, i64 {size}, i64 %thread"
            self.f.line(f"call void @tensorc_took(ptr %state, ptr %rows, {took})")
        return place

    def _watch(self, shared: bool, buffer: str, write: bool) -> str:
        """The function that watches such accesses."""
        if self._updates:
            return "tensorc_update"
        if buffer in self._atomic:
            return "tensorc_watch"
        if shared:
            return "tensorc_write" if write else "tensorc_read"
        return "tensorc_watch" if buffer in self._kernel.written else "tensorc_within"

    def nest(self, s: Loop) -> Nest | None:
        """The reads that can be checked before a loop, of shared memory and of arrays that the kernel only reads."""
        safe = {name for name in self.rows if name not in self._kernel.written | self._atomic | self._slots}
        return nest_of(s, safe, self.rows, self.form)

    def checked_ahead(self, nest: Nest, width: Callable[[Loop], int]) -> tuple[str, list[str]]:
        """Write the checks of the reads of a nest. Returns whether nothing is wrong, and the code that notes these reads if
        so. `width` gives the lanes of a vector in a loop."""
        f = self.f
        good = f.alloca("i1", 1)
        f.line(f"store i1 true, ptr {good}")
        seen: set[tuple[str, Expr, tuple[tuple[int, int], ...]]] = set()
        notes: list[str] = []
        counts = nest.whole
        for a in nest.ahead:
            name = a.load.buffer
            self.statement, self.into = format_store(a.store), a.store.buffer
            place = self.place(name, a.first)
            pieces = [] if a.vector is None else _pieces(a.vector, width(a.vector))
            if (aligned := self._aligned(a, pieces)) is None:
                self._require(good, "false")
            for begin, align in aligned or ():
                at = f.op(f"add i64 {f.op(f'ptrtoint ptr {place} to i64')}, {begin}")
                self._require(good, f.op(f"icmp eq i64 {f.op(f'and i64 {at}, {align - 1}')}, 0"))
            if (name, a.first, a.steps) not in seen:
                seen.add((name, a.first, a.steps))
                self._looked_at(good, name, place, a.steps)
            requests = self._requests(a, pieces)
            counts &= requests is not None
            number = self.site(name, shared=name not in self._kernel.params)
            for size, begin, times in requests or ():
                at = place if not begin else f.op(f"getelementptr i8, ptr {place}, i64 {begin}")
                notes.append(f"i64 {key(number, True, size, times)}, ptr {at}, i64 %thread")
        if not counts:
            notes = []
            logs = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr %state, i64 {LOGS}')}")
            self._require(good, f.op(f"icmp eq ptr {logs}, null"))
        return f.op(f"load i1, ptr {good}"), [f"call void @tensorc_note(ptr %state, {x})" for x in notes]

    def _require(self, good: str, cond: str) -> None:
        before = self.f.op(f"load i1, ptr {good}")
        self.f.line(f"store i1 {self.f.op(f'and i1 {before}, {cond}')}, ptr {good}")

    def _aligned(self, a: Ahead, pieces: Sequence[Piece]) -> set[tuple[int, int]] | None:
        """The required alignments of a read, by the offset of an address from the first; None if that is not all."""
        size = a.load.dtype.bytes
        if a.vector is None or not a.moves[a.loops.index(a.vector)]:
            return set()
        values: dict[str, Scalar] = {x.var: "%" for x in a.loops} | {a.vector.var: constant(a.vector.begin) or 0}
        with self.scope.bound(values):
            asked = [(x.offset * size, self.alignment(a.load.buffer, a.load.indices[0], x, size)) for x in pieces]
        others = [m for m, x in zip(a.moves, a.loops, strict=True) if x is not a.vector]
        if any(m * size % align for m in others for _, align in asked):
            return None
        return {(begin % align, align) for begin, align in asked}

    def _looked_at(self, good: str, name: str, place: str, steps: Sequence[tuple[int, int]]) -> None:
        """Write the check of elements at distances from the first."""
        f, row, size = self.f, self.rows[name], self.scope.buffers[name][1].bytes
        if name in self._kernel.params:
            span = size * (1 + sum(step * (count - 1) for step, count in steps))
            self._require(good, f.op(f"call i1 @tensorc_spans(ptr %rows, i64 {row}, ptr {place}, i64 {span})"))
            return
        (step, count), *others = sorted(steps, key=lambda x: -x[1])
        (move, lines), *others = others or [(0, 1)]
        what = f"i64 {count}, i64 {step}, i64 {lines}, i64 {move}, i64 {size.bit_length() - 1}, i64 %thread"
        for numbers in product(*(range(n) for _, n in others)):
            far = sum(n * m for n, (m, _) in zip(numbers, others, strict=True))
            at = place if not far else f.op(f"getelementptr i8, ptr {place}, i64 {far * size}")
            self._require(good, f.op(f"call i1 @tensorc_ahead(ptr %state, ptr %rows, i64 {row}, ptr {at}, {what})"))

    def _requests(self, a: Ahead, pieces: Sequence[Piece]) -> list[tuple[int, int, int]] | None:
        """The bytes that a thread reads at once, how far behind the first place, and how often in the same banks but for a
        rotation of them; None if it is an array, whose sectors are not the same for all."""
        if a.load.buffer in self._kernel.params:
            return None
        size = a.load.dtype.bytes
        places = {0: (0, a.times)}
        """By the bytes within a word: how far a place there is behind the first, and how often it is read."""
        for move, x in zip(a.moves, a.loops, strict=True):
            if x is not a.vector:
                places = _moved(places, [n * abs(move) * size for n in range(count_of(x))])
        along = a.vector is not None and a.moves[a.loops.index(a.vector)] == 1
        out: list[tuple[int, int, int]] = []
        for width in dict.fromkeys(x.width for x in pieces) if pieces else (1,):
            begins = [x.offset * size if along else 0 for x in pieces if x.width == width] or [0]
            for far, times in _moved(places, begins).values():
                out.append((size * width if along else size, far, times))
        return out if all(times <= MOST_TIMES for _, _, times in out) else None


def _moved(places: Mapping[int, tuple[int, int]], begins: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The places within words at distances from each of some places."""
    out: dict[int, tuple[int, int]] = {}
    for begin in begins:
        for far, times in places.values():
            at = (far + begin) % _WORD
            first, before = out.get(at, (far + begin, 0))
            out[at] = (first, before + times)
    return out


def _pieces(s: Loop, width: int) -> list[Piece]:
    """The vectors of a vectorized loop."""
    n = count_of(s)
    return [Piece(s.var, k, min(width, n - k)) for k in range(0, n, width)]
