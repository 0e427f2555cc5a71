"""LLVM code that delays the instructions of an emulated warpgroup as long as it may: they run where a thread waits for them.

Each thread has a queue of what it has started. Until it waits, its sums are not numbers. Then the lanes of a warp gather both
factors from shared memory as it is by then, by the descriptors that they have given, and each computes its sums. Reads are those
of a thread of their own, one for each warpgroup: so a store by any thread races with them unless a barrier is between. A store
behind a later barrier changes what was to be read, and one that its thread has not made known may not be there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.cuda.codegen.watch import (
    BESIDE,
    BLOCK,
    CHANGED,
    EARLY,
    EPOCH,
    NOW,
    PLAIN,
    PROXY,
    ROW_WORDS,
    TOUCHED,
    UNKNOWN,
    word,
)
from tensorc_dsl.ir.warp import GROUP, LANES, UNIT, Described

_ENTRIES, _LENGTH, _ROOM, _TOUCH, _KNOWN, BESIDE_WORDS = range(6)
"""The words of a thread: what it has started, how many and for how many there is room, whether it has used sums since it was
last done with them, the last barrier before which all its stores are known; and the number of these words."""

_TAKE, _ACC, _SIZE, _SINCE, _OWNER, _FACTORS = range(6)
_GIVE, _DESC, _ROW, _SITE, _FACTOR_WORDS = range(5)
_SAVED = _FACTORS + 2 * _FACTOR_WORDS
_MOST_BYTES = 512
_ENTRY_WORDS = _SAVED + _MOST_BYTES // 8
"""The words of an entry: what computes it, its sums, their bytes, when it was started, which entry has the sums meanwhile; of
each factor what gathers it, its descriptor, buffer and statement; the sums of a lane, at most 128 of f32."""

FACTOR = "ptr %s, ptr %rows, ptr %shared, i64 %t, i64 %first, i64 %step, ptr %f, i64 %since, ptr %to"


def _entry(n: str, name: str = "e") -> str:
    """Code for the address of an entry of the queue `%q`."""
    return f"""%{name}.all = load ptr, ptr %q
  %{name}.word = mul i64 {n}, {_ENTRY_WORDS}
  %{name} = getelementptr i64, ptr %{name}.all, i64 %{name}.word"""


def _at(name: str, base: str, n: int) -> str:
    return f"%{name}.at = getelementptr i64, ptr %{base}, i64 {n}"


_QUEUE = f"""{word("every", "s", BESIDE, "ptr")}
  %nth = mul i64 %t, {BESIDE_WORDS}
  %q = getelementptr i64, ptr %every, i64 %nth"""

BESIDE_CODE = f"""
define internal void @tensorc_afresh(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {_at("length", "q", _LENGTH)}
  store i64 0, ptr %length.at
  {_at("touch", "q", _TOUCH)}
  store i64 1, ptr %touch.at
  {_at("known", "q", _KNOWN)}
  store i64 -1, ptr %known.at
  ret void
}}

define internal void @tensorc_stored(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {word("known", "q", _KNOWN)}
  {word("epoch", "s", EPOCH)}
  %before = sub i64 %epoch, 1
  %less = icmp slt i64 %known, %before
  %new = select i1 %less, i64 %known, i64 %before
  store i64 %new, ptr %known.at
  ret void
}}

define internal void @tensorc_publish(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {word("epoch", "s", EPOCH)}
  {_at("known", "q", _KNOWN)}
  store i64 %epoch, ptr %known.at
  ret void
}}

define internal void @tensorc_engage(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {_at("touch", "q", _TOUCH)}
  store i64 0, ptr %touch.at
  ret void
}}

define internal void @tensorc_touch(ptr %s, i64 %t, i64 %site) nounwind {{
  {_QUEUE}
  {_at("touch", "q", _TOUCH)}
  store i64 1, ptr %touch.at
  {word("length", "q", _LENGTH)}
  %busy = icmp ne i64 %length, 0
  br i1 %busy, label %fault, label %out
fault:
  call void @tensorc_fault(ptr %s, i64 {EARLY}, i64 %site, i64 0, i64 0, i64 %t, i64 0)
  br label %out
out:
  ret void
}}

define internal ptr @tensorc_beside(ptr %s, i64 %t, ptr %take, ptr %acc, i64 %size, i64 %site) noinline nounwind {{
entry:
  {_QUEUE}
  {word("touch", "q", _TOUCH)}
  %touched = icmp ne i64 %touch, 0
  br i1 %touched, label %fault, label %more
fault:
  call void @tensorc_fault(ptr %s, i64 {TOUCHED}, i64 %site, i64 0, i64 0, i64 %t, i64 0)
  br label %more
more:
  {word("length", "q", _LENGTH)}
  {word("room", "q", _ROOM)}
  %full = icmp eq i64 %length, %room
  br i1 %full, label %grow, label %put
grow:
  %old = load ptr, ptr %q
  %twice = shl i64 %room, 1
  %wide = add i64 %twice, 8
  %bytes = mul i64 %wide, {8 * _ENTRY_WORDS}
  %grown = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %grown, ptr %q
  store i64 %wide, ptr %room.at
  br label %put
put:
  {_entry("%length")}
  {_at("take", "e", _TAKE)}
  store ptr %take, ptr %take.at
  {_at("acc", "e", _ACC)}
  store ptr %acc, ptr %acc.at
  {_at("size", "e", _SIZE)}
  store i64 %size, ptr %size.at
  {word("now", "s", NOW)}
  {_at("since", "e", _SINCE)}
  store i64 %now, ptr %since.at
  %longer = add i64 %length, 1
  store i64 %longer, ptr %length.at
  br label %look
look:
  %n = phi i64 [ 0, %put ], [ %n1, %next ]
  {_entry("%n", "o")}
  {word("theirs", "o", _ACC, "ptr")}
  %same = icmp eq ptr %theirs, %acc
  %n1 = add i64 %n, 1
  br i1 %same, label %found, label %next
next:
  br label %look
found:
  {_at("owner", "e", _OWNER)}
  store i64 %n, ptr %owner.at
  %mine = icmp eq i64 %n, %length
  br i1 %mine, label %save, label %out
save:
  {_at("saved", "e", _SAVED)}
  call void @llvm.memcpy.p0.p0.i64(ptr %saved.at, ptr %acc, i64 %size, i1 false)
  call void @llvm.memset.p0.i64(ptr %acc, i8 -1, i64 %size, i1 false)
  br label %out
out:
  ret ptr %e
}}

