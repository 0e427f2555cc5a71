"""The loop nests of a scheduled program in numbers: what each of them computes, and how far its accesses reach.

Every subscript is evaluated at a few points: where all loop variables are 0, where one of them is 1, and where one has its
last value. The differences are the distances in elements between iterations of each loop, so that every subscript counts,
affine or not. An access whose subscripts read data is taken to move at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

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
    constant,
    dtype_of,
    loads,
)  # fmt: skip
from tensorc_dsl.ir.program import Block, Buffer, For, Program, Store, is_scattered, walk
from tensorc_dsl.reference.count import operations

Points = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a block, over the loops of its nest, outermost first.

    `steps` are the distances in elements between the first two iterations of each loop, `spans` those between its first and
    its last one. Where `is_random`, data choose the elements.
    """

    buffer: str
    scope: str
    dtype: DType
    size: int
    writes: bool
    steps: tuple[int, ...]
    spans: tuple[int, ...]
    is_random: bool

    def run(self, loops: list[int], extents: tuple[int, ...]) -> int:
        """How many elements the iterations of the loops touch side by side."""
        run = 1
        for step, extent in sorted((abs(self.steps[k]), extents[k]) for k in loops if self.steps[k]):
            if step > run:
                break
            run += (extent - 1) * step
        return run

    def distinct(self, loops: list[int], extents: tuple[int, ...]) -> int:
        """About how many elements the iterations of the loops touch: exact for tiles, an upper bound for windows."""
        moving = [k for k in loops if self.spans[k]]
        if self.is_random:
            return min(self.size, prod(extents[k] for k in loops))
        reach = sum(abs(self.spans[k]) for k in moving) + 1
        return max(1, min(self.size, reach, prod(extents[k] for k in moving)))


@dataclass(frozen=True, slots=True)
class Nest:
    """A block with the loops around it. `operations` are those of one instance of the block."""

    block: Block
    loops: tuple[For, ...]
    extents: tuple[int, ...]
    operations: int
    touches: tuple[Touch, ...]

    @property
    def instances(self) -> int:
        return prod(self.extents)


def nests(program: Program) -> tuple[Nest, ...]:
    """The nests of a program without open dimensions, in text order."""
    buffers = {b.name: b for b in (*program.params, *program.buffers)}
    return tuple(_nest(around, s, buffers) for around, s in walk(program.body) if isinstance(s, Block))


def _nest(around: tuple[For, ...], block: Block, buffers: dict[str, Buffer]) -> Nest:
    # Of a scattered loop one iteration runs, which the data choose.
    extents = tuple(1 if is_scattered(loop) else number(loop.extent) for loop in around)
    count = len(extents)
    points = np.zeros((count, 2 * count + 1), dtype=np.int64)
    for k, extent in enumerate(extents):
        points[k, 1 + k] = min(1, extent - 1)
        points[k, 1 + count + k] = extent - 1
    env: dict[str, Points] = {loop.var: points[k] for k, loop in enumerate(around)}
    env |= {it.name: _value(it.binding, env, 2 * count + 1) for it in block.iters}
    scattered = {s.buffer for s in block.body} if any(map(is_scattered, around)) else frozenset[str]()
    touches: dict[tuple[object, ...], Touch] = {}
    for s in block.body:
        for access, writes in _accesses(s):
            touch = _touch(access, writes, buffers[access.buffer], env, count)
            if access.buffer in scattered:
                touch = replace(touch, is_random=True)
            touches.setdefault((touch.buffer, touch.writes, touch.steps, touch.spans), touch)
    work = sum(sum(operations(s.value).values()) for s in block.body)
    return Nest(block, around, extents, max(1, work), tuple(touches.values()))


def _accesses(s: Store) -> list[tuple[Load, bool]]:
    stored = Load(s.buffer, s.indices, dtype_of(s.value))
    read = [x for e in (*s.indices, s.value) for x in loads(e)]
    return [(stored, True), *((x, False) for x in read if (x.buffer, x.indices) != (s.buffer, s.indices))]


def _touch(access: Load, writes: bool, buffer: Buffer, env: dict[str, Points], count: int) -> Touch:
    shape = [number(n) for n in buffer.shape]
    flat = np.zeros(2 * count + 1, dtype=np.int64)
    for index, stride in zip(access.indices, [prod(shape[k + 1 :]) for k in range(len(shape))], strict=True):
        flat = flat + _value(index, env, len(flat)) * stride
    away = (flat[1:] - flat[0]).tolist()
    is_random = any(loads(i) for i in access.indices)
    return Touch(
        buffer.name, buffer.scope, buffer.dtype, max(1, prod(shape)), writes,
        tuple(away[:count]), tuple(away[count:]), is_random,
    )  # fmt: skip


def number(e: Expr) -> int:
    """The value of a size. Raises ValueError while a dimension is open."""
    value = constant(e)
    if value is None:
        raise ValueError("a dimension is open")
    return value


_LARGEST = 2**63 - 1


def _value(e: Expr, env: dict[str, Points], count: int) -> Points:
    """A subscript or condition at all points; data read as 0."""
    match e:
        case Const(value=v):
            return np.full(count, min(int(v), _LARGEST), dtype=np.int64)
        case Var(name=name):
            return env[name]
        case Binary(op=op, lhs=a, rhs=b):
            return _binary(op, _value(a, env, count), _value(b, env, count))
        case Select(cond=c, then=a, other=b):
            return np.where(_value(c, env, count) != 0, _value(a, env, count), _value(b, env, count))
        case Cast(operand=a):
            return _value(a, env, count)
        case Compare(op=op, lhs=a, rhs=b):
            x, y = _value(a, env, count), _value(b, env, count)
            held = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op]
            return held.astype(np.int64)
        case Logic(op=op, lhs=a, rhs=b):
            x, y = _value(a, env, count), _value(b, env, count)
            return x & y if op == "and" else x | y
        case Not(operand=a):
            return 1 - _value(a, env, count)
        case Load() | Call() | Bitcast():
            return np.zeros(count, dtype=np.int64)
        case Dim():
            raise ValueError("a dimension is open")
        case _:
            assert_never(e)


def _binary(op: str, a: Points, b: Points) -> Points:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "min":
            return np.minimum(a, b)
        case "max":
            return np.maximum(a, b)
        case "xor":
            return a ^ b
        case _:
            safe = np.where(b == 0, 1, b)
            return a // safe if op == "/" else a % safe
