"""Facts of the target: `target.vector_bits`, `target.has("avx512vnni")`."""

from __future__ import annotations

from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.query import query


@query
def kind(target: Target) -> str:
    """The code generator, by the kind of the target: "llvm", "cuda", or that of an installed backend."""
    return target.kind


@query
def cpu(target: Target) -> str:
    """The processor, by LLVM's name for it; for a GPU its architecture, "sm_80"."""
    return target.cpu


@query
def features(target: Target) -> tuple[str, ...]:
    """The instruction sets that kernels may use, by LLVM's names, in alphabetical order."""
    return target.feature_names


@query
def has(target: Target, feature: str) -> bool:
    """Whether kernels may use an instruction set: `target.has("avx512vnni")`."""
    return feature in target.feature_names


@query
def vector_bits(target: Target) -> int:
    """The width of a vector register in bits."""
    return target.vector_bits


@query
def vector_registers(target: Target) -> int:
    """The number of vector registers."""
    return target.vector_registers


@query
def cores(target: Target) -> int:
    """The number of threads that a kernel may use; for a GPU, the number of multiprocessors."""
    return target.cores


@query
def l1(target: Target) -> int:
    """The first-level data cache of a core, in bytes."""
    return target.l1


@query
def l2(target: Target) -> int:
    """The second-level cache of a core, in bytes."""
    return target.l2


@query
def l3(target: Target) -> int:
    """The third-level cache that the cores share, in bytes."""
    return target.l3


@query
def shared_memory(target: Target) -> int:
    """The memory that the threads of a GPU's block share, in bytes; 0 for other machines."""
    return target.shared_memory


@query
def threads(target: Target) -> int:
    """The largest number of threads in a block of a GPU; 0 for other machines."""
    return target.threads


@query
def registers(target: Target) -> int:
    """The number of registers of 32 bits for the threads of a GPU's block together; 0 for other machines."""
    return target.registers
