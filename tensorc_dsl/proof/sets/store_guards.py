"""Conditions of stores: as conditions on elements, those without which a fold changes nothing, those that fill in padding
with zero, and those by which data choose the iteration of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import permutations
from math import isfinite

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, I64, INDEX, DType, consecutive, limits, nearest
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    add,
    conjunction,
    dtype_of,
    floormod,
    free_vars,
    index,
    loads,
    mul,
    sub,
    substitute,
    zero_of,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, For, Program, Store, blocks, is_atomic, store_at, walk
from tensorc_dsl.ir.reductions import fold_of, identity
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, Ranges, linear, negate, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, feasible
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, extent_ranges, prove

# Turns conditions on a store into conditions on the element that it stores.
#
# With outer loops fixed, a block writes a box of a buffer, and guards of partial tiles cut the box. For
# `P[t*8 + a*3 + b] = …` where `a*3 + b < 8`, an iteration of `a` writes `P[e]` for `t*8 + a*3 <= e < t*8 + a*3 + 3` only
# if `e - t*8 < 8`. So boxes that overlap according to their loops may have cut parts that do not.


def cuts(
    subscripts: Sequence[Expr], where: Sequence[Expr], inner: Collection[str], ranges: Ranges, element: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Conditions that a stored element satisfies; `element` has an expression for its coordinate in each dimension.

    `subscripts` and `where` are over loop variables; those of `inner` do not appear in the result. A condition is used if
    its terms over inner variables are a multiple of the inner terms of one subscript, or of the number whose quotients and
    remainders are several. Other conditions are dropped; the result over-approximates: every element that is written
    satisfies it.
    """
    context = Context(ranges)
    whole = _whole(subscripts, element, inner, context)
    parts = [(*_parts(i, inner, context), e) for i, e in (*zip(subscripts, element, strict=True), *whole)]
    out: list[Expr] = []
    for start, moving, e in parts[len(subscripts) :]:
        low, high = context.range_of(moving)
        here = sub(e, to_expr(start))
        out += [] if low is None else [Compare(">=", here, index(low))]
        out += [] if high is None else [Compare("<=", here, index(high))]
    for c in where:
        if not isinstance(c, Compare):
            continue
        outside, inside = _parts(sub(c.lhs, c.rhs), inner, context)
        if not inside.terms:
            out.append(Compare(c.op, to_expr(outside), ZERO))
            continue
        for start, moving, e in parts:
            n = _multiple(inside, moving)
            if n is not None:
                here = sub(mul(e, index(n)), to_expr(start.times(n)))
                out.append(Compare(c.op, add(here, to_expr(outside)), ZERO))
                break
    return tuple(out)


@frozen
class _Part:
    """`(whole / unit) % size`, without a remainder if there is no size, and the coordinate of the element that it is."""

    whole: Expr
    unit: int
    size: int | None
    at: Expr


def _whole(
    subscripts: Sequence[Expr], element: Sequence[Expr], inner: Collection[str], context: Context
) -> list[tuple[Expr, Expr]]:
    """The numbers whose quotients and remainders are subscripts, each with the same number of the element.

    Their terms over inner variables have no quotients themselves.
    """
    found = [x for s, e in zip(subscripts, element, strict=True) if (x := _part(s, e, context)) is not None]
    while (
        pair := next(((x, y, z) for x, y in permutations(found, 2) if (z := _joined(x, y, context))), None)
    ) is not None:
        found = [x for x in found if x not in pair[:2]] + [pair[2]]
    out: list[tuple[Expr, Expr]] = []
    for x in found:
        moving = _parts(x.whole, inner, context)[1]
        if x.unit == 1 and x.size is None and moving.terms and all(isinstance(a, str) for a in moving.terms):
            out.append((x.whole, x.at))
    return out


def _part(e: Expr, at: Expr, context: Context) -> _Part | None:
    """The part of a number that a subscript is; None if it has no quotient and no remainder."""
    unit, size = 1, None
    form = linear(e, context)
    match list(form.terms):
        case [Binary(op="%", lhs=x, rhs=Const(value=int(m)))] if m > 0 and form == linear(
            floormod(x, index(m)), context
        ):
            form, size = linear(x, context), m
        case _:
            pass
    while (quotient := next((a for a, c in form.terms.items() if isinstance(a, Binary) and c == 1), None)) is not None:
        match quotient:
            case Binary(op="/", lhs=x, rhs=Const(value=int(n))) if n > 0:
                form = form.minus(Linear({quotient: 1}, 0)).times(n).plus(linear(x, context))
                unit *= n
            case _:
                return None
    return None if (unit, size) == (1, None) else _Part(to_expr(form), unit, size, at)


