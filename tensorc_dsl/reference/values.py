"""Evaluates expressions over whole boxes of block instances, with NumPy in float64, int64, uint64 and bool: the boxes as
NumPy axes, and accesses as strided views or gathers.

Every array here has one axis per iterator of the block, of length 1 if its values do not depend on that iterator, so
arrays of one box broadcast against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import TypeVar, assert_never

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, wide_dtype, widen, wrap
from tensorc_dsl.ir.dtypes import F64, INDEX, DType, holds, limits, nearest
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
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
    children,
    constant,
    dtype_of,
    index,
    loads,
)
from tensorc_dsl.ir.program import Block, IterKind, Program
from tensorc_dsl.reference.maths import called

# The steps of a scan that are still to be read: a reference keeps no others.
#
# A stencil over time reads the step before, and its caller the last one. All hundred of them would be gigabytes.


@frozen
class Alive:
    """The array of a buffer has `steps` places along `axis`: position p, of `extent`, is at p % steps."""

    axis: int
    steps: int
    extent: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array, from that of the buffer."""
        return (*whole[: self.axis], self.steps, *whole[self.axis + 1 :])

    def place(self, indices: tuple[Expr, ...], box: Box) -> int | None:
        """Where a step that is read or written lies; None if there is no such step."""
        f = form(indices[self.axis], box)
        assert f is not None, "only subscripts that are linear fold"
        low, high = f.interval(box)
        assert low == high, "one step is evaluated at a time"
        return low % self.steps if 0 <= low < self.extent else None


def alive_steps(program: Program, nests: Sequence[Sequence[Block]]) -> dict[str, Alive]:
    """The buffers of scans of which fewer steps are read than there are, by name. The nests are those of the program."""
    params = {p.name for p in program.params}
    found = {
        b.body[0].buffer: _kept(program, nests, together, b)
        for together in nests
        for b in together
        if _scan(b) and not b.is_reduction and len(b.body) == 1 and b.body[0].buffer not in params
    }
    return {name: kept for name, kept in found.items() if kept is not None}


def _kept(program: Program, nests: Sequence[Sequence[Block]], own: Sequence[Block], b: Block) -> Alive | None:
    (store,) = b.body
    stored = [_line(i, b) for i in store.indices]
    axis = next((d for d, line in enumerate(stored) if line is not None and line[0]), None)
    extent = None if axis is None else constant(program.buffer(store.buffer).shape[axis])
    line = None if axis is None else stored[axis]
    if axis is None or extent is None or line is None:
        return None
    direction, first = line
    last = extent - 1 if direction > 0 else 0
    oldest = 0
    for nest in nests:
        for reader in nest:
            if any(x.buffer == store.buffer for s in reader.init for x in loads(s.value)):
                return None
            for i in (x.indices[axis] for s in reader.body for x in loads(s.value) if x.buffer == store.buffer):
                read = _line(i, reader)
                if read is None or read[0] != (direction if nest is own else 0):
                    return None
                age = direction * ((first if nest is own else last) - read[1])
                if age < 0:
                    return None
                oldest = max(oldest, age)
    return Alive(axis, oldest + 1, extent) if oldest + 1 < extent else None


def _scan(b: Block) -> str | None:
    """The iterator that counts the steps of a scan."""
    return next((it.name for it in b.iters if it.kind is IterKind.SCAN), None)


def _line(e: Expr, b: Block) -> tuple[int, int] | None:
    """`(f, c)` if a subscript is f * step + c, and f is -1, 0 or 1."""
    sizes = [constant(it.extent) for it in b.iters]
    f = form(e, Box(tuple(it.name for it in b.iters), (0,) * len(sizes), tuple(n or 1 for n in sizes)))
    if f is None:
        return None
    steps = [n for n, it in zip(f.factors, b.iters, strict=True) if it.kind is IterKind.SCAN]
    if any(n for n, it in zip(f.factors, b.iters, strict=True) if it.kind is not IterKind.SCAN):
        return None
    factor = steps[0] if steps else 0
    return (factor, f.constant) if abs(factor) <= 1 else None


# Cuts a box of block instances where conditions and clamps turn, so that each part knows one case only.
#
# What a stencil with a border reads is a view in the middle then, and no gather; no branch is evaluated that the part does
# not need.


