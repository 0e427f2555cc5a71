"""Conditions and parts for steps that take a running reduction apart: a nest that holds nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Load, Select, Var, dtype_of, free_vars, sub, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import (
    IN_RANGE,
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    find_loop,
    fresh,
    replace_stmt,
)
from tensorc_dsl.ir.reductions import combine
from tensorc_dsl.proof.sets.running import Products, Running, factors_of, running
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.schedule.places import require_serial, the_block
from tensorc_dsl.schedule.refs import BlockRef
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0646",
    "the steps of `{block}` cannot run apart: {reason}",
    help="{repair}",
    at="block",
)
def NO_RUNNING(*focus: str, block: str, reason: str, repair: str) -> None: ...


@refusal(
    "E0648",
    "the steps of `{block}` cannot be regrouped: {what} of its factors may leave the range of {dtype} where no step does",
    help="if your inputs keep them in it, say so, `{step}(…, {key}=true)`: `verify` names it. Or take fewer steps at once",
    at="block",
)
def OUT_OF_RANGE(*focus: str, block: str, what: str, dtype: str, step: str, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Nest:
    """A running reduction whose loops are its iterators, in the order of `around`, and hold nothing else. Others are of one
    iteration.
    """

    around: tuple[For, ...]
    block: Block
    scan: Running
    used: set[str]
    """The names that are taken in the program; each new one is added."""

    @property
    def steps(self) -> Iter:
        return next(it for it in self.block.iters if it.name == self.scan.steps)

    @property
    def element(self) -> Load:
        """What an instance stores, as a load."""
        (store,) = self.block.body
        return Load(store.buffer, store.indices, dtype_of(store.value))

    def only(self, used: Expr) -> Nest:
        """The same with the columns that this expression needs, for values that are the same along the others."""
        names = {*free_vars(used), self.scan.steps}
        own = replace(self.block, iters=tuple(it for it in self.block.iters if it.name in names))
        return Nest(self.around, own, self.scan, self.used)

    def at(self, e: Expr, step: Expr) -> Expr:
        """An expression of a step, for the step of that number."""
        return substitute(e, {self.scan.steps: step})

    def added(self, is_first: Compare, step: Expr) -> Expr:
        """What the step of that number adds, or is alone; which is the first one under a condition."""
        first, term = self.at(self.scan.first, ZERO), self.at(self.scan.term, step)
        alike = simplify(self.at(self.scan.term, ZERO), {}) == simplify(first, {})
        return term if alike else Select(is_first, first, term)

    def read(self, buffer: Buffer, *places: Expr) -> Load:
        """An element of a buffer that `stage` has made."""
        return Load(buffer.name, self._dimensions(places, [Var(it.name) for it in self._columns]), buffer.dtype)

    def stage(self, name: str, scope: str, *counts: Expr, dtype: DType | None = None) -> Buffer:
        """A buffer with a value of each column for each of `counts`, which stand where the stored buffer has the steps."""
        shape = self._dimensions(counts, [it.extent for it in self._columns])
        return Buffer(fresh(name, self.used), dtype or self.element.dtype, shape, scope)

    @property
    def _columns(self) -> list[Iter]:
        """The iterators beside that of the steps, in the order of the dimensions that they count."""
        others = [it for it in self.block.iters if it.kind is not IterKind.SCAN]
        return sorted(others, key=lambda it: self._dimension(it.name))

    def _dimension(self, iterator: str) -> int:
        indices = self.element.indices
        return next((d for d, i in enumerate(indices) if iterator in free_vars(i)), len(indices))

    def _dimensions(self, steps: Sequence[Expr], columns: Sequence[Expr]) -> tuple[Expr, ...]:
        place = self._dimension(self.scan.steps)
        before = sum(self._dimension(it.name) < place for it in self._columns)
        return (*columns[:before], *steps, *columns[before:])

    def nest(self, buffer: Buffer, own: tuple[Iter, ...], value: Expr, init: Expr | None = None) -> Stmt:
        """Loops that store to each element of such a buffer; those of `own` stand where that of the steps stood.

        The bindings of `own` are the names of their loops, which are made new.
        """
        by_loop: dict[str, tuple[Iter, ...]] = {self._loop(it): (it,) for it in self.block.iters}
        by_loop[self._loop(self.steps)] = own
        loops: list[For] = []
        iters: list[Iter] = []
        for x in self.around:
            new = by_loop.get(x.var, ())
            for k, it in enumerate(new):
                loops.append(For(fresh(f"{x.var}_{k}" if new is own else x.var, self.used), it.extent, ()))
                iters.append(replace(it, binding=Var(loops[-1].var)))
        target = self.read(buffer, *(Var(it.name) for it in own if it.kind is not IterKind.REDUCE))
        starts = () if init is None else (Store(buffer.name, target.indices, init),)
        stmt: Stmt = Block(buffer.name, tuple(iters), (Store(buffer.name, target.indices, value),), starts)
        for loop in reversed(loops):
            stmt = replace(loop, body=(stmt,))
        return stmt

    def after(self, before: Expr, term: Expr, passed: Sequence[Expr], alone: Expr | None = None) -> Expr:
        """A value before, to which steps do what `passed` has for each of `Running.passed`, combined with a term; where they
        begin anew the term, or `alone`.
        """
        for what, e in zip(self.scan.passed, passed, strict=True):
            if what is self.scan.scale:
                before = combine(what.op, e, before)
        made = combine(self.scan.op, before, term)
        return made if self.scan.reset is None else Select(passed[-1], alone or term, made)

    def scanned(
        self,
        chain: Buffer,
        step: Var,
        places: tuple[Expr, ...],
        first: Expr,
        term: Expr,
        passed: Sequence[Expr],
        alone: Expr | None = None,
    ) -> Expr:
        """The value at `places` of a running reduction along `step`, which is one of them."""
        back = [sub(p, ONE) if p == step else p for p in places]
        return Select(Compare("<", step, ONE), first, self.after(self.read(chain, *back), term, passed, alone))

    def carried(self, chain: Buffer, step: Var, count: Expr, term: Expr, passed: Sequence[Expr]) -> Stmt:
        """The nest of a running reduction of `count` terms; a single one is no scan, as in a compute."""
        if count == ONE:
            return self.nest(chain, (Iter(step.name, IterKind.SPATIAL, count, step),), term)
        own = (Iter(step.name, IterKind.SCAN, count, step),)
        return self.nest(chain, own, self.scanned(chain, step, (step,), term, term, passed))

    def mapped(self, program: Program, value: Expr, before: tuple[Stmt, ...]) -> Program:
        """The program in which each element has that value, behind the nests `before` in the place of the scan."""
        b = self.block
        (store,) = b.body
        iters = tuple(replace(it, kind=IterKind.SPATIAL) if it == self.steps else it for it in b.iters)
        result = replace_stmt(program, b.name, (replace(b, iters=iters, body=(replace(store, value=value),)),))
        top = self.around[0].var
        return replace_stmt(result, top, (*before, find_loop(result, top)[1]))

    def regrouped(
        self, program: Program, result: Program, step: str, products: Sequence[Buffer], *, in_range: bool
    ) -> Program:
        """The result of a step after which `products` have factors that are combined apart from the value before.

        Those are proved to be in range. If they are not, the author has said so, and the result has an annotation; otherwise
        it raises ScheduleRefusal.
        """
        found = factors_of(self.scan)
        if found is None:
            return result
        by, _ = found
        known = Products(result, by, self.element.dtype)
        if all(known.holds(x.name) for x in products):
            return result
        if in_range:
            return replace(result, annotations=tuple(sorted({**dict(result.annotations), IN_RANGE: True}.items())))
        what, name = "a product" if by == "*" else "a sum", self.block.name
        raise OUT_OF_RANGE(program, name, block=name, what=what, dtype=str(self.element.dtype), step=step, key=IN_RANGE)

    @staticmethod
    def _loop(it: Iter) -> str:
        assert isinstance(it.binding, Var)
        return it.binding.name


def the_running(program: Program, block: BlockRef, used: set[str]) -> Nest:
    """The running reduction of that name. Raises ScheduleRefusal if the block is none, or other steps have changed it."""
    around, b = the_block(program, block)

    def refuse(reason: str, repair: str) -> Exception:
        return NO_RUNNING(program, b.name, block=b.name, reason=reason, repair=repair)

    scan = running(b)
    if scan is None:
        raise refuse(
            "it is no scan whose step combines the value before, scaled or not, with one term, or begins anew",
            "take a scan such as `scan[t] init X[0] step Y[t - 1] + X[t]`, by `+`, `*`, `min`, `max`, `and` or `or`, "
            "or such as `step A[t] * Y[t - 1] + X[t]`; it may begin anew, as in `step (X[t] if F[t] else Y[t - 1] + X[t])`",
        )
    for loop in around:
        require_serial(program, loop, "take apart")
    bound = [it.binding.name for it in b.iters if isinstance(it.binding, Var)]
    each = len(set(bound)) == len(b.iters) and set(bound) <= {x.var for x in around}
    alone = all(len(x.body) == 1 and not x.annotations and (x.var in bound or x.extent == ONE) for x in around)
    if not each or not alone or b.where or b.annotations:
        raise refuse("other steps have changed its loops", "take this step before those on its loops")
    return Nest(around, b, scan, used)
