"""Cuts loops over open extents where their guards change, and loops over rows at the borders of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    Select,
    Var,
    add,
    ceildiv,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    mul,
    transform,
)
from tensorc_dsl.ir.node import replace as node_replace
from tensorc_dsl.ir.program import LoopKind, Store, map_store
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
    buffers_of,
    hull,
    inside,
    store_loads,
    stores,
    substituted,
    within,
)
from tensorc_dsl.lower.partition import LINE, choices, conditions
from tensorc_dsl.proof.sets.linear_forms import (
    FALSE,
    TRUE,
    Context,
    Interval,
    Linear,
    Ranges,
    difference,
    joined,
    linear,
    negate,
    to_expr,
)
from tensorc_dsl.proof.sets.sets import NotAffine, dim_conditions, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts, follows, prove, simplify

# Rows of images in flat loops: vectorized loops that map elements, and the loops around them.
#
# A condition over such a loop, `x * 64 + j < W`, is cut at the innermost loop around the row that it names, once for all
# that is outside: cut at each loop, a tile with five stages would have a copy of all of them for each piece of each loop.


REGISTER_BYTES = 32 * 64
"""The size in bytes of the largest register file (AVX-512). A smaller buffer may be in registers, if the loops over it are
written out, which takes loops of constant length."""


def kept(body: tuple[Flat, ...]) -> frozenset[str]:
    """The buffers that may be in registers."""
    small = (s for s in inside(body) if isinstance(s, Alloc) and s.space == "stack")
    return frozenset(s.name for s in small if (constant(s.size) or 0) * s.dtype.bytes <= REGISTER_BYTES)


def lanes_of(s: Flat) -> int:
    """The number of lanes of a vectorized loop; 0 for other statements."""
    if not isinstance(s, Loop) or s.kind is not LoopKind.VECTORIZED:
        return 0
    begin, end = constant(s.begin), constant(s.end)
    return 0 if begin is None or end is None else end - begin


def is_row(s: Flat, registers: frozenset[str]) -> bool:
    """Whether a statement is a vectorized loop that maps elements of buffers in memory."""
    return lanes_of(s) >= LINE and all(is_mapped(x, registers) for x in stores((s,)))


def is_mapped(s: Store, registers: frozenset[str]) -> bool:
    """Whether a store is no sum, and accesses memory only."""
    return registers.isdisjoint(buffers_of(s)) and not any(x.buffer == s.buffer for x in store_loads(s))


def holds_rows(s: Flat, registers: frozenset[str]) -> bool:
    """Whether a statement is a loop, serial or written out, with vectors that are all rows."""
    if not isinstance(s, Loop) or s.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return False
    vectors = [x for x in inside(s.body) if lanes_of(x)]
    return bool(vectors) and all(is_row(x, registers) for x in vectors)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A condition over the lanes of vectors. A serial loop over rows decides it later, if it is over the variable of one."""

    cond: Compare
    later: bool


def undecided(body: tuple[Flat, ...], registers: frozenset[str]) -> Iterator[Undecided]:
    """The conditions that decide the choices of vectors, the masks of rows and, of rows that are written out, which of them
    are there and read at a border."""
    return _undecided(body, registers, frozenset(), frozenset())


def _undecided(
    body: tuple[Flat, ...], registers: frozenset[str], lanes: frozenset[str], serial: frozenset[str]
) -> Iterator[Undecided]:
    for s in body:
        match s:
            case Store():
                for c in choices(s) if lanes else ():
                    if not lanes.isdisjoint(free_vars(c)):
                        yield from (Undecided(x, not serial.isdisjoint(free_vars(c))) for x in conditions(c, {}))
            case If():
                for c in conjuncts(s.cond):
                    if not isinstance(c, Compare) or lanes.isdisjoint(free_vars(c)):
                        continue
                    if all(is_mapped(x, registers) for x in stores(s.body)):
                        yield Undecided(c, not serial.isdisjoint(free_vars(c)))
                yield from _undecided(s.body, registers, lanes, serial)
            case Loop():
                rows = holds_rows(s, registers)
                own = {s.var} if s.kind is LoopKind.VECTORIZED or (rows and s.kind is LoopKind.UNROLLED) else set[str]()
                around = {s.var} if rows and s.kind is LoopKind.SERIAL else set[str]()
                yield from _undecided(s.body, registers, lanes | own, serial | around)
            case _:
                yield from _undecided(s.body, registers, lanes, serial)


