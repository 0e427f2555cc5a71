"""LLVM code that delays what an emulated thread starts as long as it may: it is done at the wait that covers it.

Each thread has a queue of copies, and one of instructions of its warpgroup. What starts is noted there; a commit counts
groups; a wait runs the entries of all groups but the latest.

So what a copy brings is not there if it is read too early, and a wait for too few groups shows in results, or at the element,
whose stamp says that a copy is under way. Until a thread waits for an instruction, its sums are not numbers. Then the lanes
of a warp gather both factors from shared memory as it is by then, by the descriptors that they have given, and each computes
its sums. Reads are those of a thread of their own, one for each warpgroup: so a store by any thread races with them unless a
barrier is between. A store behind a later barrier changes what was to be read, and one that its thread has not made known may
not be there.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.backend.cuda.emulation.rendezvous import BESIDE_WORDS, DESC, FACTOR_WORDS, KNOWN, ROW, SITE, TOUCH
from tensorc_dsl.backend.cuda.emulation.watch import (
    BESIDE,
    EARLY,
    EPOCH,
    FLAG,
    NOW,
    OFFSET,
    PLAIN,
    QUEUES,
    TOUCHED,
    word,
)
from tensorc_dsl.ir.warp import GROUP as WARPGROUP
from tensorc_dsl.ir.warp import LANES

ENTRIES, LENGTH, ROOM, HEAD, GROUP, QUEUE_WORDS = range(6)
"""The words of a queue: its entries, how many there are and for how many there is room, the first that is not over, how many
groups there are; and the number of these words."""


def _queue(which: int, words: int) -> str:
    """Code for the address `%q` of the queue of a thread, which has so many words."""
    return f"""{word("queues", "s", which, "ptr")}
  %nth = mul i64 %t, {words}
  %q = getelementptr i64, ptr %queues, i64 %nth"""


def _entry(n: str, words: int, name: str = "e") -> str:
    """Code for the address of an entry of so many words of the queue `%q`."""
    return f"""%{name}.all = load ptr, ptr %q
  %{name}.word = mul i64 {n}, {words}
  %{name} = getelementptr i64, ptr %{name}.all, i64 %{name}.word"""


def _new_entry(words: int) -> str:
    """Code that notes one more entry of so many words, `%e`, with its group; the block that it is in ends in `put`."""
    return f"""{word("length", "q", LENGTH)}
  {word("room", "q", ROOM)}
  %full = icmp eq i64 %length, %room
  br i1 %full, label %grow, label %put
grow:
  %old = load ptr, ptr %q
  %twice = shl i64 %room, 1
  %wide = add i64 %twice, 8
  %bytes = mul i64 %wide, {8 * words}
  %grown = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %grown, ptr %q
  store i64 %wide, ptr %room.at
  br label %put
put:
  {_entry("%length", words)}
  %longer = add i64 %length, 1
  store i64 %longer, ptr %length.at
  {word("group", "q", GROUP)}"""


def _at(name: str, base: str, n: int) -> str:
    return f"%{name}.at = getelementptr i64, ptr %{base}, i64 {n}"


def _with(base: str, values: Mapping[str, tuple[int, str]]) -> str:
    """Code that stores words, each by a name, its number and its value."""
    return "\n  ".join(f"{_at(name, base, n)}\n  store {value}, ptr %{name}.at" for name, (n, value) in values.items())


_EMPTY = {"length": (LENGTH, "i64 0"), "head": (HEAD, "i64 0"), "group": (GROUP, "i64 0")}
"""The words of an empty queue."""


# Copies of threads, `cp.async`: they land at the wait that covers them.


_TARGET, _SOURCE, _SIZE, _ENTRY_GROUP, _ROW, _SITE, _READ, _ENTRY_WORDS = range(8)
"""The words of an entry, and their number."""

_QUEUE = _queue(QUEUES, QUEUE_WORDS)

_COPY = "ptr %s, ptr %rows, i64 %t, ptr %to, ptr %from, i64 %n, i64 %read, i64 %row, i64 %site"

_COPIED = {
    "target": (_TARGET, "ptr %to"),
    "source": (_SOURCE, "ptr %from"),
    "size": (_SIZE, "i64 %n"),
    "mine": (_ENTRY_GROUP, "i64 %group"),
    "row": (_ROW, "i64 %row"),
    "site": (_SITE, "i64 %site"),
    "read": (_READ, "i64 %read"),
}
"""The words of the entry of a copy that is started."""

UNDER_WAY_CODE = f"""
declare ptr @realloc(ptr, i64)

