"""Writes the statements of an emulated thread, with its accesses to memory that threads share watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tensorc_dsl.affine.boxed import MOST_DIMENSIONS
from tensorc_dsl.backend.cuda.codegen.descriptor import write_descriptor
from tensorc_dsl.backend.cuda.codegen.device import DeviceStatements
from tensorc_dsl.backend.cuda.codegen.look_back import CALLS, SEEN, Seen
from tensorc_dsl.backend.cuda.codegen.rendezvous import Instructions, offsets
from tensorc_dsl.backend.cuda.codegen.tally import key
from tensorc_dsl.backend.cuda.codegen.watch import COLLECTIVE, LANDING, OF_ROLE, PASSING, SPINNING
from tensorc_dsl.backend.cuda.lower.beside import described_in, results_in
from tensorc_dsl.backend.cuda.lower.collectives import (
    Access,
    accesses_of,
    address_of,
    element_of,
    is_of_group,
    operands_of,
    register_of,
)
from tensorc_dsl.backend.cuda.lower.descriptors import descriptors_of
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, Finish, Role, atomics_in, collectives_in, slots_of
from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Piece, SymbolTable
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.expr import ZERO, Expr, index, substitute
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.lower.flat import Collective, Shuffle, buffers_of


@dataclass(frozen=True, slots=True)
class Lanes:
    """What instructions of a warp need: their functions, and the bytes for one."""

    instructions: Instructions
    size: int

    def memory(self, f: Function) -> str:
        """Memory of the warp for the next instruction: one of two places, by turns."""
        turn = f.op("load i64, ptr %turn")
        f.line(f"store i64 {f.op(f'xor i64 {turn}, 1')}, ptr %turn")
        return f.op(f"getelementptr i8, ptr %pair, i64 {f.op(f'mul i64 {turn}, {self.size}')}")


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


class _Watched(Expressions):
    """Expressions whose accesses to memory that threads share are watched, and noted to be counted."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site]) -> None:
        super().__init__(f, scope)
        self.rows = {name: n for n, name in enumerate((*k.params, *(b.name for b in k.shared)))}
        self._kernel = k
        self._sites = sites
        self._slots = slots_of(k.body)
        self._atomic = atomics_in(k.body)
        self._updates = False
        self.statement = self.into = ""
        self.starts_copies = False
        """Whether accesses are those of copies, which are aligned to their sizes."""

    def pointer(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, False)

    def target(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, True)

    def _watched(self, buffer: str, e: Expr, piece: Piece | None, write: bool) -> str:
        place = super().pointer(buffer, e, piece)
        if buffer not in self.rows:
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