# Cuts loops over open extents at the iterations where their guards change, as `partition` does for numbers.
#
# A guard over a loop variable `v` is `f*v + rest + r < 0`, with `r` in an interval from the inner loops and `rest` known
# where the loop begins. It holds always below `ceil(-(rest + high) / f)` and never from `ceil(-(rest + low) / f)` on.
# So the full tiles of a loop over `M` run unguarded, and its last tile, of which there is at most one, is a branch of its
# own in which `v` is an expression over `M`.


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


# Cuts loops over rows of open length at the borders of images, so that what is between them has whole vectors.
#
# A row that is cut into vectors reads `X[min(max(x * 16 + j - 1, 0), W - 1)]`, so each vector is gathered. With `j` in 0 ..
# 16 the choices are decided from the first iteration of `x` on in which `x * 16 - 1 >= 0`, up to the one in which `x * 16 +
# 15` passes `W`. Between the two the elements are adjacent. In an image smaller than a vector there is nothing between.


ROUNDS = 2
"""How often the part between borders is cut again: a mirror is a remainder, and a minimum of it."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The iterations of a loop from `low` on and before `high`, if there are borders, and the conditions that hold from the
    one on and before the other."""

    low: Expr | None
    high: Expr | None
    after: tuple[Expr, ...]
    before: tuple[Expr, ...]

    @property
    def facts(self) -> tuple[Expr, ...]:
        """What holds between the borders."""
        return (*self.after, *self.before)