define internal void @tensorc_flag(ptr %rows, i64 %row, ptr %a, i64 %n, i64 %flag) nounwind {{
entry:
  {OFFSET}
  {word("bytes", "buffer", 2)}
  {word("shadow", "buffer", 3, "ptr")}
  %within = icmp ult i64 %off, %size
  br i1 %within, label %some, label %out
some:
  %first = udiv i64 %off, %bytes
  %many = udiv i64 %n, %bytes
  %stop = add i64 %first, %many
  br label %each
each:
  %e = phi i64 [ %first, %some ], [ %e1, %each ]
  %e2 = shl i64 %e, 1
  %w = getelementptr i64, ptr %shadow, i64 %e2
  %old = load i64, ptr %w
  %plain = and i64 %old, {PLAIN}
  %new = or i64 %plain, %flag
  store i64 %new, ptr %w
  %e1 = add i64 %e, 1
  %more = icmp ult i64 %e1, %stop
  br i1 %more, label %each, label %out
out:
  ret void
}}

define internal void @tensorc_start({_COPY}) noinline nounwind {{
entry:
  call void @tensorc_flag(ptr %rows, i64 %row, ptr %to, i64 %n, i64 {FLAG})
  {_QUEUE}
  {_new_entry(_ENTRY_WORDS)}
  {_with("e", _COPIED)}
  ret void
}}

define internal void @tensorc_commit(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {word("group", "q", GROUP)}
  %next = add i64 %group, 1
  store i64 %next, ptr %group.at
  ret void
}}

define internal void @tensorc_wait(ptr %s, ptr %rows, i64 %t, i64 %groups) noinline nounwind {{
entry:
  {_QUEUE}
  {word("head", "q", HEAD)}
  {word("length", "q", LENGTH)}
  {word("group", "q", GROUP)}
  %last = sub i64 %group, %groups
  br label %each
each:
  %n = phi i64 [ %head, %entry ], [ %n1, %land ]
  %any = icmp slt i64 %n, %length
  br i1 %any, label %look, label %empty
look:
  {_entry("%n", _ENTRY_WORDS)}
  {word("mine", "e", _ENTRY_GROUP)}
  %done = icmp slt i64 %mine, %last
  br i1 %done, label %land, label %left
land:
  %to = load ptr, ptr %e
  {word("from", "e", _SOURCE, "ptr")}
  {word("size", "e", _SIZE)}
  {word("read", "e", _READ)}
  {word("row", "e", _ROW)}
  {word("site", "e", _SITE)}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %read, i1 false)
  %rest = getelementptr i8, ptr %to, i64 %read
  %zeros = sub i64 %size, %read
  call void @llvm.memset.p0.i64(ptr %rest, i8 0, i64 %zeros, i1 false)
  call void @tensorc_flag(ptr %rows, i64 %row, ptr %to, i64 %size, i64 0)
  call ptr @tensorc_watch(ptr %s, ptr %rows, i64 %row, ptr %to, i64 %size, i64 1, i1 true, i64 %site, i64 %t)
  %n1 = add i64 %n, 1
  br label %each
empty:
  store i64 0, ptr %head.at
  store i64 0, ptr %length.at
  ret void
left:
  store i64 %n, ptr %head.at
  ret void
}}

define internal void @tensorc_forget(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  {_with("q", _EMPTY)}
  call void @tensorc_afresh(ptr %s, i64 %t)
  ret void
}}

