"""Chooses kernels for ranges of open sizes, together, from candidates that were timed at a few sizes: one schedule selects.

The sizes that a call may have stand on a grid, at each point of which the time of every candidate is predicted
(`interpolation`). A box of the grid has the candidate that is best there, or is cut in two along a dimension: the tree of
cuts with at most so many leaves whose cost is the least is found exactly, by dynamic programming over boxes (as Bellman, "On
the approximation of curves by line segments", 1961, for one dimension). The cost is the mean time of a call where it is said
how often sizes occur. Otherwise it is how many times longer than the best candidate of its size a size takes: the mean, or
the worst case. Seconds for an operation would not do, since few operations take as long as a call: the smallest size would
be all that counts. As in DietCode (Zheng et al., MLSys 2022),
candidates are shared by all sizes, and none is measured for a size alone.

The draws of a case are decided anew, near what they were: a tile of 72 rows is no value of its draw where a case has 11
rows. The worst case is a choice among the same candidates, not another search, and records remain means.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise, product

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.print import format_range
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, broken_by
from tensorc_dsl.reference.work import Sizing, are_weighted, spread, work_at
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import FromText
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.interpolation import Predicted, places, predict
from tensorc_dsl.tuning.search.options import Objective

WORTH = 0.02
"""The share of the cost that a further kernel must save: less is within what a repeated measurement varies by."""

TRIED = 8
"""How many candidates of a range are tried, the fastest first: one whose steps need other sizes cannot be used for it. So
many of the fastest at each timed size are predicted at the others."""

POINTS = {1: 40, 2: 9, 3: 5}
"""Sizes of each dimension at which times are predicted, by the number of dimensions; `FEWEST` of more dimensions."""

FEWEST = 3

BEYOND = 4
"""Without a largest size, times are predicted up to so many times the largest one that was timed."""

BETWEEN = 64
"""Sizes between two points at which it is decided where neighbours part."""


@frozen
class Candidate:
    """A schedule, and the seconds of its kernel at each timed size."""

    trace: Trace
    seconds: tuple[float, ...]


@frozen
class Dispatch:
    """A schedule that selects. At most sizes of each case, the time by which it was chosen is `within` so large a share of
    the predicted one with probability 0.95."""

    trace: Trace
    within: float


Box = tuple[tuple[int, int], ...]
"""The first and the last place of a grid along each axis."""


@frozen
class Leaf:
    """A box of a grid, and the row of its candidate."""

    box: Box
    row: int


def grid_of(dims: Sequence[Dim], timed: Sequence[Sizes]) -> dict[str, list[int]]:
    """The sizes of each dimension at which times are predicted, ascending: the ends, those that are timed, and others at
    about equal steps of the logarithm. A dimension with one timed size has that alone."""
    several = [d for d in dims if len({x[d.name] for x in timed}) > 1]
    count = POINTS.get(len(several), FEWEST)
    out: dict[str, list[int]] = {}
    for d in dims:
        known = {x[d.name] for x in timed}
        if len(known) == 1:
            out[d.name] = [*known]
            continue
        low, high = max(d.low, 1), d.high or BEYOND * max(known)
        steps = max(1, count - len(known) - 1)
        between = {round(low * (high / low) ** (k / steps)) for k in range(steps + 1)}
        out[d.name] = sorted(known | {d.low, high} | between)
    return out


def leaves(cost: Array, most: int, objective: Objective) -> list[Leaf]:
    """The leaves of the tree of cuts through a grid with the least cost, at most `most` of them.

    `cost` has a row for each candidate, and an axis for each dimension. The cost of a box is the sum of its best row's, or
    their maximum for the worst case. A further leaf saves `WORTH` of the cost at least.
    """

    @cache
    def leaf(box: Box) -> tuple[float, int]:
        every = _of_box(cost, box, objective)
        row = int(np.argmin(every))
        return float(every[row]), row

    @cache
    def best(box: Box, count: int) -> tuple[float, tuple[Leaf, ...]]:
        total, row = leaf(box)
        found = total, (Leaf(box, row),)
        if count == 1:
            return found
        found = min(found, best(box, count - 1), key=lambda one: one[0])
        for axis, (first, last) in enumerate(box):
            for end in range(first, last):
                below = (*box[:axis], (first, end), *box[axis + 1 :])
                above = (*box[:axis], (end + 1, last), *box[axis + 1 :])
                for n in range(1, count):
                    (one, left), (other, right) = best(below, n), best(above, count - n)
                    joined = max(one, other) if objective == "worst" else one + other
                    if joined < found[0] * (1.0 - 1e-12):
                        found = joined, (*left, *right)
        return found

    whole = tuple((0, n - 1) for n in cost.shape[1:])
    ways = [best(whole, n) for n in range(1, most + 1)]
    chosen = min(ways, key=lambda way: way[0] / (1.0 - WORTH) ** (len(way[1]) - 1))
    return sorted(chosen[1], key=lambda one: one.box)


def contenders(candidates: Sequence[Candidate], weights: Sequence[float] | None) -> list[Candidate]:
    """The candidates that may be chosen for some sizes: the fastest at each timed size, and in the mean: of their times with
    the weights of the sizes, without these of how many times longer than the fastest they take."""
    seconds = np.array([c.seconds for c in candidates])
    mean = (seconds / seconds.min(axis=0)).mean(axis=1) if weights is None else seconds @ np.array(weights)
    columns = [*seconds.T, mean]
    kept = {int(n) for column in columns for n in np.argsort(column, kind="stable")[:TRIED]}
    return [candidates[n] for n in sorted(kept)]


def predicted_at(
    program: Program,
    timed: Sequence[Sizes],
    points: Sequence[Sizes],
    candidates: Sequence[Candidate],
    cycles: Callable[[Trace, Sizes], float | None],
) -> Predicted:
    """The seconds of candidates at points, by their seconds at the timed sizes and by what a model counts at both."""

    def row(trace: Trace, sizes: Sequence[Sizes], otherwise: Array) -> Array:
        found = [cycles(trace, x) for x in sizes]
        return otherwise if any(c is None or not 0 < c < math.inf for c in found) else np.array(found, dtype=np.float64)

    work, beyond = (np.array([float(work_at(program, x)) for x in sizes]) for sizes in (timed, points))
    there = np.array([row(c.trace, timed, work) for c in candidates])
    then = np.array([row(c.trace, points, beyond) for c in candidates])
    for n, (a, b) in enumerate(zip(there, then, strict=True)):
        if a is work or b is beyond:
            there[n], then[n] = work, beyond
    bases = [(there, then), (np.tile(work, (len(candidates), 1)), np.tile(beyond, (len(candidates), 1)))]
    return predict(places(timed), places(points), np.array([c.seconds for c in candidates]), bases)


def selected(
    program: Program,
    found: Sizing,
    candidates: Sequence[Candidate],
    most: int,
    expand: FromText,
    cycles: Callable[[Trace, Sizes], float | None],
    objective: Objective = "mean",
) -> Dispatch | None:
    """A schedule that selects among at most `most` of the candidates; None if one of them is as good for all sizes.

    `found` are the sizes of the candidates' seconds. `cycles` are those of a schedule by a model at some sizes, None without
    one.
    """
    timed = found.timed
    if not candidates or len(timed) < 2:
        return None
    by_time = objective == "mean" and are_weighted(program)
    few = contenders(candidates, found.weights if by_time else None)
    grid = grid_of(program.dims, timed)
    corners: list[Sizes] = [dict(zip(grid, x, strict=True)) for x in product(*grid.values())]
    occur = np.array([broken_by(program.dims, x) is None for x in corners])
    points = [x for x, there in zip(corners, occur, strict=True) if there]
    told = predicted_at(program, timed, points, few, cycles)
    seconds = told.seconds.copy()
    for column, x in enumerate(timed):
        seconds[:, points.index(x)] = [c.seconds[column] for c in few]
    each = seconds if by_time else seconds / seconds.min(axis=0)
    if objective == "mean":
        each = each * np.array(spread(program, found, points))
    cost, widths = np.zeros((2, len(few), len(corners)))  # sizes that do not occur cost nothing
    cost[:, occur], widths[:, occur] = each, told.within
    shape = tuple(map(len, grid.values()))
    cost, widths = (x.reshape(len(few), *shape) for x in (cost, widths))
    tree = leaves(cost, most, objective)
    dims = {d.name: d for d in program.dims}
    axes = [n for n, size in enumerate(cost.shape[1:]) if any(leaf.box[n] != (0, size - 1) for leaf in tree)]
    names = [[*grid][n] for n in axes]
    if len(tree) < 2 or (len(names) > 1 and any(dims[n].high is None for n in names)):
        return None
    ends = {n: [size - 1 for size in grid[n][1:]] for n in names}
    if len(names) == 1 and all(len(grid[n]) == 1 for n in grid if n not in names):
        for left, right in pairwise(tree):
            place, pair = left.box[axes[0]][1], (few[left.row], few[right.row])
            if occur[place] and occur[place + 1]:
                ends[names[0]][place] = _last_of(program, timed, pair, corners[place], corners[place + 1], cycles)
    cases: dict[str, Sequence[str]] = {}
    for leaf in tree:
        order = np.argsort(_of_box(cost, leaf.box, objective), kind="stable")
        every = [few[int(n)].trace for n in order[:TRIED]]
        ranges = [_range_in(dims[n], leaf.box[axis], ends[n]) for axis, n in zip(axes, names, strict=True)]
        sizes = ", ".join(ranges)
        if not cases and len(names) == 1 and timed[0][names[0]] == (low := dims[names[0]].low) and sizes != str(low):
            # The least size was timed: alone it is a number, which its loops are not guarded for.
            if alone := _applying(names, str(low), every[:1], expand):
                cases[str(low)] = alone
        lines = _applying(names, sizes, every, expand)
        if lines is None and len(names) == 1 and leaf is not tree[-1]:
            here, beyond = (x.box[axes[0]] for x in (leaf, tree[tree.index(leaf) + 1]))
            if wider := _with_next(dims[names[0]], here, beyond, ends[names[0]]):
                sizes = wider
                lines = _applying(names, sizes, every, expand)
        if lines is None:
            return None
        cases[", ".join("_" for _ in names) if leaf is tree[-1] else sizes] = lines
    try:
        trace = expand(text_of(few[0].trace, names, cases), {})
    except (TschedError, ScheduleRefusal):
        return None
    there = occur.reshape(shape)
    inside = [(leaf.row, tuple(slice(a, b + 1) for a, b in leaf.box)) for leaf in tree]
    found_in = [widths[row][box][there[box]] for row, box in inside]
    return Dispatch(trace, float(max(np.median(x) for x in found_in if len(x))))


def _of_box(cost: Array, box: Box, objective: Objective) -> Array:
    """The cost of a box for each candidate."""
    part = cost[(slice(None), *(slice(first, last + 1) for first, last in box))].reshape(len(cost), -1)
    return part.max(axis=1) if objective == "worst" else part.sum(axis=1)


def _last_of(
    program: Program,
    timed: Sequence[Sizes],
    pair: Sequence[Candidate],
    left: Sizes,
    right: Sizes,
    cycles: Callable[[Trace, Sizes], float | None],
) -> int:
    """The last size, from that of `left` to below that of `right`, of the first of two candidates, by what is predicted of
    both between."""
    (name,) = (n for n in left if left[n] != right[n])
    low, high = left[name], right[name] - 1
    step = max(1, (high - low) // BETWEEN)
    sizes = [n for n in range(low, high + 1, step) if n == low or broken_by(program.dims, {**left, name: n}) is None]
    told = predicted_at(program, timed, [{**left, name: n} for n in sizes], pair, cycles).seconds
    one, other = told / told.min(axis=0)
    # With the first candidate up to the place n, and the other one behind it.
    totals = np.cumsum(one) + (other.sum() - np.cumsum(other))
    place = int(np.argmin(totals))
    return high if place == len(sizes) - 1 else sizes[place + 1] - 1


def _range_in(dim: Dim, places: tuple[int, int], ends: Sequence[int]) -> str:
    """The sizes from one place of the grid to another as a case is written, by the last size of each place but the last."""
    first, last = places
    if first == 0 and last == len(ends):
        return "_"
    return format_range((ends[first - 1] + 1 if first else dim.low, ends[last] if last < len(ends) else dim.high))


def _with_next(dim: Dim, here: tuple[int, int], beyond: tuple[int, int], ends: list[int]) -> str | None:
    """The only size of a case, and the next one, which was of the case beyond; `ends` say so then. None if the case has
    others, or that one has no more.

    Steps that were made for an open size may name a loop that a number makes one of a single round, which is none.
    """
    first, last = here
    if ends[last] != (ends[first - 1] + 1 if first else dim.low):
        return None
    if ends[last] + 1 >= (ends[beyond[1]] if beyond[1] < len(ends) else dim.high or math.inf):
        return None
    ends[last] += 1
    return _range_in(dim, here, ends)


def _applying(names: Sequence[str], sizes: str, traces: Sequence[Trace], expand: FromText) -> Sequence[str] | None:
    """The steps, as lines, of the first of the traces whose steps apply at these sizes; None if there is none.

    Tiles that are larger than the largest of these sizes become smaller ones.
    """
    every = ", ".join("_" for _ in names)
    for trace in traces:
        opened = [_PIN.sub(r"\1", line) for line in trace.lines]
        try:
            # The other sizes have a case of no steps; after `_` there is none.
            cases = {sizes: opened} | ({} if sizes == every else {every: []})
            made = expand(text_of(trace, names, cases), trace.decisions)
        except (TschedError, ScheduleRefusal):
            continue
        if sizes == every:
            return made.lines
        if made.program.cases:
            lines = "\n".join(made.lines).split("\n")
            first = next(n for n, line in enumerate(lines) if line.strip() == f"{sizes} => {{")
            end = lines.index(lines[first][: -len(f"{sizes} => {{")] + "}", first)
            return textwrap.dedent("\n".join(lines[first + 1 : end])).split("\n")
    return None


_PIN = re.compile(r"(?<= ~ )(.*) := .*$")


def text_of(like: Trace, names: Sequence[str], cases: Mapping[str, Sequence[str]]) -> str:
    """A schedule with the name and the compute of a trace that selects by dimensions; the steps of each case are lines."""
    lines = [f"schedule {like.name} for {like.compute} {{", f"    select {', '.join(names)} {{"]
    for sizes, steps in cases.items():
        lines += [f"        {sizes} => {{", *(f"            {x}" for x in steps), "        }"]
    return "\n".join([*lines, "    }", "}"]) + "\n"
