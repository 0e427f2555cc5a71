"""LLVM code that counts what the accesses of a warp cost a GPU: sectors of global memory, passes over the banks of shared
memory.

Each lane of the warp that runs has a log of its accesses. When all lanes have reached a barrier, the logs are read side by
side: lanes that do the same access next are one request, where the longest log goes first, so that lanes that have skipped a
statement meet again behind it. A request to global memory moves every sector of 32 bytes that it touches. Shared memory has
32 banks of 4 bytes, and a request takes as many passes as it has different words in one bank; accesses of 8 and 16 bytes are
requests of 16 and 8 lanes.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.emulation.watch import LOGS, TALLY
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.ir.warp import LANES

LOG_WORDS = 4
"""The words of a lane's log: its entries, how many there are and may be, the next one. An entry is a key and an address."""

TALLY_WORDS = 3
"""The words of an access: its requests, what they move, and what they would move at least."""


MOST_TIMES = 1 << 23
"""How often an access is made at most that has one entry."""


def key(access: int, shared: bool, size: int, times: int = 1) -> int:
    """What a log notes of an access of a statement, besides its address: its number, its bytes, and how often it is made in
    the same banks."""
    return (times - 1) << 40 | access << 16 | shared << 8 | size


TALLY_CODE = f"""
define internal void @tensorc_note(ptr %s, i64 %key, ptr %a, i64 %t) alwaysinline nounwind {{
  %logs.at = getelementptr i64, ptr %s, i64 {LOGS}
  %logs = load ptr, ptr %logs.at
  %none = icmp eq ptr %logs, null
  br i1 %none, label %out, label %some
some:
  call void @tensorc_log(ptr %logs, i64 %key, ptr %a, i64 %t)
  br label %out
out:
  ret void
}}

define internal void @tensorc_log(ptr %logs, i64 %key, ptr %a, i64 %t) noinline nounwind {{
entry:
  %lane = and i64 %t, {LANES - 1}
  %nth = mul i64 %lane, {LOG_WORDS}
  %log = getelementptr i64, ptr %logs, i64 %nth
  %length.at = getelementptr i64, ptr %log, i64 1
  %room.at = getelementptr i64, ptr %log, i64 2
  %old = load ptr, ptr %log
  %length = load i64, ptr %length.at
  %room = load i64, ptr %room.at
  %full = icmp eq i64 %length, %room
  br i1 %full, label %grow, label %put
grow:
  %twice = shl i64 %room, 1
  %wide = add i64 %twice, 64
  %bytes = mul i64 %wide, 16
  %new = call ptr @realloc(ptr %old, i64 %bytes)
  store ptr %new, ptr %log
  store i64 %wide, ptr %room.at
  br label %put
put:
  %entries = phi ptr [ %old, %entry ], [ %new, %grow ]
  %word = shl i64 %length, 1
  %e = getelementptr i64, ptr %entries, i64 %word
  store i64 %key, ptr %e
  %e1 = getelementptr i64, ptr %e, i64 1
  store ptr %a, ptr %e1
  %longer = add i64 %length, 1
  store i64 %longer, ptr %length.at
  ret void
}}

define internal void @tensorc_request(ptr %s, i64 %key, ptr %list, ptr %lanes, i64 %count) noinline nounwind {{
entry:
  %seen = alloca [256 x i64]
  %places = alloca [{LANES} x i64]
  %banks = alloca [256 x i64]
  %most = alloca [8 x i64]
  call void @llvm.memset.p0.i64(ptr %banks, i8 0, i64 2048, i1 false)
  call void @llvm.memset.p0.i64(ptr %most, i8 0, i64 64, i1 false)
  %n = and i64 %key, 255
  %k8 = lshr i64 %key, 8
  %own = and i64 %k8, 1
  %shared = icmp ne i64 %own, 0
  %k16 = lshr i64 %key, 16
  %access = and i64 %k16, 16777215
  %k40 = lshr i64 %key, 40
  %times = add i64 %k40, 1
  %log = select i1 %shared, i64 2, i64 5
  %wide = udiv i64 128, %n
  %few = icmp ult i64 %wide, {LANES}
  %per = select i1 %few, i64 %wide, i64 {LANES}
  br label %each
each:
  %g = phi i64 [ 0, %entry ], [ %g1, %after ]
  %m = phi i64 [ 0, %entry ], [ %m3, %after ]
  %d = phi i64 [ 0, %entry ], [ %d.out, %after ]
  %mask = phi i64 [ 0, %entry ], [ %mask1, %after ]
  %a.top = phi i64 [ 0, %entry ], [ %a.top1, %after ]
  %v.top = phi i64 [ 0, %entry ], [ %v.top2, %after ]
  %a.at = getelementptr i64, ptr %list, i64 %g
  %a = load i64, ptr %a.at
  %lane.at = getelementptr i64, ptr %lanes, i64 %g
  %lane = load i64, ptr %lane.at
  %part = udiv i64 %lane, %per
  %sub = select i1 %shared, i64 %part, i64 0
  %bit = shl i64 1, %sub
  %mask1 = or i64 %mask, %bit
  %a.new = icmp ugt i64 %a, %a.top
  %a.top1 = call i64 @llvm.umax.i64(i64 %a, i64 %a.top)
  br i1 %a.new, label %place.add, label %place
place:
  %i = phi i64 [ 0, %each ], [ %i1, %place.next ]
  %i.end = icmp eq i64 %i, %d
  br i1 %i.end, label %place.add, label %place.look
place.look:
  %x.at = getelementptr i64, ptr %places, i64 %i
  %x = load i64, ptr %x.at
  %same = icmp eq i64 %x, %a
  br i1 %same, label %placed, label %place.next
place.next:
  %i1 = add i64 %i, 1
  br label %place
place.add:
  %p.at = getelementptr i64, ptr %places, i64 %d
  store i64 %a, ptr %p.at
  %d1 = add i64 %d, 1
  br label %placed
placed:
  %d.out = phi i64 [ %d, %place.look ], [ %d1, %place.add ]
  %u0 = lshr i64 %a, %log
  %n1 = sub i64 %n, 1
  %end = add i64 %a, %n1
  %last = lshr i64 %end, %log
  br label %unit
unit:
  %u = phi i64 [ %u0, %placed ], [ %u1, %unit.next ]
  %m2 = phi i64 [ %m, %placed ], [ %m3, %unit.next ]
  %v.top1 = phi i64 [ %v.top, %placed ], [ %v.top2, %unit.next ]
  %u8 = shl i64 %u, 3
  %v = or i64 %u8, %sub
  %v.new = icmp ugt i64 %v, %v.top1
  %v.top2 = call i64 @llvm.umax.i64(i64 %v, i64 %v.top1)
  br i1 %v.new, label %put, label %search
search:
  %j = phi i64 [ 0, %unit ], [ %j1, %search.next ]
  %j.end = icmp eq i64 %j, %m2
  br i1 %j.end, label %put, label %look
look:
  %y.at = getelementptr i64, ptr %seen, i64 %j
  %y = load i64, ptr %y.at
  %known = icmp eq i64 %y, %v
  br i1 %known, label %unit.next, label %search.next
search.next:
  %j1 = add i64 %j, 1
  br label %search
put:
  %s.at = getelementptr i64, ptr %seen, i64 %m2
  store i64 %v, ptr %s.at
  %m2p = add i64 %m2, 1
  %bank = and i64 %u, {LANES - 1}
  %base = mul i64 %sub, {LANES}
  %b = add i64 %base, %bank
  %b.at = getelementptr i64, ptr %banks, i64 %b
  %in = load i64, ptr %b.at
  %in1 = add i64 %in, 1
  store i64 %in1, ptr %b.at
  %most.at = getelementptr i64, ptr %most, i64 %sub
  %so = load i64, ptr %most.at
  %top = call i64 @llvm.umax.i64(i64 %so, i64 %in1)
  store i64 %top, ptr %most.at
  br label %unit.next
unit.next:
  %m3 = phi i64 [ %m2, %look ], [ %m2p, %put ]
  %u1 = add i64 %u, 1
  %again = icmp ule i64 %u1, %last
  br i1 %again, label %unit, label %after
after:
  %g1 = add i64 %g, 1
  %more = icmp ult i64 %g1, %count
  br i1 %more, label %each, label %sum
sum:
  %k = phi i64 [ 0, %after ], [ %k1, %sum ]
  %passes = phi i64 [ 0, %after ], [ %passes1, %sum ]
  %o.at = getelementptr i64, ptr %most, i64 %k
  %o = load i64, ptr %o.at
  %passes1 = add i64 %passes, %o
  %k1 = add i64 %k, 1
  %k.more = icmp ult i64 %k1, 8
  br i1 %k.more, label %sum, label %note
note:
  %groups = call i64 @llvm.ctpop.i64(i64 %mask1)
  %bytes = mul i64 %d.out, %n
  %round = add i64 %bytes, 31
  %sectors = lshr i64 %round, 5
  %moves1 = select i1 %shared, i64 %passes1, i64 %m3
  %least1 = select i1 %shared, i64 %groups, i64 %sectors
  %moves = mul i64 %moves1, %times
  %least = mul i64 %least1, %times
  %tally.at = getelementptr i64, ptr %s, i64 {TALLY}
  %tally = load ptr, ptr %tally.at
  %row = mul i64 %access, {TALLY_WORDS}
  %q0 = getelementptr i64, ptr %tally, i64 %row
  %v0 = load i64, ptr %q0
  %w0 = add i64 %v0, %times
  store i64 %w0, ptr %q0
  %q1 = getelementptr i64, ptr %q0, i64 1
  %v1 = load i64, ptr %q1
  %w1 = add i64 %v1, %moves
  store i64 %w1, ptr %q1
  %q2 = getelementptr i64, ptr %q0, i64 2
  %v2 = load i64, ptr %q2
  %w2 = add i64 %v2, %least
  store i64 %w2, ptr %q2
  ret void
}}

define internal void @tensorc_tally(ptr %s) noinline nounwind {{
entry:
  %list = alloca [{LANES} x i64]
  %lanes = alloca [{LANES} x i64]
  %logs.at = getelementptr i64, ptr %s, i64 {LOGS}
  %logs = load ptr, ptr %logs.at
  %none = icmp eq ptr %logs, null
  br i1 %none, label %out, label %next
next:
  br label %scan
scan:
  %l = phi i64 [ 0, %next ], [ %l1, %scan ]
  %best = phi i64 [ 0, %next ], [ %best1, %scan ]
  %lead = phi ptr [ %logs, %next ], [ %lead1, %scan ]
  %l4 = mul i64 %l, {LOG_WORDS}
  %log = getelementptr i64, ptr %logs, i64 %l4
  %length.at = getelementptr i64, ptr %log, i64 1
  %at.at = getelementptr i64, ptr %log, i64 3
  %length = load i64, ptr %length.at
  %at = load i64, ptr %at.at
  %left = sub i64 %length, %at
  %longer = icmp sgt i64 %left, %best
  %best1 = select i1 %longer, i64 %left, i64 %best
  %lead1 = select i1 %longer, ptr %log, ptr %lead
  %l1 = add i64 %l, 1
  %l.more = icmp ult i64 %l1, {LANES}
  br i1 %l.more, label %scan, label %chosen
chosen:
  %done = icmp eq i64 %best1, 0
  br i1 %done, label %reset, label %take
take:
  %key = call i64 @tensorc_next(ptr %lead1)
  br label %gather
gather:
  %h = phi i64 [ 0, %take ], [ %h1, %skip ]
  %c = phi i64 [ 0, %take ], [ %c1, %skip ]
  %h4 = mul i64 %h, {LOG_WORDS}
  %mine = getelementptr i64, ptr %logs, i64 %h4
  %other = call i64 @tensorc_next(ptr %mine)
  %equal = icmp eq i64 %other, %key
  br i1 %equal, label %add, label %skip
add:
  %entries = load ptr, ptr %mine
  %pos.at = getelementptr i64, ptr %mine, i64 3
  %pos = load i64, ptr %pos.at
  %word = shl i64 %pos, 1
  %word1 = add i64 %word, 1
  %addr.at = getelementptr i64, ptr %entries, i64 %word1
  %addr = load i64, ptr %addr.at
  %put = getelementptr i64, ptr %list, i64 %c
  store i64 %addr, ptr %put
  %who = getelementptr i64, ptr %lanes, i64 %c
  store i64 %h, ptr %who
  %pos1 = add i64 %pos, 1
  store i64 %pos1, ptr %pos.at
  %c.add = add i64 %c, 1
  br label %skip
skip:
  %c1 = phi i64 [ %c, %gather ], [ %c.add, %add ]
  %h1 = add i64 %h, 1
  %h.more = icmp ult i64 %h1, {LANES}
  br i1 %h.more, label %gather, label %gathered
gathered:
  call void @tensorc_request(ptr %s, i64 %key, ptr %list, ptr %lanes, i64 %c1)
  br label %next
reset:
  %z = phi i64 [ 0, %chosen ], [ %z1, %reset ]
  %z4 = mul i64 %z, {LOG_WORDS}
  %old = getelementptr i64, ptr %logs, i64 %z4
  %old1 = getelementptr i64, ptr %old, i64 1
  store i64 0, ptr %old1
  %old3 = getelementptr i64, ptr %old, i64 3
  store i64 0, ptr %old3
  %z1 = add i64 %z, 1
  %z.more = icmp ult i64 %z1, {LANES}
  br i1 %z.more, label %reset, label %out
out:
  ret void
}}

define internal i64 @tensorc_next(ptr %log) alwaysinline nounwind {{
entry:
  %length.at = getelementptr i64, ptr %log, i64 1
  %length = load i64, ptr %length.at
  %at.at = getelementptr i64, ptr %log, i64 3
  %at = load i64, ptr %at.at
  %some = icmp slt i64 %at, %length
  br i1 %some, label %there, label %none
there:
  %entries = load ptr, ptr %log
  %word = shl i64 %at, 1
  %e = getelementptr i64, ptr %entries, i64 %word
  %key = load i64, ptr %e
  ret i64 %key
none:
  ret i64 -1
}}

define internal void @tensorc_unlog(ptr %s) nounwind {{
entry:
  %logs.at = getelementptr i64, ptr %s, i64 {LOGS}
  %logs = load ptr, ptr %logs.at
  %none = icmp eq ptr %logs, null
  br i1 %none, label %out, label %each
each:
  %l = phi i64 [ 0, %entry ], [ %l1, %each ]
  %l4 = mul i64 %l, {LOG_WORDS}
  %log = getelementptr i64, ptr %logs, i64 %l4
  %entries = load ptr, ptr %log
  call void @free(ptr %entries)
  %l1 = add i64 %l, 1
  %more = icmp ult i64 %l1, {LANES}
  br i1 %more, label %each, label %out
out:
  ret void
}}
"""
"""`tensorc_note(state, key, address, thread)` notes an access; `tensorc_tally(state)` counts those of a warp, and forgets
them; `tensorc_unlog(state)` frees the logs. None does anything if the state has no logs."""


def declare_tally(module: Module) -> None:
    """Declare the intrinsics of `TALLY_CODE` and of `factors`, which kernels may use, too."""
    for name, kinds in (
        ("umax", ("i64", "i64")),
        ("umin", ("i64", "i64")),
        ("ctpop", ("i64",)),
        ("cttz", ("i64", "i1")),
    ):
        module.declare("i64", f"llvm.{name}.i64", kinds)
