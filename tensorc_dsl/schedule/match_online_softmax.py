"""Finds the sums of exponentials that are relative to a finished maximum, and the stages between it and the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    ceildiv,
    children,
    dims_in,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rebuild,
    sub,
    substitute,
)
from tensorc_dsl.ir.expr import substitute as substituted
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.ir.reductions import Fold, FoldOp, identity
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, difference, to_expr
from tensorc_dsl.proof.sets.reductions import Exponential, Extreme, NotApart, exponential, homogeneous, parts_of
from tensorc_dsl.proof.sets.simplify import conjuncts, iter_ranges, simplify
from tensorc_dsl.schedule.motion import is_param, positions, writers
from tensorc_dsl.schedule.nests import nest_over


@frozen
class Nest:
    """A block with one store whose loops are its iterators, in some order, and hold nothing else."""

    loops: tuple[For, ...]
    block: Block

    @property
    def spatial(self) -> tuple[Iter, ...]:
        """The iterators that count elements."""
        return tuple(it for it in self.block.iters if it.kind is IterKind.SPATIAL)

    @property
    def target(self) -> Load:
        """What an instance stores, as a load."""
        (store,) = self.block.body
        return Load(store.buffer, store.indices, dtype_of(store.value))

    def by_target(self, indices: Sequence[Expr]) -> dict[str, Expr]:
        """The iterators' values where the element at `indices` is stored."""
        names = [i.name for i in self.target.indices if isinstance(i, Var)]
        return dict(zip(names, indices, strict=True))


@frozen
class Reduction(Nest):
    """A reduction by `fold` of `term`, over one iterator, from the neutral value."""

    fold: FoldOp
    term: Expr
    counts: Iter


@frozen
class Place:
    """Where an exponential belongs to: the element `row` of the maximum, and the step `count` of its reduction."""

    row: tuple[Expr, ...]
    count: Expr

    def at(self, values: Mapping[str, Expr]) -> Place:
        """The place for other values of iterators."""
        return Place(tuple(substitute(i, values) for i in self.row), substitute(self.count, values))


Sources = Mapping[Expr, tuple[Place, Exponential]]
"""The parts of a value that are exponentials relative to the maximum, or elements of stages of such ones."""


@frozen
class Stage(Nest):
    """A block that maps elements: each is an exponential of the place, or what another stage has there, times a factor."""

    sources: Sources
    place: Place
    form: Exponential


@frozen
class Sum(Reduction):
    """A sum over all steps of the maximum's reduction of such elements times factors. `row` is the element of the maximum."""

    sources: Sources
    row: tuple[Expr, ...]
    form: Exponential
    mask: Expr | None = None
    """The condition over loops without which a term is 0, if it has one."""


class NotFresh(Exception):
    """A block is no nest of its own. The message is a phrase with the block as its subject."""


def nest_alone(around: tuple[For, ...], b: Block) -> Nest:
    """The nest of a block. Raises NotFresh if other steps have changed it, or if it stores more than one element."""
    bound = [it.binding.name for it in b.iters if isinstance(it.binding, Var)]
    each = len(set(bound)) == len(b.iters) == len(around) and set(bound) == {x.var for x in around}
    if not each or any(len(x.body) != 1 or x.annotations or x.kind != "serial" for x in around):
        raise NotFresh("has other loops than a compute gives it")
    if len(b.body) != 1 or b.where or b.annotations:
        raise NotFresh("does more than to store one element in each iteration")
    found = Nest(around, b)
    names = [i.name for i in found.target.indices if isinstance(i, Var)]
    if len(names) != len(found.target.indices) or sorted(names) != sorted(it.name for it in found.spatial):
        raise NotFresh("does not store one element for each value of its iterators")
    return found


def reduction(around: tuple[For, ...], b: Block) -> Reduction:
    """The reduction that a nest makes. Raises NotFresh if it is none over one loop by one operation."""
    if not b.is_reduction or not b.init:
        raise NotFresh("is no reduction with an initial value")
    n = nest_alone(around, b)
    counts = [it for it in b.iters if it.kind is not IterKind.SPATIAL]
    try:
        kinds = [part.kind for part in parts_of(b)]
    except NotApart as e:
        raise NotFresh(str(e)) from None
    if len(counts) != 1 or len(kinds) != 1 or not isinstance(kinds[0], Fold):
        raise NotFresh("does not reduce over one loop by one operation")
    fold = kinds[0]
    if b.init[0].value != identity(fold.op, dtype_of(fold.value)) or b.init[0].indices != b.body[0].indices:
        raise NotFresh("does not start from the neutral value of its operation")
    return Reduction(n.loops, b, fold.op, fold.value, counts[0])


