"""The functions that C calls, as LLVM IR: every argument is checked before memory is touched."""

from __future__ import annotations

from functools import reduce

from tensorc_dsl.ahead.interface import Interface, Status, c_type
from tensorc_dsl.ahead.sizes import steps_to_sizes
from tensorc_dsl.codegen.llvm.body import Expressions, Scalar, Scope
from tensorc_dsl.codegen.llvm.compile import Compiled, workspace_symbol
from tensorc_dsl.codegen.llvm.function import Function, Module
from tensorc_dsl.ir.expr import Dim, Expr, index, mul
from tensorc_dsl.lower.flat import Param

RECORD = 48
"""Bytes of a `tensorc_array`, which is laid out as DLPack's `DLTensor`."""

_DATA, _DEVICE, _RANK, _DTYPE, _SHAPE, _STRIDES, _OFFSET = 0, 8, 16, 20, 24, 32, 40
"""Where its fields begin."""

_CPU = 1
"""DLPack's number for memory of the CPU."""


class _Entry:
    """A function that returns a status, being written."""

    def __init__(self, module: Module) -> None:
        self.f = Function(module)

    def fail_if(self, condition: str, status: Status, argument: int = 0) -> None:
        """Leave with the status where the condition holds."""
        fail, go_on = self.f.label("fail"), self.f.label("ok")
        self.f.branch_if(condition, fail, go_on)
        self.f.start_block(fail)
        self.f.line(f"ret i32 {status | argument << 8}")
        self.f.start_block(go_on)

    def outside(self, d: Dim, value: Scalar, position: int) -> None:
        """Leave where a size is out of its range."""
        self.fail_if(self.f.op(f"icmp slt i64 {value}, {d.low}"), Status.SIZE, position)
        if d.high is not None:
            self.fail_if(self.f.op(f"icmp sgt i64 {value}, {d.high}"), Status.SIZE, position)


def write_entries(module: Module, api: Interface, kernel: Compiled) -> None:
    """Add `NAME` and `NAME_checked`, which call the kernel's functions, to the module.

    Raises LowerError where the shapes of the arrays do not tell the sizes of the open dimensions.
    """
    _write_plain(module, api, kernel)
    _write_checked(module, api)


def _bytes(p: Param) -> Expr:
    return mul(reduce(mul, p.shape, index(1)), index(p.dtype.bytes))


def _write_plain(module: Module, api: Interface, kernel: Compiled) -> None:
    entry = _Entry(module)
    f = entry.f
    sizes: dict[str, Scalar] = {d.name: f"%d{k}" for k, d in enumerate(api.dims)}
    expressions = Expressions(f, Scope(vars=sizes))
    for k, d in enumerate(api.dims):
        entry.outside(d, f"%d{k}", k)
    spans: list[tuple[str, str]] = []
    for k, p in enumerate(api.params):
        entry.fail_if(f.op(f"icmp eq ptr %p{k}, null"), Status.NULL, k)
        begin = f.op(f"ptrtoint ptr %p{k} to i64")
        if p.dtype.bytes > 1:
            low = f.op(f"and i64 {begin}, {p.dtype.bytes - 1}")
            entry.fail_if(f.op(f"icmp ne i64 {low}, 0"), Status.MISALIGNED, k)
        spans.append((begin, f.op(f"add i64 {begin}, {expressions.index(_bytes(p))}")))
    for i, p in enumerate(api.params):
        for j, q in enumerate(api.params):
            # Of two outputs the second one is told.
            if p.output and i != j and not (q.output and i < j):
                before = f.op(f"icmp ult i64 {spans[i][0]}, {spans[j][1]}")
                after = f.op(f"icmp ult i64 {spans[j][0]}, {spans[i][1]}")
                entry.fail_if(f.op(f"and i1 {before}, {after}"), Status.OVERLAP, i)
    values = [f"ptr %p{k}" for k in range(len(api.params))] + [f"i64 %d{k}" for k in range(len(api.dims))]
    prepares = any(p.constant for p in api.params)
    arguments = f.alloca("i64", len(values) + prepares)
    for k, value in enumerate(values):
        f.line(f"store {value}, ptr {f.op(f'getelementptr i64, ptr {arguments}, i64 {k}')}, align 8")
    _call(entry, api, kernel, arguments, f"i64 {len(values)}" if prepares else None)
    formal = [f"i64 %d{k}" for k in range(len(api.dims))] + [f"ptr %p{k}" for k in range(len(api.params))]
    f.define(f"define i32 @{api.name}({', '.join(formal)}) nounwind", f"i32 {int(Status.OK)}")


