"""Conditions for steps that take a reduction apart: the loops that count it, and where it begins.

A reduction over an open size is its identity where the size is 0, so `init` also runs without a step. Primitives are proved
at sizes at which instances run; `refuse_unbegun` is the one rule that keeps the meaning where none does. A block that stores
the identity before would make two writers of one buffer, and an extent of at least 1 with a guarded term would hide products
from tensor cores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace as dataclasses_replace
from functools import reduce

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    add,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    sub,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
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
    blocks,
    blocks_in,
    find_loop,
    fresh,
    replace_stmt,
    walk,
)
from tensorc_dsl.ir.reductions import combine
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.linear_forms import TRUE, Context, Ranges, linear, negate
from tensorc_dsl.proof.sets.reductions import Element, NotApart, Part, begins_once, may_be_empty, parts_of, where_begun
from tensorc_dsl.proof.sets.regions import full_domain
from tensorc_dsl.proof.sets.running import Products, Running, factors_of, running
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, prove, simplify
from tensorc_dsl.schedule.motion import own_buffers
from tensorc_dsl.schedule.nests import noted, require_serial, the_block, the_loop
from tensorc_dsl.schedule.step import BlockRef, LoopRef, refusal


@refusal(
    "E0338",
    "`{mixed}` counts both the reduction and the elements of `{block}`",
    help="take this step before fusing loops of the reduction with others",
    at="block",
)
def MIXED_LOOP(*focus: str, mixed: str, block: str) -> None: ...
@refusal(
    "E0339",
    "the reduction of `{block}` does not begin where its loops begin: `{iterator}` is `{binding}`",
    help="let the reduction run upwards from 0",
    at="block",
)
def NOT_AT_ZERO(*focus: str, block: str, iterator: str, binding: str) -> None: ...


@refusal(
    "E0694",
    "after `{step}` what `{block}` writes would be missing where a reduction has no steps: {reason}",
    help="take `decompose_reduction` first, or let the open sizes that it reduces over begin at 1",
    at="block",
)
def UNBEGUN(*focus: str, step: str, block: str, reason: str) -> None: ...


def spatial(b: Block) -> tuple[Iter, ...]:
    """The iterators that count elements."""
    return tuple(it for it in b.iters if it.kind is not IterKind.REDUCE)


def steps_of(b: Block) -> frozenset[str]:
    """The variables in the bindings of the iterators that count the reduction."""
    return frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is IterKind.REDUCE))


def reduction_loops(program: Program, b: Block, around: tuple[For, ...]) -> frozenset[str]:
    """The loops that count the reduction: no other iterator uses them, and where the block initialises, all its iterators
    are 0 exactly if these loops are. So the instances that initialise are those of the other loops.
    """
    counting = steps_of(b) & {x.var for x in around}
    for it in spatial(b):
        for v in sorted(counting & free_vars(it.binding)):
            raise MIXED_LOOP(program, v, b.name, mixed=v, block=b.name)
    if b.init and (it := not_at_zero(b, around, counting)) is not None:
        raise _not_at_zero(program, b, it)
    return counting


def not_at_zero(b: Block, around: tuple[For, ...], counting: frozenset[str]) -> Iter | None:
    """An iterator of the reduction that is not 0 where the loops in `counting` are, or may be 0 elsewhere with the others;
    None if there is none, so that the block initialises where these loops begin, and only there.
    """
    reductions = [it for it in b.iters if it.kind is IterKind.REDUCE]
    zero: dict[str, Expr] = dict.fromkeys(counting, ZERO)
    ranges = extent_ranges(around)
    for it in reductions:
        if simplify(substitute(it.binding, zero), ranges) != ZERO:
            return it
    if _are_sums([it.binding for it in reductions], [v for v in counting if ranges[v][1] != 0], Context(ranges)):
        return None
    extents = {x.var: x.extent for x in around}
    at_zero = [Compare("==", it.binding, ZERO) for it in reductions]
    for v in sorted(counting):
        try:
            stray = feasible(extents, [*at_zero, Compare(">=", Var(v), ONE)])
        except NotAffine:  # such as a loop times an open extent
            stray = not any(_at_least_one(it.binding, v, ranges) for it in reductions)
        if stray:
            return next(it for it in reductions if v in free_vars(it.binding))
    return None


def refuse_unbegun(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which something is not written where a reduction has no steps, as it would be with a single step.

    A reduction is begun then if the loops that count it count nothing else, are all 0 at its first step, and have this step
    whenever there is one: the instances that initialise are those of the other loops, at every size. And no loop may leave
    out, then, what is read outside of it.
    """
    found = [(around, b) for around, b in walk(after.body) if isinstance(b, Block)]
    nothing = [
        Compare("<", it.extent, ONE)
        for _, b in found
        if may_be_empty(b)
        for it in b.iters
        if it.kind is IterKind.REDUCE
    ]
    if not nothing:
        return
    empty = reduce(lambda a, c: Logic("or", a, c), dict.fromkeys(nothing))
    for around, b in found:
        if b.is_reduction and not b.init:
            continue  # it goes on with what another block has begun
        reason = _unbegun(around, b) if may_be_empty(b) else ""
        if reason or (reason := _left_out(after, around, b, empty)):
            raise UNBEGUN(before, b.name, step=step, block=b.name, reason=reason)