class Relative:
    """The stages and sums of a program that are relative to the reduction `peak` by `op`.

    `stages` and `sums` are in the order of the text; others that read the maximum are not among them.
    """

    def __init__(self, program: Program, peak: Reduction, op: Extreme) -> None:
        self._program = program
        self._peak = peak
        self.op: Extreme = op
        self.stages: dict[str, Stage] = {}
        """By the name of the buffer."""
        self.sums: list[Sum] = []
        order = positions(program)
        below = {x.buffer for x in loads(peak.term)}
        settled = all(order[w.name] < order[peak.block.name] for name in below for _, w in writers(program, name))
        for around, b in walk(program.body) if settled else ():
            if isinstance(b, Block) and order[b.name] > order[peak.block.name]:
                self._add(around, b)

    def _add(self, around: tuple[For, ...], b: Block) -> None:
        names = {x.buffer for s in (*b.init, *b.body) for x in loads(s.value)}
        if names.isdisjoint({self._peak.target.buffer, *self.stages}):
            return
        if len(writers(self._program, b.body[0].buffer)) > 1:
            return
        try:
            n = reduction(around, b) if b.is_reduction else nest_alone(around, b)
        except NotFresh:
            return
        value, mask = _masked(n.term) if isinstance(n, Reduction) else (b.body[0].value, None)
        found = self._sources(value, [it for it in b.iters if it.extent == self._peak.counts.extent])
        places = {(x.row, x.count) for x, _ in found.values()}
        forms = [f for _, f in found.values()]
        if len(places) != 1 or not all(forms[0].agrees(f) for f in forms):
            return
        if not homogeneous(value, found.__contains__) or self._leaks(value, found):
            return
        ((place, form), *_) = found.values()
        if isinstance(n, Reduction):
            spatial = {it.name for it in n.spatial}
            if n.fold == "+" and place.count == Var(n.counts.name) and all(free_vars(i) <= spatial for i in place.row):
                self.sums.append(Sum(n.loops, b, n.fold, n.term, n.counts, found, place.row, form, mask))
        elif all(it.kind is IterKind.SPATIAL for it in b.iters):
            self.stages[n.target.buffer] = Stage(n.loops, b, found, place, form)

    def _sources(self, e: Expr, steps: Sequence[Iter]) -> Sources:
        if isinstance(e, Load) and e.buffer in self.stages:
            s = self.stages[e.buffer]
            return {e: (s.place.at(s.by_target(e.indices)), s.form)}
        found = exponential(e, self.op)
        if found is not None and (place := self._place(found, steps)) is not None:
            return {e: (place, found)}
        out: dict[Expr, tuple[Place, Exponential]] = {}
        for c in children(e):
            out |= self._sources(c, steps)
        return out

    def _place(self, f: Exponential, steps: Sequence[Iter]) -> Place | None:
        """The place of an exponential of the terms of the maximum; None if it is relative to another shift."""
        peak = self._peak
        if not isinstance(f.shift, Load) or f.shift.buffer != peak.target.buffer:
            return None
        row = f.shift.indices
        for it in steps:
            values = {**peak.by_target(row), peak.counts.name: Var(it.name)}
            ranges = iter_ranges(steps)
            if simplify(substitute(peak.term, values), ranges) == simplify(f.value, ranges):
                return Place(row, Var(it.name))
        return None

    def _leaks(self, value: Expr, found: Mapping[Expr, object]) -> bool:
        """Whether the maximum or a stage is read outside of the sources."""
        inside = [x for e in found for x in loads(e)]
        names = {self._peak.target.buffer, *self.stages}
        return sum(x.buffer in names for x in loads(value)) != sum(x.buffer in names for x in inside) or any(
            self._peak.target.buffer in {x.buffer for x in loads(f.value)}
            for e in found
            if (f := exponential(e, self.op)) is not None
        )

    def is_alone(self, e: Expr, sources: Sources) -> bool:
        """Whether a value is an exponential, as it is or converted, and no product with others."""
        if isinstance(e, Cast):
            return self.is_alone(e.operand, sources)
        if e in sources and isinstance(e, Load):
            stage = self.stages[e.buffer]
            return self.is_alone(stage.block.body[0].value, stage.sources)
        return e in sources

    def needed(self) -> list[Stage]:
        """The stages that sums read, directly or through others, in the order of the text."""
        wanted = {x.buffer for s in self.sums for x in loads(s.term)}
        for name, s in reversed(self.stages.items()):
            if name in wanted:
                wanted |= {x.buffer for e in s.sources for x in loads(e)}
        return [s for name, s in self.stages.items() if name in wanted]


