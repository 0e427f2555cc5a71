"""What an unscheduled program computes, with NumPy in float64 and int64: the reference that kernels are compared with.

Independent of lowering and code generation. A block is evaluated over whole boxes of its instances: accesses are strided
views where they are linear and proven inside, gathers elsewhere; a sum of products is a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from scipy import special

from tensorc_dsl.ir.arrays import Array, wide_dtype, widen, wrap
from tensorc_dsl.ir.boxes import Box, gather, linear_parts, view
from tensorc_dsl.ir.contract import contract
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    LogicOp,
    Not,
    Select,
    Var,
    constant,
    dtype_of,
    free_vars,
    loads,
)
from tensorc_dsl.ir.program import Block, Buffer, IterKind, Program, Store, walk

FACTOR_LIMIT = 16 * 2**20
"""Elements of one factor of a product: 128 MB when it has to be copied for BLAS."""
CHUNK_LIMIT = 2 * 2**20
"""Elements of a box that is evaluated node by node, with several temporaries alive: 16 MB each."""


class EvaluateError(ValueError):
    """The program is scheduled, reads outside a buffer, or was given arrays that do not fit its parameters."""


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": special.erf, "sqrt": np.sqrt,
    "rsqrt": _rsqrt, "sigmoid": special.expit, "floor": np.floor, "ceil": np.ceil,
    "round": np.rint, "abs": np.abs, "sin": np.sin, "cos": np.cos, "pow": np.power,
}  # fmt: skip

_ARITHMETIC: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "%": np.mod, "min": np.minimum, "max": np.maximum,
}  # fmt: skip

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip

_REDUCE: dict[BinaryOp | LogicOp, Callable[..., Array]] = {
    "+": np.add.reduce, "*": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "and": np.logical_and.reduce, "or": np.logical_or.reduce,
}  # fmt: skip


def evaluate(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of an unscheduled program, by name, in float64, int64 or bool. Raises EvaluateError."""
    arrays = bind_inputs(program, inputs)
    with np.errstate(all="ignore"):
        for b in unscheduled_blocks(program):
            Evaluation(program, arrays, b).run()
    return {p.name: arrays[p.name] for p in program.outputs}


def shape_of(b: Buffer) -> tuple[int, ...]:
    """The shape as numbers. EvaluateError while a dimension is open."""
    sizes = [constant(e) for e in b.shape]
    if any(n is None for n in sizes):
        raise EvaluateError(f"a dimension of {b.name} is open")
    return tuple(n for n in sizes if n is not None)


