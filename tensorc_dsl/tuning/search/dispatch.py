"""Chooses kernels for ranges of an open size, together, from candidates that were timed at a few sizes: one schedule selects.

Which candidate a timed size has, and where neighbours part, is one problem: the sizes in order are cut into ranges, and the
sum of the weighted times of the best candidate of each range is the least (a segmentation by dynamic programming, as in
Bellman, "On the approximation of curves by line segments", 1961). Where neighbours part between two timed sizes, times are
predicted: a kernel's time grows with the number of its tiles, so it is a line between those that were measured. As in
DietCode (Zheng et al., MLSys 2022), candidates are shared by all sizes, and none is measured for a size alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.print import format_range
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.gp import Array

WORTH = 0.02
"""The share of the time that a further kernel must save: less is within what a repeated measurement varies by."""

TRIED = 8
"""How many candidates of a range are tried, the fastest first: one whose steps need other sizes cannot be used for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule, and the seconds of its kernel at each timed size."""

    trace: Trace
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """The sizes of one dimension at which candidates were timed, ascending, with their weighted seconds there: a row for each
    candidate."""

    name: str
    sizes: tuple[int, ...]
    seconds: Array


def timed_along(
    program: Program, timed: Sequence[Sizes], weights: Sequence[float], candidates: Sequence[Candidate]
) -> Timed:
    """The times along the dimension that has the most different timed sizes, the first of several; those at one size of it
    are added."""
    counts = {d.name: len({x[d.name] for x in timed}) for d in program.dims}
    name = max(counts, key=lambda n: counts[n])
    sizes = sorted({x[name] for x in timed})
    seconds = np.zeros((len(candidates), len(sizes)))
    for row, c in enumerate(candidates):
        for x, weight, s in zip(timed, weights, c.seconds, strict=True):
            seconds[row, sizes.index(x[name])] += weight * s
    return Timed(name, tuple(sizes), seconds)


def segments(seconds: Array, most: int) -> list[tuple[int, int]]:
    """The first and the last column of each of at most `most` ranges, for the least sum of the best rows' sums. A further
    range saves `WORTH` at least."""
    count = seconds.shape[1]
    sums = np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
    cost = {(i, j): float((sums[:, j] - sums[:, i]).min()) for i in range(count) for j in range(i + 1, count + 1)}
    totals: list[tuple[float, list[tuple[int, int]]]] = [(cost[0, j], [(0, j - 1)]) for j in range(1, count + 1)]
    kept = totals[-1]
    for _ in range(min(most, count) - 1):
        totals = [
            min(
                [(total + cost[j, end], [*cut, (j, end - 1)]) for j, (total, cut) in enumerate(totals[: end - 1], 1)],
                default=totals[end - 1],
            )
            for end in range(1, count + 1)
        ]
        if totals[-1][0] >= (1.0 - WORTH) * kept[0]:
            break
        kept = totals[-1]
    return kept[1]


def last_of(left: int, right: int, here: Sequence[float], there: Sequence[float]) -> int:
    """The last size of the left one of two neighbours, from `left` to below `right`, by lines between their seconds at both:
    those of the left one are `here`, and of the right one `there`."""
    gains = there[0] - here[0], here[1] - there[1]
    if min(gains) < 0.0 or sum(gains) <= 0.0:
        return min(right - 1, math.isqrt(left * right))
    return min(right - 1, left + math.floor((right - left) * gains[0] / sum(gains)))


def selected(
    program: Program,
    timed: Sequence[Sizes],
    weights: Sequence[float],
    candidates: Sequence[Candidate],
    most: int,
    expand: Callable[[str], Trace],
) -> Trace | None:
    """A schedule that selects among at most `most` of the candidates; None if one of them is as good for all sizes.

    `timed` are the sizes of the candidates' seconds. `expand` makes the trace of a schedule for the program from its text; it
    raises TschedError for one that does not apply.
    """
    if not candidates or len(timed) < 2:
        return None
    along = timed_along(program, timed, weights, candidates)
    cuts = segments(along.seconds, most)
    if len(cuts) < 2:
        return None
    rows = [int(np.argmin(along.seconds[:, first : last + 1].sum(axis=1))) for first, last in cuts]
    ends = [
        last_of(
            along.sizes[a[1]],
            along.sizes[b[0]],
            [along.seconds[one, a[1]], along.seconds[one, b[0]]],
            [along.seconds[other, a[1]], along.seconds[other, b[0]]],
        )
        for (a, one), (b, other) in pairwise(zip(cuts, rows, strict=True))
    ]
    dim = next(d for d in program.dims if d.name == along.name)
    starts = [dim.low, *(end + 1 for end in ends)]
    ranges = [*map(format_range, zip(starts, ends, strict=False)), "_"]
    cases: dict[str, Trace] = {}
    for (first, last), sizes in zip(cuts, ranges, strict=True):
        order = np.argsort(along.seconds[:, first : last + 1].sum(axis=1), kind="stable")
        every = [candidates[int(n)].trace for n in order[:TRIED]]
        if not cases and along.sizes[0] == dim.low and sizes != str(dim.low):
            # The least size was timed: alone it is a number, which its loops are not guarded for.
            if alone := _applying(along.name, str(dim.low), every[:1], expand):
                cases[str(dim.low)] = alone
        found = _applying(along.name, sizes, every, expand)
        if found is None:
            return None
        cases[sizes] = found
    try:
        return expand(text_of(along.name, cases))
    except TschedError:
        return None


def _applying(name: str, sizes: str, traces: Sequence[Trace], expand: Callable[[str], Trace]) -> Trace | None:
    """The first of the traces whose steps apply at these sizes."""
    for trace in traces:
        try:
            # The other sizes have a case of no steps; after `_` there is none.
            made = expand(text_of(name, {sizes: trace} | ({} if sizes == "_" else {"_": None})))
        except TschedError:
            continue
        if made.program.cases or sizes == "_":
            return trace
    return None


def text_of(name: str, cases: Mapping[str, Trace | None]) -> str:
    """A schedule that selects by a dimension; the steps of a case are those of a trace, or none."""
    some = next(t for t in cases.values() if t is not None)
    lines = [f"schedule {some.name} for {some.compute} {{", f"    select {name} {{"]
    for sizes, trace in cases.items():
        lines += [f"        {sizes} => {{", *(f"            {x}" for x in (trace.lines if trace else ())), "        }"]
    return "\n".join([*lines, "    }", "}"]) + "\n"
