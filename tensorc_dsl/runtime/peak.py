"""The roof: how many floating-point operations a second this machine does when it does nothing but fused multiply-adds."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm

from tensorc_dsl.codegen.llvm.machine import Machine
from tensorc_dsl.codegen.llvm.statements import PARALLEL_FOR
from tensorc_dsl.ir.target import Target
from tensorc_dsl.runtime.threads import runtime, time_native

_CHAINS = 12
"""Independent accumulators: more than latency times throughput of any processor in use, fewer than the registers of all."""

_STEPS = 20_000
"""Per run and thread: long against starting a loop, short against a time slice."""

_numbers = itertools.count()


def fma_peak(target: Target, threads: int, repeats: int = 200) -> float:
    """FLOP/s of f32 fused multiply-adds in registers on `threads` threads, each a multiplication and an addition.

    The best of `repeats` short runs, some 20 ms in all: the roof is what the machine can do, not what it did while others
    used it.
    """
    lanes = target.vector_bits // 32
    rt = runtime()
    library = llvm.JITLibraryBuilder().add_object_img(Machine(target).object_code(_text(lanes)))
    library.import_symbol(PARALLEL_FOR, rt.parallel_for).export_symbol("tensorc_peak").export_symbol("tensorc_sink")
    tracker = library.link(rt.jit, f"peak_{next(_numbers)}")
    arguments = (ctypes.c_int64 * 1)(threads)
    best = min(time_native(int(tracker["tensorc_peak"]), ctypes.addressof(arguments), 0, repeats))
    return 2.0 * lanes * _CHAINS * _STEPS * threads / best


def _text(lanes: int) -> str:
    """A parallel loop whose tasks each run `_STEPS` rounds of `_CHAINS` dependent chains."""
    kind = f"<{lanes} x float>"
    name = f"llvm.fma.v{lanes}f32"
    phis = [f"  %x{k} = phi {kind} [ splat (float {k}.0), %entry ], [ %y{k}, %loop ]" for k in range(_CHAINS)]
    chains = [f"  %y{k} = call {kind} @{name}({kind} %x{k}, {kind} %f, {kind} %f)" for k in range(_CHAINS)]
    sums, last = list[str](), "%y0"
    for k in range(1, _CHAINS):
        sums.append(f"  %s{k} = fadd {kind} {last}, %y{k}")
        last = f"%s{k}"
    return "\n".join(
        [
            f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)",
            f"declare {kind} @{name}({kind}, {kind}, {kind})",
            "@tensorc_sink = global [4096 x i8] zeroinitializer, align 64",
            "define void @tensorc_peak(ptr %arguments, ptr %workspace) nounwind {",
            "  %n = load i64, ptr %arguments",
            f"  call void @{PARALLEL_FOR}(ptr @part, ptr null, i64 %n, i64 %n)",
            "  ret void",
            "}",
            "define internal void @part(ptr %context, i64 %begin, i64 %end, i64 %worker) nounwind {",
            "entry:",
            "  %whole = sitofp i64 %begin to float",
            "  %tiny = fmul float %whole, 0x3E10000000000000",
            "  %factor = fadd float %tiny, 0.5",
            f"  %one = insertelement {kind} poison, float %factor, i64 0",
            f"  %f = shufflevector {kind} %one, {kind} poison, <{lanes} x i32> zeroinitializer",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            *phis,
            *chains,
            "  %i.next = add i64 %i, 1",
            f"  %more = icmp ult i64 %i.next, {_STEPS}",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *sums,
            "  %row = and i64 %begin, 31",
            "  %offset = shl i64 %row, 7",
            "  %place = getelementptr i8, ptr @tensorc_sink, i64 %offset",
            f"  store {kind} {last}, ptr %place, align 64",
            "  ret void",
            "}",
        ]
    )
