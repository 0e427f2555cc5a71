"""Writes the body of a kernel: phases by the generator of flat statements, barriers by what the machine has for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import gcd
from typing import assert_never

from tensorc_dsl.affine.filling import filled
from tensorc_dsl.backend.cuda.codegen.look_back import Looking, Seen
from tensorc_dsl.backend.cuda.codegen.update import write_update
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    BLOCK_AXES,
    FIRST,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    DeviceProgram,
    Guard,
    InitMbarriers,
    LookBack,
    Phase,
    ProxyFence,
    Role,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
)
from tensorc_dsl.backend.cuda.lower.look_back import words_of
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Piece, SymbolTable
from tensorc_dsl.backend.llvm.codegen.statements import Plan, Statements
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Load, Var, index
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Collective, Flat, Shuffle

WORD = 32
"""The bits of a register, which lanes give each other."""

PLAN = Plan(8 * ALIGNMENT, 1, ZERO, ZERO, late=True)


class DeviceStatements(Statements, ABC):
    """Writes what the threads of a kernel do. A subclass knows how they wait for each other, and for copies."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel) -> None:
        super().__init__(f, scope, PLAN, k.name, workspace="null", worker=None)
        self._scopes = dict.fromkeys(k.params, "device") | {b.name: "block" for b in k.shared}
        self._grid = k.grid
        self._starts_copies = False
        self._phases = f.alloca(f"i{WORD}", 1)
        self._mbarrier = ""
        self.role: Role | None = None
        """The role whose statements are written."""

    @abstractmethod
    def barrier(self) -> None: ...

    @abstractmethod
    def start_copy(self, target: str, source: Callable[[], str], size: int, cond: str | None) -> None:
        """Write the start of a copy of `size` bytes from an address in global memory to one in shared memory, or of so many
        zeros where there is a condition and it does not hold. `source` writes the computation of the address."""
        ...

    def bytes_read(self, size: int, cond: str, kind: str) -> str:
        """Write how many bytes of a copy are read, and not zeros, as an integer of a kind."""
        return self.f.op(f"select i1 {cond}, {kind} {size}, {kind} 0")

    @abstractmethod
    def place_of_update(self, s: Store) -> str:
        """Write the address of the element that an atomic store updates."""
        ...

    @abstractmethod
    def next_number(self, chain: str) -> str:
        """Write that a block takes the next number of the counter of a scan."""
        ...

    @abstractmethod
    def put(self, chain: str, at: str, word: str, *, release: bool) -> None: ...

    @abstractmethod
    def get(self, chain: str, at: str, seen: Seen) -> str: ...

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def wait(self, groups: int) -> None: ...

    @abstractmethod
    def arm(self, number: int, warps: int) -> None:
        """Write that this thread sets up the mbarrier of a number, for bytes or for so many warps."""
        ...

    @abstractmethod
    def expect(self, at: str, size: int) -> None:
        """Write that an mbarrier expects so many bytes."""
        ...

    @abstractmethod
    def tma_load(self, s: Collective, at: str) -> None:
        """Write the start of a TMA load, whose bytes an mbarrier counts."""
        ...

    @abstractmethod
    def tma_store(self, s: Collective) -> None:
        """Write the start of a TMA store."""
        ...

    @abstractmethod
    def commit_tma_stores(self) -> None:
        """Write that the TMA stores that this thread has started since it last did so are one group."""
        ...

    @abstractmethod
    def wait_tma_stores(self) -> None:
        """Write that this thread waits until all groups of its TMA stores have read shared memory."""
        ...

    @abstractmethod
    def rejoin(self) -> None:
        """Write that a warp is together again, one lane of which has started copies."""
        ...

    @abstractmethod
    def await_phase(self, at: str, parity: str) -> None:
        """Write that a thread waits until the phase of an mbarrier with this parity, an integer of 32 bits, is over."""
        ...

    @abstractmethod
    def release(self, at: str) -> None:
        """Write that a warp arrives at an mbarrier when all its lanes have read."""
        ...

    @abstractmethod
    def begin(self, s: Role) -> None:
        """Write what the threads of a role do first."""
        ...

    @abstractmethod
    def publish(self) -> None: ...

    @abstractmethod
    def engage(self, buffers: Sequence[str]) -> None:
        """Write that a thread is done with what it has of these buffers, before instructions that run beside it."""
        ...

    @abstractmethod
    def finish(self, s: WgmmaWait) -> None:
        """Write that a thread waits for such instructions."""
        ...

    def write_device(self, body: tuple[Device, ...]) -> None:
        """Write the statements of a kernel."""
        f, e = self.f, self.expressions
        for s in body:
            match s:
                case Phase(body=inner, asynchronous=asynchronous):
                    self._starts_copies = asynchronous
                    self.write(inner)
                    self._starts_copies = False
                case InitMbarriers(awaited=awaited):
                    over = sum(1 << n for n, warps in enumerate(awaited) if warps)
                    f.line(f"store i{WORD} {over}, ptr {self._phases}")
                    self.under(FIRST, lambda awaited=awaited: self._arm(awaited))
                case TmaLoad(at=at, size=size, body=inner):
                    if self.role is not None and self.role.alone:
                        self._fetch(at, size, inner)
                        continue
                    self.under(FIRST, lambda at=at, size=size, inner=inner: self._fetch(at, size, inner))
                    self.rejoin()
                case TmaStore(body=inner):
                    self.under(FIRST, lambda inner=inner: self._put_out(inner))
                    self.rejoin()
                case WaitTmaStores():
                    self.under(FIRST, self.wait_tma_stores)
                    self.rejoin()
                case ArriveMbarrier(at=at):
                    self.release(str(e.index(at)))
                case Role(first=first, threads=threads):
                    side = (
                        Compare("<", Var(THREAD), index(threads))
                        if first == 0
                        else Compare(">=", Var(THREAD), index(first))
                    )
                    self.under(side, lambda s=s: self._within(s))
                case WaitMbarrier(at=at):
                    self._waited_for(str(e.index(at)))
                case Barrier():
                    self.barrier()
                case Ticket():
                    self._numbered(s)
                case LookBack():
                    types = {name: t for name, (_, t) in self.expressions.scope.buffers.items()}
                    look = Looking(self, s, words_of(s, types))
                    self.under(FIRST, look.write)
                case CommitGroup():
                    self.commit()
                case WaitGroup(groups=groups):
                    self.wait(groups)
                case ProxyFence():
                    self.publish()
                case WgmmaFence(buffers=buffers):
                    self.engage(buffers)
                case WgmmaWait():
                    self.finish(s)
                case Steps(var=var, end=end, body=inner):
                    self.counted(var, 0, e.index(end), 1, lambda inner=inner: self.write_device(inner))
                case Guard(cond=cond, body=inner):
                    self.under(cond, lambda inner=inner: self.write_device(inner))
                case _:
                    assert_never(s)

    def under(self, cond: Expr, body: Callable[[], None]) -> None:
        """Write what is done if a condition holds."""
        f = self.f
        then, after = f.label("then"), f.label("after")
        f.branch_if(self.expressions.value(cond, None).ref, then, after)
        f.start_block(then)
        with f.region():
            body()
        f.branch(after)
        f.start_block(after)

    def _numbered(self, s: Ticket) -> None:
        """Write that the block is that of the next number: the axes get the digits of it, the first the fastest."""
        f, e = self.f, self.expressions
        self.under(FIRST, lambda: f.line(f"store i64 {self.next_number(s.chain)}, ptr {e.target(s.place, ZERO, None)}"))
        self.barrier()
        rest = f.op(f"load i64, ptr {e.pointer(s.place, ZERO, None)}")
        for axis, size in zip(BLOCK_AXES, map(e.index, self._grid), strict=True):
            e.scope.vars[axis] = f.op(f"urem i64 {rest}, {size}")
            rest = f.op(f"udiv i64 {rest}, {size}")

    def _arm(self, awaited: tuple[int, ...]) -> None:
        for n, warps in enumerate(awaited):
            self.arm(n, warps)

    def _within(self, s: Role) -> None:
        """Write what the threads of a role do."""
        self.role = s
        self.begin(s)
        if s.alone:
            self.under(Compare("==", Var(THREAD), index(s.first)), lambda: self.write_device(s.body))
        else:
            self.write_device(s.body)
        self.role = None

    def _fetch(self, at: Expr, size: int, body: tuple[Flat, ...]) -> None:
        self._mbarrier = str(self.expressions.index(at))
        self.expect(self._mbarrier, size)
        self.write(body)

    def _put_out(self, body: tuple[Flat, ...]) -> None:
        self.write(body)
        self.commit_tma_stores()

    def _waited_for(self, at: str) -> None:
        """Write the wait for the next phase of an mbarrier, after all before it: the bit of the mbarrier has its parity."""
        f = self.f
        number = f.op(f"trunc i64 {at} to i{WORD}")
        phases = f.op(f"load i{WORD}, ptr {self._phases}")
        self.await_phase(at, f.op(f"and i{WORD} {f.op(f'lshr i{WORD} {phases}, {number}')}, 1"))
        turned = f.op(f"xor i{WORD} {phases}, {f.op(f'shl i{WORD} 1, {number}')}")
        f.line(f"store i{WORD} {turned}, ptr {self._phases}")

    def collective(self, s: Collective) -> None:
        if s.tile is None:
            self.together(s)
        elif s.tile.stores:
            self.tma_store(s)
        else:
            self.tma_load(s, self._mbarrier)

    @abstractmethod
    def together(self, s: Collective) -> None:
        """Write an instruction that the lanes of a warp do together."""
        ...

    def shuffle(self, s: Shuffle) -> None:
        """Write what lanes give each other as words of their bits, one after the other."""
        f, (store,) = self.f, s.body
        assert isinstance(store, Store) and isinstance(store.value, Load)  # as `shuffled` makes them
        bits = 8 * store.value.dtype.bytes
        source = self.expressions.pointer(store.value.buffer, store.value.indices[0], None)
        target = self.expressions.target(store.buffer, store.indices[0], None)
        if bits > WORD:
            words = range(bits // WORD)
            every = [f.op(f"load i{WORD}, ptr {f.op(f'getelementptr i{WORD}, ptr {source}, i64 {n}')}") for n in words]
            for n, word in enumerate(every):
                got = self.exchange(word, s)
                f.line(f"store i{WORD} {got}, ptr {f.op(f'getelementptr i{WORD}, ptr {target}, i64 {n}')}")
            return
        word = f.op(f"load i{bits}, ptr {source}")
        if bits < WORD:
            word = f.op(f"zext i{bits} {word} to i{WORD}")
        got = self.exchange(word, s)
        if bits < WORD:
            got = f.op(f"trunc i{WORD} {got} to i{bits}")
        f.line(f"store i{bits} {got}, ptr {target}")

    @abstractmethod
    def exchange(self, word: str, s: Shuffle) -> str:
        """Write that a lane gives a word of 32 bits, and return the one that it gets."""
        ...

    def _store(self, s: Store, at: Piece | None) -> None:
        if s.atomic:
            assert at is None  # as `whole_vectors` says
            write_update(self.f, self.expressions, s, self.place_of_update, self._scopes[s.buffer], self.under)
            return
        if not self._starts_copies:
            super()._store(s, at)
            return
        copied = filled(s.value)
        assert copied is not None  # only copies are started
        load, size = copied.load, copied.load.dtype.bytes * (1 if at is None else at.width)
        cond = None if copied.cond is None else self.expressions.value(copied.cond, None).ref
        target = self.expressions.target(s.buffer, s.indices[0], at)
        self.start_copy(target, lambda: self.expressions.pointer(load.buffer, load.indices[0], at), size, cond)


def storage(f: Function, p: DeviceProgram, k: DeviceKernel, shared: str) -> SymbolTable:
    """The buffers of a kernel: `%p0`, `%p1`, … in global memory, places from the pointer `shared` on, a thread's own.

    Open sizes are `%d0`, `%d1`, …
    """
    types = {x.name: x.dtype for x in (*p.params, *p.scratch)}
    table = SymbolTable(vars={d.name: f"%d{n}" for n, d in enumerate(p.dims)})
    for n, name in enumerate(k.params):
        table.buffers[name] = (f"%p{n}", types[name])
        table.aligned[name] = ALIGNMENT
    for b in k.shared:
        table.buffers[b.name] = (f.op(f"getelementptr i8, ptr {shared}, i64 {b.offset}"), b.dtype)
        table.aligned[b.name] = gcd(b.offset, ALIGNMENT)
    for b in k.local:
        table.buffers[b.name] = (f.alloca(in_memory(b.dtype), b.size), b.dtype)
        table.aligned[b.name] = ALIGNMENT
    return table