def cut_open_rows(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The same stores in the same order, with loops of open length cut at the borders of the vectors in them."""
    return _cut(body, {}, kept(body))


def _cut(body: tuple[Flat, ...], known: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Loop(kind=LoopKind.VECTORIZED):
                out.extend(_in_lines(s, known, registers))
            case Loop():
                out.extend(_open_borders_loop(s, known, registers, ROUNDS))
            case Parallel():
                out.append(node_replace(s, body=_open_borders_branches(s, within(known, s), registers)))
            case _:
                out.append(node_replace(s, body=_cut(s.body, known, registers)))
    return tuple(out)


def _open_borders_loop(s: Loop, ranges: Ranges, registers: frozenset[str], rounds: int) -> tuple[Flat, ...]:
    here = within(ranges, s)
    is_open = constant(s.begin) is None or constant(s.end) is None
    may = rounds > 0 and s.kind is LoopKind.SERIAL
    found = _inside(s.body, s.var, here, registers, is_open=is_open) if may else None
    if found is None:
        return (node_replace(s, body=_cut(s.body, here, registers)),)
    if any(isinstance(x, Loop) and x.kind is LoopKind.SERIAL for x in inside(s.body)):
        return (node_replace(s, body=_branch(s.var, found, s.body, here, registers)),)
    out: list[Flat] = []
    for begin, end, facts in _open_borders_pieces(found, s, lambda e, low, high: between(e, low, high, here)):
        if possible(Compare("<", begin, end), here):
            piece = node_replace(s, begin=begin, end=end, body=_decided(s.body, facts))
            more = rounds - 1 if facts == found.facts else 0
            out += _open_borders_loop(piece, ranges, registers, more)
    return tuple(out)


def _open_borders_pieces(
    found: Inside, s: Loop, limited: Callable[[Expr, Expr, Expr], Expr]
) -> Iterator[tuple[Expr, Expr, tuple[Expr, ...]]]:
    """The parts of a loop in order, any of which may be empty, each with what holds in it: at the first border of an image
    that is longer, of one that is not, between the borders, and at the last one. `limited` puts an end between two others."""
    near = s.begin if found.low is None else limited(found.low, s.begin, s.end)
    if found.low is not None:
        middle, some = near, found.before
        if found.high is not None:
            middle = limited(found.high, s.begin, near)
            some = (*some, Compare("<", s.begin, found.high))  # where there is an iteration
        yield s.begin, middle, some
        if middle != near:
            yield middle, near, ()
    far = s.end if found.high is None else limited(found.high, near, s.end)
    yield near, far, found.facts
    if found.high is not None:
        yield far, s.end, found.after


def _open_borders_branches(s: Parallel, inside: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """The body of a parallel loop, which stays one loop."""
    for var, extent in zip(s.vars, s.extents, strict=True):
        found = _inside(s.body, var, inside, registers, is_open=constant(extent) is None)
        if found is not None:
            return _branch(var, found, s.body, inside, registers)
    return _cut(s.body, inside, registers)


def _branch(
    var: str, found: Inside, body: tuple[Flat, ...], ranges: Ranges, registers: frozenset[str]
) -> tuple[Flat, ...]:
    """The body of a loop over tiles: what is between the borders is a branch, so that both borders have one copy."""
    conds = [Compare(">=", Var(var), found.low)] if found.low is not None else []
    conds += [Compare("<", Var(var), found.high)] if found.high is not None else []
    between_borders = conjunction(tuple(conds))
    assert between_borders is not None  # there is a border
    decided = _cut(_decided(body, found.facts), ranges, registers)
    return (If(between_borders, decided), If(negate(between_borders), _cut(body, ranges, registers)))


def _in_lines(s: Loop, ranges: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """A row with borders or a mask in lines of 16, most of which have none; other vectorized loops as they are."""
    lanes = lanes_of(s)
    s = node_replace(s, body=_unmasked(s.body))
    is_cut = lanes >= 2 * LINE and is_row(s, registers) and s.begin == ZERO
    if not is_cut or not any(dims_in(x.cond) and s.var in free_vars(x.cond) for x in undecided((s,), registers)):
        return (s,)
    line = f"{s.var}.line"
    place = add(mul(Var(line), index(LINE)), Var(s.var))
    body = tuple(substituted(x, {s.var: place}) for x in s.body)
    whole = Loop(line, ZERO, index(lanes // LINE), LoopKind.SERIAL, (node_replace(s, end=index(LINE), body=body),))
    rest = (node_replace(s, begin=index(lanes // LINE * LINE)),) if lanes % LINE else ()
    return (*_lines(whole, within(ranges, whole), registers), *rest)


def _lines(s: Loop, ranges: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """The lines of a row: those before the border is passed, those between borders, and those behind. A part may be empty.

    Borders are a small part of an image, so their position is not analysed.
    """
    found = _inside(s.body, s.var, ranges, registers)
    if found is None:
        return (s,)
    pieces = _open_borders_pieces(found, s, lambda e, low, high: _within(e, low, high, ranges))
    return tuple(
        node_replace(s, begin=low, end=high, body=_unmasked(_decided(s.body, facts))) for low, high, facts in pieces
    )


def _within(e: Expr, low: Expr, high: Expr, ranges: Ranges) -> Expr:
    return simplify(Binary("min", Binary("max", e, low), high), ranges)


def _inside(
    body: tuple[Flat, ...], var: str, ranges: Ranges, registers: frozenset[str], *, is_open: bool = True
) -> Inside | None:
    """The iterations in which choices of vectors are decided; None if no choice is decided by the loop variable.

    What changes at a number is at the beginning of a row, and what changes at an open size is at its end.
    """
    low: list[Expr] = []
    high: list[Expr] = []
    after: list[Expr] = []
    before: list[Expr] = []
    # What is known of a variable has to hold wherever it occurs: loops that were cut before have several parts.
    inner = hull(body)
    found = [x for x in undecided(body, registers) if var in free_vars(x.cond)]
    if all(x.later for x in found):
        return None
    for cond in dict.fromkeys(x.cond for x in found):
        if not is_open and not dims_in(cond) and all(_is_known(ranges.get(v) or inner.get(v)) for v in free_vars(cond)):
            continue  # `partition` cuts it at a number
        cut = cut_at(cond, var, inner, ranges)
        if cut is None:
            continue
        if dims_in(cut.sure) or dims_in(cut.maybe):
            high.append(cut.sure if cut.first else cut.maybe)
            before.append(cond if cut.first else negate(cond))
        else:
            low.append(cut.maybe if cut.first else cut.sure)
            after.append(negate(cond) if cut.first else cond)
    if not after and not before:
        return None
    return Inside(_extreme("max", low, ranges), _extreme("min", high, ranges), tuple(after), tuple(before))


def _extreme(op: BinaryOp, of: list[Expr], ranges: Ranges) -> Expr | None:
    def more(a: Expr, b: Expr) -> Expr:
        distance = _distance(a, b)
        if distance is not None:
            return a if (distance < 0) == (op == "min") else b
        return simplify(Binary(op, a, b), ranges)

    return reduce(more, dict.fromkeys(of)) if of else None


def _distance(a: Expr, b: Expr) -> int | None:
    """The difference of the dividends of two quotients by the same number, if it is a number: of `(W + 60) / 64 - 1` and
    `W / 64` it is -4. The quotients are in the same order. None for others."""
    one, other = _quotient(a), _quotient(b)
    if one is None or other is None or one[1] != other[1]:
        return None
    rest = one[0].minus(other[0])
    return None if rest.terms else rest.constant


def _quotient(e: Expr) -> tuple[Linear, int] | None:
    """A sum with one quotient as a dividend and a divisor; None for others."""
    form = linear(e, Context({}))
    quotients = [a for a in form.terms if isinstance(a, Binary) and a.op == "/"]
    divisor = constant(quotients[0].rhs) if len(quotients) == 1 else None
    if divisor is None or divisor <= 0 or form.terms[quotients[0]] != 1:
        return None
    rest = Linear({a: c for a, c in form.terms.items() if a != quotients[0]}, form.constant)
    return linear(quotients[0].lhs, Context({})).plus(rest.times(divisor)), divisor


def _at_most(a: Expr, b: Expr, facts: tuple[Expr, ...]) -> bool:
    """Whether `a <= b` follows, where `a` may be the greater of two: `min(max(x - 1, 0), W - 1)` is cut at both borders."""
    if isinstance(a, Binary) and a.op == "max":
        return _at_most(a.lhs, b, facts) and _at_most(a.rhs, b, facts)
    return follows(Compare("<=", a, b), facts)


def _unmasked(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """Statements with the choices that their masks decide: where `x < W`, `min(x, W - 1)` is `x`."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, If):
            s = node_replace(s, body=_decided(s.body, conjuncts(s.cond)))
        out.append(s if isinstance(s, Store) else node_replace(s, body=_unmasked(s.body)))
    return tuple(out)


def _is_known(r: Interval | None) -> bool:
    return r is not None and None not in r


def _decided(body: tuple[Flat, ...], facts: tuple[Expr, ...]) -> tuple[Flat, ...]:
    """Statements with the choices of indices and the masks that the facts decide."""

    def new(e: Expr) -> Expr:
        match e:
            case Binary(op="min" | "max" as op, lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if _at_most(a, b, facts):
                    return a if op == "min" else b
                if _at_most(b, a, facts):
                    return b if op == "min" else a
            case Binary(op="%", lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if follows(Compare(">=", a, ZERO), facts) and follows(Compare("<", a, b), facts):
                    return a
            case Compare(lhs=a) if dtype_of(a) == INDEX:
                if follows(e, facts):
                    return TRUE
                if follows(negate(e), facts):
                    return FALSE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case _:
                pass
        return e

    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(map_store(s, lambda e: transform(e, new)))
            case If():
                cond = conjunction(tuple(c for c in (transform(c, new) for c in conjuncts(s.cond)) if c != TRUE))
                inner = _decided(s.body, facts)
                out.extend(inner if cond is None else (node_replace(s, cond=cond, body=inner),))
            case _:
                out.append(node_replace(s, body=_decided(s.body, facts)))
    return tuple(out)
