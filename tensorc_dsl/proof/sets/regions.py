"""Boxes of a buffer that accesses touch while some loops run, the preimage of a box, and which instances of a block run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd, prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    add,
    ceildiv,
    constant,
    free_vars,
    index,
    mul,
    sub,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.digits import Digit, digit, is_highest_digit, missing_digits, numeral, overlap
from tensorc_dsl.proof.sets.linear_forms import (
    Atom,
    Context,
    Interval,
    Linear,
    Ranges,
    depends_on_data,
    divide,
    linear,
    modulo,
    negate,
    to_expr,
)
from tensorc_dsl.proof.sets.sets import (
    NotAffine,
    extremes,
    facts_of,
    feasible,
    instance_map,
    loop_conditions,
    mapping,
    points,
)
from tensorc_dsl.proof.sets.simplify import extent_ranges, is_multiple, iter_ranges, simplify, simplify_where

# Computes the box of a buffer that a set of accesses touches while some loops run and others are fixed.
#
# The *inner* variables run over their ranges; every other variable (*outer*) is fixed and stays a symbol in the answer. For
# each subscript the values form `low + [0, width]`: `low` is a linear form over outer variables, `width` a number. Sums add
# both; floor division and modulo by a constant c use the known residue of `low` modulo c. An inner variable that occurs in
# two terms (or a modulo that wraps) makes the interval larger than the set of values, which it still contains. A datum is
# never fixed: a term that depends on data takes all of its values.


RangedSubscripts = tuple[tuple[Expr, ...], Ranges]
"""The subscripts of one access over loop variables, and the ranges of the inner variables (inclusive intervals)."""

Region = tuple[tuple[Expr, Expr], ...]
"""For each dimension the lower bound over outer variables, and the extent."""


def inner_ranges(loops: Iterable[For], outside: Collection[str]) -> dict[str, Interval]:
    """The ranges of the loops that are not `outside`, for `required_region`.

    A loop over an open extent gets no upper end: a box for its largest size would be wrong for other sizes.
    """
    ranges = extent_ranges(loops)
    for x in loops:
        if x.var in outside:
            del ranges[x.var]
        elif constant(x.extent) is None:
            ranges[x.var] = (0, None)
    return ranges


def required_region(
    accesses: Sequence[RangedSubscripts], outer: Ranges, shape: tuple[Expr, ...], given: Sequence[Expr] = ()
) -> Region:
    """A box that contains all elements of the buffer that the accesses touch: `[lower, lower + extent)` per dimension.

    A variable has the same range wherever it occurs, as a loop has. `lower` contains outer variables only. `extent` is one
    number for all values of the outer variables at which `given` holds: for a single access whose subscript is a sum of
    multiples of distinct variables it is exact, otherwise large enough. If it would reach the size of the buffer, or no
    number is known, the answer is the whole dimension, `(0, shape[d])`. The box is not cut at the edges of the buffer: a
    lower bound may be negative, and a box may end beyond the last element.
    """
    # What is read twice in one place would widen the box: each interval is joined with those before it.
    accesses = [*{(indices, *inner.items()): (indices, inner) for indices, inner in accesses}.values()]
    ranges = dict(outer)
    for _, inner in accesses:
        ranges.update(inner)
    context = Context(ranges)
    return tuple(_dimension(accesses, d, size, context, given) for d, size in enumerate(shape))


def wrapped_window(accesses: Sequence[RangedSubscripts], d: int, size: int, outer: Ranges) -> tuple[Expr, Expr] | None:
    """The lower bound and the extent of the smallest window that contains what the accesses touch of a dimension, where the
    elements behind the last one are the first ones again: each is an element modulo the size. None if no window that is
    smaller than the dimension is known.
    """
    ranges = dict(outer)
    for _, inner in accesses:
        ranges.update(inner)
    context = Context(ranges)
    spans = [_unwrapped(linear(indices[d], context), size, frozenset(inner), context) for indices, inner in accesses]
    arcs: list[tuple[int, int]] = []
    for span in spans:
        if span is None or spans[0] is None or (apart := span.low.minus(spans[0].low)).terms:
            return None
        arcs.append((apart.constant % size, span.width))
    extents = {start: 1 + max((begin - start) % size + width for begin, width in arcs) for start, _ in arcs}
    start = min(extents, key=lambda x: extents[x])
    if spans[0] is None or extents[start] >= size:
        return None
    return to_expr(spans[0].low.plus_constant(start)), index(extents[start])


def _unwrapped(form: Linear, size: int, inner: frozenset[str], context: Context) -> _Span | None:
    """The interval of a subscript that is a remainder by `size`, before the remainder is taken; or of one that is below."""
    match [*form.terms.items()]:
        case [(Binary(op="%", lhs=lhs, rhs=Const(value=int(c))), 1)] if c == size and not form.constant:
            return _span(linear(lhs, context), inner, context)
        case _:
            low, high = context.range_of(form)
            inside = low is not None and low >= 0 and high is not None and high < size
            return _span(form, inner, context) if inside else None


def open_limits(around: Iterable[For]) -> tuple[Expr, ...]:
    """What is known of fixed loops of open extent, for `required_region`: no tile starts beyond the end."""
    return tuple(Compare("<", Var(x.var), x.extent) for x in around if constant(x.extent) is None)


DISTANCES = 32
"""The questions about distances that a region is worth. What is inlined into stages of stages is read at dozens of places;
the distance of each from each took ten seconds."""


@frozen
class _Span:
    """The interval `low + [0, width]`."""

    low: Linear
    width: int


def _dimension(
    accesses: Sequence[RangedSubscripts], d: int, size: Expr, context: Context, given: Sequence[Expr]
) -> tuple[Expr, Expr]:
    found = [_span(linear(indices[d], context), frozenset(inner), context) for indices, inner in accesses]
    spans = [x for x in found if x is not None]
    n = constant(size)
    named = n is None and depends_on_data(indices[d] for indices, _ in accesses)  # the type's range exceeds any table
    if len(spans) < len(found) or named:
        return ZERO, size
    joined: _Span | None = spans[0]
    for span in spans[1:]:
        joined = None if joined is None else _union(joined, span, context)
    if joined is None or joined.low not in [x.low for x in spans]:
        exact = _around(spans, context, given)
        joined = exact if joined is None or (exact is not None and exact.width < joined.width) else joined
    if joined is None or (n is not None and joined.width + 1 >= n):
        return ZERO, size
    return to_expr(joined.low), index(joined.width + 1)


def _around(spans: Sequence[_Span], context: Context, given: Sequence[Expr]) -> _Span | None:
    """The least interval that contains all of several and begins at a fixed distance from one of the terms that they clamp,
    or from where one of them begins.

    Intervals of values lose what `y`, `max(y - 1, 0)` and `y / 2 + y % 2 * 2` have in common; integer sets keep it.
    """
    widths: dict[Expr, int] = {}
    for x in spans:
        low = to_expr(x.low)
        widths[low] = max(x.width, widths.get(low, 0))
    terms = {to_expr(x): x for span in spans for x in _unclamped(span.low, context) if x.terms}
    terms |= {low: linear(low, context) for low in widths if low not in terms and constant(low) is None}
    best: _Span | None = None
    for term in [*terms.values()][: DISTANCES // len(widths)]:
        start, end = 0, 0
        for k, (low, width) in enumerate(widths.items()):
            ends = extremes(to_expr(linear(low, context).minus(term)), context.ranges, given)
            if ends is None:
                break
            start, end = (ends[0], ends[1] + width) if k == 0 else (min(start, ends[0]), max(end, ends[1] + width))
            if best is not None and end - start >= best.width:
                break
        else:
            best = _Span(term.plus_constant(start), end - start)
    return best


def _unclamped(form: Linear, context: Context) -> list[Linear]:
    """The operands of a `min` or `max` plus a number, and theirs in turn; the form itself if it is something else."""
    if list(form.terms.values()) == [1]:
        match next(iter(form.terms)):
            case Binary(op="min" | "max", lhs=a, rhs=b):
                return [x.plus_constant(form.constant) for e in (a, b) for x in _unclamped(linear(e, context), context)]
            case _:
                pass
    return [form]


def _union(a: _Span, b: _Span, context: Context) -> _Span | None:
    """A small interval that contains both."""
    least, most = context.range_of(b.low.minus(a.low))
    if least is None or most is None:
        return None
    if least >= 0:
        return _Span(a.low, max(a.width, b.width + most))
    if most <= 0:
        return _Span(b.low, max(b.width, a.width - least))
    low = context.atom(Binary("min", to_expr(a.low), to_expr(b.low)), (None, None))
    # From the smaller start, each end is at most its own width plus the largest gap away.
    return _Span(low, max(a.width - least, b.width + most))


def _span(form: Linear, inner: frozenset[str], context: Context) -> _Span | None:
    low, width = Linear({}, form.constant), 0
    for atom, c in form.terms.items():
        part = _atom(atom, inner, context)
        if part is None:
            return None
        start = part.low if c > 0 else part.low.plus_constant(part.width)
        low, width = low.plus(start.times(c)), width + part.width * abs(c)
    return _Span(low, width)


def _atom(atom: Atom, inner: frozenset[str], context: Context) -> _Span | None:
    if isinstance(atom, str):
        return _interval(atom, context) if atom in inner else _Span(Linear({atom: 1}, 0), 0)
    if depends_on_data((atom,)):
        return _interval(atom, context)
    if not free_vars(atom) & inner:
        return _Span(Linear({atom: 1}, 0), 0)
    match atom:
        case Binary(op="/" | "%" as op, lhs=lhs, rhs=Const(value=int(c))) if c > 0:
            span = _span(linear(lhs, context), inner, context)
            if span is None:
                return _interval(atom, context)
            return _quotient(span, c, context) if op == "/" else _remainder(span, c, context)
        case Binary(op="min" | "max" as op, lhs=lhs, rhs=rhs):
            a, b = _span(linear(lhs, context), inner, context), _span(linear(rhs, context), inner, context)
            if a is None or b is None:
                return _interval(atom, context)
            low = linear(Binary(op, to_expr(a.low), to_expr(b.low)), context)
            return _Span(low, max(a.width, b.width))
        case Select(then=then, other=other):
            a, b = _span(linear(then, context), inner, context), _span(linear(other, context), inner, context)
            return _interval(atom, context) if a is None or b is None else _union(a, b, context)
        case _:
            return _interval(atom, context)


def _interval(atom: Atom, context: Context) -> _Span | None:
    low, high = context.atom_range(atom)
    return None if low is None or high is None else _Span(Linear({}, low), high - low)


def _largest_residue(low: Linear, c: int) -> int:
    """The largest value of `low % c` according to the factors of its terms."""
    g = gcd(c, *low.terms.values())
    return c - g + low.constant % g


def _quotient(span: _Span, c: int, context: Context) -> _Span:
    return _Span(divide(span.low, c, context), (_largest_residue(span.low, c) + span.width) // c)


def _remainder(span: _Span, c: int, context: Context) -> _Span:
    if _largest_residue(span.low, c) + span.width < c:
        return _Span(modulo(span.low, c, context), span.width)
    return _Span(Linear({}, 0), c - 1)


# Maps a box of a buffer back to the block instances that access it.


def instances_writing(
    block: Block, indices: Sequence[Expr], region: Region, known: Collection[str] = ()
) -> list[tuple[Expr, Expr]] | str:
    """For each iterator a range `(lower, extent)` that contains all instances whose subscripts lie in the region.

    Returns the name of a spatial iterator instead if the subscripts do not determine its value, nor is it `known`.
    Reduction iterators, and iterators that no subscript limits, have their whole range. A range may exceed the iterator's
    extent where the region does.
    """
    vague = undetermined(block, indices, known)
    if vague is not None:
        return vague
    context = Context(iter_ranges(block.iters))
    parts = [_Part(s, *box, None) for s, box in zip(indices, region, strict=True)]
    limits = {name: found[-1].range for name, found in _limits(parts, context)[0].items()}
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


def undetermined(block: Block, indices: Sequence[Expr], known: Collection[str] = ()) -> str | None:
    """A spatial iterator whose value the subscripts do not determine, and that is not `known`; None if there is none."""
    context = Context(iter_ranges(block.iters))
    used: list[Digit] = []
    direct = set(known)
    for subscript in indices:
        form = linear(subscript, context)
        if len(form.terms) == 1:
            ((atom, _),) = form.terms.items()
            d = digit(atom, context, rounded=True)
            if isinstance(atom, str):
                direct.add(atom)
            elif d is not None:
                used.append(d)
    for it in block.iters:
        extent = constant(it.extent)
        if it.kind is not IterKind.SPATIAL or it.name in direct or extent == 1:
            continue
        if extent is None or missing_digits(used, it.name, extent) is not False:
            return it.name
    return None


def instances_reading(
    block: Block, indices: Sequence[Expr], region: Region, shape: Sequence[Expr]
) -> list[tuple[Expr, Expr]] | None:
    """For each iterator a range, such that exactly the instances in these ranges have subscripts in the region.

    None if ranges of single iterators cannot describe these instances. A range may exceed the iterator's extent, or be cut
    to it.
    """
    context = Context(iter_ranges(block.iters))
    parts = [_Part(s, *box, size) for s, box, size in zip(indices, region, shape, strict=True)]
    found, other = _limits(parts, context)
    if other or any(not x.exact or x.range != each[0].range for each in found.values() for x in each):
        return None
    limits = {name: each[0].range for name, each in found.items()}
    return [_clipped(limits.get(it.name), it.extent) for it in block.iters]


@frozen
class _Part:
    """A subscript, its range in a box, and the size of the dimension; None where a range may have other instances, too."""

    subscript: Expr
    lower: Expr
    extent: Expr
    size: Expr | None

    def has_all(self, values: int | None = None) -> bool:
        """Whether the range is all of the dimension, or has all values of a digit with so many."""
        most = constant(self.extent)
        return self.lower == ZERO and (
            self.extent == self.size or (most is not None and values is not None and most >= values)
        )


@frozen
class _Limit:
    """A range `(lower, extent)` of an iterator that contains all instances, and whether it has no others."""

    range: tuple[Expr, Expr]
    exact: bool


def _limits(parts: Sequence[_Part], context: Context) -> tuple[dict[str, list[_Limit]], bool]:
    """By iterator, the ranges that subscripts `f*v + c` and those that are digits of `v` give; and whether another subscript
    is limited, too.
    """
    out: dict[str, list[_Limit]] = {}
    digits: dict[str, dict[_Part, Digit]] = {}
    other = False
    for p in parts:
        form = linear(p.subscript, context)
        ((atom, factor),) = form.terms.items() if len(form.terms) == 1 else (("", 0),)
        d = digit(atom, context, rounded=True) if factor == 1 and not isinstance(atom, str) else None
        if d is not None and not form.constant:
            digits.setdefault(d.var, {})[p] = d
        elif factor and isinstance(atom, str) and not p.has_all():
            out.setdefault(atom, []).append(_by_factor(p, factor, form.constant))
        else:
            other |= not p.has_all()
    for name, found in digits.items():
        if not all(p.has_all(d.size) for p, d in found.items()):
            limit = _by_digits(found, context)
            other |= limit is None
            out.setdefault(name, []).extend([] if limit is None else [limit])
    return {name: each for name, each in out.items() if each}, other


def _by_factor(p: _Part, factor: int, shift: int) -> _Limit:
    """The range of a variable whose multiple, and a constant, are a subscript.

    One element of so many as the factor belongs to an instance. If the range is not made of whole groups of as many, where it
    begins determines how many instances it has.
    """
    low = sub(p.lower, index(shift)) if factor > 0 else sub(index(shift + 1), add(p.lower, p.extent))
    n = abs(factor)
    if n == 1:
        return _Limit((low, p.extent), exact=True)
    whole = is_multiple(p.extent, n, {}) or is_multiple(low, n, {})
    return _Limit((simplify(ceildiv(low, index(n)), {}), simplify(ceildiv(p.extent, index(n)), {})), exact=whole)


def _by_digits(found: Mapping[_Part, Digit], context: Context) -> _Limit | None:
    """The range of a variable of which some digits are limited; None if they limit no range.

    Digits with one value each, from the highest on, and a range of the next one make a range, of which all lower digits take
    all values. Only of a dimension with as many elements as the digit has values it is known that the range has no others.
    """
    ordered = sorted(found.items(), key=lambda x: -x[1].unit)
    if not is_highest_digit(ordered[0][1], context) or ordered[0][0].has_all(ordered[0][1].size):
        return None
    low: Expr = ZERO
    size: Expr = ZERO
    above, exact = 0, True
    for n, (p, d) in enumerate(ordered):
        if n and (constant(size) != above or d.unit * d.size != above or p.has_all(d.size)):
            exact &= all(x.has_all(y.size) for x, y in ordered[n:])
            break
        exact &= not n or p.size == index(d.size)
        low, size, above = add(low, mul(p.lower, index(d.unit))), mul(p.extent, index(d.unit)), d.unit
    return _Limit((low, size), exact)


def _clipped(limit: tuple[Expr, Expr] | None, extent: Expr) -> tuple[Expr, Expr]:
    if limit is None:
        return ZERO, extent
    n, most = constant(limit[1]), constant(extent)
    whole = limit[1] == extent or (n is not None and most is not None and n >= most)
    return (ZERO, extent) if whole else limit


# Decides which instances of a block run: all of them, each once, or no more than before a step.
#
# The fast answers are theorems about mixed radix numbers (`proof.sets.digits`), whose digits are independent of each other. A
# sum `c0*d0 + c1*d1 + …` with increasing factors takes every value of an interval if no factor leaves a gap, and each value
# once if each factor is exactly the number of values of the terms below it. If no theorem applies, isl decides.


def bound_conditions(block: Block, loops: Sequence[For]) -> tuple[Expr, ...]:
    """The conditions that keep the block's iterators within their extents, without those that always hold."""
    conditions = [
        c for it in block.iters for c in (Compare("<=", ZERO, it.binding), Compare("<", it.binding, it.extent))
    ]
    return simplify_where(conditions, extent_ranges(loops))


