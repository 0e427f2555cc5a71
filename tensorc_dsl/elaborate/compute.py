"""The compute layer: a `compute` and its bindings become a program, or a list of findings.

Stages become blocks (`elaborate.nests`); reductions inside expressions and calls of computes become stages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Note, TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.assumptions import assumptions
from tensorc_dsl.elaborate.bindings import LARGEST, Bound, Environment, bind, extent
from tensorc_dsl.elaborate.calls import (
    MOST_STAGES,
    Argument,
    call_environment,
    equal,
    param_type,
    recursion,
    renamed,
    stage_call,
)
from tensorc_dsl.elaborate.library import Library
from tensorc_dsl.elaborate.names import StageNames, check_names, inside
from tensorc_dsl.elaborate.nests import nests
from tensorc_dsl.elaborate.problems import Invalid, each
from tensorc_dsl.elaborate.proofs import check_loads, require_steps
from tensorc_dsl.elaborate.ranges import infer_ranges
from tensorc_dsl.elaborate.reducers import ArgReducer
from tensorc_dsl.elaborate.stages import Computed, StageBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.parse import annotations_of
from tensorc_dsl.ir.print import format_buffer
from tensorc_dsl.ir.program import ASSUMED, ATOMIC, Annotation, Buffer, Program, fresh
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.ir.strides import apart, elements_spanned, is_dense
from tensorc_dsl.ir.verify import update_fault
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.walk import rewrite

MOST_LOOPS = 64
"""The largest number of loops of one stage, which is also the largest number of loops around a block in a schedule."""


def elaborate(
    defn: tree.ComputeDef,
    bindings: Mapping[str, Bound],
    name: str | None = None,
    library: Library | None = None,
) -> Program:
    """The unscheduled program of a compute whose dimensions are all bound; `name` replaces the compute's own.

    `bindings` gives dimensions and int attributes as integers, float attributes as numbers, dtype attributes as type names;
    a dimension that is given as a range stays open. `library` has the computes that it calls. Raises TschedError with every
    finding.
    """
    env, found = bind(defn, bindings, open_dims=False)
    if found:
        raise TschedError(*found)
    library = library or Library()
    if (endless := recursion(defn, library)) is not None:
        raise TschedError(endless)
    elaboration = _Elaboration(defn, env, library, _Parts())
    elaboration.run()
    if elaboration.found:
        raise TschedError(*elaboration.found)
    return elaboration.program(name or defn.name)


def check(defn: tree.ComputeDef, library: Library | None = None) -> list[Diagnostic]:
    """The findings about a compute before it is bound.

    Attributes have their defaults, dimensions are open; an error for some sizes is a finding. Questions that only
    bound sizes can answer (an access that is not affine in open dimensions) wait for `elaborate`. So do errors inside a
    called compute that depend on the call.
    """
    env, found = bind(defn, {}, open_dims=True)
    if found:
        return found
    library = library or Library()
    if (endless := recursion(defn, library)) is not None:
        return [endless] if endless.span is not None and endless.span.source is defn.span.source else []
    elaboration = _Elaboration(defn, env, library, _Parts())
    elaboration.run()
    return elaboration.found


@dataclass(slots=True)
class _Parts:
    """The parts of the program so far. Names here are those of the program."""

    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    lets: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    best: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    stages: list[Computed] = field(default_factory=list[Computed])
    used: set[str] = field(default_factory=set[str])
    assumed: dict[str, str] = field(default_factory=dict[str, str])
    """What the first call that assumes something of a buffer assumes."""
    calls: int = 0

    def let(self, b: Buffer) -> Buffer:
        self.buffers[b.name] = self.lets[b.name] = b
        return b


class _Elaboration:
    """One pass over a compute, which collects findings and the stages without any.

    For a called compute, `given` are the buffers of its parameters, and the names of its stages begin with `prefix`.
    """

    def __init__(
        self,
        defn: tree.ComputeDef,
        env: Environment,
        library: Library,
        parts: _Parts,
        given: Mapping[str, Buffer] | None = None,
        prefix: str = "",
    ) -> None:
        self.defn = defn
        self.env = env
        self.library = library
        self.defined = library.seen_by(defn)
        self.parts = parts
        self.prefix = prefix
        self.found: list[Diagnostic] = []
        self.params: dict[str, Buffer] = dict(given or {})
        self.known: dict[str, Buffer] = {}
        """The tensors that the next stage may read, by their names in this compute."""
        self.calls: list[tuple[tree.CallExpr, str]] = []
        """Calls inside expressions, with the names of their values in `known`."""
        self.broken: set[str] = set()
        """Stages and tensors with findings. Stages that read them are skipped, so that one mistake is one finding."""

    def run(self) -> None:
        outputs = {p.name for p in self.defn.outputs}
        if not self.params:
            self.parts.used |= {p.name for p in (*self.defn.inputs, *self.defn.outputs)} | set(self.env.names())
            self.parts.used |= {s.name for s in self.defn.stages}
            for p in (*self.defn.inputs, *self.defn.outputs):
                self._guard(p.name, lambda p=p: self._param(p))
            self._updates()
            self.found += [problems.CONSTANT_OUTPUT(p.span, name=p.name) for p in self.defn.outputs if p.constant]
        self._assume()
        self.known = {name: b for name, b in self.params.items() if name not in outputs}
        for s in self.defn.stages:
            if any(isinstance(e, tree.Name) and e.id in self.broken for e in inside(s.value)):
                self.broken.add(s.name)
                continue
            call = stage_call(s, self.defined.computes)
            self._guard(s.name, lambda s=s, call=call: self._call_stage(s, call) if call else self._stage(s))
        written = {s.name for s in self.defn.stages}
        for p in self.defn.outputs:
            if p.name not in written:
                indices = ", ".join("ijklmnop"[: len(p.type.shape)])
                self.found.append(problems.UNWRITTEN(p.span, name=p.name, indices=indices))

    def _assume(self) -> None:
        """Note what the compute assumes of its inputs. Of other inputs it assumes what the computes do that they are passed
        to; of what is computed nothing, since nobody draws it."""
        try:
            own = assumptions(self.defn, self.params, self.env)
        except Invalid as e:
            self.found.extend(e.diagnostics)
            return
        for name, what in own:
            self.parts.assumed.setdefault(self.params[name.removeprefix(ASSUMED)].name, str(what))

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Invalid as e:
            self.broken.add(name)
            self.found.extend(e.diagnostics)

    def _param(self, p: tree.TensorParam) -> None:
        if p.name in self.params or p.name in self.env:
            raise Invalid(problems.TAKEN(p.span, name=p.name, what="a tensor, a dimension or an attribute"))
        made = _buffer(p.name, param_type(p, self.env), self.shape_of(p), p.span)
        made = replace(made, constant=p.constant, strides=self._strides(p, made))
        self.params[p.name] = self.parts.buffers[p.name] = made

    def _updates(self) -> None:
        """Note which inputs the outputs update."""
        for p in (*self.defn.inputs, *self.defn.outputs):
            if p.updates is None or p.name not in self.params:
                continue
            made = replace(self.params[p.name], updates=str(p.updates))
            self.params[p.name] = self.parts.buffers[p.name] = made
        inputs = [str(p.name) for p in self.defn.inputs]
        every = [self.params[p.name] for p in (*self.defn.inputs, *self.defn.outputs) if p.name in self.params]
        for p in (*self.defn.inputs, *self.defn.outputs):
            if p.updates is not None and p.name in self.params and p.updates not in self.broken:
                reason = update_fault(self.params[p.name], every, inputs)
                if reason and not self.env.unbound:
                    self.found.append(problems.NO_UPDATE(p.span, reason=reason))

    def _strides(self, p: tree.TensorParam, b: Buffer) -> tuple[ir.Expr, ...]:
        """The declared strides of a parameter; none where they are those of a dense array. Raises Invalid."""
        if not p.strides:
            return ()
        if len(p.strides) != len(b.shape):
            raise Invalid(problems.STRIDES_RANK(p.span, name=p.name, rank=len(b.shape), count=len(p.strides)))
        strides = tuple(extent(e, self.env, f"stride {k + 1} of `{p.name}`") for k, e in enumerate(p.strides))
        if is_dense(b.shape, strides):
            return ()
        made = replace(b, strides=strides)
        most = [bounds(e, {})[1] or 1 for e in made.described]
        size = elements_spanned(most[: len(b.shape)], most[len(b.shape) :]) * b.dtype.bytes
        if size > LARGEST:
            raise Invalid(problems.TOO_LARGE(p.span, what=f"what `{p.name}` spans in bytes", value=size))
        if not self.env.unbound and any(p is x for x in self.defn.outputs):
            try:
                apart(made)
            except ValueError as e:
                raise Invalid(problems.SHARED_PLACES(p.span, reason=str(e))) from None
        return strides

    def shape_of(self, p: tree.TensorParam) -> tuple[ir.Expr, ...]:
        return tuple(extent(e, self.env, f"dimension {k + 1} of `{p.name}`") for k, e in enumerate(p.type.shape))

    # --- stages ------------------------------------------------------------------------------------------------------

    def _output(self, s: tree.Stage) -> Buffer | None:
        """The output that a stage computes; None for an intermediate. Raises Invalid if there is no output of that name."""
        if s.is_let:
            if s.name in self.params or s.name in self.known or s.name in self.env:
                raise Invalid(problems.TAKEN(s.span, name=s.name, what="a tensor, a dimension or an attribute"))
            return None
        outputs = [p.name for p in self.defn.outputs]
        if s.name not in outputs:
            notes = near(s.name, outputs)
            raise Invalid(problems.NOT_AN_OUTPUT(s.span, name=s.name, compute=self.defn.name, notes=notes))
        if s.name in self.known:
            raise Invalid(problems.TAKEN(s.span, name=s.name, what="computed by an earlier stage"))
        if s.name not in self.params:
            raise Invalid  # the finding about its declaration is enough
        return self.params[s.name]

    def _name(self, s: tree.Stage, output: Buffer | None) -> str:
        """The name of the stage in the program."""
        if output is not None:
            return output.name
        return fresh(self.prefix + s.name, self.parts.used) if self.prefix else s.name

    def _stage(self, s: tree.Stage) -> None:
        output = self._output(s)
        if output is not None and len(output.shape) != len(s.indices):
            raise Invalid(problems.RANK(s.span, name=s.name, rank=len(output.shape), count=len(s.indices)))
        annotations = _annotations(s)
        if self.prefix:
            s = renamed(s, frozenset(d.name for d in self.env.open) - set(self.env.names()))
        s = replace(s, value=self._without_calls(s.value))
        later = {t.name for t in self.defn.stages} - set(self.known)
        check_names(s.value, StageNames(s.name, self.known, later, self.env, self.defined))
        ranges = infer_ranges(s, output.shape if output else None, self.known, self.env)
        builder = StageBuilder(self.env, self.known, ranges, self.parts.used, self.defined, self.prefix)
        computed = builder.stage(s, self._name(s, output), output.dtype if output else None)
        computed = replace(computed, annotations=annotations)
        made = (*builder.lifted, computed)
        for c in made:
            loops = len(c.spatial) + len(c.reduce)
            if loops > MOST_LOOPS:
                raise Invalid(problems.TOO_MANY_LOOPS(s.span, name=s.name, count=loops, most=MOST_LOOPS))
            if (found := ir.too_large(c.value)) is not None:
                raise Invalid(problems.LONG_VALUE(s.value.span, name=s.name, found=found))
            require_steps(c, self.env, s.span)
            buffer = output
            if c is not computed or buffer is None:
                buffer = self.parts.let(_buffer(c.name, c.dtype, tuple(c.spatial.values()), s.span))
            if isinstance(c.reducer, ArgReducer):
                best = fresh(f"{c.name}_value", self.parts.used)
                value = _buffer(best, ir.dtype_of(c.value), buffer.shape, s.span)
                self.parts.best[c.name] = self.parts.let(value)
            self._add(c, s.span)
            if c is computed:
                self.known[s.name] = buffer
        self.found.extend(d for c in made for d in check_loads(c, self.parts.buffers, self.env))

    def _add(self, c: Computed, at: Span) -> None:
        if len(self.parts.stages) >= MOST_STAGES:
            raise Invalid(problems.TOO_MANY_STAGES(at, most=MOST_STAGES))
        self.parts.stages.append(c)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call_stage(self, s: tree.Stage, call: tree.CallExpr) -> None:
        """Add the stages of a call that is the whole value of a stage."""
        output = self._output(s)
        self.known[s.name] = self._call(call, lambda: self._name(s, output), output)

    def _without_calls(self, value: tree.Expr) -> tree.Expr:
        """The expression with each call replaced by its tensor; the called stages are added before it."""
        found: list[Diagnostic] = []

        def call(node: object) -> tree.IndexExpr | tree.Name | None:
            match node:
                case tree.CallExpr() if self._makes_value(node):
                    try:
                        return tree.Name(self._call_value(node), node.span)
                    except Invalid as problem:
                        found.extend(problem.diagnostics)
                        return None
                case tree.IndexExpr(base=tree.CallExpr(function=tree.Name(id=name)) as e) if (
                    name in self.defined.computes
                ):
                    try:
                        base = tree.Name(self._call_value(e), e.span)
                    except Invalid as problem:
                        found.extend(problem.diagnostics)
                        base = e.function
                    return replace(node, base=base, indices=tuple(rewrite(i, call) for i in node.indices))
                case _:
                    return None

        called = (e.base if isinstance(e, tree.IndexExpr) else e for e in inside(value))
        if not any(isinstance(e, tree.CallExpr) for e in called):
            return value
        new = rewrite(value, call)
        if found:
            raise Invalid(*found)
        return new

    def _makes_value(self, e: tree.CallExpr) -> bool:
        """Whether the expression calls a compute whose output has no dimensions."""
        callee = self.defined.computes.get(e.function.id) if isinstance(e.function, tree.Name) else None
        return callee is not None and len(callee.outputs) == 1 and not callee.outputs[0].type.shape

    def _call_value(self, e: tree.CallExpr) -> str:
        """The name of a call's result in `known`; equal calls share one tensor."""
        for other, name in self.calls:
            if other == e:
                return name
        assert isinstance(e.function, tree.Name)  # checked by the callers
        base, name = f"{self.prefix}{e.function.id}", e.span.text
        self.known[name] = self._call(e, lambda: fresh(base, self.parts.used), None)
        self.calls.append((e, name))
        return name

    def _call(self, e: tree.CallExpr, name: Callable[[], str], output: Buffer | None) -> Buffer:
        """Add the stages of a call. Returns the buffer of the result, which is `output` if that is given."""
        assert isinstance(e.function, tree.Name)  # checked by the parser or the callers
        if e.function.id not in self.defined.computes:
            notes = near(
                e.function.id, self.defined.computes, f"write `compute {e.function.id}`, or import it with `use`"
            )
            raise Invalid(problems.UNKNOWN_NAME(e.span, what="compute", name=e.function.id, notes=notes))
        callee = self.defined.computes[e.function.id]
        self.parts.calls += 1
        if self.parts.calls > 4 * MOST_STAGES:  # called computes that fail have no stages that are counted
            raise Invalid(problems.TOO_MANY_STAGES(e.span, most=MOST_STAGES))
        if len(callee.outputs) != 1:
            raise Invalid(problems.SEVERAL_OUTPUTS(e.span, compute=callee.name, count=len(callee.outputs)))
        args = each(*(lambda a=a: self._argument(a, callee) for a in e.args))
        inner = call_environment(callee, args, e, self.env)
        (result,) = callee.outputs
        made = _Elaboration(callee, inner, self.library, self.parts)
        dtype, shape = param_type(result, inner), made.shape_of(result)
        if output is not None:
            same = len(shape) == len(output.shape) and all(map(equal, shape, output.shape))
            if dtype != output.dtype or not same:
                wanted, found = format_buffer(output), format_buffer(Buffer(output.name, dtype, shape))
                raise Invalid(problems.RESULT(e.span, wanted=wanted, compute=callee.name, found=found))
        target = output or self.parts.let(_buffer(name(), dtype, shape, e.span))
        if self.env.unbound:
            return target  # the called compute's own check reports its findings
        given: dict[str, Buffer] = {p.name: a.buffer for p, a in zip(callee.inputs, args, strict=True)}
        made.params, made.prefix = {**given, result.name: target}, f"{target.name}_"
        made.run()
        if made.found:
            note = Note("note", f"in the call `{e.span.text}`: ", e.span)
            raise Invalid(*(replace(d, notes=(*d.notes, note)) for d in made.found))
        return target

    def _argument(self, e: tree.Expr, callee: tree.ComputeDef) -> Argument:
        match e:
            case tree.Name(id=name) if name in self.known:
                return Argument(self.known[name], e.span)
            case tree.Name(id=name) if name not in self.env:
                if name in {s.name for s in self.defn.stages}:
                    raise Invalid(problems.TOO_EARLY(e.span, name=name))
                raise Invalid(
                    problems.UNKNOWN_NAME(
                        e.span, what="tensor", name=name, notes=near(name, self.known, f"declare `{name}` first")
                    )
                )
            case tree.CallExpr(function=tree.Name(id=name)) if name in self.defined.computes:
                return Argument(self.known[self._call_value(e)], e.span)
            case _:
                raise Invalid(problems.ARGUMENT(e.span, compute=callee.name, text=e.span.text))

    def program(self, name: str) -> Program:
        p = self.parts
        used = {*p.buffers, *(c.name for c in p.stages), *(d.name for d in self.env.open)}
        body = nests(p.stages, used, p.best)
        params = tuple(self.params[x.name] for x in (*self.defn.inputs, *self.defn.outputs))
        inputs = {x.name for x in self.defn.inputs}
        assumed = tuple((f"{ASSUMED}{name}", what) for name, what in sorted(p.assumed.items()) if name in inputs)
        return Program(str(name), params, tuple(p.lets.values()), body, self.env.open, assumed)


def _annotations(s: tree.Stage) -> tuple[Annotation, ...]:
    """The annotations of a stage. Raises Invalid."""
    try:
        found = annotations_of(s.annotations)
    except TschedError as e:
        raise Invalid(*e.diagnostics) from None
    for key in (REDUCER, ATOMIC):
        if key in dict(found):
            raise Invalid(problems.RESERVED(dict(s.annotations)[key].span, key=key, stage=s.name))
    return found


def _buffer(name: str, dtype: DType, shape: tuple[ir.Expr, ...], at: Span) -> Buffer:
    size = dtype.bytes
    for e in shape:
        size *= bounds(e, {})[1] or 1  # for open dimensions the largest size; 1 if there is no limit
    if size > LARGEST:
        raise Invalid(problems.TOO_LARGE(at, what=f"the size of `{name}` in bytes", value=size))
    return Buffer(str(name), dtype, shape)
