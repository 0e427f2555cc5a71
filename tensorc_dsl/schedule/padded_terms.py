"""Pads the terms of a maximum with its identity, and those of the sums that are relative to it with 0."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Load, Select, Var, ceildiv, free_vars, index, mul
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
)
from tensorc_dsl.ir.reductions import identity
from tensorc_dsl.proof.sets.reductions import exponential
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.schedule.motion import is_param
from tensorc_dsl.schedule.nests import nest_over
from tensorc_dsl.schedule.shifted import Nest, Reduction, Relative, Stage, Sum, exchanged


def with_padded_terms(program: Program, peak: Reduction, relative: Relative, length: int) -> Program | None:
    """The program with as many terms of the maximum as are whole parts of `length`; None if a sum does not allow it.

    Terms that are added are the identity of the maximum, so exponentials of them are 0, and other factors of sums are read
    from copies with zeros: the product is 0 for any maximum above the identity. There is one, or each exponential is NaN.
    """
    size = peak.counts.extent
    whole = simplify(mul(ceildiv(size, index(length)), index(length)), {})
    stages = relative.needed()
    if any(is_param(program, s.target.buffer) or s.place.count not in s.target.indices for s in stages):
        return None
    if not all(relative.is_alone(s.block.body[0].value, s.sources) for s in stages):
        return None
    return _Padded(program, peak, relative, size, whole).result()


class _Padded:
    def __init__(self, program: Program, peak: Reduction, relative: Relative, size: Expr, whole: Expr) -> None:
        self._program, self._peak, self._relative = program, peak, relative
        self._size, self._whole = size, whole
        self._used = used_names(program)
        self._copies: dict[tuple[str, int], Buffer] = {}

    def result(self) -> Program | None:
        result = self._program
        for s in self._relative.sums:
            known = set(self._copies)
            term = self._with_infinity(s.term, s.sources, s.counts.name)
            padded = self._with_zeros(term, s)
            if padded is None:
                return None
            made = [k for k in self._copies if k not in known]
            result = self._put(
                result, s, s.counts, s.term, padded, tuple(self._copy(*k, self._copies[k]) for k in made)
            )
        for stage in self._relative.needed():
            count = next(it for it in stage.block.iters if Var(it.name) == stage.place.count)
            value = stage.block.body[0].value
            result = self._put(result, stage, count, value, self._with_infinity(value, stage.sources, count.name))
            result = self._grown(result, stage)
        kept = self._is_inside(self._peak.counts.name, self._peak.term)
        result = self._put(result, self._peak, self._peak.counts, self._peak.term, kept)
        return replace(result, buffers=(*result.buffers, *self._copies.values()))

    def _is_inside(self, name: str, e: Expr) -> Expr:
        """A term of the maximum where it is one, else the identity."""
        return Select(Compare("<", Var(name), self._size), e, identity(self._peak.fold, self._peak.target.dtype))

    def _with_infinity(self, e: Expr, sources: Mapping[Expr, object], name: str) -> Expr:
        def change(x: Expr) -> Expr | None:
            if x not in sources:
                return None
            form = None if isinstance(x, Load) else exponential(x, self._relative.op)
            return x if form is None else form.of(self._is_inside(name, form.value), form.shift)

        return exchanged(e, change)

    def _with_zeros(self, e: Expr, s: Sum) -> Expr | None:
        """The term with other factors from copies that have zeros; None if one is no element of a whole dimension."""
        sources = {*s.sources, *(self._with_infinity(x, s.sources, s.counts.name) for x in s.sources)}
        allowed = True

        def change(x: Expr) -> Expr | None:
            nonlocal allowed
            if x in sources or not isinstance(x, Load):
                return x if x in sources else None
            here = [d for d, i in enumerate(x.indices) if s.counts.name in free_vars(i)]
            if not here:
                return x
            shape = self._program.buffer(x.buffer).shape
            if len(here) != 1 or x.indices[here[0]] != Var(s.counts.name) or shape[here[0]] != self._size:
                allowed = False
                return x
            k = x.buffer, here[0]
            if k not in self._copies:
                made = tuple(self._whole if d == here[0] else n for d, n in enumerate(shape))
                self._copies[k] = Buffer(fresh(f"{x.buffer}_pad", self._used), x.dtype, made)
            return replace(x, buffer=self._copies[k].name)

        padded = exchanged(e, change)
        return padded if allowed else None

    def _put(
        self, program: Program, n: Nest, count: Iter, old: Expr, new: Expr, before: tuple[Stmt, ...] = ()
    ) -> Program:
        """The program with another term of a nest, as many iterations as there are padded terms, and statements before it."""
        (store,) = n.block.body
        block = replace(
            n.block,
            iters=tuple(replace(it, extent=self._whole) if it.name == count.name else it for it in n.block.iters),
            body=(replace(store, value=exchanged(store.value, lambda x: new if x == old else None)),),
        )
        stmt: Stmt = block
        for loop in reversed(n.loops):
            extent = self._whole if Var(loop.var) == count.binding else loop.extent
            stmt = replace(loop, extent=extent, body=(stmt,))
        return replace_stmt(program, n.loops[0].var, (*before, stmt))

    def _grown(self, program: Program, stage: Stage) -> Program:
        """The program with a buffer that has the padded elements of a stage."""
        name, axis = stage.target.buffer, stage.target.indices.index(stage.place.count)
        return replace(
            program,
            buffers=tuple(
                replace(b, shape=(*b.shape[:axis], self._whole, *b.shape[axis + 1 :])) if b.name == name else b
                for b in program.buffers
            ),
        )

    def _copy(self, name: str, axis: int, made: Buffer) -> Stmt:
        """A copy of a buffer with zeros behind its last element along a dimension."""
        iters = tuple(Iter(f"v{d}", IterKind.SPATIAL, e, ZERO) for d, e in enumerate(made.shape))
        at = tuple(Var(it.name) for it in iters)
        inside = Compare("<", at[axis], self._size)
        value = Select(inside, Load(name, at, made.dtype), identity("+", made.dtype))
        box = [(ZERO, e) for e in made.shape]
        return nest_over(Block(made.name, iters, (Store(made.name, at, value),)), box, (), self._used)
