"""LLVM code that watches the memory of an emulated kernel: which threads have accessed each element since which barrier.

For each element of watched memory there are two stamps, of the last write and of reads: block, barrier, thread. Two accesses
race if one is a write, their threads differ, and no barrier is between them; threads of different blocks are never ordered. A
stamp of several readers has a bit for this. This finds a race in any order of threads, whether or not it shows in results.
So has the stamp of a write by a copy in flight: until it completes, no thread may access the element. Where
a kernel updates elements atomically, the updates of each have a stamp, too, which is stored after those of all elements.
"""

from __future__ import annotations

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.warp import GROUP

(
    COUNT,
    KIND,
    SITE,
    ROW,
    ELEMENT,
    AT_THREAD,
    OTHER,
    BLOCK,
    EPOCH,
    AT_BLOCK,
    SPARE,
    MARKS,
    QUEUES,
    LOGS,
    TALLY,
    NOW,
    WARPS,
    BESIDE,
    LANDING,
    PROGRESS,
    RELEASED,
    PASSING,
    PHASES,
    FRAMES,
    TEAM,
    TEAM_EPOCHS,
) = range(26)
"""The words of the state: how many faults there were; of the first its kind, statement, buffer, element, thread, the stamp
that it met, or the alignment that it lacks, and block; what runs: block and barrier; memory for accesses that are not
made; the last barrier of each thread; the copies that each thread has under way; the accesses of each lane of a warp, if they
are counted, and the counts; the stamp of the block and barrier, without a thread; memory of the warps for
their instructions; the instructions of warpgroups that each thread has under way; what tiles are copied by, how often
something has come of that, and how often each warp has released what it has read; what words that blocks pass on are
accessed by; the words of the mbarriers (`phases`); the memory of each thread's coroutine; the threads of each of several
teams that take turns, or 0; the last barrier of each team, and of all."""

STATE_WORDS = 32

OUTSIDE, RACE, APART, UNDER_WAY, MISALIGNED, CHANGED, UNKNOWN, TOUCHED, EARLY, UNARMED, STUCK, STILL, UNMET = range(
    1, 14
)
HELD, LATE, ASTRAY, UNSEEN, REUSED, UNREAD, GONE = 14, 15, 16, 17, 18, 19, 20
"""Kinds of faults: an element out of bounds, two threads that race, threads at different barriers, an element to which a
copy is under way, an address that is not aligned. Of instructions that run beside threads: an element that is stored before
they are waited for, one whose store is not made known, sums that a thread is not done with, or has not waited for. Of
mbarriers: one that is not initialised, one whose bytes do not come, tiles that are under way as a block ends, and one that is
set up or used again with no barrier between that and other threads that wait for it. Of roles: a tile that starts where it is
not known that all warps have read, an mbarrier that is used again where it is not known that all have waited for it.
Of words that blocks pass on: one that is none of the array, and one that no flag has made known. Of TMA stores: an element
that is stored before they have read it, and a block that ends before. Of clusters: a block that ends where another one may
still access its shared memory."""

PROXY = 1024
"""The number, as a thread, of the instructions of the first warpgroup; those of the others follow. No thread has it."""

ROW_WORDS = 6
"""The words of a buffer: its address, its size in bytes, the size of an element, its stamps, whether a block has its own, and
when each warp has read an element last (`slots`), if tiles of another role fill it."""

STAMPS = 3
"""The stamps of an element: of its last write, of reads, of atomic updates."""

WARPS_OF_BLOCK = 32
"""The most warps of a block."""

COLLECTIVE = 1 << 32
"""The first of the marks at which a warp alone waits for its lanes, for an instruction. Those of barriers are below."""

OF_ROLE = 1 << 20
"""The first of the marks of barriers at which the threads of one role meet."""

SPINNING = 1 << 40
"""The mark of a thread that waits for an mbarrier, and tests again when others have run."""

ENDED = -1
"""The barrier at which a thread is that has ended."""

_BLOCK_BITS, _EPOCH_BITS = 40, 12
"""Where the block and the barrier begin in a stamp. Below are 11 bits of the thread and one that says "and others"."""

FLAG, PLAIN = -(1 << 63), (1 << 63) - 1
"""The bit of a write's stamp that says that it is under way, with which a stamp is above all others; and all other bits."""


def now(block: str, epoch: str, name: str) -> str:
    """Code that notes the stamp of a block that runs since its barrier of that number, with names that begin with `name`."""
    return f"""%{name}.b = add i64 {block}, 1
  %{name}.bs = shl i64 %{name}.b, {_BLOCK_BITS}
  %{name}.es = shl i64 {epoch}, {_EPOCH_BITS}
  %{name} = or i64 %{name}.bs, %{name}.es
  %{name}.at = getelementptr i64, ptr %state, i64 {NOW}
  store i64 %{name}, ptr %{name}.at"""


def stamp(value: int) -> tuple[int, int]:
    """The block and the thread of a stamp."""
    return (value >> _BLOCK_BITS) - 1, (value >> 1) & 0x7FF


