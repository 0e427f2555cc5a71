"""Writes kernels as LLVM coroutines: the same body as for the GPU, one coroutine for each thread, suspended at barriers.

`NAME.run` runs the blocks one after the other, and the threads of a block from barrier to barrier in a given order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.cuda.codegen.device import Threads, storage
from tensorc_dsl.backend.cuda.codegen.tally import LANES, TALLY_CODE, key
from tensorc_dsl.backend.cuda.codegen.under_way import UNDER_WAY_CODE
from tensorc_dsl.backend.cuda.codegen.watch import APART, BLOCK, ENDED, EPOCH, FAST_CODE, MARKS, WATCH, now
from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD, DeviceKernel, DeviceProgram
from tensorc_dsl.backend.llvm.codegen.body import Expressions, Piece, SymbolTable
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import Store

_COROUTINES = """
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare void @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

POISON = -1
"""The byte that shared memory has at the start of a block: all ones are not a number as floats, and -1 as integers."""


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


def emulation_module(p: DeviceProgram) -> tuple[str, tuple[Site, ...]]:
    """The LLVM code of all kernels as coroutines, and their accesses, by their numbers."""
    module = Module(rolled=True)
    sites: list[Site] = []
    runs = [_write_kernel(module, p, k, sites) for k in p.kernels]
    return "".join((_COROUTINES, WATCH, FAST_CODE, UNDER_WAY_CODE, TALLY_CODE, module.text(), *runs)), tuple(sites)


class _Watched(Expressions):
    """Expressions whose accesses to memory that threads share are watched, and noted to be counted."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site]) -> None:
        super().__init__(f, scope)
        self.rows = {name: n for n, name in enumerate((*k.params, *(b.name for b in k.shared)))}
        self._kernel = k
        self._sites = sites
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
        align = size if self.starts_copies else align
        shared, number = self.rows[buffer] >= len(self._kernel.params), len(self._sites)
        self._sites.append(Site(self._kernel.name, self.statement, self.into, buffer, write, shared))
        how, width = self._watch(shared, buffer, write), self.scope.buffers[buffer][1].bytes.bit_length() - 1
        shift = "" if how == "tensorc_watch" else f"i64 {width}, "
        what = f"i64 {size}, {shift}i64 {align}, i1 {'true' if write else 'false'}, i64 {number}, i64 %thread"
        place = self.f.op(f"call ptr @{how}(ptr %state, ptr %rows, i64 {self.rows[buffer]}, ptr {place}, {what})")
        noted = f"i64 {key(number, shared, size)}, ptr {place}, i64 %thread"
        self.f.line(f"call void @tensorc_note(ptr %state, {noted})")
        return place

    def _watch(self, shared: bool, buffer: str, write: bool) -> str:
        """The function that watches such accesses."""
        if shared:
            return "tensorc_write" if write else "tensorc_read"
        return "tensorc_watch" if buffer in self._kernel.written else "tensorc_within"


class _Coroutine(Threads):
    """A thread as a coroutine. Its statements have numbers for reports, and it suspends where it waits for others."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel, sites: list[Site]) -> None:
        super().__init__(f, scope, k.name)
        self.expressions = self._watched = _Watched(f, scope, k, sites)
        self._sites = sites
        self._barriers = 0

    def _store(self, s: Store, at: Piece | None) -> None:
        self._watched.statement, self._watched.into = format_store(s), s.buffer
        self._watched.starts_copies = self._starts_copies
        super()._store(s, at)

    def barrier(self) -> None:
        self._barriers += 1
        self.suspend(self._barriers)

    def suspend(self, mark: int, *, last: bool = False) -> None:
        """Write that the thread waits at the barrier of that number."""
        f = self.f
        f.line(f"store i64 {mark}, ptr %mark")
        resumed = f.label("resumed")
        found = f.op(f"call i8 @llvm.coro.suspend(token none, i1 {'true' if last else 'false'})")
        f.line(f"switch i8 {found}, label %suspend [ i8 0, label %{resumed} i8 1, label %cleanup ]")
        f.start_block(resumed)

    def start_copy(self, target: str, source: str, size: int) -> None:
        number = len(self._sites) - 1
        row = self._watched.rows[self._sites[number].buffer]
        what = f"ptr %state, ptr %rows, i64 %thread, ptr {target}, ptr {source}, i64 {size}"
        self.f.line(f"call void @tensorc_start({what}, i64 {row}, i64 {number})")

    def commit(self) -> None:
        self.f.line("call void @tensorc_commit(ptr %state, i64 %thread)")

    def wait(self, groups: int) -> None:
        self.f.line(f"call void @tensorc_wait(ptr %state, ptr %rows, i64 %thread, i64 {groups})")


