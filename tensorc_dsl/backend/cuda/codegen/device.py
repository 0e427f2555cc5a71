"""Writes the body of a kernel: phases by the generator of flat statements, barriers by what the machine has for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import gcd
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.copies import filled
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    Barrier,
    Commit,
    Device,
    DeviceKernel,
    DeviceProgram,
    Engage,
    Finish,
    Guard,
    Phase,
    Publish,
    Steps,
    Wait,
)
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Piece, SymbolTable
from tensorc_dsl.backend.llvm.codegen.statements import Plan, Statements
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.expr import ZERO, Load
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Shuffle

WORD = 32
"""The bits of a register, which lanes give each other."""

PLAN = Plan(8 * ALIGNMENT, 1, ZERO, ZERO, late=True)


class DeviceStatements(Statements, ABC):
    """Writes what the threads of a kernel do. A subclass knows how they wait for each other, and for copies."""

    def __init__(self, f: Function, scope: SymbolTable, symbol: str) -> None:
        super().__init__(f, scope, PLAN, symbol, workspace="null", worker=None)
        self._starts_copies = False

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
    def commit(self) -> None: ...

    @abstractmethod
    def wait(self, groups: int) -> None: ...

    @abstractmethod
    def publish(self) -> None: ...

    @abstractmethod
    def engage(self, buffers: Sequence[str]) -> None:
        """Write that a thread is done with what it has of these buffers, before instructions that run beside it."""
        ...

    @abstractmethod
    def finish(self, buffers: Sequence[str]) -> None:
        """Write that a thread waits for such instructions, which have added to these buffers."""
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
                case Barrier():
                    self.barrier()
                case Commit():
                    self.commit()
                case Wait(groups=groups):
                    self.wait(groups)
                case Publish():
                    self.publish()
                case Engage(buffers=buffers):
                    self.engage(buffers)
                case Finish(buffers=buffers):
                    self.finish(buffers)
                case Steps(var=var, end=end, body=inner):
                    self.counted(var, 0, e.index(end), 1, lambda inner=inner: self.write_device(inner))
                case Guard(cond=cond, body=inner):
                    then, after = f.label("then"), f.label("after")
                    f.branch_if(e.value(cond, None).ref, then, after)
                    f.start_block(then)
                    with f.region():
                        self.write_device(inner)
                    f.branch(after)
                    f.start_block(after)
                case _:
                    assert_never(s)

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