WORTH = 4096
"""A smaller box is left whole: its gathers take no longer than the operations on its parts would."""

MOST = 64
"""A box is left whole that would have more parts."""


def decided_parts(exprs: Sequence[Expr], box: Box) -> list[Box]:
    """The parts of the box, in any order, in each of which the conditions over one iterator are decided."""
    done: list[Box] = []
    waiting = [box]
    while waiting:
        part = waiting.pop()
        edge = next((found for e in exprs for found in _edges(e, part)), None) if part.volume > WORTH else None
        if edge is None:
            done.append(part)
        else:
            axis, at = edge
            waiting += part.cut(axis, [at])
        if len(done) + len(waiting) > MOST:
            return [box]
    return done


def _edges(e: Expr, box: Box) -> Iterator[tuple[int, int]]:
    """The axes and positions at which a condition that decides about `e` turns within the box."""
    match e:
        case Select(cond=c, then=a, other=b):
            decided = truth(c, box)
            if decided is None:
                yield from _edges(c, box)
            for branch in [a, b] if decided is None else [a if decided else b]:
                yield from _edges(branch, box)
        case Logic() | Not():
            # `i == 0 and f`: where the first is decided, the second may no longer matter.
            for c in children(e):
                if truth(c, box) is None:
                    yield from _edges(c, box)
        case Compare(op=op):
            f = _difference(e, box)
            if f is not None and truth(e, box) is None:
                if op not in ("<=", ">"):
                    yield from _turns(f, box, 0)
                if op not in ("<", ">="):
                    yield from _turns(f, box, 1)
        case Binary(op="min" | "max", lhs=a, rhs=b) if dtype_of(a) == INDEX:
            f = _difference(e, box)
            if f is not None and form(e, box) is None:
                yield from _turns(f, box, 0)
            yield from _edges(a, box)
            yield from _edges(b, box)
        case _:
            for c in children(e):
                yield from _edges(c, box)


def _difference(e: Compare | Binary, box: Box) -> Form | None:
    """Left side less right side; None if they are not linear, or no positions."""
    if dtype_of(e.lhs) != INDEX:
        return None
    return form(Binary("-", e.lhs, e.rhs), box)


def _turns(f: Form, box: Box, limit: int) -> Iterator[tuple[int, int]]:
    """Where `f < limit` turns within the box, if one axis alone decides."""
    axes = [a for a, factor in enumerate(f.factors) if factor and box.size[a] > 1]
    if len(axes) != 1:
        return
    (axis,) = axes
    c = f.factors[axis]
    rest = f.constant - limit
    rest += sum(p * s for a, (p, s) in enumerate(zip(f.factors, box.start, strict=True)) if a != axis)
    # c * v + rest < 0 holds below the edge, or from it on.
    at = -(rest // c) if c > 0 else rest // -c + 1
    if box.start[axis] < at < box.start[axis] + box.size[axis]:
        yield axis, at


def truth(e: Expr, box: Box) -> bool | None:
    """Whether a condition holds in all of the box, or nowhere in it; None if it is not known to."""
    match e:
        case Logic(op=op, lhs=a, rhs=b):
            x, y = truth(a, box), truth(b, box)
            decisive = op == "or"
            if decisive in (x, y):
                return decisive
            return None if x is None or y is None else not decisive
        case Not(operand=a):
            x = truth(a, box)
            return None if x is None else not x
        case Compare(op=op):
            f = _difference(e, box)
            if f is None:
                return None
            low, high = f.interval(box)
            match op:
                case "<" | ">=":
                    found = _interval_below(low, high, 0)
                case ">" | "<=":
                    found = _interval_below(low, high, 1)
                case "==" | "!=":
                    found = True if low == high == 0 else False if low > 0 or high < 0 else None
            return found if found is None or op in ("<", "<=", "==") else not found
        case _:
            known = constant(e)
            return None if known is None else bool(known)


def _interval_below(low: int, high: int, limit: int) -> bool | None:
    return True if high < limit else False if low >= limit else None


T = TypeVar("T")


class EvaluateError(ValueError):
    """The program is scheduled, reads out of bounds, or was given arrays that do not fit its parameters."""


_ARITHMETIC: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "%": np.mod, "min": np.minimum, "max": np.maximum,
    "xor": np.bitwise_xor,
}  # fmt: skip

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


