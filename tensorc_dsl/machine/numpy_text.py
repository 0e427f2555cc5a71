"""Translates an unscheduled program into the text of a NumPy function, with one line for each stage.

Sums of products become `einsum` or `matmul`, other reductions those of ufuncs, running sums `accumulate`, other operations
ufuncs over arrays that broadcast. Other recurrences and declared reducers have no such function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from string import ascii_letters
from typing import assert_never

from tensorc_dsl.ir.arrays import in_numpy
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Load,
    Logic,
    Select,
    Var,
    constant,
    dtype_of,
    factors_of,
    loads,
    substitute,
)
from tensorc_dsl.ir.program import Block, IterKind, Program, Store
from tensorc_dsl.ir.reductions import ArgFold, DeclaredFold, Fold, FoldOp, identity, update_of
from tensorc_dsl.machine.numpy_values import LARGEST, Code, Missing, Values, type_name
from tensorc_dsl.reference.boxes import Box
from tensorc_dsl.reference.evaluate import EvaluateError, shape_of, unscheduled_blocks

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
            case ArgFold():
                return self.position(update, wanted)
            case DeclaredFold() | None:
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

    def position(self, update: ArgFold, wanted: Sequence[str]) -> list[str]:
        """The lines for the position of the best value and, if it is used, for that value."""
        index, best = self.block.body
        value = self.code(update.value)
        if len(self.reduced) != 1 or update.position not in (
            Var(self.reduced[0]), Cast(Var(self.reduced[0]), dtype_of(update.position))
        ):  # fmt: skip
            raise Missing
        if not {*self.matter(self.iters), *self.reduced} <= set(value.axes) or prod(self.size.values()) > LARGEST:
            raise Missing
        axis = value.axes.index(self.reduced[0])
        left = tuple(a for a in value.axes if a not in self.reduced)
        lines = [f"value = {value.text}"]
        found = Code(f"np.{update.kind}(value, axis={axis}).astype(np.{type_name(dtype_of(update.position))})", left)
        lines.append(f"{self.names[index.buffer]} = {self.exact(found, wanted)}")
        if self.writer.is_read(best.buffer):
            extreme = Code(f"np.{update.kind.removeprefix('arg')}(value, axis={axis})", left)
            lines.append(f"{self.names[best.buffer]} = {self.exact(extreme, wanted)}")
        return lines