def _call(entry: _Entry, api: Interface, kernel: Compiled, arguments: str, last: str | None) -> None:
    """Run the kernel, in scratch memory if it needs any. With constant inputs, `last` is the place of the prepared memory
    among the arguments, and they are prepared first: nothing says here that they are those of the call before."""
    f = entry.f

    def ask(symbol: str) -> str:
        f.module.declare("i64", symbol, ("ptr",))
        return f.op(f"call i64 @{symbol}(ptr {arguments})")

    steps = [kernel.symbol] if last is None else [kernel.prepare_symbol, kernel.symbol]
    prepared = "0" if last is None else ask(kernel.prepared_symbol)
    largest = "0"
    for symbol in steps:
        f.module.declare("void", symbol, ("ptr", "ptr"))
        f.module.declare("i64", "llvm.umax.i64", ("i64", "i64"))
        largest = f.op(f"call i64 @llvm.umax.i64(i64 {largest}, i64 {ask(workspace_symbol(symbol))})")
    need = f.op(f"add i64 {prepared}, {largest}")
    cache = f"{api.name}.scratch"
    f.module.functions.append(f"@{cache} = internal global ptr null, align 8")
    f.module.declare("ptr", "tensorc_scratch_take", ("ptr", "i64"))
    f.module.declare("void", "tensorc_scratch_give", ("ptr", "ptr"))
    some = f.op(f"icmp ne i64 {need}, 0")
    take, run, give, done = map(f.label, ("take", "run", "give", "done"))
    before = f.block
    f.branch_if(some, take, run)
    f.start_block(take)
    block = f.op(f"call ptr @tensorc_scratch_take(ptr @{cache}, i64 {need})")
    entry.fail_if(f.op(f"icmp eq ptr {block}, null"), Status.MEMORY)
    taken = f.block
    f.branch(run)
    f.start_block(run)
    memory = f.op(f"phi ptr [ null, %{before} ], [ {block}, %{taken} ]")
    if last is not None:
        f.line(f"store ptr {memory}, ptr {f.op(f'getelementptr i64, ptr {arguments}, {last}')}, align 8")
    workspace = f.op(f"getelementptr i8, ptr {memory}, i64 {prepared}")
    for symbol in steps:
        f.line(f"call void @{symbol}(ptr {arguments}, ptr {workspace})")
    f.branch_if(some, give, done)
    f.start_block(give)
    f.line(f"call void @tensorc_scratch_give(ptr @{cache}, ptr {memory})")
    f.branch(done)
    f.start_block(done)


def _write_checked(module: Module, api: Interface) -> None:
    entry = _Entry(module)
    f = entry.f

    def field(k: int, at: int, kind: str) -> str:
        place = f.op(f"getelementptr i8, ptr %arrays, i64 {RECORD * k + at}")
        return f.op(f"load {kind}, ptr {place}")

    entry.fail_if(f.op(f"icmp ne i32 %count, {len(api.params)}"), Status.COUNT)
    entry.fail_if(f.op("icmp eq ptr %arrays, null"), Status.NULL)
    extents: list[list[str]] = []
    for k, p in enumerate(api.params):
        t = c_type(p.dtype)
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _DEVICE, 'i32')}, {_CPU}"), Status.DEVICE, k)
        # A word of 32 bits, least byte first: the kind's code, its bits, and one lane.
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _DTYPE, 'i32')}, {t.code | t.bits << 8 | 1 << 16}"), Status.DTYPE, k)
        entry.fail_if(f.op(f"icmp ne i32 {field(k, _RANK, 'i32')}, {len(p.shape)}"), Status.RANK, k)
        entry.fail_if(f.op(f"icmp eq ptr {field(k, _DATA, 'ptr')}, null"), Status.NULL, k)
        extents.append([])
        if p.shape:
            shape = field(k, _SHAPE, "ptr")
            entry.fail_if(f.op(f"icmp eq ptr {shape}, null"), Status.NULL, k)
            places = [f.op(f"getelementptr i64, ptr {shape}, i64 {axis}") for axis in range(len(p.shape))]
            extents[k] = [f.op(f"load i64, ptr {place}, align 8") for place in places]
    sizes = _sizes(entry, api, extents)
    expressions = Expressions(f, Scope(vars=sizes))
    for k, p in enumerate(api.params):
        for e, extent in zip(p.shape, extents[k], strict=True):
            entry.fail_if(f.op(f"icmp ne i64 {extent}, {expressions.index(e)}"), Status.SHAPE, k)
        if p.shape:
            _check_strides(entry, field(k, _STRIDES, "ptr"), extents[k], k)
    data: list[str] = []
    for k in range(len(api.params)):
        place = f.op(f"getelementptr i8, ptr {field(k, _DATA, 'ptr')}, i64 {field(k, _OFFSET, 'i64')}")
        data.append(f"ptr {place}")
    actual = [f"i64 {sizes[d.name]}" for d in api.dims] + data
    result = f.op(f"call i32 @{api.name}({', '.join(actual)})")
    f.define(f"define i32 @{api.checked}(ptr %arrays, i32 %count) nounwind", f"i32 {result}")


def _sizes(entry: _Entry, api: Interface, extents: list[list[str]]) -> dict[str, Scalar]:
    """The sizes that the shapes tell, each within its range. That they fit every shape is still to be checked."""
    f = entry.f
    sizes: dict[str, Scalar] = {}
    for step in steps_to_sizes(api.params, api.dims):
        value: Scalar = extents[step.param][step.axis]
        rest = Expressions(f, Scope(vars=dict(sizes))).index(step.rest)
        if rest != 0:
            value = f.op(f"sub i64 {value}, {rest}")
        if step.factor != 1:
            value = f.op(f"sdiv i64 {value}, {step.factor}")
        entry.outside(step.dim, value, api.dims.index(step.dim))
        sizes[step.dim.name] = value
    return sizes


def _check_strides(entry: _Entry, strides: str, extents: list[str], argument: int) -> None:
    """Leave unless the strides, in elements, are those of a dense array; along an extent of 1 any will do."""
    f = entry.f
    look, done = f.label("strides"), f.label("dense")
    f.branch_if(f.op(f"icmp eq ptr {strides}, null"), done, look)
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
