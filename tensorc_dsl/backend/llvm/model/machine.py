"""What a processor does in a cycle: a dozen numbers, measured once on a machine and kept under its name.

They are measured in a second or two, with chains in registers and with loads and stores over memory of several sizes (after
McCalpin's STREAM, 1995, and lmbench, McVoy & Staelin, USENIX 1996). For another machine than this one, and before the first
measurement, they are those of a common core with the target's vectors and caches.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path

from tensorc_dsl.backend.llvm.codegen.machine import host_processor
from tensorc_dsl.backend.llvm.model.traffic import PAGE, Level
from tensorc_dsl.backend.llvm.runtime.peak import (
    ADD,
    DIVIDE,
    FMA,
    SUMS,
    chained,
    copies,
    crossing,
    nothing_seconds,
    start_seconds,
)
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.ir.target import CACHE_LINE, Target
from tensorc_dsl.processes.machine import usable_cores

VERSION = 3
"""Counts changes of what the numbers mean."""

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

LOOKS = 2
"""How often a machine is measured, when a search or the choice of a first schedule begins."""

_TIMES = frozenset({"latency", "sum", "divide", "page", "walk", "ending", "start"})

LARGEST = 256 << 20
"""The most bytes over which memory is measured."""


@frozen
class Machine:
    """A core, in cycles. Loads, stores and operations are those of native vectors, and sizes are bytes.

    `hertz`: cycles in a second. `fmas`, `loads`, `stores`: how many start in a cycle. `issue`: micro-operations in a cycle.
    `latency`: from an FMA to one that takes its result, `sum` the same of sums. `divide`: of a vector. `l2`, `l3`,
    `memory`: bytes in a cycle that come from there to one core, `shared` from memory to all cores together. `page`: for a
    page that the first translation buffer does not have, `walk` one that the second has not. `ending`: of a loop, about,
    for its last branch. `window`: micro-operations that wait in the schedulers for what they depend on: where a chain fills
    them, no later round begins. `start`: until threads run and are done. `ways` are those of the sets of the three caches,
    `pages` the entries of both buffers.
    """

    hertz: float = 3.0e9
    fmas: float = 2.0
    loads: float = 2.0
    stores: float = 1.0
    issue: float = 5.0
    latency: float = 4.0
    sum: float = 4.0
    divide: float = 8.0
    l2: float = 40.0
    l3: float = 12.0
    memory: float = 5.0
    shared: float = 15.0
    page: float = 1.5
    walk: float = 8.0
    ending: float = 3.0
    window: float = 100.0
    start: float = 10_000.0
    l1_ways: float = 8.0
    l2_ways: float = 8.0
    l3_ways: float = 16.0
    pages: float = 64.0
    more_pages: float = 1536.0

    def levels(self, target: Target) -> tuple[Level, ...]:
        """The three caches and the two translation buffers."""
        return (
            Level("L1", CACHE_LINE, max(1, target.l1 // CACHE_LINE), int(self.l1_ways)),
            Level("L2", CACHE_LINE, max(1, target.l2 // CACHE_LINE), int(self.l2_ways)),
            Level("L3", CACHE_LINE, max(1, target.l3 // CACHE_LINE), int(self.l3_ways)),
            Level("TLB", PAGE, int(self.pages), int(self.pages)),
            Level("second TLB", PAGE, int(self.more_pages), int(self.more_pages)),
        )


def machine_of(target: Target) -> Machine:
    """What is known of the target's processor: what was measured, if it is this machine's, else a common core."""
    found = _known().get(_name(target))
    return Machine() if found is None else found.machine


def measured(target: Target) -> Machine:
    """What is known of this machine, measured now if it was not `LOOKS` times before: the better of each number, since other
    work on the machine can only make it worse. What is known of a target that is not this machine's is not measured."""
    known, name = _known(), _name(target)
    if not name:  # another machine's
        return machine_of(target)
    old = known.get(name)
    if old is None or old.looks < LOOKS:
        new = _measure(target)
        known[name] = _Known(1, new) if old is None else _Known(old.looks + 1, _better(old.machine, new))
        _keep(known)
    return known[name].machine


