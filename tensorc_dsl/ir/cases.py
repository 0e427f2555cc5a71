"""Programs that are divided by sizes: each case has a box of sizes, and the first one that has the sizes of a call runs.

A box has the least and the largest size of each of some dimensions; without a largest one there is no limit. What boxes leave
of others is computed exactly, so whether cases cover all sizes, and which sizes come to a case, is known and not searched.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.expr import Dim, index
from tensorc_dsl.ir.print import format_range
from tensorc_dsl.ir.problems import CASE_COUNT, CASE_SIZES, NO_CASE, NO_COUNTS
from tensorc_dsl.ir.program import Case, Program
from tensorc_dsl.ir.sizes import BEYOND, MOST_PARTS, Part, conditions_of, decided, halved, limited, with_sizes
from tensorc_dsl.syntax import tree as t

Range = tuple[int, int | None]
Box = tuple[Range, ...]
"""The least and the largest size of each dimension, both included."""


def _common(a: Range, b: Range) -> Range | None:
    low = max(a[0], b[0])
    ends = [n for n in (a[1], b[1]) if n is not None]
    high = min(ends, default=None)
    return None if high is not None and high < low else (low, high)


def common(a: Box, b: Box) -> Box | None:
    """The sizes that two boxes share; None if there are none."""
    parts = [_common(x, y) for x, y in zip(a, b, strict=True)]
    return tuple(p for p in parts if p is not None) if None not in parts else None


def without(boxes: Iterable[Box], taken: Box) -> list[Box]:
    """Boxes, none of which share sizes if those given do not, with the sizes of `boxes` that are not in `taken`."""
    out: list[Box] = []
    for box in boxes:
        inside = common(box, taken)
        if inside is None:
            out.append(box)
            continue
        rest = box
        for k, (low, high) in enumerate(inside):
            own_low, own_high = rest[k]
            if own_low < low:
                out.append((*rest[:k], (own_low, low - 1), *rest[k + 1 :]))
            if high is not None and (own_high is None or high < own_high):
                out.append((*rest[:k], (high + 1, own_high), *rest[k + 1 :]))
            rest = (*rest[:k], (low, high), *rest[k + 1 :])
    return out


def hull(boxes: Sequence[Box]) -> Box:
    """The smallest box that has all sizes of some boxes, at least one."""
    out: list[Range] = []
    for parts in zip(*boxes, strict=True):
        ends = [high for _, high in parts]
        out.append((min(low for low, _ in parts), None if None in ends else max(n for n in ends if n is not None)))
    return tuple(out)


def whole(dims: Iterable[Dim], names: Sequence[str]) -> Box:
    """All sizes of the dimensions of these names."""
    by_name = {d.name: d for d in dims}
    return tuple((by_name[n].low, by_name[n].high) for n in names)


def described(names: Sequence[str], box: Box) -> str:
    """Sizes for a message, `M = 1, N = 2..16`."""
    return ", ".join(f"{n} = {text}" for n, text in zip(names, map(format_range, box), strict=True))


def narrowed(program: Program, names: Sequence[str], box: Box) -> Program:
    """The program for the sizes of a box, each within the range of its dimension: a size that is one number is that number
    everywhere. Of a divided program the cases that have such sizes remain."""
    own = dims_within(program.dims, dict(zip(names, box, strict=True)))
    values = {
        d.name: index(new.low) if new.low == new.high else new
        for d in program.dims
        if (new := own[d.name]) != d or new.low == new.high
    }
    if not values:
        return program
    made = with_sizes(program, values)
    return _narrowed_cases(program, made, {n: (d.low, d.high) for n, d in own.items()}) if program.cases else made


def dims_within(dims: Collection[Dim], limits: Mapping[str, Range]) -> dict[str, Dim]:
    """The dimensions by name, some of them with other limits; the sizes that are timed are those that are left of all."""
    ranges = {d.name: limits.get(d.name, (d.low, d.high)) for d in dims}
    timed = [d for d in dims if d.at]  # at the first sizes together, then at the second ones
    together = len({len(d.at) for d in timed}) == 1
    out: dict[str, Dim] = {}
    for d in dims:
        beside = timed if together else [d]
        kept = [k for k in range(len(d.at)) if all(_in(x.at[k], ranges[x.name]) for x in beside)]
        weights = tuple(d.weights[k] for k in kept) if d.weights else ()
        low, high = ranges[d.name]
        out[d.name] = replace(d, low=low, high=high, at=tuple(d.at[k] for k in kept), weights=weights)
    return {d.name: d for d in limited(out.values(), conditions_of(dims))}


def _in(size: int, limits: Range) -> bool:
    return limits[0] <= size and (limits[1] is None or size <= limits[1])


def _narrowed_cases(program: Program, made: Program, ranges: Mapping[str, Range]) -> Program:
    """A divided program, `made` with narrower dimensions, with the cases that have sizes of these ranges; if that is one of
    them, its program."""
    names = program.divided_by
    limits = tuple(ranges[n] for n in names)
    still = [k for k, n in enumerate(names) if any(d.name == n for d in made.dims)]
    found: list[Case] = []
    rest: list[Box] = [limits]
    for case in program.cases:
        if left := [x for b in rest if (x := common(b, case.sizes)) is not None]:
            inside, rest = hull(left), without(rest, case.sizes)
            part = narrowed(case.program, (*ranges, *names), (*ranges.values(), *inside))
            found.append(Case(tuple(inside[k] for k in still), part))
    return divided(made, [names[k] for k in still], found)


def divided(program: Program, names: Sequence[str], cases: Sequence[Case]) -> Program:
    """The program with a case for each box of sizes; the program of the case if that is the only one and has the same ranges.
    Where not all sizes occur, a smaller box may have all that do."""
    ranges = whole(program.dims, names)
    if len(cases) == 1 and cases[0].sizes == ranges and all(low != high for low, high in ranges):
        return cases[0].program
    return replace(program, buffers=(), body=(), divided_by=tuple(names), cases=tuple(cases))


def uncovered(program: Program) -> Box | None:
    """Sizes that no case of a divided program has; None if there are none."""
    rest = [whole(program.dims, program.divided_by)]
    for case in program.cases:
        rest = without(rest, case.sizes)
    return next((box for box in rest if occurs(program.dims, program.divided_by, box)), None)


def occurs(dims: Collection[Dim], names: Sequence[str], box: Box) -> bool:
    """Whether some sizes of a box occur, by what the dimensions say beside their ranges: intervals decide it for the box, or
    for its halves."""
    conditions = conditions_of(dims)
    if not conditions:
        return True
    limits = dict(zip(names, box, strict=True))
    found = {d.name: limits.get(d.name, (d.low, d.high)) for d in dims}
    waiting: list[Part] = [{n: (low, BEYOND if high is None else high) for n, (low, high) in found.items()}]
    for _ in range(MOST_PARTS):
        if not waiting:
            return False
        part = waiting.pop()
        told = {c: decided(c, part) for c in conditions}
        if False in told.values():
            continue
        undecided = [c for c, met in told.items() if met is None]
        halves = halved(part, undecided) if undecided else None
        if halves is None:
            return True
        waiting += reversed(halves)
    return True


# The sizes of a case as they are written.


def box_of(sizes: Sequence[t.Expr], names: Sequence[str], at: Span) -> Box:
    """The sizes that a case is for: of each dimension a number, a range, or `_` for all. Raises TschedError (E0250)."""
    if len(sizes) != len(names):
        raise TschedError(CASE_COUNT(at, count=len(sizes), names=", ".join(names), wanted=", ".join("_" * len(names))))
    return tuple(_range_of(e) for e in sizes)


def _range_of(e: t.Expr) -> Range:
    match e:
        case t.Number(value=int(n)):
            return n, n
        case t.RangeExpr(low=t.Number(value=int(low)), high=t.Number(value=int(high))) if low <= high:
            return low, high
        case t.Wildcard():
            return 0, None
        case _:
            raise TschedError(CASE_SIZES(e.span, text=e.span.text))


def no_case(s: t.Select, box: Box) -> Diagnostic:
    """The finding that no case of a `select` has these sizes (E0561)."""
    lacking = ", ".join(map(format_range, box))
    return NO_CASE(s.span, sizes=described(tuple(map(str, s.names)), box), case=lacking)


def lacking(s: t.Select, dims: Collection[Dim]) -> Diagnostic | None:
    """The finding that some sizes of a task with these open dimensions have no case in a `select`, or in one at the end of a
    case; None where all have one, or where it selects by what is not open."""
    names = tuple(map(str, s.names))
    if {*names} - {d.name for d in dims if d.low != d.high}:
        return None
    rest = [whole(dims, names)]
    for case in s.cases:
        box = box_of(case.sizes, names, case.span)
        if left := [inside for b in rest if (inside := common(b, box)) is not None and occurs(dims, names, inside)]:
            rest = without(rest, box)
            own = dims_within(dims, dict(zip(names, hull(left), strict=True)))
            last = case.body[-1] if case.body else None
            if isinstance(last, t.Select) and (found := lacking(last, own.values())):
                return found
    return next((no_case(s, box) for box in rest if occurs(dims, names, box)), None)


# Sizes with weights, as they are written.


MOST_TIMED = 5
"""The most sizes at which kernels are timed for a list of how often sizes occur."""


def counts_of(e: t.Expr) -> dict[int, float]:
    """The weights by size that a map says, `{1: 20, 128: 5}`. Raises TschedError (E0254)."""
    found: dict[int, float] = {}
    if not isinstance(e, t.MapExpr):
        raise TschedError(NO_COUNTS(e.span, text=e.span.text, why="sizes with their weights are a map"))
    for key, value in e.items:
        match key, value:
            case t.Number(value=int(size)), t.Number(value=weight) if size not in found and 0.0 < weight < math.inf:
                found[size] = float(weight)
            case t.Number(value=int(size)), t.Number() if size in found:
                raise TschedError(NO_COUNTS(key.span, text=key.span.text, why="it is listed twice"))
            case t.Number(value=int()), _:
                raise TschedError(NO_COUNTS(value.span, text=value.span.text, why="a weight is a number above 0"))
            case _:
                raise TschedError(NO_COUNTS(key.span, text=key.span.text, why="a size is a whole number"))
    return found


def occurring(e: t.Expr, low: int, high: int) -> dict[int, float]:
    """Sizes with their weights, by what is said behind `like`: a map, or `geometric(20)`, for which a few stand for all.
    Raises TschedError (E0254)."""
    match e:
        case t.CallExpr(function=t.Name(id="geometric")):
            match e.args, e.kwargs:
                case (t.Number(value=mean),), () if 1.0 < mean < math.inf:
                    return geometric(float(mean), low, high)
                case _:
                    why = "a geometric distribution has a mean above 1, `geometric(20)`"
                    raise TschedError(NO_COUNTS(e.span, text=e.span.text, why=why))
        case _:
            return counts_of(e)


def geometric(mean: float, low: int, high: int) -> dict[int, float]:
    """A few sizes that stand for all from `low` to `high`, each of which occurs `1 - 1 / mean` times as often as
    the one before: without a largest size, from 1 on, they have this mean. Each stands for as many calls."""
    falls = math.log1p(-1.0 / mean)
    whole = -math.expm1(falls * (high - low + 1))
    found: dict[int, float] = {}
    for k in range(MOST_TIMED):
        size = low + math.floor(math.log1p(-whole * (k + 0.5) / MOST_TIMED) / falls)
        found[min(size, high)] = found.get(min(size, high), 0.0) + 1.0 / MOST_TIMED
    return found


def representatives(counts: Mapping[int, float], most: int = MOST_TIMED) -> dict[int, float]:
    """At most so many of the sizes, with the weights of those that they stand for: of neighbours that have about the same
    weight together, the one in its middle stands for all."""
    sizes = sorted(counts)
    if len(sizes) <= most:
        return {n: counts[n] for n in sizes}
    total, below = sum(counts.values()), 0.0
    groups: dict[int, list[int]] = {}
    for n in sizes:
        groups.setdefault(min(most - 1, int((below + counts[n] / 2) / total * most)), []).append(n)
        below += counts[n]
    found: dict[int, float] = {}
    for group in groups.values():
        weight = sum(counts[n] for n in group)
        passed = list(accumulate(counts[n] for n in group))
        found[next(n for n, upto in zip(group, passed, strict=True) if 2 * upto >= weight)] = weight
    return found
