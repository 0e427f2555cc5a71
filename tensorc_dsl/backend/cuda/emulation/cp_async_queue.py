"""LLVM code that delays the copies of an emulated thread as long as it may: they land at the wait that covers them.

Each thread has a queue. A copy that starts is noted in it; a commit counts groups; a wait runs the copies of all groups but
the latest. So what is read too early is not there, and a wait for too few groups shows in results, or at the element, whose
stamp says that a copy is under way.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.emulation.watch import FLAG, OFFSET, PLAIN, QUEUES, word

ENTRIES, HEAD, LENGTH, ROOM, GROUP, QUEUE_WORDS = range(6)
"""The words of a queue: its entries, the first that has not landed, how many there are and may be, how many groups there
are; and the number of these words."""

_TARGET, _SOURCE, _SIZE, _ENTRY_GROUP, _ROW, _SITE, _READ, _ENTRY_WORDS = range(8)
"""The words of an entry, and their number."""


_QUEUE = f"""{word("queues", "s", QUEUES, "ptr")}
  %nth = mul i64 %t, {QUEUE_WORDS}
  %q = getelementptr i64, ptr %queues, i64 %nth"""

_COPY = "ptr %s, ptr %rows, i64 %t, ptr %to, ptr %from, i64 %n, i64 %read, i64 %row, i64 %site"

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
  {word("length", "q", LENGTH)}
  {word("room", "q", ROOM)}
  {word("group", "q", GROUP)}
  {word("old", "q", ENTRIES, "ptr")}
  %full = icmp eq i64 %length, %room
  br i1 %full, label %grow, label %put
grow:
  %twice = shl i64 %room, 1
  %wide = add i64 %twice, 16
  %bytes = mul i64 %wide, {8 * _ENTRY_WORDS}
  %new = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %new, ptr %old.at
  store i64 %wide, ptr %room.at
  br label %put
put:
  %entries = phi ptr [ %old, %entry ], [ %new, %grow ]
  %word = mul i64 %length, {_ENTRY_WORDS}
  %e = getelementptr i64, ptr %entries, i64 %word
  store ptr %to, ptr %e
  %p1 = getelementptr i64, ptr %e, i64 {_SOURCE}
  store ptr %from, ptr %p1
  %p2 = getelementptr i64, ptr %e, i64 {_SIZE}
  store i64 %n, ptr %p2
  %p3 = getelementptr i64, ptr %e, i64 {_ENTRY_GROUP}
  store i64 %group, ptr %p3
  %p4 = getelementptr i64, ptr %e, i64 {_ROW}
  store i64 %row, ptr %p4
  %p5 = getelementptr i64, ptr %e, i64 {_SITE}
  store i64 %site, ptr %p5
  %p6 = getelementptr i64, ptr %e, i64 {_READ}
  store i64 %read, ptr %p6
  %longer = add i64 %length, 1
  store i64 %longer, ptr %length.at
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
  {word("entries", "q", ENTRIES, "ptr")}
  %last = sub i64 %group, %groups
  br label %each
each:
  %n = phi i64 [ %head, %entry ], [ %n1, %land ]
  %any = icmp slt i64 %n, %length
  br i1 %any, label %look, label %empty
look:
  %word = mul i64 %n, {_ENTRY_WORDS}
  %e = getelementptr i64, ptr %entries, i64 %word
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
  %head.at = getelementptr i64, ptr %q, i64 {HEAD}
  store i64 0, ptr %head.at
  %length.at = getelementptr i64, ptr %q, i64 {LENGTH}
  store i64 0, ptr %length.at
  %group.at = getelementptr i64, ptr %q, i64 {GROUP}
  store i64 0, ptr %group.at
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
