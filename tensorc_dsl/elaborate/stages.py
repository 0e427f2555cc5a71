"""From a stage to what its block computes: the value, what it is reduced over and by what, or the steps of a scan.

A reduction inside an expression becomes a stage of its own before the one that it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.affine.safety import ranges_of
from tensorc_dsl.affine.simplify import TRUE, negate, simplify
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.declared import Declared, declared
from tensorc_dsl.elaborate.library import Definitions
from tensorc_dsl.elaborate.problems import Invalid, each, suggestion
from tensorc_dsl.elaborate.ranges import Ranges
from tensorc_dsl.elaborate.reducers import REDUCERS, ArgReducer, Reducer, arg_reducer
from tensorc_dsl.elaborate.values import Access, Extents, ValueBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
from tensorc_dsl.ir.program import Annotation, Buffer, fresh
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Computed:
    """A stage as IR: `name[indices] = value`, or reduced over `reduce` by `reducer`. Variables are the index names.

    A scan runs along `scan`, which is one of `spatial`. What its steps reduce of the scan itself runs along it too, and
    `within` names the stage whose steps it is a part of: such parts stand before it, as a step computes them.
    """

    name: str
    spatial: Extents
    reduce: Extents
    reducer: Reducer | ArgReducer | Declared | None
    value: ir.Expr
    accesses: tuple[Access, ...]
    scan: str | None = None
    within: str | None = None
    annotations: tuple[Annotation, ...] = ()
    """Notes for schedules, on the block."""

    @property
    def dtype(self) -> DType:
        """What its buffer holds."""
        return self.reducer.position if isinstance(self.reducer, ArgReducer) else ir.dtype_of(self.value)


@dataclass(frozen=True, slots=True)
class _Own:
    """The scan in whose step an expression stands, and where it reads its own values."""

    stage: str
    buffer: str
    index: str
    position: int
    reads: list[ir.Load] = field(default_factory=list[ir.Load])
    parts: set[str] = field(default_factory=set[str])
    """The reductions that a step computes of earlier ones."""


class StageBuilder(ValueBuilder):
    """Builds one stage, and before it those that its nested reductions become (`lifted`)."""

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
        """The stage, called `name` in the program, whose value has type `want` where that is given. Raises Invalid."""
        spatial: Extents = {spec.name: self.ranges.of(spec) for spec in stage.indices}
        self.scope = dict(spatial)
        if isinstance(stage.value, tree.Scan):
            return self._scan(stage, name, stage.value, spatial, want)
        done = self._computed(name, spatial, stage.value, want)
        if want is not None:
            value = stage.value
            body = value.body if isinstance(value, tree.Reduce) and not isinstance(done.reducer, ArgReducer) else value
            self.same_type(done.dtype, want, body, f"the value of `{stage.name}`")
        return done

    # --- reductions --------------------------------------------------------------------------------------------------

    def _computed(self, name: str, spatial: Extents, value: tree.Expr, want: DType | None) -> Computed:
        """A stage whose spatial indices are in scope; `want` is what literals become."""
        reduce, body = Extents(), value
        if isinstance(value, tree.Reduce):
            reduce |= {spec.name: self.ranges.of(spec) for spec in value.indices}
            self.scope = {**self.scope, **reduce}
            body = value.body
        picks = isinstance(value, tree.Reduce) and value.reducer in ("argmin", "argmax")
        e = self.build(body, None if picks else want)
        if ir.dtype_of(e) == INDEX:
            raise Invalid(problems.INDEX_AS_VALUE(body.span, dtype=want or "f32", text=body.span.text))
        reducer = self._reducer(value, ir.dtype_of(e), want, reduce) if isinstance(value, tree.Reduce) else None
        done = Computed(name, spatial, reduce, reducer, e, tuple(self.accesses))
        self.accesses = []
        return done

    def _reducer(
        self, e: tree.Reduce, dtype: DType, want: DType | None, over: Extents
    ) -> Reducer | ArgReducer | Declared:
        """What combines values of `dtype`. Raises Invalid where it does not take them."""
        match str(e.reducer):
            case "argmin" | "argmax" as kind:
                REDUCERS["max"].check(e, dtype)  # whatever has a greatest value
                return arg_reducer(e, kind, want, over)
            case name if name in REDUCERS:
                REDUCERS[name].check(e, dtype)
                return REDUCERS[name]
            case name:
                return declared(self.defined.reducers[name], dtype, e)

    def reduction(self, e: tree.Reduce, want: DType | None) -> ir.Expr:
        """A reduction inside an expression becomes a stage over the indices it depends on, without the guards here."""
        saved = (self.scope, self.accesses, self.conditions)
        self.accesses, self.conditions = [], ()
        inner = self._computed(fresh(f"{self.prefix}{e.reducer}_{e.indices[0].name}", self.used), {}, e, want)
        self.scope, self.accesses, self.conditions = saved
        if self.own is not None and {x.buffer for x in ir.loads(inner.value)} & {self.own.buffer, *self.own.parts}:
            inner = replace(inner, scan=self.own.index, within=self.own.buffer)
            self.own.parts.add(inner.name)
        # An index of one value may be a number in the value, and a name where what is read is checked.
        parts = [inner.value, *(e for a in inner.accesses for e in (a.load, *a.conditions))]
        depends = frozenset[str]().union(*map(ir.free_vars, parts))
        # An index without values is none that the value shows, but nothing is to be reduced then.
        spatial = {n: extent for n, extent in self.scope.items() if n in depends or ir.constant(extent) == 0}
        inner = replace(inner, spatial=spatial)
        same = (
            c for c in self.lifted if inner.within is not None and replace(inner, name=c.name, accesses=c.accesses) == c
        )
        if (made := next(same, None)) is not None:  # a step computes it once, however often it is written
            inner = made
        else:
            self.lifted.append(inner)
        load = ir.Load(inner.name, tuple(ir.Var(str(n)) for n in spatial), inner.dtype)
        self.accesses.append(Access(load, self.conditions, tuple(e.span for _ in spatial)))
        return load

    # --- scans -------------------------------------------------------------------------------------------------------

    def _scan(self, stage: tree.Stage, name: str, e: tree.Scan, spatial: Extents, want: DType | None) -> Computed:
        """A scan as one value: `init` at the first step, `step` at each later one."""
        index = e.index.name
        if index not in spatial:
            note = suggestion(index, spatial)
            raise Invalid(problems.SCAN_INDEX(e.index.span, index=index, stage=stage.name, notes=note))
        t = want or self.infer(e.init) or self.infer(e.step)
        if t is None:
            raise Invalid(problems.NO_TYPE(e.init.span, value=e.init.span.text))
        if t == INDEX:
            at = e.init if self.infer(e.init) == INDEX else e.step
            raise Invalid(problems.INDEX_AS_VALUE(at.span, dtype="f32", text=at.span.text))

        position = next(n for n, spec in enumerate(stage.indices) if spec.name == index)
        own = _Own(stage.name, name, index, position)

        def part(value: tree.Expr, what: str) -> tuple[ir.Expr, list[Access]]:
            self.accesses = []
            made = self.build(value, t)
            self.same_type(ir.dtype_of(made), t, value, f"`{what}` of `{stage.name}`")
            return made, self.accesses

        def step() -> tuple[ir.Expr, list[Access]]:
            self.buffers = {**self.buffers, stage.name: Buffer(str(name), t, tuple(spatial.values()))}
            self.own = own
            return part(e.step, "step")

        (init, first), (value, rest) = each(lambda: part(e.init, "init"), step)
        if not own.reads:
            raise Invalid(problems.SCAN_STEP(e.step.span, stage=stage.name))
        # What looks further back than the first step leaves the stage there, like any other access, unless a condition
        # keeps it from being read.
        begins = simplify(ir.Compare("<", ir.Var(str(index)), ir.ONE), ranges_of(spatial))
        accesses = [replace(a, conditions=(*a.conditions, begins)) for a in first]
        if begins != TRUE:
            accesses += [replace(a, conditions=(*a.conditions, negate(begins))) for a in rest]
        self.lifted = self._in_order(begins)
        if isinstance(begins, ir.Const):
            made = init if begins.value else value
            return Computed(name, spatial, {}, None, made, tuple(accesses), index if made is value else None)
        return Computed(name, spatial, {}, None, ir.Select(begins, init, value), tuple(accesses), index)

    def _in_order(self, begins: ir.Expr) -> list[Computed]:
        """What was lifted out of a scan: first what is known before it begins, then the parts of each step but the first, in
        the order in which a step computes them. Where there is one step only, there are no such parts.
        """
        before = [c for c in self.lifted if c.within is None]
        if begins == TRUE:
            return before
        for c in self.lifted:
            if c.within is None:
                continue
            t = ir.dtype_of(c.value)
            nothing = ir.Const(False if t == BOOL else 0.0 if t.is_float else 0, t)
            accesses = tuple(replace(a, conditions=(*a.conditions, negate(begins))) for a in c.accesses)
            before.append(replace(c, value=ir.Select(begins, nothing, c.value), accesses=accesses))
        return before

    def load(self, e: tree.IndexExpr) -> ir.Load:
        """An element of a tensor; one of the scan's own is of an earlier step. Raises Invalid."""
        made = super().load(e)
        if self.own is not None and made.buffer == self.own.buffer:
            self._check_earlier(made, e, self.own)
            self.own.reads.append(made)
        return made

    def _check_earlier(self, made: ir.Load, e: tree.IndexExpr, own: _Own) -> None:
        """Raise Invalid unless the scan looks back by a number of steps above 0."""
        back = simplify(ir.sub(ir.Var(str(own.index)), made.indices[own.position]), ranges_of(self.scope))
        lag = ir.constant(back)
        if lag is None and ir.dims_in(back) and self.env.unbound:
            raise Invalid  # an attribute that only a task gives
        if lag is None or lag < 1:
            at = e.indices[own.position].span
            found = f"`{at.text}`"
            raise Invalid(
                problems.SCAN_LAG(at, stage=own.stage, index=own.index, position=own.position + 1, found=found)
            )
