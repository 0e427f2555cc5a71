"""Finds the sums of exponentials that are relative to a finished maximum, and the stages between it and the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import (
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    children,
    dtype_of,
    free_vars,
    loads,
    rebuild,
    substitute,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Program, walk
from tensorc_dsl.ir.reductions import Fold, FoldOp, identity
from tensorc_dsl.proof.sets.reductions import Exponential, Extreme, NotApart, exponential, homogeneous, parts_of
from tensorc_dsl.proof.sets.simplify import iter_ranges, simplify
from tensorc_dsl.schedule.motion import positions, writers


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Reduction(Nest):
    """A reduction by `fold` of `term`, over one iterator, from the neutral value."""

    fold: FoldOp
    term: Expr
    counts: Iter


@dataclass(frozen=True, slots=True)
class Place:
    """Where an exponential belongs to: the element `row` of the maximum, and the step `count` of its reduction."""

    row: tuple[Expr, ...]
    count: Expr

    def at(self, values: Mapping[str, Expr]) -> Place:
        """The place for other values of iterators."""
        return Place(tuple(substitute(i, values) for i in self.row), substitute(self.count, values))


Sources = Mapping[Expr, tuple[Place, Exponential]]
"""The parts of a value that are exponentials relative to the maximum, or elements of stages of such ones."""


@dataclass(frozen=True, slots=True)
class Stage(Nest):
    """A block that maps elements: each is an exponential of the place, or what another stage has there, times a factor."""

    sources: Sources
    place: Place
    form: Exponential


@dataclass(frozen=True, slots=True)
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
