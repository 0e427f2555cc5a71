"""Writes the functions that C calls, as LLVM IR: they check every argument, also of arrays with descriptions, before they
access memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc_dsl.backend.llvm.ahead.cpu import Check, add_check
from tensorc_dsl.backend.llvm.ahead.interface import (
    LINE,
    WORD,
    Interface,
    ModelInterface,
    PreparedMemory,
    Signature,
    Status,
    c_type,
)
from tensorc_dsl.backend.llvm.codegen.compile import UNCOUNTED, Compiled, byte_count, workspace_symbol
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Scalar, SymbolTable
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Dim, Expr, free_vars, index, mul
from tensorc_dsl.ir.sizes import conditions_on, spanned_expr
from tensorc_dsl.lower.flat import Param
from tensorc_dsl.proof.sets.constants import solve_sizes

# A function that returns a status, as LLVM IR under construction: it returns at the first error.


MEMORY = "%prepared"
"""The parameter for prepared memory."""


@frozen
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

    def occurring(self, dims: Sequence[Dim], sizes: Mapping[str, Scalar]) -> None:
        """Return an error if sizes within their ranges do not meet what the dimensions say beside these."""
        for c in conditions_on(dims):
            met = Expressions(self.f, SymbolTable(vars=dict(sizes))).value(c, None).ref
            first = next(k for k, d in enumerate(dims) if d.name in free_vars(c))
            self.fail_if(self.f.op(f"xor i1 {met}, true"), Status.SIZE, first)

    def check_spans(self, spans: Sequence[Span]) -> None:
        """Return an error if a pointer is null or misaligned, or if memory that is written overlaps any other.

        Memory of no bytes may be anywhere, also at null, where other libraries have arrays without elements.
        """
        ends: list[tuple[str, str]] = []
        for k, s in enumerate(spans):
            begin = self.check_pointer(s.pointer, s.alignment, k, s.bytes)
            ends.append((begin, self.f.op(f"add i64 {begin}, {s.bytes}")))
        for i, s in enumerate(spans):
            for j, other in enumerate(spans):
                # Of two outputs that overlap, the second one is reported.
                if s.written and i != j and not (other.written and i < j):
                    before = self.f.op(f"icmp ult i64 {ends[i][0]}, {ends[j][1]}")
                    after = self.f.op(f"icmp ult i64 {ends[j][0]}, {ends[i][1]}")
                    self.fail_if(self.f.op(f"and i1 {before}, {after}"), Status.OVERLAP, i)

    def check_pointer(self, pointer: str, alignment: int, argument: int, size: Scalar) -> str:
        """The address as a number, 0 of memory of no bytes. Return an error if any other is null or misaligned."""
        some = self.f.op(f"icmp ne i64 {size}, 0")
        null = self.f.op(f"icmp eq ptr {pointer}, null")
        self.fail_if(self.f.op(f"and i1 {some}, {null}"), Status.NULL, argument)
        address = self.f.op(f"ptrtoint ptr {pointer} to i64")
        begin = self.f.op(f"select i1 {some}, i64 {address}, i64 0")
        if alignment > 1:
            low = self.f.op(f"and i64 {begin}, {alignment - 1}")
            self.fail_if(self.f.op(f"icmp ne i64 {low}, 0"), Status.MISALIGNED, argument)
        return begin

    def prepared_sizes(self, memory: PreparedMemory, s: Signature) -> dict[str, Scalar]:
        """The sizes that memory was prepared for. Return an error if this library has not prepared it."""
        argument = len(s.params)
        self.check_pointer(MEMORY, LINE, argument, WORD)
        differs = self.f.op(f"icmp ne i64 {self._word(0)}, {memory.mark}")
        self.fail_if(differs, Status.UNPREPARED, argument)
        return {d.name: self._word(1 + k) for k, d in enumerate(memory.dims)}

    def _word(self, k: int) -> str:
        return self.f.op(f"load i64, ptr {self.part(WORD * k)}, align {WORD}")

    def part(self, at: Scalar) -> str:
        """The address of an offset in prepared memory."""
        return self.f.op(f"getelementptr i8, ptr {MEMORY}, i64 {at}")


# Writes the entries for arrays with descriptions, as LLVM IR: they check these, and then pass the pointers on.


RECORD = 48
"""The number of bytes of a `tensorc_array`, which has the layout of DLPack's `DLTensor`."""