def bind_inputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs widened, by name. EvaluateError when one is missing, unknown or of another shape."""
    wanted = {p.name: p for p in program.inputs}
    if unknown := set(inputs) - {p.name for p in program.params}:
        raise EvaluateError(f"program {program.name} has no parameter {min(unknown)!r}")
    out: dict[str, Array] = {}
    for name, p in wanted.items():
        if name not in inputs:
            raise EvaluateError(f"input {name!r} of program {program.name} is missing")
        if inputs[name].shape != shape_of(p):
            raise EvaluateError(f"input {name!r} has shape {inputs[name].shape}, the program wants {shape_of(p)}")
        out[name] = widen(inputs[name], p.dtype)
    return out


def unscheduled_blocks(program: Program) -> list[Block]:
    """The blocks in order. EvaluateError unless each stands in a perfect nest of its own, bound one to one."""
    out: list[Block] = []
    for around, s in walk(program.body):
        if not isinstance(s, Block):
            continue
        names = [it.binding.name for it in s.iters if isinstance(it.binding, Var)]
        extents = {loop.var: loop.extent for loop in around}
        bound = {it.binding.name: it.extent for it in s.iters if isinstance(it.binding, Var)}
        perfect = all(len(loop.body) == 1 for loop in around)
        if s.where or not perfect or len(names) != len(s.iters) or len(bound) != len(names) or bound != extents:
            raise EvaluateError(f"block {s.name} is scheduled; only an unscheduled program has a reference")
        if any(it.kind is IterKind.SCAN for it in s.iters):
            raise EvaluateError(f"block {s.name} is a scan")
        if len(s.body) != 1:
            raise EvaluateError(f"block {s.name} stores {len(s.body)} values; an unscheduled block stores one")
        out.append(s)
    return out


@dataclass(frozen=True, slots=True)
class Update:
    """`C[…] = C[…] op value` taken apart."""

    op: BinaryOp | LogicOp
    value: Expr


def update_of(b: Block) -> Update | None:
    """The update of a reduction block; None for a block without reduction. EvaluateError for any other form."""
    if not b.is_reduction:
        return None
    store = b.body[0]
    match store.value:
        case Binary(op="+" | "*" | "min" | "max" as op, lhs=Load(buffer=name, indices=indices), rhs=value):
            pass
        case Logic(op=op, lhs=Load(buffer=name, indices=indices), rhs=value):
            pass
        case _:
            raise EvaluateError(f"block {b.name} does not reduce with `+`, `*`, `min`, `max`, `and` or `or`")
    own = (name, indices) == (store.buffer, store.indices)
    if not own or len(b.init) != 1 or any(x.buffer == store.buffer for x in loads(value)):
        raise EvaluateError(f"block {b.name} is not a plain reduction into {store.buffer}")
    return Update(op, value)


def factors_of(e: Expr) -> list[Expr]:
    """`a * b * c` as a list."""
    if isinstance(e, Binary) and e.op == "*":
        return factors_of(e.lhs) + factors_of(e.rhs)
    return [e]


class Evaluation:
    """One block over its instances. `arrays` holds the buffers so far; the block's own is added."""

    def __init__(self, program: Program, arrays: dict[str, Array], block: Block) -> None:
        self.block = block
        self.arrays = arrays
        self.buffer = program.buffer(block.body[0].buffer)
        sizes = [constant(it.extent) for it in block.iters]
        if any(n is None for n in sizes):
            raise EvaluateError(f"an extent of block {block.name} is open")
        names = tuple(it.name for it in block.iters)
        self.box = Box(names, (0,) * len(names), tuple(n for n in sizes if n is not None))
        self.reduce = [a for a, it in enumerate(block.iters) if it.kind is IterKind.REDUCE]
        self.spatial = [a for a in range(len(names)) if a not in self.reduce]
        self.update = update_of(block)
        self.axes = self._store_axes(block.body[0])

    def _store_axes(self, s: Store) -> list[int]:
        """The axis that each subscript of the store is: an unscheduled block stores `C[vi, vj]`, each element once."""
        names = [i.name for i in s.indices if isinstance(i, Var)]
        axes = [self.box.names.index(n) for n in names]
        if len(names) != len(s.indices) or sorted(axes) != self.spatial:
            raise EvaluateError(f"block {self.block.name} does not store each element once")
        if shape_of(self.buffer) != tuple(self.box.size[a] for a in axes):
            raise EvaluateError(f"block {self.block.name} does not store all of {self.buffer.name}")
        return axes

    def run(self) -> None:
        """Add the block's buffer to `arrays`."""
        out = np.empty(shape_of(self.buffer), wide_dtype(self.buffer.dtype))
        if self.update is not None:
            spatial = Box(
                self.box.names, self.box.start, tuple(1 if a in self.reduce else n for a, n in enumerate(self.box.size))
            )
            self._put(out, spatial, self.value(self.block.init[0].value, spatial, None))
            if self.box.volume:
                self._reduce(out, self.update)
        elif self.box.volume:
            for part in self.box.chunks(range(len(self.box.size)), CHUNK_LIMIT):
                self._put(out, part, self.value(self.block.body[0].value, part, None))
        self.arrays[self.buffer.name] = out

    def _reduce(self, out: Array, update: Update) -> None:
        for part in self.parts(update):
            step = self.reduced(update, part)
            region = part.slices(self.axes)
            target = self.stored(step, part)
            combine = (
                np.logical_and if update.op == "and" else np.logical_or if update.op == "or" else _ARITHMETIC[update.op]
            )
            out[region] = wrap(combine(out[region], target), self.buffer.dtype)

    def parts(self, update: Update) -> list[Box]:
        """The boxes that are evaluated at once."""
        factors = self.product(update)
        if factors is None:
            return list(self.box.chunks(range(len(self.box.size)), CHUNK_LIMIT))
        out = linear_parts([i for f in factors for x in loads(f) for i in x.indices], self.box)
        for f in factors:
            axes = [a for a, n in enumerate(self.box.names) if n in free_vars(f)]
            limit = FACTOR_LIMIT if isinstance(f, Load) else CHUNK_LIMIT
            out = [chunk for part in out for chunk in part.chunks(axes, limit)]
        return [chunk for part in out for chunk in part.chunks(self.spatial, FACTOR_LIMIT)]

    def product(self, update: Update) -> list[Expr] | None:
        """The factors of a sum of products of at most two arrays, else None."""
        if update.op != "+":
            return None
        # Integers may be wrapped once at the end: reduction modulo 2^n respects sums and products.
        factors = factors_of(update.value)
        return factors if sum(1 for f in factors if free_vars(f)) <= 2 else None

    def reduced(self, update: Update, part: Box) -> Array:
        """The reduction over one part; reduced axes have length 1."""
        factors = self.product(update)
        if factors is not None:
            return self.sum_of_products([self.value(f, part, None) for f in factors], part)
        full = np.broadcast_to(self.value(update.value, part, None), part.size)
        return wrap(_REDUCE[update.op](full, axis=tuple(self.reduce), keepdims=True), self.buffer.dtype)

    def sum_of_products(self, factors: list[Array], part: Box) -> Array:
        """At most two factors are arrays, the others one number each."""
        arrays = [f for f in factors if f.size > 1]
        scale = np.ones((1,) * len(part.size), factors[0].dtype)
        for f in factors:
            if f.size == 1:
                scale = scale * f
        return contract(arrays or [scale], self.reduce, part.size) * (scale if arrays else scale.dtype.type(1))

    def stored(self, value: Array, part: Box) -> Array:
        """A value over the box, its reduced axes of length 1, in the order of the buffer's dimensions."""
        size = tuple(1 if a in self.reduce else n for a, n in enumerate(part.size))
        return (
            np.broadcast_to(value, size).transpose(*self.axes, *self.reduce).reshape([part.size[a] for a in self.axes])
        )

    def _put(self, out: Array, part: Box, value: Array) -> None:
        out[part.slices(self.axes)] = self.stored(value, part)

    # --- expressions -------------------------------------------------------------------------------------------------

    def value(self, e: Expr, box: Box, mask: Array | None) -> Array:
        """The values of `e` over the box; where `mask` is false they are arbitrary."""
        match e:
            case Const(value=value, dtype=t):
                return np.full((1,) * len(box.size), value, wide_dtype(t))
            case Var(name=name):
                axis = box.names.index(name)
                shape = [box.size[a] if a == axis else 1 for a in range(len(box.size))]
                return np.arange(box.start[axis], box.start[axis] + box.size[axis], dtype=np.int64).reshape(shape)
            case Binary(op=op, lhs=a, rhs=b):
                return arithmetic(op, self.value(a, box, mask), self.value(b, box, mask), dtype_of(a))
            case Compare(op=op, lhs=a, rhs=b):
                return _COMPARE[op](self.value(a, box, mask), self.value(b, box, mask))
            case Logic(op=op, lhs=a, rhs=b):
                x, y = self.value(a, box, mask), self.value(b, box, mask)
                return x & y if op == "and" else x | y
            case Not(operand=a):
                return ~self.value(a, box, mask)
            case Select(cond=c, then=a, other=b):
                cond = self.value(c, box, mask)
                yes, no = (cond, ~cond) if mask is None else (mask & cond, mask & ~cond)
                if not no.any():
                    return self.value(a, box, mask)
                if not yes.any():
                    return self.value(b, box, mask)
                return np.where(cond, self.value(a, box, yes), self.value(b, box, no))
            case Cast(operand=a, dtype=t):
                return cast(self.value(a, box, mask), dtype_of(a), t)
            case Call(function=f, args=args):
                return _FUNCTIONS[f](*(self.value(a, box, mask) for a in args))
            case Load(buffer=name, indices=indices):
                return self.load(self.arrays, name, indices, box, mask)
            case _:
                assert_never(e)

    def load(
        self, arrays: Mapping[str, Array], name: str, indices: tuple[Expr, ...], box: Box, mask: Array | None
    ) -> Array:
        """What an access reads over the box. EvaluateError when it leaves its buffer where `mask` is true."""
        if name not in arrays:
            raise EvaluateError(f"block {self.block.name} reads {name} before anything is stored in it")
        seen = view(arrays[name], indices, box)
        if seen is not None:
            return seen
        positions = [self.value(i, box, mask) for i in indices]
        values, outside = gather(arrays[name], positions, mask)
        if outside:
            raise EvaluateError(f"block {self.block.name} reads outside {name}")
        return values


def arithmetic(op: BinaryOp, x: Array, y: Array, t: DType) -> Array:
    """One operation on wide values of type `t`."""
    if op == "/":
        return np.divide(x, y) if t.is_float else wrap(np.floor_divide(x, y), t)
    return wrap(_ARITHMETIC[op](x, y), t)


def cast(x: Array, old: DType, new: DType) -> Array:
    """A conversion of wide values: floats truncate towards 0, integers wrap."""
    if new.is_float:
        return x.astype(np.float64)
    return wrap((np.trunc(x) if old.is_float else x).astype(np.int64), new)
