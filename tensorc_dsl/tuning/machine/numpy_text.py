"""Translates an unscheduled program into the text of a NumPy function: whole arrays with an axis for each iterator."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isnan, prod
from string import ascii_letters
from typing import assert_never

import numpy as np

from tensorc_dsl.ir.arrays import in_numpy, stored_dtype
from tensorc_dsl.ir.dtypes import INDEX, DType
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
    constant,
    dtype_of,
    factors_of,
    loads,
    substitute,
)
from tensorc_dsl.ir.program import Block, IterKind, Program, Store
from tensorc_dsl.ir.reductions import Combination, Fold, FoldOp, identity, update_of
from tensorc_dsl.reference.evaluate import shape_of, unscheduled_blocks
from tensorc_dsl.reference.values import Box, EvaluateError, Form, form

# Translates values of an unscheduled block into NumPy expressions: whole arrays with an axis for each iterator.
#
# Subscripts may be iterators, in any order and more than once, with steps and offsets; two of them in one dimension are a
# window. Data and all other expressions select elements along one dimension (`take`). A condition that holds in a box of
# the iterators splits an array: `concatenate` joins two parts, and a part with a border is written into an array.


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


# Translates an unscheduled program into the text of a NumPy function, with one line for each stage.
#
# Sums of products become `einsum` or `matmul`, other reductions those of ufuncs, running sums `accumulate`, other
# operations ufuncs over arrays that broadcast. Other recurrences and declared reducers have no such function.


WAYS = ("matmul", "einsum", "reduce")
"""The translations of a sum of products: BLAS if possible, `einsum`, or the sum of an array of products."""

_UFUNCS: dict[FoldOp, str] = {
    "+": "add", "*": "multiply", "min": "minimum", "max": "maximum", "and": "logical_and", "or": "logical_or",
}  # fmt: skip


def numpy_texts(program: Program) -> tuple[str, ...]:
    """The ways to write the program, as texts of a function `call` from the inputs in order to the outputs in order.

    Empty if NumPy has no functions for it, or sizes are open.
    """
    try:
        ways = (_Writer(program, products).text() for products in WAYS)
        return tuple(dict.fromkeys(ways))
    except (Missing, EvaluateError):
        return ()


@dataclass(slots=True)
class _Writer:
    program: Program
    products: str
    """The translation of sums of products of two arrays, where there is a choice."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    lines: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        for p in (*self.program.params, *self.program.buffers):
            if not in_numpy(p.dtype):
                raise Missing
            self.shapes[p.name] = shape_of(p)
            self.names[p.name] = f"a{len(self.names)}"
        found = unscheduled_blocks(self.program)
        for b in found:
            stage = _Stage(self, b)
            last = stage.lines()
            self.lines += [*stage.before, *last]
        inputs = ", ".join(self.names[p.name] for p in self.program.inputs)
        outputs = "".join(f"{self.names[p.name]}, " for p in self.program.outputs)
        return "\n    ".join([f"def call({inputs}):", *self.lines, f"return ({outputs})"]) + "\n"

    def is_read(self, buffer: str) -> bool:
        """Whether the values of the buffer are used."""
        stores = (s for b in unscheduled_blocks(self.program) for s in b.body if s.buffer != buffer)
        read = {x.buffer for s in stores for x in loads(s.value)}
        return buffer in read or any(p.name == buffer for p in self.program.outputs)


