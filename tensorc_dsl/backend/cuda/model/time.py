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
from tensorc_dsl.backend.cuda.lower.roles import first_registers
from tensorc_dsl.backend.cuda.model.counts import SECTOR, Counted, counted
from tensorc_dsl.backend.cuda.model.machines import Machine, machine_of
from tensorc_dsl.ir.bind import Sizes, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import LANES

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
