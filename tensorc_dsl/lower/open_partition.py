"""Cuts loops over open extents at the iterations where their guards change, as `partition` does for numbers.

A guard over a loop variable `v` is `f*v + rest + r < 0`, with `r` in an interval from the inner loops and `rest` known
where the loop begins. It holds always below `ceil(-(rest + high) / f)` and never from `ceil(-(rest + low) / f)` on.
So the full tiles of a loop over `M` run unguarded, and its last tile, of which there is at most one, is a branch of its
own in which `v` is an expression over `M`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    CompareOp,
    Expr,
    Var,
    ceildiv,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    body_of,
    substituted,
)
from tensorc_dsl.lower.open_rows import holds_rows, is_row, kept
from tensorc_dsl.lower.ranges import within
from tensorc_dsl.proof.sets.linear_forms import Context, Interval, Linear, Ranges, difference, joined, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, dim_conditions, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts, prove, simplify

SHORT_NEST = 2048
"""The number of runs of its stores up to which a nest keeps its guards, since it may be unrolled as a whole."""

COPIES = 8
"""The number of copies of a statement that all cuts together may make; further guards stay guards."""

_STRICT: dict[CompareOp, tuple[int, bool]] = {"<": (0, True), "<=": (-1, True), ">=": (0, False), ">": (-1, False)}
"""`x op 0` as `x + d < 0` or `x + d >= 0`: the number d, and whether it is the first form."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Guards over a loop variable that change together. They hold always for values below `sure` and never from
    `maybe` on; or, unless `first`, always from `sure` on and never below `maybe`. At most `width` values lie between the
    two."""

    conds: frozenset[Expr]
    first: bool
    sure: Expr
    maybe: Expr
    width: int

    @property
    def single(self) -> bool:
        """Whether at most one value lies between the two."""
        return self.width <= 1


def partition_open(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The same stores in the same order, with loops cut where a guard over open dimensions changes.

    The masks of rows are left to `cut_open_rows`.
    """
    return _partition(body, {}, 1, kept(body))