def _unbegun(around: tuple[For, ...], b: Block) -> str:
    """Why a reduction is not begun where its loops have no iteration; empty if it is."""
    counting = steps_of(b) & {x.var for x in around}
    for it in spatial(b):
        for v in sorted(counting & free_vars(it.binding)):
            return f"`{v}` counts its elements too"
    if (it := not_at_zero(b, around, counting)) is not None:
        return f"its loops do not begin at 0, since `{it.name}` is `{format_expr(it.binding)}`"
    if (c := without_first_step(b, around, counting)) is not None:
        return f"`{format_expr(c)}` may leave out its first step"
    steps = [Compare(">=", it.extent, ONE) for it in b.iters if it.kind is IterKind.REDUCE]
    for x in around:
        if x.var in counting and _may_be_idle(x, [y for y in around if y.var not in counting], steps):
            return f"`{x.var}` may have no iteration where there is a step"
    return ""


def _left_out(program: Program, around: tuple[For, ...], b: Block, empty: Expr) -> str:
    """Why elements that a block writes may be missing where a reduction is empty, as sizes limit its instances then; empty if
    all that reads them is inside of the loop that does."""
    counting = steps_of(b)
    elements = [Compare(">=", it.extent, ONE) for it in spatial(b)]
    others = [x for x in around if x.var not in counting]
    sizes = dims_in(empty).difference(*(dims_in(it.extent) for it in spatial(b)))
    begun = replace(b, iters=spatial(b), where=where_begun(b))
    made = {s.buffer for s in b.body}
    for s, limit in (*((x, x.extent) for x in others), *((b, c) for c in begun.where)):
        fewer = not sizes.isdisjoint(dims_in(limit)) and not full_domain(others, begun)
        if not fewer and not (isinstance(s, For) and _may_be_idle(s, others[: others.index(s)], [*elements, empty])):
            continue
        within = {y.name for y in blocks_in((s,))}
        used = {p.name for p in program.params}.union(*(touched(y) for y in blocks(program) if y.name not in within))
        if made & used:
            return f"`{format_expr(limit)}` limits its instances then"
    return ""


def _may_be_idle(x: For, outer: Sequence[For], given: Sequence[Expr]) -> bool:
    """Whether a loop may have no iteration in one of the `outer` loops at sizes as they are `given`."""
    low = bounds(x.extent, {})[0]
    if low is not None and low >= 1:
        return False
    try:
        return feasible({y.var: y.extent for y in outer}, [*given, Compare("<", x.extent, ONE)])
    except NotAffine:
        return True


def _are_sums(bindings: Sequence[Expr], loops: Sequence[str], context: Context) -> bool:
    """Theorem: sums of positive multiples of loops are 0 only where all of the loops are, since none is negative.

    Each of `loops` is in one of the sums.
    """
    forms = [linear(e, context) for e in bindings]
    sums = all(not f.constant and all(isinstance(x, str) and c > 0 for x, c in f.terms.items()) for f in forms)
    return sums and all(any(v in f.terms for f in forms) for v in loops)


def _at_least_one(e: Expr, loop: str, ranges: Ranges) -> bool:
    """Whether an expression is 1 or more wherever the loop is, as far as intervals can show."""
    low, high = ranges[loop]
    further = {**ranges, loop: (low, None if high is None else high - 1)}
    return prove(Compare(">=", substitute(e, {loop: add(Var(loop), ONE)}), ONE), further) is True


def _not_at_zero(program: Program, b: Block, it: Iter) -> Exception:
    facts = {"block": b.name, "iterator": it.name, "binding": format_expr(it.binding)}
    return NOT_AT_ZERO(program, b.name, **facts)


def without_first_step(b: Block, around: Sequence[For], counting: Collection[str]) -> Expr | None:
    """The first condition of a block that may leave out the step of an element at which the loops in `counting` are 0, and
    which initialises it, if there is a step; None if there is no such condition.
    """
    first: dict[str, Expr] = dict.fromkeys(counting, ZERO)
    extents, ranges = {x.var: x.extent for x in around}, extent_ranges(around)
    of_elements = affine_only(c for c in b.where if free_vars(c).isdisjoint(counting))
    steps = affine_only(Compare(">=", it.extent, ONE) for it in b.iters if it.kind is IterKind.REDUCE)
    for c in (c for c in b.where if not free_vars(c).isdisjoint(counting)):
        begins = simplify(substitute(c, first), ranges)
        try:
            if begins != TRUE and feasible(extents, [*of_elements, *steps, negate(begins)]):
                return c
        except NotAffine:
            return c
    return None