def _write_kernel(module: Module, p: DeviceProgram, k: DeviceKernel, sites: list[Site]) -> str:
    """Write a thread of the kernel as a coroutine. Returns the function that runs them."""
    f = Function(module)
    table = storage(f, p, k, "%shared")
    table.vars[THREAD] = "%thread"
    table.vars.update({axis: f"%b{n}" for n, axis in enumerate(BLOCK_AXES)})
    threads = _Coroutine(f, table, k, sites)
    f.prologue(
        "%id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)",
        "%size = call i64 @llvm.coro.size.i64()",
        "%more = add i64 %size, 63",
        "%whole = and i64 %more, -64",
        "%memory = call ptr @aligned_alloc(i64 64, i64 %whole)",
        "%handle = call ptr @llvm.coro.begin(token %id, ptr %memory)",
        f"%marks.at = getelementptr i64, ptr %state, i64 {MARKS}",
        "%marks = load ptr, ptr %marks.at",
        "%mark = getelementptr i64, ptr %marks, i64 %thread",
    )
    threads.suspend(0)
    threads.write_device(k.body)
    threads.suspend(ENDED, last=True)
    f.line("unreachable")
    f.start_block("cleanup")
    f.line("%freed = call ptr @llvm.coro.free(token %id, ptr %handle)")
    f.line("call void @free(ptr %freed)")
    f.branch("suspend")
    f.start_block("suspend")
    f.line("call void @llvm.coro.end(ptr %handle, i1 false, token none)")
    kinds = ["ptr"] * len(k.params) + ["i64"] * len(p.dims)
    names_ = [f"%p{n}" for n in range(len(k.params))] + [f"%d{n}" for n in range(len(p.dims))]
    own = [f"{kind} {name}" for kind, name in zip(kinds, names_, strict=True)]
    first = ["ptr %state", "ptr %rows", "ptr %shared", "i64 %b0", "i64 %b1", "i64 %b2", "i64 %thread"]
    f.define(f"define ptr @{k.name}({', '.join((*first, *own))}) presplitcoroutine nounwind", result="ptr %handle")
    return _runner(k, ", ".join(own))


