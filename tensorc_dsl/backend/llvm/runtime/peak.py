"""Measures this machine: operations per second with one kind of multiply-add in registers, and bytes per second from
memory.
"""

from __future__ import annotations

import ctypes
import itertools
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from tensorc_dsl.backend.llvm.codegen.machine import Machine, has_features, vector_bits_of
from tensorc_dsl.backend.llvm.codegen.statements import PARALLEL_FOR
from tensorc_dsl.backend.llvm.runtime.native import runtime, time_native
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import Work

# Measures the peak: the operations per second of this machine with one kind of multiply-add in registers.


_CHAINS = 12
"""Independent accumulators: more than latency times throughput of current processors, and fewer than their registers."""

_STEPS = 20_000
"""The steps per run and thread: long compared with starting a loop, short compared with a time slice."""

_numbers = itertools.count()


@frozen
class Instruction:
    """An instruction that multiplies and adds: a vector of `kind`, which has `bits`, from one of those and two of `operand`.

    `call` is LLVM's function, or two instructions that follow each other, such as `mul add`. `lanes` in the texts stands
    for the number of elements of `kind` in a vector. `operations` counts per element, with a multiplication and an addition
    as two. `features` are those that a processor needs. `width` is that of the registers in bits, by default that of the
    widest vectors.
    """

    title: str
    call: str
    kind: str
    bits: int
    operand: str
    operations: int
    features: tuple[str, ...] = ()
    width: int | None = None


def _fma(t: DType, suffix: str, kind: str, features: tuple[str, ...] = ()) -> Instruction:
    call = f"llvm.fma.v{{lanes}}{suffix}"
    return Instruction(f"{t} FMA peak", call, kind, t.bits, f"<{{lanes}} x {kind}>", 2, features)


def _integers(bits: int) -> Instruction:
    kind = f"i{bits}"
    return Instruction(f"{kind} multiply-add peak", "mul add", kind, bits, f"<{{lanes}} x {kind}>", 2)


def _sums(bits: int) -> Instruction:
    """Without multiplications, which take longer. Of sums alone a loop would be a product."""
    kind = f"i{bits}"
    return Instruction(f"{kind} addition peak", "add xor", kind, bits, f"<{{lanes}} x {kind}>", 2)


FMA = _fma(F32, "f32", "float")

SUMS = Instruction("chain of sums", "add xor", "i64", 64, "<{lanes} x i64>", 2, width=64)
"""Two instructions of one cycle each: on scalars, since sums of vectors of integers take two on some processors (Zen 5)."""

ADD = Instruction("pair of f32 sums", "fadd fadd", "float", 32, "<{lanes} x float>", 2)

DIVIDE = Instruction("f32 divisions", "fdiv fadd", "float", 32, "<{lanes} x float>", 2)
"""A division, and a sum that keeps the values apart."""

DOT_U8I8 = Instruction(
    "8-bit VNNI peak", "llvm.x86.avx512.vpdpbusd.512", "i32", 32, "<16 x i32>", 8, ("avx512f", "avx512vnni")
)
"""Four products of bytes added to 32 bits (AVX-512 VNNI)."""

DOT_BF16 = Instruction(
    "bf16 dot peak", "llvm.x86.avx512bf16.dpbf16ps.512", "float", 32, "<32 x bfloat>", 4,
    ("avx512f", "avx512bf16"),
)  # fmt: skip
"""Two products of bf16 added to f32 (AVX-512 BF16)."""

PLAIN = {
    F32: FMA,
    F64: _fma(F64, "f64", "double"),
    F16: _fma(F16, "f16", "half", ("avx512fp16",)),
    **{t: _integers(t.bits) for t in (I16, U16, I32, U32, I64, U64)},
}
"""The multiply-add of each type of values. Other types need several instructions, and have no peak."""

MULTIPLIERS: dict[Work, tuple[Instruction, ...]] = {
    **{Work(t): (i,) for t, i in PLAIN.items()},
    **{Work(t, sums=True): (_sums(t.bits),) for t in (I8, U8, I16, U16, I32, U32, I64, U64)},
    Work(F32, BF16): (DOT_BF16, FMA),
    Work(F32, F16): (FMA,),
    Work(F64, F32): (PLAIN[F64],),
    Work(I32, I8): (DOT_U8I8,),
    Work(I32, U8): (DOT_U8I8,),
}
"""The instructions for each kind of work: with values as they are, or after conversion."""


INSTRUCTIONS = {i.title: i for some in MULTIPLIERS.values() for i in some}
"""All instructions by title."""


def peak_instructions(work: Work, target: Target) -> tuple[Instruction, ...]:
    """The instructions for such work that the target has; none if no instruction that is measured here does it."""
    return tuple(i for i in MULTIPLIERS.get(work, ()) if len(has_features(target, i.features)) == len(i.features))


