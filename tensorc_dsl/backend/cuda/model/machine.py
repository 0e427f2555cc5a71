"""What a multiprocessor of a GPU has, by compute capability, and how many blocks of a kernel it runs at one time."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.backend.cuda.runtime.driver import number_of
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.warp import LANES

SPILLED = 255
"""The most registers of a thread; what needs more is in memory."""

_UNIT = 256
"""Registers are given to a warp in so many."""


@frozen
class Machine:
    """A multiprocessor: the warps, blocks, registers and bytes of shared memory for blocks that are there at one time, and
    the bytes of memory that each of them can have in a cycle if all read at once.

    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; a block takes 1 KB of shared memory for
    the system. The rates are those of the GPU named: its memory's, and that of its tensor cores by type of the factors, by
    its boost clock and its multiprocessors. Instructions of a warp reach the share `of_warps` of the latter.
    """

    warps: int
    blocks: int
    shared: int
    memory_rate: float
    products: Mapping[str, float]
    """Multiplications with additions in a cycle, of matrices that are not sparse, with sums of f32."""
    of_warps: float = 1.0
    floats: float = 1.0
    """The cycles that an instruction on floats takes the quarter of a multiprocessor that has the warp."""
    registers: int = 65536
    reserved: int = 1024

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """The blocks that run at one time on a multiprocessor: by warps, by number, by registers and by shared memory."""
        warps = -(-threads // LANES)
        of_warp = -(-min(registers, SPILLED) * LANES // _UNIT) * _UNIT
        return min(
            self.warps // warps,
            self.blocks,
            self.registers // (of_warp * warps),
            self.shared // (shared + self.reserved),
        )

    def product_cycles(self, dtype: str, count: float, *, of_group: bool) -> float:
        """The cycles of so many multiplications of this type on tensor cores, by instructions of warpgroups or of warps."""
        rate = self.products.get(dtype, self.products["f16"])
        return count / (rate if of_group else rate * self.of_warps)


_KB = 1024


def _rates(half: float, f64: float, byte: float = 2.0) -> dict[str, float]:
    """From those of f16: as many of bf16, half as many of tf32, and of bytes and floats of 8 bits so many times as many."""
    bytes_, octets = dict.fromkeys(("i8", "u8"), byte * half), dict.fromkeys(("f8e4m3", "f8e5m2"), 2.0 * half)
    return {"f16": half, "bf16": half, "f32": half / 2, "f64": f64, **bytes_, **octets}


MACHINES = {
    80: Machine(64, 32, 164 * _KB, 10.2, _rates(1024, 64), 1.0, 2.0),  # A100: 1555 GB/s, 1.41 GHz, 108; 312 TFLOP/s
    86: Machine(48, 16, 100 * _KB, 6.7, _rates(256, 2, 4)),  # RTX 3090: 936 GB/s, 1.70 GHz, 82; 71 TFLOP/s
    89: Machine(48, 24, 100 * _KB, 3.1, _rates(256, 2, 4)),  # RTX 4090: 1008 GB/s, 2.52 GHz, 128; 165 TFLOP/s
    90: Machine(64, 32, 228 * _KB, 14.5, _rates(2048, 128), 0.62),  # H100 SXM: 3350 GB/s, 1.755 GHz, 132; 989 TFLOP/s
}
"""By compute capability, 80 for 8.0. The rates of tensor cores are those of NVIDIA's papers on the architectures; the share
of an instruction of a warp on the last is the one that Luo et al. measured (Benchmarking and Dissecting the Nvidia Hopper
GPU Architecture via Microbenchmarking, 2024)."""


def machine_of(cpu: str) -> Machine:
    """The multiprocessor of a GPU, `sm_80`; of the last one before it that is known."""
    number = number_of(cpu)
    return MACHINES[max((n for n in MACHINES if n <= number), default=min(MACHINES))]
