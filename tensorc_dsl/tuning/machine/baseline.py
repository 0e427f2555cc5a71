"""What a tuned kernel stands beside: the roof of the machine, and NumPy on the same task and number of threads.

An unscheduled program is translated into the text of a NumPy function: whole arrays with an axis for each iterator. An access
is a view of the array, whose strides along the iterators are sums of the array's own. Along a dimension whose subscript is
not linear, that selects elements (`take`). A value that differs between boxes of the iterators is written box by box. Sums of
products become `einsum` or `matmul`, other reductions and running values those of ufuncs, and all else ufuncs of arrays that
broadcast. Other recurrences, positions of extremes and declared reducers have no such function, and a function that computes
another result than the program has no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from math import inf, isnan, prod
from string import ascii_letters
from typing import Any, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.memory import laid_out
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import in_numpy, stored_dtype
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import (
    COMPARISONS,
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
    add,
    constant,
    dtype_of,
    factors_of,
    index,
    loads,
    mul,
    substitute,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Block, IterKind, Program, Store
from tensorc_dsl.ir.reductions import Fold, FoldOp, identity, update_of
from tensorc_dsl.ir.sizes import bind, strides_of
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import available
from tensorc_dsl.processes.protocol import (
    Purpose,
    Worker,
    WorkerBug,
    WorkerCrash,
    WorkerTimeout,
    library_threads,
)
from tensorc_dsl.proof.sets.simplify import bounds, simplify
from tensorc_dsl.reference.evaluate import parts_of, shape_of, unscheduled_blocks
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.values import Box, EvaluateError, Form, form
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.machine.roof import GLANCE, MEASURING, PATIENCE, Roof, roof_of
from tensorc_dsl.tuning.measure.check import compare

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

_UFUNCS: dict[FoldOp, str] = {
    "+": "add", "*": "multiply", "min": "minimum", "max": "maximum", "and": "logical_and", "or": "logical_or",
}  # fmt: skip

WAYS = ("matmul", "einsum", "reduce")
"""The translations of a sum of products: BLAS if possible, `einsum`, or the sum of an array of products."""

VIEW = """\
def view(array, start, shape, factors):
    strides = [sum(f * s for f, s in zip(column, array.strides)) for column in factors]
    at = array[tuple(slice(n, None) for n in start)]
    return np.lib.stride_tricks.as_strided(at, shape, strides)