def full_domain(loops: Sequence[For], block: Block) -> bool:
    """Whether the block runs for every combination of values of its iterators."""
    loops, block = _narrowed(loops, block)
    quick = _full_quickly(loops, block)
    if quick is not None:
        return quick
    if _too_few(loops, block):
        return False
    names = [it.name for it in block.iters]
    limits = [
        c for it in block.iters for c in (Compare("<=", ZERO, Var(it.name)), Compare("<", Var(it.name), it.extent))
    ]
    try:
        known = facts_of((*(loop.extent for loop in loops), *block.where, *(it.binding for it in block.iters)))
        return points(names, (*limits, *known)).is_subset(instance_map(loops, block).range())
    except NotAffine:
        return False


def _narrowed(loops: Sequence[For], block: Block) -> tuple[Sequence[For], Block]:
    """The same instances: a condition `loop < number` of the block is the extent of the loop.

    Digits of the shorter loop are independent where those of the longer one are cut by the condition.
    """
    extents = {loop.var: constant(loop.extent) for loop in loops}
    where: list[Expr] = []
    for c in block.where:
        match c:
            case Compare(op="<", lhs=Var(name), rhs=Const(value=int(limit))) if limit > 0:
                extent = extents.get(name)
                if extent is not None:
                    extents[name] = min(extent, limit)
                    continue
            case _:
                pass
        where.append(c)
    if len(where) == len(block.where):
        return loops, block
    shorter = [loop if (n := extents[loop.var]) is None else replace(loop, extent=index(n)) for loop in loops]
    return shorter, replace(block, where=tuple(where))


