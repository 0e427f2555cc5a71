"""Writes the statements of an emulated thread, with its accesses to memory that threads share watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.backend.cuda.codegen.device import PLAN
from tensorc_dsl.backend.cuda.codegen.rendezvous import Instructions, offsets
from tensorc_dsl.backend.cuda.lower.collectives import Access, address_of, element_of, operands_of, register_of
from tensorc_dsl.backend.llvm.codegen.body import Expressions, Piece, SymbolTable
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.statements import Statements
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.expr import ZERO, Expr, index, substitute
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Collective


@dataclass(frozen=True, slots=True)
class Lanes:
    """What instructions of a warp need: their functions, the bytes for one, and how a lane waits for the others."""

    instructions: Instructions
    size: int
    wait: Callable[[], None]

    def memory(self, f: Function) -> str:
        """Memory of the warp for the next instruction: one of two places, by turns."""
        turn = f.op("load i64, ptr %turn")
        f.line(f"store i64 {f.op(f'xor i64 {turn}, 1')}, ptr %turn")
        return f.op(f"getelementptr i8, ptr %pair, i64 {f.op(f'mul i64 {turn}, {self.size}')}")


class _Watched(Expressions):
    """Expressions whose accesses to memory that threads share are watched."""

    def __init__(self, f: Function, scope: SymbolTable, rows: dict[str, int]) -> None:
        super().__init__(f, scope)
        self.rows = rows
        self.site = 0

    def pointer(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, False)

    def target(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        return self._watched(buffer, e, piece, True)

    def _watched(self, buffer: str, e: Expr, piece: Piece | None, write: bool) -> str:
        place = super().pointer(buffer, e, piece)
        if buffer not in self.rows:
            return place
        lanes = piece.width if piece is not None and self.stride(e, piece) == 1 else 1
        return self._checked(buffer, place, lanes * self.scope.buffers[buffer][1].bytes, write)

    def together(self, buffer: str, e: Expr, size: int, write: bool) -> str:
        """The address of an element, from which on so many bytes are accessed at once."""
        place = super().pointer(buffer, e, None)
        if buffer not in self.rows:
            return place
        given = f"ptr %state, ptr %rows, i64 {self.rows[buffer]}, ptr {place}, i64 {size}, i64 {self.site}, i64 %thread"
        self.f.line(f"call void @tensorc_aligned({given})")
        return self._checked(buffer, place, size, write)

    def _checked(self, buffer: str, place: str, size: int, write: bool) -> str:
        what = f"i64 {size}, i1 {'true' if write else 'false'}, i64 {self.site}, i64 %thread"
        return self.f.op(
            f"call ptr @tensorc_watch(ptr %state, ptr %rows, i64 {self.rows[buffer]}, ptr {place}, {what})"
        )


class Threads(Statements):
    """Statements of a thread, each of which has a number for reports."""

    def __init__(
        self, f: Function, scope: SymbolTable, symbol: str, rows: dict[str, int], sites: list[str], lanes: Lanes
    ) -> None:
        super().__init__(f, scope, PLAN, symbol, workspace="null", worker=None)
        self.expressions = self._watched = _Watched(f, scope, rows)
        self._sites = sites
        self._lanes = lanes

    def _store(self, s: Store, at: Piece | None) -> None:
        self._here(format_store(s))
        super()._store(s, at)

    def _here(self, text: str) -> None:
        self._watched.site = len(self._sites)
        self._sites.append(text)

    def collective(self, s: Collective) -> None:
        f, operands = self.f, operands_of(s)
        self._here(f"{s.intrinsic.name}({', '.join(a.buffer for a in operands.values())})")
        called, memory = self._lanes.instructions.of(s), self._lanes.memory(f)
        for name, place in offsets(s.intrinsic)[0].items():
            own = self._own(name, operands[name])
            self._move(name, operands[name], own, write=False)
            to = f.op(f"getelementptr i8, ptr {memory}, i64 {place}")
            f.line(f"call void @{called.give[name]}(ptr {own}, ptr {to}, i64 %lane)")
        self._lanes.wait()
        stored = s.intrinsic.store.buffer
        own = self._own(stored, operands[stored])
        f.line(f"call void @{called.take}(ptr {memory}, ptr {own}, i64 %lane)")
        self._move(stored, operands[stored], own, write=True)

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
