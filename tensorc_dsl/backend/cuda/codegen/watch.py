"""LLVM code that watches the memory of an emulated kernel: who has read and written each element, and since which barrier.

For each element of watched memory there are two stamps, of the last write and of reads: block, barrier, thread. Two accesses
race if one is a write, their threads differ, and no barrier is between them; threads of different blocks are never ordered. A
stamp that stands for several readers says so. This finds a race in any order of threads, whether or not it shows in results.
"""

from __future__ import annotations

COUNT, KIND, SITE, ROW, ELEMENT, AT_THREAD, OTHER, BLOCK, EPOCH, AT_BLOCK, SPARE, MARKS, WARPS = range(13)
"""The words of the state: how many faults there were; of the first its kind, statement, buffer, element, thread, the stamp
that it met, and block; what runs: block and barrier; memory for accesses that are out of bounds; the last barrier of each
thread; memory of the warps for their instructions."""

STATE_WORDS = 16

OUTSIDE, RACE, APART, ASKEW = 1, 2, 3, 4
"""Kinds of faults: an element out of bounds, two threads that race, threads at different barriers, an address
that is no multiple of what is accessed."""

ROW_WORDS = 5
"""The words of a buffer: its address, its size in bytes, the size of an element, its stamps, whether a block has its own."""

COLLECTIVE = 1 << 32
"""The first of the marks at which a warp alone waits for its lanes, for an instruction. Those of barriers are below."""

ENDED = -1
"""The barrier at which a thread is that has ended."""

_BLOCK_BITS, _EPOCH_BITS = 40, 12
"""Where the block and the barrier begin in a stamp. Below are 11 bits of the thread and one that says "and others"."""


def stamp(value: int) -> tuple[int, int]:
    """The block and the thread of a stamp."""
    return (value >> _BLOCK_BITS) - 1, (value >> 1) & 0x7FF


def _word(n: int) -> str:
    return f"getelementptr i64, ptr %s, i64 {n}"


_FAULT = "ptr %s, i64 %kind, i64 %site, i64 %row, i64 %element, i64 %thread, i64 %other"
_ALIGNED = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %site, i64 %t"
_ACCESS = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i1 %write, i64 %site, i64 %t"

