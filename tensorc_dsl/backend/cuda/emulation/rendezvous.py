"""Writes an instruction of a warp for the emulation: the lanes give what they have, wait for each other, and take the result.

Nothing is known of any instruction but its description. Each lane writes its elements of the operands that are read to memory
of its warp, as the layouts say which they are. When all lanes have come, each computes its elements of the result by the
effect. Two such memories are used in turn, since a lane may give for the next instruction before others have taken the last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod

from tensorc_dsl.backend.cuda.codegen.device import PLAN
from tensorc_dsl.backend.cuda.emulation.watch import BESIDE, BLOCK, CHANGED, NOW, OFFSET, PLAIN, PROXY, UNKNOWN, word
from tensorc_dsl.backend.cuda.isa import sums_in_few_bits
from tensorc_dsl.backend.cuda.lower.collectives import is_of_group, lane_operands
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, collectives_in
from tensorc_dsl.backend.cuda.lower.shared_layout import descriptors_of
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, SymbolTable
from tensorc_dsl.backend.llvm.codegen.statements import Statements
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.contraction import SUM_BITS
from tensorc_dsl.ir.dtypes import F32, INDEX, U16, U32, DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    index,
    loads,
    mul,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.intrinsics import is_update
from tensorc_dsl.ir.program import Buffer, Intrinsic, IterKind, LoopKind, Store
from tensorc_dsl.ir.warp import GROUP, LANES, UNIT, Described, Held
from tensorc_dsl.lower.flat import Collective, Flat, Loop

# LLVM code that gathers a factor of a product of a warpgroup: from registers, or by the descriptor that the kernel gives.
#
# What a descriptor means is written here once more, apart from the code that makes it: so a distance, a mode or an address
# that is wrong is read as the machine would. Each unit is looked at as it is read: whether its stores are known, and none
# came later.


TOUCH, KNOWN, BESIDE_WORDS = 5, 6, 7
"""The words of a thread behind those of its queue: whether it has used sums since it was last done with them, and the last
barrier before which all its stores are known; and the number of its words."""

GIVE, DESC, ROW, SITE, FACTOR_WORDS = range(5)
"""The words of a factor: what gathers it, its descriptor, buffer and statement; and their number."""

_FACTOR = "ptr %s, ptr %rows, ptr %shared, i64 %t, i64 %first, i64 %step, ptr %f, i64 %since, ptr %to"

FACTORS_CODE = f"""
define internal i64 @tensorc_described(i64 %desc, i64 %line, i64 %byte, i1 %deep) nounwind {{
  %start.units = and i64 %desc, 16383
  %start = shl i64 %start.units, 4
  %leading.low = lshr i64 %desc, 16
  %leading.units = and i64 %leading.low, 16383
  %leading = shl i64 %leading.units, 4
  %stride.low = lshr i64 %desc, 32
  %stride.units = and i64 %stride.low, 16383
  %stride = shl i64 %stride.units, 4
  %mode = lshr i64 %desc, 62
  %plain = icmp eq i64 %mode, 0
  %swizzle = lshr i64 256, %mode
  %width = select i1 %plain, i64 16, i64 %swizzle
  %turned = and i1 %plain, %deep
  %per.group = select i1 %turned, i64 %leading, i64 %stride
  %per.width = select i1 %turned, i64 %stride, i64 %leading
  %row = urem i64 %line, 8
  %group = udiv i64 %line, 8
  %column = urem i64 %byte, %width
  %beyond = udiv i64 %byte, %width
  %a = mul i64 %row, %width
  %b = mul i64 %group, %per.group
  %c = mul i64 %beyond, %per.width
  %ab = add i64 %a, %b
  %cd = add i64 %c, %column
  %off = add i64 %ab, %cd
  %linear = add i64 %start, %off
  %units = udiv i64 %width, 16
  %mask = sub i64 %units, 1
  %bits = lshr i64 %linear, 7
  %chosen = and i64 %bits, %mask
  %moved = shl i64 %chosen, 4
  %out = xor i64 %linear, %moved
  ret i64 %out
}}

