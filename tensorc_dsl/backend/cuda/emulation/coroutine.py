"""Writes kernels as LLVM coroutines: the same body as for the GPU, one coroutine for each thread, suspended at barriers.

An instruction of a warp suspends its lanes too, until all have come. `NAME.run` runs the blocks one after the other, and the
threads of a block in turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from tensorc_dsl.backend.cuda.codegen.device import kernel_buffers
from tensorc_dsl.backend.cuda.codegen.maths import HardwareMaths, emulate_instruction
from tensorc_dsl.backend.cuda.emulation.access_costs import TALLY_CODE, declare_tally
from tensorc_dsl.backend.cuda.emulation.queues import BESIDE_CODE, UNDER_WAY_CODE
from tensorc_dsl.backend.cuda.emulation.rendezvous import FACTORS_CODE, UNIT_CODE, Instructions, warp_bytes
from tensorc_dsl.backend.cuda.emulation.statements import Lanes, Site, Threads
from tensorc_dsl.backend.cuda.emulation.tma_mbarrier import PHASES_CODE, SLOTS_CODE
from tensorc_dsl.backend.cuda.emulation.watch import (
    APART,
    BLOCK,
    COLLECTIVE,
    ENDED,
    EPOCH,
    FAST_CODE,
    FRAMES,
    MARKS,
    OF_ROLE,
    PROGRESS,
    SPINNING,
    STUCK,
    TEAM_EPOCHS,
    WARPS,
    now,
    watch_code,
    word,
)
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    CLUSTER,
    THREAD,
    CommitGroup,
    DeviceKernel,
    DeviceProgram,
    ProxyFence,
    TmaStore,
    WaitGroup,
    WgmmaFence,
    WgmmaWait,
    atomics_in,
    chains_in,
    consumers_of,
    inside,
    team_of,
)
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.warp import LANES

# The scheduler of a kernel's coroutines: blocks in order or concurrently, and the threads of a block in turns.
#
# In a turn each thread runs to its next barrier or instruction of its warp, in a given order. Threads that wait for an
# mbarrier test it first, until none waits or nothing arrives any more. Threads at an instruction run on when all lanes of
# their warp are there, threads at a barrier when all threads of the block, or of their role or team, are. Then those that
# wait for an mbarrier test it again. If no thread makes progress, this is a deadlock, which is a fault, or a wait for another
# block, if blocks run concurrently. Shared memory has no numbers at the start of a block.


POISON = -1
"""The byte that shared memory has at the start of a block: all ones are not a number as floats, and -1 as integers."""


_MEMORY = "ptr %state, ptr %rows, ptr %shared, ptr %handles, ptr %order"

OVER, WRONG, WAITS = range(3)
"""What `NAME.go` returns: the block has ended, it has a fault that ends it, it waits for another block."""


def runner(k: DeviceKernel, own: str) -> str:
    """The functions that run a kernel.

    `NAME.begin(…, x, y, b, …)` makes the threads of block `b` of a grid, with the kernel's arguments. `i64 NAME.go(…, again)`
    runs them until they have ended, or until they wait for another block. Where blocks do not wait for each other,
    `i64 NAME.run(…, x, y, z, …)` does both for each block, one after the other: 1 if threads came to different barriers, else
    0. Else `NAME.free(…)` gives back what the blocks in some memory have taken.
    """
    return _begin(k, own) + _go(k) + (_free(k) if runs_beside_others(k) else _run(k, own))


def runs_beside_others(k: DeviceKernel) -> bool:
    """Whether blocks of a kernel wait for others."""
    return k.shared_loads or bool(chains_in(k.body))


def _begin(k: DeviceKernel, own: str) -> str:
    more = f", {own}" if own else ""
    threads = k.threads
    return f"""
