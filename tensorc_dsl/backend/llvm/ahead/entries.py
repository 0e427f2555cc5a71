"""Writes the functions that C calls, as LLVM IR. They check every argument before they access memory."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.backend.llvm.ahead.cpu import Check, add_check
from tensorc_dsl.backend.llvm.ahead.described import write_checked
from tensorc_dsl.backend.llvm.ahead.entry import MEMORY, Entry, Span
from tensorc_dsl.backend.llvm.ahead.interface import Interface, Signature, Status
from tensorc_dsl.backend.llvm.ahead.prepared import LINE, WORD, PreparedMemory
from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.byte_counts import UNCOUNTED, byte_count
from tensorc_dsl.backend.llvm.codegen.compile import Compiled, workspace_symbol
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.scope import Scalar, SymbolTable
from tensorc_dsl.ir.expr import Expr, index, mul
from tensorc_dsl.ir.strides import span_of
from tensorc_dsl.lower.flat import Param


def write_entries(module: Module, api: Interface, kernel: Compiled) -> None:
    """Add the functions that the library exports to the module. They call the kernel's functions."""
    module.functions.append(f"@{_cache(api)} = internal global ptr null, align 8")
    check = add_check(module, api.name, kernel.target)
    for s in api.signatures:
        _write_plain(module, api, s, kernel, check)
        write_checked(module, api, s, check)
    if api.memory:
        _write_prepared_bytes(module, api, api.memory, check.attributes if check else "")


def _bytes(p: Param) -> Expr:
    return mul(span_of(p.shape, p.strides), index(p.dtype.bytes))


def _cache(api: Interface) -> str:
    """The global that keeps scratch memory from call to call."""
    return f"{api.name}.scratch"


def _write_plain(module: Module, api: Interface, s: Signature, kernel: Compiled, check: Check | None) -> None:
    entry = Entry(module, check)
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(s.dims)}
    expressions = Expressions(entry.f, SymbolTable(vars=sizes))
    for k, d in enumerate(s.dims):
        entry.outside(d, f"%d{k}", k)
    for k, p in enumerate(s.params):
        if p.apart is not None:
            meets = entry.f.op(f"xor i1 {expressions.value(p.apart, None).ref}, true")
            entry.fail_if(meets, Status.STRIDES, k)
    data = {p.name: f"%p{k}" for k, p in enumerate(s.params)}
    spans = [Span(data[p.name], expressions.index(_bytes(p)), p.dtype.bytes, p.output) for p in s.params]
    formal = [f"i64 {d}" for d in sizes.values()] + [f"ptr {p}" for p in data.values()]
    m = api.memory if s.memory != "no" else None
    if m is not None:
        size = byte_count(entry.f, m.bytes, sizes)
        entry.fail_if(entry.f.op(f"icmp eq i64 {size}, {UNCOUNTED}"), Status.MEMORY)
        spans.append(Span(MEMORY, size, LINE, s.memory == "writes"))
        formal.append(f"ptr {MEMORY}")
    entry.check_spans(spans)
    if m is not None and s.memory == "reads":
        for name, size in entry.prepared_sizes(m, s).items():
            entry.fail_if(entry.f.op(f"icmp ne i64 {size}, {sizes[name]}"), Status.UNPREPARED, len(s.params))
        data |= {p.name: entry.part(expressions.index(place)) for p, place in m.copies}
    arguments = _Arguments(entry.f, kernel, data, sizes)
    if m is not None:
        arguments.set_prepared(entry.part(m.head))
    prepares = s.memory == "writes" or (m is None and arguments.prepared)
    steps = [*([kernel.prepare_symbol] if prepares else []), *([kernel.symbol] if s.memory != "writes" else [])]
    _call(entry, api, arguments, steps)
    if m is not None and s.memory == "writes":
        _finish(entry, m, data, expressions)
    entry.define(s.name, formal, str(int(Status.OK)))


