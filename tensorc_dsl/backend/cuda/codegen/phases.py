"""LLVM code that tests whether a phase of an mbarrier is complete, if no copy is pending and there is no fault.

Each mbarrier has some words, which `landing` writes. Every thread tests its phase, and mostly only has to record the
test. The functions of `landing` do the rest.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.codegen.watch import (
    BLOCK,
    EPOCH,
    LANDING,
    PHASES,
    PROGRESS,
    RELEASED,
    WARPS_OF_BLOCK,
    word,
)
from tensorc_dsl.backend.cuda.lower.kernels import MOST_MBARRIERS
from tensorc_dsl.ir.warp import LANES

OF, OVER, MET, TOLD, COPIES, WAITED = range(6)
"""The words of an mbarrier: the block that has set it up, counted from 1; how many phases are over; the barrier since which
it was set up, or another thread than the first has waited for it; whether a release has told something; how many copies are
under way to it; and for each warp how often it had released something as it waited for the last phase, -1 if it has not."""

PHASE_WORDS = WAITED + WARPS_OF_BLOCK

PASSED = 3
"""The number of the function of `landing` that does the same for each case."""

PHASES_CODE = f"""
define internal i64 @tensorc_passed(ptr %s, i64 %number, i64 %parity, i64 %users, i64 %t) noinline nounwind {{
entry:
  {word("all", "s", PHASES, "ptr")}
  %known = icmp ult i64 %number, {MOST_MBARRIERS}
  br i1 %known, label %look, label %slow
look:
  %skip = mul i64 %number, {PHASE_WORDS}
  %m = getelementptr i64, ptr %all, i64 %skip
  {word("of", "m", OF)}
  {word("over", "m", OVER)}
  {word("met", "m", MET)}
  {word("told", "m", TOLD)}
  {word("copies", "m", COPIES)}
  {word("block", "s", BLOCK)}
  {word("epoch", "s", EPOCH)}
  %b1 = add i64 %block, 1
  %here = icmp eq i64 %of, %b1
  %odd = and i64 %over, 1
  %runs = icmp eq i64 %odd, %parity
  %none = icmp eq i64 %users, 0
  %one = icmp ult i64 %t, %users
  %own = or i1 %none, %one
  %other = icmp ne i64 %t, 0
  %meets = and i1 %own, %other
  %fresh = icmp eq i64 %over, 0
  %new = icmp eq i64 %met, %epoch
  %unmet0 = and i1 %fresh, %new
  %unmet = and i1 %unmet0, %meets
  %met.right = xor i1 %unmet, true
  %fine = and i1 %here, %met.right
  br i1 %fine, label %ask, label %slow
ask:
  br i1 %runs, label %waits, label %passes
waits:
  %empty = icmp eq i64 %copies, 0
  br i1 %empty, label %no, label %slow
no:
  ret i64 0
passes:
  %plain = icmp eq i64 %told, 0
  br i1 %plain, label %note, label %slow
note:
  %later = select i1 %meets, i64 %epoch, i64 %met
  store i64 %later, ptr %met.at
  %warp = udiv i64 %t, {LANES}
  br i1 %own, label %waited, label %yes
waited:
  {word("counts", "s", RELEASED, "ptr")}
  %count.at = getelementptr i64, ptr %counts, i64 %warp
  %count = load i64, ptr %count.at
  %nth = add i64 %warp, {WAITED}
  %waited.at = getelementptr i64, ptr %m, i64 %nth
  store i64 %count, ptr %waited.at
  br label %yes
yes:
  {word("come", "s", PROGRESS)}
  %more = add i64 %come, 1
  store i64 %more, ptr %come.at
  ret i64 1
slow:
  {word("table", "s", LANDING, "ptr")}
  %f.at = getelementptr i64, ptr %table, i64 {PASSED}
  %f = load ptr, ptr %f.at
  %out = call i64 %f(i64 %number, i64 %parity, i64 %t)
  ret i64 %out
}}
"""
"""`tensorc_passed(state, number, parity, users, thread)`: whether the phase of an mbarrier with a parity is over, as
`landing` says. The first `users` threads use what another role loads; 0 is without roles."""
