"""Loops of which data choose one iteration: `for b: H[b] += (v if X[i] == b else 0)` changes nothing but where b is `X[i]`.

Each store of such a loop adds the neutral element of its operation to what it stores, unless one comparison holds. The
comparison is linear in the loop's variable with the factor 1 or -1, so at most one iteration makes it hold, and which one
is computed from the data. An iteration that keeps its condition is right even where the data choose none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import isfinite

from tensorc_dsl.ir.dtypes import BOOL, I64, INDEX, DType, consecutive, limits, nearest
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Not,
    Select,
    conjunction,
    dtype_of,
    free_vars,
    loads,
    substitute,
)
from tensorc_dsl.ir.node import node
from tensorc_dsl.ir.program import Block, For, Store, store_at, walk
from tensorc_dsl.ir.reductions import fold_of, identity
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, Ranges, linear, negate, to_expr
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, extent_ranges, prove

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


@node
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
            case Cast(operand=x, dtype=t) if t != INDEX and start == Const(_zero(t), t):
                inner = dtype_of(x)
                return self.of_value(x, Const(_zero(inner), inner))
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


def _zero(t: DType) -> int | float | bool:
    return False if t == BOOL else 0.0 if t.is_float else 0


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
