"""LLVM code that gathers a factor of a product of a warpgroup: from registers, or by the descriptor that the kernel gives.

What a descriptor means is written here once more, apart from the code that makes it: so a distance, a mode or an address
that is wrong is read as the machine would. Each unit is looked at as it is read: whether its stores are known, and none came
later.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.cuda.codegen.watch import BESIDE, BLOCK, CHANGED, NOW, OFFSET, PLAIN, PROXY, UNKNOWN, word
from tensorc_dsl.ir.warp import GROUP, UNIT, Described

KNOWN, BESIDE_WORDS = 4, 7
"""The word of a thread that has the last barrier before which all its stores are known, and the number of its words."""

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


@dataclass(frozen=True, slots=True)
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
