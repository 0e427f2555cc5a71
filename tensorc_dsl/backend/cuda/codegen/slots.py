"""LLVM code that notes when each warp has read what tiles of another role have filled.

No barrier stands between roles, so stamps do not order them. A warp counts how often it has released something. With each
element the count is noted at which a warp has read it last. The role that loads has to know of a later release before a tile
may come there (`landing`). An instruction of a warpgroup reads where it starts, and where its threads wait for it.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.codegen.watch import OFFSET, RELEASED, word
from tensorc_dsl.ir.warp import LANES

SLOTS_CODE = f"""
define internal void @tensorc_took(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %t) noinline nounwind {{
entry:
  {OFFSET}
  {word("times", "buffer", 5, "ptr")}
  {word("bytes", "buffer", 2)}
  %within = icmp ult i64 %off, %size
  %noted = icmp ne ptr %times, null
  %both = and i1 %within, %noted
  br i1 %both, label %some, label %out
some:
  %warp = udiv i64 %t, {LANES}
  {word("counts", "s", RELEASED, "ptr")}
  %count.at = getelementptr i64, ptr %counts, i64 %warp
  %count = load i64, ptr %count.at
  %next = add i64 %count, 1
  %time = trunc i64 %next to i32
  %all = udiv i64 %size, %bytes
  %own = mul i64 %warp, %all
  %nth = udiv i64 %off, %bytes
  %first = add i64 %own, %nth
  %many = udiv i64 %n, %bytes
  %stop = add i64 %first, %many
  br label %each
each:
  %e = phi i64 [ %first, %some ], [ %e1, %each ]
  %p = getelementptr i32, ptr %times, i64 %e
  store i32 %time, ptr %p
  %e1 = add i64 %e, 1
  %more = icmp ult i64 %e1, %stop
  br i1 %more, label %each, label %out
out:
  ret void
}}
"""
"""`tensorc_took(state, rows, row, address, bytes, thread)`: elements that a thread has read."""
