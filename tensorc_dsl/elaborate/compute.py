"""The compute layer: a `compute` and its bindings become a program, or a list of findings.

Stages become blocks (`elaborate.compute`); reductions inside expressions and calls of computes become stages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Note, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import (
    LARGEST,
    Bound,
    Environment,
    bind,
    dimensions,
    extent,
    index_expr,
    wrong_error,
)
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
from tensorc_dsl.elaborate.inference import infer_ranges
from tensorc_dsl.elaborate.names import Library, Reducer, StageNames, check_names, inside
from tensorc_dsl.elaborate.problems import ASSUMED as WRONG_ASSUMPTION
from tensorc_dsl.elaborate.problems import Invalid, each
from tensorc_dsl.elaborate.stages import Computed, StageBuilder
from tensorc_dsl.elaborate.values import GuardedLoad
from tensorc_dsl.elaborate.views import BOTH, NOT_INTO_A_VIEW, argument_of, coverage, require_linear, without_views
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DType, holds_value, limits, unit_roundoff
from tensorc_dsl.ir.parse import annotations_of
from tensorc_dsl.ir.print import format_buffer, format_expr
from tensorc_dsl.ir.program import (
    APPROX,
    ASSUMED,
    ATOMIC,
    Annotation,
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Property,
    Stmt,
    Store,
    View,
    fresh,
)
from tensorc_dsl.ir.program import ASSUMED as KEY
from tensorc_dsl.ir.reductions import REDUCER, Combiner
from tensorc_dsl.ir.sizes import apart, elements_spanned, is_dense
from tensorc_dsl.ir.verify import update_fault
from tensorc_dsl.proof.sets.safety import Outside, Unproven, below, ranges_of
from tensorc_dsl.proof.sets.simplify import bounds, simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.traversal import rewrite_tree

# Proves for all sizes that the loads of a stage stay inside their arrays, and that no reduction to positions is empty.


def require_steps(c: Computed, env: Environment, at: Span) -> None:
    """Raises Invalid for a reduction to positions that is empty for some sizes: there is none of the least of no values."""
    if not c.picks:
        return
    for name, size in c.reduce.items():
        if env.unbound or ir.constant(size) is not None:
            continue
        sizes = below(size, 1, env.open)
        if sizes is not None:
            shown = ", ".join(f"{n} = {v}" for n, v in sizes) or "some sizes"
            raise Invalid(problems.EMPTY_REDUCTION(at, index=name, extent=format_expr(size), sizes=shown))


def check_loads(
    c: Computed, buffers: Mapping[str, Buffer], env: Environment, *, is_view: bool = False
) -> list[Diagnostic]:
    """A finding for each load that leaves its array for some sizes, or is not proved to stay in it; `is_view`: the load says
    where the elements of a view are."""
    return [d for g in c.loads for d in _check_load(g, c, buffers[g.load.buffer].shape, env, is_view)]


def _check_load(
    g: GuardedLoad, c: Computed, shape: tuple[ir.Expr, ...], env: Environment, is_view: bool
) -> list[Diagnostic]:
    name = g.load.buffer
    match g.leaves({**c.spatial, **c.reduce}, shape, env):
        case None:
            return []
        case Unproven() if env.unbound:
            return []
        case Outside(position=p) | Unproven(position=p) if (of := g.data[p]) is not None:
            high = format_expr(ir.sub(shape[p], ir.ONE))
            return [problems.DATA_SUBSCRIPT(g.spans[p], name=of, text=g.spans[p].text, low=0, high=high)]
        case Outside(position=p, value=value, extent=limit, at=at):
            values = ", ".join(f"{n} = {v}" for n, v in at) or "always"
            steps = c.scan is not None and name == c.name and list(c.spatial)[p] == c.scan
            early = steps and (value < 0) != c.back
            notes = (problems.SCAN_BEGINS,) if early else ()
            inside = f"{' '.join(g.spans[p].text.split())} {'>= 0' if value < 0 else f'< {format_expr(shape[p])}'}"
            repair = f"say where it is read: `… if {inside} else …`"
            of_sizes = ir.free_vars(g.load.indices[p]) <= {d.name for d in env.open}
            if of_sizes and at and (value < 0 or isinstance(g.load.indices[p], ir.Const)):
                repair = (
                    f"say which sizes the compute is for, `where {inside}`, or where it is read: `… if {inside} else …`"
                )
            if value < 0 and isinstance(g.load.indices[p], ir.Const):
                repair = f"subscripts are counted from 0: the last one is `{format_expr(shape[p])} - 1`"
            elif is_view:
                repair = f"a view has elements of `{name}` alone: give its indices extents, `let {c.name}[i in …] = …`"
            return [
                problems.OUT_OF_BOUNDS(
                    g.spans[p],
                    position=p + 1,
                    name=name,
                    value=value,
                    extent=limit,
                    values=values,
                    repair=repair,
                    notes=notes,
                )
            ]
        case Unproven(position=p, interval=(low, high)):
            known = f"{low} to {high}" if low is not None and high is not None else "any number"
            limit = format_expr(shape[p])
            return [problems.UNPROVEN(g.spans[p], position=p + 1, name=name, extent=limit, interval=known)]


# Turns stages into loops: each stage is one perfect nest of serial loops over one block.
#
# The block has the name of the stage, a loop that of its index (made unique in the program), an iterator `v<index>`. The
# loop of a scan is outermost, so that a step is complete before the next one begins. If a step reduces earlier elements of
# the scan, this loop also contains the nests of those reductions, before that of the scan.


def nests(stages: Iterable[Computed], used: set[str]) -> tuple[Stmt, ...]:
    """The loops and the blocks of all stages; the names of the loops are added to `used`."""
    out: list[Stmt] = []
    parts: list[Computed] = []
    for c in (x for stage in stages for x in _stored(stage)):
        parts.append(c)
        if c.within is None:
            out.append(_steps(parts, used) if len(parts) > 1 else _nest(c, used))
            parts = []
    return tuple(out)


def _stored(c: Computed) -> list[Computed]:
    """The stage, or stages that store its identity if it reduces nothing: a block without instances never runs its `init`."""
    if c.reducer is None or all(ir.constant(size) != 0 for size in c.reduce.values()):
        return [c]
    assert not c.picks, "a reduction to positions of nothing is refused"
    starts = c.reducer.identity if isinstance(c.reducer, Combiner) else (c.reducer.identity(c.dtype),)
    names = (c.name,) if len(starts) == 1 else c.buffers
    return [
        replace(c, name=name, reduce={}, reducer=None, value=start, others=(), targets=(buffer,), loads=())
        for name, buffer, start in zip(names, c.buffers, starts, strict=True)
    ]


def _steps(parts: list[Computed], used: set[str]) -> Stmt:
    """One loop over the steps of a scan, the last of `parts`, around the nests of all that a step computes."""
    scan = parts[-1]
    assert scan.scan is not None  # only a scan has parts
    loop = fresh(str(scan.scan), used)
    return For(loop, scan.spatial[scan.scan], tuple(_nest(c, used, loop) for c in parts))


def _nest(c: Computed, used: set[str], step: str | None = None) -> Stmt:
    """The loops and the block of a stage, those alone that stand in the loop `step` of a scan where there is one."""
    order = sorted(c.spatial, key=lambda n: n != c.scan)
    loops = {n: step if step is not None and n == c.scan else fresh(str(n), used) for n in (*order, *c.reduce)}
    avoid = set(used)
    names = {n: fresh(f"v{n}", avoid) for n in loops}
    kinds = {n: IterKind.SCAN if n == c.scan else IterKind.SPATIAL for n in order}
    sizes = {**c.spatial, **c.reduce}
    iters = tuple(Iter(names[n], kinds.get(n, IterKind.REDUCE), sizes[n], ir.Var(loops[n])) for n in loops)
    at: dict[str, ir.Expr] = {str(n): ir.Var(v) for n, v in names.items()}
    if c.back and c.scan is not None:
        ranges = ranges_of({names[n]: size for n, size in sizes.items()})
        at[c.scan] = simplify(ir.sub(ir.sub(c.spatial[c.scan], ir.ONE), at[c.scan]), ranges)
        values = [simplify(ir.substitute(e, at), ranges) for e in c.values]
    else:
        values = [ir.substitute(e, at) for e in c.values]
    body, init, reducer = _stores(c, tuple(at[n] for n in c.spatial), values)
    annotations = tuple(sorted((*c.annotations, *reducer), key=lambda a: a[0]))
    out: Stmt = Block(str(c.name), iters, body, init, annotations=annotations)
    for n in reversed(loops):
        if loops[n] == step:
            break  # it is outermost
        out = For(loops[n], sizes[n], (out,))
    return out


def _stores(
    c: Computed, at: tuple[ir.Expr, ...], values: Sequence[ir.Expr]
) -> tuple[tuple[Store, ...], tuple[Store, ...], tuple[Annotation, ...]]:
    """The stores of a block, the stores of its `init`, and the annotation with its reducer."""
    places = [(str(name), at) for name in c.buffers]
    ((name, _), *_), (value, *_) = places, values
    match c.reducer:
        case None:
            return (Store(name, at, value),), (), ()
        case Reducer() as reducer:
            body = Store(name, at, reducer.combine(ir.Load(name, at, c.dtype), value))
            return (body,), (Store(name, at, reducer.identity(c.dtype)),), ()
        case Combiner() as reducer:
            return reducer.stores(places, values), reducer.starts(places), ((REDUCER, reducer.text),)


# What `assume` says of the contents of inputs, as annotations of the program: results are checked on inputs drawn so.
#
# Only that an input is finite serves proofs, and a kernel takes other inputs as well.


MATRICES = (Property.POSITIVE_DEFINITE, Property.SYMMETRIC)


def assumptions(defn: tree.ComputeDef, params: dict[str, Buffer], env: Environment) -> tuple[Annotation, ...]:
    """An annotation for each input of which something is assumed: properties by name, and a range as `low..high`. Raises
    Invalid."""
    inputs = {p.name: params[p.name] for p in defn.inputs if p.name in params}
    said: dict[str, list[str]] = {}
    for a in defn.assumes:
        if a.name not in inputs:
            raise Invalid(WRONG_ASSUMPTION(a.name.span, text=f"`{a.name}` is no input", notes=near(a.name, inputs)))
        buffer = inputs[a.name]
        one = _property(a, a.says, buffer, env) if isinstance(a.says, tree.Word) else _range(a, a.says, buffer, env)
        if one in said.setdefault(a.name, []) or (".." in one and any(".." in x for x in said[a.name])):
            raise Invalid(WRONG_ASSUMPTION(a.span, text=f"`{a.name}` is assumed so already"))
        said[a.name].append(one)
        _require_together(a, said[a.name], buffer)
    return tuple((f"{KEY}{name}", ", ".join(x)) for name, x in sorted(said.items()))


def _require_together(a: tree.Assumption, said: list[str], b: Buffer) -> None:
    """Raise Invalid if no array is all that is said, or none is drawn so."""
    low, high = next(((float(x), float(y)) for x, dots, y in (p.partition("..") for p in said) if dots), (None, None))
    if Property.POSITIVE_DEFINITE in said and len(said) > 1:
        raise Invalid(WRONG_ASSUMPTION(a.span, text="a positive definite matrix is drawn with no other property"))
    if Property.SYMMETRIC in said and {Property.SORTED, Property.DISTINCT} & {*said}:
        raise Invalid(WRONG_ASSUMPTION(a.span, text="a symmetric matrix is drawn neither sorted nor distinct"))
    if Property.POSITIVE in said and high is not None and high <= 0:
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"no number of `{a.name}` is positive"))
    count = ir.constant(b.shape[-1]) if b.shape else None
    if Property.DISTINCT not in said or count is None:
        return
    if b.dtype.is_integer:
        least, most = limits(b.dtype) if low is None or high is None else (low, high)
        enough = most - (max(least, 1) if Property.POSITIVE in said else least) + 1 >= count
    else:
        least, most = (-1.0, 1.0) if low is None or high is None else (low, high)
        enough = (most - least) / max(count, 1) > 4 * max(abs(least), abs(most)) * unit_roundoff(b.dtype)
    if not enough:
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"there are no {count} distinct numbers for a row of `{a.name}`"))


def _property(a: tree.Assumption, says: tree.Word, b: Buffer, env: Environment) -> str:
    names = [p.value for p in Property]
    if says not in names:
        raise Invalid(WRONG_ASSUMPTION(says.span, text=f"there is no property `{says}`", notes=near(says, names)))
    what = Property(says)
    if what is Property.POSITIVE_DEFINITE and not b.dtype.is_float:
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"a matrix of {b.dtype} is not drawn positive definite"))
    if what in MATRICES and not (len(b.shape) >= 2 and (env.unbound or b.shape[-1] == b.shape[-2])):
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"`{a.name}` is no square matrix"))
    if b.dtype.kind == "bool" or not b.shape:
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"`{a.name}` is no array of numbers"))
    return str(says)


def _range(a: tree.Assumption, says: tree.RangeExpr, b: Buffer, env: Environment) -> str:
    """The range; where its ends depend on open sizes, what the ranges of all sizes have in common."""
    if b.dtype.kind == "bool":
        raise Invalid(WRONG_ASSUMPTION(a.span, text=f"`{a.name}` is no array of numbers"))
    low, high = (_end(e, env, last) for e, last in ((says.low, False), (says.high, True)))
    if env.unbound:
        return "0..0"
    if low is None or high is None or low > high:
        raise Invalid(WRONG_ASSUMPTION(says.span, text=f"`{says.span.text}` has no numbers for all sizes"))
    for n, e in ((low, says.low), (high, says.high)):
        least, most = limits(b.dtype) if b.dtype.is_integer else (n, n)
        if not (least <= n <= most) or (isinstance(n, float) if b.dtype.is_integer else not holds_value(b.dtype, n)):
            raise Invalid(WRONG_ASSUMPTION(e.span, text=f"`{e.span.text}` is no number of {b.dtype}"))
    return f"{low!r}..{high!r}"


def _end(e: tree.Expr, env: Environment, last: bool) -> int | float | None:
    match e:
        case tree.Number(value=value):
            return value
        case tree.Negate(operand=tree.Number(value=value)):
            return -value
        case tree.Name(id=name) if name in env.floats:
            return env.floats[name]
        case _:
            made = index_expr(e, env.sizes)
            n = ir.constant(made)
            return n if n is not None else bounds(made, {})[0 if last else 1]


MOST_LOOPS = 64
"""The largest number of loops of one stage, which is also the largest number of loops around a block in a schedule."""


def elaborate(
    defn: tree.ComputeDef,
    bindings: Mapping[str, Bound],
    name: str | None = None,
    library: Library | None = None,
    conditions: tuple[tree.Expr, ...] = (),
) -> Program:
    """The unscheduled program of a compute whose dimensions are all bound; `name` replaces the compute's own.

    `bindings` gives dimensions and int attributes as integers, float attributes as numbers, dtype attributes as type names;
    a dimension that is given as a range stays open. `approx`, unless the compute has one itself, is the relative error that
    functions of f32 may have. `library` has the computes that it calls. `conditions` say which of these sizes occur. Raises
    TschedError with every finding.
    """
    env, found = bind(defn, bindings, open_dims=False, occurring=conditions)
    own = {*dimensions(defn), *(a.name for a in defn.attributes)}
    approx = None if APPROX in own else bindings.get(APPROX)
    if approx is not None and (wrong := wrong_error(approx, None)) is not None:
        found.append(wrong)
    if found:
        raise TschedError(*found)
    library = library or Library()
    if (endless := recursion(defn, library)) is not None:
        raise TschedError(endless)
    elaboration = _Elaboration(defn, env, library, _Parts())
    elaboration.run()
    if elaboration.found:
        raise TschedError(*elaboration.found)
    made = elaboration.program(name or defn.name)
    if not isinstance(approx, (int, float)):
        return made
    return replace(made, annotations=tuple(sorted((*made.annotations, (APPROX, approx)))))


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
    stages: list[Computed] = field(default_factory=list[Computed])
    used: set[str] = field(default_factory=set[str])
    assumed: dict[str, str] = field(default_factory=dict[str, str])
    """What the first call that assumes something of a buffer assumes."""
    views: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    """The views by the names that they have among the buffers, of tensors that are none."""
    constant: set[str] = field(default_factory=set[str])
    """The buffers that are passed to constant inputs of computes."""
    calls: int = 0

    def let(self, b: Buffer) -> Buffer:
        self.buffers[b.name] = self.lets[b.name] = b
        return b


@frozen
class Wanted:
    """A result of a call: the name that its buffer gets, None if it is dropped; or the output that it is."""

    name: Callable[[], str] | None
    output: Buffer | None = None


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
        self.places: dict[str, dict[str, Buffer]] = {}
        """The views of each output that stages write, by their names in this compute."""
        self.calls: list[tuple[tree.CallExpr, str]] = []
        """Calls inside expressions, with the names of their values in `known`."""
        self.broken: set[str] = set()
        """Stages and tensors with findings. Stages that read them are skipped, so that one mistake is one finding."""

    def run(self) -> None:
        outputs = {p.name for p in self.defn.outputs}
        if not self.params:
            self.parts.used |= {p.name for p in (*self.defn.inputs, *self.defn.outputs)} | set(self.env.names())
            self.parts.used |= {name for s in self.defn.stages for name in s.names}
            for p in (*self.defn.inputs, *self.defn.outputs):
                self._guard([p.name], lambda p=p: self._param(p))
            self._updates()
            self.found += [problems.CONSTANT_OUTPUT(p.span, name=p.name) for p in self.defn.outputs if p.constant]
        self._assume()
        self.known = {name: b for name, b in self.params.items() if name not in outputs}
        for s in self.defn.stages:
            if any(isinstance(e, tree.Name) and e.id in self.broken for e in inside(s.value)):
                self.broken |= {*s.names}
                continue
            self._guard(s.names, lambda s=s: self._any_stage(s))
        written = {name for s in self.defn.stages for name in s.names}
        for p in self.defn.outputs:
            if p.name in self.places:
                if not {p.name, *self.places[p.name]} & self.broken:
                    self._guard([p.name], lambda p=p: self._require_all(p, p.name in written))
            elif p.name not in written:
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

    def _guard(self, names: Sequence[str], work: Callable[[], None]) -> None:
        try:
            work()
        except Invalid as e:
            self.broken |= {*names}
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

    def _any_stage(self, s: tree.Stage) -> None:
        if (of := argument_of(s, self.defined.computes)) is not None:
            self._view(s, of)
        elif (call := stage_call(s, self.defined.computes)) is not None:
            self._call_stage(s, call)
        else:
            self._stage(s)

    # --- views -------------------------------------------------------------------------------------------------------

    def _view(self, s: tree.Stage, of: tree.IndexExpr) -> None:
        """Add a view of a tensor, or of an output that stages write through it."""
        assert isinstance(of.base, tree.Name)  # checked before
        self._output(s, s.name)
        if self.prefix:
            s = renamed(s, frozenset(d.name for d in self.env.open) - set(self.env.names()))
        name = of.base.id
        output = next((o for o, views in self.places.items() if name in views), name)
        writes = output in {p.name for p in self.defn.outputs} and name not in self.known
        if writes and output not in self.params:
            raise Invalid  # the finding about its declaration is enough
        base = {name: self.places.get(output, {}).get(name, self.params[output])} if writes else {}
        tensors = {**self.known, **base}
        s = replace(s, value=of)
        later = {n for t in self.defn.stages for n in t.names} - set(tensors)
        check_names(of, StageNames(s.name, tensors, later, self.env, self.defined))
        ranges = infer_ranges(s, None, tensors, self.env)
        made = StageBuilder(self.env, tensors, ranges, self.parts.used, self.defined, self.prefix).stage(
            s, s.name, None
        )
        if not isinstance(made.value, ir.Load) or made.reduce or len(made.loads) != 1:
            raise Invalid(problems.MISPLACED_VIEW(of.span))
        if found := check_loads(made, self.parts.buffers, self.env, is_view=True):
            raise Invalid(*found)
        indices = tuple(made.spatial)
        require_linear(name, made.value.indices, frozenset(indices), made.loads[0].spans)
        b = self._viewed(s.name, made.value, {str(n): e for n, e in made.spatial.items()}, s.span)
        if writes:
            self.places.setdefault(output, {})[s.name] = b
        else:
            self.known[s.name] = b

    def _viewed(self, name: str, of: ir.Load, extents: Mapping[str, ir.Expr], at: Span) -> Buffer:
        """A tensor that is a view of another one."""
        below = self.parts.buffers[of.buffer].view
        base, places = (of.buffer, of.indices) if below is None else (below.base, below.at(of.indices))
        own = fresh(self.prefix + name, self.parts.used) if self.prefix else str(name)
        made = replace(_buffer(own, of.dtype, tuple(extents.values()), at), view=View(base, tuple(extents), places))
        self.parts.buffers[own] = self.parts.views[own] = made
        return made

    def _require_all(self, p: tree.TensorParam, itself: bool) -> None:
        """Raise Invalid unless stages write each element of an output once, through views of it."""
        if itself:
            raise Invalid(BOTH(p.span, name=p.name))
        if self.env.unbound:
            return
        written = {name: self.parts.views[b.name] for name, b in self.places[p.name].items() if name in self.known}
        if found := coverage(self.params[p.name], written, p.span):
            raise Invalid(*found)

    def _output(self, s: tree.Stage, name: tree.Word) -> Buffer | None:
        """The output that a stage computes, or the view of one; None for an intermediate. Raises Invalid if there is no
        output of that name."""
        if s.is_let:
            views = {n for views in self.places.values() for n in views}
            if name in self.params or name in self.known or name in self.env or name in views:
                raise Invalid(problems.TAKEN(s.span, name=name, what="a tensor, a dimension or an attribute"))
            return None
        outputs = [p.name for p in self.defn.outputs]
        view = next((views[name] for views in self.places.values() if name in views), None)
        if view is not None and name not in self.known:
            return view
        if name not in outputs and view is None:
            notes = near(name, outputs)
            raise Invalid(problems.NOT_AN_OUTPUT(s.span, name=name, compute=self.defn.name, notes=notes))
        if name in self.known:
            raise Invalid(problems.TAKEN(s.span, name=name, what="computed by an earlier stage"))
        if name not in self.params:
            raise Invalid  # the finding about its declaration is enough
        return self.params[name]

    def _name(self, name: str, output: Buffer | None) -> str:
        """The name of a stage in the program."""
        if output is not None:
            return output.name
        return fresh(self.prefix + name, self.parts.used) if self.prefix else name

    def _stage(self, s: tree.Stage) -> None:
        if s.targets:
            self._several(s)
            return
        output = self._output(s, s.name)
        self._require_rank(s, s.name, output)
        annotations = _annotations(s)
        if self.prefix:
            s = renamed(s, frozenset(d.name for d in self.env.open) - set(self.env.names()))
        s = replace(s, value=self._without_calls(s.value))
        builder = self._builder(s, output)
        computed = builder.stage(s, self._name(s.name, output), output.dtype if output else None)
        computed = replace(computed, annotations=annotations)
        self._complete(s, (*builder.lifted, computed), {computed.name: output} if output else {})
        self.known[s.name] = self.parts.buffers[computed.name]

    def _several(self, s: tree.Stage) -> None:
        """A stage of several values."""
        outputs: list[Buffer | None] = []
        for n, name in enumerate(s.targets):
            if name != "_" and name in s.targets[:n]:
                raise Invalid(problems.TAKEN(name.span, name=name, what="another of these places"))
            outputs.append(None if name == "_" else self._output(s, name))
            self._require_rank(s, name, outputs[-1])
        annotations = _annotations(s)
        if self.prefix:
            s = renamed(s, frozenset(d.name for d in self.env.open) - set(self.env.names()))
        s = replace(s, value=self._without_calls(s.value))
        known = [b for b in outputs if b is not None]
        for b in known[1:]:
            for i, one, other in zip(s.indices, known[0].shape, b.shape, strict=True):
                if not equal(one, other):
                    first, second = format_expr(one), format_expr(other)
                    note = Note("note", f"`{known[0].name}` has {first}, `{b.name}` has {second}")
                    raise Invalid(
                        problems.RANGES_DIFFER(i.span, name=i.name, first=first, second=second, notes=(note,))
                    )
        builder = self._builder(s, known[0] if known else None)
        block = self._name(s.name, next((b for n, b in zip(s.targets, outputs, strict=True) if n is s.name), None))
        targets: list[str] = []
        for n, (name, b) in enumerate(zip(s.targets, outputs, strict=True)):
            dropped = name == "_"
            own = block if name is s.name else "" if dropped else self._name(name, b)
            targets.append(own or fresh(f"{block}_{n}", self.parts.used))
        computed = builder.several(s, block, targets, [None if b is None else b.dtype for b in outputs])
        computed = replace(computed, annotations=annotations)
        own_buffers = {t: b for t, b in zip(targets, outputs, strict=True) if b is not None}
        self._complete(s, (*builder.lifted, computed), own_buffers)
        for name, target in zip(s.targets, targets, strict=True):
            if name != "_":
                self.known[name] = self.parts.buffers[target]

    def _require_rank(self, s: tree.Stage, name: str, output: Buffer | None) -> None:
        if output is not None and len(output.shape) != len(s.indices):
            raise Invalid(problems.RANK(s.span, name=name, rank=len(output.shape), count=len(s.indices)))

    def _builder(self, s: tree.Stage, output: Buffer | None) -> StageBuilder:
        later = {name for t in self.defn.stages for name in t.names} - set(self.known)
        check_names(s.value, StageNames(s.name, self.known, later, self.env, self.defined))
        ranges = infer_ranges(s, output.shape if output else None, self.known, self.env)
        return StageBuilder(self.env, self.known, ranges, self.parts.used, self.defined, self.prefix)

    def _complete(self, s: tree.Stage, made: Sequence[Computed], outputs: Mapping[str, Buffer]) -> None:
        """Add a stage with the reductions before it. What it stores to and is no output gets a buffer."""
        for c in made:
            loops = len(c.spatial) + len(c.reduce)
            if loops > MOST_LOOPS:
                raise Invalid(problems.TOO_MANY_LOOPS(s.span, name=s.name, count=loops, most=MOST_LOOPS))
            if (found := next(filter(None, map(ir.too_large, c.values)), None)) is not None:
                raise Invalid(problems.LONG_VALUE(s.value.span, name=s.name, found=found))
            require_steps(c, self.env, s.span)
            if any(name in self.parts.views for name in c.buffers) and (c.scan is not None or len(c.buffers) > 1):
                what = "a scan" if c.scan is not None else "a reduction to several values"
                raise Invalid(NOT_INTO_A_VIEW(s.span, name=s.name, what=what))
            for name, value in zip(c.buffers, c.values, strict=True):
                if name not in outputs:
                    self.parts.let(_buffer(name, ir.dtype_of(value), tuple(c.spatial.values()), s.span))
            self._add(c, s.span)
        self.found.extend(d for c in made for d in check_loads(c, self.parts.buffers, self.env))

    def _add(self, c: Computed, at: Span) -> None:
        if len(self.parts.stages) >= MOST_STAGES:
            raise Invalid(problems.TOO_MANY_STAGES(at, most=MOST_STAGES))
        self.parts.stages.append(c)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call_stage(self, s: tree.Stage, call: tree.CallExpr) -> None:
        """Add the stages of a call that is the whole value of a stage."""
        names = s.targets or (s.name,)
        for n, name in enumerate(names):
            if name != "_" and name in names[:n]:
                raise Invalid(problems.TAKEN(name.span, name=name, what="another of these places"))
        outputs = [None if name == "_" else self._output(s, name) for name in names]
        wanted = [
            Wanted(None if name == "_" else (lambda name=name, b=b: self._name(name, b)), b)
            for name, b in zip(names, outputs, strict=True)
        ]
        for name, b in zip(names, self._call(call, wanted), strict=True):
            if name != "_":
                self.known[name] = b

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
                    return replace(node, base=base, indices=tuple(rewrite_tree(i, call) for i in node.indices))
                case _:
                    return None

        called = (e.base if isinstance(e, tree.IndexExpr) else e for e in inside(value))
        if not any(isinstance(e, tree.CallExpr) for e in called):
            return value
        new = rewrite_tree(value, call)
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
        (self.known[name],) = self._call(e, [Wanted(lambda: fresh(base, self.parts.used))])
        self.calls.append((e, name))
        return name

    def _call(self, e: tree.CallExpr, wanted: Sequence[Wanted]) -> list[Buffer]:
        """Add the stages of a call. Returns the buffers of its results."""
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
        if len(callee.outputs) != len(wanted):
            places = ", ".join(f"{p.name}" for p in callee.outputs)
            repair = f"let ({places}) = {e.span.text}" if len(callee.outputs) > 1 else f"let {places} = {e.span.text}"
            raise Invalid(
                problems.SEVERAL_OUTPUTS(e.span, compute=callee.name, count=len(callee.outputs), repair=repair)
            )
        args = each(*(lambda a=a: self._argument(a, callee) for a in e.args))
        inner = call_environment(callee, args, e, self.env)
        made = _Elaboration(callee, inner, self.library, self.parts)
        targets: list[Buffer] = []
        for result, place in zip(callee.outputs, wanted, strict=True):
            dtype, shape, output = param_type(result, inner), made.shape_of(result), place.output
            if output is not None:
                same = len(shape) == len(output.shape) and all(map(equal, shape, output.shape))
                if dtype != output.dtype or not same:
                    told, found = format_buffer(output), format_buffer(Buffer(output.name, dtype, shape))
                    raise Invalid(problems.RESULT(e.span, wanted=told, compute=callee.name, found=found))
            stem = targets[0].name if targets else self.prefix + callee.name
            name = place.name() if place.name is not None else fresh(f"{stem}_{result.name}", self.parts.used)
            targets.append(output or self.parts.let(_buffer(name, dtype, shape, e.span)))
        if self.env.unbound:
            return targets  # the called compute's own check reports its findings
        for p, a in zip(callee.inputs, args, strict=True):
            if p.constant:
                self.parts.constant.add(a.buffer.name if a.buffer.view is None else a.buffer.view.base)
        given: dict[str, Buffer] = {p.name: self._spread(p, a, inner) for p, a in zip(callee.inputs, args, strict=True)}
        results: dict[str, Buffer] = {p.name: t for p, t in zip(callee.outputs, targets, strict=True)}
        made.params, made.prefix = {**given, **results}, f"{targets[0].name}_"
        first = len(self.parts.stages)
        made.run()
        if made.found:
            note = Note("note", f"in the call `{e.span.text}`: ", e.span)
            raise Invalid(*(replace(d, notes=(*d.notes, note)) for d in made.found))
        places = [*zip(targets, wanted, strict=True)]
        dropped = {t.name for t, place in places if place.name is None}
        self._leave_out(dropped, {t.name for t, _ in places} - dropped, first)
        return targets

    def _leave_out(self, dropped: set[str], kept: set[str], first: int) -> None:
        """Leave out the stages of a call that nothing but a dropped result needs."""
        stages = self.parts.stages
        for n in reversed(range(first, len(stages))) if dropped else ():
            read = {x for c in stages[n + 1 :] for x in c.reads()}
            if not read & {*stages[n].buffers} and {*stages[n].buffers} <= dropped:
                dropped |= {x for x in stages[n].reads() if x in self.parts.lets} - kept
                for name in stages[n].buffers:
                    del self.parts.lets[name]
                del stages[n]

    def _spread(self, p: tree.TensorParam, a: Argument, inner: Environment) -> Buffer:
        """An argument for the parameter: where it has one element along a dimension and the result has several, a view that
        has this element everywhere."""
        shape = tuple(extent(e, inner, f"`{p.name}`") for e in p.type.shape)
        if all(map(equal, shape, a.buffer.shape)):
            return a.buffer
        names = [fresh(f"{p.name}_{k}", self.parts.used) for k in range(len(shape))]
        places = zip(names, shape, a.buffer.shape, strict=True)
        at = tuple(ir.Var(n) if equal(size, own) else ir.ZERO for n, size, own in places)
        of = ir.Load(a.buffer.name, at, a.buffer.dtype)
        return self._viewed(fresh(p.name, self.parts.used), of, dict(zip(names, shape, strict=True)), a.span)

    def _argument(self, e: tree.Expr, callee: tree.ComputeDef) -> Argument:
        match e:
            case tree.Name(id=name) if name in self.known:
                return Argument(self.known[name], e.span)
            case tree.Name(id=name) if name not in self.env:
                if name in {n for s in self.defn.stages for n in s.names}:
                    raise Invalid(problems.TOO_EARLY(e.span, name=name))
                raise Invalid(
                    problems.UNKNOWN_NAME(
                        e.span, what="tensor", name=name, notes=near(name, self.known, f"declare `{name}` first")
                    )
                )
            case tree.CallExpr(function=tree.Name(id=name)) if name in self.defined.computes:
                return Argument(self.known[self._call_value(e)], e.span)
            case _:
                raise Invalid(problems.CALLED_WITH_EXPRESSION(e.span, compute=callee.name, text=e.span.text))

    def program(self, name: str) -> Program:
        p = self.parts
        used = {*p.buffers, *(c.name for c in p.stages), *(d.name for d in self.env.open)}
        body = nests(p.stages, used)
        params = tuple(self.params[x.name] for x in (*self.defn.inputs, *self.defn.outputs))
        inputs = {x.name for x in self.defn.inputs}
        constant = p.constant & inputs - {x.updates for x in params}
        params = tuple(replace(x, constant=x.constant or x.name in constant) for x in params)
        assumed = tuple((f"{ASSUMED}{name}", what) for name, what in sorted(p.assumed.items()) if name in inputs)
        made = Program(str(name), params, tuple(p.lets.values()), body, self.env.open, assumed)
        return without_views(made, p.views, inputs)


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