def _joined(high: _Part, low: _Part, context: Context) -> _Part | None:
    """The part that consists of two: of the numbers of the lower one only the remainder counts."""
    if low.size is None or high.unit != low.unit * low.size:
        return None
    apart = linear(sub(high.whole, low.whole), context)
    if any(c % high.unit for c in (*apart.terms.values(), apart.constant)):
        return None
    size = None if high.size is None else low.size * high.size
    return _Part(high.whole, low.unit, size, add(mul(high.at, index(low.size)), low.at))


def _parts(e: Expr, inner: Collection[str], context: Context) -> tuple[Linear, Linear]:
    """The form of an expression without its terms over inner variables, and these terms."""
    form = linear(e, context)
    moving = {a: c for a, c in form.terms.items() if (a in inner if isinstance(a, str) else free_vars(a) & set(inner))}
    return Linear({a: c for a, c in form.terms.items() if a not in moving}, form.constant), Linear(moving, 0)


def _multiple(form: Linear, of: Linear) -> int | None:
    """The number n with `form = n * of`; None if there is none."""
    atom = next(iter(form.terms))
    if atom not in of.terms or form.terms[atom] % of.terms[atom]:
        return None
    n = form.terms[atom] // of.terms[atom]
    return n if of.times(n) == form else None


# Conditions without which a fold changes nothing: `S[i] = S[i] + (x if c else 0.0)` needs `c`.
#
# Elsewhere the fold adds the neutral element of its operation. That is exact for integers, and for minima, maxima and
# products of floats, NaN among them: `x * 1.0`, `min(x, inf)` are `x`. A sum of floats differs in one case, `-0.0 + 0.0` is
# `0.0`. So a sum counts only if what it adds to is never -0.0: it begins with another number, and a sum is -0.0 only if
# both of its terms are. `docs/decisions/0092-loop-bounds-from-conditions.md` has the argument.


