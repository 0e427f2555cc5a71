"""Bounds on how far a kernel's result may be from the reference: an absolute tolerance per element of each output.

This is a running error analysis in the manner of Higham, Accuracy and Stability of Numerical Algorithms (2nd ed., 2002),
section 3.3: each value comes with a bound on its error. An operation propagates the errors of its operands to first order and
adds the roundings of the kernel and of the reference. For sums of n terms the worst case n*u is far too wide to notice a lost
term. Rounding errors of different signs cancel, and the bound lambda*sqrt(n)*u times the sum of the terms' magnitudes holds
with probability at least 1 - 2*exp(-lambda^2/2) per element for any order of summation (N. J. Higham and T. Mary, A New
Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). With lambda = 4 this
probability is 0.9993, and errors rarely come close to the bound.

The theorem assumes that rounding errors have mean 0. This fails when a running sum of terms of one sign grows so large that a
term is below its rounding error: from about a million terms in f32 on, a sum in order exceeds the bound. The check then
reports a true loss, since the result has lost terms. A schedule that makes partial sums stays within the bound.

Tensor cores keep few bits of sums of products of floats of 8 bits (`SUM_BITS`), and schedules add every `SUM_TERMS` terms to
sums of f32. Each of the cuts of such a step loses up to one unit of these bits of its sum, half on average, towards zero: of
terms of both signs what is lost is random, with the variance of a uniform number, and of terms of one sign it adds up. So
such a sum has a bound that grows with the root of the sum of its squared terms, and one that grows with its value.

A bound of NaN allows everything: `overflow` says where.

In a scan, and in a reduction by a declared reducer, the errors of one step are propagated to the next. A schedule may group
the terms of a running sum otherwise, so each of its steps adds what is new in the bound on sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from math import prod, sqrt
from typing import assert_never

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.contraction import (
    SUM_BITS,
    SUM_TERMS,
    allowed_error,
    is_product_of_octets,
    parts_of_exponent,
    rounded_function,
)
from tensorc_dsl.ir.dtypes import (
    F32,
    F64,
    DType,
    flush_threshold,
    holds,
    largest_finite,
    smallest_normal,
    unit_roundoff,
)
from tensorc_dsl.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
    loads,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.maths import BEFORE_ROUNDING, CONDITIONS
from tensorc_dsl.ir.program import Block, Program, Store
from tensorc_dsl.ir.reductions import Combination, Fold
from tensorc_dsl.reference.evaluate import (
    CHUNK_LIMIT,
    Evaluation,
    Matches,
    best_of,
    bind_inputs,
    matches,
    parts_of,
    placed,
    run_nest,
    shape_of,
    unscheduled_nests,
)
from tensorc_dsl.reference.maths import NUMERICS, Point, steps
from tensorc_dsl.reference.values import (
    COMPARE,
    Alive,
    Box,
    alive_steps,
    cast,
    gather,
    reference_arithmetic,
    reference_bits_as,
    truth,
)

# The errors of single operations that come from those of their operands, to first order, for `tolerance`.


Pair = tuple[Array, Array]
"""Values, and a bound on the error of each. Both arrays broadcast over the box."""


def adds_terms(s: Store) -> bool:
    """Whether a step adds a term of floats to the value before, which may be multiplied by a factor."""
    return dtype_of(s.value).is_float and _below_sum(s.value, s.buffer, below=False)


def _below_sum(e: Expr, name: str, *, below: bool) -> bool:
    """Whether a sum is above the one load of a buffer in an expression, and nothing but sums, products and choices."""
    match e:
        case Load(buffer=b):
            return below and b == name
        case Binary(op="+" | "-" | "*" as op, lhs=x, rhs=y):
            parts, below = (x, y), below or op != "*"
        case Select(then=x, other=y):
            parts = (x, y)
        case _:
            return False
    reading = [x for x in parts if any(load.buffer == name for load in loads(x))]
    return len(reading) == 1 and _below_sum(reading[0], name, below=below)


def roundoff(t: DType) -> float:
    """The relative error between an operation of a kernel and of the reference: the kernel rounds to the type, the reference
    to f64. A kernel of f64 may round a product and a sum together, which the reference does not."""
    return unit_roundoff(t) + unit_roundoff(F64) if t.is_float else 0.0


def settled(value: Array, error: Array, *operands: Pair) -> Array:
    """The error of results: none of exact operands, nor of an exact NaN, where derivatives say nothing."""
    if np.isfinite(error).all():
        return error
    known = np.ones((), np.bool_)
    for _, dx in operands:
        known = known & (dx == 0)
    for x, dx in operands:
        known = known | (np.isnan(value) & np.isnan(x) & (dx == 0))
    return np.where(known, 0.0, error)


def propagated(op: str, x: Array, dx: Array, y: Array, dy: Array, value: Array) -> Array:
    """The error of an operation that comes from its operands' errors, to first order."""
    match op:
        case "+" | "-":
            return both(dx, dy)
        case "*" if exact(dx):
            return dy if exact(dy) else _unless_infinite(np.abs(x) * dy, value, x, dx, y, dy)
        case "*" if exact(dy):
            return _unless_infinite(np.abs(y) * dx, value, x, dx, y, dy)
        case "*":
            return _unless_infinite(np.abs(x) * dy + np.abs(y) * dx + dx * dy, value, x, dx, y, dy)
        case "/":
            error = (dx + np.abs(value) * dy) / np.maximum(np.abs(y) - dy, np.abs(y) * 0.5)
            return _unless_infinite(error, value, x, dx, y, dy)
        case "min" | "max":
            return _of_greatest(x, dx, y, dy) if op == "max" else _of_greatest(-x, dx, -y, dy)
        case "%":  # it goes on with its operands, up to where their quotient passes a whole number
            turns = np.abs(np.floor(x / y))
            wide = (dx + np.abs(x / y) * dy) / np.maximum(np.abs(y) - dy, np.abs(y) * 0.5)
            return dx + turns * dy + np.where(steps(np.floor, x / y, wide) > 0, np.abs(y) + dy, 0.0)
        case _:
            return dx + dy + np.abs(value)


