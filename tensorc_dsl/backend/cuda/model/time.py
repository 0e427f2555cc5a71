"""The cycles of kernels by a model: the slowest of what a multiprocessor does at once, or waiting that too few warps hide.

A roofline (Williams, Waterman, Patterson, Roofline, 2009) of instructions, tensor cores, shared memory, the second-level
cache and memory, with a bound by latency after Little's law: the warps that are there at one time wait for what each of them
does in turn (Volkov, Understanding Latency Hiding on GPUs, 2016). Latencies and rates are of the order of published ones (Jia
et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018). None was measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

from tensorc_dsl.backend.cuda.compiled import cpu_of
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, DeviceProgram, roles_in
from tensorc_dsl.backend.cuda.lower.pipelines import first_registers
from tensorc_dsl.backend.cuda.model.counts import SECTOR, Counted, counted
from tensorc_dsl.backend.cuda.runtime.driver import number_of
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import LANES

# What a multiprocessor has, by compute capability, and how many blocks of a kernel it runs at one time.


SPILLED = 255
"""The most registers of a thread; what needs more is in memory."""

_UNIT = 256
"""Registers are given to a warp in so many."""


@dataclass(frozen=True, slots=True)
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
    80: Machine(64, 32, 164 * _KB, 10.2, _rates(1024, 64)),  # A100: 1555 GB/s, 1.41 GHz, 108; 312 TFLOP/s
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


LAUNCH = 4000.0
"""The cycles from one kernel to the next, about 3 µs."""

ISSUED, CACHE = 4.0, 64.0
"""What a multiprocessor does in a cycle: instructions of warps, bytes from the second-level cache."""

NONE: Mapping[str, int] = {}
"""Registers of no kernel are known."""

SPARE = 32
"""The registers for addresses and what is under way, besides what a schedule keeps in them; as in `std.gpu.limits`."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cycles of a kernel, and what they are by each bound; `resident` blocks run on a multiprocessor at one time."""

    kernel: str
    resident: int
    instructions: float
    products: float
    shared: float
    cache: float
    memory: float
    latency: float

    @property
    def cycles(self) -> float:
        """The largest bound, and the launch."""
        if not self.resident:
            return inf
        return LAUNCH + max(self.instructions, self.products, self.shared, self.cache, self.memory, self.latency)


def estimates(p: DeviceProgram, target: Target, sizes: Sizes, known: Mapping[str, int] = NONE) -> tuple[Estimate, ...]:
    """The cycles of each kernel at these sizes, on the GPU of a target. `known` has registers of threads, by kernels."""
    machine = machine_of(cpu_of(target))
    resident = [machine.resident(k.threads, registers(k, known), k.shared_bytes) for k in p.kernels]
    return tuple(
        _estimate(p, k, counted(k, sizes, _bytes(p)), machine, n, target, sizes)
        for k, n in zip(p.kernels, resident, strict=True)
    )


def registers(k: DeviceKernel, known: Mapping[str, int]) -> int:
    """The registers of a thread, as `known`, or those for its private storage, and some to spare; as it begins, if roles
    change them."""
    if k.name in known:
        return known[k.name]
    if any(r.registers for r in roles_in(k.body)):
        return first_registers(k.threads)
    return SPARE + sum(-(-b.size * b.dtype.bytes // 4) for b in k.local)


def _bytes(p: DeviceProgram) -> dict[str, int]:
    return {x.name: x.dtype.bytes for x in (*p.params, *p.scratch)}


def _estimate(
    p: DeviceProgram, k: DeviceKernel, c: Counted, m: Machine, resident: int, target: Target, sizes: Sizes
) -> Estimate:
    blocks = prod(evaluate_size(n, sizes) for n in k.grid)
    most = -(-blocks // target.cores)
    share = most / max(blocks, 1)  # of the busiest multiprocessor
    warps = -(-k.threads // LANES)
    arrays = {x.name: prod(evaluate_size(n, sizes) for n in x.shape) for x in p.params}
    arrays |= {x.name: evaluate_size(x.size, sizes) for x in p.scratch}
    touched = sum(arrays[n] * _bytes(p)[n] for n in k.params)
    at_once = max(1, min(resident, most)) * warps
    return Estimate(
        k.name,
        resident,
        instructions=c.instructions * share / ISSUED,
        products=share * sum(m.product_cycles(t, n, of_group=group) for (t, group), n in c.products.items()),
        shared=c.passes * share,
        cache=c.sectors * SECTOR * share / CACHE,
        memory=min(touched, c.sectors * SECTOR) / (m.memory_rate * target.cores),
        latency=c.waiting * share / at_once,
    )