define void @{k.name}.begin({_MEMORY}, i64 %x, i64 %y, i64 %b{more}) nounwind {{
grid:
  %block.at = getelementptr i64, ptr %state, i64 {BLOCK}
  %epoch.at = getelementptr i64, ptr %state, i64 {EPOCH}
  %rank = urem i64 %b, {k.cluster}
  %whole = udiv i64 %b, {k.cluster}
  %clusters = udiv i64 %x, {k.cluster}
  %b0 = urem i64 %whole, %clusters
  %bx = udiv i64 %whole, %clusters
  %b1 = urem i64 %bx, %y
  %b2 = udiv i64 %bx, %y
  store i64 %b, ptr %block.at
  store i64 0, ptr %epoch.at
  {now("%b", "0", "begin")}
  call void @llvm.memset.p0.i64(ptr %shared, i8 {POISON}, i64 {max(k.shared_bytes, 1)}, i1 false)
  {_no_barriers_yet(k)}
  br label %make
make:
  %t = phi i64 [ 0, %grid ], [ %t.next, %make ]
  {"call void @tensorc_forget(ptr %state, i64 %t)" if _queues(k) else ""}
  %made = call ptr @{k.name}(ptr %state, ptr %rows, ptr %shared, i64 %b0, i64 %b1, i64 %b2, i64 %rank, i64 %t{more})
  %slot = getelementptr ptr, ptr %handles, i64 %t
  store ptr %made, ptr %slot
  %t.next = add i64 %t, 1
  %t.more = icmp slt i64 %t.next, {threads}
  br i1 %t.more, label %make, label %out
out:
  ret void
}}
"""


def _no_barriers_yet(k: DeviceKernel) -> str:
    """Code that sets the last barrier of each team, and of all, to none."""
    many = consumers_of(k) // team_of(k) if team_of(k) else 0
    every = [f"%no.{g} = getelementptr i64, ptr %epochs, i64 {g}\n  store i64 0, ptr %no.{g}" for g in range(many + 2)]
    return "\n  ".join((word("epochs", "state", TEAM_EPOCHS, "ptr"), *every)) if many else ""


def _queues(k: DeviceKernel) -> bool:
    """Whether threads have something under way: copies, instructions of warpgroups, TMA stores."""
    return any(
        isinstance(s, CommitGroup | WaitGroup | WgmmaWait | ProxyFence | WgmmaFence | TmaStore) for s in inside(k.body)
    )


def _go(k: DeviceKernel) -> str:
    threads = k.threads
    wait = f"""store i64 %epoch, ptr %epoch.at
  {now("%b", "%epoch", "paused")}
  ret i64 {WAITS}"""
    meets = _of_teams(k) if team_of(k) else _of_one(k)
    fault = f"""call void @tensorc_fault(ptr %state, i64 {STUCK}, i64 0, i64 0, i64 0, i64 %held, i64 0)
  br label %destroy"""
    return f"""