def _masked(term: Expr) -> tuple[Expr, Expr | None]:
    """What a term of a sum is where it is not 0, and the condition over loops for that; None if it is anywhere."""
    match term:
        case Select(cond=c, then=x, other=Const(value=0.0)) if dtype_of(term).is_float and not loads(c):
            return x, c
        case _:
            return term, None


def exchanged(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with those parts changed, outermost first, for which `change` gives another one."""
    new = change(e)
    if new is not None:
        return new
    old = children(e)
    return rebuild(e, tuple(exchanged(c, change) for c in old)) if old else e


# Finds where the terms of a maximum end: behind a mask they are infinite, and exponentials of them are 0.


def last_term(program: Program, peak: Reduction, op: Extreme) -> Expr | None:
    """The last step of the reduction, over its other iterators, behind which all terms are the infinity that it starts from;
    None if no condition over these iterators says so."""
    for c in _finite_where(program, peak.term, op):
        if (found := _last(c, peak.counts, peak.spatial)) is not None:
            return found
    return None


def adds_nothing_behind(last: Expr, peak: Reduction, relative: Relative, s: Sum) -> bool:
    """Whether a sum adds 0 for each term behind the last one of its row, whatever it multiplies exponentials by."""
    if s.mask is None:
        return relative.is_alone(s.term, s.sources)
    own = substituted(last, peak.by_target(s.row))
    ranges = iter_ranges(s.spatial)
    found = [_last(c, s.counts, s.spatial) for c in conjuncts(s.mask)]
    return any(x is not None and simplify(sub(x, own), ranges) == simplify(sub(own, own), ranges) for x in found)


def _finite_where(program: Program, e: Expr, op: Extreme) -> tuple[Expr, ...]:
    """Conditions without one of which a value is the infinity that is neutral for `op`."""
    match e:
        case Select(cond=c, then=x, other=Const() as behind) if behind == identity(op, dtype_of(e)):
            return (*conjuncts(c), *_finite_where(program, x, op))
        case Load():
            value = _stored(program, e)
            return () if value is None else _finite_where(program, value, op)
        case _:
            return ()


def _stored(program: Program, e: Load) -> Expr | None:
    """What a stage that maps elements stores in the element that is read; None for other buffers."""
    found = writers(program, e.buffer)
    if len(found) != 1:
        return None
    try:
        n = nest_alone(*found[0])
    except NotFresh:
        return None
    if n.block.is_reduction or any(it.kind is not IterKind.SPATIAL for it in n.block.iters):
        return None
    return substituted(n.block.body[0].value, n.by_target(e.indices))


def _last(cond: Expr, counts: Iter, others: tuple[Iter, ...]) -> Expr | None:
    """The greatest value of an iterator for which a condition over it and others can hold."""
    names = {it.name for it in others}
    if not isinstance(cond, Compare) or dtype_of(cond.lhs) != INDEX or not free_vars(cond) <= {counts.name, *names}:
        return None
    if dims_in(cond) or cond.op not in ("<", "<=", ">", ">="):
        return None
    greater, less = (cond.rhs, cond.lhs) if cond.op in ("<", "<=") else (cond.lhs, cond.rhs)
    ranges: Mapping[str, tuple[int | None, int | None]] = iter_ranges((counts, *others))
    form = difference(greater, less, Context(ranges))
    if form.terms.get(counts.name) != -1:
        return None
    rest = {a: c for a, c in form.terms.items() if a != counts.name}
    if any(not isinstance(a, str) and counts.name in free_vars(a) for a in rest):
        return None
    greatest = to_expr(Linear(rest, form.constant))
    return simplify(greatest if "=" in cond.op else sub(greatest, ONE), ranges)


# Pads the terms of a maximum with its identity, and those of the sums that are relative to it with 0.


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