_DATA, _DEVICE, _RANK, _DTYPE, _SHAPE, _STRIDES, _OFFSET = 0, 8, 16, 20, 24, 32, 40
"""The offsets of its fields."""

_CPU = 1
"""DLPack's number for memory of the CPU."""


def write_checked(module: Module, api: Interface | ModelInterface, s: Signature, check: Check | None) -> None:
    """Add `s.checked`, which calls `s.name`, to the module."""
    entry = Entry(module, check)
    f = entry.f

    def field(k: int, at: int, kind: str) -> str:
        place = f.op(f"getelementptr i8, ptr %arrays, i64 {RECORD * k + at}")
        return f.op(f"load {kind}, ptr {place}")

    entry.fail_if(f.op(f"icmp ne i32 %count, {len(s.params)}"), Status.COUNT)
    entry.fail_if(f.op("icmp eq ptr %arrays, null"), Status.NULL)
    extents: list[list[str]] = []
    strides: list[list[str]] = []
    empty: list[str] = []
    for k, p in enumerate(s.params):
        t = c_type(p.dtype)
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _DEVICE, 'i32')}, {_CPU}"), Status.DEVICE, k)
        # A word of 32 bits, least byte first: the kind's code, its bits, and one lane.
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _DTYPE, 'i32')}, {t.code | t.bits << 8 | 1 << 16}"), Status.DTYPE, k)
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _RANK, 'i32')}, {len(p.shape)}"), Status.RANK, k)
        extents.append([])
        if p.shape:
            shape = field(k, _SHAPE, "ptr")
            entry.fail_if(f.op(f"icmp eq ptr {shape}, null"), Status.NULL, k)
            places = [f.op(f"getelementptr i64, ptr {shape}, i64 {axis}") for axis in range(len(p.shape))]
            extents[k] = [f.op(f"load i64, ptr {place}, align 8") for place in places]
        empty.append(_without_elements(entry, extents[k]))
        null = f.op(f"icmp eq ptr {field(k, _DATA, 'ptr')}, null")
        entry.fail_if(f.op(f"select i1 {empty[k]}, i1 false, i1 {null}"), Status.NULL, k)
        strides.append(_strides(entry, field(k, _STRIDES, "ptr"), extents[k]) if p.strides else [])
    sizes = _sizes(entry, api, s, extents, strides, empty)
    expressions = Expressions(f, SymbolTable(vars=sizes))
    for k, p in enumerate(s.params):
        for e, extent in zip(p.shape, extents[k], strict=True):
            entry.fail_if(f.op(f"icmp ne i64 {extent}, {expressions.index(e)}"), Status.SHAPE, k)
        for e, stride, extent in zip(p.strides, strides[k], extents[k], strict=False):
            differs = f.op(f"icmp ne i64 {stride}, {expressions.index(e)}")
            used = f.op(f"and i1 {differs}, {f.op(f'icmp sgt i64 {extent}, 1')}")
            entry.fail_if(f.op(f"select i1 {empty[k]}, i1 false, i1 {used}"), Status.STRIDES, k)
        if p.shape and not p.strides:
            _check_strides(entry, field(k, _STRIDES, "ptr"), extents[k], empty[k], k)
    data: list[str] = []
    for k in range(len(s.params)):
        place = f.op(f"getelementptr i8, ptr {field(k, _DATA, 'ptr')}, i64 {field(k, _OFFSET, 'i64')}")
        data.append(f"ptr {place}")
    memory = [] if s.memory == "no" else [f"ptr {MEMORY}"]
    actual = [f"i64 {sizes[d.name]}" for d in s.dims] + data + memory
    result = f.op(f"call i32 @{s.name}({', '.join(actual)})")
    entry.define(s.checked, ["ptr %arrays", "i32 %count", *memory], result)