# Partial results of reductions: which reductions can have them, the loops that count them, and their stores.


@refusal("E0650", "cannot make partial results of `{block}`: it {reason}", at="block")
def NO_PARTS(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0651",
    "`{loop}` does not count the reduction of `{block}`",
    help="the loops that do are: {loops}",
    at="loop",
)
def NOT_COUNTING(*focus: str, loop: str, block: str, loops: str) -> None: ...
@refusal(
    "E0653",
    "`{other}`, inside the reduction loop `{loop}`, uses what `{block}` has not finished there: `{buffer}`",
    help="make partial results before moving `{other}` there",
    at="loop",
)
def IN_BETWEEN(*focus: str, other: str, loop: str, block: str, buffer: str) -> None: ...


def parts_to_combine(program: Program, b: Block) -> tuple[Part, ...]:
    def refuse(reason: str, repair: str) -> Exception:
        return NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)

    if not b.is_reduction:
        raise refuse("is no reduction", "take a block that reduces, with `sum`, `max` or a reducer of the file")
    try:
        parts = parts_of(b)
    except NotApart as e:
        raise refuse(str(e), e.repair) from None
    steps = {it.name for it in b.iters if it.kind is IterKind.REDUCE}
    for it in sorted(steps & {v for part in parts for _, at in part.places for i in at for v in free_vars(i)}):
        raise refuse(
            f"adds to other elements in other steps of `{it}`", "take a reduction whose steps share an element"
        )
    return parts


def accumulation_loops(
    program: Program, around: tuple[For, ...], b: Block, loop: LoopRef, *, single: bool = False
) -> tuple[str, ...]:
    """The loops that count the reduction, outermost first; each has an iteration, or the reduction begins without one.
    With `single`, the loop may be one of a single iteration that counts nothing: all steps are in its only part."""
    the_loop(program, loop)
    found = reduction_loops(program, b, around)
    if single:
        named = {v for e in (*b.where, *(it.binding for it in b.iters)) for v in free_vars(e)}
        found = {*found, *(x.var for x in around if x.var == loop.name not in named and constant(x.extent) == 1)}
    counting = tuple(x.var for x in around if x.var in found)
    if loop.name not in counting:
        text = ", ".join(counting) or "none"
        raise NOT_COUNTING(program, loop.name, b.name, loop=loop.name, block=b.name, loops=text)
    for x in around:
        low = bounds(x.extent, {})[0]
        if x.var in counting and (low is None or low < 1) and not may_be_empty(b):
            repair = (
                f"give the task sizes at which `{x.var}` runs, or split with `partial=true` in place of what made it"
            )
            reason = f"reduces nothing where `{x.var}` does not run"
            raise NO_PARTS(program, x.var, b.name, block=b.name, reason=reason, repair=repair)
    return counting


def require_begun_once(program: Program, around: tuple[For, ...], b: Block, counting: Sequence[str]) -> None:
    """Refuse if loops inside of the reduction run the block again for an element: its parts would begin again there."""
    path = around[next(n for n, x in enumerate(around) if x.var in counting) :]
    if not begins_once(path, b, counting, extent_ranges(around)):
        reason = f"runs again for the same element inside of `{path[0].var}`"
        repair = f"move `{path[0].var}` and the other loops of its reduction inside of those that repeat it"
        raise NO_PARTS(program, b.name, block=b.name, reason=reason, repair=repair)


def require_alone(program: Program, b: Block, top: For) -> None:
    """Refuse if another block in the loops of the reduction accesses a buffer that is complete only after them, or writes
    the initial value of the reduction.
    """
    starts = touched(dataclasses_replace(b, body=b.init, init=()))
    for _, other in walk((top,)):
        if isinstance(other, Block) and other.name != b.name:
            clash = (touched(other) & own_buffers(b)) | (own_buffers(other) & starts)
            if clash:
                facts = {"other": other.name, "loop": top.var, "block": b.name, "buffer": min(clash)}
                raise IN_BETWEEN(program, top.var, other.name, b.name, **facts)


def stored(places: Sequence[Element], values: Sequence[Expr]) -> tuple[Store, ...]:
    return tuple(Store(name, at, v) for (name, at), v in zip(places, values, strict=True))


# Conditions and parts for steps that take a running reduction apart: a nest that holds nothing else.


@refusal("E0646", "the steps of `{block}` cannot run apart: {reason}", at="block")
def NO_RUNNING(*focus: str, block: str, reason: str, repair: str) -> None: ...


@refusal(
    "E0648",
    "the steps of `{block}` cannot be regrouped: {what} of its factors may leave the range of {dtype} where no step does",
    help="if your inputs keep them in it, say so, `{step}(…, {key}=true)`: `verify` names it. Or take fewer steps at once",
    at="block",
)
def OUT_OF_RANGE(*focus: str, block: str, what: str, dtype: str, step: str, key: str) -> None: ...


@frozen
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
            return noted(result, {IN_RANGE: True})
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
