"""Translates an unscheduled program into the text of a NumPy function, with one line for each stage.

Sums of products become `einsum` or `matmul`, other reductions those of ufuncs, other operations ufuncs over arrays that
broadcast. Subscripts may be iterators, in any order and more than once, with steps and offsets; constants; and one subscript
from data (`take`). Windows, scans and declared reducers have no such function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isnan, prod
from string import ascii_letters
from typing import assert_never

from tensorc_dsl.ir.arrays import stored_dtype
from tensorc_dsl.ir.dtypes import BF16, DType
from tensorc_dsl.ir.expr import (
    Binary,
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
    loads,
)
from tensorc_dsl.ir.program import Block, IterKind, Program
from tensorc_dsl.ir.reductions import ArgFold, DeclaredFold, Fold, FoldOp, identity, update_of
from tensorc_dsl.reference.boxes import Box, form
from tensorc_dsl.reference.evaluate import EvaluateError, factors_of, shape_of, unscheduled_blocks

LARGEST = 2**26
"""The largest number of elements that a stage may materialise before a reduction: more would be another algorithm."""

_BINARY = {"+": "({} + {})", "-": "({} - {})", "*": "({} * {})", "%": "({} % {})", "xor": "({} ^ {})",
           "min": "np.minimum({}, {})", "max": "np.maximum({}, {})"}  # fmt: skip

_CALLS = {
    **{f: f"np.{f}({{}})" for f in ("exp", "log", "tanh", "sqrt", "floor", "ceil", "abs", "sin", "cos")},
    "round": "np.rint({})", "rsqrt": "(1 / np.sqrt({}))", "sigmoid": "(1 / (1 + np.exp(-{})))", "pow": "np.power({}, {})",
}  # fmt: skip

WAYS = ("matmul", "einsum", "reduce")
"""The translations of a sum of products: BLAS if possible, `einsum`, or the sum of an array of products."""

_UFUNCS: dict[FoldOp, str] = {
    "+": "add", "*": "multiply", "min": "minimum", "max": "maximum", "and": "logical_and", "or": "logical_or",
}  # fmt: skip


class _None(Exception):
    """NumPy has no function for this."""


@dataclass(frozen=True, slots=True)
class _Code:
    """A text that can stand before a dot, and the iterators of its value's axes, in order."""

    text: str
    axes: tuple[str, ...] = ()


def numpy_texts(program: Program) -> tuple[str, ...]:
    """The ways to write the program, as texts of a function `call` from the inputs in order to the outputs in order.

    Empty if NumPy has no functions for it, or sizes are open.
    """
    try:
        ways = (_Writer(program, products).text() for products in WAYS)
        return tuple(dict.fromkeys(ways))
    except (_None, EvaluateError):
        return ()