def _without_elements(entry: Entry, extents: list[str]) -> str:
    """Whether one of the extents is 0."""
    empty = "false"
    for extent in extents:
        empty = entry.f.op(f"or i1 {empty}, {entry.f.op(f'icmp eq i64 {extent}, 0')}")
    return empty


def _sizes(
    entry: Entry,
    api: Interface | ModelInterface,
    s: Signature,
    extents: list[list[str]],
    strides: list[list[str]],
    empty: list[str],
) -> dict[str, Scalar]:
    """The sizes in prepared memory and those that the shapes and strides determine, each within its range. The caller has to
    compare them with every shape and stride. A stride along an extent of 1 may be any, as may all of an `empty` array, so the
    size that it tells is the nearest one in range. A factor is never 0, since lowering requires that the shapes determine all
    sizes in any case."""
    f = entry.f
    sizes: dict[str, Scalar] = {}
    given = api.memory.dims if api.memory and s.memory == "reads" else ()
    if api.memory and given:
        sizes |= entry.prepared_sizes(api.memory, s)
    for step in solve_sizes([p.described for p in s.params], given):
        axis, rank = step.axis, len(extents[step.array])
        value: Scalar = extents[step.array][axis] if axis < rank else strides[step.array][axis - rank]
        expressions = Expressions(f, SymbolTable(vars=dict(sizes)))
        rest, factor = expressions.index(step.rest), expressions.index(step.factor)
        if rest != 0:
            value = f.op(f"sub i64 {value}, {rest}")
        if factor != 1:
            value = f.op(f"sdiv i64 {value}, {factor}")
        if axis >= rank:
            near = value
            for limit, name in ((step.dim.low, "smax"), (step.dim.high, "smin")):
                if limit is not None:
                    f.module.declare("i64", f"llvm.{name}.i64", ("i64", "i64"))
                    near = f.op(f"call i64 @llvm.{name}.i64(i64 {near}, i64 {limit})")
            steps = f.op(f"icmp sgt i64 {extents[step.array][axis - rank]}, 1")
            free = f.op(f"select i1 {empty[step.array]}, i1 true, i1 {f.op(f'xor i1 {steps}, true')}")
            value = f.op(f"select i1 {free}, i64 {near}, i64 {value}")
        entry.outside(step.dim, value, s.dims.index(step.dim))
        sizes[step.dim.name] = value
    return sizes


def _strides(entry: Entry, given: str, extents: list[str]) -> list[str]:
    """The strides of an array in elements; where it gives none, those of a dense one."""
    f = entry.f
    none = f.op(f"icmp eq ptr {given}, null")
    place = f.alloca("i64", len(extents))
    dense = "1"
    for axis in reversed(range(len(extents))):
        f.line(f"store i64 {dense}, ptr {f.op(f'getelementptr i64, ptr {place}, i64 {axis}')}, align 8")
        dense = f.op(f"mul i64 {dense}, {extents[axis]}")
    at = f.op(f"select i1 {none}, ptr {place}, ptr {given}")
    return [
        f.op(f"load i64, ptr {f.op(f'getelementptr i64, ptr {at}, i64 {axis}')}, align 8")
        for axis in range(len(extents))
    ]


def _check_strides(entry: Entry, strides: str, extents: list[str], empty: str, argument: int) -> None:
    """Return an error unless the strides, in elements, are those of a dense array; any are valid along an extent of 1, and of
    an array without elements."""
    f = entry.f
    look, done = f.label("strides"), f.label("dense")
    f.branch_if(f.op(f"or i1 {empty}, {f.op(f'icmp eq ptr {strides}, null')}"), done, look)
    f.start_block(look)
    dense = "1"
    for axis in reversed(range(len(extents))):
        stride = f.op(f"load i64, ptr {f.op(f'getelementptr i64, ptr {strides}, i64 {axis}')}, align 8")
        differs = f.op(f"icmp ne i64 {stride}, {dense}")
        steps = f.op(f"icmp ne i64 {extents[axis]}, 1")
        entry.fail_if(f.op(f"and i1 {differs}, {steps}"), Status.STRIDES, argument)
        dense = f.op(f"mul i64 {dense}, {extents[axis]}")
    f.branch(done)
    f.start_block(done)