define internal void @tensorc_release(ptr %s, i64 %t) nounwind {{
  {_QUEUE}
  %entries = load ptr, ptr %q
  call void @free(ptr %entries)
  call void @tensorc_leave(ptr %s, i64 %t)
  ret void
}}
"""
"""`tensorc_start(state, rows, thread, target, source, bytes, read, row, statement)`, where `read` bytes are from the source
and the others zeros, `tensorc_commit(state, thread)` and `tensorc_wait(state, rows, thread, groups)`; `tensorc_forget`
empties the queue of a thread, `tensorc_release` frees it."""


# Instructions of warpgroups, `wgmma`: they run where a thread waits for them.


_TAKE, _ACC, _BYTES, _SINCE, _OWNER, _OF, _FACTORS = range(7)
_SAVED = _FACTORS + 2 * FACTOR_WORDS
_MOST_BYTES = 512
_PRODUCT_WORDS = _SAVED + _MOST_BYTES // 8
"""The words of a product: what computes it, its sums, their bytes, when it was started, which one has the sums meanwhile, its
group; of each factor what gathers it, its descriptor, buffer and statement; the sums of a lane, at most 128 of f32."""

_BESIDE = _queue(BESIDE, BESIDE_WORDS)

_STARTED = {
    "take": (_TAKE, "ptr %take"),
    "acc": (_ACC, "ptr %acc"),
    "size": (_BYTES, "i64 %size"),
    "since": (_SINCE, "i64 %now"),
    "of": (_OF, "i64 %group"),
}
"""The words of a product that is started."""

IN_REGISTERS = -1
"""The row of a factor that is no buffer in shared memory: its address is that of registers of the thread."""


def _held_factor(n: int) -> str:
    """Code for whether a factor of the entry `%e` is in registers from `%low` on, of which there are `%bytes`: `%in.N`."""
    first = _FACTORS + n * FACTOR_WORDS
    return f"""{word(f"desc.{n}", "e", first + DESC)}
  {word(f"row.{n}", "e", first + ROW)}
  %desc.{n}.off = sub i64 %desc.{n}, %low
  %desc.{n}.in = icmp ult i64 %desc.{n}.off, %bytes
  %held.{n} = icmp eq i64 %row.{n}, {IN_REGISTERS}
  %in.{n} = and i1 %held.{n}, %desc.{n}.in"""


BESIDE_CODE = f"""
define internal void @tensorc_afresh(ptr %s, i64 %t) nounwind {{
  {_BESIDE}
  {_with("q", {**_EMPTY, "touch": (TOUCH, "i64 1"), "known": (KNOWN, "i64 -1")})}
  ret void
}}

define internal void @tensorc_stored(ptr %s, i64 %t) nounwind {{
  {_BESIDE}
  {word("known", "q", KNOWN)}
  {word("epoch", "s", EPOCH)}
  %before = sub i64 %epoch, 1
  %less = icmp slt i64 %known, %before
  %new = select i1 %less, i64 %known, i64 %before
  store i64 %new, ptr %known.at
  ret void
}}

define internal void @tensorc_publish(ptr %s, i64 %t) nounwind {{
  {_BESIDE}
  {word("epoch", "s", EPOCH)}
  {_at("known", "q", KNOWN)}
  store i64 %epoch, ptr %known.at
  ret void
}}

define internal void @tensorc_engage(ptr %s, i64 %t) nounwind {{
  {_BESIDE}
  {_at("touch", "q", TOUCH)}
  store i64 0, ptr %touch.at
  ret void
}}

define internal void @tensorc_touch(ptr %s, i64 %t, ptr %from, i64 %bytes, i64 %site) noinline nounwind {{
entry:
  {_BESIDE}
  {_at("touch", "q", TOUCH)}
  store i64 1, ptr %touch.at
  {word("length", "q", LENGTH)}
  {word("head", "q", HEAD)}
  %low = ptrtoint ptr %from to i64
  br label %look
look:
  %n = phi i64 [ %head, %entry ], [ %n1, %next ]
  %busy = icmp slt i64 %n, %length
  br i1 %busy, label %see, label %out
see:
  {_entry("%n", _PRODUCT_WORDS)}
  {word("acc", "e", _ACC)}
  %acc.off = sub i64 %acc, %low
  %in.acc = icmp ult i64 %acc.off, %bytes
  {_held_factor(0)}
  {_held_factor(1)}
  %some = or i1 %in.0, %in.1
  %mine = or i1 %some, %in.acc
  br i1 %mine, label %fault, label %next
next:
  %n1 = add i64 %n, 1
  br label %look
fault:
  call void @tensorc_fault(ptr %s, i64 {EARLY}, i64 %site, i64 0, i64 0, i64 %t, i64 0)
  br label %out
out:
  ret void
}}