class Values:
    """Evaluates expressions over the buffers in `arrays`. `block` is the block that they belong to, for messages.

    Of those in `alive` only some steps are kept.
    """

    def __init__(self, block: str, arrays: dict[str, Array], alive: Mapping[str, Alive] | None = None) -> None:
        self.block_name = block
        self.arrays = arrays
        self.alive = alive or {}

    def value(self, e: Expr, box: Box, mask: Array | None) -> Array:
        """The values of `e` over the box; arbitrary where `mask` is false."""
        match e:
            case Const(value=value, dtype=t):
                return np.full((1,) * len(box.size), nearest(value, t) if t.is_float else value, wide_dtype(t))
            case Var(name=name):
                axis = box.names.index(name)
                shape = [box.size[a] if a == axis else 1 for a in range(len(box.size))]
                return np.arange(box.start[axis], box.start[axis] + box.size[axis], dtype=np.int64).reshape(shape)
            case Dim(name=name):
                raise EvaluateError(f"the dimension {name} is open: `ir.sizes.bind` gives it a size")
            case Binary(op=op, lhs=a, rhs=b):
                return reference_arithmetic(op, self.value(a, box, mask), self.value(b, box, mask), dtype_of(a))
            case Compare(op=op, lhs=a, rhs=b):
                return COMPARE[op](self.value(a, box, mask), self.value(b, box, mask))
            case Logic(op=op, lhs=a, rhs=b):
                x, y = self.value(a, box, mask), self.value(b, box, mask)
                return x & y if op == "and" else x | y
            case Not(operand=a):
                return ~self.value(a, box, mask)
            case Select():
                return self.choice(e, box, mask, lambda branch, part: self.value(branch, box, part), np.where)
            case Cast(operand=a, dtype=t):
                return cast(self.value(a, box, mask), dtype_of(a), t)
            case Bitcast(operand=a, dtype=t):
                return reference_bits_as(self.value(a, box, mask), dtype_of(a), t)
            case Call(function=f, args=args):
                return wrap(called(f, dtype_of(args[0]), *(self.value(a, box, mask) for a in args)), dtype_of(e))
            case Load(buffer=name, indices=indices):
                return self.load(self.arrays, name, indices, box, mask)
            case _:
                assert_never(e)

    def choice(
        self,
        e: Select,
        box: Box,
        mask: Array | None,
        of: Callable[[Expr, Array | None], T],
        merge: Callable[[Array, T, T], T],
    ) -> T:
        """What `of` has for the branches of a choice, each under the mask of where it is taken, merged by the condition.

        A branch that is taken nowhere is not evaluated.
        """
        decided = truth(e.cond, box)
        if decided is not None:
            return of(e.then if decided else e.other, mask)
        cond = self.value(e.cond, box, mask)
        yes, no = (cond, ~cond) if mask is None else (mask & cond, mask & ~cond)
        if not no.any():
            return of(e.then, mask)
        if not yes.any():
            return of(e.other, mask)
        return merge(cond, of(e.then, yes), of(e.other, no))

    def load(
        self, arrays: Mapping[str, Array], name: str, indices: tuple[Expr, ...], box: Box, mask: Array | None
    ) -> Array:
        """The elements that an access reads over the box. Raises EvaluateError if one selected by `mask` is out of bounds."""
        if name not in arrays:
            raise EvaluateError(f"block {self.block_name} reads {name} before anything is stored in it")
        if name in self.alive:
            axis, place = self.alive[name].axis, self.alive[name].place(indices, box)
            if place is None and (mask is None or mask.any()):
                raise EvaluateError(f"block {self.block_name} reads outside {name}")
            indices = (*indices[:axis], index(place or 0), *indices[axis + 1 :])
        seen = view(arrays[name], indices, box)
        if seen is not None:
            return seen
        positions = [self.value(i, box, mask) for i in indices]
        values, outside = gather(arrays[name], positions, mask)
        if outside:
            raise EvaluateError(f"block {self.block_name} reads outside {name}")
        return values


def reference_arithmetic(op: BinaryOp, x: Array, y: Array, t: DType) -> Array:
    """One operation on wide values of type `t`."""
    if op == "/":
        return np.divide(x, y) if t.is_float else wrap(np.floor_divide(x, y), t)
    return wrap(_ARITHMETIC[op](x, y), t)


