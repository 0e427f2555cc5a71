"""Writes kernels as LLVM coroutines: the same body as for the GPU, one coroutine for each thread, suspended at barriers.

An instruction of a warp suspends its lanes too, until all have come. `NAME.run` (see `turns`) runs the blocks one after the
other, and the threads of a block from barrier to barrier in a given order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from tensorc_dsl.backend.cuda.codegen.device import storage
from tensorc_dsl.backend.cuda.emulation.access_costs import TALLY_CODE, declare_tally
from tensorc_dsl.backend.cuda.emulation.cp_async_queue import UNDER_WAY_CODE
from tensorc_dsl.backend.cuda.emulation.expressions import Site
from tensorc_dsl.backend.cuda.emulation.rendezvous import FACTORS_CODE, UNIT_CODE, Instructions, warp_bytes
from tensorc_dsl.backend.cuda.emulation.scheduler import runner
from tensorc_dsl.backend.cuda.emulation.statements import Lanes, Threads
from tensorc_dsl.backend.cuda.emulation.tma_mbarrier import PHASES_CODE, SLOTS_CODE
from tensorc_dsl.backend.cuda.emulation.watch import ENDED, FAST_CODE, FRAMES, MARKS, WARPS, watch_code, word
from tensorc_dsl.backend.cuda.emulation.wgmma_queue import BESIDE_CODE
from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD, DeviceKernel, DeviceProgram, atomics_in
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.ir.warp import LANES

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
    module = Module(rolled=True)
    instructions = Instructions(module)
    sites: list[Site] = []
    runs = [_write_kernel(instructions, p, k, sites, ahead) for k in p.kernels]
    watch = watch_code(any(atomics_in(k.body) for k in p.kernels))
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
    table = storage(f, p, k, "%shared")
    table.vars[THREAD] = "%thread"
    table.vars.update({axis: f"%b{n}" for n, axis in enumerate(BLOCK_AXES)})
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
    first = ["ptr %state", "ptr %rows", "ptr %shared", "i64 %b0", "i64 %b1", "i64 %b2", "i64 %thread"]
    f.define(f"define ptr @{k.name}({', '.join((*first, *own))}) presplitcoroutine nounwind", result="ptr %handle")
    return runner(k, ", ".join(own))
