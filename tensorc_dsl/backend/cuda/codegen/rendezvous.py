"""Writes an instruction of a warp for the emulation: the lanes give what they have, wait for each other, and take the result.

Nothing is known of any instruction but its description. Each lane writes its elements of the operands that are read to memory
of its warp, as the layouts say which they are. When all lanes have come, each computes its elements of the result by the
effect. Two such memories are used in turn, since a lane may give for the next instruction before others have taken the last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod

from tensorc_dsl.backend.cuda.codegen.device import PLAN
from tensorc_dsl.backend.cuda.codegen.factors import factor, held_factor
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group, operands_of
from tensorc_dsl.backend.cuda.lower.descriptors import descriptors_of
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, collectives_in
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.scope import SymbolTable
from tensorc_dsl.backend.llvm.codegen.statements import Statements
from tensorc_dsl.ir.dtypes import INDEX, U16, DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Cast,
    Expr,
    Load,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    index,
    loads,
    mul,
    substitute,
    transform,
)
from tensorc_dsl.ir.intrinsics import is_update
from tensorc_dsl.ir.program import Buffer, Intrinsic, IterKind, LoopKind, Store
from tensorc_dsl.ir.warp import LANES, Held
from tensorc_dsl.lower.flat import Collective, Flat, Loop

ALIGNMENT = 64
"""The alignment of an operand in the memory of a warp."""


def read_operands(i: Intrinsic) -> tuple[str, ...]:
    """The operands whose elements lanes give: those that are read, but for sums that stay with their lane."""
    own = {i.store.buffer} if is_of_group(i) else set[str]()
    return tuple(dict.fromkeys(x.buffer for x in loads(i.store.value) if x.buffer not in own))


def offsets(i: Intrinsic) -> tuple[dict[str, int], int]:
    """Where each operand that is read is in the memory of a warp, and the bytes of all."""
    at, out = 0, dict[str, int]()
    for b in i.operands:
        if b.name in read_operands(i):
            out[b.name] = at
            at += -(-prod(constant(n) or 0 for n in b.shape) * b.dtype.bytes // ALIGNMENT) * ALIGNMENT
    return out, at


def warp_bytes(k: DeviceKernel) -> int:
    """The bytes that a warp of a kernel needs for its largest instruction, and for a word of each lane."""
    return max((offsets(s.intrinsic)[1] for s in collectives_in(k.body)), default=0) + 4 * LANES


@dataclass(frozen=True, slots=True)
class Emulated:
    """The functions of an instruction: one for each operand that is read, by which a lane gives it, and one by which it takes
    its result."""

    give: Mapping[str, str]
    take: str


@dataclass(slots=True)
class Instructions:
    """The functions of the instructions that are used in a module, and the tables of what each lane has."""

    module: Module
    known: dict[Intrinsic, Emulated] = field(default_factory=dict[Intrinsic, Emulated])
    tables: list[str] = field(default_factory=list[str])

    def of(self, s: Collective) -> Emulated:
        """The functions of an instruction."""
        i = s.intrinsic
        if i not in self.known:
            found = {name: a.held for name, a in operands_of(s).items()}
            name = f"{i.name}.{len(self.known)}"
            give = {x: self._give(f"{name}.{x}", found[x]) for x in read_operands(i) if x in found}
            if is_of_group(i):
                places, _ = offsets(i)
                gather = [held_factor(f"{x}.late", x, places[y]) for y, x in give.items()]
                gather += [factor(f"{name}.{x}", d.operand, places[x]) for x, d in descriptors_of(s).items()]
                self.tables += [x.text for x in gather]
                give = dict(zip((*give, *descriptors_of(s)), (x.name for x in gather), strict=True))
            self.known[i] = Emulated(give, self._take(f"{name}.take", i, found[i.store.buffer]))
        return self.known[i]

    def _table(self, name: str, h: Held) -> str:
        every = ", ".join(f"i16 {n}" for lane in h.elements for n in lane)
        self.tables.append(f"@{name}.elements = internal constant [{len(h.elements) * h.count} x i16] [{every}]\n")
        return f"@{name}.elements"

    def _give(self, name: str, h: Held) -> str:
        """`void (ptr elements, ptr memory, i64 lane)`: write a lane's elements to their places in the operand."""
        t, n = h.operand.dtype, Var("n")
        body = Store("to", (_number(h, n),), Load("from", (n,), t))
        self._function(name, [body], h, {"from": ("%from", t), "to": ("%to", t)}, "ptr %from, ptr %to")
        return name

    def _take(self, name: str, i: Intrinsic, h: Held) -> str:
        """`void (ptr memory, ptr result, i64 lane)`: compute a lane's elements of the result by the effect."""
        n, number = Var("n"), _number(h, Var("n"))
        values: dict[str, Expr] = {}
        rest = number
        for at, size in reversed(list(zip(i.store.indices, h.operand.shape, strict=True))):
            assert isinstance(at, Var)  # every subscript of an instruction is an index
            values[at.name] = floormod(rest, size)
            rest = floordiv(rest, size)
        operands = {b.name: b for b in i.operands}

        def here(e: Expr) -> Expr:
            if not isinstance(e, Load):
                return e
            if e.buffer == i.store.buffer:
                return Load("out", (n,), e.dtype)
            return Load(e.buffer, (_flat(operands[e.buffer], e.indices),), e.dtype)

        value = substitute(transform(i.store.value, here), values)
        body: Flat = Store("out", (n,), value)
        for a in reversed(i.axes):
            if a.kind is IterKind.REDUCE:
                body = Loop(a.name, ZERO, index(a.extent), LoopKind.SERIAL, (body,))
        given = is_update(i) and i.store.buffer in read_operands(i)
        first = [Store("out", (n,), Load(h.operand.name, (number,), h.operand.dtype))] if given else []
        places, _ = offsets(i)
        buffers: dict[str, tuple[str, DType]] = {"out": ("%out", h.operand.dtype)}
        buffers |= {x: (f"%at.{x}", operands[x].dtype) for x in places}
        starts = [f"%at.{x} = getelementptr i8, ptr %memory, i64 {at}" for x, at in places.items()]
        self._function(name, [*first, body], h, buffers, "ptr %memory, ptr %out", starts)
        return name

    def _function(
        self,
        name: str,
        body: Sequence[Flat],
        h: Held,
        buffers: Mapping[str, tuple[str, DType]],
        params: str,
        starts: Sequence[str] = (),
    ) -> None:
        """Write a function with a loop over the elements of a lane."""
        f = Function(self.module)
        f.prologue(*starts)
        table = SymbolTable(vars={"lane": "%lane"}, buffers={**buffers, "elements": (self._table(name, h), U16)})
        loop = Loop("n", ZERO, index(h.count), LoopKind.SERIAL, tuple(body))
        Statements(f, table, PLAN, name, workspace="null", worker=None).write((loop,))
        f.define(f"define internal void @{name}({params}, i64 %lane) noinline nounwind")


def _number(h: Held, n: Expr) -> Expr:
    """The number of a lane's n-th element in the operand."""
    return Cast(Load("elements", (add(mul(Var("lane"), index(h.count)), n),), U16), INDEX)


def _flat(b: Buffer, indices: Collection[Expr]) -> Expr:
    pairs = zip(indices, b.shape, strict=True)
    return reduce(lambda at, p: add(mul(at, p[1]), p[0]), pairs, ZERO)
