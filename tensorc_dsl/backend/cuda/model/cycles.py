"""The cycles of kernels on a GPU, by the slowest of what a multiprocessor does at once. Nothing is run.

The model ranks schedules; its cycles are no measurement. They are a roofline (Williams, Waterman, Patterson, Roofline, 2009)
of instructions, tensor cores, shared memory, caches and memory, with a bound by latency after Little's law: the warps that
are there at one time wait for what each of them does in turn (Volkov, Understanding Latency Hiding on GPUs, 2016).
Latencies and rates are of the order of published ones (Jia et al., Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking, 2018). None was measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, prod

from tensorc_dsl.backend.cuda.compiled import cpu_of
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel, DeviceProgram, roles_in
from tensorc_dsl.backend.cuda.lower.pipelines import first_registers
from tensorc_dsl.backend.cuda.model.counts import ACCESSES, FLOATS, INTEGERS, OTHERS, SECTOR, SPECIAL, counted
from tensorc_dsl.backend.cuda.model.issue import issued_instructions
from tensorc_dsl.backend.cuda.model.machine import Machine, machine_of
from tensorc_dsl.backend.protocol import Registers
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.sizes import Sizes, evaluate_size
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.warp import LANES

LAUNCH = 4000.0
"""The cycles from one kernel to the next, about 3 µs."""

ISSUED, CACHE = 4.0, 64.0
"""What a multiprocessor does in a cycle: instructions of warps, bytes from the second-level cache."""

NONE = Registers()
"""Nothing is known of the code."""

SPARE = 32
"""The registers for addresses and what is under way, besides what a schedule keeps in them; as in `std.gpu.limits`."""


BOUNDS = ("instructions", "products", "shared", "lines", "cache", "memory", "latency")
"""What may bound a kernel; `lines` is the first-level cache, which takes one line of a request in a cycle."""


@frozen
class Estimate:
    """The cycles of a kernel, and what they are by each bound; `resident` blocks run on a multiprocessor at one time."""

    kernel: str
    resident: int
    instructions: float
    products: float
    shared: float
    lines: float
    cache: float
    memory: float
    latency: float

    @property
    def cycles(self) -> float:
        """The largest bound, and the launch."""
        if not self.resident:
            return inf
        return LAUNCH + max(getattr(self, name) for name in BOUNDS)


def estimates(p: DeviceProgram, target: Target, sizes: Sizes, known: Registers = NONE) -> tuple[Estimate, ...]:
    """The cycles of each kernel at these sizes, on the GPU of a target. `known` is what its code says."""
    return tuple(max(_estimates(p, k, target, sizes, known), key=lambda e: e.cycles) for k in p.kernels)


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


def _estimates(p: DeviceProgram, k: DeviceKernel, target: Target, sizes: Sizes, known: Registers) -> Iterator[Estimate]:
    """The cycles of a kernel by an average block. Where no multiprocessor has a second one, by some that may have the most to
    do: the first of a persistent grid has a tile more than the last, which has the longest row of a causal mask."""
    m, of_bytes = machine_of(cpu_of(target)), _bytes(p)
    resident = m.resident(k.threads, registers(k, known.threads), k.shared_bytes)
    blocks, warps = prod(evaluate_size(n, sizes) for n in k.grid), -(-k.threads // LANES)
    most = -(-blocks // target.cores)  # of the busiest multiprocessor
    arrays = {x.name: prod(evaluate_size(n, sizes) for n in x.shape) for x in p.params}
    arrays |= {x.name: evaluate_size(x.size, sizes) for x in p.scratch}
    touched = sum(arrays[n] * of_bytes[n] for n in k.params)
    every = counted(k, sizes, of_bytes, m, approx=p.approx)
    alone = sorted({0, blocks // 2, blocks - 1}) if 1 < blocks <= target.cores else []
    for c, n in [(counted(k, sizes, of_bytes, m, approx=p.approx, block=n), 1) for n in alone] or [(every, blocks)]:
        share, own = most / max(n, 1), issued_instructions(c, known.loops.get(k.name, ()), n * warps)
        yield Estimate(
            k.name,
            resident,
            instructions=slots(own, m) * share,
            products=share * sum(m.product_cycles(t, n, of_group=group) for (t, group), n in c.products.items()),
            shared=c.passes * share,
            lines=c.lines * share,
            cache=c.sectors * SECTOR * share / CACHE,
            memory=min(touched, every.sectors * SECTOR) / (m.memory_rate * target.cores),
            latency=c.latency(own, pipes(m)) * most / max(1, min(resident, most)),
        )


def slots(own: Mapping[str, float], m: Machine) -> float:
    """The cycles in which a multiprocessor issues so many instructions of each class, by the fullest of its pipes."""
    return max(sum(own.values()), *(own.get(of, 0.0) * n for of, n in pipes(m).items())) / ISSUED


def pipes(m: Machine) -> dict[str, float]:
    """The cycles that an instruction of a warp takes a quarter of a multiprocessor, by class; accesses have a pipe in common.
    CUDA C++ Programming Guide, "Arithmetic Instructions"."""
    return {FLOATS: m.floats, INTEGERS: 2.0, SPECIAL: 8.0, ACCESSES: ISSUED, OTHERS: 1.0}


def explained(found: tuple[Estimate, ...]) -> str:
    """What bounds each kernel, for people."""
    lines: list[str] = []
    for e in found:
        by = {name: float(getattr(e, name)) for name in BOUNDS}
        worst = max(by, key=lambda name: by[name])
        runs = f"{e.resident} blocks on a multiprocessor" if e.resident else "no block fits on a multiprocessor"
        lines.append(f"kernel {e.kernel}: about {e.cycles:,.0f} cycles, {runs}, bound by {worst}")
        lines += [f"    {name:<12} {n:>12,.0f}" for name, n in sorted(by.items(), key=lambda one: -one[1]) if n]
    return "\n".join(lines) + "\n"