WATCH = f"""
define internal void @tensorc_fault({_FAULT}) noinline nounwind {{
  %n = load i64, ptr %s
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %s
  %first = icmp eq i64 %n, 0
  br i1 %first, label %note, label %out
note:
  %k = {_word(KIND)}
  store i64 %kind, ptr %k
  %p = {_word(SITE)}
  store i64 %site, ptr %p
  %r = {_word(ROW)}
  store i64 %row, ptr %r
  %e = {_word(ELEMENT)}
  store i64 %element, ptr %e
  %t = {_word(AT_THREAD)}
  store i64 %thread, ptr %t
  %o = {_word(OTHER)}
  store i64 %other, ptr %o
  %now = {_word(BLOCK)}
  %b = load i64, ptr %now
  %ab = {_word(AT_BLOCK)}
  store i64 %b, ptr %ab
  br label %out
out:
  ret void
}}

define internal void @tensorc_aligned({_ALIGNED}) noinline nounwind {{
  %ai = ptrtoint ptr %a to i64
  %below = sub i64 %n, 1
  %rest = and i64 %ai, %below
  %fits = icmp eq i64 %rest, 0
  br i1 %fits, label %out, label %askew
askew:
  %at = mul i64 %row, {ROW_WORDS}
  %q0 = getelementptr i64, ptr %rows, i64 %at
  %base = load i64, ptr %q0
  %q2 = getelementptr i64, ptr %q0, i64 2
  %bytes = load i64, ptr %q2
  %off = sub i64 %ai, %base
  %first = sdiv i64 %off, %bytes
  call void @tensorc_fault(ptr %s, i64 {ASKEW}, i64 %site, i64 %row, i64 %first, i64 %t, i64 %n)
  br label %out
out:
  ret void
}}

define internal i1 @tensorc_meets(i64 %old, i64 %cur, i64 %own) alwaysinline nounwind {{
  %some = icmp ne i64 %old, 0
  %ob = lshr i64 %old, {_BLOCK_BITS}
  %cb = lshr i64 %cur, {_BLOCK_BITS}
  %otherblock = icmp ne i64 %ob, %cb
  %oe = lshr i64 %old, {_EPOCH_BITS}
  %ce = lshr i64 %cur, {_EPOCH_BITS}
  %together = icmp eq i64 %oe, %ce
  %x = xor i64 %old, %cur
  %xt = and i64 %x, 4094
  %differ = icmp ne i64 %xt, 0
  %m = and i64 %old, 1
  %many = icmp ne i64 %m, 0
  %dm = or i1 %differ, %many
  %inblock = and i1 %together, %dm
  %common = icmp eq i64 %own, 0
  %r = select i1 %otherblock, i1 %common, i1 %inblock
  %out = and i1 %some, %r
  ret i1 %out
}}

define internal ptr @tensorc_watch({_ACCESS}) noinline nounwind {{
entry:
  %at = mul i64 %row, {ROW_WORDS}
  %q0 = getelementptr i64, ptr %rows, i64 %at
  %base = load i64, ptr %q0
  %q1 = getelementptr i64, ptr %q0, i64 1
  %size = load i64, ptr %q1
  %q2 = getelementptr i64, ptr %q0, i64 2
  %bytes = load i64, ptr %q2
  %q3 = getelementptr i64, ptr %q0, i64 3
  %shadow = load ptr, ptr %q3
  %q4 = getelementptr i64, ptr %q0, i64 4
  %own = load i64, ptr %q4
  %ai = ptrtoint ptr %a to i64
  %off = sub i64 %ai, %base
  %end = add i64 %off, %n
  %first = sdiv i64 %off, %bytes
  %below = icmp slt i64 %off, 0
  %above = icmp sgt i64 %end, %size
  %bad = or i1 %below, %above
  br i1 %bad, label %outside, label %within
outside:
  call void @tensorc_fault(ptr %s, i64 {OUTSIDE}, i64 %site, i64 %row, i64 %first, i64 %t, i64 0)
  %sp = {_word(SPARE)}
  %spare = load ptr, ptr %sp
  ret ptr %spare
within:
  %many = sdiv i64 %n, %bytes
  %stop = add i64 %first, %many
  %bp = {_word(BLOCK)}
  %block = load i64, ptr %bp
  %ep = {_word(EPOCH)}
  %epoch = load i64, ptr %ep
  %b1 = add i64 %block, 1
  %bs = shl i64 %b1, {_BLOCK_BITS}
  %es = shl i64 %epoch, {_EPOCH_BITS}
  %ts = shl i64 %t, 1
  %be = or i64 %bs, %es
  %cur = or i64 %be, %ts
  br label %each
each:
  %e = phi i64 [ %first, %within ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %rp = getelementptr i64, ptr %wp, i64 1
  %w = load i64, ptr %wp
  %r = load i64, ptr %rp
  %mw = call i1 @tensorc_meets(i64 %w, i64 %cur, i64 %own)
  %mr = call i1 @tensorc_meets(i64 %r, i64 %cur, i64 %own)
  %mrw = and i1 %mr, %write
  %race = or i1 %mw, %mrw
  br i1 %race, label %raced, label %noted
raced:
  %other = select i1 %mw, i64 %w, i64 %r
  call void @tensorc_fault(ptr %s, i64 {RACE}, i64 %site, i64 %row, i64 %e, i64 %t, i64 %other)
  br label %noted
noted:
  br i1 %write, label %wrote, label %read
wrote:
  store i64 %cur, ptr %wp
  br label %next
read:
  %rb = lshr i64 %r, {_BLOCK_BITS}
  %cb = lshr i64 %cur, {_BLOCK_BITS}
  %elsewhere = icmp ne i64 %rb, %cb
  %some = icmp ne i64 %r, 0
  %common = icmp eq i64 %own, 0
  %blocks0 = and i1 %elsewhere, %some
  %blocks = and i1 %blocks0, %common
  %marked = or i64 %r, 1
  %mine = select i1 %mr, i64 %marked, i64 %cur
  %new = select i1 %blocks, i64 -1, i64 %mine
  store i64 %new, ptr %rp
  br label %next
next:
  %e1 = add i64 %e, 1
  %more = icmp slt i64 %e1, %stop
  br i1 %more, label %each, label %done
done:
  ret ptr %a
}}
"""
"""`tensorc_watch(state, rows, row, address, bytes, write, statement, thread)`: the address, or one of spare memory if the
access is out of bounds. Faults are noted in the state."""