def _full_quickly(loops: Sequence[For], block: Block) -> bool | None:
    if all(any(it.binding == Var(loop.var) and it.extent == loop.extent for loop in loops) for it in block.iters):
        if not block.where and len({it.binding for it in block.iters}) == len(block.iters):
            return True
    if any(constant(loop.extent) is None for loop in loops):
        return None
    ranges = extent_ranges(loops)
    context = Context(ranges)
    used: list[Digit] = []
    for it in block.iters:
        extent, parts = constant(it.extent), numeral(it.binding, context)
        if extent is None or parts is None:
            return None
        first, terms = parts
        reach = 1
        for factor, d in terms:
            if not 0 < factor <= reach:
                return None
            reach += factor * (d.size - 1)
            used.append(d)
        if first > 0 or first + reach < extent:
            return None
    if overlap(used):
        return None
    if block.where and not set(simplify_where(block.where, ranges)) <= set(bound_conditions(block, loops)):
        return None
    return True


def _too_few(loops: Sequence[For], block: Block) -> bool:
    """Whether the loops have no more iterations than the iterators have values, and a condition leaves some of these out."""
    iterations = [constant(loop.extent) for loop in loops]
    values = [constant(it.extent) for it in block.iters]
    if None in iterations or None in values or prod(n or 0 for n in iterations) > prod(n or 0 for n in values):
        return False
    extents = {loop.var: loop.extent for loop in loops}
    try:
        return any(feasible(extents, [negate(c)]) for c in block.where)
    except NotAffine:
        return False