define i64 @{k.name}.go({_MEMORY}, i1 %again) nounwind {{
entry:
  %block.at = getelementptr i64, ptr %state, i64 {BLOCK}
  %epoch.at = getelementptr i64, ptr %state, i64 {EPOCH}
  %marks.at = getelementptr i64, ptr %state, i64 {MARKS}
  %marks = load ptr, ptr %marks.at
  %b = load i64, ptr %block.at
  {meets.first}
  %least = select i1 %again, i64 {SPINNING}, i64 {ENDED + 1}
  br label %round
round:
  %low = phi i64 [ %least, %entry ], [ %low.next, %together ], [ {COLLECTIVE}, %settled ], [ {SPINNING}, %spin ]
  %seen = phi i64 [ -1, %entry ], [ -1, %together ], [ -1, %settled ], [ %come, %spin ]
  br label %step
step:
  %u = phi i64 [ 0, %round ], [ %u.next, %counted ]
  %which = getelementptr i64, ptr %order, i64 %u
  %n = load i64, ptr %which
  %n.at = getelementptr i64, ptr %marks, i64 %n
  %n.mark = load i64, ptr %n.at
  %go = icmp sge i64 %n.mark, %low
  br i1 %go, label %resume, label %stepped
resume:
  {meets.own}
  %at = getelementptr ptr, ptr %handles, i64 %n
  %h = load ptr, ptr %at
  call void @llvm.coro.resume(ptr %h)
  br label %stepped
stepped:
  %u.next = add i64 %u, 1
  %u.more = icmp slt i64 %u.next, {threads}
  %u.lane = and i64 %u.next, {LANES - 1}
  %u.warp = icmp eq i64 %u.lane, 0
  %u.last = xor i1 %u.more, true
  %u.whole = or i1 %u.warp, %u.last
  br i1 %u.whole, label %count, label %counted
count:
  call void @tensorc_tally(ptr %state)
  br label %counted
counted:
  br i1 %u.more, label %step, label %waiting
waiting:
  %g = phi i64 [ 0, %counted ], [ %g.next, %asked ]
  %g.at = getelementptr i64, ptr %marks, i64 %g
  %g.mark = load i64, ptr %g.at
  %g.spins = icmp eq i64 %g.mark, {SPINNING}
  br i1 %g.spins, label %spinning, label %asked
asked:
  %g.next = add i64 %g, 1
  %g.more = icmp slt i64 %g.next, {threads}
  br i1 %g.more, label %waiting, label %lanes
spinning:
  %come.at = getelementptr i64, ptr %state, i64 {PROGRESS}
  %come = load i64, ptr %come.at
  %nothing = icmp eq i64 %come, %seen
  br i1 %nothing, label %lanes, label %spin
spin:
  br label %round
stuck:
  %held = phi i64 {meets.held}
  {wait if runs_beside_others(k) else fault}
lanes:
  %q = phi i64 [ 0, %asked ], [ 0, %spinning ], [ %q.next, %alike ]
  %some = phi i1 [ false, %asked ], [ false, %spinning ], [ %some.next, %alike ]
  %q.first = and i64 %q, {-LANES}
  %q.at = getelementptr i64, ptr %marks, i64 %q
  %q.mark = load i64, ptr %q.at
  %first.at = getelementptr i64, ptr %marks, i64 %q.first
  %first.mark = load i64, ptr %first.at
  %q.equal = icmp eq i64 %q.mark, %first.mark
  br i1 %q.equal, label %alike, label %odd
odd:
  %q.spins = icmp eq i64 %q.mark, {SPINNING}
  %first.spins = icmp eq i64 %first.mark, {SPINNING}
  %one.spins = or i1 %q.spins, %first.spins
  %q.other = select i1 %q.spins, i64 %first.mark, i64 %q.mark
  %q.alone = icmp slt i64 %q.other, {COLLECTIVE}
  %q.may = and i1 %one.spins, %q.alone
  br i1 %q.may, label %alike, label %differ
alike:
  %q.some = icmp sge i64 %q.mark, {COLLECTIVE}
  %q.below = icmp slt i64 %q.mark, {SPINNING}
  %q.waits = and i1 %q.some, %q.below
  %some.next = or i1 %some, %q.waits
  %q.next = add i64 %q, 1
  %q.more = icmp slt i64 %q.next, {threads}
  br i1 %q.more, label %lanes, label %settled
settled:
  br i1 %some.next, label %round, label %check
{meets.code}differ:
  %who = phi i64 [ %q, %odd ], [ %v, %wrong ]
  %mate = phi i64 [ %q.first, %odd ], [ {meets.mate}, %wrong ]
  call void @tensorc_fault(ptr %state, i64 {APART}, i64 0, i64 0, i64 0, i64 %who, i64 %mate)
  br label %destroy
destroy:
  %status = phi i64 [ {OVER}, %{meets.over} ], [ {WRONG}, %differ ]{"" if runs_beside_others(k) else f", [ {WRONG}, %stuck ]"}
  br label %end
end:
  %w = phi i64 [ 0, %destroy ], [ %w.next, %end ]
  %old.at = getelementptr ptr, ptr %handles, i64 %w
  %old = load ptr, ptr %old.at
  call void @llvm.coro.destroy(ptr %old)
  %w.next = add i64 %w, 1
  %w.more = icmp slt i64 %w.next, {threads}
  br i1 %w.more, label %end, label %ending
ending:
  ret i64 %status
}}
"""


@frozen
class _Meeting:
    """Code of `go` about barriers: what it begins with, what sets the barrier of a thread that runs on, what looks at the
    threads that wait, which of them is told of where it waits for ever, with which one a thread at another barrier is
    compared, and the label from which a block ends."""

    first: str
    own: str
    code: str
    held: str
    mate: str
    over: str


def _of_one(k: DeviceKernel) -> _Meeting:
    """Where the threads of a block, or of its role that has barriers, meet at one barrier."""
    users = consumers_of(k) or k.threads
    meeting = f"""check:
  %mark0 = load i64, ptr %marks
  %epoch = load i64, ptr %epoch.at
  %epoch.next = add i64 %epoch, 1
  store i64 %epoch.next, ptr %epoch.at
  {now("%b", "%epoch.next", "now")}
  %spins0 = icmp eq i64 %mark0, {SPINNING}
  %from = icmp sge i64 %mark0, {OF_ROLE}
  %to = icmp slt i64 %mark0, {COLLECTIVE}
  %of.role = and i1 %from, %to
  br i1 %spins0, label %stuck, label %each