"""
"""A view of the elements from `start` on: `factors` has for each of its axes the steps in each dimension of the array."""


class Missing(Exception):
    """NumPy has no function for the expression."""


@frozen
class Code:
    """A text that can stand before a dot, and the iterators of its value's axes, in order.

    A view shares the elements of another array.
    """

    text: str
    axes: tuple[str, ...] = ()
    is_view: bool = False


def numpy_texts(program: Program) -> tuple[str, ...]:
    """The ways to write the program, as texts of a function `call` from the inputs in order to the outputs in order.

    Empty if NumPy has no functions for it, or sizes are open.
    """
    try:
        return tuple(dict.fromkeys(_text(program, products) for products in WAYS))
    except (Missing, EvaluateError):
        return ()


def _text(program: Program, products: str) -> str:
    program = resolved(program)
    names: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for p in (*program.params, *program.buffers):
        if not in_numpy(p.dtype):
            raise Missing
        shapes[p.name], names[p.name] = shape_of(p), f"a{len(names)}"
    if parts_of(program).parts:
        raise Missing  # outputs that are written through views
    outputs = [p.name for p in program.outputs]
    lines: list[str] = []
    for b in unscheduled_blocks(program):
        stage = _Stage(b, names, shapes, products)
        text = stage.result(owned=b.body[0].buffer in outputs)
        lines += [*stage.before, f"{names[b.body[0].buffer]} = {text}"]
    inputs = ", ".join(names[p.name] for p in program.inputs)
    returned = "".join(f"{names[name]}, " for name in outputs)
    head = VIEW if any("view(" in line for line in lines) else ""
    return head + "\n    ".join([f"def call({inputs}):", *lines, f"return ({returned})"]) + "\n"


class _Stage:
    """Translates the value of a block, in a box of its iterators. `names` and `shapes` are those of the arrays, by buffer.

    `products` is the translation of sums of products of two arrays, where there is a choice. `before` has lines for values
    that no expression computes.
    """

    def __init__(
        self, block: Block, names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], products: str
    ) -> None:
        self.block, self.names, self.shapes, self.products = block, names, shapes, products
        self.iters = tuple(it.name for it in block.iters)
        sizes = tuple(constant(it.extent) or 0 for it in block.iters)
        if 0 in sizes:
            raise Missing
        self.box = Box(self.iters, (0,) * len(sizes), sizes)
        self.reduced = tuple(it.name for it in block.iters if it.kind is IterKind.REDUCE)
        self.scanned = tuple(it.name for it in block.iters if it.kind is IterKind.SCAN)
        self.before: list[str] = []

    @property
    def size(self) -> dict[str, int]:
        return dict(zip(self.iters, self.box.size, strict=True))

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {a: (s, s + n - 1) for a, s, n in zip(self.iters, self.box.start, self.box.size, strict=True)}

    @contextmanager
    def within(self, box: Box) -> Generator[None]:
        """A context in which values are those of a part of the box."""
        whole, self.box = self.box, box
        try:
            yield
        finally:
            self.box = whole

    def matter(self, axes: Sequence[str]) -> set[str]:
        """Those of the axes that have more than one value."""
        return {a for a in axes if self.size[a] > 1}

    def result(self, owned: bool) -> str:
        """What the block stores, as an array of its own if `owned`, or one that may share elements of others."""
        store = self.block.body[0]
        wanted = tuple(i.name for i in store.indices if isinstance(i, Var))
        if self.scanned:
            return self.accumulated(store, wanted)
        if not self.block.is_reduction:
            return self.filled(self.code(store.value), wanted, dtype_of(store.value), owned=owned)
        match update_of(self.block):
            case Fold() as update:
                return self.fold(update, wanted)
            case _:
                raise Missing

    # --- axes --------------------------------------------------------------------------------------------------------

    def spread(self, code: Code, wanted: Sequence[str], leading: bool = False) -> str:
        """The value with its axes in the wanted order, and length 1 for axes that it lacks.

        Where values broadcast, NumPy adds the leading ones itself.
        """
        order = [code.axes.index(a) for a in wanted if a in code.axes]
        text = code.text if order == sorted(order) else f"{code.text}.transpose({', '.join(map(str, order))})"
        missing = [a not in code.axes for a in wanted]
        first = missing.index(False) if False in missing else len(missing)
        if not any(missing if leading else missing[first:]):
            return text
        return f"{text}[{', '.join('None' if m else ':' for m in missing)}]"

    def joined(self, template: str, *operands: Code) -> Code:
        """A function of operands that broadcast."""
        union = self.union(*operands)
        axes = next((o.axes for o in operands if len(o.axes) == len(union)), union)
        return Code(template.format(*(self.spread(o, axes) for o in operands)), axes)

    def union(self, *operands: Code) -> tuple[str, ...]:
        return tuple(a for a in self.iters if any(a in o.axes for o in operands))

    def filled(self, code: Code, axes: Sequence[str], t: DType, *, owned: bool = False) -> str:
        """The value with all of the axes at their lengths in the box."""
        covers = bool(code.axes) and self.matter(axes) <= set(code.axes)
        if covers:
            text = self.spread(code, axes, leading=True)
        else:
            shape = tuple(self.size[a] for a in axes)
            text = f"np.broadcast_to(np.asarray({self.spread(code, axes)}, np.{numpy_type(t)}), {shape})"
        return f"{text}.copy()" if owned and (code.is_view or not covers) else text

    # --- values ------------------------------------------------------------------------------------------------------

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
                return self.joined(f"np.asarray({{}}).astype(np.{numpy_type(t)})", self.code(a))
            case Bitcast(operand=a, dtype=t):
                if not in_numpy(t) or not in_numpy(dtype_of(a)):
                    raise Missing
                old, new = numpy_type(dtype_of(a)), numpy_type(t)
                return self.joined(f"np.asarray({{}}, np.{old}).view(np.{new})", self.code(a))
            case Call(function=f, args=args):
                if f not in _CALLS:
                    raise Missing
                return self.joined(_CALLS[f], *map(self.code, args))
            case Load():
                return self.load(e)
            case _:
                assert_never(e)

    def select(self, e: Select) -> Code:
        """Both branches: by elements if data choose, else box by box."""
        part = _part(e.cond, self.box)
        if part is None:
            return self.joined("np.where({}, {}, {})", self.code(e.cond), self.code(e.then), self.code(e.other))
        pieces: list[tuple[Box, Code]] = []
        for box, branch in [(part, e.then), *((b, e.other) for b in _beside(self.box, part))]:
            if box.volume:
                with self.within(box):
                    pieces.append((box, self.code(branch)))
        if len(pieces) == 1:
            return pieces[0][1]
        cut = [a for a in range(len(self.iters)) if any(b.size[a] < self.box.size[a] for b, _ in pieces)]
        axes = self.union(*(c for _, c in pieces), Code("", tuple(self.iters[a] for a in cut)))
        shape = tuple(self.size[a] for a in axes)
        if prod(shape) > LARGEST:
            raise Missing
        whole = f"v{len(self.before)}"
        self.before.append(f"{whole} = np.empty({shape}, np.{numpy_type(dtype_of(e))})")
        for box, code in pieces:
            starts = [box.start[a] - self.box.start[a] for a in range(len(self.iters))]
            sides = [self.iters.index(a) for a in axes]
            places = [_slice(starts[a], 1, box.size[a], self.box.size[a]) for a in sides]
            self.before.append(f"{whole}[{', '.join(places)}] = {self.spread(code, axes)}")
        return Code(whole, axes)

    def load(self, e: Load) -> Code:
        """A view of the array; along a dimension whose subscript is not linear, the elements that it selects."""
        text, shape, indices = self.names[e.buffer], list(self.shapes[e.buffer]), list(e.indices)
        forms = [self.linear(i, n) for i, n in zip(indices, shape, strict=True)]
        while (k := next((k for k in range(1, len(forms)) if forms[k - 1] is forms[k] is None), 0)) and not any(
            loads(i) for i in indices[k - 1 : k + 1]
        ):  # quotient and remainder of one position, as a rule: a position in both dimensions
            i = simplify(add(mul(indices[k - 1], index(shape[k])), indices[k]), self.ranges)
            indices[k - 1 : k + 1], shape[k - 1 : k + 1] = [i], [shape[k - 1] * shape[k]]
            forms[k - 1 : k + 1] = [self.linear(i, shape[k - 1])]
            text = f"{self.names[e.buffer]}.reshape({tuple(shape)})"
        chosen = [d for d, f in enumerate(forms) if f is None]
        if len(chosen) > 1:
            raise Missing
        view = self.view(text, forms, shape)
        return self.taken(view, indices[chosen[0]], shape[chosen[0]]) if chosen else view

    def linear(self, i: Expr, n: int) -> Form | None:
        """The linear form of a subscript of a dimension of length `n`; None if it has none."""
        found = None if loads(i) else form(i, self.box)
        if found is not None:
            low, high = found.interval(self.box)
            if low < 0 or high >= n:
                raise Missing
        return found

    def view(self, text: str, forms: Sequence[Form | None], shape: Sequence[int]) -> Code:
        """The elements at linear subscripts. A dimension without one is an axis with the name ``."""
        steps = [() if f is None else f.factors for f in forms]
        used = [[(a, s) for a, s in zip(self.iters, row, strict=False) if s and self.size[a] > 1] for row in steps]
        start = [
            0 if f is None else sum(k * s for k, s in zip(f.factors, self.box.start, strict=True)) + f.constant
            for f in forms
        ]
        axes = [a for row in used for a, _ in row]
        if len(set(axes)) == len(axes) and all(len(row) <= 1 for row in used):
            named = tuple(
                "" if f is None else row[0][0] for f, row in zip(forms, used, strict=True) if row or f is None
            )
            places = [
                ":" if f is None else _slice(at, row[0][1], self.size[row[0][0]], n) if row else str(at)
                for f, row, at, n in zip(forms, used, start, shape, strict=True)
            ]
            return Code(text if all(p == ":" for p in places) else f"{text}[{', '.join(places)}]", named, is_view=True)
        own = tuple(a for a in self.iters if a in axes)
        if prod(self.size[a] for a in own) > LARGEST:
            raise Missing
        columns = [tuple(dict(row).get(a, 0) for row in used) for a in own]
        lengths = [self.size[a] for a in own]
        for d in (d for d, f in enumerate(forms) if f is None):
            own, lengths = (*own, ""), [*lengths, shape[d]]
            columns.append(tuple(int(d == k) for k in range(len(forms))))
        return Code(f"view({text}, {tuple(start)}, {tuple(lengths)}, {tuple(columns)})", own, is_view=True)

    def taken(self, view: Code, position: Expr, length: int) -> Code:
        """The elements along the axis without a name that an expression selects."""
        positions = self.code(position)
        if not loads(position):
            low, high = bounds(position, self.ranges)
            if low is None or high is None or low < 0 or high >= length:
                raise Missing
        at = view.axes.index("")
        axes = (*view.axes[:at], *positions.axes, *view.axes[at + 1 :])
        if len(set(axes)) != len(axes):
            raise Missing
        return Code(f"np.take({view.text}, {positions.text}, axis={at})", axes)

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
        if len(arrays) > 1 and covered and not (spread_out and self.products == "reduce"):
            return " * ".join([self.product(arrays, wanted), *(s.text for s in scalars)])
        self.before.clear()  # the product as a whole needs none of its factors
        value = self.code(update.value)
        if not self.matter(self.reduced) <= set(value.axes) or prod(self.size[a] for a in value.axes) > LARGEST:
            raise Missing
        axes = tuple(n for n, a in enumerate(value.axes) if a in self.reduced)
        text = f"np.{_UFUNCS[update.op]}.reduce({value.text}, axis={axes}, dtype=np.{numpy_type(t)})"
        left = Code(text, tuple(a for a in value.axes if a not in self.reduced))
        return self.filled(left, wanted, t, owned=True)

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
        text = self.filled(code, wanted, t)
        return f"np.{_UFUNCS[step.op]}.accumulate({text}, axis={wanted.index(axis)}, dtype=np.{numpy_type(t)})"

    def product(self, factors: Sequence[Code], wanted: Sequence[str]) -> str:
        """The sum of the products of arrays."""
        factors = self.shared(factors)
        if self.products == "matmul" and len(factors) == 2:
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
        return self.spread(Code(text, inner), wanted, leading=True)

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
        """The sum as a product of matrices; empty if it is none, or has several rows, columns or sums in one axis of it."""
        both = [x for x in a.axes if x in b.axes]
        shared, batch = [x for x in both if x in self.reduced], [x for x in both if x not in self.reduced]
        rows, columns = [x for x in a.axes if x not in both], [x for x in b.axes if x not in both]
        if not len(shared) == len(rows) == len(columns) == 1 or set(rows + columns) & set(self.reduced):
            return ""
        left, right = self.spread(a, [*batch, *rows, *shared]), self.spread(b, [*batch, *shared, *columns])
        return self.spread(Code(f"np.matmul({left}, {right})", (*batch, *rows, *columns)), wanted, leading=True)


def numpy_type(t: DType) -> str:
    return "bool_" if t.kind == "bool" else str(stored_dtype(t))


def literal(value: int | float | bool, t: DType) -> str:
    if isinstance(value, float) and (isnan(value) or value in (inf, -inf)):
        return f"np.{numpy_type(t)}('{value}')"
    return f"np.{numpy_type(t)}({value!r})"


def _slice(start: int, step: int, count: int, n: int) -> str:
    """The slice of `count` elements of a dimension of length `n`."""
    if (start, step, count) == (0, 1, n):
        return ":"
    stop = start + step * (count - 1) + (1 if step > 0 else -1)
    return f"{start}:{stop if stop >= 0 else ''}:{step}"


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
            holds = at[COMPARISONS[op](difference, 0)]  # one run of them, since the difference only rises or falls
            start = int(holds[0]) if holds.size else box.start[axis]
            return Box(
                box.names,
                (*box.start[:axis], start, *box.start[axis + 1 :]),
                (*box.size[:axis], holds.size, *box.size[axis + 1 :]),
            )
        case _:
            return None


def _beside(box: Box, part: Box) -> Iterator[Box]:
    """The rest of a box beside a part, in boxes."""
    for axis, (start, size) in enumerate(zip(part.start, part.size, strict=True)):
        inside = box
        for piece in box.cut(axis, (start, start + size)):
            if size and piece.start[axis] == start:
                inside = piece
            else:
                yield piece
        if not size:
            return
        box = inside


ROUNDS, SECONDS, PAUSE = 12, 0.1, 0.03
"""The number of rounds of timed calls at most, the seconds of a round, and the pause after each."""

LEAST, ALIKE, AGREE = 4, 3, 0.01
"""After so many rounds, the fastest calls of so many of them differ by no more than this share: no other round is needed."""

DISTURBED = 1.1
"""NumPy was disturbed if the fastest calls of no so many rounds were within this factor."""

LIMIT = 60.0
"""The time limit in seconds of the child process for one size, including the check."""

Array = NDArray[Any]


class Question(msgspec.Struct, tag=True, frozen=True):
    """A request: an unscheduled program without open sizes, and the seconds of a round."""

    program: str
    seconds: float


class Fastest(msgspec.Struct, tag=True, frozen=True):
    """Seconds of the fastest call; `disturbed` if too few rounds met about the same one, since other work slowed it down."""

    seconds: float
    disturbed: bool


class Unlike(msgspec.Struct, tag=True, frozen=True):
    """NumPy computes another result."""


NUMPY: Purpose[Question, Fastest | Unlike] = Purpose(f"{__name__}:time_numpy", Question, Fastest | Unlike)


def has_numpy(program: Program) -> bool:
    """Whether NumPy has functions for the program, at all sizes at which it is timed."""
    return all(numpy_texts(bind(program, sizes)) for sizes in sizing(program).timed)


def numpy_seconds(program: Program, threads: int) -> Fastest | None:
    """The time of a call in seconds; for open sizes the mean, at the sizes and with the weights of a kernel's time.

    The program must have NumPy functions. None if they compute another result, or take longer than the limit.
    """
    found, total, disturbed = sizing(program), 0.0, False
    for sizes, weight in zip(found.timed, found.weights, strict=True):
        timed = _timed_in_child(bind(program, sizes), threads)
        if timed is None:
            return None
        total += weight * timed.seconds
        disturbed |= timed.disturbed
    return Fastest(total, disturbed)


def _timed_in_child(program: Program, threads: int) -> Fastest | None:
    with closing(Worker(NUMPY, library_threads(threads), available())) as worker:
        try:
            reply = worker.ask(Question(format_program(program), SECONDS), LIMIT)
        except (WorkerBug, WorkerCrash, WorkerTimeout):
            return None
    return reply if isinstance(reply, Fastest) else None


def right_calls(program: Program) -> tuple[list[Callable[[], object]], list[str]]:
    """The ways to compute the program with NumPy that give the right result, as calls, and the errors of the others."""
    inputs = make_inputs(program, 0)
    expected, allowed = bounded(program, inputs)
    calls: list[Callable[[], object]] = []
    faults: list[str] = []
    for text in numpy_texts(program):
        names: dict[str, Any] = {"np": np}
        exec(compile(text, "<numpy>", "exec"), names)
        arguments = [laid_out(inputs[p.name], strides_of(p)) for p in program.inputs]
        function: Callable[..., tuple[Array, ...]] = names["call"]
        fault = _fault(program, function(*arguments), expected, allowed)
        if fault:
            faults.append(fault)
        else:
            calls.append(lambda f=function, a=arguments: f(*a))
    return calls, faults


def _fault(
    program: Program, found: tuple[Array, ...], expected: dict[str, Array], allowed: dict[str, NDArray[np.float64]]
) -> str:
    for p, got in zip(program.outputs, found, strict=True):
        if got.shape != expected[p.name].shape:
            return f"{p.name} has shape {got.shape}"
        verdict = compare(p.name, got, expected[p.name], allowed[p.name], p.dtype)
        if verdict.fault:
            return verdict.fault
    return ""


def time_numpy() -> None:
    """Time NumPy on what the parent asks. Its libraries read their number of threads when this process loads them."""

    def answer(what: Question) -> Fastest | Unlike:
        calls, _ = right_calls(parse_program(Source("task", what.program)))
        return fastest(calls, what.seconds) if calls else Unlike()

    with np.errstate(all="ignore"):
        NUMPY.serve(answer)


def fastest(calls: Sequence[Callable[[], object]], seconds: float = SECONDS) -> Fastest:
    """The fastest call of all, in rounds of so many seconds.

    Other load only slows calls down, and pauses let the system redistribute the threads. Rounds go on until several of them
    have met about the same fastest call.
    """
    found: list[float] = []
    while True:
        found.append(_fastest_of_a_round(calls, seconds))
        found.sort()
        if len(found) == ROUNDS or (len(found) >= LEAST and found[ALIKE - 1] <= (1 + AGREE) * found[0]):
            return Fastest(found[0], found[ALIKE - 1] > DISTURBED * found[0])
        time.sleep(PAUSE)


def _fastest_of_a_round(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    """Each is called at least once: on a machine with other load, a process may wait for longer than a round takes."""
    best = math.inf
    for call in calls:
        start = time.perf_counter()
        until = start + seconds / len(calls)
        while True:
            call()
            now = time.perf_counter()
            best = min(best, now - start)
            if now >= until:
                break
            start = now
    return best


BUSY = 1.3
"""A machine with this many times less than the highest peak or bandwidth that was seen is busy. Both vary by some percent."""


@frozen
class Yardsticks:
    """`numpy_seconds` is per call; None if NumPy has no functions for the task, or was not timed. It is `numpy_disturbed` if
    its calls did not agree, or the machine was busy."""

    roof: Roof
    numpy_seconds: float | None = None
    numpy_disturbed: bool = False


@frozen
class Measuring:
    """Measures both for a task on a number of threads; `begin` is called before each measurement.

    A search shows only the roof while it runs, which is measured quickly. NumPy is timed afterwards.
    """

    program: Program
    target: Target
    threads: int
    begin: Callable[[str], None]

    def first(self) -> Yardsticks:
        """The roof by a short measurement, which is repeated later."""
        self.begin(f"{MEASURING} on {self.target.workers(self.threads)}")
        return Yardsticks(self._roof(GLANCE))

    def beside_numpy(self, known: Yardsticks) -> Yardsticks:
        """The known values, and NumPy's time if it has functions for the task, and runs on the same machine: not for GPUs."""
        if self.target.device or not has_numpy(self.program):
            return known
        self.begin("timing NumPy")
        timed = numpy_seconds(self.program, self.threads)
        if timed is None:
            return known
        busy = _slower(self._roof(GLANCE), known.roof) > BUSY
        return replace(known, numpy_seconds=timed.seconds, numpy_disturbed=busy or timed.disturbed)

    def again(self, known: Yardsticks) -> Yardsticks:
        """The higher of two roofs, since other load can only lower a measured one."""
        self.begin("measuring the machine again")
        return replace(known, roof=known.roof.better(self._roof(PATIENCE)))

    def _roof(self, patience: float) -> Roof:
        return roof_of(self.program, self.target, self.threads, patience)


def _slower(now: Roof, best: Roof) -> float:
    """How many times slower the machine is than it was at its best, at computing or at moving data."""
    computing = best.peak / now.peak if best.peak and now.peak else 1.0
    return max(computing, now.moving / best.moving if best.moving else 1.0)