def _unless_infinite(error: Array, value: Array, x: Array, dx: Array, y: Array, dy: Array) -> Array:
    """The error of a product or quotient; none where an operand is an infinity for certain, and makes the result one: what a
    mask leaves out is -inf, and -inf times a scale is so, whatever the rounding of the scale.
    """
    if np.isfinite(error).all():
        return error
    sure = [np.where(np.isinf(v), np.isfinite(d), np.abs(v) > d) for v, d in ((x, dx), (y, dy))]
    return np.where(np.isinf(value) & (np.isinf(x) | np.isinf(y)) & sure[0] & sure[1], 0.0, error)


def _of_greatest(x: Array, dx: Array, y: Array, dy: Array) -> Array:
    """The error of the greater of two values."""
    if exact(dx) and exact(dy):
        return dx
    surely = np.maximum(x - dx, y - dy)
    return np.maximum(unless_below(surely, x, dx), unless_below(surely, y, dy))


def unless_below(surely: Array, value: Array, error: Array) -> Array:
    """The errors of values that may be the greatest, which is `surely` not less than that; of others, which do not count, 0.
    Such are masks of -1e30, whose errors are large.
    """
    return np.where(value + error < surely, 0.0, error)  # of NaN nothing is known, so its error counts


def exact(error: Array) -> bool:
    """Whether there is no error, which one number says."""
    return error.size == 1 and not error.any()


def both(one: Array, other: Array) -> Array:
    """Both errors together; none is not added to an array."""
    return other if exact(one) else one if exact(other) else one + other


# What a kernel may make of numbers that leave its types, for the bounds of `tolerance`.
#
# The reference computes in float64. In a kernel a number beyond the largest of its type is an infinity, unless it shares a
# rounding with the next operation, and one below the least normal number may be 0. What is computed from it may be
# anything: in f32 `exp(x) / exp(x)` is NaN for x = 100, and `log(exp(x))` -inf for x = -120. A bound of NaN means that the
# kernel's value may be any, NaN and infinities included; one of infinity, that it is some number.


HALF = 0.5
"""The share of the largest number from which on values are looked at, so that errors are below the rest."""
SAME = 1 - 1e-9
"""Terms whose sum has this share of the sum of their sizes have one sign, up to the roundings of the reference."""

Operand = tuple[Array, Array, DType]
"""Values, a bound on the error of each, and their type."""