define internal ptr @tensorc_beside(ptr %s, i64 %t, ptr %take, ptr %acc, i64 %size, i64 %site) noinline nounwind {{
entry:
  {_BESIDE}
  {word("touch", "q", TOUCH)}
  %touched = icmp ne i64 %touch, 0
  br i1 %touched, label %fault, label %more
fault:
  call void @tensorc_fault(ptr %s, i64 {TOUCHED}, i64 %site, i64 0, i64 0, i64 %t, i64 0)
  br label %more
more:
  {_new_entry(_PRODUCT_WORDS)}
  {word("now", "s", NOW)}
  {_with("e", _STARTED)}
  br label %look
look:
  %n = phi i64 [ 0, %put ], [ %n1, %next ]
  {_entry("%n", _PRODUCT_WORDS, "o")}
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
  %one = urem i64 %t, {WARPGROUP}
  %first = select i1 %all, i64 %one, i64 %lane
  %step = select i1 %all, i64 {WARPGROUP}, i64 {LANES}
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
  {_BESIDE}
  {word("group", "q", GROUP)}
  %next = add i64 %group, %one
  store i64 %next, ptr %group.at
  {word("head", "q", HEAD)}
  ret i64 %head
}}

define internal ptr @tensorc_started(ptr %s, i64 %t, i64 %n, i64 %left) nounwind {{
entry:
  {_BESIDE}
  {word("length", "q", LENGTH)}
  %any = icmp slt i64 %n, %length
  br i1 %any, label %look, label %none
look:
  {_entry("%n", _PRODUCT_WORDS)}
  {word("of", "e", _OF)}
  {word("group", "q", GROUP)}
  %last = sub i64 %group, %left
  %over = icmp slt i64 %of, %last
  %out = select i1 %over, ptr %e, ptr null
  ret ptr %out
none:
  ret ptr null
}}

define internal void @tensorc_compute(ptr %s, i64 %t, i64 %n, ptr %memory) noinline nounwind {{
entry:
  {_BESIDE}
  {_entry("%n", _PRODUCT_WORDS)}
  {word("owner", "e", _OWNER)}
  {_entry("%owner", _PRODUCT_WORDS, "o")}
  {_at("saved", "o", _SAVED)}
  %one = urem i64 %t, {WARPGROUP}
  %take = load ptr, ptr %e
  call void %take(ptr %memory, ptr %saved.at, i64 %one)
  {word("acc", "e", _ACC, "ptr")}
  {word("size", "e", _BYTES)}
  {word("length", "q", LENGTH)}
  br label %look
look:
  %m = phi i64 [ %n, %entry ], [ %m1, %other ]
  %m1 = add i64 %m, 1
  %end = icmp eq i64 %m1, %length
  br i1 %end, label %last, label %see
see:
  {_entry("%m1", _PRODUCT_WORDS, "l")}
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
  {_BESIDE}
  {word("length", "q", LENGTH)}
  %all = icmp eq i64 %n, %length
  %left = select i1 %all, i64 0, i64 %length
  store i64 %left, ptr %length.at
  %first = select i1 %all, i64 0, i64 %n
  {_at("head", "q", HEAD)}
  store i64 %first, ptr %head.at
  ret void
}}

define internal void @tensorc_leave(ptr %s, i64 %t) nounwind {{
  {_BESIDE}
  %entries = load ptr, ptr %q
  call void @free(ptr %entries)
  ret void
}}
"""
"""For kernels with instructions of warpgroups: `tensorc_beside` notes that one is started, `tensorc_gather` looks at its
factors, or copies them to memory of the warp, `tensorc_compute` adds to the sums. `tensorc_ended` ends a group,
`tensorc_started` gives the next one of a group that is waited for, `tensorc_finished` notes how far that went."""
