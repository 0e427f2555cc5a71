"""Generates the check of a library that the processor has the features of its code.

Without the check, the system would end the program at the first missing instruction. The entries themselves
are compiled for every processor of the architecture, so that they can run the check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from tensorc_dsl.backend.llvm.codegen.cpuid import ARM, AVX10, AVX10_BIT, EAX, EBX, ECX, X86, Bit
from tensorc_dsl.backend.llvm.codegen.features import has_features
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.machine import native_triple
from tensorc_dsl.ir.target import Target, architecture_of

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


@dataclass(frozen=True, slots=True)
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
