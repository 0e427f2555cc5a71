"""The compute layer: a `compute` and its bindings become a program, or a list of findings.

Each stage is one perfect nest of serial loops over one block. The block and its buffer are named as the stage, a loop as its
index (made unique in the program), an iterator `v<index>`. Reductions inside expressions have become stages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc_dsl.affine.safety import Outside, Unproven, below, check_access
from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.check import compute_problems as problems
from tensorc_dsl.check.compute_bindings import LARGEST, Bound, Environment, bind, extent
from tensorc_dsl.check.compute_names import check_names, inside
from tensorc_dsl.check.compute_problems import Invalid, suggestion
from tensorc_dsl.check.compute_ranges import infer_ranges
from tensorc_dsl.check.compute_reducers import REDUCERS, identity
from tensorc_dsl.check.compute_values import Access, Computed, StageBuilder
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Stmt, Store, fresh
from tensorc_dsl.syntax import tree


def elaborate(defn: tree.ComputeDef, bindings: Mapping[str, Bound], name: str | None = None) -> Program:
    """The unscheduled program of a compute whose dimensions are all bound; `name` replaces the compute's own.

    `bindings` gives dimensions and int attributes as integers, dtype attributes as type names; a dimension that is given
    as a range stays open. Raises TschedError with every finding.
    """
    env, found = bind(defn, bindings, open_dims=False)
    if found:
        raise TschedError(*found)
    elaboration = _Elaboration(defn, env)
    elaboration.run()
    if elaboration.found:
        raise TschedError(*elaboration.found)
    return elaboration.program(name or defn.name)


def check(defn: tree.ComputeDef) -> list[Diagnostic]:
    """What is wrong with a compute before anyone binds it.

    Attributes have their defaults, dimensions are open; what is wrong for some sizes is a finding. Questions that only
    bound sizes can answer (an access that is not affine in open dimensions) wait for `elaborate`.
    """
    env, found = bind(defn, {}, open_dims=True)
    if found:
        return found
    elaboration = _Elaboration(defn, env)
    elaboration.run()
    return elaboration.found


class _Elaboration:
    """One pass over a compute: collects findings, and the stages that have none."""

    def __init__(self, defn: tree.ComputeDef, env: Environment) -> None:
        self.defn = defn
        self.env = env
        self.found: list[Diagnostic] = []
        self.params: dict[str, Buffer] = {}
        self.lets: dict[str, Buffer] = {}
        self.stages: list[Computed] = []
        self.broken: set[str] = set()
        """Stages and tensors with findings: what reads them is not looked at, so that one mistake is one finding."""

    def run(self) -> None:
        for p in (*self.defn.inputs, *self.defn.outputs):
            self._guard(p.name, lambda p=p: self._param(p))
        outputs = {p.name for p in self.defn.outputs}
        known = {name: b for name, b in self.params.items() if name not in outputs}
        names = {p.name for p in (*self.defn.inputs, *self.defn.outputs)} | {s.name for s in self.defn.stages}
        used = names | set(self.env.names())
        written: set[str] = set()
        for s in self.defn.stages:
            if s.name in outputs:
                written.add(s.name)
            if isinstance(s, tree.StageCall):
                self.found.append(problems.UNSUPPORTED(s.span, what="a call of a compute", repair="write its stages"))
                self.broken.add(s.name)
                continue
            if any(isinstance(e, tree.Name) and e.id in self.broken for e in inside(s.value)):
                self.broken.add(s.name)
                continue
            self._guard(s.name, lambda s=s: self._stage(s, known, used))
        for p in self.defn.outputs:
            if p.name not in written:
                indices = ", ".join("ijklmnop"[: len(p.type.shape)])
                self.found.append(problems.UNWRITTEN(p.span, name=p.name, indices=indices))

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Invalid as e:
            self.broken.add(name)
            self.found.extend(e.diagnostics)

    def _param(self, p: tree.TensorParam) -> None:
        if p.name in self.params or p.name in self.env.names():
            raise Invalid(problems.TAKEN(p.span, name=p.name, what="a tensor, a dimension or an attribute"))
        known = {**DTYPES, **self.env.dtypes}
        if p.type.dtype not in known:
            notes = suggestion(p.type.dtype, known)
            raise Invalid(problems.UNKNOWN_TYPE(p.type.span, name=p.type.dtype, notes=notes))
        dtype = known[p.type.dtype]
        shape = tuple(extent(e, self.env, f"dimension {k + 1} of `{p.name}`") for k, e in enumerate(p.type.shape))
        self.params[p.name] = _buffer(p.name, dtype, shape, p)

    def _stage(self, s: tree.Stage, known: dict[str, Buffer], used: set[str]) -> None:
        output = None
        if s.is_let:
            if s.name in self.params or s.name in self.lets or s.name in self.env.names():
                raise Invalid(problems.TAKEN(s.span, name=s.name, what="a tensor, a dimension or an attribute"))
        else:
            outputs = [p.name for p in self.defn.outputs]
            if s.name not in outputs:
                raise Invalid(
                    problems.NOT_AN_OUTPUT(
                        s.span, name=s.name, compute=self.defn.name, notes=suggestion(s.name, outputs)
                    )
                )
            if s.name in known:
                raise Invalid(problems.TAKEN(s.span, name=s.name, what="computed by an earlier stage"))
            if s.name not in self.params:
                raise Invalid  # its declaration is reported
            output = self.params[s.name]
            if len(output.shape) != len(s.indices):
                raise Invalid(problems.RANK(s.span, name=s.name, rank=len(output.shape), count=len(s.indices)))
        later = {t.name for t in self.defn.stages} - set(known)
        check_names(s.value, known, later, self.env)
        ranges = infer_ranges(s, output.shape if output else None, known, self.env)
        builder = StageBuilder(self.env, known, ranges, used)
        computed = builder.stage(s, output.dtype if output else None)
        for c in (*builder.lifted, computed):
            self._steps(c, s)
            buffer = output
            if c is not computed or buffer is None:
                buffer = _buffer(c.name, ir.dtype_of(c.value), tuple(c.spatial.values()), s)
                self.lets[c.name] = buffer
            self.stages.append(c)
            known[c.name] = buffer
        outside = [d for c in (*builder.lifted, computed) for a in c.accesses for d in self._access(a, c, known)]
        self.found.extend(outside)

    def _steps(self, c: Computed, s: tree.Stage) -> None:
        """Raise Invalid for a reduction that has no steps for some sizes: its `init` would not run for them."""
        for name, size in c.reduce.items():
            if self.env.unbound or ir.constant(size) is not None:
                continue
            at = below(size, 1, self.env.open)
            if at is not None:
                sizes = ", ".join(f"{n} = {v}" for n, v in at) or "some sizes"
                raise Invalid(problems.EMPTY_REDUCTION(s.span, index=name, extent=format_expr(size), sizes=sizes))

    def _access(self, a: Access, c: Computed, known: Mapping[str, Buffer]) -> list[Diagnostic]:
        shape = known[a.load.buffer].shape
        extents = {**c.spatial, **c.reduce}
        match check_access(extents, a.conditions, a.load.indices, shape, self.env.open):
            case None:
                return []
            case Outside(position=p, value=value, extent=limit, at=at):
                values = ", ".join(f"{n} = {v}" for n, v in at)
                return [
                    problems.OUT_OF_BOUNDS(
                        a.spans[p],
                        position=p + 1,
                        name=a.load.buffer,
                        value=value,
                        extent=limit,
                        values=values or "always",
                    )
                ]
            case Unproven(position=p, interval=(low, high)):
                if self.env.unbound:
                    return []
                known_range = f"{low} to {high}" if low is not None and high is not None else "any number"
                limit = format_expr(shape[p])
                return [
                    problems.UNPROVEN(
                        a.spans[p], position=p + 1, name=a.load.buffer, extent=limit, interval=known_range
                    )
                ]

    def program(self, name: str) -> Program:
        used = {*self.params, *self.lets, *(c.name for c in self.stages), *(d.name for d in self.env.open)}
        body = tuple(_nest(c, used) for c in self.stages)
        return Program(name, tuple(self.params.values()), tuple(self.lets.values()), body, self.env.open)


def _buffer(name: str, dtype: DType, shape: tuple[ir.Expr, ...], at: tree.TensorParam | tree.Stage) -> Buffer:
    size = dtype.bytes
    for e in shape:
        size *= bounds(e, {})[1] or 1  # of what is open, the largest; without a limit it is not known yet
    if size > LARGEST:
        raise Invalid(problems.TOO_LARGE(at.span, what=f"the size of `{name}` in bytes", value=size))
    return Buffer(name, dtype, shape)


def _nest(c: Computed, used: set[str]) -> Stmt:
    """The loops and the block of a stage; the names of its loops are added to `used`."""
    if c.reducer is not None and any(ir.constant(size) == 0 for size in c.reduce.values()):
        # A block without instances never runs its `init`: what is left of an empty reduction is its identity.
        nothing = identity(c.reducer, ir.dtype_of(c.value))
        c = Computed(c.name, c.spatial, {}, None, nothing, ())
    loops = {n: fresh(n, used) for n in (*c.spatial, *c.reduce)}
    avoid = set(used)
    names = {n: fresh(f"v{n}", avoid) for n in loops}
    iters = tuple(
        Iter(names[n], kind, size, ir.Var(loops[n]))
        for kind, part in ((IterKind.SPATIAL, c.spatial), (IterKind.REDUCE, c.reduce))
        for n, size in part.items()
    )
    target = tuple(ir.Var(names[n]) for n in c.spatial)
    value = ir.substitute(c.value, {n: ir.Var(v) for n, v in names.items()})
    init: tuple[Store, ...] = ()
    if c.reducer is not None:
        dtype = ir.dtype_of(value)
        init = (Store(c.name, target, identity(c.reducer, dtype)),)
        value = REDUCERS[c.reducer].combine(ir.Load(c.name, target, dtype), value)
    out: Stmt = Block(c.name, iters, (Store(c.name, target, value),), init)
    for n, size in reversed([*c.spatial.items(), *c.reduce.items()]):
        out = For(loops[n], size, (out,))
    return out
