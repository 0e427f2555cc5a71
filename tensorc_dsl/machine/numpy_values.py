"""Translates values of an unscheduled block into NumPy expressions: whole arrays with an axis for each iterator.

Subscripts may be iterators, in any order and more than once, with steps and offsets; two of them in one dimension are a
window. Data and all other expressions select elements along one dimension (`take`). A condition that holds in a box of the
iterators splits an array: `concatenate` joins two parts, and a part with a border is written into an array.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isnan, prod
from string import ascii_letters
from typing import assert_never

import numpy as np

from tensorc_dsl.ir.arrays import in_numpy, stored_dtype
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
from tensorc_dsl.reference.boxes import Box, Form, form

LARGEST = 2**26
"""The largest number of elements that a stage may materialise before a reduction: more would be another algorithm."""

_BINARY = {"+": "({} + {})", "-": "({} - {})", "*": "({} * {})", "%": "({} % {})", "xor": "({} ^ {})",
           "min": "np.minimum({}, {})", "max": "np.maximum({}, {})"}  # fmt: skip

_CALLS = {
    **{
        f: f"np.{f}({{}})"
        for f in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "sqrt", "cbrt", "floor", "ceil",
            "trunc", "abs", "sign", "sin", "cos", "tan", "isnan", "isinf", "isfinite",
        )
    },
    **{f"a{f}": f"np.arc{f}({{}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "round": "np.rint({})", "rsqrt": "(1 / np.sqrt({}))", "sigmoid": "(1 / (1 + np.exp(-{})))", "pow": "np.power({}, {})",
    "atan2": "np.arctan2({}, {})", "hypot": "np.hypot({}, {})", "copysign": "np.copysign({}, {})",
    "bit_and": "({} & {})", "bit_or": "({} | {})", "bit_not": "np.invert({})", "shift_left": "np.left_shift({}, {})",
    "shift_right": "np.right_shift({}, {})",
}  # fmt: skip

_WINDOWS = "np.lib.stride_tricks.sliding_window_view"


class Missing(Exception):
    """NumPy has no function for the expression."""


@dataclass(frozen=True, slots=True)
class Code:
    """A text that can stand before a dot, and the iterators of its value's axes, in order.

    A view shares the elements of another array.
    """

    text: str
    axes: tuple[str, ...] = ()
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """A subscript: an index or a slice of its dimension; for windows, another one of these for the elements of a window."""

    text: str
    axes: tuple[str, ...] = ()
    window: int = 1
    within: str = ""


class Values:
    """Translates values in a box of iterators; `names` has the arrays by buffer, and `shapes` their shapes.

    `before` has lines for values that no expression computes.
    """

    def __init__(self, names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], box: Box) -> None:
        self.names = names
        self.shapes = shapes
        self.iters = box.names
        self.box = box
        self.before: list[str] = []

    @property
    def size(self) -> dict[str, int]:
        return dict(zip(self.iters, self.box.size, strict=True))

    @contextmanager
    def within(self, box: Box) -> Generator[None]:
        """A context in which values are those of a part of the box."""
        whole, self.box = self.box, box
        try:
            yield
        finally:
            self.box = whole

    def named(self, text: str) -> str:
        """Add a line that gives a value a name. Returns the name."""
        name = f"v{len(self.before)}"
        self.before.append(f"{name} = {text}")
        return name

    def spread(self, code: Code, wanted: Sequence[str]) -> str:
        """The value with its axes in the wanted order, and length 1 for axes that it lacks."""
        order = [code.axes.index(a) for a in wanted if a in code.axes]
        text = code.text
        if order != sorted(order):
            text = f"{text}.transpose({', '.join(map(str, order))})"
        missing = [a not in code.axes for a in wanted]
        first = missing.index(False) if False in missing else len(missing)
        if not any(missing[first:]):  # NumPy adds leading axes itself
            return text
        places = ", ".join("None" if m else ":" for m in missing)
        return f"{text}[{places}]"

    def joined(self, template: str, *operands: Code) -> Code:
        """A function of operands that broadcast."""
        union = self.union(*operands)
        axes = next((o.axes for o in operands if len(o.axes) == len(union)), union)
        return Code(template.format(*(self.spread(o, axes) for o in operands)), axes)

    def union(self, *operands: Code) -> tuple[str, ...]:
        return tuple(a for a in self.iters if any(a in o.axes for o in operands))

    def code(self, e: Expr) -> Code:
        match e:
            case Const(value=value, dtype=t):
                return Code(literal(value, t))
            case Var(name=name):
                at = self.iters.index(name)
                start, size = self.box.start[at], self.box.size[at]
                return Code(f"np.arange({start}, {start + size})" if start else f"np.arange({size})", (name,))
            case Dim():
                raise Missing
            case Binary(op="/", lhs=a, rhs=b):
                return self.joined("({} / {})" if dtype_of(a).is_float else "({} // {})", self.code(a), self.code(b))
            case Binary(op=op, lhs=a, rhs=b):
                return self.joined(_BINARY[op], self.code(a), self.code(b))
            case Compare(op=op, lhs=a, rhs=b):
                return self.joined(f"({{}} {op} {{}})", self.code(a), self.code(b))
            case Logic(op=op, lhs=a, rhs=b):
                return self.joined("({} & {})" if op == "and" else "({} | {})", self.code(a), self.code(b))
            case Not(operand=a):
                return self.joined("np.logical_not({})", self.code(a))
            case Select():
                return self.select(e)
            case Cast(operand=a, dtype=t):
                if not in_numpy(t):
                    raise Missing
                return self.joined(f"np.asarray({{}}).astype(np.{type_name(t)})", self.code(a))
            case Bitcast(operand=a, dtype=t):
                if not in_numpy(t) or not in_numpy(dtype_of(a)):
                    raise Missing
                old, new = type_name(dtype_of(a)), type_name(t)
                return self.joined(f"np.asarray({{}}, np.{old}).view(np.{new})", self.code(a))
            case Call(function=f, args=args):
                if f not in _CALLS:
                    raise Missing
                return self.joined(_CALLS[f], *map(self.code, args))
            case Load():
                return self.load(e)
            case _:
                assert_never(e)

    # --- conditions --------------------------------------------------------------------------------------------------

    def select(self, e: Select) -> Code:
        part = _part(e.cond, self.box)
        if part is None:
            return self.joined("np.where({}, {}, {})", self.code(e.cond), self.code(e.then), self.code(e.other))
        if part == self.box:
            return self.code(e.then)
        if not part.volume:
            return self.code(e.other)
        cut = [a for a in range(len(self.iters)) if part.size[a] < self.box.size[a]]
        rest = _rest(self.box, part, cut[0]) if len(cut) == 1 else None
        return self.bordered(e, part, cut) if rest is None else self.side_by_side(e, part, rest, cut[0])

    def side_by_side(self, e: Select, part: Box, rest: Box, at: int) -> Code:
        """Both branches, each where it holds, joined along one axis."""
        pieces: list[tuple[Box, Code]] = []
        for box, branch in sorted(((part, e.then), (rest, e.other)), key=lambda x: x[0].start[at]):
            with self.within(box):
                pieces.append((box, self.code(branch)))
        union = self.union(*(c for _, c in pieces), Code("", (self.iters[at],)))
        texts = ", ".join(self.filled(code, box, union, dtype_of(e)) for box, code in pieces)
        return Code(f"np.concatenate(({texts}), axis={union.index(self.iters[at])})", union)

    def bordered(self, e: Select, part: Box, cut: Sequence[int]) -> Code:
        """The other branch everywhere, with this one written into it where it holds."""
        around = self.code(e.other)
        with self.within(part):
            inner = self.code(e.then)
        union = self.union(around, inner, Code("", tuple(self.iters[a] for a in cut)))
        whole = self.named(f"{self.filled(around, self.box, union, dtype_of(e))}.copy()")
        sides = [self.iters.index(a) for a in union]
        slices = [(part.start[a] - self.box.start[a], part.size[a]) if a in cut else None for a in sides]
        places = ", ".join(":" if s is None else f"{s[0]}:{s[0] + s[1]}" for s in slices)
        with self.within(part):
            self.before.append(f"{whole}[{places}] = {self.spread(inner, union)}")
        return Code(whole, union)

    def filled(self, code: Code, box: Box, axes: Sequence[str], t: DType) -> str:
        """The value with all of the axes at their lengths in the box."""
        shape = tuple(box.size[self.iters.index(a)] for a in axes)
        if prod(shape) > LARGEST:
            raise Missing
        if set(code.axes) == set(axes):
            return self.spread(code, axes)
        return f"np.broadcast_to(np.asarray({self.spread(code, axes)}, np.{type_name(t)}), {shape})"

    # --- elements ----------------------------------------------------------------------------------------------------

    def load(self, e: Load) -> Code:
        """A view of the array, or the elements that data select."""
        text, shape, indices = self.names[e.buffer], self.shapes[e.buffer], e.indices
        while (k := _divided(indices, shape)) is not None:
            at, index = k
            shape = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
            indices = (*indices[:at], index, *indices[at + 2 :])
        if shape != self.shapes[e.buffer]:
            text = f"{text}.reshape({shape})"
        places = [self.place(i, n) for i, n in zip(indices, shape, strict=True)]
        if (chosen := [n for n, p in enumerate(places) if p is None]) and len(chosen) == 1:
            return self.taken(text, indices, [p for p in places if p is not None], chosen[0], shape)
        found = [p for p in places if p is not None]
        if chosen:
            raise Missing
        windows = [(n, p) for n, p in enumerate(found) if p.window > 1]
        axes = (*(p.axes[0] for p in found if p.axes), *(p.axes[1] for _, p in windows))
        if windows:
            lengths, at = tuple(p.window for _, p in windows), tuple(n for n, _ in windows)
            text = f"{_WINDOWS}({text}, {lengths}, {at})"
            if prod(self.size[a] for a in axes) > LARGEST:
                raise Missing
        text = _indexed(text, [*(p.text for p in found), *(p.within for _, p in windows)])
        if len(set(axes)) == len(axes):
            return Code(text, axes, is_view=True)
        own = tuple(a for a in self.iters if a in axes)
        letters = dict(zip(own, ascii_letters, strict=False))
        diagonal = f"{''.join(letters[a] for a in axes)}->{''.join(letters[a] for a in own)}"
        return Code(f"np.einsum({diagonal!r}, {text})", own)

    def place(self, i: Expr, n: int) -> _Place | None:
        """A subscript of a dimension of length `n`; None if it has no form of a slice."""
        found = None if loads(i) else form(i, self.box)
        if found is None:
            return None
        size = self.size
        used = sorted(
            ((a, f) for a, f in zip(self.iters, found.factors, strict=True) if f and size[a] > 1),
            key=lambda x: -abs(x[1]) * (size[x[0]] - 1),
        )
        start = _at(found, self.box)
        ends = [f * (size[a] - 1) for a, f in used]
        if start + sum(min(x, 0) for x in ends) < 0 or start + sum(max(x, 0) for x in ends) >= n:
            raise Missing
        match used:
            case []:
                return _Place(str(start))
            case [(axis, step)]:
                return _Place(_slice(start, step, size[axis], n), (axis,))
            case [(axis, step), (inner, pace)]:
                span = abs(ends[1])
                low = start + min(ends[1], 0)
                within = _slice(0 if pace > 0 else span, pace, size[inner], span + 1)
                return _Place(_slice(low, step, size[axis], n - span), (axis, inner), span + 1, within)
            case _:
                raise Missing

    def taken(
        self, text: str, indices: Sequence[Expr], places: Sequence[_Place], at: int, shape: tuple[int, ...]
    ) -> Code:
        """The elements along one dimension that an expression selects; other subscripts are iterators, each once."""
        positions = self.code(indices[at])
        if not loads(indices[at]):
            chosen = np.asarray(eval(positions.text, {"np": np}))  # generated text of `arange` and numbers only
            if chosen.min() < 0 or chosen.max() >= shape[at]:
                raise Missing
        if any(p.window > 1 for p in places):
            raise Missing
        text = _indexed(text, [*(p.text for p in places[:at]), ":", *(p.text for p in places[at:])])
        front, behind = ([a for p in some for a in p.axes] for some in (places[:at], places[at:]))
        axes = (*front, *positions.axes, *behind)
        if len(set(axes)) != len(axes):
            raise Missing
        return Code(f"np.take({text}, {positions.text}, axis={len(front)})", axes)


def type_name(t: DType) -> str:
    return "bool_" if t.kind == "bool" else str(stored_dtype(t))


def literal(value: int | float | bool, t: DType) -> str:
    if isinstance(value, float) and (isnan(value) or value in (inf, -inf)):
        return f"np.{type_name(t)}('{value}')"
    return f"np.{type_name(t)}({value!r})"


def _indexed(text: str, places: Sequence[str]) -> str:
    return text if all(p == ":" for p in places) else f"{text}[{', '.join(places)}]"


def _slice(start: int, step: int, count: int, n: int) -> str:
    """The slice of `count` elements of a dimension of length `n`."""
    if (start, step, count) == (0, 1, n):
        return ":"
    stop = start + step * (count - 1) + (1 if step > 0 else -1)
    return f"{start}:{stop if stop >= 0 else ''}:{step}"


def _at(f: Form, box: Box) -> int:
    """The value at the start of the box."""
    return f.constant + sum(k * s for k, s in zip(f.factors, box.start, strict=True))


def _divided(indices: Sequence[Expr], shape: Sequence[int]) -> tuple[int, Expr] | None:
    """The first of two subscripts that are the quotient and the remainder of one position, and that position."""
    for k in range(len(indices) - 1):
        match indices[k], indices[k + 1]:
            case (
                Binary(op="/", lhs=x, rhs=Const(value=d)),
                Binary(op="%", lhs=y, rhs=Const(value=e)),
            ) if x == y and d == e == shape[k + 1]:
                return k, x
            case (
                Binary(op="%", lhs=Binary(op="/", lhs=x, rhs=Const(value=d)), rhs=Const(value=n, dtype=t)),
                Binary(op="%", lhs=y, rhs=Const(value=e)),
            ) if x == y and d == e == shape[k + 1] and n == shape[k]:
                return k, Binary("%", x, Const(int(n) * int(d), t))
            case _:
                pass
    return None


def _part(cond: Expr, box: Box) -> Box | None:
    """The box in which the condition holds; None if that is not a box, or if it depends on data."""
    match cond:
        case Logic(op="and", lhs=a, rhs=b):
            first = _part(a, box)
            return None if first is None else _part(b, first)
        case Compare(op="<" | "<=" | ">" | ">=" | "==" as op, lhs=a, rhs=b) if not loads(a) and not loads(b):
            left, right = form(a, box), form(b, box)
            if left is None or right is None:
                return None
            found = [x - y for x, y in zip(left.factors, right.factors, strict=True)]
            used = [k for k, f in enumerate(found) if f]
            if len(used) != 1:
                return None
            (axis,) = used
            at = np.arange(box.start[axis], box.start[axis] + box.size[axis])
            difference = found[axis] * at + left.constant - right.constant
            holds = at[_HOLDS[op](difference, 0)]  # one run of them, since the difference only rises or falls
            start = int(holds[0]) if holds.size else box.start[axis]
            return Box(
                box.names,
                (*box.start[:axis], start, *box.start[axis + 1 :]),
                (*box.size[:axis], holds.size, *box.size[axis + 1 :]),
            )
        case _:
            return None


_HOLDS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}


def _rest(box: Box, part: Box, axis: int) -> Box | None:
    """The rest of the box beside a part that is cut on one axis; None if it is on both sides."""
    low, high = part.start[axis] - box.start[axis], part.start[axis] + part.size[axis]
    end = box.start[axis] + box.size[axis]
    if low and high < end:
        return None
    start, size = (box.start[axis], low) if low else (high, end - high)
    return Box(
        box.names,
        (*box.start[:axis], start, *box.start[axis + 1 :]),
        (*box.size[:axis], size, *box.size[axis + 1 :]),
    )
