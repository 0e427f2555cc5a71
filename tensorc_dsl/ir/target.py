"""What a program is compiled for, as a value: schedules ask it for facts, code generators obey it, records carry it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.extensions import BACKENDS

WITHOUT_CODE = ("cuda",)
"""Kinds of targets that the standard library describes and schedules, and that no backend of ours makes code for."""


def kinds() -> tuple[str, ...]:
    """The kinds of targets that there are, sorted: those of the backends that are found, and those without code."""
    return tuple(sorted({*BACKENDS.names(), *WITHOUT_CODE}))


def own_kinds() -> tuple[str, ...]:
    """Those that there are whatever is installed, sorted."""
    return tuple(sorted({*BACKENDS.own(), *WITHOUT_CODE}))


def is_kind(name: str) -> bool:
    """Whether there are targets of that kind."""
    return name in WITHOUT_CODE or BACKENDS.module(name) is not None


def architecture_of(triple: str) -> str:
    """The instruction set of a machine, by one name each: `x86_64`, `aarch64`."""
    name = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Target:
    """A machine. Cache sizes in bytes, per core (`l3`: shared); `cores` is how many threads a kernel may use.

    `triple` is LLVM's name for the kind of machine, `aarch64-unknown-linux-gnu`; without one it is the machine that we are
    on. `features` is LLVM's list of instruction sets, `+avx2,-sse4a`. Of a GPU, `cores` are its multiprocessors, and a block
    has at most `threads` threads, `shared_memory` bytes and `registers` registers of 32 bits.
    """

    kind: str = "llvm"
    cpu: str = "generic"
    features: str = ""
    vector_bits: int = 128
    cores: int = 1
    l1: int = 32 * 1024
    l2: int = 512 * 1024
    l3: int = 8 * 1024 * 1024
    shared_memory: int = 0
    threads: int = 0
    registers: int = 0
    triple: str = ""

    @property
    def key(self) -> str:
        """What a record is filed under: two targets with one key run each other's kernels equally well."""
        machine = f"{self.triple}:" if self.triple else ""
        return f"{self.kind}:{machine}{self.cpu}:{self.vector_bits}:{self.cores}"

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers: 32 with AVX-512 and on AArch64, 16 on other x86."""
        arm = architecture_of(self.triple) == "aarch64" or "neon" in self.features
        return 32 if arm or self.vector_bits >= 512 else 16

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The instruction sets that it has, sorted."""
        return tuple(sorted(f[1:] for f in self.features.split(",") if f.startswith("+")))