each:
  %v = phi i64 [ 0, %check ], [ %v.next, %same ]
  %mark.at = getelementptr i64, ptr %marks, i64 %v
  %mark = load i64, ptr %mark.at
  %equal = icmp eq i64 %mark, %mark0
  br i1 %equal, label %same, label %apart
apart:
  %spins = icmp eq i64 %mark, {SPINNING}
  %over = icmp eq i64 %mark, {ENDED}
  %idle0 = or i1 %spins, %over
  {_behind_role(k)}
  %idle = or i1 %idle0, %behind
  %other = icmp sge i64 %v, {users}
  %theirs = and i1 %idle, %other
  %may = and i1 %theirs, %of.role
  br i1 %may, label %same, label %wrong
wrong:
  br i1 %spins, label %stuck, label %differ
same:
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, {k.threads}
  br i1 %v.more, label %each, label %together
together:
  %low.next = select i1 %of.role, i64 {OF_ROLE}, i64 {ENDED + 1}
  %ended = icmp eq i64 %mark0, {ENDED}
  br i1 %ended, label %destroy, label %round
"""
    return _Meeting("", "", meeting, "[ 0, %check ], [ %v, %wrong ]", "0", "together")


def _behind_role(k: DeviceKernel) -> str:
    """Code that says whether a thread has left its role, and waits where all threads of a cluster meet."""
    return f"%behind = {f'icmp ult i64 %mark, {OF_ROLE}' if k.shared_loads else 'and i1 false, false'}"


def _of_teams(k: DeviceKernel) -> _Meeting:
    """As `_of_one`, where teams have barriers of their own. Each has the number of its last one, and these are different, so
    no barrier of another team counts. A team is at a barrier, or it waits for an mbarrier or has ended, and so does the
    role that loads."""
    users, team = consumers_of(k), team_of(k)
    many = users // team
    at = [f"%of.{g} = getelementptr i64, ptr %epochs, i64 {g}" for g in range(many + 1)]
    last = f"%last.at = getelementptr i64, ptr %epochs, i64 {many + 1}"
    begin = [word("epochs", "state", TEAM_EPOCHS, "ptr"), *at, last]
    own = f"""%n.nth = udiv i64 %n, {team}
  %n.over = icmp ugt i64 %n.nth, {many}
  %n.team = select i1 %n.over, i64 {many}, i64 %n.nth
  %n.epoch.at = getelementptr i64, ptr %epochs, i64 %n.team
  %n.epoch = load i64, ptr %n.epoch.at
  store i64 %n.epoch, ptr %epoch.at
  {now("%b", "%n.epoch", "mine")}"""
    met = "".join(
        f"""
  %met.{g}.at = getelementptr i64, ptr %marks, i64 {g * team}
  %met.{g}.mark = load i64, ptr %met.{g}.at
  %met.{g}.some = icmp sge i64 %met.{g}.mark, {OF_ROLE}
  %met.{g}.below = icmp slt i64 %met.{g}.mark, {COLLECTIVE}
  %met.{g} = and i1 %met.{g}.some, %met.{g}.below
  %old.{g} = load i64, ptr %of.{g}
  %new.{g} = select i1 %met.{g}, i64 %epoch.next, i64 %old.{g}
  store i64 %new.{g}, ptr %of.{g}"""
        for g in range(many)
    )
    every = "\n  ".join(f"store i64 %epoch.next, ptr %of.{g}" for g in range(many + 1))
    meeting = f"""check:
  %mark0 = load i64, ptr %marks
  %epoch = load i64, ptr %last.at
  %epoch.next = add i64 %epoch, 1
  store i64 %epoch.next, ptr %last.at
  br label %each