@dataclass(slots=True)
class Overflows:
    """The bounds of a program's values. In most programs no value overflows, and then operands are not examined."""

    seen: bool = False
    """Whether some value so far may be beyond its type, or below its normal numbers."""

    def rounding(self, value: Array, t: DType, share: float) -> Array:
        """The error of rounding results to a type: a share of them, and all of one below the least normal number. Infinities
        and NaN are not rounded.
        """
        size = np.abs(value)
        if not size.max(initial=0.0) <= HALF * largest_finite(t):
            self._see(size, t)
            size = np.where(np.isfinite(size), size, 0.0)
        below = size < smallest_normal(t)
        self.seen = self.seen or bool((below & (size > 0)).any())
        return np.where(below, size, size * share)

    def carried(self, f: Callable[..., Array], value: Array, error: Array, t: DType, *operands: Operand) -> Array:
        """The error of a result `f(*operands)`, with what a kernel may have in place of operands that leave their types."""
        if not self.seen:
            return error
        for _, dx, _ in operands:
            if np.isnan(dx).any():
                error = np.where(np.isnan(dx), np.nan, error)
        forms = [_forms(x, dx, s) for x, dx, s in operands]
        for alternative in list(product(*forms))[1:]:
            error = error + _change(f(*alternative), value, t)
        return error

    def factor(self, value: Array, error: Array, t: DType) -> Array:
        """The error of a factor of a sum of products: it may be anything if it is beyond its type."""
        beyond = _beyond(value, error, t) if self.seen else None
        return error if beyond is None or not beyond.any() else np.where(beyond, np.nan, error)

    def span(self, value: Array, error: Array, t: DType) -> tuple[Array, Array]:
        """The least and the greatest number that a kernel may have for each value."""
        low, high = value - error, value + error
        if self.seen:
            lost, beyond = np.isnan(error), _beyond(value, error, t)
            low = np.where(lost | (beyond & (value < 0)), -np.inf, low)
            high = np.where(lost | (beyond & (value > 0)), np.inf, high)
        return low, high

    def summed(self, value: Array, sizes: Array, t: DType) -> Array | float:
        """What is added to the bound of a sum, from the sums of the sizes of its terms: NaN where terms of both signs may
        overflow on the way.
        """
        if not self._see(sizes, t):
            return 0.0
        return np.where((sizes > largest_finite(t)) & ~(np.abs(value) >= SAME * sizes), np.nan, 0.0)

    def multiplied(self, value: Array, above: Array, below: Array, t: DType) -> Array | float:
        """What is added to the bound of a product, from the products of its terms above 1 and below 1 in size."""
        size = np.abs(value)
        lost = np.where(below < smallest_normal(t), size, 0.0)
        if not self._see(above, t):
            return lost
        return np.where((above > largest_finite(t)) & (size <= largest_finite(t)), np.nan, lost)

    def _see(self, sizes: Array, t: DType) -> bool:
        """Whether some of the sizes is near the largest number of the type or beyond it."""
        found = t.is_float and bool((np.where(np.isinf(sizes), 0.0, sizes) > HALF * largest_finite(t)).any())
        self.seen |= found
        return found


def _beyond(x: Array, dx: Array, t: DType) -> Array:
    """Where a kernel may have an infinity for a number of the reference."""
    return np.isfinite(x) & np.isfinite(dx) & (np.abs(x) + dx > largest_finite(t))


def _forms(x: Array, dx: Array, t: DType) -> tuple[Array, ...]:
    """The numbers of the reference, and if some leave the type, those that a kernel may have in place of them."""
    beyond, below = _beyond(x, dx, t), (x != 0) & (np.abs(x) < smallest_normal(t))
    if not beyond.any() and not below.any():
        return (x,)
    return x, np.where(beyond, np.copysign(np.inf, x), np.where(below, 0.0, x))


def _change(made: Array, value: Array, t: DType) -> Array:
    """How far a result is from the reference's; NaN if it is no number or infinite. Results beyond the type are the same."""
    largest = largest_finite(t)
    same = (made == value) | (np.isnan(made) & np.isnan(value))
    same |= (np.sign(made) == np.sign(value)) & (np.minimum(np.abs(made), np.abs(value)) > largest)
    change = np.where(same, 0.0, np.abs(made - value))
    return np.where(np.isfinite(change), change, np.nan)


LAMBDA = 4.0
MOVED = 1
"""How far subscripts that rounding moves are looked after: beyond that, a load may read any element."""
CUT = 2.0 ** (1 - SUM_BITS)
"""What a cut loses of a sum of products of floats of 8 bits, at most."""
CUTS = SUM_TERMS + SUM_TERMS // 32
"""The cuts of a step of such a sum: of its terms, and of the sum so far in each instruction, which has 32 terms."""
FUNCTION_ROUNDOFFS = 8.0
"""The error of a maths function in units of roundoff: vector libraries promise 4 ulp, that is 8 roundoffs. The code
generator's own functions of f32 are tested to 2 ulp (docs/maths.md); those of f64 are the C library's."""


