"""What a program is compiled for, as a value: schedules ask it for facts, code generators obey it, records carry it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A machine. Cache sizes in bytes, per core (`l3`: shared); `cores` is how many threads a kernel may use."""

    kind: str = "llvm"
    cpu: str = "generic"
    features: str = ""
    vector_bits: int = 128
    cores: int = 1
    l1: int = 32 * 1024
    l2: int = 512 * 1024
    l3: int = 8 * 1024 * 1024

    @property
    def key(self) -> str:
        """What a record is filed under: two targets with one key run each other's kernels equally well."""
        return f"{self.kind}:{self.cpu}:{self.vector_bits}:{self.cores}"

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers: 32 with AVX-512 and on AArch64, 16 on other x86."""
        return 32 if self.vector_bits >= 512 or "neon" in self.features else 16
