"""What bounds a nest of a kernel: its cycles by ports, chains of sums, levels of memory and threads, on a machine.

A roofline of several roofs (Williams, Waterman, Patterson, Roofline, 2009) with the bounds of a core of Stengel et al., ECM
(Quantifying Performance Bottlenecks of Stencil Computations, ICS 2015): ports and front end after Fog's tables, the latency
of dependent sums, traffic between levels. What is bound by several of them takes longer than each, since they overlap in
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from tensorc_dsl.backend.llvm.model.counts import Counted, Nest
from tensorc_dsl.backend.llvm.model.machine import Machine
from tensorc_dsl.backend.llvm.model.traffic import Moved, traffic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import CACHE_LINE, Target

BOUNDS: tuple[str, ...] = (
    "arithmetic",
    "loads",
    "stores",
    "front end",
    "latency",
    "L2",
    "L3",
    "memory",
    "pages",
    "loop ends",
    "threads",
)
"""What can bound a nest, in the order in which its data come to it."""

OVERLAP = 2.0
"""The exponent of the sum of bounds: 1 if none overlapped with another, infinite if all did."""

OTHERS = 8.0
"""The most loops whose chains run side by side."""

SPREAD = 8.0
"""Sums that are loaded and stored for each one that has no register: LLVM moves whole ranges of a loop out of registers."""

HELD = 4.0
"""The most registers that values of a loop take which LLVM can load again instead."""

THROUGH = 5.0
"""Cycles of a value that goes through memory."""


@frozen
class Cost:
    """A nest, with its cycles by each of `BOUNDS`. Those of the last thread that is done: `share` is its part of all
    rounds.

    `entries` is how often its loop is begun, `spills` are sums without a register, `moved` what comes into each level, and
    `workers` the threads that share its rounds.
    """

    nest: Nest
    count: float
    share: float
    tasks: float
    workers: float
    entries: float
    spills: float
    moved: Sequence[Moved]
    bounds: tuple[float, ...]

    @property
    def cycles(self) -> float:
        """The largest bound, with what the others add to it."""
        core = max(self.bounds[:5])
        levels = sum(b**OVERLAP for b in self.bounds[5:9])
        return float((core**OVERLAP + levels) ** (1 / OVERLAP)) + self.bounds[9] + self.bounds[10]

    @property
    def bound(self) -> str:
        """The name of the largest bound."""
        return BOUNDS[max(range(len(BOUNDS)), key=lambda k: self.bounds[k])]


def costs_on(found: Counted, target: Target, machine: Machine) -> tuple[Cost, ...]:
    """The cost of each nest on a machine."""
    moved = traffic(found, machine.levels(target))
    starts = found.starts
    out: list[Cost] = []
    for nest, levels in zip(found.nests, moved, strict=True):
        inside = _inside(nest, found) if nest.has_loops else 0.0
        out.append(_cost(nest, levels, found, target, machine, starts / max(1, len(found.nests)), inside))
    return tuple(out)


def _inside(nest: Nest, found: Counted) -> float:
    """Micro-operations of the loops in a round of the nest."""
    depth = len(nest.loops)
    inner = [n for n in found.nests if len(n.loops) > depth and n.loops[:depth] == nest.loops]
    return sum(n.instructions * n.rounds for n in inner) / nest.rounds


def _cost(
    nest: Nest, moved: Sequence[Moved], found: Counted, target: Target, m: Machine, starts: float, inside: float
) -> Cost:
    spans = found.spans
    tasks = max(1.0, prod(spans[k].count for k in nest.loops if spans[k].threads))
    threads = min(target.cores, max((spans[k].threads for k in nest.loops), default=0))
    share = ceil(tasks / threads) / tasks if threads else 1.0
    rounds = nest.rounds * share
    spills = sums_without_registers(nest, target)
    more = spills
    operations = nest.operations - nest.divisions
    last = max(1.0, spans[nest.loops[-1]].count if nest.loops else 1.0)
    chain = max(1.0, nest.chain, nest.sums)
    instructions = nest.instructions + 2 * more * chain
    alone = (instructions + inside) * (last if nest.carried else 1.0)
    waits = max(nest.chain * m.latency, nest.sums * m.sum)
    # While a chain is waited for, the next one has begun, if there is one.
    begins = rounds / last if nest.carried else rounds
    aside = min(OTHERS, max(1.0, begins), 1.0 + m.window / max(1.0, alone))
    latency = (waits + nest.through * THROUGH) / aside
    entries = rounds / last if nest.is_loop and not nest.has_loops else 0.0
    parallel = min(float(threads), tasks) if threads else 1.0
    memory = min(m.memory, m.shared / parallel)
    bounds = (
        rounds * max(operations / m.fmas, nest.divisions * m.divide),
        rounds * (nest.loads + nest.split + more * chain) / m.loads,
        rounds * (nest.stores + more * chain) / m.stores,
        rounds * instructions / m.issue,
        rounds * latency,
        moved[0].units * share * CACHE_LINE / m.l2,
        moved[1].units * share * CACHE_LINE / m.l3 + moved[1].runs * share * JUMP,
        moved[2].units * share * CACHE_LINE / memory + moved[2].runs * share * JUMP,
        moved[3].units * share * m.page + moved[4].units * share * m.walk,
        entries * m.ending,
        starts * m.start if target.cores > 1 else 0.0,
    )
    return Cost(nest, last, share, tasks, parallel, entries, spills, moved, bounds)


JUMP = 8.0
"""Cycles for a run of lines that does not follow another one, as prefetchers do not know it."""


def sums_without_registers(nest: Nest, target: Target) -> float:
    """The sums that have no register: beside them are the vectors of one step, a factor, and what does not change."""
    if not nest.kept:
        return 0.0
    chain = max(1.0, nest.chain, nest.sums)
    vectors = min(nest.broadcasts, max(0.0, nest.loads - nest.broadcasts)) / chain
    live = nest.kept + vectors + 1 + min(nest.held, HELD)
    return min(nest.kept, SPREAD * max(0.0, live - target.vector_registers))