def keep_common(target: Target) -> None:
    """This machine is taken for a common core: nothing is measured from now on."""
    known = _known()
    known[_name(target)] = _Known(LOOKS, Machine())
    _keep(known)


def forget() -> None:
    """What is kept is read again at the next question."""
    _known.cache_clear()


def _better(one: Machine, other: Machine) -> Machine:
    """The higher of all rates, and the lower of all times."""
    a, b = asdict(one), asdict(other)
    return Machine(**{name: (min if name in _TIMES else max)(a[name], b[name]) for name in a})


def _name(target: Target) -> str:
    """The processor under which numbers are kept: its name, vectors and caches."""
    here = host_processor()
    mine = here.name == target.cpu and not target.triple
    return f"{target.cpu} {target.vector_bits} {target.l1} {target.l2} {target.l3}" if mine else ""


def facts(machine: Machine) -> Mapping[str, float]:
    """The numbers by name."""
    return asdict(machine)


# The file in which measured numbers are kept.


def _file() -> Path:
    """Beside what other programs of the user keep, by the XDG Base Directory Specification."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.blake2b(f"{VERSION} {[f.name for f in fields(Machine)]}".encode(), digest_size=6).hexdigest()
    return Path(base) / "tensorc-dsl" / f"machines-{digest}.json"


@frozen
class _Known:
    looks: int
    machine: Machine


@cache
def _known() -> dict[str, _Known]:
    try:
        read = json.loads(_file().read_text(encoding="utf-8"))
        return {name: _Known(int(x["looks"]), Machine(**x["machine"])) for name, x in read.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return {}


def _keep(known: Mapping[str, _Known]) -> None:
    path = _file()
    text = json.dumps({name: asdict(x) for name, x in known.items()}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Output(path).write(text)
    except (OSError, TschedError):
        return  # it is measured again by the next process


# Measurements.


def _measure(target: Target) -> Machine:
    one, all_ = replace(target, cores=1), usable_cores()
    common = Machine()
    # A step of a chain of integer sums is two instructions of one cycle each.
    cycle = chained(SUMS, one, 1) / 2
    hertz = 1 / cycle
    latency = chained(FMA, one, 1) / cycle
    sum_ = chained(ADD, one, 1) / cycle / 2
    fmas = cycle / chained(FMA, one, 12)
    divide = chained(DIVIDE, one, 12) / cycle
    vector = target.vector_bits // 8
    nothing = nothing_seconds(one)
    issue = common.issue if nothing is None else cycle / nothing
    near = copies(one, 1, target.l1 // 2)
    loads = near["read"] * cycle / vector
    stores = near["copy"] / 2 * cycle / vector
    l2 = copies(one, 1, max(2 * target.l1, target.l2 // 2))["read"] * cycle
    l3 = copies(one, 1, max(2 * target.l2, min(target.l3 // 4, 4 * target.l2)))["read"] * cycle
    far = min(2 * target.l3, LARGEST)
    memory = copies(one, 1, far)["read"] * cycle
    shared = memory if all_ == 1 else copies(target, all_, far)["read"] * cycle
    page, walk = (crossing(one, n) / cycle for n in (512, 4096))
    start = common.start if all_ == 1 else start_seconds(target, all_) / cycle
    ways = [_ways(level) or old for level, old in ((1, common.l1_ways), (2, common.l2_ways), (3, common.l3_ways))]
    return replace(
        common, hertz=hertz, fmas=fmas, loads=loads, stores=stores, issue=issue, latency=latency, sum=sum_, divide=divide,
        l2=l2, l3=min(l3, l2), memory=min(memory, l3), shared=max(shared, memory), page=max(0.5, page - 1 / loads),
        walk=max(1.0, walk - CACHE_LINE / l2), start=start, l1_ways=ways[0], l2_ways=ways[1], l3_ways=ways[2],
    )  # fmt: skip


def _ways(level: int) -> float | None:
    """The ways of a set of the data cache of a level; None if the system does not tell."""
    for folder in sorted(CACHES.glob("index*")):
        try:
            own, kind = int((folder / "level").read_text()), (folder / "type").read_text().strip()
            ways = int((folder / "ways_of_associativity").read_text())
        except (OSError, ValueError):
            continue
        if own == level and kind != "Instruction" and ways > 0:
            return float(ways)
    return None