def parts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that hold exactly if `cond` does, in the order in which it asks them: each may be evaluated where those
    before it hold."""
    match cond:
        case Const(value=True):
            return ()
        case Logic(op="and", lhs=a, rhs=b) | Select(cond=a, then=b, other=Const(value=False)):
            return (*parts(a), *parts(b))
        case Select(cond=a, then=Const(value=False), other=b):
            return (*parts(negate(a)), *parts(b))
        case Not(operand=a) if (opposite := negate(a)) != cond:
            return parts(opposite)
        case _:
            return (cond,)


def needed(s: Store, above_zero: frozenset[str]) -> tuple[Expr, ...]:
    """The conditions without one of which a store leaves its buffer as it is, in the order in which it asks them; none if it
    is no fold. `above_zero` are the buffers of `never_negative_zero`.
    """
    fold = fold_of(s)
    if fold is None:
        return ()
    t = dtype_of(fold.value)
    if t == BOOL:
        return parts(fold.value if fold.op == "or" else negate(fold.value))
    start = identity(fold.op, t)
    if not (t.is_float and fold.op == "+"):
        return _other_than(fold.value, (start,))
    return _other_than(fold.value, (Const(-0.0, t), start) if s.buffer in above_zero else (Const(-0.0, t),))


def _other_than(e: Expr, neutral: tuple[Const, ...]) -> tuple[Expr, ...]:
    """The conditions without one of which the value of `e` is neutral."""
    t = dtype_of(e)
    zero = zero_of(t)
    match e:
        case Select(cond=c, then=a, other=b) if b in neutral:
            return (*parts(c), *_other_than(a, neutral))
        case Select(cond=c, then=a, other=b) if a in neutral:
            return (*parts(negate(c)), *_other_than(b, neutral))
        case Cast(operand=x) if zero in neutral and dtype_of(x) != INDEX:
            return _other_than(x, (zero_of(dtype_of(x)),))
        case Binary(op="*", lhs=a, rhs=b) if t.is_integer and zero in neutral:
            return (*_other_than(a, neutral), *_other_than(b, neutral))
        case _:
            return parts(e) if t == BOOL and zero in neutral else ()


@by_identity(64)
def never_negative_zero(program: Program) -> frozenset[str]:
    """The buffers of floats of which no element is ever -0.0: each store into them is another number, adds to its element, or
    copies from one of them. An element is stored before it is read, so the first store into it adds to nothing. Atomic
    updates may take numbers near 0 as 0, and keep their sign.
    """
    stores = [s for b in blocks(program) for s in (*b.init, *b.body)]
    atomic = {s.buffer for b in blocks(program) if is_atomic(b) for s in b.body}
    found = {s.buffer for s in stores if dtype_of(s.value).is_float} - atomic
    while bad := {s.buffer for s in stores if s.buffer in found and not _is_above(s, found)}:
        found -= bad
    return frozenset(found)


def _is_above(s: Store, above: set[str]) -> bool:
    match s.value:
        case Const(value=v, dtype=t):
            return Const(nearest(float(v), t), t) != Const(-0.0, t)  # a number may be too small for its type
        case Load(buffer=b):
            return b in above
        case Call(function="exp" | "exp2" | "sigmoid"):
            return True  # of each argument, and what is rounded to 0 is 0.0
        case _:
            fold = fold_of(s)
            return fold is not None and fold.op == "+"


# Copies that fill in padding: an element of an array, or zero where a condition does not hold.


@frozen
class Filled:
    """What a copy stores: an element of an array, or zero where there is a condition and it does not hold."""

    load: Load
    cond: Expr | None


def filled(e: Expr) -> Filled | None:
    """What a copy stores as such; None if it is something else. Of conditions inside each other, all have to hold."""
    match e:
        case Load():
            return Filled(e, None)
        case Select(cond=cond, then=then, other=other) if _is_zero(other) and (inner := filled(then)):
            return Filled(inner.load, cond if inner.cond is None else conjunction((cond, inner.cond)))
        case Select(cond=cond, then=then, other=other) if _is_zero(then):
            return filled(Select(negate(cond), other, then))
        case _:
            return None


def _is_zero(e: Expr) -> bool:
    """Whether all bits of a value are 0: those of -0.0 are not."""
    return isinstance(e, Const) and e.value == 0 and math.copysign(1.0, e.value) > 0


def is_inside(f: Filled, shape: Sequence[Expr], extents: Mapping[str, Expr], given: Sequence[Expr] = ()) -> bool:
    """Whether a copy, in loops of these extents, is proved to copy the elements inside of an array of a shape, and to fill in
    or leave out all others, where all of `given` hold."""
    within = tuple(
        c for i, n in zip(f.load.indices, shape, strict=True) for c in (Compare(">=", i, ZERO), Compare("<", i, n))
    )
    conds = () if f.cond is None else tuple(conjuncts(f.cond))
    try:
        return not any(feasible(extents, (*given, *conds, negate(c))) for c in within) and not any(
            feasible(extents, (*given, *within, negate(c))) for c in conds
        )
    except NotAffine:
        return False


# Loops of which data choose one iteration: `for b: H[b] += (v if X[i] == b else 0)` changes nothing but where b is `X[i]`.
#
# Each store of such a loop adds the neutral element of its operation to what it stores, unless one comparison holds. The
# comparison is linear in the loop's variable with the factor 1 or -1, so at most one iteration makes it hold, and which one
# is computed from the data. An iteration that keeps its condition is right even where the data choose none.


Guarded = tuple[tuple[Expr, ...], Store]
"""A store over the variables of loops, and the conditions under which it runs."""


_EQUAL = (
    "add a value where a number equals the position, and the neutral element elsewhere: `V[i] if X[i] == i32(b) else 0`"
)
_ALONE = "scatter a loop around sums alone, which do not read what it writes"
_ORDER = "`reorder` the loop into those that count the terms"


class NotChosen(Exception):
    """Data do not choose the iteration. The message is a phrase with the loop as its subject, and `repair` a repair."""

    def __init__(self, reason: str, repair: str = _EQUAL) -> None:
        super().__init__(reason)
        self.repair = repair


@frozen
class Chosen:
    """The only iteration that changes anything, an index. It may be evaluated where `path` holds; elsewhere there is none."""

    at: Expr
    path: tuple[Expr, ...]


def chosen_iteration(around: Sequence[For], loop: For) -> Chosen:
    """The iteration of `loop`, inside the loops `around`, that data choose. Raises NotChosen."""
    below = frozenset(s.var for _, s in walk(loop.body) if isinstance(s, For))
    found: list[Guarded] = []
    for _, b in walk(loop.body):
        if isinstance(b, Block):
            if b.init:
                raise NotChosen(f"holds the initialisation of `{b.name}`", f"`decompose_reduction` of `{b.name}` first")
            found += _bound(b)
    inside = (*around, loop, *(s for _, s in walk(loop.body) if isinstance(s, For)))
    chosen = chosen_of(loop.var, below, found, extent_ranges(inside))
    if chosen is None:
        raise NotChosen("changes nothing")
    return chosen


def _bound(b: Block) -> Iterator[Guarded]:
    """The stores of a block over the loops around it."""
    values = {it.name: it.binding for it in b.iters}
    return ((b.where, store_at(s, values)) for s in b.body)


def chosen_of(var: str, below: frozenset[str], found: Sequence[Guarded], ranges: Ranges) -> Chosen | None:
    """The iteration of the loop `var` that data choose for all of its stores; None if none of them changes anything.

    `below` are the loops inside of it. Raises NotChosen.
    """
    alternatives: list[Chosen] = []
    for guards, s in found:
        fold = fold_of(s)
        if fold is None:
            raise NotChosen(f"holds a store into `{s.buffer}` that adds to no sum, product, minimum or maximum", _ALONE)
        search = _Search(var, ranges)
        one = search.of_value(fold.value, identity(fold.op, dtype_of(fold.value)))
        if one is None:
            continue
        alternatives.append(Chosen(one.at, (*search.outside(guards), *one.path)))
    if not alternatives:
        return None
    first = alternatives[0].at
    if any(x.at != first for x in alternatives):
        raise NotChosen("has several sums, which different data choose", "give each of them a loop of its own")
    path = _any_path([x.path for x in alternatives])
    _require_known(var, below, first, path, frozenset(s.buffer for _, s in found))
    return Chosen(first, path)


def _any_path(paths: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """Conditions that hold where those of one of the paths do."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    joined = [conjunction(p) for p in distinct]
    known = [c for c in joined if c is not None]
    return (reduce(lambda a, b: Logic("or", a, b), known),) if len(known) == len(joined) else ()