@dataclass(slots=True)
class _Writer:
    program: Program
    products: str
    """The translation of sums of products of two arrays, where there is a choice."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    lines: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        for p in (*self.program.params, *self.program.buffers):
            if p.dtype == BF16:
                raise _None
            shape_of(p)
            self.names[p.name] = f"a{len(self.names)}"
        found = unscheduled_blocks(self.program)
        for b in found:
            self.lines += _Stage(self, b).lines()
        inputs = ", ".join(self.names[p.name] for p in self.program.inputs)
        outputs = "".join(f"{self.names[p.name]}, " for p in self.program.outputs)
        return "\n    ".join([f"def call({inputs}):", *self.lines, f"return ({outputs})"]) + "\n"

    def is_read(self, buffer: str) -> bool:
        """Whether the values of the buffer are used."""
        stores = (s for b in unscheduled_blocks(self.program) for s in b.body if s.buffer != buffer)
        read = {x.buffer for s in stores for x in loads(s.value)}
        return buffer in read or any(p.name == buffer for p in self.program.outputs)


class _Stage:
    """The lines that compute the arrays of one block."""

    def __init__(self, writer: _Writer, block: Block) -> None:
        self.writer = writer
        self.block = block
        self.names = writer.names
        self.before: list[str] = []
        self.iters = tuple(it.name for it in block.iters)
        self.size = {it.name: constant(it.extent) or 0 for it in block.iters}
        self.box = Box(self.iters, (0,) * len(self.iters), tuple(self.size.values()))
        self.reduced = tuple(it.name for it in block.iters if it.kind is IterKind.REDUCE)
        if any(it.kind is IterKind.SCAN for it in block.iters) or 0 in self.size.values():
            raise _None

    def matter(self, axes: Sequence[str]) -> set[str]:
        """Those of the axes that have more than one value."""
        return {a for a in axes if self.size[a] > 1}

    def lines(self) -> list[str]:
        store = self.block.body[0]
        wanted = tuple(i.name for i in store.indices if isinstance(i, Var))
        update = update_of(self.block) if self.block.is_reduction else None
        if not self.block.is_reduction:
            text = self.whole(self.code(store.value), wanted, dtype_of(store.value))
            if isinstance(store.value, Load) and any(p.name == store.buffer for p in self.writer.program.outputs):
                text = f"{text}.copy()"  # a result must not be a view
            return [f"{self.names[store.buffer]} = {text}"]
        match update:
            case Fold():
                text = self.fold(update, wanted)
                return [*self.before, f"{self.names[store.buffer]} = {text}"]
            case ArgFold():
                return self.position(update, wanted)
            case DeclaredFold() | None:
                raise _None
            case _:
                assert_never(update)

    def whole(self, code: _Code, wanted: Sequence[str], t: DType) -> str:
        """The value with exactly the wanted axes, as an array that owns its memory."""
        if all(a in code.axes or self.size[a] == 1 for a in wanted) and code.axes:
            return self.exact(code, wanted)
        shape = tuple(self.size[a] for a in wanted)
        return f"np.broadcast_to(np.asarray({self.spread(code, wanted)}, np.{_name(t)}), {shape}).copy()"

    def exact(self, code: _Code, wanted: Sequence[str]) -> str:
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
            raise _None
        factors = [self.code(f) for f in factors_of(update.value)] if update.op == "+" else []
        arrays, scalars = [f for f in factors if f.axes], [f for f in factors if not f.axes]
        covered = self.matter(self.iters) <= {a for f in arrays for a in f.axes}
        spread_out = all(self.matter(self.iters) <= set(f.axes) for f in arrays)
        if len(arrays) > 1 and covered and not (spread_out and self.writer.products == "reduce"):
            return " * ".join([self.product(arrays, wanted), *(s.text for s in scalars)])
        value = self.code(update.value)
        if not self.matter(self.reduced) <= set(value.axes) or prod(self.size[a] for a in value.axes) > LARGEST:
            raise _None
        axes = tuple(n for n, a in enumerate(value.axes) if a in self.reduced)
        text = f"np.{_UFUNCS[update.op]}.reduce({value.text}, axis={axes}, dtype=np.{_name(t)})"
        return self.whole(_Code(text, tuple(a for a in value.axes if a not in self.reduced)), wanted, t)

    def product(self, factors: Sequence[_Code], wanted: Sequence[str]) -> str:
        """The sum of the products of arrays."""
        factors = self.shared(factors)
        if self.writer.products == "matmul" and len(factors) == 2:
            first, second = factors
            if text := self.matmul(first, second, wanted):
                return text
        letters = dict(zip(self.iters, ascii_letters, strict=False))
        if len(letters) < len(self.iters):
            raise _None
        terms = ",".join("".join(letters[a] for a in f.axes) for f in factors)
        inner = tuple(a for a in wanted if any(a in f.axes for f in factors))
        subscripts = f"{terms}->{''.join(letters[a] for a in inner)}"
        text = f"np.einsum({subscripts!r}, {', '.join(f.text for f in factors)}, optimize='optimal')"
        return self.exact(_Code(text, inner), wanted)

    def shared(self, factors: Sequence[_Code]) -> list[_Code]:
        """The factors; a factor that occurs twice and is computed gets a name."""
        out: list[_Code] = []
        for f in factors:
            if "(" in f.text and factors.count(f) > 1:
                if f not in factors[: len(out)]:
                    self.before.append(f"factor = {f.text}")
                f = _Code("factor", f.axes)
            out.append(f)
        return out

    def matmul(self, a: _Code, b: _Code, wanted: Sequence[str]) -> str:
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
        return self.exact(_Code(text, tuple(axes)), wanted)

    def matrix(self, code: _Code, groups: Sequence[Sequence[str]]) -> str:
        """The array with the axes of the first group unchanged, and those of each other group joined to one."""
        batch, *joined = groups
        text = self.spread(code, [x for g in groups for x in g])
        if all(len(g) == 1 for g in joined):
            return text
        shape = (*(self.size[x] for x in batch), *(prod(self.size[x] for x in g) for g in joined))
        return f"{text}.reshape({shape})"

    def position(self, update: ArgFold, wanted: Sequence[str]) -> list[str]:
        """The lines for the position of the best value and, if it is used, for that value."""
        index, best = self.block.body
        value = self.code(update.value)
        if len(self.reduced) != 1 or update.position not in (
            Var(self.reduced[0]), Cast(Var(self.reduced[0]), dtype_of(update.position))
        ):  # fmt: skip
            raise _None
        if not {*self.matter(self.iters), *self.reduced} <= set(value.axes) or prod(self.size.values()) > LARGEST:
            raise _None
        axis = value.axes.index(self.reduced[0])
        left = tuple(a for a in value.axes if a not in self.reduced)
        lines = [f"value = {value.text}"]
        found = _Code(f"np.{update.kind}(value, axis={axis}).astype(np.{_name(dtype_of(update.position))})", left)
        lines.append(f"{self.names[index.buffer]} = {self.exact(found, wanted)}")
        if self.writer.is_read(best.buffer):
            extreme = _Code(f"np.{update.kind.removeprefix('arg')}(value, axis={axis})", left)
            lines.append(f"{self.names[best.buffer]} = {self.exact(extreme, wanted)}")
        return lines

    # --- values ------------------------------------------------------------------------------------------------------

    def spread(self, code: _Code, wanted: Sequence[str]) -> str:
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

    def joined(self, template: str, *operands: _Code) -> _Code:
        """A function of operands that broadcast."""
        union = tuple(a for a in self.iters if any(a in o.axes for o in operands))
        axes = next((o.axes for o in operands if len(o.axes) == len(union)), union)
        return _Code(template.format(*(self.spread(o, axes) for o in operands)), axes)

    def code(self, e: Expr) -> _Code:
        match e:
            case Const(value=value, dtype=t):
                return _Code(_literal(value, t))
            case Var(name=name):
                return _Code(f"np.arange({self.size[name]})", (name,))
            case Dim():
                raise _None
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
            case Select(cond=c, then=a, other=b):
                return self.joined("np.where({}, {}, {})", self.code(c), self.code(a), self.code(b))
            case Cast(operand=a, dtype=t):
                if t == BF16:
                    raise _None
                return self.joined(f"np.asarray({{}}).astype(np.{_name(t)})", self.code(a))
            case Call(function=f, args=args):
                if f not in _CALLS:
                    raise _None
                return self.joined(_CALLS[f], *map(self.code, args))
            case Load():
                return self.load(e)
            case _:
                assert_never(e)

    def load(self, e: Load) -> _Code:
        """A view of the array, or the elements that data select."""
        text, shape = self.names[e.buffer], shape_of(self.writer.program.buffer(e.buffer))
        chosen = [n for n, i in enumerate(e.indices) if loads(i)]
        if chosen:
            return self.taken(e, chosen, shape)
        places: list[str] = []
        axes: list[str] = []
        for i, n in zip(e.indices, shape, strict=True):
            place, axis = self.place(i, n)
            places.append(place)
            axes += axis
        if any(p != ":" for p in places):
            text = f"{text}[{', '.join(places)}]"
        if len(set(axes)) == len(axes):
            return _Code(text, tuple(axes))
        own = tuple(a for a in self.iters if a in axes)
        letters = dict(zip(own, ascii_letters, strict=False))
        diagonal = f"{''.join(letters[a] for a in axes)}->{''.join(letters[a] for a in own)}"
        return _Code(f"np.einsum({diagonal!r}, {text})", own)

    def place(self, i: Expr, n: int) -> tuple[str, list[str]]:
        """A subscript of a dimension of length `n` as an index or a slice, and the iterators that it runs along."""
        found = form(i, self.box)
        if found is None:
            raise _None
        used = [(a, f) for a, f in zip(self.iters, found.factors, strict=True) if f and self.size[a] > 1]
        start = found.constant
        match used:
            case []:
                ends = (start, start)
            case [(axis, step)]:
                ends = (start, start + step * (self.size[axis] - 1))
            case _:
                raise _None
        if min(ends) < 0 or max(ends) >= n:
            raise _None
        if not used:
            return str(start), []
        ((axis, step),) = used
        if (start, step, self.size[axis]) == (0, 1, n):
            return ":", [axis]
        stop = ends[1] + (1 if step > 0 else -1)
        return f"{start}:{stop if stop >= 0 else ''}:{step}", [axis]

    def taken(self, e: Load, chosen: Sequence[int], shape: tuple[int, ...]) -> _Code:
        """The elements along one dimension that an expression of data selects; other subscripts are iterators, each once."""
        if len(chosen) > 1:
            raise _None
        (at,) = chosen
        positions = self.code(e.indices[at])
        rest = [self.place(i, n) for k, (i, n) in enumerate(zip(e.indices, shape, strict=True)) if k != at]
        if any(p != ":" for p, _ in rest):
            raise _None
        names = [a for _, axes in rest for a in axes]
        axes = (*names[:at], *positions.axes, *names[at:])
        if len(set(axes)) != len(axes):
            raise _None
        text = f"np.take({self.names[e.buffer]}, {positions.text}, axis={at})"
        return _Code(text, axes)


def _name(t: DType) -> str:
    return "bool_" if t.kind == "bool" else str(stored_dtype(t))


def _literal(value: int | float | bool, t: DType) -> str:
    if isinstance(value, float) and (isnan(value) or value in (inf, -inf)):
        return f"np.{_name(t)}('{value}')"
    return f"np.{_name(t)}({value!r})"