class Threads(DeviceStatements):
    """Statements of a thread as a coroutine: each has a text for reports, and it suspends where it waits for others."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site], lanes: Lanes) -> None:
        super().__init__(f, scope, k)
        self.expressions = self._watched = _Watched(f, scope, k, sites)
        self._sums = frozenset(results_in(k.body))
        self._described = described_in(collectives_in(k.body))
        self._maps = k.maps
        self._sites = sites
        self._lanes = lanes
        self._waits = 0

    def barrier(self) -> None:
        self._waits += 1
        self.suspend(self._waits + (0 if self.role is None else OF_ROLE))

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
                source = str(s.by)
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
        if self._described:
            self._state("stored")

    def arm(self, number: int, warps: int) -> None:
        self._landing(0, "void", str(number), str(warps))

    def expect(self, at: str, size: int) -> None:
        self._landing(1, "void", at, str(size), "%thread")

    def release(self, at: str) -> None:
        f = self.f
        self._rendezvous()
        first, after = f.label("first"), f.label("released")
        f.branch_if(f.op("icmp eq i64 %lane, 0"), first, after)
        f.start_block(first)
        with f.region():
            self._landing(4, "void", at, "%thread")
        f.branch(after)
        f.start_block(after)

    def begin(self, s: Role) -> None:
        pass  # an emulated thread has no registers

    def box(self, s: Collective, at: str) -> None:
        f, box, (d,) = self.f, s.box, descriptors_of(s).values()
        assert box is not None  # only boxes come here
        self._here(f"{s.intrinsic.name}({d.buffer}, {box.map.array})", d.buffer)
        read, write = self._watched.site(box.map.array, shared=False), self._watched.site(d.buffer, write=True)
        start = f.op(f"ptrtoint ptr {self._watched.place(d.buffer, d.first)} to i64")
        within = f.op(f"sub i64 {start}, {f.op('ptrtoint ptr %shared to i64')}")
        corner = [str(self._watched.index(x)) for x in reversed(box.origin)]
        corner += ["0"] * (MOST_DIMENSIONS - len(corner))
        numbers = (str(self._maps.index(box.map)), within, at, str(self._watched.rows[d.buffer]), str(read), str(write))
        self._landing(2, "void", *numbers, *corner)

    def rejoin(self) -> None:
        pass  # lanes that wait for each other say so themselves

    def await_phase(self, at: str, parity: str) -> None:
        f = self.f
        again, wait, done = f.label("again"), f.label("wait"), f.label("done")
        wide = f.op(f"zext i32 {parity} to i64")
        f.branch(again)
        f.start_block(again)
        passed = self._landing(3, "i64", at, wide, "%thread")
        f.branch_if(f.op(f"icmp ne i64 {passed}, 0"), done, wait)
        f.start_block(wait)
        with f.region():
            self.suspend(SPINNING)
        f.branch(again)
        f.start_block(done)

    def _landing(self, number: int, result: str, *args: str) -> str:
        """Write a call of a function of `Landing`, by its number."""
        f = self.f
        table = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr %state, i64 {LANDING}')}")
        called = f.op(f"load ptr, ptr {f.op(f'getelementptr i64, ptr {table}, i64 {number}')}")
        text = f"call {result} {called}({', '.join(f'i64 {a}' for a in args)})"
        if result != "void":
            return f.op(text)
        f.line(text)
        return ""

    def publish(self) -> None:
        self._state("publish")

    def engage(self, buffers: Sequence[str]) -> None:
        self._state("engage")

    def finish(self, s: Finish) -> None:
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

    def _store(self, s: Store, at: Piece | None) -> None:
        self._here(format_store(s), s.buffer)
        self._watched.starts_copies = self._starts_copies
        super()._store(s, at)
        if s.buffer in self._described and not self._starts_copies:
            self._state("stored")
        if not self._sums.isdisjoint(buffers_of(s)):
            self._state("touch", f"i64 {self._watched.site(s.buffer)}")

    def _here(self, text: str, into: str) -> None:
        self._watched.statement, self._watched.into = text, into
        self._watched.starts_copies = False

    def together(self, s: Collective) -> None:
        f, operands = self.f, operands_of(s)
        text = f"{s.intrinsic.name}({', '.join(dict.fromkeys(x.buffer for _, x in accesses_of(s)))})"
        self._here(text, operands[s.intrinsic.store.buffer].buffer)
        if is_of_group(s.intrinsic):
            self._start(s, operands[s.intrinsic.store.buffer])
            return
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

    def _start(self, s: Collective, sums: Access) -> None:
        """Write that an instruction of a warpgroup is started, and that its factors are looked at."""
        f, called = self.f, self._lanes.instructions.of(s)
        own, size = self._own(s.intrinsic.store.buffer, sums), sums.held.count * sums.held.operand.dtype.bytes
        sites = {name: self._watched.site(d.buffer) for name, d in descriptors_of(s).items()}
        what = f"ptr @{called.take}, ptr {own}, i64 {size}, i64 {min(sites.values())}"
        entry = f.op(f"call ptr @tensorc_beside(ptr %state, i64 %thread, {what})")
        for n, (name, d) in enumerate(descriptors_of(s).items()):
            start = f.op(f"ptrtoint ptr {self._watched.place(d.buffer, d.first)} to i64")
            within = f.op(f"sub i64 {start}, {f.op('ptrtoint ptr %shared to i64')}")
            what = f"i64 {write_descriptor(f, d, within)}, i64 {self._watched.rows[d.buffer]}, i64 {sites[name]}"
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