# Writes the functions that C calls, as LLVM IR. They check every argument before they access memory.


def write_entries(module: Module, api: Interface, kernel: Compiled) -> None:
    """Add the functions that the library exports to the module. They call the kernel's functions."""
    module.functions.append(f"@{_cache(api)} = internal global ptr null, align 8")
    check = add_check(module, api.name, kernel.target)
    for s in api.signatures:
        _write_plain(module, api, s, kernel, check)
        write_checked(module, api, s, check)
    if api.memory:
        _write_prepared_bytes(module, api, api.memory, check.attributes if check else "")


def bytes_of(p: Param) -> Expr:
    """The bytes of an array, over the open sizes."""
    return mul(spanned_expr(p.shape, p.strides), index(p.dtype.bytes))


def _cache(api: Interface) -> str:
    """The global that keeps scratch memory from call to call."""
    return f"{api.name}.scratch"


def _write_plain(module: Module, api: Interface, s: Signature, kernel: Compiled, check: Check | None) -> None:
    entry = Entry(module, check)
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(s.dims)}
    expressions = Expressions(entry.f, SymbolTable(vars=sizes))
    for k, d in enumerate(s.dims):
        entry.outside(d, f"%d{k}", k)
    entry.occurring(s.dims, sizes)
    for k, p in enumerate(s.params):
        if p.apart is not None:
            meets = entry.f.op(f"xor i1 {expressions.value(p.apart, None).ref}, true")
            entry.fail_if(meets, Status.STRIDES, k)
    data = {p.name: f"%p{k}" for k, p in enumerate(s.params)}
    spans = [Span(data[p.name], expressions.index(bytes_of(p)), p.dtype.bytes, p.output) for p in s.params]
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


def declare_scratch(module: Module) -> None:
    """Declare the functions that hand scratch memory on from call to call."""
    module.declare("ptr", "tensorc_scratch_take", ("ptr", "i64"))
    module.declare("void", "tensorc_scratch_give", ("ptr", "ptr"))


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
    declare_scratch(f.module)
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
        to, size = entry.part(expressions.index(place)), expressions.index(bytes_of(p))
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {data[p.name]}, i64 {size}, i1 false)")
    for k, value in enumerate((m.mark, *(expressions.index(d) for d in m.dims))):
        f.line(f"store i64 {value}, ptr {entry.part(WORD * k)}, align {WORD}")


def _write_prepared_bytes(module: Module, api: Interface, m: PreparedMemory, attributes: str) -> None:
    """Add a function of the sizes that returns the size of prepared memory, or −1 if sizes do not occur or no memory is as
    large."""
    f = Function(module)
    inside = "true"
    for k, d in enumerate(m.dims):
        for limit, order in ((d.low, "sge"), (d.high, "sle")):
            if limit is not None:
                inside = f.op(f"and i1 {inside}, {f.op(f'icmp {order} i64 %d{k}, {limit}')}")
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(m.dims)}
    for c in conditions_on(m.dims):
        inside = f.op(f"and i1 {inside}, {Expressions(f, SymbolTable(vars=sizes)).value(c, None).ref}")
    total = byte_count(f, m.bytes, sizes)
    inside = f.op(f"and i1 {inside}, {f.op(f'icmp ne i64 {total}, {UNCOUNTED}')}")
    size = f.op(f"select i1 {inside}, i64 {total}, i64 -1")
    formal = ", ".join(f"i64 {d}" for d in sizes.values())
    f.define(f"define i64 @{api.prepared_bytes}({formal}) nounwind {attributes}", f"i64 {size}")
