"""Cuts loops where conditions change, and decides the conditions in each piece.

A condition over the variable `v` of a loop is `f*v + rest + r < 0`, with `r` in an interval from the loops inside. It holds
always below `ceil(-(rest + high) / f)` and never from `ceil(-(rest + low) / f)` on: it changes at these two places, which are
numbers where all sizes are, and expressions over open sizes else. Outermost loops first, a loop is cut at the places of

- guards over open sizes: full tiles run unguarded, and the last tile, of which there is at most one, is a branch of its own;
- choices of vectors over open sizes, the borders of images: what is between them loads whole vectors;
- guards and choices over numbers.

Afterwards every subscript and condition is simplified under the ranges of the loops around it, loops of one iteration and
statements that never run are removed, and conditions are decided where that is worth a copy.

What a cut is worth is decided otherwise in each of the three: borders are cut together, so that both share one copy, and
numbers are sorted, so that all cuts of a loop are made at once. The same three pieces for all, as in Halide's
`PartitionLoops`, would leave guards in the last tile, where a loop over several stages is cut at several places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as data_replace
from functools import partial, reduce
from itertools import pairwise
from typing import Literal

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    add,
    ceildiv,
    children,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    sub,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import LoopKind, Store, map_store
from tensorc_dsl.ir.reductions import combine, fold_of
from tensorc_dsl.ir.target import CACHE_LINE, REGISTER_FILE
from tensorc_dsl.lower.flat import (
    Alloc,
    Flat,
    If,
    Loop,
    Parallel,
    body_of,
    hull,
    inside,
    store_loads,
    stores,
    substituted,
    within,
)
from tensorc_dsl.proof.sets.linear_forms import (
    FALSE,
    FAR,
    TRUE,
    Context,
    Linear,
    Ranges,
    difference,
    linear,
    logic,
    negate,
    to_expr,
)
from tensorc_dsl.proof.sets.sets import NotAffine, dim_conditions, feasible
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, consequences, prove, simplify

# Where a condition changes.


_STRICT: dict[CompareOp, tuple[int, bool]] = {"<": (0, True), "<=": (-1, True), ">=": (0, False), ">": (-1, False)}
"""`x op 0` as `x + d < 0` or `x + d >= 0`: the number d, and whether it is the first form."""


@frozen
class Cut:
    """Conditions that change together as a variable grows: below `near` they always hold if they do so `first`, and else
    never; from `far` on it is the other way round. At most `width` values lie between the two."""

    conds: tuple[Expr, ...]
    first: bool
    near: Expr
    far: Expr
    width: int

    @property
    def sure(self) -> Expr:
        """Up to where, or from where on, the conditions always hold."""
        return self.near if self.first else self.far

    @property
    def maybe(self) -> Expr:
        """From where on, or up to where, they never hold."""
        return self.far if self.first else self.near

    @property
    def before(self) -> tuple[Expr, ...]:
        """What holds below `near`."""
        return self.conds if self.first else tuple(map(negate, self.conds))

    @property
    def after(self) -> tuple[Expr, ...]:
        """What holds from `far` on."""
        return tuple(map(negate, self.conds)) if self.first else self.conds


def cut_at(cond: Expr, var: str, inner: Ranges, ranges: Ranges) -> Cut | None:
    """Where a condition begins or ceases to hold as a variable grows, for all values of the loops `inner`; None if it is not
    linear."""
    if not isinstance(cond, Compare) or cond.op not in _STRICT or dtype_of(cond.lhs) != INDEX:
        return None
    context = Context(ranges if inner is ranges else {**ranges, **inner})
    form = difference(cond.lhs, cond.rhs, context)
    shift, first = _STRICT[cond.op]
    factor = form.terms.get(var, 0)
    if factor < 0:
        # -(x + d) > 0 is x + d < 0 with the sign reversed: `<` becomes `>` and so on.
        shift, first = (-1, False) if (shift, first) == (0, True) else (0, False) if first else (-shift - 1, True)
        form, factor = form.times(-1), -factor
    own: dict[str | Expr, int] = {}
    rest: dict[str | Expr, int] = {}
    for a, c in form.terms.items():
        if a != var:
            names = frozenset((a,)) if isinstance(a, str) else free_vars(a)
            if var in names:
                return None
            (rest if names.isdisjoint(inner) else own)[a] = c
    low, high = context.range_of_terms(own, 0)
    if factor == 0 or low is None or high is None:
        return None
    fixed = Linear(rest, form.constant + shift)

    def where(r: int) -> Expr:
        """The least value of the variable for which `factor*v + fixed + r >= 0`."""
        least = fixed.plus_constant(r).times(-1)
        return simplify(ceildiv(to_expr(least), index(factor)), ranges) if rest else index(-(-least.constant // factor))

    return Cut((cond,), first, where(high), where(low), -((low - high) // factor))


def cuts_of(cond: Expr, var: str, inner: Ranges, ranges: Ranges) -> tuple[Cut, ...]:
    """The cuts of a condition that holds in one interval: two of an equality, none of what is not linear."""
    if isinstance(cond, Compare) and cond.op == "==":
        found = [cut_at(Compare(op, cond.lhs, cond.rhs), var, inner, ranges) for op in ("<=", ">=")]
    else:
        found = [cut_at(cond, var, inner, ranges)]
    return tuple(c for c in found if c is not None)


def narrowed(cond: Expr, ranges: Ranges) -> Ranges:
    """The ranges under a condition, for variables that it compares with numbers."""
    out = dict(ranges)
    for c in conjuncts(cond):
        for var in free_vars(c):
            for cut in cuts_of(c, var, {}, ranges):
                low, high = out.get(var, (None, None))
                if (place := constant(cut.near)) is not None and cut.first:
                    out[var] = low, place - 1 if high is None else min(high, place - 1)
                elif place is not None:
                    out[var] = place if low is None else max(low, place), high
    return out


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


# What facts decide.


def decided(body: tuple[Flat, ...], facts: Iterable[Expr]) -> tuple[Flat, ...]:
    """The statements with the conditions, and the choices of values and of indices, that the facts decide, and the guards
    around them: where `x < W`, `min(x, W - 1)` is `x`."""
    known = dict.fromkeys(facts)
    table: dict[Expr, Const] = {}
    for c in known:
        table[c], table[negate(c)] = TRUE, FALSE
    bounded = tuple(c for c in known if isinstance(c, Compare) and dtype_of(c.lhs) == INDEX)
    names = frozenset[str]().union(*map(free_vars, bounded))

    follows = consequences(bounded)

    def new(e: Expr) -> Expr:
        if (value := table.get(e)) is not None:
            return value
        match e:
            case Logic(op=op, lhs=a, rhs=b) if isinstance(a, Const) or isinstance(b, Const):
                return logic(op == "and", a, b)
            case Not(operand=Const(value=value)):
                return FALSE if value else TRUE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case Binary(op="min" | "max" | "%") | Compare() if names.isdisjoint(free_vars(e)):
                return e
            case Binary(op="min" | "max" as op, lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if follows(Compare("<=", a, b)):
                    return a if op == "min" else b
                return (b if op == "min" else a) if follows(Compare("<=", b, a)) else e
            case Binary(op="%", lhs=a, rhs=b) if dtype_of(e) == INDEX:
                return a if follows(Compare(">=", a, ZERO)) and follows(Compare("<", a, b)) else e
            case Compare(lhs=a) if dtype_of(a) == INDEX:
                return TRUE if follows(e) else FALSE if follows(negate(e)) else e
            case _:
                return e

    def value_of(e: Expr) -> Expr:
        return rewrite_expr(e, new) if known else e

    def run(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
        return tuple(x for s in body for x in one(s))

    def one(s: Flat) -> tuple[Flat, ...]:
        match s:
            case Store():
                at, fold = tuple(map(value_of, s.indices)), fold_of(s)
                # `S[i] or true` stays a fold, which an atomic update is.
                old = Load(s.buffer, at, dtype_of(s.value))
                value = value_of(s.value) if fold is None else combine(fold.op, old, value_of(fold.value))
                return (replace(s, indices=at, value=value),)
            case If():
                cond = value_of(s.cond)
                here = tuple(c for c in conjuncts(cond) if not loads(c))
                inner = () if cond == FALSE else decided(s.body, (*known, *here)) if here else run(s.body)
                return inner if cond == TRUE or not inner else (If(cond, inner),)
            case Loop():
                s = replace(s, begin=value_of(s.begin), end=value_of(s.end))
            case _:
                pass
        inner = run(s.body)
        return (replace(s, body=inner),) if inner else ()

    return run(body)


# The conditions in a loop.


LINE = CACHE_LINE // 4
"""A vectorized loop is cut at multiples of this many iterations, so that what is between borders begins at a whole vector,
and at a cache line of 32-bit elements."""

MOST = 4
"""Choices that change at more places than these are no border: each part would have code of its own."""


@frozen
class Around:
    """The loops between a loop and a condition in it.

    A row is a vectorized loop that maps elements of buffers in memory. A condition over it, `x * 64 + j < W`, is cut at the
    innermost loop around the row that it names, once for all that is outside: cut at each loop, a tile with five stages
    would have a copy of all of them for each piece of each loop.
    """

    ranges: Ranges
    lanes: frozenset[str] = frozenset()
    """Vectorized loops, and those that are written out around rows."""
    rows: frozenset[str] = frozenset()
    """Rows and loops with no other vectors, written out or serial."""
    serial: frozenset[str] = frozenset()
    """The serial ones of these."""


def asked(
    body: tuple[Flat, ...], around: Around, registers: frozenset[str] | None
) -> Iterator[tuple[Expr, Flat, Around]]:
    """The guards, and the choices of indices in stores, with the statements that have them. Rows are told apart if buffers
    may be in `registers`."""
    for s in body:
        match s:
            case Store():
                for c in choices(s):
                    yield c, s, around
                continue
            case If():
                for c in conjuncts(s.cond):
                    yield c, s, around
                here = around
            case Loop():
                v, kind = frozenset((s.var,)), s.kind
                row = registers is not None and _is_or_holds_rows(s, registers)
                here = Around(
                    within(around.ranges, s),
                    around.lanes | v
                    if kind is LoopKind.VECTORIZED or (row and kind is LoopKind.UNROLLED)
                    else around.lanes,
                    around.rows | v if row else around.rows,
                    around.serial | v if row and kind is LoopKind.SERIAL else around.serial,
                )
            case _:
                here = data_replace(around, ranges=within(around.ranges, s))
        yield from asked(s.body, here, registers)


def conditions(e: Expr, ranges: Ranges) -> Iterator[Compare]:
    """The conditions on which the value of a choice depends."""
    match e:
        case Compare():
            yield e
        case Binary(op="min" | "max", lhs=a, rhs=b):
            yield from (Compare("<", sub(x, y), ZERO) for x in _operands(a) for y in _operands(b))
        case Binary(op="%", lhs=a, rhs=b):
            # Beyond a border of an image that repeats: remainders of more than one period inside are no border.
            period, (low, high) = constant(b), bounds(a, ranges)
            if period is None:
                yield Compare("<", a, ZERO)
                yield Compare("<", sub(a, b), ZERO)
            if period is not None and period > 0 and low is not None and high is not None:
                first, last = low // period, high // period
                if 0 < last - first <= MOST:
                    yield from (Compare("<", sub(a, index(period * k)), ZERO) for k in range(first + 1, last + 1))
        case _:
            pass


def _operands(e: Expr) -> tuple[Expr, ...]:
    """What an extreme of extremes is one of."""
    return (*_operands(e.lhs), *_operands(e.rhs)) if isinstance(e, Binary) and e.op in ("min", "max") else (e,)


@by_identity(4096)
def choices(s: Store) -> tuple[Expr, ...]:
    """The extremes, remainders and comparisons of indices in a store, each once. None if it adds to what it stores: the tile
    of a reduction stays whole, since it is in registers. A step of a scan reads other elements of its buffer."""
    if any((x.buffer, x.indices) == (s.buffer, s.indices) for x in store_loads(s)):
        return ()
    found: dict[Expr, None] = {}
    stack: list[Expr] = [*s.indices, s.value]
    while stack:
        e = stack.pop()
        if not free_vars(e):
            continue
        index_choice = isinstance(e, Binary) and e.op in ("min", "max", "%") and dtype_of(e) == INDEX
        if index_choice or (isinstance(e, Compare) and dtype_of(e.lhs) == INDEX):
            found[e] = None
        stack.extend(children(e))
    return tuple(found)


def kept(body: tuple[Flat, ...]) -> frozenset[str]:
    """The buffers that may be in registers."""
    small = (s for s in inside(body) if isinstance(s, Alloc) and s.space == "stack")
    return frozenset(s.name for s in small if (constant(s.size) or 0) * s.dtype.bytes <= REGISTER_FILE)


def lanes_of(s: Flat) -> int:
    """The number of lanes of a vectorized loop; 0 for other statements."""
    return (_iterations(s) or 0) if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED else 0


def is_row(s: Flat, registers: frozenset[str]) -> bool:
    """Whether a statement is a vectorized loop that maps elements of buffers in memory."""
    if not isinstance(s, Loop) or lanes_of(s) < LINE:
        return False
    return all(is_mapped(x, frozenset((s.var,)), registers) for x in stores((s,)))


def is_mapped(s: Store, lanes: frozenset[str], registers: frozenset[str]) -> bool:
    """Whether a store is no sum, and its lanes access memory only: what all of them read may be in a register."""
    read = store_loads(s)
    if s.buffer in registers or any(x.buffer == s.buffer for x in read):
        return False
    return all(x.buffer not in registers or lanes.isdisjoint(free_vars(x)) for x in read)


def _is_or_holds_rows(s: Loop, registers: frozenset[str]) -> bool:
    """Whether a loop is a row, or is serial or written out and has vectors that are all rows."""
    if s.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return is_row(s, registers)
    vectors = [x for x in inside(s.body) if lanes_of(x)]
    return bool(vectors) and all(is_row(x, registers) for x in vectors)


def _iterations(s: Loop) -> int | None:
    begin, end = constant(s.begin), constant(s.end)
    return None if begin is None or end is None else end - begin


# Guards over open sizes: the pieces before, in and behind the last tile.


SHORT_NEST = 2048
"""The number of runs of its stores up to which a nest keeps its guards, since it may be unrolled as a whole."""

COPIES = 8
"""The number of copies of a statement that all cuts at open sizes together may make; further guards stay guards."""

PIECES = 12
"""The same of all cuts at numbers."""


@frozen
class Loops:
    """The loops around a statement: their ranges, the buffers that may be in registers, or None if no size is open, and the
    copies of the statement that cuts of them have made."""

    ranges: Ranges
    registers: frozenset[str] | None
    copies: int = 1
    open_copies: int = 1

    def within(self, s: Flat) -> Loops:
        return data_replace(self, ranges=within(self.ranges, s))


Piece = tuple[Expr, Expr, tuple[Flat, ...], bool]
"""The begin and the end of a piece of a loop, its body, and whether it has at most one iteration."""


def _worth_cutting(s: Loop) -> bool:
    """Whether a loop should be cut. Short nests keep their guards: after a cut they would have no constant number of
    iterations and could not be unrolled, and nests that access registers must be."""
    n = _runs(s)
    return n is None or (s.kind is LoopKind.SERIAL and n > SHORT_NEST)


def _runs(s: Flat) -> int | None:
    """The number of runs of the most frequent store inside; None if that is open."""
    most, own = 1, _iterations(s) if isinstance(s, Loop) else 1
    for x in body_of(s):
        n = _runs(x)
        if n is None:
            return None
        most = max(most, n)
    return None if own is None else own * most


def _open_guard(var: str, body: tuple[Flat, ...], at: Loops, tried: frozenset[Expr]) -> Cut | None:
    """The cut of the first guard in a body, not in `tried`, over open sizes and the variable, with all that change with it.
    Conditions over rows are left to cuts at borders."""
    if at.registers is None or at.open_copies * 2 > COPIES or var not in _guarding(body):
        return None
    inner = hull(body)
    found: dict[Expr, Cut] = {}
    for c, s, around in asked(body, Around({}), at.registers):
        if isinstance(s, If) and c not in found and c not in tried and var in free_vars(c) and dims_in(c):
            over_rows = not (around.rows).isdisjoint(free_vars(c))
            if not over_rows and (cut := cut_at(c, var, inner, at.ranges)) is not None:
                found[c] = cut
    if not found:
        return None
    cut = next(iter(found.values()))
    return data_replace(cut, conds=tuple(c for c, x in found.items() if data_replace(x, conds=cut.conds) == cut))


@by_identity(256)
def _guarding(body: tuple[Flat, ...]) -> frozenset[str]:
    """The names in the guards of a body."""
    found = frozenset[str]()
    for s in body:
        if not isinstance(s, Store):
            found |= _guarding(s.body)
            if isinstance(s, If):
                found |= free_vars(s.cond)
    return found


def _tiles(cut: Cut, begin: Expr, end: Expr, body: tuple[Flat, ...], ranges: Ranges) -> Iterator[Piece]:
    """The pieces of a loop in order, without those that are known to be empty."""
    near = between(cut.near, begin, end, ranges)
    far = between(cut.far, near, end, ranges)
    middle = body if near != far else ()
    bodies = (decided(body, cut.before), middle, decided(body, cut.after))
    for k, ((low, high), part) in enumerate(zip(pairwise((begin, near, far, end)), bodies, strict=True)):
        if part and possible(Compare("<", low, high), ranges):
            yield low, high, part, k == 1 and cut.width <= 1


# Borders of images over open sizes.
#
# A row that is cut into vectors reads `X[min(max(x * 16 + j - 1, 0), W - 1)]`, so each vector is gathered. With `j` in 0 ..
# 16 the choices are decided from the first iteration of `x` on in which `x * 16 - 1 >= 0`, up to the one in which `x * 16 +
# 15` passes `W`. Between the two the elements are adjacent. In an image smaller than a vector there is nothing between.


ROUNDS = 2
"""How often the part between borders is cut again: a mirror is a remainder, and a minimum of it."""


@frozen
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


def _between_borders(var: str, body: tuple[Flat, ...], at: Loops, *, is_open: bool) -> Inside | None:
    """The iterations in which choices of vectors, the masks of rows and, of rows that are written out, which of them are
    there and read at a border are decided; None if the loop variable decides none.

    What changes at a number is at the beginning of a row, and what changes at an open size is at its end.
    """
    registers = at.registers
    if registers is None:
        return None
    found: dict[Expr, None] = {}
    now = False
    for e, s, around in asked(body, Around({}), registers):
        names = free_vars(e)
        if not (around.lanes).isdisjoint(names):
            if isinstance(s, Store):
                new = [c for c in conditions(e, {}) if var in free_vars(c)]
            else:
                is_mask = (
                    isinstance(e, Compare)
                    and var in names
                    and all(is_mapped(x, around.lanes, registers) for x in stores((s,)))
                )
                new = [e] if is_mask else []
            found.update(dict.fromkeys(new))
            # A serial loop over rows decides its conditions later.
            now = now or (bool(new) and around.serial.isdisjoint(names))
    if not now:
        return None
    # What is known of a variable has to hold wherever it occurs: loops that were cut before have several parts.
    inner = hull(body)
    low: list[Expr] = []
    high: list[Expr] = []
    after: list[Expr] = []
    before: list[Expr] = []
    for cond in found:
        known = ({**inner, **at.ranges}.get(v, (None, None)) for v in free_vars(cond))
        if not is_open and not dims_in(cond) and all(None not in r for r in known):
            continue  # it is cut at a number
        cut = cut_at(cond, var, inner, at.ranges)
        if cut is None:
            continue
        if dims_in(cut.near) or dims_in(cut.far):
            high.append(cut.near)
            before += cut.before
        else:
            low.append(cut.far)
            after += cut.after
    if not after and not before:
        return None
    return Inside(_extreme("max", low, at.ranges), _extreme("min", high, at.ranges), tuple(after), tuple(before))


def _border_pieces(
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


def _branch(var: str, found: Inside, body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The body of a loop over tiles: what is between the borders is a branch, so that both borders have one copy."""
    conds = [Compare(">=", Var(var), found.low)] if found.low is not None else []
    conds += [Compare("<", Var(var), found.high)] if found.high is not None else []
    between_borders = conjunction(tuple(conds))
    assert between_borders is not None  # there is a border
    return (If(between_borders, decided(body, found.facts)), If(negate(between_borders), body))


