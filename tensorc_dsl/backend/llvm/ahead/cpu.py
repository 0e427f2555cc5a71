"""Generates the check of a library that the processor has the features of its code, by the bits that a program can
query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from itertools import groupby

from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.machine import has_features, native_triple
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import Target, architecture_of

# The features of processors, and the bits by which a program can query them.
#
# x86-64: the bits of CPUID, and of XCR0 for registers that the system has to save (Intel 64 and IA-32 Architectures
# Software Developer's Manual, volume 2A, CPUID, and volume 1, 13.3; AMD64 Architecture Programmer's Manual, volume 3,
# appendix E). AArch64: the words that Linux passes to each process (`HWCAP_*`, arm64 ELF hwcaps in the kernel's
# documentation).


AVX_STATE, AVX512_STATE, AMX_STATE, APX_STATE = 0x6, 0xE6, 0x60000, 0x80000
"""Bits of XCR0 for the registers that the system saves."""

EAX, EBX, ECX, EDX = range(4)


@frozen
class Bit:
    """One bit of a register after CPUID; `state` has the bits of XCR0 that the feature needs."""

    leaf: int
    subleaf: int
    register: int
    bit: int
    state: int = 0


def _bits(leaf: int, subleaf: int, register: int, state: int, **bits: int) -> dict[str, Bit]:
    return {_spelled(name): Bit(leaf, subleaf, register, bit, state) for name, bit in bits.items()}


def _spelled(name: str) -> str:
    """LLVM's name of a feature, from a Python identifier."""
    return {"sse41": "sse4.1", "sse42": "sse4.2"}.get(name, name.replace("_", "-"))


X86: dict[str, Bit] = {
    **_bits(1, 0, ECX, 0, sse3=0, ssse3=9, sse41=19, sse42=20, crc32=20, movbe=22, popcnt=23),
    **_bits(1, 0, ECX, AVX_STATE, fma=12, avx=28, f16c=29),
    **_bits(7, 0, EBX, 0, bmi=3, bmi2=8, adx=19),
    **_bits(7, 0, EBX, AVX_STATE, avx2=5),
    **_bits(7, 0, EBX, AVX512_STATE, avx512f=16, avx512dq=17, avx512ifma=21, avx512cd=28, avx512bw=30, avx512vl=31),
    **_bits(7, 0, ECX, 0, gfni=8),
    **_bits(7, 0, ECX, AVX512_STATE, avx512vbmi=1, avx512vbmi2=6, avx512vnni=11, avx512bitalg=12, avx512vpopcntdq=14),
    **_bits(7, 0, EDX, AVX512_STATE, avx512vp2intersect=8, avx512fp16=23),
    **_bits(7, 0, EDX, AMX_STATE, amx_bf16=22, amx_tile=24, amx_int8=25),
    **_bits(7, 1, EAX, AVX_STATE, avxvnni=4, avxifma=23),
    **_bits(7, 1, EAX, 0, cmpccxadd=7),
    **_bits(7, 1, EAX, AVX512_STATE, avx512bf16=5),
    **_bits(7, 1, EAX, AMX_STATE, amx_fp16=21),
    **_bits(7, 1, EDX, AVX_STATE, avxvnniint8=4, avxneconvert=5, avxvnniint16=10),
    **_bits(7, 1, EDX, AMX_STATE, amx_complex=8),
    **_bits(7, 1, EDX, APX_STATE, egpr=21, push2pop2=21, ppx=21, ndd=21, ccmp=21, nf=21),
    **_bits(0x80000001, 0, ECX, 0, lzcnt=5, sse4a=6, tbm=21),
    **_bits(0x80000001, 0, ECX, AVX_STATE, xop=11, fma4=16),
}
"""LLVM's names of the features that change the instructions of computations. Features for cryptography do not: some
processors lack only those, such as Cortex-A72 in a Raspberry Pi 4, and LLVM uses them only on request."""

AVX10: dict[str, int] = {"avx10.1": 1, "avx10.2": 2}
"""The least version, in the low byte of EBX at leaf 0x24, which exists if bit 19 of EDX at leaf 7, subleaf 1, is set."""

AVX10_BIT = Bit(7, 1, EDX, 19, AVX512_STATE)

