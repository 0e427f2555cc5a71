"""Boxes of block instances as NumPy axes; turns accesses into strided views or gathers.

Every array here has one axis per iterator of the block, of length 1 if its values do not depend on that iterator, so
arrays of one box broadcast against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod

import numpy as np

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import Binary, Const, Expr, Var, children, constant


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