Boxes = Sequence[tuple[Expr, Expr, Expr]]
"""For each dimension: lower bound over loop variables, extent of the box, extent of the space to be covered."""


def repeating_loop(loops: Sequence[For], boxes: Boxes) -> str | None:
    """A loop whose iterations repeat the same box, since no lower bound mentions it; None if there is none."""
    mentioned: set[str] = set()
    context = Context(extent_ranges(loops))
    for lower, _, _ in boxes:
        for atom in linear(lower, context).terms:
            d = digit(atom, context)
            mentioned |= {d.var} if d is not None else {loop.var for loop in loops}
    return next((loop.var for loop in loops if loop.var not in mentioned and not is_single(loop.var, context)), None)


def is_single(var: str, context: Context) -> bool:
    """Whether a loop has one iteration at most, as a tile that is as long as an open dimension can be has."""
    high = context.atom_range(var)[1]
    return high is not None and high <= 0


def axis(d: int) -> Var:
    """The variable that conditions use for the coordinate of a point in dimension `d`."""
    return Var(f"box{d}")


def covers_once(loops: Sequence[For], boxes: Boxes, cuts: Sequence[Expr] = ()) -> bool:
    """Whether the boxes of all iterations of `loops` cover every point exactly once.

    Points have coordinates from 0 to the extent to cover in each dimension. Parts of a box outside do not count, nor points
    at which one of `cuts` does not hold; these are conditions over the loops and `axis(0)`, `axis(1)`, ….
    """
    return (not cuts and _tiles(loops, boxes)) or _partition_exactly(loops, boxes, cuts)