define internal void @tensorc_seen(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %since, i64 %site, i64 %t) noinline nounwind {{
entry:
  {OFFSET}
  {word("bytes", "buffer", 2)}
  {word("shadow", "buffer", 3, "ptr")}
  %within = icmp ult i64 %off, %size
  br i1 %within, label %some, label %out
some:
  {word("block", "s", BLOCK)}
  %b1 = add i64 %block, 1
  %first = udiv i64 %off, %bytes
  %many = udiv i64 {UNIT}, %bytes
  %stop = add i64 %first, %many
  br label %each
each:
  %e = phi i64 [ %first, %some ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %stamp = load i64, ptr %wp
  %w = and i64 %stamp, {PLAIN}
  %wb = lshr i64 %w, 40
  %here = icmp eq i64 %wb, %b1
  br i1 %here, label %stored, label %next
stored:
  %started = icmp slt i64 %since, 0
  br i1 %started, label %known, label %late
late:
  %we = lshr i64 %w, 12
  %se = lshr i64 %since, 12
  %after = icmp ugt i64 %we, %se
  br i1 %after, label %fault, label %next
known:
  %to = lshr i64 %w, 1
  %who = and i64 %to, 2047
  %when12 = lshr i64 %w, 12
  %when = and i64 %when12, 268435455
  {word("every", "s", BESIDE, "ptr")}
  %nth = mul i64 %who, {BESIDE_WORDS}
  %q = getelementptr i64, ptr %every, i64 %nth
  {word("upto", "q", KNOWN)}
  %hidden = icmp slt i64 %upto, %when
  br i1 %hidden, label %fault, label %next
fault:
  %kind = phi i64 [ {CHANGED}, %late ], [ {UNKNOWN}, %known ]
  call void @tensorc_fault(ptr %s, i64 %kind, i64 %site, i64 %row, i64 %e, i64 %t, i64 %w)
  br label %next
next:
  %e1 = add i64 %e, 1
  %more = icmp ult i64 %e1, %stop
  br i1 %more, label %each, label %out
out:
  ret void
}}
"""
"""`tensorc_described(descriptor, line, byte, deep)`: where in shared memory a byte of a line is. `tensorc_seen` looks at the
stamps of a unit: as an instruction is started (`since` is negative), or as it is waited for."""

UNIT_CODE = f"""
define internal i1 @tensorc_unit(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %since, i64 %who, i64 %t) noinline nounwind {{
entry:
  {OFFSET}
  {word("bytes", "buffer", 2)}
  {word("shadow", "buffer", 3, "ptr")}
  {word("times", "buffer", 5, "ptr")}
  {word("now", "s", NOW)}
  %room = sub i64 %size, {UNIT}
  %inside = icmp ule i64 %off, %room
  %fits = icmp uge i64 %size, {UNIT}
  %rest = and i64 %ai, {UNIT - 1}
  %straight = icmp eq i64 %rest, 0
  %ok0 = and i1 %inside, %fits
  %ok = and i1 %ok0, %straight
  br i1 %ok, label %some, label %no
some:
  %shift = call i64 @llvm.cttz.i64(i64 %bytes, i1 true)
  %first = lshr i64 %off, %shift
  %many = lshr i64 {UNIT}, %shift
  %stop = add i64 %first, %many
  %own = and i64 %now, {-1 << 40}
  %later = add i64 %since, 4096
  %upto = call i64 @llvm.umin.i64(i64 %later, i64 %now)
  %starts = icmp slt i64 %since, 0
  %limit = select i1 %starts, i64 %own, i64 %upto
  %ts = shl i64 %who, 1
  %cur = or i64 %now, %ts
  br label %each
each:
  %e = phi i64 [ %first, %some ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %rp = getelementptr i64, ptr %wp, i64 1
  %w = load i64, ptr %wp
  %r = load i64, ptr %rp
  %old = icmp ult i64 %w, %limit
  br i1 %old, label %next, label %no
next:
  %rold = icmp ult i64 %r, %now
  %rown = icmp eq i64 %r, %cur
  %also = or i64 %r, 1
  %same = select i1 %rown, i64 %r, i64 %also
  %new = select i1 %rold, i64 %cur, i64 %same
  store i64 %new, ptr %rp
  %e1 = add i64 %e, 1
  %more = icmp ult i64 %e1, %stop
  br i1 %more, label %each, label %read
read:
  %noted = icmp ne ptr %times, null
  br i1 %noted, label %took, label %yes
took:
  call void @tensorc_took(ptr %s, ptr %rows, i64 %row, ptr %a, i64 {UNIT}, i64 %t)
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

"""`tensorc_unit(state, rows, row, address, since, reader, thread)` notes the read of a unit whose stores are all from
before, and says whether it is one; others are for `tensorc_watch` and `tensorc_seen`."""


@frozen
class Factor:
    """The function that gathers an operand with a descriptor, and its text with the table that it needs."""

    name: str
    text: str


def factor(name: str, d: Described, place: int) -> Factor:
    """`void (…)`: read units of an operand from shared memory, to its `place` in the memory of a warp if there is one."""
    size = d.operand.dtype.bytes
    each = UNIT // size
    width = max(d.numbers) + 1
    order = sorted(range(len(d.lines)), key=lambda n: (d.lines[n], d.numbers[n]))
    table = ", ".join(f"i16 {n}" for n in order)
    text = f"""
@{name}.order = internal constant [{len(order)} x i16] [{table}]

define internal void @{name}({_FACTOR}) noinline nounwind {{
entry:
  {word("desc", "f", DESC)}
  {word("row", "f", ROW)}
  {word("site", "f", SITE)}
  %group = udiv i64 %t, {GROUP}
  %who = add i64 %group, {PROXY}
  %none = icmp eq ptr %to, null
  %any = icmp ult i64 %first, {len(order) // each}
  br i1 %any, label %each, label %out
each:
  %u = phi i64 [ %first, %entry ], [ %u1, %next ]
  %line = udiv i64 %u, {width // each}
  %part = urem i64 %u, {width // each}
  %byte = mul i64 %part, {UNIT}
  %off = call i64 @tensorc_described(i64 %desc, i64 %line, i64 %byte, i1 {"true" if d.deep else "false"})
  %a = getelementptr i8, ptr %shared, i64 %off
  %good = call i1 @tensorc_unit(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %since, i64 %who, i64 %t)
  br i1 %good, label %found, label %look
look:
  %q = call ptr @tensorc_watch(ptr %s, ptr %rows, i64 %row, ptr %a, i64 {UNIT}, i64 {UNIT}, i1 false, i64 %site, i64 %who)
  call void @tensorc_seen(ptr %s, ptr %rows, i64 %row, ptr %q, i64 %since, i64 %site, i64 %who)
  call void @tensorc_took(ptr %s, ptr %rows, i64 %row, ptr %q, i64 {UNIT}, i64 %t)
  br label %found
found:
  %p = phi ptr [ %a, %each ], [ %q, %look ]
  br i1 %none, label %next, label %copy
copy:
  %k = phi i64 [ 0, %found ], [ %k1, %copy ]
  %whole = mul i64 %u, {each}
  %nth = add i64 %whole, %k
  %n.at = getelementptr i16, ptr @{name}.order, i64 %nth
  %n16 = load i16, ptr %n.at
  %n = zext i16 %n16 to i64
  %source = getelementptr i{8 * size}, ptr %p, i64 %k
  %v = load i{8 * size}, ptr %source
  %own = getelementptr i8, ptr %to, i64 {place}
  %target = getelementptr i{8 * size}, ptr %own, i64 %n
  store i{8 * size} %v, ptr %target
  %k1 = add i64 %k, 1
  %k.more = icmp ult i64 %k1, {each}
  br i1 %k.more, label %copy, label %next
next:
  %u1 = add i64 %u, %step
  %more = icmp ult i64 %u1, {len(order) // each}
  br i1 %more, label %each, label %out
out:
  ret void
}}
"""
    return Factor(name, text)


def held_factor(name: str, give: str, place: int) -> Factor:
    """`void (…)`: as `factor`, of an operand in registers: where a thread waits, its lane gives what it has of it by then, as
    `give` writes it. Its address stands in place of a descriptor."""
    text = f"""
define internal void @{name}({_FACTOR}) noinline nounwind {{
entry:
  {word("own", "f", DESC, "ptr")}
  %none = icmp eq ptr %to, null
  br i1 %none, label %out, label %copy
copy:
  %one = urem i64 %t, {GROUP}
  %target = getelementptr i8, ptr %to, i64 {place}
  call void @{give}(ptr %own, ptr %target, i64 %one)
  br label %out
out:
  ret void
}}
"""
    return Factor(name, text)


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


@frozen
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
            found = {name: a.held for name, a in lane_operands(s).items()}
            name = f"{i.name}.{len(self.known)}"
            give = {x: self._give(f"{name}.{x}", found[x]) for x in read_operands(i) if x in found}
            if is_of_group(i):
                places, _ = offsets(i)
                gather = [held_factor(f"{x}.late", x, places[y]) for y, x in give.items()]
                gather += [factor(f"{name}.{x}", d.operand, places[x]) for x, d in descriptors_of(s).items()]
                self.tables += [x.text for x in gather]
                give = dict(zip((*give, *descriptors_of(s)), (x.name for x in gather), strict=True))
            self.known[i] = Emulated(give, self._take(f"{name}.take", s, found[i.store.buffer]))
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

    def _take(self, name: str, s: Collective, h: Held) -> str:
        """`void (ptr memory, ptr result, i64 lane)`: compute a lane's elements of the result by the effect."""
        i, n, number = s.intrinsic, Var("n"), _number(h, Var("n"))
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

        def each_term(body: Flat) -> Flat:
            for a in reversed(i.axes):
                if a.kind is IterKind.REDUCE:
                    body = Loop(a.name, ZERO, index(a.extent), LoopKind.SERIAL, (body,))
            return body

        value = substitute(rewrite_expr(i.store.value, here), values)
        few = sums_in_few_bits(s.code)
        body = _sum_in_few_bits(value, each_term) if few else [each_term(Store("out", (n,), value))]
        given = is_update(i) and i.store.buffer in read_operands(i)
        first = [Store("out", (n,), Load(h.operand.name, (number,), h.operand.dtype))] if given else []
        places, _ = offsets(i)
        buffers: dict[str, tuple[str, DType]] = {"out": ("%out", h.operand.dtype)}
        buffers |= {x: (f"%at.{x}", operands[x].dtype) for x in places}
        starts = [f"%at.{x} = getelementptr i8, ptr %memory, i64 {at}" for x, at in places.items()]
        if few:
            buffers["unit"] = ("%unit", F32)
            starts.append("%unit = alloca float")
        self._function(name, [*first, *body], h, buffers, "ptr %memory, ptr %out", starts)
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


def _sum_in_few_bits(value: Expr, each_term: Callable[[Flat], Flat]) -> list[Flat]:
    """What adds the terms of `value`, a sum of what an element was and a term, to the element with `SUM_BITS`: as far off as
    the machine is. `unit` is the largest of them at first, and then the value of the lowest bit that is kept of each; what is
    infinite or no number stays so.
    """
    assert isinstance(value, Binary) and isinstance(value.lhs, Load)
    old, term, place = value.lhs, value.rhs, value.lhs.indices
    unit, none = Load("unit", (ZERO,), F32), Const(0.0, F32)

    def masked(x: Expr, bits: int) -> Expr:
        return Bitcast(Call("bit_and", (Bitcast(x, U32), Const(bits, U32))), F32)

    def cut(x: Expr) -> Expr:
        whole = Binary("*", Call("trunc", (Binary("/", x, unit),)), unit)
        return Select(Compare(">", unit, none), whole, x)

    exponent = 0xFF << 23
    lowest = Binary("*", masked(unit, exponent), Const(2.0 ** (1 - SUM_BITS), F32))
    return [
        Store("unit", (ZERO,), Call("abs", (old,))),
        each_term(Store("unit", (ZERO,), Binary("max", unit, Call("abs", (term,))))),
        Store("unit", (ZERO,), Select(Call("isfinite", (unit,)), lowest, none)),
        Store("out", place, cut(old)),
        each_term(Store("out", place, Binary("+", old, cut(term)))),
        Store("out", place, masked(old, 2**32 - 2 ** (24 - SUM_BITS))),
    ]


def _number(h: Held, n: Expr) -> Expr:
    """The number of a lane's n-th element in the operand."""
    return Cast(Load("elements", (add(mul(Var("lane"), index(h.count)), n),), U16), INDEX)


def _flat(b: Buffer, indices: Collection[Expr]) -> Expr:
    pairs = zip(indices, b.shape, strict=True)
    return reduce(lambda at, p: add(mul(at, p[1]), p[0]), pairs, ZERO)