ARM: dict[str, tuple[int, int]] = {
    "fp-armv8": (1 << 0, 0),
    "neon": (1 << 1, 0),
    "crc": (1 << 7, 0),
    "lse": (1 << 8, 0),
    "fullfp16": (1 << 9 | 1 << 10, 0),
    "rdm": (1 << 12, 0),
    "jsconv": (1 << 13, 0),
    "complxnum": (1 << 14, 0),
    "rcpc": (1 << 15, 0),
    "sha3": (1 << 17 | 1 << 21, 0),
    "dotprod": (1 << 20, 0),
    "sve": (1 << 22, 0),
    "fp16fml": (1 << 23, 0),
    "lse2": (1 << 25, 0),
    "rcpc-immo": (1 << 26, 0),
    "flagm": (1 << 27, 0),
    "sve2": (0, 1 << 1),
    "altnzcv": (0, 1 << 7),
    "fptoint": (0, 1 << 8),
    "f32mm": (0, 1 << 10),
    "f64mm": (0, 1 << 11),
    "i8mm": (0, 1 << 13),
    "bf16": (0, 1 << 14),
    "sme": (0, 1 << 23),
}
"""LLVM's names, and the required bits of AT_HWCAP and of AT_HWCAP2."""


# Generates the check of a library that the processor has the features of its code.
#
# Without the check, the system would end the program at the first missing instruction. The entries themselves
# are compiled for every processor of the architecture, so that they can run the check.


_PLAIN = {
    "x86_64": 'noinline "target-cpu"="x86-64" "target-features"=""',
    "aarch64": 'noinline "target-cpu"="generic" "target-features"=""',
}
"""Attributes of functions that run on every processor of an architecture."""

_OSXSAVE = Bit(1, 0, ECX, 27)
"""The bit that allows XCR0 to be read."""

_CPUID = bytes.fromhex(
    "49 89 d0"  # mov r8, rdx
    "89 f8"  # mov eax, edi
    "89 f1"  # mov ecx, esi
    "49 89 d9"  # mov r9, rbx, which belongs to the caller
    "0f a2"  # cpuid
    "41 89 00"  # mov [r8], eax
    "41 89 58 04"  # mov [r8 + 4], ebx
    "41 89 48 08"  # mov [r8 + 8], ecx
    "41 89 50 0c"  # mov [r8 + 12], edx
    "4c 89 cb"  # mov rbx, r9
    "c3"  # ret
)
"""`void (i32 leaf, i32 subleaf, ptr four)`: stores the four registers after CPUID. It is machine code, since LLVM has no name
for the instruction and can assemble only for the machine that it runs on."""

_XGETBV = bytes.fromhex(
    "31 c9"  # xor ecx, ecx
    "0f 01 d0"  # xgetbv
    "c3"  # ret
)
"""`i32 ()`: returns the low half of XCR0."""

_AT_HWCAP, _AT_HWCAP2 = 16, 26


@frozen
class Check:
    """The function that entries call first, and the attributes that let them run everywhere."""

    symbol: str
    attributes: str


def add_check(module: Module, name: str, target: Target) -> Check | None:
    """Add the check for a library of that name to the module. None if the target has no features to check."""
    features = required_features(target)
    if not features:
        return None
    architecture = architecture_of(target.triple or native_triple())
    write_cpu_check(module, f"{name}.cpu", architecture, features)
    return Check(f"{name}.cpu", _PLAIN[architecture])


@cache
def required_features(target: Target) -> tuple[str, ...]:
    """The features that code for the target may use and a library can query, sorted, without those that all processors of
    the architecture have. Empty if features cannot be queried: not x86-64, and not Linux on AArch64."""
    triple = target.triple or native_triple()
    match architecture_of(triple):
        case "x86_64":
            known: Collection[str] = (*X86, *AVX10)
        case "aarch64" if "linux" in triple:
            known = ARM
        case _:
            return ()
    basic = has_features(Target(triple=triple, cpu="x86-64" if "x86" in triple else "generic"), known)
    return tuple(sorted(set(has_features(target, known)).difference(basic)))