each:
  %v = phi i64 [ 0, %check ], [ %v.next, %same ]
  %whole = phi i1 [ true, %check ], [ %whole.next, %same ]
  %any = phi i1 [ false, %check ], [ %any.next, %same ]
  %still = phi i64 [ -1, %check ], [ %still.next, %same ]
  %mark.at = getelementptr i64, ptr %marks, i64 %v
  %mark = load i64, ptr %mark.at
  %equal = icmp eq i64 %mark, %mark0
  %whole.next = and i1 %whole, %equal
  %user = icmp ult i64 %v, {users}
  %nth = urem i64 %v, {team}
  %of.team = sub i64 %v, %nth
  %v.first = select i1 %user, i64 %of.team, i64 %v
  %mate.at = getelementptr i64, ptr %marks, i64 %v.first
  %mate.mark = load i64, ptr %mate.at
  %mates = icmp eq i64 %mark, %mate.mark
  %from = icmp sge i64 %mark, {OF_ROLE}
  %to = icmp slt i64 %mark, {COLLECTIVE}
  %of.role = and i1 %from, %to
  %meets = and i1 %of.role, %user
  %any.next = or i1 %any, %meets
  %spins = icmp eq i64 %mark, {SPINNING}
  %gone = icmp eq i64 %mark, {ENDED}
  %idle0 = or i1 %spins, %gone
  {_behind_role(k)}
  %idle = or i1 %idle0, %behind
  %may = or i1 %idle, %meets
  %new = icmp slt i64 %still, 0
  %holds = and i1 %spins, %new
  %still.next = select i1 %holds, i64 %v, i64 %still
  %fine = and i1 %mates, %may
  %right = or i1 %fine, %whole.next
  br i1 %right, label %same, label %wrong
wrong:
  %mate.spins = icmp eq i64 %mate.mark, {SPINNING}
  %waiter = select i1 %spins, i64 %v, i64 %v.first
  %one.waits = or i1 %spins, %mate.spins
  br i1 %one.waits, label %stuck, label %differ
same:
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, {k.threads}
  br i1 %v.more, label %each, label %looked
looked:
  %none = icmp slt i64 %still.next, 0
  %blocked = select i1 %none, i64 0, i64 %still.next
  br i1 %whole.next, label %all, label %some.meet
all:
  br i1 %spins, label %stuck, label %alive
alive:
  %ended = icmp eq i64 %mark0, {ENDED}
  br i1 %ended, label %destroy, label %anew
anew:
  {every}
  br label %together
some.meet:
  br i1 %any.next, label %go.on, label %stuck
go.on:{met}
  br label %together
together:
  %low.next = phi i64 [ {ENDED + 1}, %anew ], [ {OF_ROLE}, %go.on ]
  br label %round
"""
    held = "[ %waiter, %wrong ], [ %blocked, %all ], [ %blocked, %some.meet ]"
    return _Meeting("\n  ".join(begin), own, meeting, held, "%v.first", "alive")


def _run(k: DeviceKernel, own: str) -> str:
    more = f", {own}" if own else ""
    given = "".join(f", {x}" for x in own.split(", ") if x)
    return f"""
