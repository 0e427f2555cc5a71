"""What the accesses of a kernel move between the levels of memory, by what each loop touches.

A level keeps what one iteration of a loop touches where that fits: then all iterations of the loop bring in together what
the loop touches, each line once. Where it does not fit, each iteration brings in its own (Wolf & Lam, A Data Locality
Optimizing Algorithm, PLDI 1991, section 3). Caches have sets, so lines at distances of powers of two fit less often (Hill &
Smith, Evaluating Associativity in CPU Caches, 1989); pages of translation buffers are counted as lines are. Between what
surely fits and what surely does not, shares are taken.

Calls follow each other on the same arrays, as they are timed: what the whole kernel touches may be there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, log, prod

from tensorc_dsl.backend.llvm.model.counts import Access, Counted, Nest
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import CACHE_LINE

PAGE = 4096
"""The bytes of a page."""

FULL, OVER = 0.6, 1.5
"""What takes the first share of a level is kept, and what takes the second is not."""


@frozen
class Level:
    """What keeps lines or pages of `unit` bytes: so many, in sets of `ways`."""

    name: str
    unit: int
    count: int
    ways: int

    @property
    def sets(self) -> int:
        return max(1, self.count // max(1, self.ways))


@frozen
class Reach:
    """What an access touches in some of its loops: lines, pages, the runs of lines that follow each other, and the most
    lines of a set for each level."""

    lines: float
    pages: float
    runs: float
    filled: tuple[float, ...]


@dataclass(slots=True)
class Moved:
    """What comes into a level for a nest in all its rounds: units, and runs of those that follow each other."""

    units: float = 0.0
    runs: float = 0.0


def reach_of(access: Access, inner: Sequence[tuple[int, float]], loops: Sequence[tuple[int, float]],
             levels: Sequence[Level]) -> list[Reach]:  # fmt: skip
    """What an access touches inside of each of the loops around it, outermost first, the whole nest first; the last is one
    round. A loop is its place and its count."""
    parts: list[list[float]] = [[1.0, 1.0]]
    steps, size, random = access.steps, access.size, access.random
    for step, count in sorted((abs(steps.get(place, 0.0)), count) for place, count in inner):
        if step and count > 1:
            _grow(parts, step, count)
    points = 1.0
    out = [_reach(access, parts, levels)]
    for place, count in reversed(loops):
        step = abs(steps.get(place, 0.0))
        if random:
            points = min(size, points * max(count, 1.0))
            lines = min(points, max(1.0, size * access.bytes_ / CACHE_LINE))
            pages = min(points, max(1.0, size * access.bytes_ / PAGE))
            out.append(
                Reach(lines, pages, lines, tuple(lines * CACHE_LINE / (level.count * level.unit) for level in levels))
            )
        elif step and count > 1:
            _grow(parts, step, count)
            out.append(_reach(access, parts, levels))
        else:
            out.append(out[-1])
    out.reverse()
    return out


def _grow(parts: list[list[float]], step: float, count: float) -> None:
    """Add a loop to the distances and counts of what is touched: it continues what is there, or repeats it."""
    if step < 1:  # several iterations share an element
        parts[0][1] += (count - 1) * step
    else:
        for part in reversed(parts):
            times = step / part[0]
            if 1 <= times <= part[1] and times == int(times):
                part[1] += (count - 1) * times
                break
        else:
            parts.append([step, count])
            parts.sort()
    # What has grown may reach what repeats it.
    k = 0
    while k + 1 < len(parts):
        times = parts[k + 1][0] / parts[k][0]
        if times <= parts[k][1] and times == int(times):
            parts[k][1] += (parts[k + 1][1] - 1) * times
            del parts[k + 1]
        else:
            k += 1


def _reach(access: Access, parts: list[list[float]], levels: Sequence[Level]) -> Reach:
    size, bytes_ = access.size, access.bytes_
    span = min(parts[0][1], size) * bytes_
    lines, pages, runs = max(1.0, span / CACHE_LINE), max(1.0, span / PAGE), 1.0
    sets = lines
    apart_by: list[tuple[int, float]] = []
    within = span
    for step, count in parts[1:]:
        apart = step * bytes_
        if apart < CACHE_LINE:  # several steps share a line
            lines *= max(1.0, apart * count / CACHE_LINE)
        else:
            lines *= count
            runs *= count
            apart_by.append((int(apart), count))
        if within + apart * (count - 1) <= PAGE:
            within += apart * (count - 1)
        else:
            pages *= count if apart >= PAGE else max(1.0, count * apart / PAGE)
    most = max(1.0, size * bytes_ / CACHE_LINE)
    lines, runs = min(lines, most), min(runs, most)
    pages = min(pages, max(1.0, size * bytes_ / PAGE))
    filled: list[float] = []
    for level in levels:
        if level.unit == PAGE:
            filled.append(pages / level.count)
        elif not apart_by:
            filled.append(lines / level.count)
        else:
            all_ = level.count // level.ways or 1
            around, reached = all_ * CACHE_LINE, sets
            for apart, count in apart_by:
                reached *= min(count, around // gcd(apart, around))
            filled.append(lines / min(reached, all_) / level.ways)
    return Reach(lines, pages, runs, tuple(filled))


def traffic(counted: Counted, levels: Sequence[Level]) -> list[list[Moved]]:
    """For each nest, what comes into each level."""
    spans = counted.spans
    reaches: list[list[tuple[Access, list[Reach]]]] = []
    touched: dict[int, dict[str, Reach]] = {}
    """By loop (-1 for the kernel) and buffer: what one iteration touches at most."""
    for nest in counted.nests:
        loops = [(k, spans[k].count) for k in nest.loops]
        mine: list[tuple[Access, list[Reach]]] = []
        around = [touched.setdefault(k, {}) for k in (-1, *nest.loops)]
        for access in nest.accesses.values():
            inner = [(k, spans[k].count) for k in access.steps if spans[k].around == -2]
            found = reach_of(access, inner, loops, levels)
            mine.append((access, found))
            for there, reach in zip(around, found, strict=True):
                old = there.get(access.buffer)
                if old is None or reach.lines > old.lines:
                    there[access.buffer] = reach
        reaches.append(mine)
    needed = {loop: _needed(list(there.values()), levels) for loop, there in touched.items()}
    out = [[Moved() for _ in levels] for _ in counted.nests]
    for k, level in enumerate(levels):
        taken: dict[tuple[int, str], tuple[float, float, int, float]] = {}
        for n, (nest, mine) in enumerate(zip(counted.nests, reaches, strict=True)):
            scopes = _scopes(nest, counted, needed, k)
            for access, found in mine:
                for scope, depth, times, share in scopes:
                    reach = found[depth]
                    units = reach.pages if level.unit == PAGE else reach.lines
                    key = (scope, access.buffer)
                    amount = units * times * share * (2 if access.writes and level.unit == CACHE_LINE else 1)
                    runs = min(units, reach.runs) * times * share
                    old = taken.get(key)
                    # What another nest inside of the same loop brings in is there.
                    if old is None or amount > old[0]:
                        taken[key] = (amount, runs, n, share)
        for amount, runs, n, _ in taken.values():
            out[n][k].units += amount
            out[n][k].runs += runs
    return out


def _needed(there: list[Reach], levels: Sequence[Level]) -> list[float]:
    """The share of each level that so much takes; of the buffer whose lines share the fewest sets, that of these sets."""
    lines, pages = sum(r.lines for r in there), sum(r.pages for r in there)
    out: list[float] = []
    for k, level in enumerate(levels):
        if level.unit == PAGE:
            out.append(pages / level.count)
        else:
            worst = max(r.filled[k] - r.lines / level.count for r in there) if there else 0.0
            out.append(lines / level.count + worst)
    return out


def _scopes(
    nest: Nest, counted: Counted, needed: dict[int, list[float]], k: int
) -> list[tuple[int, int, float, float]]:
    """The loops whose iterations a level keeps, with the share to which it does beyond those outside of them: the place of
    the loop around which it is kept, its depth, and how often it is reached."""
    out: list[tuple[int, int, float, float]] = []
    before = _fits(needed[-1][k])
    times = nest.rounds / max(1e-9, prod(counted.spans[k].count for k in nest.loops))  # a guard may let fewer pass
    for depth, place in enumerate(nest.loops):
        if before >= 1.0:
            break
        fits = max(before, _fits(needed[place][k]))
        if fits > before:
            out.append((place, depth, times, fits - before))
            before = fits
        times *= counted.spans[place].count
    if before < 1.0:
        own = nest.loops[-1] if nest.loops else -1
        out.append((-2 - own, len(nest.loops), times, 1.0 - before))
    return out


def _fits(share: float) -> float:
    """To which share something is kept that takes this share of a level."""
    if share <= FULL:
        return 1.0
    if share >= OVER:
        return 0.0
    return 1.0 - log(share / FULL) / log(OVER / FULL)