def same_epoch(stamps: Array, block: int, epoch: int) -> Array:
    """Which of some stamps are of a block since its barrier of that number."""
    return stamps >> _EPOCH_BITS == (block + 1 << _BLOCK_BITS - _EPOCH_BITS | epoch)


def note_fault(
    state: Array,
    kind: int,
    *,
    site: int = 0,
    row: int = 0,
    element: int = 0,
    thread: int = 0,
    other: int = 0,
    block: int | None = None,
) -> None:
    """Count a fault, of the block that runs if none is said; of the first one all facts are kept."""
    state[COUNT] += 1
    if state[COUNT] == 1:
        facts = {KIND: kind, SITE: site, ROW: row, ELEMENT: element, AT_THREAD: thread, OTHER: other}
        for at, value in {**facts, AT_BLOCK: state[BLOCK] if block is None else block}.items():
            state[at] = value


def word(name: str, base: str, n: int, kind: str = "i64") -> str:
    """Code that loads the word of that number, with its address as `%name.at`."""
    return f"%{name}.at = getelementptr i64, ptr %{base}, i64 {n}\n  %{name} = load {kind}, ptr %{name}.at"


OFFSET = f"""%skip = mul i64 %row, {ROW_WORDS}
  %buffer = getelementptr i64, ptr %rows, i64 %skip
  %base = load i64, ptr %buffer
  {word("size", "buffer", 1)}
  %ai = ptrtoint ptr %a to i64
  %off = sub i64 %ai, %base"""
"""Code for the offset `%off` of the address `%a` in the buffer of number `%row`, in bytes, as `%size`. `%buffer` is where the
words of the buffer are."""


def _word(n: int) -> str:
    return f"getelementptr i64, ptr %s, i64 {n}"


_FAULT = "ptr %s, i64 %kind, i64 %site, i64 %row, i64 %element, i64 %thread, i64 %other"
_ACCESS = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %align, i1 %write, i64 %site, i64 %t"


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

