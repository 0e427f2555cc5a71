"""Writes the statements and expressions of an emulated thread, with its accesses to memory that threads share watched.

They are checked one by one, or together before a nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import assert_never

from tensorc_dsl.backend.cuda.codegen.device import CALLS, SEEN, DeviceStatements, Seen
from tensorc_dsl.backend.cuda.codegen.ptx import write_descriptor
from tensorc_dsl.backend.cuda.emulation.access_costs import MOST_TIMES, key
from tensorc_dsl.backend.cuda.emulation.queues import IN_REGISTERS
from tensorc_dsl.backend.cuda.emulation.rendezvous import Instructions, offsets
from tensorc_dsl.backend.cuda.emulation.watch import COLLECTIVE, LANDING, LOGS, OF_ROLE, PASSING, SPINNING
from tensorc_dsl.backend.cuda.lower.collectives import (
    Access,
    accesses_of,
    address_of,
    element_of,
    is_of_group,
    lane_operands,
    register_of,
)
from tensorc_dsl.backend.cuda.lower.kernels import (
    DeviceKernel,
    Role,
    WgmmaWait,
    atomics_in,
    collectives_in,
    consumers_of,
    outgoing_in,
    staged_in,
    team_of,
)
from tensorc_dsl.backend.cuda.lower.shared_layout import descriptors_of
from tensorc_dsl.backend.cuda.lower.synchronization import described_in, registers_in
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Piece, Scalar, SymbolTable, in_memory
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
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
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, Shuffle, buffers_of, store_loads, stores
from tensorc_dsl.proof.sets.instructions import MOST_DIMENSIONS
from tensorc_dsl.proof.sets.linear_forms import Linear

# Finds the reads of a nest of loops that an emulated thread can check together, before the nest.
#
# A thread runs from one barrier to the next before any other does. So what a read meets is the same at every place of a
# nest without a barrier, and an element that is read again needs no second look. Where a read is made in each iteration,
# its subscript is linear in the loops, and these have constant bounds, its elements are known before the nest.


_KINDS = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


@frozen
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


@frozen
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


@frozen
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
        self._teams = team_of(k) > 0
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
        if buffer in self._atomic or (shared and self._teams and buffer not in self._slots):
            return "tensorc_watch"  # older stamps may be those of another team
        if shared:
            return "tensorc_write" if write else "tensorc_read"
        return "tensorc_watch" if buffer in self._kernel.written else "tensorc_within"

    def nest(self, s: Loop) -> Nest | None:
        """The reads that can be checked before a loop, of shared memory and of arrays that the kernel only reads."""
        safe = {name for name in self.rows if name not in self._kernel.written | self._atomic | self._slots}
        if self._teams:
            safe &= set(self._kernel.params)
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


@frozen
class Lanes:
    """What instructions of a warp need: their functions, and the bytes for one."""

    instructions: Instructions
    size: int

    def memory(self, f: Function) -> str:
        """Memory of the warp for the next instruction: one of two places, by turns."""
        turn = f.op("load i64, ptr %turn")
        f.line(f"store i64 {f.op(f'xor i64 {turn}, 1')}, ptr %turn")
        return f.op(f"getelementptr i8, ptr %pair, i64 {f.op(f'mul i64 {turn}, {self.size}')}")


class Threads(DeviceStatements):
    """Statements of a thread as a coroutine: each has a text for reports, and it suspends where it waits for others."""

    def __init__(
        self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site], lanes: Lanes, *, ahead: bool
    ) -> None:
        super().__init__(f, scope, k)
        self.expressions = self._watched = Watched(f, scope, k, sites)
        self._beside = frozenset(registers_in(k.body))
        self._held = {b.name: b.size for b in k.local}
        self._known = described_in(collectives_in(k.body)) | outgoing_in(k.body).keys()
        self._maps = k.maps
        self._users = consumers_of(k)
        self._sites = sites
        self._lanes = lanes
        self._waits = 0
        self._ahead = ahead
        """Whether reads are checked before nests of loops: such a nest is written twice."""
        self._done: dict[int, frozenset[Load]] = {}
        """The reads of stores, by their identity, that were checked before the nest that is written."""

    def barrier(self) -> None:
        self._waits += 1
        self.suspend(self._waits + (0 if self.role is None else OF_ROLE))

    def meet_cluster(self) -> None:
        self.barrier()  # of the block, whose threads then wait for the other blocks
        self._until(lambda: self.f.op(f"call i64 {self._called(8)}(i64 %thread)"))

    def exchange(self, word: str, s: Shuffle) -> str:
        f, memory = self.f, self._lanes.memory(self.f)
        f.line(f"store i32 {word}, ptr {f.op(f'getelementptr i32, ptr {memory}, i64 %lane')}")
        self._rendezvous()
        match s.move:
            case "down" | "up":
                other = f.op(f"{'add' if s.move == 'down' else 'sub'} i64 %lane, {s.by}")
                there = f.op(f"icmp ult i64 {other}, {LANES}")
                source = f.op(f"select i1 {there}, i64 {other}, i64 %lane")
            case "xor":
                source = f.op(f"xor i64 %lane, {s.by}")
            case "lane":
                source = f.op(f"add i64 {f.op(f'and i64 %lane, {LANES - s.width}')}, {s.by}")
            case _:
                assert_never(s.move)
        return f.op(f"load i32, ptr {f.op(f'getelementptr i32, ptr {memory}, i64 {source}')}")

    def _rendezvous(self) -> None:
        """Write that a lane waits for its warp."""
        self._waits += 1
        self.suspend(COLLECTIVE + self._waits)

    def suspend(self, mark: int, *, last: bool = False) -> None:
        """Write that the thread waits at the barrier of that number."""
        f = self.f
        f.line(f"store i64 {mark}, ptr %mark")
        resumed = f.label("resumed")
        found = f.op(f"call i8 @llvm.coro.suspend(token none, i1 {'true' if last else 'false'})")
        f.line(f"switch i8 {found}, label %suspend [ i8 0, label %{resumed} i8 1, label %cleanup ]")
        f.start_block(resumed)

    def start_copy(self, target: str, source: Callable[[], str], size: int, cond: str | None) -> None:
        f, number = self.f, len(self._sites) - 1
        row = self._watched.rows[self._sites[number].buffer]
        if cond is None:
            place, read = source(), str(size)
        else:  # zeros have no source: it may be outside of the array, and is not counted
            slot, copied, after = f.alloca("ptr", 1), f.label("copied"), f.label("started")
            f.line(f"store ptr null, ptr {slot}")
            read = self.bytes_read(size, cond, "i64")
            f.branch_if(f.op(f"icmp ne i64 {read}, 0"), copied, after)
            f.start_block(copied)
            with f.region():
                f.line(f"store ptr {source()}, ptr {slot}")
            f.branch(after)
            f.start_block(after)
            place = f.op(f"load ptr, ptr {slot}")
        what = f"ptr %state, ptr %rows, i64 %thread, ptr {target}, ptr {place}, i64 {size}, i64 {read}"
        f.line(f"call void @tensorc_start({what}, i64 {row}, i64 {number})")

    def next_number(self, chain: str) -> str:
        return self._passed("take", chain, "0")

    def put(self, chain: str, at: str, word: str, *, release: bool) -> None:
        self._passed("put", chain, at, word, str(int(release)))

    def get(self, chain: str, at: str, seen: Seen) -> str:
        return self._passed("get", chain, at, str(SEEN.index(seen)))

    def pause(self) -> None:
        self.suspend(SPINNING)

    def _passed(self, name: str, chain: str, at: str, *more: str) -> str:
        """Write a call of a function of `Memory`, about a word that other blocks access at once."""
        f = self.f
        table = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr %state, i64 {PASSING}')}")
        called = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr {table}, i64 {CALLS.index(name)}')}")
        place = f.op(f"getelementptr i64, ptr {self.expressions.scope.buffers[chain][0]}, i64 {at}")
        number = f.op(f"ptrtoint ptr {place} to i64")
        self._here(f"look back along {chain}", chain)
        site = self._watched.site(chain, write=name != "get", shared=False)
        f.line(f"call void @tensorc_note(ptr %state, i64 {key(site, False, 8)}, ptr {place}, i64 %thread)")
        return f.op(f"call i64 {called}({', '.join(f'i64 {x}' for x in (number, *more))})")

    def commit(self) -> None:
        self.f.line("call void @tensorc_commit(ptr %state, i64 %thread)")

    def wait(self, groups: int) -> None:
        self.f.line(f"call void @tensorc_wait(ptr %state, ptr %rows, i64 %thread, i64 {groups})")
        if self._known:
            self._state("stored")

    def arm(self, number: int, warps: int) -> None:
        self._landing(0, str(number), str(warps))

    def expect(self, at: str, size: int) -> None:
        self._landing(1, at, str(size), "%thread")

    def release(self, at: str, blocks: int) -> None:
        f = self.f
        self._rendezvous()
        first, after = f.label("first"), f.label("released")
        f.branch_if(f.op("icmp eq i64 %lane, 0"), first, after)
        f.start_block(first)
        with f.region():
            self._landing(4, at, "%thread", str(blocks))
        f.branch(after)
        f.start_block(after)

    def begin(self, s: Role) -> None:
        pass  # an emulated thread has no registers

    def tma_load(self, s: Collective, at: str) -> None:
        assert s.tile is not None  # only tiles come here
        self._landing(2, *self._tile(s, at), str(s.tile.blocks))

    def tma_store(self, s: Collective) -> None:
        self._landing(5, *self._tile(s, "%thread"))

    def commit_tma_stores(self) -> None:
        self._landing(6, "%thread")

    def wait_tma_stores(self) -> None:
        self._landing(7, "%thread")

    def _tile(self, s: Collective, by: str) -> list[str]:
        """The arguments of the function that starts a copy of a tile: its map, the place in shared memory, what it is known
        by, the buffer there, the statements that read and write, and the corner of the tile."""
        f, tile, (d,) = self.f, s.tile, descriptors_of(s).values()
        assert tile is not None  # only tiles come here
        to, source = (tile.map.array, d.buffer) if tile.stores else (d.buffer, tile.map.array)
        self._here(f"{s.intrinsic.name}({to}, {source})", to)
        read = self._watched.site(source, shared=tile.stores)
        write = self._watched.site(to, write=True, shared=not tile.stores)
        start = f.op(f"ptrtoint ptr {self._watched.place(d.buffer, d.first)} to i64")
        within = f.op(f"sub i64 {start}, {f.op('ptrtoint ptr %shared to i64')}")
        corner = [str(self._watched.index(x)) for x in reversed(tile.origin)]
        corner += ["0"] * (MOST_DIMENSIONS - len(corner))
        row = str(self._watched.rows[d.buffer])
        return [str(self._maps.index(tile.map)), within, by, row, str(read), str(write), *corner]

    def rejoin(self) -> None:
        pass  # lanes that wait for each other say so themselves

    def await_phase(self, at: str, parity: str) -> None:
        wide = self.f.op(f"zext i32 {parity} to i64")
        what = f"ptr %state, i64 {at}, i64 {wide}, i64 {self._users}, i64 %thread"
        self._until(lambda: self.f.op(f"call i64 @tensorc_passed({what})"))

    def _until(self, passed: Callable[[], str]) -> None:
        """Write that a thread waits until what is written gives 1."""
        f = self.f
        again, wait, done = f.label("again"), f.label("wait"), f.label("done")
        f.branch(again)
        f.start_block(again)
        f.branch_if(f.op(f"icmp ne i64 {passed()}, 0"), done, wait)
        f.start_block(wait)
        with f.region():
            self.suspend(SPINNING)
        f.branch(again)
        f.start_block(done)

    def _landing(self, number: int, *args: str) -> None:
        """Write a call of a function of `Landing`, by its number."""
        self.f.line(f"call void {self._called(number)}({', '.join(f'i64 {a}' for a in args)})")

    def _called(self, number: int) -> str:
        """Write that the address of such a function is loaded."""
        f = self.f
        table = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr %state, i64 {LANDING}')}")
        return f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr {table}, i64 {number}')}")

    def publish(self) -> None:
        self._state("publish")

    def engage(self, buffers: Sequence[str]) -> None:
        self._state("engage")

    def finish(self, s: WgmmaWait) -> None:
        f, number = self.f, self.f.alloca("i64", 1)
        ended = f.op(f"call i64 @tensorc_ended(ptr %state, i64 %thread, i64 {int(s.ends_group)})")
        f.line(f"store i64 {ended}, ptr {number}")
        again, each, done = f.label("again"), f.label("each"), f.label("done")
        f.branch(again)
        f.start_block(again)
        n = f.op(f"load i64, ptr {number}")
        entry = f.op(f"call ptr @tensorc_started(ptr %state, i64 %thread, i64 {n}, i64 {s.groups})")
        f.branch_if(f.op(f"icmp eq ptr {entry}, null"), done, each)
        f.start_block(each)
        with f.region():
            memory = self._lanes.memory(f)
            f.line(
                f"call void @tensorc_gather(ptr %state, ptr %rows, ptr %shared, i64 %thread, ptr {entry}, ptr {memory})"
            )
            self._rendezvous()
            self._state("compute", f"i64 {n}", f"ptr {memory}")
            f.line(f"store i64 {f.op(f'add i64 {n}, 1')}, ptr {number}")
        f.branch(again)
        f.start_block(done)
        self._state("finished", f"i64 {f.op(f'load i64, ptr {number}')}")

    def place_of_update(self, s: Store) -> str:
        return self._watched.update(s.buffer, s.indices[0])

    def _state(self, name: str, *args: str) -> None:
        """Write a call about what the thread has done."""
        self.f.line(f"call void @tensorc_{name}({', '.join(('ptr %state', 'i64 %thread', *args))})")

    def _loop(self, s: Loop, pieces: tuple[Piece, ...]) -> None:
        nest = self._watched.nest(s) if self._ahead and not pieces and not self._starts_copies else None
        if nest is None:
            super()._loop(s, pieces)
            return
        f, stores = self.f, {id(a.store): a.store for a in nest.ahead}
        self._ahead = False
        good, notes = self._watched.checked_ahead(nest, self._width)
        fast, slow, after = f.label("fast"), f.label("slow"), f.label("after")
        f.branch_if(good, fast, slow)
        f.start_block(fast)
        for note in notes:
            f.line(note)
        self._done = {n: frozenset(a.load for a in nest.ahead if a.store is x) for n, x in stores.items()}
        with f.region():
            super()._loop(s, pieces)
        self._done = {}
        f.branch(after)
        f.start_block(slow)
        with f.region():
            super()._loop(s, pieces)
        f.branch(after)
        f.start_block(after)
        self._ahead = True

    def _store(self, s: Store, at: Piece | None) -> None:
        self._here(format_store(s), s.buffer)
        self._watched.starts_copies = self._starts_copies
        self._watched.done = self._done.get(id(s), frozenset())
        super()._store(s, at)
        self._watched.done = frozenset()
        if s.buffer in self._known and not self._starts_copies:
            self._state("stored")
        self._touches(buffers_of(s))

    def _touches(self, buffers: frozenset[str]) -> None:
        """Write that the thread accesses these buffers, if some are registers of instructions of warpgroups."""
        for name in sorted(self._beside & buffers):
            place, t = self.expressions.scope.buffers[name]
            size = self._held[name] * t.bytes
            self._state("touch", f"ptr {place}", f"i64 {size}", f"i64 {self._watched.site(name)}")

    def _here(self, text: str, into: str) -> None:
        self._watched.statement, self._watched.into = text, into
        self._watched.starts_copies = False

    def shuffle(self, s: Shuffle) -> None:
        (store,) = stores(s.body)
        self._here(format_store(store), store.buffer)
        self._touches(buffers_of(store))
        super().shuffle(s)

    def together(self, s: Collective) -> None:
        f, operands = self.f, lane_operands(s)
        text = f"{s.intrinsic.name}({', '.join(dict.fromkeys(x.buffer for _, x in accesses_of(s)))})"
        self._here(text, operands[s.intrinsic.store.buffer].buffer)
        if is_of_group(s.intrinsic):
            self._start(s, operands)
            return
        self._touches(frozenset(a.buffer for a in operands.values()))
        called, memory = self._lanes.instructions.of(s), self._lanes.memory(f)
        for name, place in offsets(s.intrinsic)[0].items():
            own = self._own(name, operands[name])
            self._move(name, operands[name], own, write=False)
            to = f.op(f"getelementptr i8, ptr {memory}, i64 {place}")
            f.line(f"call void @{called.give[name]}(ptr {own}, ptr {to}, i64 %lane)")
        self._rendezvous()
        stored = s.intrinsic.store.buffer
        own = self._own(stored, operands[stored])
        f.line(f"call void @{called.take}(ptr {memory}, ptr {own}, i64 %lane)")
        self._move(stored, operands[stored], own, write=True)

    def _start(self, s: Collective, operands: Mapping[str, Access]) -> None:
        """Write that an instruction of a warpgroup is started, and that its factors are looked at."""
        f, called, stored = self.f, self._lanes.instructions.of(s), s.intrinsic.store.buffer
        sums = operands[stored]
        own, size = self._own(stored, sums), sums.held.count * sums.held.operand.dtype.bytes
        sites = {name: self._watched.site(d.buffer) for name, d in descriptors_of(s).items()}
        what = f"ptr @{called.take}, ptr {own}, i64 {size}, i64 {min(sites.values())}"
        entry = f.op(f"call ptr @tensorc_beside(ptr %state, i64 %thread, {what})")
        factors: dict[str, str] = {}
        for name, a in operands.items():
            if name != stored:
                place = f.op(f"ptrtoint ptr {self._own(name, a)} to i64")
                factors[name] = f"i64 {place}, i64 {IN_REGISTERS}, i64 0"
        for name, d in descriptors_of(s).items():
            start = f.op(f"ptrtoint ptr {self._watched.place(d.buffer, ZERO)} to i64")
            within = f.op(f"sub i64 {start}, {f.op('ptrtoint ptr %shared to i64')}")
            base = f.op(f"trunc i64 {within} to i32")
            low, high = write_descriptor(f, d, base, self._watched.index(d.unit))
            given = f.op(
                f"or i64 {f.op(f'zext i32 {low} to i64')}, {high << 32 if high < 1 << 31 else (high << 32) - (1 << 64)}"
            )
            factors[name] = f"i64 {given}, i64 {self._watched.rows[d.buffer]}, i64 {sites[name]}"
        for n, (name, what) in enumerate(factors.items()):
            f.line(f"call void @tensorc_factor(ptr {entry}, i64 {n}, ptr @{called.give[name]}, {what})")
        f.line(f"call void @tensorc_gather(ptr %state, ptr %rows, ptr %shared, i64 %thread, ptr {entry}, ptr null)")

    def _own(self, name: str, a: Access) -> str:
        """The address of a lane's elements: of its part of a fragment, or of memory for a copy."""
        if a.held.addresses:
            return self.f.alloca(in_memory(a.held.operand.dtype), a.held.count)
        return self._watched.pointer(a.buffer, substitute(a.index, {register_of(name): ZERO}), None)

    def _move(self, name: str, a: Access, own: str, *, write: bool) -> None:
        """Copy what is at each address of an operand, to it or from it."""
        size = a.held.operand.dtype.bytes * a.held.adjacent if a.held.addresses else 0
        for n in range(a.held.addresses):
            at = substitute(a.index, {address_of(name): index(n), element_of(name): ZERO})
            place = self._watched.together(a.buffer, at, size, write)
            part = self.f.op(f"getelementptr i8, ptr {own}, i64 {n * size}")
            to, source = (place, part) if write else (part, place)
            self.f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")
