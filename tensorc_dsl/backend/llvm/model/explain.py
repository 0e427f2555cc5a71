"""Says in words what bounds each nest of a kernel, by how much, and what would help; and what keeps it from the peak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorc_dsl.backend.llvm.model.cycles import BOUNDS, ENTER, Cost, costs
from tensorc_dsl.backend.llvm.model.machine import Machine, machine_of
from tensorc_dsl.base import units
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import CACHE_LINE, Target
from tensorc_dsl.lower.flat import Kernel

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
        lines += ["", *_of_nest(c, total, machine, time)]
    if rest:
        lines += ["", f"other nests: {time(rest)}"]
    return "\n".join(lines) + "\n"


def _of_nest(c: Cost, total: float, machine: Machine, time: Callable[[float], str]) -> list[str]:
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


@dataclass(frozen=True, slots=True)
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