def _in_lines(s: Loop, at: Loops) -> tuple[Flat, ...] | None:
    """A row with borders or a mask in lines of 16, most of which have none: those before the border is passed, those between
    borders, and those behind. A part may be empty. None for other vectorized loops.

    Borders are a small part of an image, so their position is not analysed.
    """
    lanes = lanes_of(s)
    if at.registers is None or lanes < 2 * LINE or s.begin != ZERO or not is_row(s, at.registers):
        return None
    line = f"{s.var}.line"
    place = add(mul(Var(line), index(LINE)), Var(s.var))
    body = tuple(substituted(x, {s.var: place}) for x in s.body)
    whole = Loop(line, ZERO, index(lanes // LINE), LoopKind.SERIAL, (replace(s, end=index(LINE), body=body),))
    inside_it = at.within(whole)
    found = _between_borders(line, whole.body, inside_it, is_open=True)
    if found is None or found.high is None:
        return None

    def limited(e: Expr, low: Expr, high: Expr) -> Expr:
        return simplify(Binary("min", Binary("max", e, low), high), inside_it.ranges)

    out: list[Flat] = []
    for begin, end, facts in _border_pieces(found, whole, limited):
        out.append(replace(whole, begin=begin, end=end, body=decided(whole.body, facts)))
    return (*out, *((replace(s, begin=index(lanes // LINE * LINE)),) if lanes % LINE else ()))


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


# Guards and choices over numbers.


def cut_points(var: str, begin: int, end: int, kind: LoopKind, body: tuple[Flat, ...], ranges: Ranges) -> list[int]:
    """The edges of the pieces of a loop from `begin` to `end`, ascending: values at which a guard of the body starts or
    stops to hold always, or at which a choice in a vector starts or stops to be decided, unless there are many of those.

    An unrolled loop is cut at other choices, too: rows of an image that are certain to be inside are read at known distances
    from each other then, and what two iterations read is loaded once. The body of a parallel one is cut at guards alone.
    """
    own = frozenset((var,)) if kind is LoopKind.UNROLLED else frozenset[str]()
    vectors, written_out = kind is LoopKind.VECTORIZED, kind is LoopKind.UNROLLED
    guards: set[int] = set()
    borders: set[int] = set()
    around = Around({**ranges, var: (begin, end - 1)}, lanes=frozenset((var,)) if vectors else frozenset())
    for e, s, here in asked(body, around, None):
        if isinstance(s, If):
            if var in free_vars(e) and isinstance(e, Compare) and dtype_of(e.lhs) == INDEX and not _is_around_long(s):
                guards.update(_places(e, var, here.ranges))
        elif kind is not LoopKind.PARALLEL and not (here.lanes | own).isdisjoint(free_vars(e)):
            for c in conditions(e, here.ranges):
                if var in free_vars(c):
                    borders.update(
                        _places(c, var, here.ranges)
                        or _around(c, var, (begin, end), here.ranges, LINE if vectors else 1)
                    )
                    if written_out and c.op == "<":  # an extreme of equal operands is decided, too
                        borders.update(_places(Compare("<=", c.lhs, c.rhs), var, here.ranges))
    if vectors:
        borders = {on_whole_lines(c, begin, end) for c in borders if begin < c < end}
    inner = {c for c in borders if begin < c < end}
    inner = inner if len(inner) <= MOST or written_out else set[int]()
    return [begin, *sorted({c for c in guards if begin < c < end} | inner), end]


LONG = 64
"""The rounds of a loop beside which a guard around it costs nothing: no copy of the loop is made to decide it."""


def _is_around_long(s: If) -> bool:
    """Whether a guard is around a serial loop of many rounds, as one that leaves out a row of zeros is."""
    serial = (x for x in inside(s.body) if isinstance(x, Loop) and x.kind is LoopKind.SERIAL)
    return any((_iterations(x) or 0) >= LONG for x in serial)


def on_whole_lines(c: int, begin: int, end: int) -> int:
    """The place moved to a multiple of `LINE`, away from the nearer end, so that short pieces have the borders."""
    return -(-c // LINE) * LINE if c - begin <= end - c else c // LINE * LINE


def _places(c: Compare, var: str, ranges: Ranges) -> list[int]:
    """The numbers at which a condition that is linear in the variable changes."""
    # What is not known of a range is so far away that no loop is cut there.
    known = {v: (-FAR >> 8 if a is None else a, FAR >> 8 if b is None else b) for v, (a, b) in ranges.items()}
    equal = c.op in ("==", "!=")
    cuts = cuts_of(Compare("==", c.lhs, c.rhs) if equal else c, var, known, known)
    places = {n for x in cuts for e in (x.near, x.far) if (n := constant(e)) is not None}
    # An equality changes twice if it holds for one value.
    return sorted(places) if not equal or (len(places) == 2 and not any(x.width for x in cuts)) else []


def _around(cond: Compare, var: str, values: tuple[int, int], ranges: Ranges, step: int) -> list[int]:
    """The values between which a condition that is not linear is decided, if those are all but the first and last `step`."""
    begin, end = values[0] + step, values[1] - step
    known = begin < end and prove(cond, {**ranges, var: (begin, end - 1)}) is not None
    return [begin, end] if known else []


def _affordable(edges: list[int], most: int, kind: LoopKind) -> list[int]:
    """The edges of at most so many pieces, the first ones. Of a row of vectors always the longest piece, and what is beside
    it: that is where the time goes, however often loops around it are cut."""
    if len(edges) - 1 <= most:
        return edges
    if kind is not LoopKind.VECTORIZED or most >= 3:
        return [*edges[:-1][: max(1, most)], edges[-1]]
    low, high = max(pairwise(edges), key=lambda x: x[1] - x[0])
    return sorted({edges[0], low, high, edges[-1]})


# The pass.


def partition(body: tuple[Flat, ...], *, open_sizes: bool = True) -> tuple[Flat, ...]:
    """The same stores in the same order, specialised to the ranges of their loops."""
    return _body(body, Loops({}, kept(body) if open_sizes else None))


def _body(body: tuple[Flat, ...], at: Loops) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(map_store(s, lambda e: simplify(e, at.ranges)))
            case If():
                out += _under(s.cond, at, partial(_body, s.body))
            case Loop():
                out += _loop(s, at)
            case Parallel():
                out += _parallel(s, at)
            case _:
                inner = _body(s.body, at)
                out += [replace(s, body=inner)] if inner else []
    return tuple(out)


def _under(cond: Expr, at: Loops, made: Callable[[Loops], tuple[Flat, ...]]) -> tuple[Flat, ...]:
    """What is made of a statement under a condition."""
    cond = simplify(cond, at.ranges)
    inner = () if cond == FALSE else made(data_replace(at, ranges=narrowed(cond, at.ranges)))
    return inner if cond == TRUE or not inner else (If(cond, inner),)


def _loop(s: Loop, at: Loops, tried: frozenset[Expr] | None = frozenset(), rounds: int = ROUNDS) -> tuple[Flat, ...]:
    """The pieces of a loop: it is cut at guards over open sizes but those `tried`, unless that is None, and so many more
    times at borders."""
    s = replace(s, begin=simplify(s.begin, at.ranges), end=simplify(s.end, at.ranges))
    here = at.within(s)
    out: list[Flat] = []
    if tried is not None and _worth_cutting(s) and (cut := _open_guard(s.var, s.body, here, tried)):
        twice = data_replace(at, open_copies=at.open_copies * 2)
        for begin, end, body, single in _tiles(cut, s.begin, s.end, s.body, here.ranges):
            if single:
                only = tuple(substituted(x, {s.var: begin}) for x in body)
                out += _under(Compare("<", begin, end), twice, partial(_body, only))
            else:
                out += _loop(replace(s, begin=begin, end=end, body=body), twice, tried.union(cut.conds), rounds)
        return tuple(out)
    if at.registers is not None and s.kind is LoopKind.VECTORIZED and rounds:
        s = replace(s, body=decided(s.body, ()))
        if (lines := _in_lines(s, at)) is not None:
            return tuple(x for line in lines if isinstance(line, Loop) for x in _loop(line, at, None, 0))
    if s.kind is LoopKind.SERIAL and rounds:
        is_open = constant(s.begin) is None or constant(s.end) is None
        found = _between_borders(s.var, s.body, here, is_open=is_open)
        if found and any(isinstance(x, Loop) and x.kind is LoopKind.SERIAL for x in inside(s.body)):
            s = replace(s, body=_branch(s.var, found, s.body))
        elif found:
            for begin, end, facts in _border_pieces(found, s, lambda e, low, high: between(e, low, high, here.ranges)):
                if possible(Compare("<", begin, end), here.ranges):
                    piece = replace(s, begin=begin, end=end, body=decided(s.body, facts))
                    out += _loop(piece, at, None, rounds - 1 if facts == found.facts else 0)
            return tuple(out)
    begin, end = constant(s.begin), constant(s.end)
    if begin is None or end is None:
        inner = _body(s.body, here)
        return (replace(s, body=inner),) if inner else ()
    edges = cut_points(s.var, begin, end, s.kind, s.body, at.ranges)
    copies = at.copies
    if s.kind is not LoopKind.UNROLLED:  # an unrolled loop is written out in full in any case
        edges = _affordable(edges, PIECES // copies, s.kind)
        copies *= len(edges) - 1
    for low, high in pairwise(edges):
        if low < high:
            inner = _body(s.body, data_replace(at, ranges={**at.ranges, s.var: (low, high - 1)}, copies=copies))
            once = high - low == 1 or not inner
            out += inner if once else (replace(s, begin=index(low), end=index(high), body=inner),)
    return tuple(out)


Way = Literal["guards", "borders", "numbers"]


def _parallel(s: Parallel, at: Loops) -> tuple[Flat, ...]:
    """A parallel loop stays one loop, and its pieces become branches inside it, so that threads start and join once."""
    ways: tuple[Way, ...] = ("guards", "borders", "numbers")
    inner = _branches(
        [(way, v, e) for way in ways for v, e in zip(s.vars, s.extents, strict=True)], s.body, at.within(s)
    )
    if not inner:
        return ()
    left = [(v, e) for v, e in zip(s.vars, s.extents, strict=True) if constant(e) != 1]
    return (Parallel(tuple(v for v, _ in left), tuple(e for _, e in left), inner),) if left else inner


def _branches(
    ways: list[tuple[Way, str, Expr]], body: tuple[Flat, ...], at: Loops, tried: frozenset[Expr] = frozenset()
) -> tuple[Flat, ...]:
    """The body of a parallel loop, cut by the variables in these ways."""
    if not ways:
        return _body(body, at)
    (way, var, extent), *rest = ways
    n = constant(extent)
    match way:
        case "guards":
            cut = _open_guard(var, body, at, tried)
            if cut is None:
                return _branches(rest, body, at, tried)
            twice, tried = data_replace(at, open_copies=at.open_copies * 2), tried.union(cut.conds)
            out: list[Flat] = []
            for begin, end, part, single in _tiles(cut, ZERO, extent, body, at.ranges):
                part = tuple(substituted(x, {var: begin}) for x in part) if single else part
                made = partial(_branches, rest if single else ways, part, tried=tried)
                out += _under(_in_range(var, begin, end, extent), twice, made)
            return tuple(out)
        case "borders":
            found = _between_borders(var, body, at, is_open=n is None)
            if found is None:
                return _branches(rest, body, at)
            return _branches([x for x in rest if x[0] == "numbers"], _branch(var, found, body), at)
        case "numbers":
            edges = [0, 0] if n is None else cut_points(var, 0, n, LoopKind.PARALLEL, body, at.ranges)
            edges = _affordable(edges, PIECES // at.copies, LoopKind.PARALLEL)
            if len(edges) == 2:
                return _branches(rest, body, at)
            more = data_replace(at, copies=at.copies * (len(edges) - 1))
            parts = (_in_range(var, index(low), index(high), extent) for low, high in pairwise(edges))
            return tuple(x for c in parts for x in _under(c, more, partial(_branches, rest, body)))


def _in_range(var: str, begin: Expr, end: Expr, extent: Expr) -> Expr:
    """The condition that a variable is in a piece of its loop."""
    conds = [Compare(">=", Var(var), begin)] if begin != ZERO else []
    conds += [Compare("<", Var(var), end)] if end != extent else []
    return conjunction(tuple(conds)) or TRUE