def widest(target: Target) -> int:
    """The bits of the widest vectors that code for the target may use; a target may be said to have narrower ones."""
    return max(target.vector_bits, vector_bits_of(has_features(target, ("avx512f", "avx"))))


def peak(instruction: Instruction, target: Target, threads: int, repeats: int = 200) -> float:
    """Operations/s of an instruction that the target has, in registers, on `threads` threads.

    The best of `repeats` short runs, some 20 ms in all, since other load on the machine can only slow them down.
    """
    lanes = widest(target) // instruction.bits
    arguments = (ctypes.c_int64 * 1)(threads)
    kernel = _linked(instruction, target)
    best = min(time_native(int(kernel["tensorc_peak"]), ctypes.addressof(arguments), 0, repeats))
    return float(instruction.operations) * lanes * _CHAINS * _STEPS * threads / best


def chained(instruction: Instruction, target: Target, chains: int, repeats: int = 100) -> float:
    """Seconds of one such instruction, or pair, on one thread, where so many chains of them run side by side: its latency for
    one, and what it keeps others waiting for many."""
    arguments = (ctypes.c_int64 * 1)(1)
    kernel = _linked(instruction, target, chains)
    return min(time_native(int(kernel["tensorc_peak"]), ctypes.addressof(arguments), 0, repeats)) / (chains * _STEPS)