define internal void @tensorc_factor(ptr %e, i64 %n, ptr %give, i64 %desc, i64 %row, i64 %site) nounwind {{
  %skip = mul i64 %n, {_FACTOR_WORDS}
  %word = add i64 %skip, {_FACTORS}
  %f = getelementptr i64, ptr %e, i64 %word
  store ptr %give, ptr %f
  {_at("desc", "f", _DESC)}
  store i64 %desc, ptr %desc.at
  {_at("row", "f", _ROW)}
  store i64 %row, ptr %row.at
  {_at("site", "f", _SITE)}
  store i64 %site, ptr %site.at
  ret void
}}

define internal void @tensorc_gather(ptr %s, ptr %rows, ptr %shared, i64 %t, ptr %e, ptr %to) noinline nounwind {{
entry:
  %all = icmp eq ptr %to, null
  %lane = urem i64 %t, {LANES}
  %one = urem i64 %t, {GROUP}
  %first = select i1 %all, i64 %one, i64 %lane
  %step = select i1 %all, i64 {GROUP}, i64 {LANES}
  {word("start", "e", _SINCE)}
  %since = select i1 %all, i64 -1, i64 %start
  br label %each
each:
  %n = phi i64 [ 0, %entry ], [ %n1, %each ]
  %skip = mul i64 %n, {_FACTOR_WORDS}
  %word = add i64 %skip, {_FACTORS}
  %f = getelementptr i64, ptr %e, i64 %word
  %give = load ptr, ptr %f
  call void %give(ptr %s, ptr %rows, ptr %shared, i64 %t, i64 %first, i64 %step, ptr %f, i64 %since, ptr %to)
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 2
  br i1 %more, label %each, label %out
out:
  ret void
}}

define internal ptr @tensorc_started(ptr %s, i64 %t, i64 %n) nounwind {{
  {_QUEUE}
  {word("length", "q", _LENGTH)}
  %any = icmp slt i64 %n, %length
  {_entry("%n")}
  %out = select i1 %any, ptr %e, ptr null
  ret ptr %out
}}

define internal void @tensorc_compute(ptr %s, i64 %t, i64 %n, ptr %memory) noinline nounwind {{
entry:
  {_QUEUE}
  {_entry("%n")}
  {word("owner", "e", _OWNER)}
  {_entry("%owner", "o")}
  {_at("saved", "o", _SAVED)}
  %one = urem i64 %t, {GROUP}
  %take = load ptr, ptr %e
  call void %take(ptr %memory, ptr %saved.at, i64 %one)
  {word("acc", "e", _ACC, "ptr")}
  {word("size", "e", _SIZE)}
  {word("length", "q", _LENGTH)}
  br label %look
look:
  %m = phi i64 [ %n, %entry ], [ %m1, %other ]
  %m1 = add i64 %m, 1
  %end = icmp eq i64 %m1, %length
  br i1 %end, label %last, label %see
see:
  {_entry("%m1", "l")}
  {word("theirs", "l", _ACC, "ptr")}
  %same = icmp eq ptr %theirs, %acc
  br i1 %same, label %out, label %other
other:
  br label %look
last:
  call void @llvm.memcpy.p0.p0.i64(ptr %acc, ptr %saved.at, i64 %size, i1 false)
  br label %out
out:
  ret void
}}

define internal void @tensorc_finished(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {_at("length", "q", _LENGTH)}
  store i64 0, ptr %length.at
  ret void
}}

define internal void @tensorc_leave(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  %entries = load ptr, ptr %q
  call void @free(ptr %entries)
  ret void
}}

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
  %skip = mul i64 %row, {ROW_WORDS}
  %r = getelementptr i64, ptr %rows, i64 %skip
  %base = load i64, ptr %r
  {word("size", "r", 1)}
  {word("bytes", "r", 2)}
  {word("shadow", "r", 3, "ptr")}
  %ai = ptrtoint ptr %a to i64
  %off = sub i64 %ai, %base
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
  {word("upto", "q", _KNOWN)}
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
"""For kernels with instructions of warpgroups: `tensorc_beside` notes that one is started, `tensorc_gather` looks at its factors,
or copies them to memory of the warp, `tensorc_compute` adds to the sums, and `tensorc_finished` empties the queue."""


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

define internal void @{name}({FACTOR}) noinline nounwind {{
entry:
  {word("desc", "f", _DESC)}
  {word("row", "f", _ROW)}
  {word("site", "f", _SITE)}
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
  %p = call ptr @tensorc_watch(ptr %s, ptr %rows, i64 %row, ptr %a, i64 {UNIT}, i64 {UNIT}, i1 false, i64 %site, i64 %who)
  call void @tensorc_seen(ptr %s, ptr %rows, i64 %row, ptr %p, i64 %since, i64 %site, i64 %who)
  br i1 %none, label %next, label %copy
copy:
  %k = phi i64 [ 0, %each ], [ %k1, %copy ]
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