class _Stage(Values):
    """The lines that compute the arrays of one block."""

    def __init__(self, writer: _Writer, block: Block) -> None:
        iters = tuple(it.name for it in block.iters)
        sizes = tuple(constant(it.extent) or 0 for it in block.iters)
        super().__init__(writer.names, writer.shapes, Box(iters, (0,) * len(iters), sizes))
        self.writer = writer
        self.block = block
        self.reduced = tuple(it.name for it in block.iters if it.kind is IterKind.REDUCE)
        self.scanned = tuple(it.name for it in block.iters if it.kind is IterKind.SCAN)
        if 0 in sizes:
            raise Missing

    def matter(self, axes: Sequence[str]) -> set[str]:
        """Those of the axes that have more than one value."""
        return {a for a in axes if self.size[a] > 1}

    def lines(self) -> list[str]:
        store = self.block.body[0]
        wanted = tuple(i.name for i in store.indices if isinstance(i, Var))
        update = update_of(self.block) if self.block.is_reduction else None
        if self.scanned:
            return [f"{self.names[store.buffer]} = {self.accumulated(store, wanted)}"]
        if not self.block.is_reduction:
            code = self.code(store.value)
            text = self.whole(code, wanted, dtype_of(store.value))
            is_output = any(p.name == store.buffer for p in self.writer.program.outputs)
            if is_output and code.is_view and not text.endswith(".copy()"):
                text = f"{text}.copy()"  # a result must not be a view
            return [f"{self.names[store.buffer]} = {text}"]
        match update:
            case Fold():
                text = self.fold(update, wanted)
                return [f"{self.names[store.buffer]} = {text}"]
            case Combination() if update.reducer.picks:
                return self.position(update, wanted)
            case Combination() | None:
                raise Missing
            case _:
                assert_never(update)

    def whole(self, code: Code, wanted: Sequence[str], t: DType) -> str:
        """The value with exactly the wanted axes, as an array that owns its memory."""
        if all(a in code.axes or self.size[a] == 1 for a in wanted) and code.axes:
            return self.exact(code, wanted)
        shape = tuple(self.size[a] for a in wanted)
        return f"np.broadcast_to(np.asarray({self.spread(code, wanted)}, np.{type_name(t)}), {shape}).copy()"

    def exact(self, code: Code, wanted: Sequence[str]) -> str:
        """As `spread`, with missing leading axes added too."""
        lacking = next((n for n, a in enumerate(wanted) if a in code.axes), len(wanted))
        text = self.spread(code, wanted)
        if not lacking or (text.endswith("]") and "None" in text.rpartition("[")[2]):
            return text
        return f"{text}[{', '.join(['None'] * lacking)}]"

    # --- reductions --------------------------------------------------------------------------------------------------

    def fold(self, update: Fold, wanted: Sequence[str]) -> str:
        store = self.block.body[0]
        t = dtype_of(store.value)
        if [s.value for s in self.block.init] != [identity(update.op, t)]:
            raise Missing
        factors = [self.code(f) for f in factors_of(update.value)] if update.op == "+" else []
        arrays, scalars = [f for f in factors if f.axes], [f for f in factors if not f.axes]
        covered = self.matter(self.iters) <= {a for f in arrays for a in f.axes}
        spread_out = all(self.matter(self.iters) <= set(f.axes) for f in arrays)
        if len(arrays) > 1 and covered and not (spread_out and self.writer.products == "reduce"):
            return " * ".join([self.product(arrays, wanted), *(s.text for s in scalars)])
        self.before.clear()  # the product as a whole needs none of its factors
        value = self.code(update.value)
        if not self.matter(self.reduced) <= set(value.axes) or prod(self.size[a] for a in value.axes) > LARGEST:
            raise Missing
        axes = tuple(n for n, a in enumerate(value.axes) if a in self.reduced)
        text = f"np.{_UFUNCS[update.op]}.reduce({value.text}, axis={axes}, dtype=np.{type_name(t)})"
        return self.whole(Code(text, tuple(a for a in value.axes if a not in self.reduced)), wanted, t)

    def accumulated(self, store: Store, wanted: Sequence[str]) -> str:
        """A scan whose step combines the previous element with a value, as `accumulate`. Raises Missing for other scans."""
        t, (axis,) = dtype_of(store.value), self.scanned
        if len(wanted) < len(store.indices):
            raise Missing  # it runs back
        match store.value:
            case Select(cond=Compare("<", Var(name), Const(1)), then=first, other=Binary() | Logic() as step) if (
                name == axis
            ):
                parts = step.lhs, step.rhs
            case _:
                raise Missing
        one_before = Binary("-", Var(axis), Const(1, INDEX))
        before = Load(store.buffer, tuple(one_before if i == Var(axis) else i for i in store.indices), t)
        if step.op not in _UFUNCS or before not in parts:
            raise Missing
        added = parts[1] if parts[0] == before else parts[0]
        if any(x.buffer == store.buffer for x in loads(added)):
            raise Missing
        alike = substitute(added, {axis: Const(0, INDEX)}) == first
        code = self.code(added if alike else Select(store.value.cond, first, added))
        text = self.filled(code, self.box, wanted, t)
        return f"np.{_UFUNCS[step.op]}.accumulate({text}, axis={wanted.index(axis)}, dtype=np.{type_name(t)})"

    def product(self, factors: Sequence[Code], wanted: Sequence[str]) -> str:
        """The sum of the products of arrays."""
        factors = self.shared(factors)
        if self.writer.products == "matmul" and len(factors) == 2:
            first, second = factors
            if text := self.matmul(first, second, wanted):
                return text
        letters = dict(zip(self.iters, ascii_letters, strict=False))
        if len(letters) < len(self.iters):
            raise Missing
        terms = ",".join("".join(letters[a] for a in f.axes) for f in factors)
        inner = tuple(a for a in wanted if any(a in f.axes for f in factors))
        subscripts = f"{terms}->{''.join(letters[a] for a in inner)}"
        text = f"np.einsum({subscripts!r}, {', '.join(f.text for f in factors)}, optimize='optimal')"
        return self.exact(Code(text, inner), wanted)

    def shared(self, factors: Sequence[Code]) -> list[Code]:
        """The factors; a factor that occurs twice and is computed gets a name."""
        out: list[Code] = []
        for f in factors:
            if "(" in f.text and factors.count(f) > 1:
                if f not in factors[: len(out)]:
                    self.before.append(f"factor = {f.text}")
                f = Code("factor", f.axes)
            out.append(f)
        return out

    def matmul(self, a: Code, b: Code, wanted: Sequence[str]) -> str:
        """The sum as a product of matrices; empty if a reduced axis belongs to one of the two arrays only."""
        both = [x for x in a.axes if x in b.axes]
        shared = [x for x in both if x in self.reduced]
        batch = [x for x in both if x not in self.reduced]
        rows = [x for x in a.axes if x not in both]
        columns = [x for x in b.axes if x not in both]
        if not shared or set(rows + columns) & set(self.reduced):
            return ""
        left = self.matrix(a, [batch, rows, shared])
        right = self.matrix(b, [batch, shared, columns])
        axes = [*batch, *rows, *columns]
        text = f"np.matmul({left}, {right})"
        if len(rows) != 1 or len(columns) != 1:
            text = f"{text}.reshape({tuple(self.size[x] for x in axes)})"
        return self.exact(Code(text, tuple(axes)), wanted)

    def matrix(self, code: Code, groups: Sequence[Sequence[str]]) -> str:
        """The array with the axes of the first group unchanged, and those of each other group joined to one."""
        batch, *joined = groups
        text = self.spread(code, [x for g in groups for x in g])
        if all(len(g) == 1 for g in joined):
            return text
        shape = (*(self.size[x] for x in batch), *(prod(self.size[x] for x in g) for g in joined))
        return f"{text}.reshape({shape})"

    def position(self, update: Combination, wanted: Sequence[str]) -> list[str]:
        """The lines for the position of the best value and, if it is used, for that value."""
        index, best = self.block.body
        position, values = update.values
        kind, value = update.reducer.name, self.code(values)
        if len(self.reduced) != 1 or position not in (
            Var(self.reduced[0]), Cast(Var(self.reduced[0]), dtype_of(position))
        ):  # fmt: skip
            raise Missing
        if not {*self.matter(self.iters), *self.reduced} <= set(value.axes) or prod(self.size.values()) > LARGEST:
            raise Missing
        axis = value.axes.index(self.reduced[0])
        left = tuple(a for a in value.axes if a not in self.reduced)
        lines = [f"value = {value.text}"]
        found = Code(f"np.{kind}(value, axis={axis}).astype(np.{type_name(dtype_of(position))})", left)
        lines.append(f"{self.names[index.buffer]} = {self.exact(found, wanted)}")
        if self.writer.is_read(best.buffer):
            extreme = Code(f"np.{kind.removeprefix('arg')}(value, axis={axis})", left)
            lines.append(f"{self.names[best.buffer]} = {self.exact(extreme, wanted)}")
        return lines