def _require_known(var: str, below: frozenset[str], at: Expr, path: Iterable[Expr], written: frozenset[str]) -> None:
    """Raises NotChosen unless the iteration is known before the loop, and the same during it."""
    every = (at, *path)
    if inner := sorted(below & frozenset[str]().union(*map(free_vars, every))):
        raise NotChosen(f"is chosen anew in each iteration of `{inner[0]}`, which is inside of it", _ORDER)
    if any(var in free_vars(e) for e in every):
        raise NotChosen("is chosen under another condition over itself")
    if changed := sorted({x.buffer for e in every for x in loads(e)} & written):
        raise NotChosen(f"writes `{changed[0]}`, which chooses its iteration", _ALONE)


class _Search:
    """Looks for the comparison that chooses the value of `var`."""

    def __init__(self, var: str, ranges: Ranges) -> None:
        self.var = var
        self.ranges = ranges
        self.narrow: DType | None = None
        """A type in which positions are compared although it does not hold all of them."""

    def outside(self, guards: Sequence[Expr]) -> tuple[Expr, ...]:
        """The guards that hold for all iterations or for none. Raises NotChosen for one over this loop and others."""
        kept: list[Expr] = []
        for c in guards:
            used = free_vars(c)
            if self.var not in used:
                kept.append(c)
            elif len(used) > 1 or prove(substitute(c, {self.var: ZERO}), self.ranges) is not True:
                other = min(used - {self.var}, default=self.var)
                raise NotChosen(f"runs under a condition over `{other}` too", "scatter before loops are split or fused")
        return tuple(kept)

    def of_value(self, e: Expr, start: Const) -> Chosen | None:
        """The iteration in which a contribution is not `start`; None if it always is. Raises NotChosen."""
        if e == start:
            return None
        match e:
            case Select(cond=c, then=a, other=b) if b == start:
                return self.of_condition(c) or self.within(c, self.of_value(a, start))
            case Select(cond=c, then=a, other=b) if a == start:
                return self.of_condition(negate(c)) or self.within(negate(c), self.of_value(b, start))
            case Select(cond=c, then=a, other=b):
                x, y = (self.within(k, self.of_value(v, start)) for k, v in ((c, a), (negate(c), b)))
                return self.either(x, y)
            case Cast(operand=x, dtype=t) if t != INDEX and start == zero_of(t):
                inner = dtype_of(x)
                return self.of_value(x, zero_of(inner))
            case Binary(op="*", lhs=a, rhs=b) if start.value == 0:
                return self.of_product(a, b, start)
            case _ if dtype_of(e) == BOOL:
                found = self.of_condition(negate(e) if start.value else e)
                if found is not None:
                    return found
            case _:
                pass
        raise self.not_decided()

    def not_decided(self) -> NotChosen:
        if self.narrow is not None:
            reason = f"is compared as `{self.narrow}`, which has no number of its own for each iteration"
            return NotChosen(reason, "convert the data to a type that has, such as `i32`")
        return NotChosen("adds a value that no comparison of an iteration with data decides")

    def of_product(self, a: Expr, b: Expr, start: Const) -> Chosen | None:
        """As `of_value`: 0 times a finite number is 0. A product with a number that may be infinite is NaN there."""
        for choice, factor in ((a, b), (b, a)):
            try:
                found = self.of_value(choice, start)
            except NotChosen:
                continue
            if start.dtype.is_float and not _is_finite(factor):
                reason = "multiplies what is chosen by a float, and 0 times infinity is no 0"
                raise NotChosen(reason, "write a choice for the product: `V[i] if X[i] == i32(b) else 0.0`")
            return found
        raise self.not_decided()

    def within(self, cond: Expr, found: Chosen | None) -> Chosen | None:
        """What is found in the branch of a choice that is taken where `cond` holds."""
        return None if found is None else Chosen(found.at, (cond, *found.path))

    def either(self, a: Chosen | None, b: Chosen | None) -> Chosen | None:
        if a is None or b is None:
            return a or b
        if a.at != b.at:
            raise NotChosen("adds one of several values, which different data choose")
        return Chosen(a.at, _any_path((a.path, b.path)))

    def of_condition(self, cond: Expr) -> Chosen | None:
        """The iteration in which a condition can hold; None if no part of it says so."""
        for c in conjuncts(cond):
            match c:
                case Compare(op="==", lhs=a, rhs=b) | Not(operand=Compare(op="!=", lhs=a, rhs=b)):
                    if (at := self.solved(a, b)) is not None:
                        return Chosen(at, ())
                case Not(operand=Logic() as inner):
                    if (found := self.of_condition(negate(inner))) is not None:
                        return found
                case _:
                    pass
        return None

    def solved(self, a: Expr, b: Expr) -> Expr | None:
        """The value of the variable at which two expressions can be equal; None if there may be several."""
        if dtype_of(a) == INDEX:
            return self.root(linear(a, Context(self.ranges)).minus(linear(b, Context(self.ranges))))
        for own, data in ((a, b), (b, a)):
            if self.var in free_vars(own) and self.var not in free_vars(data) and isinstance(own, Cast):
                position, t = own.operand, own.dtype
                if dtype_of(position) != INDEX:
                    continue
                if self.keeps(position, t):
                    whole = data if t.is_integer else Cast(data, I64)
                    context = Context(self.ranges)
                    return self.root(linear(position, context).minus(linear(Cast(whole, INDEX), context)))
                self.narrow = t
        return None

    def keeps(self, position: Expr, t: DType) -> bool:
        """Whether each value of an index is a number of the type, so that equal numbers are equal indices."""
        low, high = bounds(position, self.ranges)
        least, most = limits(t) if t.is_integer else (-consecutive(t), consecutive(t))
        return low is not None and high is not None and least <= low and high <= most

    def root(self, form: Linear) -> Expr | None:
        """The value of the variable at which a form is 0."""
        factor = form.terms.get(self.var)
        if factor not in (1, -1) or any(not isinstance(x, str) and self.var in free_vars(x) for x in form.terms):
            return None
        return to_expr(form.minus(Linear({self.var: factor}, 0)).times(-factor))


def _is_finite(e: Expr) -> bool:
    """Whether a float is proved to be neither infinite nor NaN."""
    match e:
        case Const(value=v):
            return isfinite(v)
        case Cast(operand=x, dtype=t):
            inner = dtype_of(x)
            return inner == BOOL or (inner.is_integer and all(isfinite(nearest(n, t)) for n in limits(inner)))
        case Select(then=a, other=b):
            return _is_finite(a) and _is_finite(b)
        case _:
            return False