"""

_MEETS = f"""
define internal i1 @tensorc_meets(i64 %old, i64 %cur, i64 %own, i64 %team) alwaysinline nounwind {{
  %some = icmp ne i64 %old, 0
  %ob = lshr i64 %old, {_BLOCK_BITS}
  %cb = lshr i64 %cur, {_BLOCK_BITS}
  %otherblock = icmp ne i64 %ob, %cb
  %oe = lshr i64 %old, {_EPOCH_BITS}
  %ce = lshr i64 %cur, {_EPOCH_BITS}
  %since = icmp eq i64 %oe, %ce
  {{together}}
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
"""

_ONE_TEAM = "%together = and i1 %since, true"

_TEAMS = """%teams = icmp ne i64 %team, 0
  %divisor = select i1 %teams, i64 %team, i64 1
  %old.team = call i64 @tensorc_team(i64 %old, i64 %divisor)
  %cur.team = call i64 @tensorc_team(i64 %cur, i64 %divisor)
  %strange = icmp ne i64 %old.team, %cur.team
  %across = and i1 %teams, %strange
  %together = or i1 %since, %across"""
"""No barrier orders what different teams do, whatever the number of barriers that each has met."""

_TEAM_CODE = f"""
define internal i64 @tensorc_team(i64 %stamp, i64 %team) alwaysinline nounwind {{
  %t2 = lshr i64 %stamp, 1
  %t = and i64 %t2, 2047
  %beside = icmp uge i64 %t, {PROXY}
  %nth = sub i64 %t, {PROXY}
  %first = mul i64 %nth, {GROUP}
  %thread = select i1 %beside, i64 %first, i64 %t
  %out = udiv i64 %thread, %team
  ret i64 %out
}}
"""
"""`tensorc_team(stamp, size)`: the team of the thread of a stamp, or of the warpgroup whose instruction it is."""


_READERS = """%ms = and i1 %mr, %write"""

_UPDATES = """%up = getelementptr i64, ptr %shadow, i64 %e3
  %u = load i64, ptr %up
  %mu = call i1 @tensorc_meets(i64 %u, i64 %cur, i64 %own, i64 %team)"""


def watch_code(atomic: bool, teams: bool) -> str:
    """The functions that watch accesses, of kernels that update elements atomically or not, and have `teams` or not.

    `tensorc_watch(state, rows, row, address, bytes, alignment, write, statement, thread)`: the address, or one of spare
    memory if the access is out of bounds or not aligned. Faults are noted in the state. `tensorc_update` does the same for
    an atomic update, which has a third stamp of each element: it meets reads and writes, and no other update.
    """
    meeting = _MEETS.replace("{together}", _TEAMS if teams else _ONE_TEAM)
    watch = WATCH + (_TEAM_CODE + meeting if teams else meeting)
    if not atomic:
        return watch + _watching("tensorc_watch", _READERS, "%r", False)
    meets = f"{_UPDATES}\n  %mrw = and i1 %mr, %write\n  %ms = or i1 %mrw, %mu\n  %met = select i1 %mrw, i64 %r, i64 %u"
    plain = _watching("tensorc_watch", meets, "%met", False)
    return watch + plain + _watching("tensorc_update", f"{_UPDATES}\n  %ms = and i1 %mr, true", "%r", True)


def _watching(name: str, meets: str, met: str, update: bool) -> str:
    """A function that compares an access with the stamps of each element and renews one of them. `meets` is code for `%ms`,
    whether the access meets others than writes, and `met` names their stamp."""
    writes, mine, again, place = ("false", "%u", "%mu", "%up") if update else ("%write", "%r", "%mr", "%rp")
    return f"""
define internal ptr @{name}({_ACCESS}) noinline nounwind {{
entry:
  {OFFSET}
  {word("bytes", "buffer", 2)}
  {word("shadow", "buffer", 3, "ptr")}
  {word("own", "buffer", 4)}
  {word("team", "s", TEAM)}
  %end = add i64 %off, %n
  %first = sdiv i64 %off, %bytes
  %below = icmp slt i64 %off, 0
  %above = icmp sgt i64 %end, %size
  %bad = or i1 %below, %above
  br i1 %bad, label %outside, label %within
outside:
  call void @tensorc_fault(ptr %s, i64 {OUTSIDE}, i64 %site, i64 %row, i64 %first, i64 %t, i64 0)
  br label %away
away:
  %sp = {_word(SPARE)}
  %spare = load ptr, ptr %sp
  ret ptr %spare
within:
  %low = sub i64 %align, 1
  %rest = and i64 %ai, %low
  %askew = icmp ne i64 %rest, 0
  br i1 %askew, label %misaligned, label %aligned
misaligned:
  call void @tensorc_fault(ptr %s, i64 {MISALIGNED}, i64 %site, i64 %row, i64 %first, i64 %t, i64 %align)
  br label %away
aligned:
  %many = sdiv i64 %n, %bytes
  %count = sdiv i64 %size, %bytes
  %thirds = shl i64 %count, 1
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
  %e = phi i64 [ %first, %aligned ], [ %e1, %next ]
  %e2 = shl i64 %e, 1
  %e3 = add i64 %thirds, %e
  %wp = getelementptr i64, ptr %shadow, i64 %e2
  %rp = getelementptr i64, ptr %wp, i64 1
  %stamp = load i64, ptr %wp
  %w = and i64 %stamp, {PLAIN}
  %r = load i64, ptr %rp
  %mw = call i1 @tensorc_meets(i64 %w, i64 %cur, i64 %own, i64 %team)
  %mr = call i1 @tensorc_meets(i64 %r, i64 %cur, i64 %own, i64 %team)
  {meets}
  %flag = and i64 %stamp, {FLAG}
  %flying = icmp ne i64 %flag, 0
  %wb = lshr i64 %w, {_BLOCK_BITS}
  %here = icmp eq i64 %wb, %b1
  %under = and i1 %flying, %here
  %race0 = or i1 %mw, %ms
  %race = or i1 %race0, %under
  br i1 %race, label %raced, label %noted
raced:
  %other = select i1 %mw, i64 %w, i64 {met}
  %kind = select i1 %under, i64 {UNDER_WAY}, i64 {RACE}
  call void @tensorc_fault(ptr %s, i64 %kind, i64 %site, i64 %row, i64 %e, i64 %t, i64 %other)
  br label %noted
noted:
  br i1 {writes}, label %wrote, label %read
wrote:
  store i64 %cur, ptr %wp
  br label %next
read:
  %rb = lshr i64 {mine}, {_BLOCK_BITS}
  %cb = lshr i64 %cur, {_BLOCK_BITS}
  %elsewhere = icmp ne i64 %rb, %cb
  %some = icmp ne i64 {mine}, 0
  %common = icmp eq i64 %own, 0
  %blocks0 = and i1 %elsewhere, %some
  %blocks = and i1 %blocks0, %common
  %marked = or i64 {mine}, 1
  %mine = select i1 {again}, i64 %marked, i64 %cur
  %new = select i1 %blocks, i64 -1, i64 %mine
  store i64 %new, ptr {place}
  br label %next
next:
  %e1 = add i64 %e, 1
  %more = icmp slt i64 %e1, %stop
  br i1 %more, label %each, label %done
done:
  ret ptr %a
}}
"""


# LLVM code that checks accesses where nothing is wrong, which is nearly always; other accesses are for `tensorc_watch`.


_FAST_ACCESS = "ptr %s, ptr %rows, i64 %row, ptr %a, i64 %n, i64 %shift, i64 %align, i1 %write, i64 %site, i64 %t"


def _fast(name: str, each: str) -> str:
    """A function that does what `tensorc_watch` does where nothing is wrong, and else calls it."""
    return f"""
define internal ptr @{name}({_FAST_ACCESS}) noinline nounwind {{
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
