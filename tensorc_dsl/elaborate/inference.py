"""Infers what a compute does not say: the types of its expressions, before any of them is built, and the ranges of indices,
which are written in the text, taken from the shape of the output, or follow from uses as subscripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tensorc_dsl.base.diagnostic import Note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import Environment, extent, names_in
from tensorc_dsl.elaborate.names import ARG_REDUCERS, inside, parts
from tensorc_dsl.elaborate.problems import (
    NO_RANGE,
    PART_OF_STAGE,
    RANGE_OF_INDEX,
    RANGES_DIFFER,
    RANK,
    TAKEN,
    Invalid,
    each,
)
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F32, I32, I64, INDEX, U64, DType, largest_finite, limits
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.maths import CONDITIONS, Takes
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import expression_text

# Repairs as text: what a file says with a conversion or a comparison around it, in the parentheses that it needs there.


def of_one_type(op: str, a: tree.Expr, s: DType, b: tree.Expr, t: DType, at: tree.Expr) -> str:
    """`a op b` with operands of types `s` and `t`: the index, the bool or the narrower one is converted to the other type.

    A bool and an index meet as i32.
    """
    if {s, t} == {BOOL, INDEX}:
        return expression_text(_operation(op, _cast(a, I32), _cast(b, I32), at))
    first = s in (INDEX, BOOL) or (t not in (INDEX, BOOL) and (s.is_float, s.bits) < (t.is_float, t.bits))
    return expression_text(_operation(op, _cast(a, t) if first else a, b if first else _cast(b, s), at))


def of_kind(name: str, kind: Takes, args: Sequence[tree.Expr], at: tree.Expr) -> str:
    """A call with the arguments as i32 or f32; a literal has the type of the others."""
    t = I32 if kind is Takes.INTEGERS else F32
    return expression_text(_call(name, [a if isinstance(a, tree.Number) else _cast(a, t) for a in args], at))


def not_zero(e: tree.Expr) -> str:
    """`e != 0`."""
    return expression_text(tree.CompareExpr(("!=",), (e, tree.Number(0, e.span)), e.span))


def held(t: DType, value: int | float) -> tuple[str, str]:
    """The numbers that a type holds, and a type that holds a value that this one does not."""
    if t.is_float:
        return f"numbers up to {largest_finite(t):g}", "f64" if t == F32 or abs(value) > largest_finite(F32) else "f32"
    if t == BOOL:
        return "true and false", "i32"
    low, high = limits(t)
    wider = next((s for s in (I32, I64) if limits(s)[0] <= value <= limits(s)[1]), U64)
    return f"whole numbers from {low} to {high}", "f32" if isinstance(value, float) else str(wider)


def _operation(op: str, a: tree.Expr, b: tree.Expr, at: tree.Expr) -> tree.Expr:
    match op:
        case "+" | "-" | "*" | "/" | "%":
            return tree.BinaryExpr(op, a, b, at.span)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return tree.CompareExpr((op,), (a, b), at.span)
        case name:
            return _call(name, [a, b], at)


def _cast(e: tree.Expr, to: DType) -> tree.Expr:
    return _call(str(to), [e], e)


def _call(name: str, args: Sequence[tree.Expr], at: tree.Expr) -> tree.Expr:
    return tree.CallExpr(tree.Name(name, at.span), tuple(args), (), at.span)


Extents = dict[str, ir.Expr]


class TypeFinder:
    """Finds types in one stage. `scope` has the iterators there with their extents."""

    def __init__(self, env: Environment, buffers: Mapping[str, Buffer]) -> None:
        self.env = env
        self.buffers = buffers
        self.scope = Extents()
        self._inferred: dict[int, tuple[tree.Expr, Extents, Mapping[str, Buffer], DType | None]] = {}
        """By the identity of an expression, its type in a scope: those around it ask again."""

    def infer(self, e: tree.Expr) -> DType | None:
        """The type of `e` as far as names determine it; None for literals and expressions of literals only."""
        if (known := self._inferred.get(id(e))) is not None and known[1] is self.scope and known[2] is self.buffers:
            return known[3]
        found = self._infer(e)
        self._inferred[id(e)] = e, self.scope, self.buffers, found
        return found

    def _infer(self, e: tree.Expr) -> DType | None:
        match e:
            case tree.Name(id=name):
                if name in self.env.floats or name == "inf":
                    return None
                return self.buffers[name].dtype if name in self.buffers and name not in self.scope else INDEX
            case tree.Bool() | tree.CompareExpr() | tree.LogicExpr() | tree.NotExpr():
                return BOOL
            case tree.BinaryExpr(lhs=a, rhs=b) | tree.Conditional(then=a, other=b):
                return self.infer(a) or self.infer(b)
            case tree.Negate(operand=a):
                return self.infer(a)
            case tree.CallExpr(function=tree.Name(id=name), args=args):
                if (cast := self.named_dtype(name)) is not None:
                    return cast
                if name == "clamp":
                    t = next((t for t in map(self.infer, args) if t is not None), None)
                    return t if t is not None and t.is_float else None if t is None and self.is_decimal(e) else INDEX
                if name in ("saturate", "bitcast"):
                    return self.type_named_by(args[0]) if args else None
                if name in CONDITIONS:
                    return BOOL
                values = args[1:] if name == "select" else args
                return next((t for t in map(self.infer, values) if t is not None), None)
            case tree.IndexExpr(base=tree.Name(id=name)) if name in self.buffers:
                return self.buffers[name].dtype
            case tree.Reduce(reducer=name, body=body):
                return I64 if name in ARG_REDUCERS else self.infer(body)
            case _:
                return None

    def named_dtype(self, name: str) -> DType | None:
        return self.env.dtypes.get(name) or DTYPES.get(name)

    def type_named_by(self, e: tree.Expr) -> DType | None:
        return self.named_dtype(e.id) if isinstance(e, tree.Name) else None

    def is_decimal(self, e: tree.Expr) -> bool:
        """Whether a literal in `e`, or a name for one, is not an integer."""
        return any(
            isinstance(x.value, float) if isinstance(x, tree.Number) else x.id in self.env.floats or x.id == "inf"
            for x in inside(e)
            if isinstance(x, (tree.Number, tree.Name))
        )

    def same_type(self, found: DType, want: DType, at: tree.Expr, what: str) -> None:
        """Raise Invalid unless the expression at `at` has the wanted type."""
        if found == want:
            return
        text = at.span.text
        if found == INDEX:
            self.no_value(at, want)
        if want == BOOL:
            raise Invalid(problems.NOT_BOOL(at.span, what=what, found=found, repair=not_zero(at)))
        if isinstance(at, tree.CallExpr) and self.type_named_by(at.function) == found and len(at.args) == 1:
            text = at.args[0].span.text  # one conversion is enough
        raise Invalid(problems.WRONG_TYPE(at.span, what=what, found=found, dtype=want, text=text))

    def no_value(self, e: tree.Expr, want: DType | None) -> NoReturn:
        """Raise Invalid for an index where a value is wanted, at the branch of `e` that is one."""
        while isinstance(e, tree.Conditional):
            e = e.then if self.infer(e.then) == INDEX else e.other
        text = e.span.text
        if want is None:
            raise Invalid(problems.INDEX_ALONE(e.span, text=text))
        raise Invalid(problems.INDEX_AS_VALUE(e.span, dtype=want, text=text))


@frozen
class Use:
    """A use of an index as a whole subscript. `guarded`: inside a branch of a conditional."""

    extent: Expr
    span: Span
    where: str
    guarded: bool


@dataclass(slots=True)
class Ranges:
    """The extent of each index of a stage, by the node that introduces it."""

    _extents: dict[int, Expr] = field(default_factory=dict[int, Expr])

    def of(self, spec: tree.IndexSpec) -> Expr:
        return self._extents[id(spec)]

    def set(self, spec: tree.IndexSpec, extent: Expr) -> None:
        self._extents[id(spec)] = extent


def infer_ranges(
    stage: tree.Stage, shape: tuple[Expr, ...] | None, buffers: Mapping[str, Buffer], env: Environment
) -> Ranges:
    """The range of every index of the stage, those of its reductions included. Raises Invalid.

    A written range holds. An index of an output has the range of the output's dimension. Otherwise all uses as a whole
    subscript must agree. Uses inside the branches of a conditional count only if there are no others, since the condition
    restricts their values.
    """
    inference = _Inference(stage, shape, buffers, env)
    inference.visit(stage.value, inference.introduce(stage.indices, {}), False)
    inference.require_ranges_without_indices()
    ranges = Ranges()
    each(*(lambda spec=spec: ranges.set(spec, inference.settled(spec)) for spec in inference.specs))
    return ranges


Scope = Mapping[str, tree.IndexSpec]
"""The indices at a place in a stage, by name."""


class _Inference:
    """The indices of a stage, with their uses as whole subscripts."""

    def __init__(
        self, stage: tree.Stage, shape: tuple[Expr, ...] | None, buffers: Mapping[str, Buffer], env: Environment
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.buffers = buffers
        self.env = env
        self.specs: list[tree.IndexSpec] = []
        self.uses: dict[int, list[Use]] = {}

    def introduce(self, new: tuple[tree.IndexSpec, ...], scope: Scope) -> Scope:
        """The scope with new indices. Raises Invalid if the name of one is taken."""
        inner = dict(scope)
        for spec in new:
            if spec.name in inner:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="an index here"))
            if spec.name in self.env:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a dimension or an attribute"))
            if spec.name in self.buffers:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a tensor"))
            inner[spec.name] = spec
            self.specs.append(spec)
            self.uses[id(spec)] = []
        return inner

    def visit(self, e: tree.Expr, scope: Scope, guarded: bool) -> None:
        """Add the uses and the indices in an expression."""
        match e:
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name in self.buffers:
                shape = self.buffers[name].shape
                if len(shape) != len(indices):
                    raise Invalid(RANK(e.span, name=name, rank=len(shape), count=len(indices)))
                for position, (i, size) in enumerate(zip(indices, shape, strict=True), 1):
                    if isinstance(i, tree.Name) and i.id in scope:
                        self._use(scope[i.id], size, i.span, f"subscript {position} of `{name}`", guarded)
                    else:
                        self.visit(i, scope, guarded)
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name == self.stage.name:
                for position, i in enumerate(indices[: len(self.stage.indices)]):
                    if isinstance(i, tree.Name) and i.id in scope and scope[i.id] not in self.stage.indices:
                        self._own_use(position, i, scope[i.id], guarded)
                    self.visit(i, scope, guarded)
            case tree.Reduce(indices=new, body=body):
                self.visit(body, self.introduce(new, scope), guarded)
            case tree.Scan(index=spec, init=init, step=step):
                if spec.name in scope and spec.extent is not None:
                    self._use(scope[spec.name], self._extent(spec.name, spec.extent), spec.span, "the scan", False)
                self.visit(init, scope, guarded)
                self.visit(step, scope, guarded)
            case tree.Conditional(cond=cond, then=then, other=other):
                self.visit(cond, scope, guarded)
                self.visit(then, scope, True)
                self.visit(other, scope, True)
            case _:
                for p in parts(e):
                    self.visit(p, scope, guarded)

    def _use(self, spec: tree.IndexSpec, size: Expr, span: Span, where: str, guarded: bool) -> None:
        self.uses[id(spec)].append(Use(size, span, where, guarded))

    def _own_use(self, position: int, i: tree.Name, of: tree.IndexSpec, guarded: bool) -> None:
        """A scan that reduces itself: the index has the range of that dimension, where it is known by now."""
        own = self.stage.indices[position]
        if self.shape is not None and position < len(self.shape):
            size = self.shape[position]
        elif own.extent is not None:
            size = self._extent(own.name, own.extent)
        else:
            return
        self._use(of, size, i.span, f"subscript {position + 1} of `{self.stage.name}`", guarded)

    def _extent(self, name: str, written: tree.Expr) -> Expr:
        return extent(written, self.env, f"the range of `{name}`")

    def require_ranges_without_indices(self) -> None:
        """Raises Invalid if a written range is over an index."""
        indices = {spec.name for spec in self.specs}
        for spec in self.specs:
            if spec.extent is not None:
                for n in names_in(spec.extent):
                    if n.id in indices:
                        text = spec.extent.span.text
                        raise Invalid(RANGE_OF_INDEX(n.span, index=spec.name, name=n.id, extent=text))

    def settled(self, spec: tree.IndexSpec) -> Expr:
        """The range of an index, on which all that is known of it agrees. Raises Invalid."""
        written = None if spec.extent is None else self._extent(spec.name, spec.extent)
        own = self._dimension(spec)
        if written is not None:
            if own is not None and written != own.extent:
                first, second = format_expr(own.extent), format_expr(written)
                position = self.stage.indices.index(spec) + 1
                raise Invalid(
                    PART_OF_STAGE(
                        spec.span, name=spec.name, stage=self.stage.name, position=position, first=first, second=second
                    )
                )
            return written
        uses = self.uses[id(spec)]
        evidence = [] if own is None else [own]
        evidence += [u for u in uses if not u.guarded]
        evidence = evidence or uses
        if not evidence:
            raise Invalid(NO_RANGE(spec.span, name=spec.name))
        for other in evidence[1:]:
            _agree(spec, evidence[0], other)
        return evidence[0].extent

    def _dimension(self, spec: tree.IndexSpec) -> Use | None:
        """The dimension of the stage that an index counts, if its shape is known."""
        if self.shape is None or spec not in self.stage.indices:
            return None
        position = self.stage.indices.index(spec)
        return Use(self.shape[position], spec.span, f"dimension {position + 1} of `{self.stage.name}`", False)


def _agree(spec: tree.IndexSpec, a: Use, b: Use) -> None:
    if a.extent != b.extent:
        first, second = format_expr(a.extent), format_expr(b.extent)
        note = Note("note", f"{a.where} has {first}, {b.where} has {second}")
        raise Invalid(RANGES_DIFFER(b.span, name=spec.name, first=first, second=second, notes=(note,)))
