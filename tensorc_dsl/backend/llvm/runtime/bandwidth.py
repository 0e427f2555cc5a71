"""Measures the bandwidth: the bytes per second that this machine moves between memory and registers, for an amount of memory.

Small amounts stay in caches, so a kernel on small arrays is compared with the bandwidth of caches.
"""

from __future__ import annotations

import ctypes
import itertools
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.peak import widest
from tensorc_dsl.backend.llvm.runtime.threads import runtime, time_native
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.ir.target import Target

_VECTORS = 8
"""The number of vectors in a step of the loop, so that enough loads are in flight."""

_RUN_BYTES = 1 << 22
"""The bytes that a run moves per thread at least, in several rounds for less memory: long compared with starting a loop."""

_REPEATS = 4, 20
"""The smallest and the largest number of runs of each kernel."""

_ALL_BYTES = 1 << 30
"""The bytes that all runs of a kernel move together, within these numbers of runs."""

_NAMES = ("tensorc_read", "tensorc_copy", "tensorc_stream")

_numbers = itertools.count()


def bandwidth(target: Target, threads: int, size: int) -> float:
    """Bytes/s on `threads` threads over `size` bytes: the largest rate of reading them, and of copying one half to the other,
    through the caches or past them.

    Copied bytes count twice. The best of several runs of each, some 0.1 s in all. `size` is rounded to vectors.
    """
    width = widest(target)
    step = 2 * _VECTORS * width // 8
    share = max(1, size // (threads * step)) * step
    memory = aligned_empty((threads * share,), np.dtype(np.uint8))
    memory[:] = 0
    rounds = max(1, _RUN_BYTES // share)
    fewest, most = _REPEATS
    repeats = max(fewest, min(most, _ALL_BYTES // (threads * share * rounds)))
    arguments = (ctypes.c_int64 * 4)(threads, memory.ctypes.data, share, rounds)
    kernels = _linked(target)
    best = min(t for n in _NAMES for t in time_native(int(kernels[n]), ctypes.addressof(arguments), 0, repeats))
    return threads * share * rounds / best


@cache
def _linked(target: Target) -> llvm.ResourceTracker:
    """The kernels of `_NAMES`."""
    rt = runtime()
    library = llvm.JITLibraryBuilder().add_object_img(Machine(target).object_code(_text(widest(target) // 32)))
    library.import_symbol(PARALLEL_FOR, rt.parallel_for).add_current_process()
    for name in _NAMES:
        library.export_symbol(name)
    return library.link(rt.jit, f"bandwidth_{next(_numbers)}")


def _text(lanes: int) -> str:
    """The LLVM IR of kernels with the arguments (threads, memory, bytes for each thread, rounds)."""
    kind, size = f"<{lanes} x i32>", lanes * 4
    every = range(_VECTORS)
    held = [f"%x{k} = phi {kind} [ zeroinitializer, %entry ], [ %y{k}, %step ]" for k in every]
    load = [
        f"%p{k} = getelementptr i8, ptr %from, i64 {k * size}\n  %v{k} = load {kind}, ptr %p{k}, align {size}"
        for k in every
    ]
    store = [
        f"%q{k} = getelementptr i8, ptr %to, i64 {k * size}\n  store {kind} %v{k}, ptr %q{k}, align {size}"
        for k in every
    ]
    past = [f"{line}, !nontemporal !0" for line in store]
    mixed = [f"%y{k} = xor {kind} %x{k}, %v{k}" for k in every]
    total = [f"%s{k} = or {kind} {f'%s{k - 1}' if k > 1 else '%y0'}, %y{k}" for k in every[1:]]
    # A volatile store, once per task, so that the loads are not removed.
    total.append(f"store volatile {kind} %s{_VECTORS - 1}, ptr @tensorc_sink, align {size}")
    to = "%to = getelementptr i8, ptr %from, i64 %half"
    return "\n".join(
        [
            f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)",
            f"@tensorc_sink = internal global {kind} zeroinitializer",
            _kernel("read", "%share", _VECTORS * size, held, [*load, *mixed], total),
            _kernel("copy", "%half", _VECTORS * size, [], [*load, to, *store], []),
            _kernel("stream", "%half", _VECTORS * size, [], [*load, to, *past], []),
            "!0 = !{i32 1}",
        ]
    )


def _kernel(name: str, length: str, step: int, held: list[str], body: list[str], end: list[str]) -> str:
    """A parallel loop over the threads, whose tasks go over `length` bytes of their memory repeatedly.

    A single loop counts rounds and positions: an outer loop could be optimised away, since its iterations are equal.
    """
    lines = "\n  ".join
    return f"""
define void @tensorc_{name}(ptr %arguments, ptr %workspace) nounwind {{
  %n = load i64, ptr %arguments
  call void @{PARALLEL_FOR}(ptr @{name}_part, ptr %arguments, i64 %n, i64 %n)
  ret void
}}
define internal void @{name}_part(ptr %arguments, i64 %task, i64 %last, i64 %worker) nounwind {{
entry:
  %at.memory = getelementptr i64, ptr %arguments, i64 1
  %at.share = getelementptr i64, ptr %arguments, i64 2
  %at.rounds = getelementptr i64, ptr %arguments, i64 3
  %memory = load ptr, ptr %at.memory
  %share = load i64, ptr %at.share
  %rounds = load i64, ptr %at.rounds
  %half = lshr i64 %share, 1
  %offset = mul i64 %task, %share
  %base = getelementptr i8, ptr %memory, i64 %offset
  br label %step
step:
  %place = phi i64 [ 0, %entry ], [ %place.next, %step ]
  %round = phi i64 [ 0, %entry ], [ %round.next, %step ]
  {lines(held)}
  %from = getelementptr i8, ptr %base, i64 %place
  {lines(body)}
  %further = add i64 %place, {step}
  %done = icmp uge i64 %further, {length}
  %place.next = select i1 %done, i64 0, i64 %further
  %one = zext i1 %done to i64
  %round.next = add i64 %round, %one
  %more = icmp ult i64 %round.next, %rounds
  br i1 %more, label %step, label %out
out:
  {lines(end)}
  ret void
}}"""
