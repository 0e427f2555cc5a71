"""Writes the entries for arrays with descriptions, as LLVM IR: they check these, and then pass the pointers on."""

from __future__ import annotations

from tensorc_dsl.affine.solve_sizes import solve_sizes
from tensorc_dsl.backend.llvm.ahead.cpu import Check
from tensorc_dsl.backend.llvm.ahead.entry import MEMORY, Entry
from tensorc_dsl.backend.llvm.ahead.interface import Interface, Signature, Status, c_type
from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.scope import Scalar, SymbolTable

RECORD = 48
"""The number of bytes of a `tensorc_array`, which has the layout of DLPack's `DLTensor`."""

_DATA, _DEVICE, _RANK, _DTYPE, _SHAPE, _STRIDES, _OFFSET = 0, 8, 16, 20, 24, 32, 40
"""The offsets of its fields."""

_CPU = 1
"""DLPack's number for memory of the CPU."""


def write_checked(module: Module, api: Interface, s: Signature, check: Check | None) -> None:
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
    for k, p in enumerate(s.params):
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
        strides.append(_strides(entry, field(k, _STRIDES, "ptr"), extents[k]) if p.strides else [])
    sizes = _sizes(entry, api, s, extents, strides)
    expressions = Expressions(f, SymbolTable(vars=sizes))
    for k, p in enumerate(s.params):
        for e, extent in zip(p.shape, extents[k], strict=True):
            entry.fail_if(f.op(f"icmp ne i64 {extent}, {expressions.index(e)}"), Status.SHAPE, k)
        for e, stride, extent in zip(p.strides, strides[k], extents[k], strict=False):
            differs = f.op(f"icmp ne i64 {stride}, {expressions.index(e)}")
            entry.fail_if(f.op(f"and i1 {differs}, {f.op(f'icmp sgt i64 {extent}, 1')}"), Status.STRIDES, k)
        if p.shape and not p.strides:
            _check_strides(entry, field(k, _STRIDES, "ptr"), extents[k], k)
    data: list[str] = []
    for k in range(len(s.params)):
        place = f.op(f"getelementptr i8, ptr {field(k, _DATA, 'ptr')}, i64 {field(k, _OFFSET, 'i64')}")
        data.append(f"ptr {place}")
    memory = [] if s.memory == "no" else [f"ptr {MEMORY}"]
    actual = [f"i64 {sizes[d.name]}" for d in s.dims] + data + memory
    result = f.op(f"call i32 @{s.name}({', '.join(actual)})")
    entry.define(s.checked, ["ptr %arrays", "i32 %count", *memory], result)


def _sizes(
    entry: Entry, api: Interface, s: Signature, extents: list[list[str]], strides: list[list[str]]
) -> dict[str, Scalar]:
    """The sizes in prepared memory and those that the shapes and strides determine, each within its range. The caller has to
    compare them with every shape and stride. A stride along an extent of 1 or 0 may be any, so the size that it tells is the
    nearest one in range. A factor is never 0, since lowering requires that the shapes determine all sizes in any case."""
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
            value = f.op(f"select i1 {steps}, i64 {value}, i64 {near}")
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


def _check_strides(entry: Entry, strides: str, extents: list[str], argument: int) -> None:
    """Return an error unless the strides, in elements, are those of a dense array; along an extent of 1 any are valid."""
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
