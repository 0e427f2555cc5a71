"""What a multiprocessor has, by compute capability, and how many blocks of a kernel it runs at one time."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.cuda.runtime.facts import number_of
from tensorc_dsl.ir.warp import LANES

SPILLED = 255
"""The most registers of a thread; what needs more is in memory."""

_UNIT = 256
"""Registers are given to a warp in so many."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A multiprocessor: the warps, blocks, registers and bytes of shared memory for blocks that are there at one time, and
    the bytes of memory that each of them can have in a cycle if all read at once.

    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; a block takes 1 KB of shared memory for
    the system. The rate is that of the GPU named: its memory's, by its boost clock and its multiprocessors.
    """

    warps: int
    blocks: int
    shared: int
    memory_rate: float
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


_KB = 1024

MACHINES = {
    80: Machine(64, 32, 164 * _KB, 10.2),  # A100: 1555 GB/s, 1.41 GHz, 108
    86: Machine(48, 16, 100 * _KB, 6.7),  # RTX 3090: 936 GB/s, 1.70 GHz, 82
    89: Machine(48, 24, 100 * _KB, 3.1),  # RTX 4090: 1008 GB/s, 2.52 GHz, 128
    90: Machine(64, 32, 228 * _KB, 14.5),  # H100 SXM: 3350 GB/s, 1.755 GHz, 132
}
"""By compute capability, 80 for 8.0."""


def machine_of(cpu: str) -> Machine:
    """The multiprocessor of a GPU, `sm_80`; of the last one before it that is known."""
    number = number_of(cpu)
    return MACHINES[max((n for n in MACHINES if n <= number), default=min(MACHINES))]