class _Arguments:
    """The arguments of a kernel's functions, in an array on the stack; missing arguments are null."""

    def __init__(self, f: Function, kernel: Compiled, data: Mapping[str, str], sizes: Mapping[str, Scalar]) -> None:
        self._f = f
        values = [f"ptr {data.get(p.name, 'null')}" for p in kernel.params]
        values += [f"i64 {sizes.get(d.name, 0)}" for d in kernel.dims]
        self.prepared = kernel.prepared_symbol if any(p.constant for p in kernel.params) else None
        """The function that returns the size of prepared memory; its argument is the last one. None without constants."""
        self._last = len(values)
        self.pointer = f.alloca("i64", len(values) + (self.prepared is not None))
        for k, value in enumerate(values):
            self._set(k, value)

    def _set(self, k: int, value: str) -> None:
        place = self._f.op(f"getelementptr i64, ptr {self.pointer}, i64 {k}")
        self._f.line(f"store {value}, ptr {place}, align 8")

    def set_prepared(self, pointer: str) -> None:
        self._set(self._last, f"ptr {pointer}")

    def ask(self, symbol: str) -> str:
        """The number of bytes that a function of the kernel returns."""
        self._f.module.declare("i64", symbol, ("ptr",))
        return self._f.op(f"call i64 @{symbol}(ptr {self.pointer})")


def _call(entry: Entry, api: Interface, arguments: _Arguments, steps: list[str]) -> None:
    """Call functions of the kernel one after the other, in scratch memory if they need any. If the preparation is one of
    them, its results are in that memory too, since the constants may differ from those of the call before."""
    f = entry.f
    inside = arguments.prepared if len(steps) > 1 else None
    prepared = arguments.ask(inside) if inside else "0"
    largest = "0"
    for symbol in steps:
        f.module.declare("void", symbol, ("ptr", "ptr"))
        f.module.declare("i64", "llvm.umax.i64", ("i64", "i64"))
        workspace_bytes = arguments.ask(workspace_symbol(symbol))
        largest = f.op(f"call i64 @llvm.umax.i64(i64 {largest}, i64 {workspace_bytes})")
    need = f.op(f"add i64 {prepared}, {largest}")
    f.module.declare("ptr", "tensorc_scratch_take", ("ptr", "i64"))
    f.module.declare("void", "tensorc_scratch_give", ("ptr", "ptr"))
    some = f.op(f"icmp ne i64 {need}, 0")
    take, run, give, done = map(f.label, ("take", "run", "give", "done"))
    before = f.block
    f.branch_if(some, take, run)
    f.start_block(take)
    block = f.op(f"call ptr @tensorc_scratch_take(ptr @{_cache(api)}, i64 {need})")
    entry.fail_if(f.op(f"icmp eq ptr {block}, null"), Status.MEMORY)
    taken = f.block
    f.branch(run)
    f.start_block(run)
    memory = f.op(f"phi ptr [ null, %{before} ], [ {block}, %{taken} ]")
    if inside:
        arguments.set_prepared(memory)
    workspace = f.op(f"getelementptr i8, ptr {memory}, i64 {prepared}")
    for symbol in steps:
        f.line(f"call void @{symbol}(ptr {arguments.pointer}, ptr {workspace})")
    f.branch_if(some, give, done)
    f.start_block(give)
    f.line(f"call void @tensorc_scratch_give(ptr @{_cache(api)}, ptr {memory})")
    f.branch(done)
    f.start_block(done)


def _finish(entry: Entry, m: PreparedMemory, data: Mapping[str, str], expressions: Expressions) -> None:
    """Copy the constants that calls read, and write the head, which marks the memory as prepared."""
    f = entry.f
    f.module.declare("void", "llvm.memcpy.p0.p0.i64", ("ptr", "ptr", "i64", "i1"))
    for p, place in m.copies:
        to, size = entry.part(expressions.index(place)), expressions.index(_bytes(p))
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {data[p.name]}, i64 {size}, i1 false)")
    for k, value in enumerate((m.mark, *(expressions.index(d) for d in m.dims))):
        f.line(f"store i64 {value}, ptr {entry.part(WORD * k)}, align {WORD}")


def _write_prepared_bytes(module: Module, api: Interface, m: PreparedMemory, attributes: str) -> None:
    """Add a function of the sizes that returns the size of prepared memory, or −1 if a size is out of its range or no memory
    is as large."""
    f = Function(module)
    inside = "true"
    for k, d in enumerate(m.dims):
        for limit, order in ((d.low, "sge"), (d.high, "sle")):
            if limit is not None:
                inside = f.op(f"and i1 {inside}, {f.op(f'icmp {order} i64 %d{k}, {limit}')}")
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(m.dims)}
    total = byte_count(f, m.bytes, sizes)
    inside = f.op(f"and i1 {inside}, {f.op(f'icmp ne i64 {total}, {UNCOUNTED}')}")
    size = f.op(f"select i1 {inside}, i64 {total}, i64 -1")
    formal = ", ".join(f"i64 {d}" for d in sizes.values())
    f.define(f"define i64 @{api.prepared_bytes}({formal}) nounwind {attributes}", f"i64 {size}")
