"""Turns a stage into the content of its block: the value, the reduced indices and the reducer, or the steps of a scan.

A reduction inside an expression becomes a stage of its own before the stage that contains it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.inference import Extents, Ranges
from tensorc_dsl.elaborate.names import ARG_REDUCERS, REDUCERS, Definitions, Reducer, flat, position_type
from tensorc_dsl.elaborate.problems import Invalid, each
from tensorc_dsl.elaborate.user_reducers import user_reducer
from tensorc_dsl.elaborate.values import GuardedLoad, ValueBuilder, likely_type
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
from tensorc_dsl.ir.program import Annotation, Buffer, fresh
from tensorc_dsl.ir.reductions import Combiner, position_combiner
from tensorc_dsl.proof.sets.encodings import DATA, encoded
from tensorc_dsl.proof.sets.linear_forms import TRUE, negate
from tensorc_dsl.proof.sets.safety import ranges_of
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near


@frozen
class Computed:
    """A stage as IR: `name[indices] = value`, or reduced over `reduce` by `reducer`. Index names are the variables.

    A scan runs along `scan`, which is one of the `spatial` indices: from its first value on, or with `back` from its last. So
    does a reduction in the step of a scan if it reads the scan; its `within` is the name of the scan, which it precedes.
    """

    name: str
    spatial: Extents
    reduce: Extents
    reducer: Reducer | Combiner | None
    value: ir.Expr
    loads: tuple[GuardedLoad, ...]
    others: tuple[ir.Expr, ...] = ()
    """The values of a reducer of several beside the first one."""
    targets: tuple[str, ...] = ()
    """The buffers of several values."""
    scan: str | None = None
    within: str | None = None
    back: bool = False
    annotations: tuple[Annotation, ...] = ()
    """The stage's annotations, for its block."""
    around: tuple[tuple[ir.Expr, ...], ...] = ()
    """Of a reduction inside an expression, the conditions around it, wherever it stands: it is read where all of one of these
    hold."""

    @property
    def dtype(self) -> DType:
        """The element type of its buffer."""
        return ir.dtype_of(self.value)

    @property
    def values(self) -> tuple[ir.Expr, ...]:
        return (self.value, *self.others)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The buffers of the values."""
        return self.targets or (self.name,)

    @property
    def picks(self) -> bool:
        """Whether it computes positions."""
        return isinstance(self.reducer, Combiner) and self.reducer.picks

    def reads(self) -> set[str]:
        """The buffers that its values read."""
        return {x.buffer for e in self.values for x in ir.loads(e)}

    def with_values(self, change: Callable[[ir.Expr], ir.Expr]) -> Computed:
        """The same with other values in the place of those that read something."""
        value, *others = (change(e) if ir.loads(e) else e for e in self.values)
        return replace(self, value=value, others=tuple(others))


@frozen
class _Own:
    """The scan whose step is built, and how many steps before its own those are that it reads: below 0 if it runs back."""

    stage: str
    buffer: str
    index: str
    position: int
    lags: list[int] = field(default_factory=list[int])
    parts: set[str] = field(default_factory=set[str])
    """The reductions that a step computes of earlier ones."""
    guarded: dict[ir.Load, tuple[int, ir.Expr, Diagnostic]] = field(
        default_factory=dict[ir.Load, tuple[int, ir.Expr, Diagnostic]]
    )
    """The loads that look back only where the conditions around their reduction hold: on which side, how far, and what is
    wrong with them elsewhere."""

    @property
    def back(self) -> bool:
        """Whether its steps read later elements, so that it runs from the last one back."""
        return any(n < 0 for n in self.lags)


class StageBuilder(ValueBuilder):
    """Builds one stage, and before it the stages of its nested reductions (`lifted`)."""

    def __init__(
        self,
        env: Environment,
        buffers: Mapping[str, Buffer],
        ranges: Ranges,
        used: set[str],
        defined: Definitions,
        prefix: str = "",
    ) -> None:
        super().__init__(env, buffers)
        self.ranges = ranges
        self.used = used
        self.defined = defined
        self.prefix = prefix
        self.lifted: list[Computed] = []
        self.own: _Own | None = None
        """The scan whose step is being built."""

    def stage(self, stage: tree.Stage, name: str, want: DType | None) -> Computed:
        """The stage, called `name` in the program. Its value has type `want` if that is given. Raises Invalid."""
        spatial: Extents = {spec.name: self.ranges.of(spec) for spec in stage.indices}
        self.scope = dict(spatial)
        value = stage.value
        if isinstance(value, tree.Reduce):
            places = ", ".join(f"{n}[{', '.join(i.name for i in stage.indices)}]" if stage.indices else n for n in "ab")
            repair = f"give each a place: `({places}) = reduce {value.reducer}[…] (…, …)`"
            self._require_one(value, f"`{stage.name}` is the place of one", repair)
        if isinstance(value, tree.Scan):
            done = self._scan(stage, name, value, spatial, want)
        else:
            done = self._computed(name, spatial, value, want)
        done = self._settled(done)
        if want is not None and not isinstance(value, tree.Scan):
            body = value.body if isinstance(value, tree.Reduce) and not done.picks else value
            self.same_type(done.dtype, want, body, f"the value of `{stage.name}`")
        return done

    def several(self, stage: tree.Stage, name: str, targets: Sequence[str], wants: Sequence[DType | None]) -> Computed:
        """The stage of several values, stored to the buffers `targets`, of which some have given types. Raises Invalid."""
        value, count = stage.value, len(targets)
        if not isinstance(value, tree.Reduce):
            raise Invalid(problems.ONE_VALUE(value.span, count=count))
        defn, given = self.defined.reducers.get(value.reducer), len(tree.items_of(value.body))
        own = 1 if defn is None else len(defn.before)
        if not own == count == given:
            found = f"there are {count} places" if own != count else f"it is given {given}"
            repair = f"reduce {_values(own)}, and give each a place; one that is not needed is `_`"
            if own == 1:
                repair = f"give it one place: `{stage.name}{'[…]' if stage.indices else ''} = {value.reducer}[…] …`"
            raise Invalid(
                problems.NOT_SO_MANY(value.span, reducer=value.reducer, wanted=_values(own), found=found, repair=repair)
            )
        spatial: Extents = {spec.name: self.ranges.of(spec) for spec in stage.indices}
        self.scope = dict(spatial)
        return self._settled(self._several(name, spatial, value, targets, wants))

    def _settled(self, done: Computed) -> Computed:
        """The stage; the reductions that it needs are those of `lifted`."""
        *lifted, done = _needed([*self.lifted, done])
        self.lifted = [self._guarded(c) for c in lifted]
        return done

    # --- reductions --------------------------------------------------------------------------------------------------

    def _computed(self, name: str, spatial: Extents, value: tree.Expr, want: DType | None) -> Computed:
        """A stage whose spatial indices are in scope; `want` is the type of literals."""
        reduce, body = Extents(), value
        if isinstance(value, tree.Reduce):
            reduce |= {spec.name: self.ranges.of(spec) for spec in value.indices}
            self.scope = {**self.scope, **reduce}
            body = value.body
        picks = isinstance(value, tree.Reduce) and value.reducer in ARG_REDUCERS
        e = self.build(body, None if picks else want)
        if ir.dtype_of(e) == INDEX:
            self.no_value(body, want)
        done = Computed(name, spatial, reduce, None, e, tuple(self.loads))
        self.loads = []
        return self._reduced(done, value, want) if isinstance(value, tree.Reduce) else done

    def _reduced(self, c: Computed, e: tree.Reduce, want: DType | None) -> Computed:
        """The stage with its reducer. Raises Invalid if that does not accept its values."""
        dtype, name = ir.dtype_of(c.value), str(e.reducer)
        if name == "argmin" or name == "argmax":
            REDUCERS["max"].check(e, dtype)  # any type that has a greatest value
            t = position_type(e, want, c.reduce)
            places = (c.name, fresh(f"{c.name}_value", self.used))
            position = ir.Cast(flat(c.reduce)[0], t)
            made = position_combiner(name, dtype, t)
            return replace(c, reducer=made, value=position, others=(c.value,), targets=places)
        if name in REDUCERS:
            REDUCERS[name].check(e, dtype)
            return replace(c, reducer=REDUCERS[name])
        return replace(c, reducer=user_reducer(self.defined.reducers[name], [dtype], e).combiner)

    def _require_one(self, e: tree.Reduce, where: str, repair: str) -> None:
        """Raise Invalid unless a reduction is of one value."""
        defn, given = self.defined.reducers.get(e.reducer), len(tree.items_of(e.body))
        count = 1 if defn is None else len(defn.before)
        if count > 1:
            raise Invalid(
                problems.NOT_SO_MANY(e.span, reducer=e.reducer, wanted=_values(count), found=where, repair=repair)
            )
        if given > 1:
            found, repair = f"it is given {given}", "leave out the others, or reduce each of them"
            raise Invalid(
                problems.NOT_SO_MANY(e.body.span, reducer=e.reducer, wanted="one value", found=found, repair=repair)
            )

    def _several(
        self, name: str, spatial: Extents, e: tree.Reduce, targets: Sequence[str], wants: Sequence[DType | None]
    ) -> Computed:
        """A stage of several values, whose literals have the types `wants` or that of the first other value."""
        reduce: Extents = {spec.name: self.ranges.of(spec) for spec in e.indices}
        self.scope = {**self.scope, **reduce}
        items = tree.items_of(e.body)
        types = [self.infer(x) for x in items]
        literal = next((t for t in types if t not in (None, INDEX, BOOL)), None)

        def build(item: tree.Expr, t: DType | None, want: DType | None) -> ir.Expr:
            made = self.build(item, want or (literal if t is None else None))
            if ir.dtype_of(made) == INDEX:
                self.no_value(item, want)
            if want is not None:
                self.same_type(ir.dtype_of(made), want, item, f"this value of `{name}`")
            return made

        work = zip(items, types, wants, strict=True)
        values = each(*(lambda x=x, t=t, w=w: build(x, t, w) for x, t, w in work))
        found = user_reducer(self.defined.reducers[e.reducer], [*map(ir.dtype_of, values)], e)
        value, *others = (values[k] for k in found.order)
        places = tuple(targets[k] for k in found.order)
        done = Computed(name, spatial, reduce, found.combiner, value, tuple(self.loads), tuple(others), places)
        self.loads = []
        return done

    def reduction(self, e: tree.Reduce, want: DType | None) -> ir.Expr:
        """A load of a new stage for a reduction inside an expression, over the indices it depends on, without the guards."""
        repair = f"give it a stage of its own: `let (a[…], b[…]) = reduce {e.reducer}[…] (…, …)`"
        self._require_one(e, "an expression takes one", repair)
        saved = (self.scope, self.loads, self.conditions)
        self.loads, self.conditions = [], ()
        inner = self._computed(fresh(f"{self.prefix}{e.reducer}_{e.indices[0].name}", self.used), {}, e, want)
        self.scope, self.loads, self.conditions = saved
        if self.own is not None and inner.reads() & {self.own.buffer, *self.own.parts}:
            inner = replace(inner, scan=self.own.index, within=self.own.buffer)
            self.own.parts.add(inner.name)
        # An index with a single value may be a number in the value, and a name in the accesses that are checked.
        parts = [*inner.values, *(e for a in inner.loads for e in (a.load, *a.conditions))]
        if self.own is not None and any(a.load in self.own.guarded for a in inner.loads):
            parts += affine_only(self.around)  # which will be its guard
        depends = frozenset[str]().union(*map(ir.free_vars, parts))
        # An index without values does not occur in the value, but then there is nothing to reduce.
        spatial = {n: extent for n, extent in self.scope.items() if n in depends or ir.constant(extent) == 0}
        inner = replace(inner, spatial=spatial)
        same = (
            n
            for n, c in enumerate(self.lifted)
            if inner.within is not None
            and replace(inner, name=c.name, targets=c.targets, loads=c.loads, around=c.around) == c
        )
        if (at := next(same, None)) is not None:  # a step computes it once, however often it is written
            inner = self.lifted[at] = replace(self.lifted[at], around=(*self.lifted[at].around, self.around))
        else:
            inner = replace(inner, around=(self.around,))
            self.lifted.append(inner)
        load = ir.Load(inner.name, tuple(ir.Var(str(n)) for n in spatial), inner.dtype)
        self.loads.append(GuardedLoad(load, self.conditions, tuple(e.span for _ in spatial)))
        return load

    def _guarded(self, c: Computed) -> Computed:
        """A reduction over what it is read for, if its loads leave their arrays elsewhere and the conditions around tell."""
        sizes = {**c.spatial, **c.reduce}
        guarded = self.own.guarded if self.own is not None and c.within is not None else {}
        unknown = [g for g in c.loads if g.load in guarded]
        if not unknown and all(self.stays_inside(g, sizes) for g in c.loads):
            return c
        known_names = {*sizes, *(d.name for d in self.env.open)}
        read: list[ir.Expr] = []
        for conditions in c.around:
            known = ir.conjunction(tuple(x for x in affine_only(conditions) if ir.free_vars(x) <= known_names))
            if known is None and unknown:
                raise Invalid(guarded[unknown[0].load][2])
            if known is None:
                return c
            read.append(known)
        guard = functools.reduce(lambda a, b: ir.Logic("or", a, b), dict.fromkeys(read))
        for g in unknown:
            sign, back, problem = guarded[g.load]
            if self.own is not None and not self._always(sign, back, self.own, sizes, (*g.conditions, guard)):
                raise Invalid(problem)
        loads = tuple(replace(g, conditions=(*g.conditions, guard)) for g in c.loads)
        return replace(c.with_values(lambda e: ir.Select(guard, e, ir.zero_of(ir.dtype_of(e)))), loads=loads)

    # --- scans -------------------------------------------------------------------------------------------------------

    def _scan(self, stage: tree.Stage, name: str, e: tree.Scan, spatial: Extents, want: DType | None) -> Computed:
        """A scan as a single value: `init` at the first step, `step` at each later one. If steps read later elements, the
        last element is the first step.
        """
        index = e.index.name
        if index not in spatial:
            note = near(index, spatial)
            raise Invalid(problems.SCAN_INDEX(e.index.span, index=index, stage=stage.name, notes=note))
        t = want or self.infer(e.init) or self.infer(e.step)
        if t is None:
            likely = likely_type(e.init.value if isinstance(e.init, tree.Number) else None)
            raise Invalid(problems.NO_TYPE(e.init.span, value=e.init.span.text, likely=likely))
        if t == INDEX:
            self.no_value(e.init if self.infer(e.init) == INDEX else e.step, want)

        position = next(n for n, spec in enumerate(stage.indices) if spec.name == index)
        own = _Own(stage.name, name, index, position)

        def part(value: tree.Expr, what: str) -> tuple[ir.Expr, list[GuardedLoad]]:
            self.loads = []
            made = self.build(value, t)
            self.same_type(ir.dtype_of(made), t, value, f"`{what}` of `{stage.name}`")
            return made, self.loads

        def step() -> tuple[ir.Expr, list[GuardedLoad]]:
            self.buffers = {**self.buffers, stage.name: Buffer(str(name), t, tuple(spatial.values()))}
            self.own = own
            return part(e.step, "step")

        (init, first), (value, rest) = each(lambda: part(e.init, "init"), step)
        if not own.lags:
            raise Invalid(problems.SCAN_STEP(e.step.span, stage=stage.name))
        # An access that looks back beyond the first step leaves the stage there, like any other access, unless a condition
        # guards it.
        at: ir.Expr = ir.Var(str(index))
        steps = ir.sub(ir.sub(spatial[index], ir.ONE), at) if own.back else at
        begins = simplify(ir.Compare("<", steps, ir.ONE), ranges_of(spatial))
        loads = [replace(a, conditions=(*a.conditions, begins)) for a in first]
        if begins != TRUE:
            loads += [replace(a, conditions=(*a.conditions, negate(begins))) for a in rest]
        self.lifted = [replace(c, back=own.back and c.within is not None) for c in self._in_order(begins)]
        if isinstance(begins, ir.Const):
            made = init if begins.value else value
            return Computed(name, spatial, {}, None, made, tuple(loads), scan=index if made is value else None)
        return Computed(
            name, spatial, {}, None, ir.Select(begins, init, value), tuple(loads), scan=index, back=own.back
        )

    def _in_order(self, begins: ir.Expr) -> list[Computed]:
        """The reductions of a scan: first those that do not read it, then those that each step but the first computes, in
        order. A scan with a single step has none of the latter.
        """
        # What simplification leaves out of a value, as `x` in `clamp(x, 0, 0)`, may be an element of an earlier step.
        before = [replace(c, loads=self._behind(begins, c.loads)) for c in self.lifted if c.within is None]
        if begins == TRUE:
            return before
        for c in self.lifted:
            if c.within is None:
                continue
            loads = tuple(replace(a, conditions=(*a.conditions, negate(begins))) for a in c.loads)
            guarded = c.with_values(lambda e: ir.Select(begins, ir.zero_of(ir.dtype_of(e)), e))
            before.append(replace(guarded, loads=loads))
        return before

    def _behind(self, begins: ir.Expr, loads: tuple[GuardedLoad, ...]) -> tuple[GuardedLoad, ...]:
        """The loads, those of the scan's own elements at each step but the first."""
        own = None if self.own is None else self.own.buffer
        return tuple(
            replace(a, conditions=(*a.conditions, negate(begins))) if a.load.buffer == own else a for a in loads
        )

    def load(self, e: tree.IndexExpr) -> ir.Load:
        """A load of a tensor's element; a scan may load its own elements of earlier steps. Raises Invalid."""
        made = super().load(e)
        if self.own is not None and made.buffer == self.own.buffer:
            self.own.lags.append(self._lag(made, e, self.own))
        return made

    def _lag(self, made: ir.Load, e: tree.IndexExpr, own: _Own) -> int:
        """How far the scan looks back, or forward if that is below 0; 1 or -1 for a distance that varies. Raises Invalid if
        it is neither, or not as before.
        """
        back = simplify(ir.sub(ir.Var(str(own.index)), made.indices[own.position]), ranges_of(self.scope))
        lag, signs, around = ir.constant(back), (-1, 1) if own.back else (1, -1), None
        if not lag:
            lag = next((n for n in signs if self._always(n, back, own, self.scope, self.conditions)), lag)
        if not lag and (every := (*self.conditions, *self.around)) != self.conditions:
            lag = around = next((n for n in signs if self._always(n, back, own, self.scope, every)), lag)
        if lag is None and ir.dims_in(back) and self.env.unbound:
            raise Invalid  # the distance is an attribute without a value
        at = e.indices[own.position].span

        def found(problem: Problem[...]) -> Diagnostic:
            return problem(at, stage=own.stage, index=own.index, position=own.position + 1, found=f"`{at.text}`")

        if around:
            own.guarded[made] = around, back, found(problems.SCAN_LAG)
        if lag and all((lag < 0) == (n < 0) for n in own.lags):
            return lag
        raise Invalid(found(problems.SCAN_BOTH if lag else problems.SCAN_LAG))

    def _always(self, sign: int, back: ir.Expr, own: _Own, sizes: Extents, conditions: tuple[ir.Expr, ...]) -> bool:
        """Whether a distance has that sign in each step but the first, for all data, where the conditions hold."""
        at: ir.Expr = ir.Var(str(own.index))
        steps = at if sign > 0 else ir.sub(ir.sub(sizes[own.index], ir.ONE), at)
        against = (ir.Compare(">=", steps, ir.ONE), ir.Compare("<=" if sign > 0 else ">=", back, ir.ZERO))
        known = encoded((*conditions, *against), DATA)
        around, against = known.exprs[: -len(against)], known.exprs[-len(against) :]
        try:
            return not feasible(sizes, (*affine_only(around), *known.conditions, *against))
        except NotAffine:
            return False


def _values(count: int) -> str:
    return "one value" if count == 1 else f"{count} values"


def _needed(stages: list[Computed]) -> list[Computed]:
    """The last stage and the reductions that it needs: what stands in a branch that is never taken is not computed."""
    read = {stages[-1].name}
    for c in reversed(stages):
        if c.name in read:
            read |= c.reads()
    left = {c.name for c in stages} - read
    return [
        replace(c, loads=tuple(g for g in c.loads if g.load.buffer not in left)) for c in stages if c.name not in left
    ]