def _tiles(loops: Sequence[For], boxes: Boxes) -> bool:
    """The theorem: in each dimension a factor equals the number of values below it; each loop's digits occur once."""
    context = Context(extent_ranges(loops))
    used: list[Digit] = []
    for lower, extent, size in boxes:
        if lower == ZERO and extent == size:
            continue
        parts, width, total = numeral(lower, context), constant(extent), constant(size)
        if parts is None or width is None or total is None:
            return False
        first, terms = parts
        for factor, d in terms:
            if factor != width:
                return False
            width *= d.size
            used.append(d)
        if first > 0 or first + width < total:
            return False
    for loop in loops:
        extent = constant(loop.extent)
        if extent is None or (extent > 1 and missing_digits(used, loop.var, extent) is not False):
            return False
    return True


def _partition_exactly(loops: Sequence[For], boxes: Boxes, cuts: Sequence[Expr]) -> bool:
    names = [loop.var for loop in loops]
    axes = [axis(d).name for d in range(len(boxes))]
    inside = list(cuts)
    limits: list[Expr] = []
    for d, (lower, extent, size) in enumerate(boxes):
        inside += [Compare("<=", lower, axis(d)), Compare("<", axis(d), add(lower, extent))]
        limits += [Compare("<=", ZERO, axis(d)), Compare("<", axis(d), size)]
    try:
        found = mapping([*axes, *names], [Var(n) for n in names], (*loop_conditions(loops), *inside, *limits))
        every = points(axes, (*limits, *facts_of((*loop_conditions(loops), *inside))))
    except NotAffine:
        return False
    found = found.project_out(isl.dim_type.in_, len(axes), len(names))
    return found.is_single_valued() and every.is_subset(found.domain())


