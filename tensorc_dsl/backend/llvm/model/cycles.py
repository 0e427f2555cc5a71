"""The time of a kernel, nest by nest: the longest of what its ports, its chain of sums and each level of memory take. It is
said in words, with what would help, and in numbers for a search.

A search is told as many numbers for every structure (`features`): the sums of the nests; the nests that take longest by the
model are described one by one. All numbers are logarithms to base 2, shares or ratios, comparable between shapes of one
computation. What the machine makes of them is in `time` and in the shares by bound alone, so that times of other machines
tell something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log2

from tensorc_dsl.backend.llvm.model.bounds import BOUNDS, Cost, costs_on
from tensorc_dsl.backend.llvm.model.counts import BYTES_OF_CODE, counted
from tensorc_dsl.backend.llvm.model.machine import Machine, machine_of
from tensorc_dsl.backend.llvm.model.threads import alone, is_worth_threads, shared_out
from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import CACHE_LINE, Target
from tensorc_dsl.lower.flat import Kernel

KEPT = 1024
"""Kernels whose cost is kept."""


def costs(kernel: Kernel, target: Target, sizes: Sizes) -> tuple[Cost, ...]:
    """The cost of each nest of a call, in text order, on the threads that it starts; computed at the first request."""
    known, machine = _known(kernel), machine_of(target)
    key = (target, tuple(sorted(sizes.items())), machine)
    if key not in known:
        found = counted(shared_out(kernel, target, target.cores), target, sizes)
        few = target.cores > 1 and not kernel.dims and not is_worth_threads(found, target)
        known[key] = costs_on(found, alone(target) if few else target, machine)
    return known[key]


@by_identity(KEPT)
def _known(_kernel: Kernel) -> dict[tuple[object, ...], tuple[Cost, ...]]:
    return {}


def cycles(kernel: Kernel, target: Target, sizes: Sizes) -> float:
    """The cycles of a call, and of coming into it."""
    return ENTER + sum(c.cycles for c in costs(kernel, target, sizes))


ENTER = 30.0
"""Cycles of a call of a kernel that does nothing."""

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
    return numbers_of(costs(kernel, target, sizes), target)


def numbers_of(found: Sequence[Cost], target: Target) -> tuple[float, ...]:
    """A number for each of `COLUMNS`, of the nests of a kernel."""
    total = sum(c.cycles for c in found) or 1.0
    rounds = [c.nest.rounds * c.share for c in found]

    def all_of(each: list[float]) -> float:
        return _log(1 + sum(n * r for n, r in zip(each, rounds, strict=True)))

    ordered = sorted(found, key=lambda c: -c.cycles)
    first = ordered[0] if ordered else None
    out = [
        _log(ENTER + sum(c.cycles for c in found)),
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
        out += _features_of_nest(ordered[n], total, target) if n < len(ordered) else [0.0] * len(_OF_NEST)
    return tuple(out)


def _features_of_nest(c: Cost, total: float, target: Target) -> list[float]:
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


SHOWN = 0.01
"""Nests that take a smaller share of the time are summed up."""

NEAR = 0.1
"""Bounds below this share of a nest's time are not told."""


def _arithmetic(c: Cost, m: Machine) -> str:
    n = c.nest
    what = f"{_number(n.operations)} vector operations a round, {_number(n.fmas)} of them products with sums"
    divided = f", {_number(n.divisions)} divisions of {m.divide:.0f} cycles" if n.divisions else ""
    return f"{what}{divided}; {m.fmas:.1f} start in a cycle"


def _loads(c: Cost, m: Machine) -> str:
    n = c.nest
    more = [f"{_number(n.split)} of them cross a line"] if n.split else []
    more += [f"{_number(c.spills)} sums have no register and are loaded each time"] if c.spills else []
    more += [f"{_number(n.gathered)} lanes are moved one by one"] if n.gathered else []
    return ", ".join((f"{_number(n.loads)} loads a round, {m.loads:.1f} in a cycle", *more))


def _stores(c: Cost, m: Machine) -> str:
    more = f", {_number(c.spills)} sums without a register are stored each time" if c.spills else ""
    return f"{_number(c.nest.stores)} stores a round, {m.stores:.1f} in a cycle{more}"


def _front_end(c: Cost, m: Machine) -> str:
    return f"{_number(c.nest.instructions)} micro-operations a round, about {m.issue:.0f} in a cycle"


def _latency(c: Cost, m: Machine) -> str:
    n = c.nest
    waits = m.latency if n.chain * m.latency >= n.sums * m.sum else m.sum
    wanted = waits * m.fmas
    through = ", through memory" if n.through else ""
    chain = f"{_number(max(n.chain, n.sums))} sums a round wait for each other, {waits:.0f} cycles each{through}"
    return f"{chain}; {_number(n.kept)} sums run side by side, and {wanted:.0f} would fill the ports"


def _lines(level: int, name: str) -> Callable[[Cost, Machine], str]:
    def told(c: Cost, m: Machine) -> str:
        moved = c.moved[level].units * c.share * CACHE_LINE
        rate = (m.l2, m.l3, m.memory)[level]
        return f"{units.bytes_(moved)} come from {name}, {rate:.0f} bytes in a cycle"

    return told


def _pages(c: Cost, _: Machine) -> str:
    return f"{_number(c.moved[3].units * c.share)} accesses to pages that the translation buffer does not have"