def start_seconds(target: Target, threads: int, repeats: int = 200) -> float:
    """Seconds until so many threads have run what takes no time, and are done."""
    arguments = (ctypes.c_int64 * 1)(threads)
    kernel = _linked(SUMS, target, 1, 1)
    times = sorted(time_native(int(kernel["tensorc_peak"]), ctypes.addressof(arguments), 0, repeats))
    return times[len(times) // 4]


NOTHING = {"x86_64": "nopw 8(%rax,%rax)", "aarch64": "nop"}
"""An instruction of each architecture that only takes a place in the front end."""

_NOTHINGS = 254
"""So many in a round, beside two of its loop: a longer round would not be in the cache of decoded instructions."""


def nothing_seconds(target: Target, repeats: int = 100) -> float | None:
    """Seconds of an instruction that does nothing, of which several begin at once; None where none is known."""
    text = NOTHING.get(llvm.get_default_triple().partition("-")[0])
    if text is None:
        return None
    llvm.initialize_native_asmparser()
    code = Machine(target).object_code(
        "\n".join(
            [
                "define void @tensorc_nothing(ptr %arguments, ptr %workspace) nounwind {",
                "entry:",
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
                *[f'  call void asm sideeffect "{text}", ""()'] * _NOTHINGS,
                "  %i.next = add i64 %i, 1",
                f"  %more = icmp ult i64 %i.next, {_STEPS // _CHAINS}",
                "  br i1 %more, label %loop, label %done",
                "done:",
                "  ret void",
                "}",
            ]
        )
    )
    library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol("tensorc_nothing")
    kernel = library.link(runtime().jit, f"nothing_{next(_numbers)}")
    best = min(time_native(int(kernel["tensorc_nothing"]), 0, 0, repeats))
    return best / ((_NOTHINGS + 2) * (_STEPS // _CHAINS))


@cache
def _linked(
    instruction: Instruction, target: Target, chains: int = _CHAINS, steps: int = _STEPS
) -> llvm.ResourceTracker:
    rt = runtime()
    code = Machine(target).object_code(_text(instruction, instruction.width or widest(target), chains, steps))
    library = llvm.JITLibraryBuilder().add_object_img(code)
    library.import_symbol(PARALLEL_FOR, rt.parallel_for).export_symbol("tensorc_peak").export_symbol("tensorc_sink")
    return library.link(rt.jit, f"peak_{next(_numbers)}")


def _text(instruction: Instruction, width: int, many: int, steps: int) -> str:
    """The LLVM IR of a parallel loop whose tasks each run `_STEPS` rounds of `many` dependent chains."""
    lanes, singles = width // instruction.bits, width // 32
    name, operand = instruction.call.format(lanes=lanes), instruction.operand.format(lanes=lanes)
    kind, floats = f"<{lanes} x {instruction.kind}>", f"<{singles} x float>"
    start, add = ("{}", "add") if instruction.kind.startswith("i") else ("{}.0", "fadd")
    starts = [f"splat ({instruction.kind} {start.format(k)})" for k in range(many)]
    phis = [f"  %x{k} = phi {kind} [ {starts[k]}, %entry ], [ %y{k}, %loop ]" for k in range(many)]
    if " " not in name:
        chains = [f"  %y{k} = call {kind} @{name}({kind} %x{k}, {operand} %f, {operand} %f)" for k in range(many)]
        declared = [f"declare {kind} @{name}({kind}, {operand}, {operand})"]
    else:
        first, second = name.split()
        chains = [f"  %m{k} = {first} {kind} %x{k}, %f\n  %y{k} = {second} {kind} %m{k}, %f" for k in range(many)]
        declared = list[str]()
    sums, last = list[str](), "%y0"
    for k in range(1, many):
        sums.append(f"  %s{k} = {add} {kind} {last}, %y{k}")
        last = f"%s{k}"
    return "\n".join(
        [
            f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)",
            *declared,
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
            f"  %every = shufflevector {floats} %one, {floats} poison, <{singles} x i32> zeroinitializer",
            f"  %f = bitcast {floats} %every to {operand}",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            *phis,
            *chains,
            "  %i.next = add i64 %i, 1",
            f"  %more = icmp ult i64 %i.next, {steps}",
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


# Measures the bandwidth: the bytes per second that this machine moves between memory and registers, for an amount of
# memory.
#
# Small amounts stay in caches, so a kernel on small arrays is compared with the bandwidth of caches.


_VECTORS = 8
"""The number of vectors in a step of the loop, so that enough loads are in flight."""

_RUN_BYTES = 1 << 22
"""The bytes that a run moves per thread at least, in several rounds for less memory: long compared with starting a loop."""

_REPEATS = 4, 20
"""The smallest and the largest number of runs of each kernel."""

_ALL_BYTES = 1 << 30
"""The bytes that all runs of a kernel move together, within these numbers of runs."""

_NAMES = ("tensorc_read", "tensorc_copy", "tensorc_stream")

_APART = 4096 + 64
"""The bytes from a load to the next where each is from a page of its own: they are in different sets of caches."""


def bandwidth(target: Target, threads: int, size: int, repeats: tuple[int, int] = _REPEATS) -> float:
    """Bytes/s on `threads` threads over `size` bytes: the largest rate of reading them, and of copying one half to the other,
    through the caches or past them.

    Copied bytes count twice. The best of several runs of each, so many at least and at most, some 0.1 s in all. `size` is
    rounded to vectors.
    """
    return max(copies(target, threads, size, repeats).values())


def copies(target: Target, threads: int, size: int, repeats: tuple[int, int] = _REPEATS) -> dict[str, float]:
    """As `bandwidth`, each rate by its name: `read`, `copy`, and `stream` past the caches."""
    width = widest(target)
    step = 2 * _VECTORS * width // 8
    share = max(1, size // (threads * step)) * step
    rounds = max(1, _RUN_BYTES // share)
    return {n: threads * share * rounds / t for n, t in _runs(target, threads, share, rounds, repeats, _NAMES).items()}


def crossing(target: Target, pages: int) -> float:
    """Seconds of a load that is the only one from its page, of so many that are read in turns, on one thread."""
    share = max(1, pages // _VECTORS) * _VECTORS * _APART
    rounds = max(1, _RUN_BYTES // (share // _APART * 64))
    (time,) = _runs(target, 1, share, rounds, _REPEATS, ("tensorc_cross",)).values()
    return time / (rounds * (share // _APART))


def _runs(
    target: Target, threads: int, share: int, rounds: int, repeats: tuple[int, int], names: tuple[str, ...]
) -> dict[str, float]:
    """Seconds of the fastest run of each kernel, by its name without `tensorc_`."""
    memory = aligned_empty((threads * share,), np.dtype(np.uint8))
    memory[:] = 0
    fewest, most = repeats
    count = max(fewest, min(most, _ALL_BYTES // (threads * share * rounds)))
    arguments = (ctypes.c_int64 * 4)(threads, memory.ctypes.data, share, rounds)
    kernels = _linked_copies(target)
    return {
        n.removeprefix("tensorc_"): min(time_native(int(kernels[n]), ctypes.addressof(arguments), 0, count))
        for n in names
    }


@cache
def _linked_copies(target: Target) -> llvm.ResourceTracker:
    """The kernels of `_NAMES`, and `tensorc_cross`."""
    rt = runtime()
    library = llvm.JITLibraryBuilder().add_object_img(Machine(target).object_code(_copies_text(widest(target) // 32)))
    library.import_symbol(PARALLEL_FOR, rt.parallel_for).add_current_process()
    for name in (*_NAMES, "tensorc_cross"):
        library.export_symbol(name)
    return library.link(rt.jit, f"bandwidth_{next(_numbers)}")


def _copies_text(lanes: int) -> str:
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
    cross = [line.replace(f"i64 {k * size}", f"i64 {k * _APART}") for k, line in enumerate(load)]
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
            _kernel("cross", "%share", _VECTORS * _APART, held, [*cross, *mixed], total),
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
