"""Describes a lowered kernel to a search: as many numbers for every structure.

The kernel has the sums of its nests; the nests that take longest by the model are described one by one. All numbers are
logarithms to base 2, shares or ratios, comparable between shapes of one computation. What the machine makes of them is in
`time` and in the shares by bound alone, so that times of other machines tell something.
"""

from __future__ import annotations

from math import log2

from tensorc_dsl.backend.llvm.model.counts import BYTES_OF_CODE
from tensorc_dsl.backend.llvm.model.cycles import BOUNDS, Cost, costs, cycles
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Kernel

DESCRIBED = 2
"""The nests that are described one by one: the two that take longest."""

_OF_KERNEL = (
    "time", "operations", "loads", "stores", "instructions", "chains", "divisions", "single lanes", "broadcasts", "spills",
    "l1 lines", "l2 lines", "l3 lines", "pages", "pages of walks", "jumps", "entries", "code", "nests", "nests with code",
    "tasks", "imbalance",
)  # fmt: skip
"""`time`: cycles of the model; it is the first, as searches know (`expansion.is_told`). Then what all nests do in all their
rounds: `operations` of arithmetic on vectors, loads and stores, micro-`instructions`, operations that wait for each other,
divisions, lanes that are moved one by one, scalars that are loaded into all lanes, sums without a register; lines that come
into each cache and pages into both translation buffers, and the `jumps` of them that do not follow another line; how often
innermost loops are begun; the bytes of code of the largest nest; how many nests there are, and how many take a hundredth of
the time; tasks of the largest nest, and how much longer its last thread takes than the mean."""

_OF_NEST = (
    "share", "rounds", "trips", "fmas", "other operations", "loads per operation", "stores per operation",
    "single lanes per operation", "shuffles", "broadcasts per load", "folded per load", "split per access", "chain", "sums",
    "registers", "spilled", "instructions", "narrow", "l1 lines per operation", "l2 lines per operation",
    "l3 lines per operation", "pages per operation", "jumps per line",
)  # fmt: skip
"""The `share` of the time; how many rounds, and rounds for each time that its loop begins; operations of a round, products
with sums and others; accesses for each of them; what must wait for each other in a round; sums in registers, registers that
are used for them, for values that stay and for factors, as a share of those there are, and sums without one; vectors that
are less than half full."""

COLUMNS = (
    *_OF_KERNEL,
    *(f"share of {bound}" for bound in BOUNDS),
    *(f"{name} of nest {n}" for n in range(1, DESCRIBED + 1) for name in _OF_NEST),
)
"""The names of the numbers, in their order. The shares by bound are those of the time of nests whose largest bound it
is."""


def features(kernel: Kernel, target: Target, sizes: Sizes) -> tuple[float, ...]:
    """A number for each of `COLUMNS`, at these sizes."""
    found = costs(kernel, target, sizes)
    total = sum(c.cycles for c in found) or 1.0
    rounds = [c.nest.rounds * c.share for c in found]

    def all_of(each: list[float]) -> float:
        return _log(1 + sum(n * r for n, r in zip(each, rounds, strict=True)))

    ordered = sorted(found, key=lambda c: -c.cycles)
    first = ordered[0] if ordered else None
    out = [
        _log(cycles(kernel, target, sizes)),
        all_of([c.nest.operations for c in found]),
        all_of([c.nest.loads for c in found]),
        all_of([c.nest.stores for c in found]),
        all_of([c.nest.instructions for c in found]),
        all_of([max(c.nest.chain, c.nest.sums) for c in found]),
        all_of([c.nest.divisions for c in found]),
        all_of([c.nest.gathered for c in found]),
        all_of([c.nest.broadcasts for c in found]),
        all_of([c.spills * max(1.0, c.nest.chain, c.nest.sums) for c in found]),
        *(_log(1 + sum(c.moved[k].units * c.share for c in found)) for k in range(5)),
        _log(1 + sum(c.moved[k].runs * c.share for c in found for k in (1, 2))),
        _log(1 + sum(c.entries for c in found)),
        _log(max((c.nest.instructions for c in found), default=1.0) * BYTES_OF_CODE),
        float(len(found)),
        float(sum(c.cycles > total / 100 for c in found)),
        _log(first.tasks if first else 1.0),
        0.0 if first is None or first.tasks <= 1 else first.share * first.workers - 1,
    ]
    out += [sum(c.cycles for c in found if c.bound == bound) / total for bound in BOUNDS]
    for n in range(DESCRIBED):
        out += _of_nest(ordered[n], total, target) if n < len(ordered) else [0.0] * len(_OF_NEST)
    return tuple(out)


def _of_nest(c: Cost, total: float, target: Target) -> list[float]:
    nest = c.nest
    operations = max(nest.operations, 1e-3)
    work = max(1.0, operations * nest.rounds)
    accesses = max(nest.loads + nest.stores, 1e-9)
    registers = nest.kept + min(nest.held, target.vector_registers) + 1
    lines = [m.units for m in c.moved]
    return [
        c.cycles / total,
        _log(nest.rounds),
        _log(c.count),
        _log(1 + nest.fmas),
        _log(1 + nest.operations - nest.fmas),
        min(8.0, nest.loads / operations),
        min(8.0, nest.stores / operations),
        min(8.0, nest.gathered / operations),
        _log(1 + nest.shuffles),
        nest.broadcasts / max(nest.loads, 1.0),
        nest.folded / max(nest.loads, 1.0),
        nest.split / accesses,
        _log(1 + max(nest.chain, nest.sums)),
        _log(1 + nest.kept),
        min(8.0, registers / target.vector_registers),
        _log(1 + c.spills),
        _log(nest.instructions),
        nest.narrow / accesses,
        *(_log(1e-4 + x / work) for x in lines[:4]),
        c.moved[1].runs / max(1.0, lines[1]),
    ]


def _log(x: float) -> float:
    return log2(max(x, 1e-9))