def _endings(c: Cost, _: Machine) -> str:
    return f"loops of {_number(c.count)} iterations begin {_number(c.entries)} times"


def _threads(_: Cost, m: Machine) -> str:
    return f"threads start and are waited for, {m.start:,.0f} cycles"


_TOLD: Mapping[str, Callable[[Cost, Machine], str]] = dict(
    zip(
        BOUNDS,
        (
            _arithmetic, _loads, _stores, _front_end, _latency, _lines(0, "the second cache"),
            _lines(1, "the third cache"), _lines(2, "memory"), _pages, _endings, _threads,
        ),
        strict=True,
    )
)  # fmt: skip

HELP: Mapping[str, str] = {
    "arithmetic": "the ports are full: only fewer operations or wider vectors make it faster",
    "loads": "a larger tile in registers uses each loaded value more often",
    "stores": "keep sums in registers (`cache_write`), in a tile that fits them",
    "front end": "wider vectors or fewer scalar steps: what is computed once stands outside of the loop",
    "latency": "more sums side by side: a larger tile in registers, or partial sums (`rfactor`)",
    "L2": "smaller tiles, or a packed copy (`cache_read`), so that what a loop uses again stays in the first cache",
    "L3": "smaller tiles outside, so that what a loop uses again stays in the second cache",
    "memory": "each value should come from memory once: join nests (`compute_at`), or cut outer loops into tiles",
    "pages": "a packed copy (`cache_read`) puts what is used together into few pages",
    "loop ends": "longer innermost loops, or unrolled ones",
    "threads": "one parallel loop around more work",
}
"""What makes a nest faster that is bound so."""


def explained(kernel: Kernel, target: Target, sizes: Sizes) -> str:
    """What bounds each nest, for people."""
    found, machine = costs(kernel, target, sizes), machine_of(target)
    total = ENTER + sum(c.cycles for c in found)

    def time(cycles: float) -> str:
        return units.seconds(cycles / machine.hertz)

    threads = target.workers(target.cores)
    lines = [f"cost of `{kernel.name}` by the model: {time(total)} on {threads} at {machine.hertz / 1e9:.1f} GHz"]
    if machine == Machine():
        lines.append("(the processor was not measured: these are a common core's numbers)")
    rest = 0.0
    for c in sorted(found, key=lambda c: -c.cycles):
        if c.cycles < SHOWN * total:
            rest += c.cycles
            continue
        lines += ["", *_nest_explained(c, total, machine, time)]
    if rest:
        lines += ["", f"other nests: {time(rest)}"]
    return "\n".join(lines) + "\n"


def _nest_explained(c: Cost, total: float, machine: Machine, time: Callable[[float], str]) -> list[str]:
    takes = f"{time(c.cycles)}, {units.share(c.cycles / total)} of the call"
    lines = [
        f"nest that writes {c.nest.writes or 'nothing'}: {takes}, bound by {c.bound}",
        f"    {_number(c.nest.rounds)} rounds, {_number(c.count)} for each time that the loop begins",
    ]
    ordered = sorted(zip(BOUNDS, c.bounds, strict=True), key=lambda one: -one[1])
    for name, cycles in ordered:
        if cycles >= NEAR * c.cycles:
            lines.append(f"    {name:<10} {time(cycles):>9}   {_TOLD[name](c, machine)}")
    if c.tasks > 1 and (apart := imbalance(c)) > 0.02:
        tasks = f"{_number(c.tasks)} tasks of {c.workers:.0f} threads"
        lines.append(f"    imbalance: {tasks}, and the last thread has {units.share(apart)} more than the mean")
    lines.append(f"    what helps: {HELP[c.bound]}")
    return lines


def imbalance(c: Cost) -> float:
    """How much more rounds the thread has that is done last than the mean of all."""
    return max(0.0, c.share * c.workers - 1)


@frozen
class Reached:
    """Of a schedule, by the model: the share of its time that its arithmetic alone would take, and what takes the most of
    the rest, with its share."""

    share: float
    lost_to: str
    lost: float


def reached(kernel: Kernel, target: Target, sizes: Sizes) -> Reached:
    """What keeps a kernel from the peak."""
    found = costs(kernel, target, sizes)
    total = sum(c.cycles for c in found) or 1.0
    arithmetic = sum(c.nest.fmas * c.nest.rounds * c.share for c in found) / machine_of(target).fmas
    lost = dict.fromkeys(BOUNDS, 0.0)
    for c in found:
        lost[c.bound] += c.cycles - c.nest.fmas * c.nest.rounds * c.share / machine_of(target).fmas
    worst = max(lost, key=lambda name: lost[name])
    return Reached(min(1.0, arithmetic / total), worst, lost[worst] / total)


def lost(kernel: Kernel, target: Target, sizes: Sizes) -> str:
    """In a line, the share of the peak that the schedule cannot reach by the model, and why; "" where it reaches all."""
    found = reached(kernel, target, sizes)
    if found.lost < NEAR:
        return ""
    alone = f"by the model its products and sums alone would take {units.share(found.share)} of its time"
    return f"{alone}; most of the rest is lost to {found.lost_to} ({units.share(found.lost)}): {HELP[found.lost_to]}"


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 or x == int(x) else f"{x:.1f}"
