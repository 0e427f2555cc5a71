"""The roof: how many operations a second this machine does when it does nothing but one kind of multiply-add."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.threads import runtime, time_native
from tensorc_dsl.ir.target import Target

_CHAINS = 12
"""Independent accumulators: more than latency times throughput of any processor in use, fewer than the registers of all."""

_STEPS = 20_000
"""Per run and thread: long against starting a loop, short against a time slice."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Instruction:
    """LLVM's function `name`, which makes a vector of `kind` from one and from two of `operand`.

    `lanes` stands in the names for how many numbers of 32 bits a vector holds. `operations` is for each of them, with a
    multiplication and an addition as two.
    """

    name: str
    kind: str
    operand: str
    operations: int


FMA = Instruction("llvm.fma.v{lanes}f32", "float", "<{lanes} x float>", 2)
"""f32; of any vectors."""

DOT_U8I8 = Instruction("llvm.x86.avx512.vpdpbusd.512", "i32", "<16 x i32>", 8)
"""Four products of bytes added to 32 bits (AVX-512 VNNI)."""

DOT_BF16 = Instruction("llvm.x86.avx512bf16.dpbf16ps.512", "float", "<32 x bfloat>", 4)
"""Two products of bf16 added to f32 (AVX-512 BF16)."""


def fma_peak(target: Target, threads: int, repeats: int = 200) -> float:
    """FLOP/s of f32 fused multiply-adds in registers on `threads` threads, each a multiplication and an addition."""
    return peak(FMA, target, threads, repeats)


def peak(instruction: Instruction, target: Target, threads: int, repeats: int = 200) -> float:
    """Operations/s of an instruction that the target has, in registers, on `threads` threads.

    The best of `repeats` short runs, some 20 ms in all: the roof is what the machine can do, not what it did while others
    used it.
    """
    lanes = target.vector_bits // 32
    rt = runtime()
    library = llvm.JITLibraryBuilder().add_object_img(Machine(target).object_code(_text(instruction, lanes)))
    library.import_symbol(PARALLEL_FOR, rt.parallel_for).export_symbol("tensorc_peak").export_symbol("tensorc_sink")
    tracker = library.link(rt.jit, f"peak_{next(_numbers)}")
    arguments = (ctypes.c_int64 * 1)(threads)
    best = min(time_native(int(tracker["tensorc_peak"]), ctypes.addressof(arguments), 0, repeats))
    return float(instruction.operations) * lanes * _CHAINS * _STEPS * threads / best


def _text(instruction: Instruction, lanes: int) -> str:
    """A parallel loop whose tasks each run `_STEPS` rounds of `_CHAINS` dependent chains."""
    name, operand = instruction.name.format(lanes=lanes), instruction.operand.format(lanes=lanes)
    kind = f"<{lanes} x {instruction.kind}>"
    start, add = ("{}.0", "fadd") if instruction.kind == "float" else ("{}", "add")
    floats = f"<{lanes} x float>"
    starts = [f"splat ({instruction.kind} {start.format(k)})" for k in range(_CHAINS)]
    phis = [f"  %x{k} = phi {kind} [ {starts[k]}, %entry ], [ %y{k}, %loop ]" for k in range(_CHAINS)]
    chains = [f"  %y{k} = call {kind} @{name}({kind} %x{k}, {operand} %f, {operand} %f)" for k in range(_CHAINS)]
    sums, last = list[str](), "%y0"
    for k in range(1, _CHAINS):
        sums.append(f"  %s{k} = {add} {kind} {last}, %y{k}")
        last = f"%s{k}"
    return "\n".join(
        [
            f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)",
            f"declare {kind} @{name}({kind}, {operand}, {operand})",
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
            f"  %one = insertelement {floats} poison, float %factor, i64 0",
            f"  %every = shufflevector {floats} %one, {floats} poison, <{lanes} x i32> zeroinitializer",
            f"  %f = bitcast {floats} %every to {operand}",
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
