"""Takes reductions apart, into the contribution of one step, neutral values and exponentials of differences; and decides
whether their steps run once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from math import isfinite
from typing import Literal, assert_never

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DType, largest_finite
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Var,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    loads,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, For, IterKind, Store
from tensorc_dsl.ir.reductions import (
    Combination,
    Fold,
    combine,
    fold_of,
    identity,
    keeps_to_itself,
    update_of,
)
from tensorc_dsl.proof.sets.digits import Digit, missing_digits, numeral
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, linear
from tensorc_dsl.proof.sets.regions import Nest, apart
from tensorc_dsl.proof.sets.safety import below
from tensorc_dsl.proof.sets.sets import (
    NotAffine,
    affine_only,
    loop_conditions,
    mapping,
    points,
)
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify

# Takes reductions apart: the contribution of one step, the values that leave a result alone, the combination of two
# results. A block may hold several updates that do not read each other's results.


Element = tuple[str, tuple[Expr, ...]]
"""A buffer and the subscripts of an element."""


WITH_REDUCER = "write the reduction with a reducer: `sum[k] …`, `reduce mine[k] …`"


class NotApart(Exception):
    """The block cannot be split into parts. The message is a phrase with `block` as its subject, and `repair` a repair."""

    def __init__(self, reason: str, repair: str) -> None:
        super().__init__(reason)
        self.repair = repair


@frozen
class Part:
    """One update of a block. It writes one of `values` to each of `places`; `start` has values that change no result."""

    kind: Fold | Combination
    places: tuple[Element, ...]
    values: tuple[Expr, ...]
    start: tuple[Const, ...]

    def stores(self, places: Sequence[Element], values: Sequence[Expr]) -> tuple[Store, ...]:
        """The stores that combine other values into other places."""
        match self.kind:
            case Fold(op=op):
                ((name, at),), (value,) = places, values
                return (Store(name, at, combine(op, Load(name, at, dtype_of(value)), value)),)
            case Combination(reducer=reducer):
                return reducer.stores(places, values)
            case _:
                assert_never(self.kind)

    def keeps_start(self) -> bool:
        """Whether initial values combine to initial values, so that parts without a step are allowed."""
        if isinstance(self.kind, Fold):
            return True
        made = map(constant_value, self.kind.reducer.combine(self.start, self.start))
        return all(x == c.value for x, c in zip(made, self.start, strict=True))


def constant_value(e: Expr) -> int | float | bool | None:
    """The value of an expression without variables and loads; None for others."""
    if loads(e) or free_vars(e):
        return None
    import numpy as np  # a late import: checking a file does not need it

    from tensorc_dsl.reference.values import Box, Values

    with np.errstate(all="ignore"):
        return Values("", {}).value(e, Box((), (), ()), None).item()


def parts_of(b: Block) -> tuple[Part, ...]:
    """The updates of a block; without its `init`, the block does nothing else. Raises NotApart."""
    update = update_of(b)
    if isinstance(update, Combination):
        return (Part(update, _places(b.body), update.values, update.reducer.identity),)
    folds = [(s, fold_of(s)) for s in b.body]
    out = tuple(
        Part(f, _places((s,)), (f.value,), (identity(f.op, dtype_of(f.value)),)) for s, f in folds if f is not None
    )
    if len(out) < len(b.body):
        raise NotApart("does not accumulate by an operation that may run in any order", WITH_REDUCER)
    if not keeps_to_itself(b):
        raise NotApart("reads what its own updates make", "keep each of the values in a block of its own")
    return out


def _places(stores: Sequence[Store]) -> tuple[Element, ...]:
    return tuple((s.buffer, s.indices) for s in stores)


# Recognises exponentials of differences, whose sums may be taken relative to any shift.
#
# With `F(x, r) = exp((x - r) * c)` the law is `F(x, m) = F(x, r) * F(r, m)` for all `x` and `m` and every finite `r`,
# infinities and NaN included, since exp(p) * exp(q) = exp(p + q). So a sum of `F(x, m) * v` may be kept relative to a shift
# that changes on the way. That the shift is the greatest `x` so far (the least, if `c` is negative) keeps the exponentials
# from overflowing. Milakov and Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3.


Extreme = Literal["max", "min"]


@frozen
class Exponential:
    """`exp((value - shift) * c)` with a constant `c` that is finite and not 0."""

    value: Expr
    shift: Expr
    form: Expr
    """The argument, with a load of the buffer "" in the place of the difference."""
    reversed: bool
    """Whether the difference is `shift - value`."""

    def of(self, value: Expr, shift: Expr) -> Expr:
        """The same function of another value and another shift."""
        a, b = (shift, value) if self.reversed else (value, shift)
        difference = Binary("-", a, b)
        return Call("exp", (rewrite_expr(self.form, lambda e: difference if _is_place(e) else e),))

    def agrees(self, other: Exponential) -> bool:
        """Whether both are the same function of a value and a shift."""
        return (self.form, self.reversed) == (other.form, other.reversed)


def exponential(e: Expr, op: Extreme) -> Exponential | None:
    """The exponential that `e` is, such that no value exceeds 1 if the shift is the `op` of all values; None for others."""
    if not isinstance(e, Call) or e.function != "exp":
        return None
    (argument,) = e.args
    found = _difference(argument)
    if found is None:
        return None
    difference, factor = found
    backwards = (factor < 0) != (op == "min")
    a, b = (difference.rhs, difference.lhs) if backwards else (difference.lhs, difference.rhs)
    place = Load("", (), dtype_of(difference))
    return Exponential(a, b, rewrite_expr(argument, lambda x: place if x is difference else x), backwards)


def outermost_finite(op: Extreme, t: DType) -> Const:
    """The least finite number of a float type for "max", the greatest for "min": a shift before all values, and finite."""
    largest = largest_finite(t)
    return Const(-largest if op == "max" else largest, t)


def homogeneous(e: Expr, is_source: Callable[[Expr], bool]) -> bool:
    """Whether `e` is one source times a factor without sources. A conversion between floats counts as a factor of 1."""
    if is_source(e):
        return True

    def free(x: Expr) -> bool:
        return not any(map(is_source, _parts(x)))

    match e:
        case Binary(op="*", lhs=a, rhs=b):
            return (homogeneous(a, is_source) and free(b)) or (homogeneous(b, is_source) and free(a))
        case Binary(op="/", lhs=a, rhs=b):
            return homogeneous(a, is_source) and free(b)
        case Cast(operand=a, dtype=t):
            return t.is_float and dtype_of(a).is_float and homogeneous(a, is_source)
        case _:
            return False


def _parts(e: Expr) -> list[Expr]:
    found: list[Expr] = []

    def note(x: Expr) -> Expr:
        found.append(x)
        return x

    rewrite_expr(e, note)
    return found


def _difference(e: Expr) -> tuple[Binary, float] | None:
    """The difference in an argument `(x - r) * c`, and `c`."""
    match e:
        case Binary(op="-"):
            return e, 1.0
        case Binary(op="*", lhs=a, rhs=b):
            return _scaled(a, _factor(b)) or _scaled(b, _factor(a))
        case Binary(op="/", lhs=a, rhs=b):
            c = _factor(b)
            return _scaled(a, None if c is None else 1 / c)
        case _:
            return None


def _scaled(e: Expr, c: float | None) -> tuple[Binary, float] | None:
    found = None if c is None else _difference(e)
    return None if found is None or c is None else (found[0], found[1] * c)


def _factor(e: Expr) -> float | None:
    """The value of a constant that is finite and not 0; None for others."""
    if dims_in(e):
        return None
    value = constant_value(e)
    return float(value) if value and isfinite(value) else None


def _is_place(e: Expr) -> bool:
    return isinstance(e, Load) and e.buffer == ""


# Whether the steps of a reduction run once, and begin it first: loops that are written out may do otherwise.
#
# A block that runs again in a loop which none of its iterators counts adds its terms again, and where its iterators are 0
# it begins again. A step that goes through the iterators in place of the loops would then compute something else.


OUT_OF_ORDER = "its loops run a step of its reduction again, or begin with another one than that at 0"
"""Why a block is refused that does not run in order."""


@by_identity(1024)
def may_be_empty(b: Block) -> bool:
    """Whether a reduction has no steps at some sizes. Its `init` runs at these too."""
    return any(it.kind is IterKind.REDUCE and _may_be_zero(it.extent) for it in b.iters)


@lru_cache(maxsize=4096)
def _may_be_zero(extent: Expr) -> bool:
    return below(extent, 1, tuple(sorted(dims_in(extent), key=lambda d: d.name))) is not None


def loops_of_empty_reduction(b: Block) -> frozenset[str]:
    """The loops that count a reduction which may be empty: its `init` runs where these are 0, whether or not they have this
    iteration, and whatever conditions on them are (`schedule.accumulation.refuse_unbegun`). None for other blocks.
    """
    steps = (it.binding for it in b.iters if it.kind is IterKind.REDUCE)
    return frozenset[str]().union(*map(free_vars, steps)) if may_be_empty(b) else frozenset()


def where_begun(b: Block) -> tuple[Expr, ...]:
    """The conditions under which `init` runs where the reduction iterators are 0."""
    begun = loops_of_empty_reduction(b)
    return tuple(c for c in b.where if free_vars(c).isdisjoint(begun))


def begins_once(path: Sequence[For], b: Block, counting: Collection[str], ranges: Ranges) -> bool:
    """Whether no element is initialised, or else updated, in two iterations of the loops of `path` that do not run the
    reduction, as those in `counting` do.
    """
    others = [x for x in path if x.var not in counting and constant(x.extent) != 1]
    values = {it.name: it.binding for it in b.iters}
    places = [[simplify(substitute(i, values), ranges) for i in s.indices] for s in b.init or b.body]
    if not others or all(_told(indices, others, ranges) for indices in places):
        return True
    outer = [x.var for x in path if x.var in counting]
    return all(apart([((path, b), indices)], outer, [x.var for x in others]) for indices in places)


def is_begun_before_steps(nest: Nest) -> bool:
    """Whether each instance of a reduction that initialises runs once, and that which initialises an element before all
    others of the element: then loops over its iterators compute the same.

    Loops outside of all that count or limit its steps may compute elements again: each of their iterations begins anew.
    """
    around, b = nest
    steps = [it.binding for it in b.iters if it.kind is IterKind.REDUCE]
    counting = frozenset[str]().union(*map(free_vars, steps))
    limiting = (free_vars(c) for c in b.where if free_vars(c) & counting)
    top = next((n for n, x in enumerate(around) if x.var in counting.union(*limiting)), len(around))
    ranges = extent_ranges(around)
    loops = [x for x in around[top:] if constant(x.extent) != 1]
    bindings = [simplify(it.binding, ranges) for it in b.iters]
    if not _told(bindings, loops, ranges):
        outer = [x.var for x in around[:top]]
        if not apart([(nest, bindings)], outer, [x.var for x in loops]):
            return False
    return _begins_first(nest, steps, ranges)


def _begins_first(nest: Nest, steps: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether the first instance of each element is that at which all `steps` are 0."""
    around, b = nest
    counting = frozenset[str]().union(*map(free_vars, steps))
    spatial = [it.binding for it in b.iters if it.kind is not IterKind.REDUCE]
    context = Context(ranges)
    forms = [linear(e, context) for e in steps]
    if (
        not b.where
        and counting.isdisjoint(frozenset[str]().union(*map(free_vars, spatial)))
        and all(not f.constant and all(isinstance(x, str) and c > 0 for x, c in f.terms.items()) for f in forms)
    ):
        return True  # sums of positive multiples of loops are 0 where these are, which is first
    names = [x.var for x in around]
    conditions = affine_only((*loop_conditions(around), *b.where))
    values = {it.name: it.binding for it in b.iters}
    at = [f"v{n}" for n in range(len(steps))]
    zeros = points(at, [Compare("==", Var(v), ZERO) for v in at])
    try:
        for s in b.init:
            first = mapping(names, [substitute(i, values) for i in s.indices], conditions).reverse().lexmin().range()
            if not first.apply(mapping(names, steps)).is_subset(zeros):
                return False
    except NotAffine:
        return False
    return True


def _told(indices: Sequence[Expr], loops: Sequence[For], ranges: Ranges) -> bool:
    """Whether the subscripts differ in any two iterations of the loops, by a theorem.

    Sums of multiples of digits tell these digits if each factor exceeds what the smaller terms reach, and a loop if none of
    its digits is missing.
    """
    context = Context(ranges)
    used: list[Digit] = []
    for i in indices:
        parts = numeral(i, context)
        if parts is None:
            return False
        reach = 0
        for factor, d in parts[1]:
            if abs(factor) <= reach:
                return False
            reach += abs(factor) * (d.size - 1)
            used.append(d)
    return all((n := constant(x.extent)) is not None and missing_digits(used, x.var, n) is False for x in loops)