define i64 @{k.name}.run({_MEMORY}, i64 %x, i64 %y, i64 %z{more}) nounwind {{
entry:
  %xy = mul i64 %x, %y
  %blocks = mul i64 %xy, %z
  %any = icmp sgt i64 %blocks, 0
  br i1 %any, label %grid, label %out
grid:
  %b = phi i64 [ 0, %entry ], [ %b.next, %next ]
  call void @{k.name}.begin({_MEMORY}, i64 %x, i64 %y, i64 %b{given})
  %status = call i64 @{k.name}.go({_MEMORY}, i1 false)
  %failed = icmp ne i64 %status, {OVER}
  br i1 %failed, label %out, label %next
next:
  %b.next = add i64 %b, 1
  %b.more = icmp slt i64 %b.next, %blocks
  br i1 %b.more, label %grid, label %out
out:
  %result = phi i64 [ 0, %entry ], [ 1, %grid ], [ 0, %next ]
  br label %release
{_released(k)}
  ret i64 %result
}}
"""


def _free(k: DeviceKernel) -> str:
    return f"""
define void @{k.name}.free({_MEMORY}) nounwind {{
out:
  br label %release
{_released(k)}
  ret void
}}
"""


def _released(k: DeviceKernel) -> str:
    return f"""release:
  %a = phi i64 [ 0, %out ], [ %a.next, %release ]
  call void @tensorc_release(ptr %state, i64 %a)
  call void @tensorc_unframe(ptr %state, i64 %a)
  %a.next = add i64 %a, 1
  %a.more = icmp slt i64 %a.next, {k.threads}
  br i1 %a.more, label %release, label %return
return:
  call void @tensorc_unlog(ptr %state)"""


# Leaves out functions that a module does not call: LLVM reads and optimises each, and most kernels need few.


_DEFINED = re.compile(r"^define internal [^@]*@([\w.]+)", re.MULTILINE)
_NAMED = re.compile(r"@([\w.]+)")


def used(fixed: Sequence[str], text: str) -> list[str]:
    """The definitions in some texts that a module calls, directly or not, and everything else in them."""
    parts = _parts(tuple(fixed))
    wanted, found = set[str](), set(_NAMED.findall(text)) | {n for name, _, ns in parts if not name for n in ns}
    while new := found - wanted:
        wanted |= new
        found |= {n for name, _, ns in parts if name in new for n in ns}
    return [x for name, x, _ in parts if not name or name in wanted]


@cache
def _parts(fixed: tuple[str, ...]) -> list[tuple[str, str, frozenset[str]]]:
    """The definitions, each with its name, its text and the names in it; what stands between them has no name."""
    out: list[tuple[str, str, frozenset[str]]] = []
    for text in fixed:
        for part in re.split(r"(?m)(?=^define internal |^declare )", text):
            found = _DEFINED.match(part)
            out.append((found[1] if found else "", part, frozenset(_NAMED.findall(part)) if found else frozenset()))
    return out


_COROUTINES = """
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare void @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_FRAMES = f"""
define internal ptr @tensorc_frame(ptr %s, i64 %t, i64 %size) nounwind {{
entry:
  {word("frames", "s", FRAMES, "ptr")}
  %place = getelementptr ptr, ptr %frames, i64 %t
  %old = load ptr, ptr %place
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %out
make:
  %new = call ptr @aligned_alloc(i64 64, i64 %size)
  store ptr %new, ptr %place
  br label %out
out:
  %frame = phi ptr [ %old, %entry ], [ %new, %make ]
  ret ptr %frame
}}

define internal void @tensorc_unframe(ptr %s, i64 %t) nounwind {{
  {word("frames", "s", FRAMES, "ptr")}
  %place = getelementptr ptr, ptr %frames, i64 %t
  %frame = load ptr, ptr %place
  call void @free(ptr %frame)
  ret void
}}
"""
"""`tensorc_frame(state, thread, bytes)`: memory for a coroutine, which the thread of that number in a later block gets, too;
`tensorc_unframe` frees it."""


