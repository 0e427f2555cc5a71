"""A function that returns a status, as LLVM IR under construction: it returns at the first error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.backend.llvm.ahead.cpu import Check
from tensorc_dsl.backend.llvm.ahead.interface import Signature, Status
from tensorc_dsl.backend.llvm.ahead.prepared import LINE, WORD, PreparedMemory
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.scope import Scalar
from tensorc_dsl.ir.expr import Dim

MEMORY = "%prepared"
"""The parameter for prepared memory."""


@dataclass(frozen=True, slots=True)
class Span:
    """Memory that is passed to a function."""

    pointer: str
    bytes: Scalar
    alignment: int
    written: bool


class Entry:
    """The function's code, and the checks that all entries share."""

    def __init__(self, module: Module, check: Check | None) -> None:
        self.f = Function(module)
        self._attributes = check.attributes if check else ""
        if check:
            self.fail_if(self.f.op(f"xor i1 {self.f.op(f'call i1 @{check.symbol}()')}, true"), Status.CPU)

    def define(self, name: str, formal: Sequence[str], result: str) -> None:
        """Finish the function, with external linkage."""
        self.f.define(f"define i32 @{name}({', '.join(formal)}) nounwind {self._attributes}", f"i32 {result}")

    def fail_if(self, condition: str, status: Status, argument: int = 0) -> None:
        """Return the status if the condition holds."""
        fail, go_on = self.f.label("fail"), self.f.label("ok")
        self.f.branch_if(condition, fail, go_on)
        self.f.start_block(fail)
        self.f.line(f"ret i32 {status | argument << 8}")
        self.f.start_block(go_on)

    def outside(self, d: Dim, value: Scalar, position: int) -> None:
        """Return an error if a size is out of its range."""
        self.fail_if(self.f.op(f"icmp slt i64 {value}, {d.low}"), Status.SIZE, position)
        if d.high is not None:
            self.fail_if(self.f.op(f"icmp sgt i64 {value}, {d.high}"), Status.SIZE, position)

    def check_spans(self, spans: Sequence[Span]) -> None:
        """Return an error if a pointer is null or misaligned, or if memory that is written overlaps any other."""
        ends: list[tuple[str, str]] = []
        for k, s in enumerate(spans):
            begin = self.check_pointer(s.pointer, s.alignment, k)
            ends.append((begin, self.f.op(f"add i64 {begin}, {s.bytes}")))
        for i, s in enumerate(spans):
            for j, other in enumerate(spans):
                # Of two outputs that overlap, the second one is reported.
                if s.written and i != j and not (other.written and i < j):
                    before = self.f.op(f"icmp ult i64 {ends[i][0]}, {ends[j][1]}")
                    after = self.f.op(f"icmp ult i64 {ends[j][0]}, {ends[i][1]}")
                    self.fail_if(self.f.op(f"and i1 {before}, {after}"), Status.OVERLAP, i)

    def check_pointer(self, pointer: str, alignment: int, argument: int) -> str:
        """The address as a number. Return an error if it is null or misaligned."""
        self.fail_if(self.f.op(f"icmp eq ptr {pointer}, null"), Status.NULL, argument)
        begin = self.f.op(f"ptrtoint ptr {pointer} to i64")
        if alignment > 1:
            low = self.f.op(f"and i64 {begin}, {alignment - 1}")
            self.fail_if(self.f.op(f"icmp ne i64 {low}, 0"), Status.MISALIGNED, argument)
        return begin

    def prepared_sizes(self, memory: PreparedMemory, s: Signature) -> dict[str, Scalar]:
        """The sizes that memory was prepared for. Return an error if this library has not prepared it."""
        argument = len(s.params)
        self.check_pointer(MEMORY, LINE, argument)
        differs = self.f.op(f"icmp ne i64 {self._word(0)}, {memory.mark}")
        self.fail_if(differs, Status.UNPREPARED, argument)
        return {d.name: self._word(1 + k) for k, d in enumerate(memory.dims)}

    def _word(self, k: int) -> str:
        return self.f.op(f"load i64, ptr {self.part(WORD * k)}, align {WORD}")

    def part(self, at: Scalar) -> str:
        """The address of an offset in prepared memory."""
        return self.f.op(f"getelementptr i8, ptr {MEMORY}, i64 {at}")