def write_cpu_check(module: Module, name: str, architecture: str, features: Collection[str]) -> None:
    """Add `name`, `i1 ()`: whether the processor has all the features. A positive result is cached for later calls."""
    state = f"{name}.state"
    module.functions.append(f"@{state} = internal global i8 0, align 1")
    f = _Looking(module)
    told = f.op(f"icmp eq i8 {f.op(f'load atomic i8, ptr @{state} monotonic, align 1')}, 1")
    done, look = f.label("done"), f.label("look")
    f.branch_if(told, done, look)
    f.start_block(done)
    f.line("ret i1 true")
    f.start_block(look)
    if architecture == "x86_64":
        f.look_x86(features)
    else:
        f.look_arm(features)
    f.line(f"store atomic i8 1, ptr @{state} monotonic, align 1")
    f.define(f"define internal i1 @{name}() nounwind {_PLAIN[architecture]}", "i1 true")


def _write_code(module: Module, name: str, kind: str, code: bytes) -> None:
    """Add a function with these instructions as prefix data, unless it is there already; its body is never reached."""
    result, formal = kind.split(" ", 1)
    text = "".join(f"\\{b:02X}" for b in code)
    body = (
        f"define internal x86_64_sysvcc {result} @{name}{formal} naked noinline optnone nounwind "
        f'prologue [{len(code)} x i8] c"{text}" {{\n  unreachable\n}}'
    )
    if body not in module.functions:
        module.functions.append(body)


class _Looking(Function):
    """A function that returns false if something is missing."""

    def need(self, value: str, kind: str, mask: int) -> None:
        """Require all bits of the mask."""
        have = self.op(f"and {kind} {value}, {mask}")
        self.need_true(self.op(f"icmp eq {kind} {have}, {mask}"))

    def need_true(self, condition: str) -> None:
        lacking, go_on = self.label("lacking"), self.label("ok")
        self.branch_if(condition, go_on, lacking)
        self.start_block(lacking)
        self.line("ret i1 false")
        self.start_block(go_on)

    def look_x86(self, features: Collection[str]) -> None:
        _write_code(self.module, "tensorc_cpuid", "void (i32, i32, ptr)", _CPUID)
        _write_code(self.module, "tensorc_xgetbv", "i32 ()", _XGETBV)
        four = self.alloca("i32", 4)
        versions = [AVX10[name] for name in features if name in AVX10]
        bits = {X86[name] for name in features if name in X86}
        if versions:
            bits.add(AVX10_BIT)
        state = _union(b.state for b in bits)
        if state:
            bits.add(_OSXSAVE)
        for leaf, of_leaf in groupby(sorted(bits, key=_place), key=lambda b: b.leaf):
            self.need_true(self.op(f"icmp uge i32 {self._cpuid(four, leaf & 0x80000000, 0)[EAX]}, {leaf}"))
            for subleaf, of_subleaf in groupby(of_leaf, key=lambda b: b.subleaf):
                if subleaf:
                    self.need_true(self.op(f"icmp uge i32 {self._cpuid(four, leaf, 0)[EAX]}, {subleaf}"))
                registers = self._cpuid(four, leaf, subleaf)
                for register, same in groupby(of_subleaf, key=lambda b: b.register):
                    self.need(registers[register], "i32", _union(1 << b.bit for b in same))
        if state:
            self.need(self.op("call x86_64_sysvcc i32 @tensorc_xgetbv()"), "i32", state)
        if versions:
            version = self.op(f"and i32 {self._cpuid(four, 0x24, 0)[EBX]}, 255")
            self.need_true(self.op(f"icmp uge i32 {version}, {max(versions)}"))

    def _cpuid(self, four: str, leaf: int, subleaf: int) -> list[str]:
        self.line(f"call x86_64_sysvcc void @tensorc_cpuid(i32 {leaf}, i32 {subleaf}, ptr {four})")
        places = [self.op(f"getelementptr i32, ptr {four}, i64 {k}") for k in range(4)]
        return [self.op(f"load i32, ptr {place}") for place in places]

    def look_arm(self, features: Collection[str]) -> None:
        self.module.declare("i64", "getauxval", ("i64",))
        for key, word in ((_AT_HWCAP, 0), (_AT_HWCAP2, 1)):
            if mask := _union(ARM[name][word] for name in features):
                self.need(self.op(f"call i64 @getauxval(i64 {key})"), "i64", mask)


def _place(b: Bit) -> tuple[int, int, int]:
    return b.leaf, b.subleaf, b.register


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