def emulation_module(p: DeviceProgram, *, ahead: bool) -> tuple[str, tuple[Site, ...]]:
    """The LLVM code of all kernels as coroutines, and their accesses to memory that threads share, by their numbers.

    If `ahead`, reads are checked before nests of loops, which makes the code longer, and faster once it is optimised.
    """
    module = Module(rolled=True, hardware=HardwareMaths(emulate_instruction), approx=p.approx)
    instructions = Instructions(module)
    sites: list[Site] = []
    runs = [_write_kernel(instructions, p, k, sites, ahead) for k in p.kernels]
    watch = watch_code(any(atomics_in(k.body) for k in p.kernels), any(map(team_of, p.kernels)))
    declare_tally(module)
    fixed = (
        _FRAMES,
        watch,
        FAST_CODE,
        UNDER_WAY_CODE,
        PHASES_CODE,
        SLOTS_CODE,
        FACTORS_CODE,
        UNIT_CODE,
        BESIDE_CODE,
        TALLY_CODE,
    )
    text = "".join((*instructions.tables, module.text(), *runs))
    return "".join((_COROUTINES, *used(fixed, text), text)), tuple(sites)


def _write_kernel(instructions: Instructions, p: DeviceProgram, k: DeviceKernel, sites: list[Site], ahead: bool) -> str:
    """Write a thread of the kernel as a coroutine. Returns the function that runs them."""
    f = Function(instructions.module)
    table = kernel_buffers(f, p, k, "%shared")
    table.vars[THREAD] = "%thread"
    table.vars.update({axis: f"%b{n}" for n, axis in enumerate(BLOCK_AXES)} | {CLUSTER: "%rank"})
    lanes = Lanes(instructions, warp_bytes(k))
    threads = Threads(f, table, k, sites, lanes, ahead=ahead)
    f.prologue(
        "%id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)",
        "%size = call i64 @llvm.coro.size.i64()",
        "%more = add i64 %size, 63",
        "%whole = and i64 %more, -64",
        "%memory = call ptr @tensorc_frame(ptr %state, i64 %thread, i64 %whole)",
        "%handle = call ptr @llvm.coro.begin(token %id, ptr %memory)",
        f"%marks.at = getelementptr i64, ptr %state, i64 {MARKS}",
        "%marks = load ptr, ptr %marks.at",
        "%mark = getelementptr i64, ptr %marks, i64 %thread",
        f"%lane = urem i64 %thread, {LANES}",
        f"%warp = udiv i64 %thread, {LANES}",
        f"%warps.at = getelementptr i64, ptr %state, i64 {WARPS}",
        "%warps = load ptr, ptr %warps.at",
        f"%own = mul i64 %warp, {2 * lanes.size}",
        "%pair = getelementptr i8, ptr %warps, i64 %own",
        "%turn = alloca i64",
        "store i64 0, ptr %turn",
    )
    threads.suspend(0)
    threads.write_device(k.body)
    threads.suspend(ENDED, last=True)
    f.line("unreachable")
    f.start_block("cleanup")
    f.line("%freed = call ptr @llvm.coro.free(token %id, ptr %handle)")  # it is kept for the next block
    f.branch("suspend")
    f.start_block("suspend")
    f.line("call void @llvm.coro.end(ptr %handle, i1 false, token none)")
    kinds = ["ptr"] * len(k.params) + ["i64"] * len(p.dims)
    names_ = [f"%p{n}" for n in range(len(k.params))] + [f"%d{n}" for n in range(len(p.dims))]
    own = [f"{kind} {name}" for kind, name in zip(kinds, names_, strict=True)]
    first = ["ptr %state", "ptr %rows", "ptr %shared", "i64 %b0", "i64 %b1", "i64 %b2", "i64 %rank", "i64 %thread"]
    f.define(f"define ptr @{k.name}({', '.join((*first, *own))}) presplitcoroutine nounwind", result="ptr %handle")
    return runner(k, ", ".join(own))