def reference_bits_as(x: Array, old: DType, new: DType) -> Array:
    """The bits of wide values of a type as those of another one of its width."""
    return widen(narrow(x, old).view(stored_dtype(new)), new)


def cast(x: Array, old: DType, new: DType) -> Array:
    """A conversion of wide values, with the rules of `ir.dtypes`."""
    if new.kind == "bool":
        return x != 0
    if new.is_float:
        return x.astype(np.float64) if holds(new, old) or new == F64 else widen(narrow(x, new), new)
    if not old.is_float:
        return wrap(x.astype(np.int64) if old.kind == "bool" else x, new)
    low, high = limits(new)
    # The ends of the range are handled separately: float64 cannot represent 2**63 - 1.
    wide = wide_dtype(new).type
    inside = np.where((x > low) & (x < high), x, 0.0).astype(wide)
    return np.where(x <= low, wide(low), np.where(x >= high, wide(high), inside))


# Boxes of block instances.


@frozen
class Box:
    """The block instances with `start[a] <= names[a] < start[a] + size[a]` for every axis a."""

    names: tuple[str, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def volume(self) -> int:
        return prod(self.size)

    def slices(self, axes: Sequence[int]) -> tuple[slice, ...]:
        return tuple(slice(self.start[a], self.start[a] + self.size[a]) for a in axes)

    def cut(self, axis: int, at: Sequence[int]) -> Iterator[Box]:
        """The parts of the box between the absolute positions `at` on one axis, in order."""
        low, high = self.start[axis], self.start[axis] + self.size[axis]
        edges = [low, *(p for p in at if low < p < high), high]
        for a, b in pairwise(edges):
            start = (*self.start[:axis], a, *self.start[axis + 1 :])
            yield Box(self.names, start, (*self.size[:axis], b - a, *self.size[axis + 1 :]))

    def chunks(self, axes: Sequence[int], limit: int) -> Iterator[Box]:
        """Parts of the box in which the lengths of `axes` multiply to at most `limit`, cut on the first axis possible."""
        volume = prod(self.size[a] for a in axes)
        if volume <= limit:
            yield self
            return
        axis = next(a for a in axes if self.size[a] > 1)
        step = max(1, self.size[axis] * limit // volume)
        low = self.start[axis]
        for part in self.cut(axis, range(low + step, low + self.size[axis], step)):
            yield from part.chunks(axes, limit)


@frozen
class Form:
    """A linear form: `constant` + the sum of factors[a] * (value of axis a)."""

    factors: tuple[int, ...]
    constant: int

    def interval(self, box: Box) -> tuple[int, int]:
        low = high = self.constant
        for f, s, n in zip(self.factors, box.start, box.size, strict=True):
            ends = (f * s, f * (s + n - 1))
            low, high = low + min(ends), high + max(ends)
        return low, high


def form(e: Expr, box: Box) -> Form | None:
    """The linear form of an index expression within the box; None if it is not linear there."""
    return _everywhere(e, box.names) or _form(e, box.names, box)


@lru_cache(maxsize=4096)
def _everywhere(e: Expr, names: tuple[str, ...]) -> Form | None:
    """The linear form in any box: the same access is needed in each part of a nest."""
    return _form(e, names, None)


def _form(e: Expr, names: tuple[str, ...], box: Box | None) -> Form | None:
    """The linear form within the box; without one, of what is linear in every box."""
    match e:
        case Const(value=value):
            return Form((0,) * len(names), int(value))
        case Var(name=name):
            return Form(tuple(int(n == name) for n in names), 0)
        case Binary(op=op, lhs=a, rhs=b):
            x, y = _form(a, names, box), _form(b, names, box)
            if x is None or y is None:
                return None
            match op:
                case "+" | "-":
                    sign = 1 if op == "+" else -1
                    factors = tuple(p + sign * q for p, q in zip(x.factors, y.factors, strict=True))
                    return Form(factors, x.constant + sign * y.constant)
                case "*":
                    if any(x.factors):
                        x, y = y, x
                    if any(x.factors):
                        return None
                    return Form(tuple(x.constant * q for q in y.factors), x.constant * y.constant)
                case "/" | "%":
                    return None if any(y.factors) or y.constant <= 0 else _divided(op == "/", x, y.constant, box)
                case "min" | "max":
                    if box is None:
                        return None
                    (x_low, x_high), (y_low, y_high) = x.interval(box), y.interval(box)
                    if x_high <= y_low:
                        return x if op == "min" else y
                    return (y if op == "min" else x) if y_high <= x_low else None
                case "xor":
                    if any(x.factors) or any(y.factors):
                        return None
                    return Form(x.factors, x.constant ^ y.constant)
        case _:
            return None


def _divided(quotient: bool, x: Form, d: int, box: Box | None) -> Form | None:
    none = (0,) * len(x.factors)
    if all(f % d == 0 for f in x.factors):
        if not quotient:
            return Form(none, x.constant % d)
        return Form(tuple(f // d for f in x.factors), x.constant // d)
    if box is None:
        return None
    low, high = x.interval(box)
    if low // d != high // d:
        return None
    return Form(none, low // d) if quotient else Form(x.factors, x.constant - low // d * d)


def view(array: Array, indices: Sequence[Expr], box: Box) -> Array | None:
    """The elements that an access touches, without a copy; None unless the access is linear and in bounds within the box."""
    strides = [0] * len(box.names)
    offset = 0
    for i, extent, stride in zip(indices, array.shape, array.strides, strict=True):
        f = form(i, box)
        if f is None:
            return None
        low, high = f.interval(box)
        if low < 0 or high >= extent:
            return None
        offset += stride * (f.constant + sum(p * q for p, q in zip(f.factors, box.start, strict=True)))
        strides = [s + p * stride for s, p in zip(strides, f.factors, strict=True)]
    shape = tuple(n if s else 1 for n, s in zip(box.size, strides, strict=True))
    # All arrays here are contiguous.
    seen = np.ndarray(shape, array.dtype, array, offset, strides)
    seen.flags.writeable = False
    return seen


def gather(array: Array, positions: Sequence[Array], mask: Array | None) -> tuple[Array, bool]:
    """The elements at `positions`, and whether one that `mask` selects is out of bounds (its value is then arbitrary)."""
    if not array.size:
        shape = np.broadcast_shapes(*(p.shape for p in positions))
        return np.zeros(shape, array.dtype), bool(np.any(np.ones((), bool) if mask is None else mask))
    outside = False
    clipped: list[Array] = []
    for p, extent in zip(positions, array.shape, strict=True):
        wrong = (p < 0) | (p >= extent)
        if wrong.any():
            outside = outside or bool((wrong if mask is None else wrong & mask).any())
            p = p.clip(0, extent - 1)
        clipped.append(p)
    return array[tuple(clipped)], outside


def linear_parts(exprs: Sequence[Expr], box: Box, limit: int = 4096) -> list[Box]:
    """The box cut so that quotients and remainders of one axis by a constant become linear within each part.

    `co / 8` over 64 channels has a linear form on each run of 8. The box stays whole when there would be more than
    `limit` parts.
    """
    edges: dict[int, set[int]] = {}

    def look(e: Expr) -> None:
        for c in children(e):
            look(c)
        if not isinstance(e, Binary) or e.op not in ("/", "%") or form(e, box) is not None:
            return
        inner, d = form(e.lhs, box), constant(e.rhs)
        if inner is None or d is None or d <= 0 or sum(map(bool, inner.factors)) != 1:
            return
        axis = next(a for a, f in enumerate(inner.factors) if f)
        values = np.arange(box.start[axis], box.start[axis] + box.size[axis], dtype=np.int64)
        quotient = (values * inner.factors[axis] + inner.constant) // d
        edges.setdefault(axis, set()).update((values[1:][np.diff(quotient) != 0]).tolist())

    for e in exprs:
        look(e)
    if prod(len(at) + 1 for at in edges.values()) > limit:
        return [box]
    parts = [list(box.cut(a, sorted(at))) for a, at in sorted(edges.items())]
    out: list[Box] = []
    for choice in product(*parts):
        start, size = list(box.start), list(box.size)
        for a, part in zip(sorted(edges), choice, strict=True):
            start[a], size[a] = part.start[a], part.size[a]
        out.append(Box(box.names, tuple(start), tuple(size)))
    return out
