"""Blocks that store a part of their buffer, or store it in another order than that of its dimensions: views of outputs.

Such a block is evaluated into an array of its own shape, whose memory is that part of the buffer's array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorc_dsl.ir.arrays import Array, wide_dtype
from tensorc_dsl.ir.expr import Expr, Load, Var, rewrite_expr
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Block, Buffer, IterKind, Program, Store, blocks, fresh, replace_stmt, used_names
from tensorc_dsl.ir.sizes import evaluate_size
from tensorc_dsl.reference.values import Box, EvaluateError, form


@dataclass(frozen=True, slots=True)
class Part:
    """The elements of `buffer` that a block stores: the first one, and the distances of neighbours, in elements."""

    buffer: Buffer
    shape: tuple[int, ...]
    first: int
    strides: tuple[int, ...]

    def of(self, whole: Array) -> Array:
        """That part of an array."""
        rest = whole.reshape(-1)[self.first :]
        return as_strided(rest, self.shape, tuple(n * whole.itemsize for n in self.strides))


@dataclass(frozen=True, slots=True)
class Parts:
    """A program in which every block stores all of a buffer, and of which buffers of others these are parts."""

    program: Program
    parts: Mapping[str, Part]

    def arrays(self, dtype: type[np.float64] | None = None) -> dict[str, Array]:
        """Arrays for the parts and for the buffers that consist of them, zeros; of a type, or of each buffer's own."""
        wholes = {p.buffer.name: p.buffer for p in self.parts.values()}
        out = {n: np.zeros(_shape(b), dtype or wide_dtype(b.dtype)) for n, b in wholes.items()}
        return out | {name: p.of(out[p.buffer.name]) for name, p in self.parts.items()}


def parts_of(program: Program) -> Parts:
    """The program with buffers for the parts. Raises EvaluateError unless the parts of a buffer are all of it, each element
    once."""
    parts: dict[str, Part] = {}
    made, used = program, used_names(program)
    for b in blocks(program):
        if not _is_plain(b, program):
            made = _with_own_buffers(made, b, parts, used)
    seen: dict[str, Array] = {}
    for p in parts.values():
        places = p.of(whole := seen.setdefault(p.buffer.name, np.zeros(_shape(p.buffer), bool)))
        before = np.count_nonzero(whole)
        places[...] = True
        if np.count_nonzero(whole) - before != np.prod(p.shape, dtype=int):
            raise EvaluateError(f"blocks do not store each element of {p.buffer.name} once")
    for name, whole in seen.items():
        if not whole.all() or any(s.buffer == name for b in blocks(made) for s in b.body):
            raise EvaluateError(f"blocks do not store all of {name}, each element once")
    return Parts(made, parts)


def _is_plain(b: Block, program: Program) -> bool:
    """Whether the block stores all of its buffers in the order of their dimensions; that of a scan is looked at elsewhere."""
    own = {it.name: it.extent for it in b.iters if it.kind is not IterKind.REDUCE}
    if any(it.kind is IterKind.SCAN for it in b.iters):
        return True
    for s in b.body:
        names = [i.name for i in s.indices if isinstance(i, Var)]
        if len(names) != len(s.indices) or sorted(names) != sorted(own):
            return False
        if tuple(map(_number, map(own.__getitem__, names))) != _shape(program.buffer(s.buffer)):
            return False
    return True


def _with_own_buffers(program: Program, b: Block, parts: dict[str, Part], used: set[str]) -> Program:
    spatial = [it for it in b.iters if it.kind is not IterKind.REDUCE]
    shape = tuple(_number(it.extent) for it in spatial)
    box = Box(tuple(it.name for it in spatial), (0,) * len(shape), shape)
    at = tuple(Var(it.name) for it in spatial)
    moved: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    for s in b.body:
        name = fresh(f"{b.name}_part", used)
        parts[name] = _part(program.buffer(s.buffer), s, box)
        moved[s.buffer] = name, s.indices
        own = Buffer(name, program.buffer(s.buffer).dtype, tuple(it.extent for it in spatial))
        program = replace(program, buffers=(*program.buffers, own))

    def load(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in moved and moved[e.buffer][1] == e.indices:
            return Load(moved[e.buffer][0], at, e.dtype)
        return e

    def store(s: Store) -> Store:
        return Store(moved[s.buffer][0], at, rewrite_expr(s.value, load))

    new = replace(b, body=tuple(map(store, b.body)), init=tuple(map(store, b.init)))
    return replace_stmt(program, b.name, (new,))


def _part(buffer: Buffer, s: Store, box: Box) -> Part:
    sizes, unit, first = _shape(buffer), 1, 0
    strides = [0] * len(box.size)
    for i, size in zip(reversed(s.indices), reversed(sizes), strict=True):
        linear = form(i, box)
        if linear is None:
            raise EvaluateError(f"a block does not store each element of {buffer.name} once")
        ends = [f * (n - 1) for f, n in zip(linear.factors, box.size, strict=True)]
        low, high = (linear.constant + sum(pick(0, e) for e in ends) for pick in (min, max))
        if box.volume and not 0 <= low <= high < size:
            raise EvaluateError(f"a block stores outside of {buffer.name}")
        first += unit * linear.constant
        strides = [t + unit * f for t, f in zip(strides, linear.factors, strict=True)]
        unit *= size
    return Part(buffer, box.size, first, tuple(strides))


def _shape(b: Buffer) -> tuple[int, ...]:
    return tuple(map(_number, b.shape))


def _number(e: Expr) -> int:
    return evaluate_size(e, {})