Nest = tuple[Sequence[For], Block]
"""A block and the loops around it, outermost first."""


def apart(accesses: Sequence[tuple[Nest, Sequence[Expr]]], outer: Sequence[str], of: Sequence[str]) -> bool:
    """Whether no element is accessed in two iterations of the loops `of`, within one iteration of the loops `outer`.

    Each access has its indices over the loops around its block: `outer`, `of` and loops below them.
    """
    together: isl.Map | None = None
    for (loops, block), indices in accesses:
        names = [loop.var for loop in loops]
        conditions = (*loop_conditions(loops), *block.where)
        try:
            elements = mapping(names, [*map(Var, outer), *indices], conditions)
            found = elements.reverse().apply_range(mapping(names, list(map(Var, of)), conditions))
        except NotAffine:
            return False
        together = found if together is None else together.union(found)
    return together is None or together.is_single_valued()


def not_affine(loops: Sequence[For], block: Block) -> Iter | None:
    """The first iterator whose binding is not affine in the loops, so that its values are unknown; None if all are."""
    for it in block.iters:
        try:
            mapping([loop.var for loop in loops], [it.binding])
        except NotAffine:
            return it
    return None


def instances_within(new: Nest, old: Nest, shared: Sequence[str] = ()) -> bool:
    """Whether each instance that runs in `new` also runs in `old`, in the same iteration of the `shared` loops."""
    if not shared and full_domain(*old):
        return True
    (a, b) = (_instances(nest, shared) for nest in (new, old))
    return _range_within(a, b)


_Map = tuple[tuple[str, ...], tuple[Expr, ...], tuple[Expr, ...]]
"""Names, results and conditions: the arguments of `sets.mapping`."""


def _instances(nest: Nest, shared: Sequence[str]) -> _Map:
    loops, block = nest
    results = (*map(Var, shared), *(it.binding for it in block.iters))
    return tuple(loop.var for loop in loops), results, (*loop_conditions(loops), *block.where)


@lru_cache(maxsize=4096)
def _range_within(a: _Map, b: _Map) -> bool:
    """Whether the range of the first map is contained in the range of the second."""
    names, results, conditions = a
    try:
        known = facts_of((*b[1], *b[2]))
        return mapping(names, results, (*conditions, *known)).range().is_subset(mapping(*b).range())
    except NotAffine:
        return False