def _runner(k: DeviceKernel, own: str) -> str:
    """`i64 NAME.run(…)` of the grid's sizes and the kernel's arguments: 1 if threads came to different barriers, else 0."""
    more = f", {own}" if own else ""
    memory = "ptr %state, ptr %rows, ptr %shared, ptr %handles, ptr %order"
    threads = k.threads
    return f"""
define i64 @{k.name}.run({memory}, i64 %x, i64 %y, i64 %z{more}) nounwind {{
entry:
  %xy = mul i64 %x, %y
  %blocks = mul i64 %xy, %z
  %block.at = getelementptr i64, ptr %state, i64 {BLOCK}
  %epoch.at = getelementptr i64, ptr %state, i64 {EPOCH}
  %marks.at = getelementptr i64, ptr %state, i64 {MARKS}
  %marks = load ptr, ptr %marks.at
  %any = icmp sgt i64 %blocks, 0
  br i1 %any, label %grid, label %out
grid:
  %b = phi i64 [ 0, %entry ], [ %b.next, %next ]
  %b0 = urem i64 %b, %x
  %bx = udiv i64 %b, %x
  %b1 = urem i64 %bx, %y
  %b2 = udiv i64 %bx, %y
  store i64 %b, ptr %block.at
  store i64 0, ptr %epoch.at
  {now("%b", "0", "begin")}
  call void @llvm.memset.p0.i64(ptr %shared, i8 {POISON}, i64 {max(k.shared_bytes, 1)}, i1 false)
  br label %make
make:
  %t = phi i64 [ 0, %grid ], [ %t.next, %make ]
  call void @tensorc_forget(ptr %state, i64 %t)
  %made = call ptr @{k.name}(ptr %state, ptr %rows, ptr %shared, i64 %b0, i64 %b1, i64 %b2, i64 %t{more})
  %slot = getelementptr ptr, ptr %handles, i64 %t
  store ptr %made, ptr %slot
  %t.next = add i64 %t, 1
  %t.more = icmp slt i64 %t.next, {threads}
  br i1 %t.more, label %make, label %round
round:
  br label %step
step:
  %u = phi i64 [ 0, %round ], [ %u.next, %step.next ]
  %which = getelementptr i64, ptr %order, i64 %u
  %n = load i64, ptr %which
  %at = getelementptr ptr, ptr %handles, i64 %n
  %h = load ptr, ptr %at
  call void @llvm.coro.resume(ptr %h)
  %u.next = add i64 %u, 1
  %u.more = icmp slt i64 %u.next, {threads}
  %u.lane = and i64 %u.next, {LANES - 1}
  %u.warp = icmp eq i64 %u.lane, 0
  %u.last = xor i1 %u.more, true
  %u.whole = or i1 %u.warp, %u.last
  br i1 %u.whole, label %count, label %step.next
count:
  call void @tensorc_tally(ptr %state)
  br label %step.next
step.next:
  br i1 %u.more, label %step, label %check
check:
  %mark0 = load i64, ptr %marks
  %epoch = load i64, ptr %epoch.at
  %epoch.next = add i64 %epoch, 1
  store i64 %epoch.next, ptr %epoch.at
  {now("%b", "%epoch.next", "now")}
  br label %each
each:
  %v = phi i64 [ 0, %check ], [ %v.next, %same ]
  %mark.at = getelementptr i64, ptr %marks, i64 %v
  %mark = load i64, ptr %mark.at
  %equal = icmp eq i64 %mark, %mark0
  br i1 %equal, label %same, label %differ
same:
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, {threads}
  br i1 %v.more, label %each, label %together
together:
  %ended = icmp eq i64 %mark0, {ENDED}
  br i1 %ended, label %destroy, label %round
differ:
  call void @tensorc_fault(ptr %state, i64 {APART}, i64 %mark, i64 %mark0, i64 0, i64 %v, i64 0)
  br label %destroy
destroy:
  %status = phi i64 [ 0, %together ], [ 1, %differ ]
  br label %end
end:
  %w = phi i64 [ 0, %destroy ], [ %w.next, %end ]
  %old.at = getelementptr ptr, ptr %handles, i64 %w
  %old = load ptr, ptr %old.at
  call void @llvm.coro.destroy(ptr %old)
  %w.next = add i64 %w, 1
  %w.more = icmp slt i64 %w.next, {threads}
  br i1 %w.more, label %end, label %ending
ending:
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %out, label %next
next:
  %b.next = add i64 %b, 1
  %b.more = icmp slt i64 %b.next, %blocks
  br i1 %b.more, label %grid, label %out
out:
  %result = phi i64 [ 0, %entry ], [ 1, %ending ], [ 0, %next ]
  br label %release
release:
  %a = phi i64 [ 0, %out ], [ %a.next, %release ]
  call void @tensorc_release(ptr %state, i64 %a)
  %a.next = add i64 %a, 1
  %a.more = icmp slt i64 %a.next, {threads}
  br i1 %a.more, label %release, label %return
return:
  call void @tensorc_unlog(ptr %state)
  ret i64 %result
}}
"""
