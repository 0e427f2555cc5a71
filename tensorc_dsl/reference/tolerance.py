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

A bound of NaN allows everything: `overflow` says where.

In a scan, and in a reduction by a declared reducer, the errors of one step are propagated to the next. A schedule may group
the terms of a running sum otherwise, so each of its steps adds what is new in the bound on sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from math import prod, sqrt
from typing import assert_never

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import DType
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
from tensorc_dsl.ir.maths import CONDITIONS
from tensorc_dsl.ir.numbers import flushed_below, holds, smallest_normal, unit_roundoff
from tensorc_dsl.ir.program import Block, Program, Store
from tensorc_dsl.ir.reductions import ArgFold, Fold
from tensorc_dsl.reference.alive import Alive, alive_steps
from tensorc_dsl.reference.boxes import Box
from tensorc_dsl.reference.evaluate import (
    CHUNK_LIMIT,
    Evaluation,
    best_of,
    bind_inputs,
    run_nest,
    shape_of,
    unscheduled_nests,
)
from tensorc_dsl.reference.first_order import Pair, adds_terms, both, propagated, roundoff, settled, unless_below
from tensorc_dsl.reference.matches import matches, placed
from tensorc_dsl.reference.maths import NUMERICS, Point, steps
from tensorc_dsl.reference.overflow import Overflows
from tensorc_dsl.reference.values import arithmetic, bits_as, cast

LAMBDA = 4.0
FUNCTION_ROUNDOFFS = 8.0
"""The error of a maths function in units of roundoff: vector libraries promise 4 ulp, that is 8 roundoffs. The code
generator's own functions of f32 are tested to 2 ulp (docs/maths.md); those of f64 are the C library's."""


def bounded(program: Program, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs as `evaluate` has them, and for each the largest absolute error that rounding can explain, float64.

    Where an output is not finite the error is 0, and a comparison has to treat equal infinities and NaNs as equal. Where
    something overflows on the way to it in the kernel's types, and not in the reference's, the error may be infinite: then
    every value is right. That of integers is 0 unless they are rounded from floats.
    Conditions are decided as in the reference: the bound does not cover a comparison that rounding can turn around. Raises
    EvaluateError if the inputs do not fit the program.
    """
    arrays = bind_inputs(program, inputs)
    errors: dict[str, Array] = {name: np.zeros((), np.float64) for name in arrays}
    with np.errstate(all="ignore"):
        nests = unscheduled_nests(program)
        alive = alive_steps(program, nests)
        overflows = Overflows()
        for together in nests:
            run_nest([_Errors(program, arrays, errors, overflows, alive, b) for b in together])
    values = {p.name: arrays[p.name] for p in program.outputs}
    allowed: dict[str, Array] = {}
    for p in program.outputs:
        bound = np.broadcast_to(errors[p.name], shape_of(p))
        number = np.where(np.isinf(bound), np.finfo(np.float64).max, bound) + flushed_below(p.dtype)
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
        self.shifted: dict[str, float] = {}
        self.sums = len(self.scan) == 1 and len(block.body) == 1 and adds_terms(block.body[0])
        self.sizes = self.small = np.zeros(())
        """Of a sum the sizes of its terms, of a product those of its terms above 1 and below 1."""
        self.magnitudes: dict[str, Array] = {}
        """The sum of the magnitudes of the terms so far, of a running sum."""

    def begin(self) -> None:
        super().begin()
        self.errors.update((b.name, np.zeros(self.kept_shape(b), np.float64)) for b in self.buffers)
        self.magnitudes = {b.name: np.zeros(self.kept_shape(b), np.float64) for b in self.buffers if self.sums}

    def advance(self) -> None:
        """Run the instances of the box, and add the bounds for them to `errors`."""
        if not self.box.volume:
            return
        if self.in_order:
            for store, part in self.steps():
                value, error = self._step(store, part)
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
        if isinstance(self.update, ArgFold):
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
        exact = super().load(arrays, name, indices, box, mask)
        if arrays is self.errors or name not in self.shifted:
            return exact
        return exact + self.shifted[name] * super().load(self.errors, name, indices, box, mask)

    def _positions(self, outs: list[Array], update: ArgFold) -> None:
        """Bound the error of positions: the position of any instance that rounding could make the best one is allowed."""
        positions, best = outs
        region = self.region(self.box)
        value, error = (np.broadcast_to(x, self.box.size) for x in self.pair(update.value, self.box, None))
        where = np.broadcast_to(self.value(update.position, self.box, None), self.box.size)
        axes = tuple(self.reduce)
        best[region] = self.stored(error.max(axis=axes, keepdims=True), self.box)
        if not error.any():
            return
        sign = -1.0 if update.kind == "argmin" else 1.0
        top, first = best_of(update, value.astype(np.float64), where, axes)
        low, high = self.overflows.span(sign * value, error, dtype_of(update.value))
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
        for part in self.parts(update):
            region = self.region(part)
            factors = self.product(update)
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
                case "min" | "max" | "and" | "or":
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

    def _overflowed(self, out: Array, update: Fold) -> None:
        """Add to the bounds what terms that leave their type on the way to the result may do to it."""
        value, t = self.arrays[self.buffer.name], self.buffer.dtype
        if not t.is_float or update.op not in ("+", "*"):
            return
        region = self.region(self.box)
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
            case Const() | Var() | Dim() | Compare() | Logic() | Not():
                return self.value(e, box, mask), none
            case Call(function=f) if f in CONDITIONS:
                return self.value(e, box, mask), none
            case Load(buffer=name, indices=indices):
                value, error = self.value(e, box, mask), self.errors[name]
                return value, self.load(self.errors, name, indices, box, mask) if error.ndim else none + error
            case Select():
                return self.choice(e, box, mask, lambda branch, taken: self.pair(branch, box, taken), _merged)
            case Binary(op=op, lhs=a, rhs=b):
                (x, dx), (y, dy) = self.pair(a, box, mask), self.pair(b, box, mask)
                value = arithmetic(op, x, y, dtype_of(a))
                if not dtype_of(a).is_float:
                    return value, none if not (dx.any() or dy.any()) else propagated(op, x, dx, y, dy, value)
                t, error = dtype_of(a), settled(value, propagated(op, x, dx, y, dy, value), (x, dx), (y, dy))
                again = partial(arithmetic, op, t=t)
                error = self.overflows.carried(again, value, error, t, (x, dx, t), (y, dy, t))
                return value, error if op in ("min", "max") else both(self.overflows.rounding(value, t, u), error)
            case Cast(operand=a, dtype=t):
                x, dx = self.pair(a, box, mask)
                return self._cast(x, dx, dtype_of(a), t)
            case Bitcast(operand=a, dtype=t):
                x, dx = self.pair(a, box, mask)  # bits say nothing about how near numbers are
                return bits_as(x, dtype_of(a), t), np.where(dx > 0, np.nan if t.is_float else np.inf, 0.0)
            case Call(function=f, args=args):
                operands = [self.pair(a, box, mask) for a in args]
                value, known = self.value(e, box, mask), NUMERICS[f]
                error = settled(value, known.error(Point(value, *chain(*operands))), *operands)
                if not (t := dtype_of(e)).is_float:
                    return value, error
                error = self.overflows.carried(known.value, value, error, t, *((x, dx, t) for x, dx in operands))
                return value, error if known.exact else error + self.overflows.rounding(
                    value, t, u * FUNCTION_ROUNDOFFS
                )
            case _:
                assert_never(e)

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
