"""Binds open dimensions to sizes: checks the sizes and makes the program for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Dim, Expr, constant, dtype_of, fold, index, transform
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Buffer, For, Program, Stmt, Store, map_store

Sizes = Mapping[str, int]
"""A size for each open dimension, by name."""


class SizeError(ValueError):
    """A size is missing, out of its range, or belongs to no open dimension of the program."""


def check_sizes(dims: tuple[Dim, ...], sizes: Sizes) -> None:
    """Raise SizeError unless there is one size for each dimension, within its range, and no other."""
    if unknown := sizes.keys() - {d.name for d in dims}:
        raise SizeError(f"there is no open dimension {min(unknown)!r}")
    for d in dims:
        if d.name not in sizes:
            raise SizeError(f"the open dimension {d.name!r} has no size")
        if sizes[d.name] < d.low or (d.high is not None and sizes[d.name] > d.high):
            most = "up" if d.high is None else d.high
            raise SizeError(f"{d.name} is {sizes[d.name]}; it can be from {d.low} to {most}")


def evaluate_size(e: Expr, sizes: Sizes) -> int:
    """The value of an extent over open dimensions. Raises SizeError if it divides by 0 or contains any other name."""
    value = constant(_Binder(sizes).expr(e))
    if value is None:
        raise SizeError(f"`{format_expr(e)}` is no number for {dict(sizes)}")
    return value


def bind(program: Program, sizes: Sizes) -> Program:
    """The program with every open dimension replaced by its size, so that every extent and shape is a number.

    Raises SizeError if the sizes do not fit.
    """
    check_sizes(program.dims, sizes)
    if not program.dims:
        return program
    b = _Binder(sizes)
    return replace(
        program,
        params=tuple(map(b.buffer, program.params)),
        buffers=tuple(map(b.buffer, program.buffers)),
        body=tuple(map(b.stmt, program.body)),
        dims=(),
    )


class _Binder:
    """Replaces open dimensions by numbers, and folds expressions that become constant."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def expr(self, e: Expr) -> Expr:
        return transform(e, self._node)

    def _node(self, e: Expr) -> Expr:
        if isinstance(e, Dim) and e.name in self.sizes:
            return index(self.sizes[e.name])
        if isinstance(e, Binary):
            x, y = _number(e.lhs), _number(e.rhs)
            folded = None if x is None or y is None else fold(e.op, x, y)
            return e if folded is None else index(folded)
        return e

    def buffer(self, b: Buffer) -> Buffer:
        return replace(b, shape=tuple(map(self.expr, b.shape)), strides=tuple(map(self.expr, b.strides)))

    def store(self, s: Store) -> Store:
        return map_store(s, self.expr)

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, extent=self.expr(s.extent), body=tuple(map(self.stmt, s.body)))
        return self.block(s)

    def block(self, b: Block) -> Block:
        return replace(
            b,
            iters=tuple(replace(it, extent=self.expr(it.extent), binding=self.expr(it.binding)) for it in b.iters),
            where=tuple(map(self.expr, b.where)),
            init=tuple(map(self.store, b.init)),
            body=tuple(map(self.store, b.body)),
        )


def _number(e: Expr) -> int | None:
    """The value of a constant index; None for other expressions, since only index arithmetic may be folded."""
    return constant(e) if dtype_of(e) == INDEX else None