def _partition(body: tuple[Flat, ...], known: Ranges, copies: int, registers: frozenset[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case If() | Alloc() | Instruction() | Collective() | Shuffle():
                out.append(replace(s, body=_partition(s.body, known, copies, registers)))
            case Loop():
                out.extend(_loop(s, known, copies, registers))
            case Parallel():
                out.append(_parallel(s, known, copies, registers))
    return tuple(out)


def _loop(
    s: Loop, ranges: Ranges, copies: int, registers: frozenset[str], tried: frozenset[Expr] = frozenset()
) -> tuple[Flat, ...]:
    inside = within(ranges, s)
    cut = _find(s.var, s.body, inside, registers, tried) if copies * 2 <= COPIES and _worth_cutting(s) else None
    if cut is None:
        return (replace(s, body=_partition(s.body, inside, copies, registers)),)
    out: list[Flat] = []
    for begin, end, body, single in _pieces(cut, s.begin, s.end, s.body, inside):
        if single:
            here = tuple(substituted(x, {s.var: begin}) for x in body)
            out.append(If(Compare("<", begin, end), _partition(here, ranges, copies * 2, registers)))
        else:
            piece = replace(s, begin=begin, end=end, body=body)
            out.extend(_loop(piece, ranges, copies * 2, registers, tried | cut.conds))
    return tuple(out)


def _worth_cutting(s: Loop) -> bool:
    """Whether a loop should be cut. Short nests keep their guards: after a cut they would have no constant number of
    iterations and could not be unrolled, and nests that access registers must be."""
    n = _iterations(s)
    return n is None or (s.kind is LoopKind.SERIAL and n > SHORT_NEST)


def _iterations(s: Flat) -> int | None:
    """The number of runs of the most frequent store inside; None if that is open."""
    inside = [_iterations(x) for x in body_of(s)]
    if None in inside:
        return None
    most_inside = max((n for n in inside if n is not None), default=1)
    if isinstance(s, Loop):
        begin, end = constant(s.begin), constant(s.end)
        return None if begin is None or end is None else (end - begin) * most_inside
    return most_inside


def _parallel(s: Parallel, ranges: Ranges, copies: int, registers: frozenset[str]) -> Parallel:
    """A parallel loop stays one loop, and its pieces become branches inside it, so that threads start and join once."""
    branches = _branches(list(zip(s.vars, s.extents, strict=True)), s.body, within(ranges, s), copies, registers)
    return replace(s, body=branches)


def _branches(
    loops: list[tuple[str, Expr]],
    body: tuple[Flat, ...],
    ranges: Ranges,
    copies: int,
    registers: frozenset[str],
    tried: frozenset[Expr] = frozenset(),
) -> tuple[Flat, ...]:
    if not loops:
        return _partition(body, ranges, copies, registers)
    (var, extent), *rest = loops
    cut = _find(var, body, ranges, registers, tried) if copies * 2 <= COPIES else None
    if cut is None:
        return _branches(rest, body, ranges, copies, registers)
    out: list[Flat] = []
    for begin, end, part, single in _pieces(cut, ZERO, extent, body, ranges):
        conds = [Compare(">=", Var(var), begin)] if begin != ZERO else []
        conds += [Compare("<", Var(var), end)] if end != extent else []
        here = tuple(substituted(x, {var: begin}) for x in part) if single else part
        inner = _branches(rest if single else loops, here, ranges, copies * 2, registers, tried | cut.conds)
        guard = conjunction(tuple(conds))
        out.extend(inner if guard is None else (If(guard, inner),))
    return tuple(out)


Piece = tuple[Expr, Expr, tuple[Flat, ...], bool]
"""The begin and the end of a piece of a loop, its body, and whether it has at most one iteration."""


def _pieces(cut: Cut, begin: Expr, end: Expr, body: tuple[Flat, ...], ranges: Ranges) -> Iterator[Piece]:
    """The pieces of a loop in order, without those that are known to be empty."""
    near, far = (cut.sure, cut.maybe) if cut.first else (cut.maybe, cut.sure)
    near = between(near, begin, end, ranges)
    far = between(far, near, end, ranges)
    edges = (begin, near, far, end)
    middle = body if near != far else ()
    bodies = (_assume(body, cut.conds, cut.first), middle, _assume(body, cut.conds, not cut.first))
    for k, part in enumerate(bodies):
        if part and possible(Compare("<", edges[k], edges[k + 1]), ranges):
            yield edges[k], edges[k + 1], part, k == 1 and cut.single


def between(e: Expr, low: Expr, high: Expr, ranges: Ranges) -> Expr:
    """`e`, limited to the range from `low` to `high`."""
    if possible(Compare("<", e, low), ranges):
        e = simplify(Binary("max", e, low), ranges)
    return simplify(Binary("min", e, high), ranges) if possible(Compare(">", e, high), ranges) else e


def possible(cond: Expr, ranges: Ranges) -> bool:
    """Whether a condition over open dimensions and the variables around may hold."""
    known = prove(cond, ranges)
    if known is not None:
        return known
    limits: list[Expr] = [*dim_conditions(dims_in(cond))]
    for v in sorted(free_vars(cond) & ranges.keys()):
        low, high = ranges[v]
        limits += [] if low is None else [Compare(">=", Var(v), index(low))]
        limits += [] if high is None else [Compare("<=", Var(v), index(high))]
    try:
        return feasible({}, (cond, *limits))
    except NotAffine:
        return True


def _assume(body: tuple[Flat, ...], known: frozenset[Expr], holds: bool) -> tuple[Flat, ...]:
    """The body with guards that are known to hold, or not to, replaced."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        inner = _assume(s.body, known, holds)
        parts = conjuncts(s.cond) if isinstance(s, If) else ()
        if not known.isdisjoint(parts):
            rest = conjunction(tuple(c for c in parts if c not in known))
            if holds:
                out.extend(inner if rest is None else (If(rest, inner),))
        elif inner:
            out.append(replace(s, body=inner))
    return tuple(out)


def _find(
    var: str, body: tuple[Flat, ...], ranges: Ranges, registers: frozenset[str], tried: frozenset[Expr]
) -> Cut | None:
    """The first guard in the body, not in `tried`, that depends on open dimensions and the variable; with similar ones."""
    seen: dict[Expr, dict[str, Interval]] = {}
    for cond, inner in _guards(body, {}, registers, frozenset()):
        if cond not in tried and var in free_vars(cond) and dims_in(cond):
            hull = seen.setdefault(cond, dict(inner))
            for v, own in inner.items():
                hull[v] = joined(hull.get(v, own), own)
    cuts = [cut for cond, inner in seen.items() if (cut := cut_at(cond, var, inner, ranges)) is not None]
    if not cuts:
        return None
    alike = (x.conds for x in cuts if (x.first, x.sure, x.maybe) == (cuts[0].first, cuts[0].sure, cuts[0].maybe))
    return replace(cuts[0], conds=frozenset[Expr]().union(*alike))


def cut_at(cond: Expr, var: str, inner: Ranges, ranges: Ranges) -> Cut | None:
    """Where a condition begins or ceases to hold as a variable grows, for all values of the loops `inner`; None if it is not
    linear."""
    if not isinstance(cond, Compare) or dtype_of(cond.lhs) != INDEX or cond.op not in _STRICT:
        return None
    context = Context({**ranges, **inner})
    form = difference(cond.lhs, cond.rhs, context)
    shift, first = _STRICT[cond.op]
    factor = form.terms.get(var, 0)
    if factor < 0:
        # -(x + d) > 0 is x + d < 0 with the sign reversed: `<` becomes `>` and so on.
        shift, first = (-1, False) if (shift, first) == (0, True) else (0, False) if first else (-shift - 1, True)
        form, factor = form.times(-1), -factor
    own = {a: c for a, c in form.terms.items() if a != var and _names(a) & inner.keys()}
    rest = {a: c for a, c in form.terms.items() if a != var and a not in own}
    low, high = context.range_of_terms(own, 0)
    if factor == 0 or low is None or high is None or any(var in _names(a) for a in form.terms if a != var):
        return None
    fixed = Linear(rest, form.constant + shift)

    def where(r: int) -> Expr:
        """The least value of the variable for which `factor*v + fixed + r >= 0`."""
        return simplify(ceildiv(to_expr(fixed.plus_constant(r).times(-1)), index(factor)), ranges)

    below, above = where(high), where(low)
    sure, maybe = (below, above) if first else (above, below)
    return Cut(frozenset((cond,)), first, sure, maybe, -((low - high) // factor))


def _names(a: str | Expr) -> frozenset[str]:
    return frozenset((a,)) if isinstance(a, str) else free_vars(a)


def _guards(
    body: tuple[Flat, ...], inner: Ranges, registers: frozenset[str], later: frozenset[str]
) -> Iterator[tuple[Expr, Ranges]]:
    """Each guard in the body with the ranges of the loops in between, without those that are cut `later`: at a serial loop
    over rows inside, or as the mask of a row."""
    for s in body:
        match s:
            case Store():
                continue
            case If():
                for c in conjuncts(s.cond):
                    if later.isdisjoint(free_vars(c)):
                        yield c, inner
                yield from _guards(s.body, inner, registers, later)
            case Loop() if is_row(s, registers) or holds_rows(s, registers):
                yield from _guards(s.body, within(inner, s), registers, later | {s.var})
            case _:
                yield from _guards(s.body, within(inner, s), registers, later)
