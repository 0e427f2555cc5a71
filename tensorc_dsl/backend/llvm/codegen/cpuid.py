"""The features of processors, and the bits by which a program can query them.

x86-64: the bits of CPUID, and of XCR0 for registers that the system has to save (Intel 64 and IA-32 Architectures Software
Developer's Manual, volume 2A, CPUID, and volume 1, 13.3; AMD64 Architecture Programmer's Manual, volume 3, appendix E).
AArch64: the words that Linux passes to each process (`HWCAP_*`, arm64 ELF hwcaps in the kernel's documentation).
"""

from __future__ import annotations

from dataclasses import dataclass

AVX_STATE, AVX512_STATE, AMX_STATE, APX_STATE = 0x6, 0xE6, 0x60000, 0x80000
"""Bits of XCR0 for the registers that the system saves."""

EAX, EBX, ECX, EDX = range(4)


@dataclass(frozen=True, slots=True)
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
