"""LLVM code that checks accesses where nothing is wrong, which is nearly always; other accesses are for `tensorc_watch`."""

from __future__ import annotations

from tensorc_dsl.backend.cuda.codegen.watch import NOW, OFFSET, word

_ACCESS = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %shift, i64 %align, i1 %write, i64 %site, i64 %t"


def _fast(name: str, each: str) -> str:
    """A function that does what `tensorc_watch` does where nothing is wrong, and else calls it."""
    return f"""
define internal ptr @{name}({_ACCESS}) noinline nounwind {{
entry:
  {OFFSET}
  %room = sub i64 %size, %n
  %inside = icmp ule i64 %off, %room
  %fits = icmp ule i64 %n, %size
  %low = sub i64 %align, 1
  %rest = and i64 %ai, %low
  %straight = icmp eq i64 %rest, 0
  %ok0 = and i1 %inside, %straight
  %ok = and i1 %ok0, %fits
  br i1 %ok, label %within, label %slow
{each}slow:
  %there = call ptr @tensorc_watch(ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %align, i1 %write, i64 %site, i64 %t)
  ret ptr %there
}}
"""


def _stamps(ok: str, update: str) -> str:
    """The stamps of each element, looked at and renewed: `%w` and `%r`, with `%now` of the block and barrier, `%cur` of the
    thread in it; `%wold` and `%rold` say that they are from before the barrier, `%wown` and `%rown` from this thread."""
    return f"""within:
  {word("shadow", "buffer", 3, "ptr")}
  {word("now", "s", NOW)}
  %ts = shl i64 %t, 1
  %cur = or i64 %now, %ts
  %first = lshr i64 %off, %shift
  %many = lshr i64 %n, %shift
  %stop = add i64 %first, %many
  br label %each
each:
  %e = phi i64 [ %first, %within ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %rp = getelementptr i64, ptr %wp, i64 1
  %w = load i64, ptr %wp
  %r = load i64, ptr %rp
  %wold = icmp ult i64 %w, %now
  %wown = icmp eq i64 %w, %cur
  %wok = or i1 %wold, %wown
  %rold = icmp ult i64 %r, %now
  %rown = icmp eq i64 %r, %cur
  %rok = or i1 %rold, %rown
  {ok}
  br i1 %go, label %next, label %slow
next:
  {update}
  %e1 = add i64 %e, 1
  %more = icmp slt i64 %e1, %stop
  br i1 %more, label %each, label %done
done:
  ret ptr %a
"""


_READ = """%also = or i64 %r, 1
  %same = select i1 %rown, i64 %r, i64 %also
  %new = select i1 %rold, i64 %cur, i64 %same
  store i64 %new, ptr %rp"""

_ROWS = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %step, i64 %m, i64 %move, i64 %shift, i64 %t"

_TOGETHER = f"""
define internal i1 @tensorc_ahead({_ROWS}) noinline nounwind {{
entry:
  {OFFSET}
  {word("shadow", "buffer", 3, "ptr")}
  {word("now", "s", NOW)}
  %ts = shl i64 %t, 1
  %cur = or i64 %now, %ts
  %first = lshr i64 %off, %shift
  %all = lshr i64 %size, %shift
  %n1 = sub i64 %n, 1
  %far = mul i64 %n1, %step
  br label %line
line:
  %j = phi i64 [ 0, %entry ], [ %j1, %lined ]
  %begin = phi i64 [ %first, %entry ], [ %begin1, %lined ]
  %last = add i64 %begin, %far
  %starts = icmp ult i64 %begin, %all
  %ends = icmp ult i64 %last, %all
  %ok = and i1 %starts, %ends
  br i1 %ok, label %each, label %no
each:
  %k = phi i64 [ 0, %line ], [ %k1, %next ]
  %e = phi i64 [ %begin, %line ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %rp = getelementptr i64, ptr %wp, i64 1
  %w = load i64, ptr %wp
  %r = load i64, ptr %rp
  %wold = icmp ult i64 %w, %now
  %wown = icmp eq i64 %w, %cur
  %wok = or i1 %wold, %wown
  br i1 %wok, label %next, label %no
next:
  %rold = icmp ult i64 %r, %now
  %rown = icmp eq i64 %r, %cur
  {_READ}
  %e1 = add i64 %e, %step
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %each, label %lined
lined:
  %begin1 = add i64 %begin, %move
  %j1 = add i64 %j, 1
  %again = icmp ult i64 %j1, %m
  br i1 %again, label %line, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}}

define internal i1 @tensorc_spans(ptr %rows, i64 %row, ptr %a, i64 %n) nounwind {{
  {OFFSET}
  %room = sub i64 %size, %n
  %inside = icmp ule i64 %off, %room
  %fits = icmp ule i64 %n, %size
  %ok = and i1 %inside, %fits
  ret i1 %ok
}}
"""

FAST_CODE = "".join(
    (
        _fast("tensorc_within", "within:\n  ret ptr %a\n"),
        _fast("tensorc_read", _stamps("%go = and i1 %wok, true", _READ)),
        _fast("tensorc_write", _stamps("%go = and i1 %wok, %rok", "store i64 %cur, ptr %wp")),
        _TOGETHER,
    )
)
"""As `tensorc_watch`, with the logarithm of the size of an element, for nearly all accesses: `tensorc_within` of arrays that
a kernel only reads, where no thread can meet another; `tensorc_read` and `tensorc_write` of shared memory, whose older stamps
are all from before a barrier. `tensorc_ahead` says whether nothing is wrong with reads of
shared memory, of `m` rows of `n` elements, and renews their stamps; `tensorc_spans` says it of some bytes of an array that is
only read. If there is, each read is looked at where it is made."""
