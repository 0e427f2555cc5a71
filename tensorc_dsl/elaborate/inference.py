"""Finds the types of expressions of the compute layer, before any of them is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.names import ARG_REDUCERS, inside
from tensorc_dsl.elaborate.problems import Invalid
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F32, I32, I64, INDEX, U64, DType, largest_finite, limits
from tensorc_dsl.ir.maths import CONDITIONS, Takes
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import expr

# Repairs as text: what a file says with a conversion or a comparison around it, in the parentheses that it needs there.


def of_one_type(op: str, a: tree.Expr, s: DType, b: tree.Expr, t: DType, at: tree.Expr) -> str:
    """`a op b` with operands of types `s` and `t`: the index, the bool or the narrower one is converted to the other type.

    A bool and an index meet as i32.
    """
    if {s, t} == {BOOL, INDEX}:
        return expr(_operation(op, _cast(a, I32), _cast(b, I32), at))
    first = s in (INDEX, BOOL) or (t not in (INDEX, BOOL) and (s.is_float, s.bits) < (t.is_float, t.bits))
    return expr(_operation(op, _cast(a, t) if first else a, b if first else _cast(b, s), at))


def of_kind(name: str, kind: Takes, args: Sequence[tree.Expr], at: tree.Expr) -> str:
    """A call with the arguments as i32 or f32; a literal has the type of the others."""
    t = I32 if kind is Takes.INTEGERS else F32
    return expr(_call(name, [a if isinstance(a, tree.Number) else _cast(a, t) for a in args], at))


def not_zero(e: tree.Expr) -> str:
    """`e != 0`."""
    return expr(tree.CompareExpr(("!=",), (e, tree.Number(0, e.span)), e.span))


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
