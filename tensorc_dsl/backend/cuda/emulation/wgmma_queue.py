"""LLVM code that delays the instructions of an emulated warpgroup as long as it may: they run where a thread waits for them.

Each thread has a queue of what it has started. Until it waits, its sums are not numbers. Then the lanes of a warp gather both
factors from shared memory as it is by then, by the descriptors that they have given, and each computes its sums. Reads are
those of a thread of their own, one for each warpgroup: so a store by any thread races with them unless a barrier is between.
A store behind a later barrier changes what was to be read, and one that its thread has not made known may not be there.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.emulation.rendezvous import BESIDE_WORDS, DESC, FACTOR_WORDS, KNOWN, ROW, SITE
from tensorc_dsl.backend.cuda.emulation.watch import BESIDE, EARLY, EPOCH, NOW, TOUCHED, word
from tensorc_dsl.ir.warp import GROUP, LANES

_ENTRIES, _LENGTH, _ROOM, _TOUCH = range(4)
"""The words of a thread: what it has started, how many and for how many there is room, whether it has used sums since it was
last done with them. `KNOWN` is the next one. Then come the first that it has not waited for, and its groups."""

_HEAD, _GROUP = KNOWN + 1, KNOWN + 2

_TAKE, _ACC, _SIZE, _SINCE, _OWNER, _OF, _FACTORS = range(7)
_SAVED = _FACTORS + 2 * FACTOR_WORDS
_MOST_BYTES = 512
_ENTRY_WORDS = _SAVED + _MOST_BYTES // 8
"""The words of an entry: what computes it, its sums, their bytes, when it was started, which entry has the sums meanwhile,
its group; of each factor what gathers it, its descriptor, buffer and statement; the sums of a lane, at most 128 of f32."""


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
  {_at("known", "q", KNOWN)}
  store i64 -1, ptr %known.at
  {_at("head", "q", _HEAD)}
  store i64 0, ptr %head.at
  {_at("group", "q", _GROUP)}
  store i64 0, ptr %group.at
  ret void
}}

define internal void @tensorc_stored(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {word("known", "q", KNOWN)}
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
  {_at("known", "q", KNOWN)}
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
  {word("group", "q", _GROUP)}
  {_at("of", "e", _OF)}
  store i64 %group, ptr %of.at
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
  %skip = mul i64 %n, {FACTOR_WORDS}
  %word = add i64 %skip, {_FACTORS}
  %f = getelementptr i64, ptr %e, i64 %word
  store ptr %give, ptr %f
  {_at("desc", "f", DESC)}
  store i64 %desc, ptr %desc.at
  {_at("row", "f", ROW)}
  store i64 %row, ptr %row.at
  {_at("site", "f", SITE)}
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
  %skip = mul i64 %n, {FACTOR_WORDS}
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

define internal i64 @tensorc_ended(ptr %s, i64 %t, i64 %one) nounwind {{
  {_QUEUE}
  {word("group", "q", _GROUP)}
  %next = add i64 %group, %one
  store i64 %next, ptr %group.at
  {word("head", "q", _HEAD)}
  ret i64 %head
}}

define internal ptr @tensorc_started(ptr %s, i64 %t, i64 %n, i64 %left) nounwind {{
entry:
  {_QUEUE}
  {word("length", "q", _LENGTH)}
  %any = icmp slt i64 %n, %length
  br i1 %any, label %look, label %none
look:
  {_entry("%n")}
  {word("of", "e", _OF)}
  {word("group", "q", _GROUP)}
  %last = sub i64 %group, %left
  %over = icmp slt i64 %of, %last
  %out = select i1 %over, ptr %e, ptr null
  ret ptr %out
none:
  ret ptr null
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

define internal void @tensorc_finished(ptr %s, i64 %t, i64 %n) nounwind {{
  {_QUEUE}
  {word("length", "q", _LENGTH)}
  %all = icmp eq i64 %n, %length
  %left = select i1 %all, i64 0, i64 %length
  store i64 %left, ptr %length.at
  %first = select i1 %all, i64 0, i64 %n
  {_at("head", "q", _HEAD)}
  store i64 %first, ptr %head.at
  ret void
}}

define internal void @tensorc_leave(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  %entries = load ptr, ptr %q
  call void @free(ptr %entries)
  ret void
}}
"""
"""For kernels with instructions of warpgroups: `tensorc_beside` notes that one is started, `tensorc_gather` looks at its
factors, or copies them to memory of the warp, `tensorc_compute` adds to the sums. `tensorc_ended` ends a group,
`tensorc_started` gives the next one of a group that is waited for, `tensorc_finished` notes how far that went."""