def bounded(program: Program, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs as `evaluate` has them, and for each the largest absolute error that rounding can explain, float64.

    Where an output is not finite the error is 0, and a comparison has to treat equal infinities and NaNs as equal. Where
    something overflows on the way to it in the kernel's types, and not in the reference's, the error may be infinite: then
    every value is right. That of integers is 0 unless they are rounded from floats. Where rounding can turn a comparison,
    both choices are right; floats that are equal in the reference count as the same number. Where it can move a subscript,
    so are the elements that may be read. Raises EvaluateError if the inputs do not fit the program.
    """
    program = resolved(program)
    nests, made = unscheduled_nests(program), parts_of(program)
    if made.parts:
        nests = unscheduled_nests(made.program)
    arrays = bind_inputs(program, inputs)
    errors: dict[str, Array] = {name: np.zeros((), np.float64) for name in arrays} | made.arrays(np.float64)
    arrays |= made.arrays()
    with np.errstate(all="ignore"):
        alive = alive_steps(made.program, nests)
        overflows = Overflows()
        for together in nests:
            run_nest([_Errors(made.program, arrays, errors, overflows, alive, b) for b in together])
    values = {p.name: arrays[p.name] for p in program.outputs}
    allowed: dict[str, Array] = {}
    for p in program.outputs:
        bound = np.broadcast_to(errors[p.name], shape_of(p))
        number = np.where(np.isinf(bound), np.finfo(np.float64).max, bound) + flush_threshold(p.dtype)
        number = np.where(np.isfinite(values[p.name]), number, 0.0)
        allowed[p.name] = np.where(np.isnan(bound), np.inf, number)
    return values, allowed


class _Errors(Evaluation):
    """The evaluation of a block with error bounds beside the values."""

    def __init__(
        self,
        program: Program,
        arrays: dict[str, Array],
        errors: dict[str, Array],
        overflows: Overflows,
        alive: Mapping[str, Alive],
        block: Block,
    ) -> None:
        super().__init__(program, arrays, alive, block)
        self.errors = errors
        self.overflows = overflows
        self.approx = allowed_error(program)
        self.shifted: dict[str, float] = {}
        self.turned = False
        """Whether both branches of a choice are evaluated: what a condition keeps inside may be outside."""
        self.sums = len(self.scan) == 1 and len(block.body) == 1 and adds_terms(block.body[0])
        self.sizes = self.small = np.zeros(())
        """Of a sum the sizes of its terms, of a product those of its terms above 1 and below 1."""
        self.squares: Array | None = None
        """The sum of the squared terms, of a sum of which tensor cores keep few bits."""
        self.magnitudes: dict[str, Array] = {}
        """The sum of the magnitudes of the terms so far, of a running sum."""

    def begin(self) -> None:
        super().begin()
        for b in self.buffers:
            self.errors.setdefault(b.name, np.zeros(self.kept_shape(b), np.float64))
        self.magnitudes = {b.name: np.zeros(self.kept_shape(b), np.float64) for b in self.buffers if self.sums}

    def advance(self) -> None:
        """Run the instances of the box, and add the bounds for them to `errors`."""
        if not self.box.volume:
            return
        if self.in_order:
            for part in self.steps():
                pairs = [self._step(s, part) for s in self.block.body]
                for store, (value, error) in zip(self.block.body, pairs, strict=True):
                    if self.sums:
                        error = error + self._regrouped(store, part, value)
                    self.put(store.buffer, part, value)
                    self.errors[store.buffer][self.region(part)] = self.stored(error, part)
            return
        out = self.errors[self.buffer.name]
        if isinstance(self.update, Fold):
            self._reduction(out, self.update)
        elif self.update is None:
            for part in self.pieces(self.box):
                _, error = self.pair(self.block.body[0].value, part, None)
                out[self.region(part)] = self.stored(error, part)
        super().advance()
        if isinstance(self.update, Fold):
            self._overflowed(out, self.update)
        if isinstance(self.update, Combination):
            self._positions([self.errors[b.name] for b in self.buffers], self.update)

    def _step(self, store: Store, part: Box) -> Pair:
        """The values that one step stores, and their error bounds.

        A step that reads its own buffer at a single element is evaluated at both ends of that element's error interval. If
        the element occurs several times, propagating its error through each occurrence would count it several times.
        """
        name = store.buffer
        value, error = self.pair(store.value, part, None)
        if len({x.indices for x in loads(store.value) if x.buffer == name}) != 1 or self.buffer.dtype.kind != "float":
            return value, error
        carried = self.errors[name]
        self.errors[name] = np.zeros((), np.float64)
        _, own = self.pair(store.value, part, None)
        self.errors[name] = carried
        moved = np.zeros((), np.float64)
        for sign in (1.0, -1.0):
            self.shifted = {name: sign}
            moved = np.maximum(moved, np.abs(self.value(store.value, part, None) - value))
        self.shifted = {}
        return value, np.where(np.isfinite(moved) & ~np.isnan(error), moved + own, error)

    def _regrouped(self, store: Store, part: Box, value: Array) -> Array:
        """What a step adds to the bound on the rounding of its running sum, with the terms in any grouping."""
        kept = self.magnitudes[store.buffer]
        whole = self._magnitude(store.value, part, None)
        self.magnitudes[store.buffer] = np.zeros((), np.float64)
        own = self._magnitude(store.value, part, None)
        self.magnitudes[store.buffer] = kept
        kept[self.region(part)] = self.stored(whole, part)
        step = part.start[self.scan[0]]
        growth = sqrt(step + 1) * whole - sqrt(step) * (whole - own)
        lost = self.overflows.summed(value, whole, self.buffer.dtype)
        return LAMBDA * roundoff(self.buffer.dtype) * np.where(np.isfinite(growth), growth, 0.0) + lost

    def _magnitude(self, e: Expr, part: Box, mask: Array | None) -> Array:
        """The sum of the magnitudes of the terms that `e` adds up, those that the step before has added included."""
        match e:
            case Load(buffer=name, indices=indices) if name in self.magnitudes:
                found = self.magnitudes[name]
                return super().load(self.magnitudes, name, indices, part, mask) if found.ndim else found
            case Binary(op="+" | "-", lhs=a, rhs=b):
                return self._magnitude(a, part, mask) + self._magnitude(b, part, mask)
            case Binary(op="*", lhs=a, rhs=b):
                return self._magnitude(a, part, mask) * self._magnitude(b, part, mask)
            case Select():
                return self.choice(e, part, mask, lambda branch, taken: self._magnitude(branch, part, taken), np.where)
            case _:
                return np.abs(self.value(e, part, mask).astype(np.float64))

    def load(
        self, arrays: Mapping[str, Array], name: str, indices: tuple[Expr, ...], box: Box, mask: Array | None
    ) -> Array:
        """The elements that an access reads; for a buffer in `shifted`, an end of the interval that its error allows."""
        exact = super().load(arrays, name, indices, box, np.zeros((), bool) if self.turned else mask)
        if arrays is self.errors or name not in self.shifted:
            return exact
        return exact + self.shifted[name] * super().load(self.errors, name, indices, box, mask)

    def _positions(self, outs: list[Array], update: Combination) -> None:
        """Bound the error of positions: the position of any instance that rounding could make the best one is allowed."""
        positions, best = outs
        region = self.region(self.box)
        position, key = update.values
        value, error = (np.broadcast_to(x, self.box.size) for x in self.pair(key, self.box, None))
        where = np.broadcast_to(self.value(position, self.box, None), self.box.size)
        axes = tuple(self.reduce)
        best[region] = self.stored(error.max(axis=axes, keepdims=True), self.box)
        if not error.any():
            return
        sign = -1.0 if update.reducer.name == "argmin" else 1.0
        top, first = best_of(update, value.astype(np.float64), where, axes)
        low, high = self.overflows.span(sign * value, error, dtype_of(key))
        rivals = np.where(high >= low.max(axis=axes, keepdims=True), np.abs(where - first), 0)
        far = np.where(np.isnan(top), 0, rivals.max(axis=axes, keepdims=True))
        positions[region] = self.stored(far, self.box)

    def _reduction(self, out: Array, update: Fold) -> None:
        u = roundoff(self.buffer.dtype)
        growth = LAMBDA * sqrt(prod(self.box.size[a] for a in self.reduce)) * u
        if self.sizes.shape != out.shape:
            self.sizes, self.small = np.empty_like(out), np.empty_like(out)
        whole = self.region(self.box)
        self.sizes[whole], self.small[whole] = float(update.op == "*"), 1.0
        if (found := matches(update, self.box, self.spatial)) is not None:
            self._misplaced(out, update, found)
            for some in placed(self, found, self.box, CHUNK_LIMIT, self.axes):
                value, error = map(some.of, self.pair(found.value, some.part, some.alive))
                if update.op == "+":
                    np.add.at(out, some.at, error + growth * np.abs(value))
                    np.add.at(self.sizes, some.at, np.abs(value))
                else:
                    value, surely = -value if update.op == "min" else value, np.full(out.shape, -np.inf)
                    np.maximum.at(surely, some.at, value - error)
                    np.maximum.at(out, some.at, unless_below(surely[some.at], value, error))
            return
        values = np.zeros_like(out) if update.op != "*" else np.ones_like(out)
        factors = self.product(update)
        if factors is not None and is_product_of_octets(factors):
            self.squares = np.zeros_like(out)
        for part in self.parts(update):
            region = self.region(part)
            if factors is not None:
                pairs = [
                    (v, self.overflows.factor(v, e, dtype_of(f)))
                    for f in factors
                    for v, e in [self.pair(f, part, None)]
                ]
                magnitude, carried = self._products(pairs, part)
                rounding = growth + u * (len(factors) - 1)
                out[region] += self.stored(magnitude * rounding + carried, part)
                self.sizes[region] += self.stored(magnitude, part)
                if self.squares is not None:
                    squares = self.sum_of_products([v.astype(np.float64) ** 2 for v, _ in pairs], part)
                    self.squares[region] += self.stored(squares, part)
                continue
            value, error = (np.broadcast_to(x, part.size) for x in self.pair(update.value, part, None))
            axes = tuple(self.reduce)
            match update.op:
                case "+":
                    size = np.abs(value).sum(axis=axes, keepdims=True)
                    out[region] += self.stored(error.sum(axis=axes, keepdims=True) + growth * size, part)
                    self.sizes[region] += self.stored(size, part)
                case "*":
                    relative = np.where(error == 0, 0.0, error / np.abs(value)).sum(axis=axes, keepdims=True)
                    out[region] += self.stored(relative, part)
                    size = np.abs(value)
                    values[region] *= self.stored(size.prod(axis=axes, keepdims=True), part)
                    for kept, terms in (
                        (self.sizes, np.maximum(size, 1)),
                        (self.small, np.where(size > 0, np.minimum(size, 1), 1)),
                    ):
                        kept[region] *= self.stored(terms.prod(axis=axes, keepdims=True), part)
                case "and" | "or":  # one that is false, or true, for certain decides
                    sure = (error == 0) & (value if update.op == "or" else ~value)
                    error = np.where(sure.any(axis=axes, keepdims=True), 0.0, error)
                    out[region] = np.maximum(out[region], self.stored(error.max(axis=axes, keepdims=True), part))
                case "min" | "max":
                    if error.any():
                        value = -value if update.op == "min" else value
                        error = unless_below((value - error).max(axis=axes, keepdims=True), value, error)
                    step = self.stored(error.max(axis=axes, keepdims=True), part)
                    out[region] = np.maximum(out[region], step)
                case _:
                    raise AssertionError(update.op)
        if update.op == "*":
            region = self.region(self.box)
            out[region] = (out[region] + growth) * values[region]

    def _misplaced(self, out: Array, update: Fold, found: Matches) -> None:
        """Add to the bounds what terms do to elements to which rounding can move them, and from which it can."""
        chosen = [axis for axis, _ in found.places]
        once = Box(self.box.names, self.box.start, tuple(1 if a in chosen else n for a, n in enumerate(self.box.size)))
        for part in once.chunks(range(len(once.size)), CHUNK_LIMIT):
            conditions = [self.pair(c, part, None) for c in found.conditions]
            places = [self.pair(data, part, None) for _, data in found.places]
            if all(exact(d) for _, d in chain(conditions, places)):
                continue
            unsure = np.logical_or.reduce(np.broadcast_arrays(*(d > 0 for _, d in chain(conditions, places))))
            for holds_, turned in conditions:
                unsure = unsure & (holds_ | (turned > 0))
            unsure = np.broadcast_to(unsure, part.size)
            if not unsure.any():
                continue
            outside, self.turned = self.turned, True
            value, error = (np.broadcast_to(x, part.size)[unsure] for x in self.pair(found.value, part, None))
            self.turned = outside
            size = np.abs(value) + error if update.op == "+" else np.full(value.shape, np.nan)
            at = [np.broadcast_to(self.value(Var(n), part, None), part.size)[unsure] for n in part.names]
            far = [np.broadcast_to(d, part.size)[unsure] for _, d in places]
            most = int(min(max((d.max(initial=0) for d in far), default=0), max(self.box.size)))
            for way in product(*[range(-most, most + 1)] * len(chosen)):
                inside = np.ones(value.shape, bool)
                for axis, w, d, (data, _) in zip(chosen, way, far, places, strict=True):
                    at[axis] = np.broadcast_to(data, part.size)[unsure].astype(np.int64) + w
                    inside &= (abs(w) <= d) & (at[axis] >= 0) & (at[axis] < self.box.size[axis])
                add = np.add if update.op == "+" else np.maximum
                add.at(out, tuple(at[a][inside] for a in self.axes), size[inside])

    def _overflowed(self, out: Array, update: Fold) -> None:
        """Add to the bounds what terms that leave their type on the way to the result may do to it."""
        value, t = self.arrays[self.buffer.name], self.buffer.dtype
        if not t.is_float or update.op not in ("+", "*"):
            return
        region = self.region(self.box)
        if self.squares is not None:
            lost = LAMBDA * sqrt(CUTS / 3) * np.sqrt(self.squares[region]) + CUTS / 4 * np.abs(value[region])
            out[region] += np.where(np.isfinite(value[region]), CUT * lost, 0.0)
        if update.op == "+":
            out[region] += self.overflows.summed(value[region], self.sizes[region], t)
        else:
            out[region] += self.overflows.multiplied(value[region], self.sizes[region], self.small[region], t)

    def _products(self, pairs: list[Pair], part: Box) -> Pair:
        """The sum of the magnitudes of the products, and the contribution of the errors of the factors."""
        magnitudes = [np.abs(v).astype(np.float64) for v, _ in pairs]
        total = self.sum_of_products(magnitudes, part)
        carried = np.zeros_like(total)
        raised = [m + e if e.any() else m for m, (_, e) in zip(magnitudes, pairs, strict=True)]
        for k, (_, error) in enumerate(pairs):  # together what the products of the raised factors are above the others
            if error.any():
                carried = carried + self.sum_of_products([*raised[:k], error, *magnitudes[k + 1 :]], part)
        return total, carried

    def pair(self, e: Expr, box: Box, mask: Array | None) -> Pair:
        """The values of `e` over the box with a bound on the error of each."""
        none = np.zeros((1,) * len(box.size), np.float64)
        u = roundoff(dtype_of(e))
        match e:
            case Const() | Var() | Dim():
                return self.value(e, box, mask), none
            case Compare() | Logic() | Not():
                return self._condition(e, box, mask)
            case Call(function=f) if f in CONDITIONS:
                return self.value(e, box, mask), none
            case Load(buffer=name, indices=indices):
                value, error = self.value(e, box, mask), self.errors[name]
                error = self.load(self.errors, name, indices, box, mask) if error.ndim else none + error
                moved = [self.pair(i, box, mask)[1] if any(loads(i)) else none for i in indices]
                return value, error if all(map(exact, moved)) else error + self._elsewhere(e, value, moved, box, mask)
            case Select():
                if truth(e.cond, box) is None and (turned := self.pair(e.cond, box, mask)[1] > 0).any():
                    return self._either(e, turned, box, mask)
                return self.choice(e, box, mask, lambda branch, taken: self.pair(branch, box, taken), _merged)
            case Binary(op=op, lhs=a, rhs=b):
                (x, dx), (y, dy) = self.pair(a, box, mask), self.pair(b, box, mask)
                value = reference_arithmetic(op, x, y, dtype_of(a))
                if not dtype_of(a).is_float:
                    return value, none if not (dx.any() or dy.any()) else np.ceil(propagated(op, x, dx, y, dy, value))
                t, error = dtype_of(a), settled(value, propagated(op, x, dx, y, dy, value), (x, dx), (y, dy))
                again = partial(reference_arithmetic, op, t=t)
                error = self.overflows.carried(again, value, error, t, (x, dx, t), (y, dy, t))
                return value, error if op in ("min", "max") else both(self.overflows.rounding(value, t, u), error)
            case Cast(operand=a, dtype=t):
                x, dx = self.pair(a, box, mask)
                if (called := rounded_function(e)) is not None:
                    dx = both(dx, self._before_rounding(called, np.abs(x), box, mask))
                return self._cast(x, dx, dtype_of(a), t)
            case Bitcast(operand=a, dtype=t):
                x, dx = self.pair(a, box, mask)  # bits say nothing about how near numbers are
                return reference_bits_as(x, dtype_of(a), t), np.where(dx > 0, np.nan if t.is_float else np.inf, 0.0)
            case Call(function=f, args=args):
                operands = [self.pair(a, box, mask) for a in args]
                value, known = self.value(e, box, mask), NUMERICS[f]
                error = settled(value, known.error(Point(value, *chain(*operands))), *operands)
                if not (t := dtype_of(e)).is_float:
                    return value, error
                error = self.overflows.carried(known.value, value, error, t, *((x, dx, t) for x, dx in operands))
                if rounded_function(e, self.approx) is not None:
                    error = error + self._before_rounding(e, np.abs(value), box, mask)
                return value, error if known.exact else error + self.overflows.rounding(
                    value, t, u * FUNCTION_ROUNDOFFS
                )
            case _:
                assert_never(e)

    def _condition(self, e: Compare | Logic | Not, box: Box, mask: Array | None) -> Pair:
        """Conditions, and 1 where rounding can turn them."""
        if isinstance(e, Not):
            value, turned = self.pair(e.operand, box, mask)
            return ~value, turned
        (x, dx), (y, dy) = self.pair(e.lhs, box, mask), self.pair(e.rhs, box, mask)
        none = np.zeros((1,) * len(box.size), np.float64)
        if isinstance(e, Logic):
            value = x & y if e.op == "and" else x | y
            if exact(dx) and exact(dy):
                return value, none
            a, b = (x, y) if e.op == "and" else (~x, ~y)
            return value, np.where((dx > 0) & (dy > 0) | (dx > 0) & b | (dy > 0) & a, 1.0, 0.0)
        value = COMPARE[e.op](x, y)
        if exact(dx) and exact(dy):
            return value, none
        near = ~(np.abs(x.astype(np.float64) - y.astype(np.float64)) > dx + dy) & ~(dx + dy == 0)
        if dtype_of(e.lhs).is_float:
            return value, np.where(near & (x != y), 1.0, 0.0)
        if isinstance(e.lhs, Load) and isinstance(e.rhs, Load) and e.lhs.buffer == e.rhs.buffer:
            pairs = zip(e.lhs.indices, e.rhs.indices, strict=True)
            same = [self.value(i, box, mask) == self.value(j, box, mask) for i, j in pairs]
            near = near & ~np.logical_and.reduce(np.broadcast_arrays(np.ones((), bool), *same))
        return value, np.where(near, 1.0, 0.0)

    def _either(self, e: Select, turned: Array, box: Box, mask: Array | None) -> Pair:
        """The values of a choice, and where rounding can turn it how far the other one is from it."""
        cond = self.value(e.cond, box, mask)
        outside, self.turned = self.turned, True
        (a, da), (b, db) = self.pair(e.then, box, mask), self.pair(e.other, box, mask)
        self.turned = outside
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64)) + np.maximum(da, db)
        return np.where(cond, a, b), np.where(turned, apart, np.where(cond, da, db))

    def _elsewhere(self, e: Load, value: Array, moved: list[Array], box: Box, mask: Array | None) -> Array:
        """How far the elements are that a load reads where rounding moves its subscripts by up to `moved`."""
        array = self.arrays[e.buffer].astype(np.float64)
        if max(m.max(initial=0) for m in moved) > MOVED:
            return np.where(sum(moved) > 0, np.ptp(array) if array.size else 0.0, 0.0)
        places = [self.value(i, box, mask) for i in e.indices]
        ways = [(0,) if exact(m) else range(-MOVED, MOVED + 1) for m in moved]
        found = np.zeros((1,) * len(box.size), np.float64)
        for way in product(*ways):
            there = [
                p + np.where(abs(w) <= m, w, 0).astype(np.int64) for p, w, m in zip(places, way, moved, strict=True)
            ]
            found = np.maximum(found, np.abs(gather(array, there, None)[0] - value))
        return found

    def _before_rounding(self, e: Call, size: Array, box: Box, mask: Array | None) -> Array:
        """What a function whose result, of some `size`, is rounded to 16 bits at once, or which a task allows to be so near,
        may have for an error: that of its instructions, and that of the product of a scale with what is subtracted before."""
        size = np.where(np.isfinite(size), size, 0.0)
        error = size * BEFORE_ROUNDING[e.function]
        _, less, scale = parts_of_exponent(e.args[0])
        if less is None or e.function != "exp":
            return error
        away = self.value(less, box, mask) * (1.0 if scale is None else self.value(scale, box, mask))
        return error + np.where(np.isfinite(away), np.abs(away), 0.0) * size * 2 * unit_roundoff(F32)

    def _cast(self, x: Array, dx: Array, old: DType, new: DType) -> Pair:
        value = cast(x, old, new)
        if old.is_float and not new.is_float:
            error = steps(lambda v: cast(v, old, new).astype(np.float64), x, dx)
        elif not new.is_float or holds(new, old):
            error = dx
        else:  # Kernel and reference both round, and the numbers that they round differ.
            error = np.where(dx > 0, dx + 2 * np.maximum(np.abs(value), smallest_normal(new)) * unit_roundoff(new), dx)
            beyond = np.isinf(value) | (np.isnan(value) & ~np.isnan(x))
            if beyond.any():
                kept = [cast(end, old, new) for end in (x - dx, x + dx)]
                sure = np.logical_and.reduce([(v == value) | (np.isnan(v) & np.isnan(value)) for v in kept])
                error = np.where(beyond, np.where(sure, 0.0, np.nan), error)
            if new.is_float:
                self.overflows.rounding(value, new, 0.0)
        return value, self.overflows.carried(partial(cast, old=old, new=new), value, error, new, (x, dx, old))


def _merged(cond: Array, a: Pair, b: Pair) -> Pair:
    return np.where(cond, a[0], b[0]), np.where(cond, a[1], b[1])
