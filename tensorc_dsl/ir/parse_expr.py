"""Turns syntax trees of expressions into expressions of the IR: resolves names, types literals, checks types.

A literal takes the type of its context: of the other operand, of the buffer that it is stored to, else `index`. Nothing is
converted unless the text says so: `f32(vi)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir import problems
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, INDEX, DType, holds_value, limits
from tensorc_dsl.ir.maths import CONDITIONS, MATHS, Takes
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near

CASTS: dict[str, DType] = {**DTYPES, "index": INDEX}


@frozen
class VisibleNames:
    """The names that an expression may use: buffers, open dimensions, and variables by their names in the text.

    `hidden` has the names that exist but may not be used here, each with the reason.
    """

    buffers: Mapping[str, Buffer]
    dims: Mapping[str, ir.Dim]
    variables: Mapping[str, str]
    hidden: Mapping[str, str]

    def index(self, e: t.Expr) -> ir.Expr:
        """An index that does not depend on data: an extent, a binding, or a subscript of a stored element."""
        return _known(
            self._subscript(e), e.span, "only the subscript of a load may: `… = W[min(max(index(I[vi]), 0), 9)]`"
        )

    def _subscript(self, e: t.Expr) -> ir.Expr:
        return self._typed(e, INDEX, "an index is needed here")

    def guard(self, e: t.Expr) -> ir.Expr:
        """The condition of a block's `where`, which does not depend on data."""
        return _known(self.condition(e), e.span, "let data choose what is stored: `B[vi] = … if A[vi] > 0 else …`")

    def condition(self, e: t.Expr) -> ir.Expr:
        return self._typed(e, BOOL, "a condition is needed here")

    def stored(self, e: t.Expr, buffer: Buffer) -> ir.Expr:
        """A value of the type of `buffer`."""
        return self._typed(e, buffer.dtype, f"`{buffer.name}` holds {buffer.dtype}")

    def _typed(self, e: t.Expr, want: DType, why: str) -> ir.Expr:
        value = self._value(e, want)
        found = ir.dtype_of(value)
        if found != want:
            if _is_cast(want):
                text = format_expr(value)
                raise TschedError(problems.CONVERTIBLE(e.span, why=why, found=found, wanted=want, value=text))
            repair = _compared_or_converted(format_expr(value), found, want)
            raise TschedError(problems.OTHER_TYPE(e.span, why=why, found=found, repair=repair))
        return value

    def _infer(self, e: t.Expr) -> DType | None:
        """The type of `e` if it is independent of the context; None for literals and expressions of literals only."""
        match e:
            case t.Name(id=name):
                return self.buffers[name].dtype if self._single(name) else INDEX
            case t.Bool() | t.CompareExpr() | t.LogicExpr() | t.NotExpr():
                return BOOL
            case t.IndexExpr(base=t.Name(id=name)) if name in self.buffers:
                return self.buffers[name].dtype
            case t.BinaryExpr(lhs=a, rhs=b) | t.Conditional(then=a, other=b):
                return self._infer(a) or self._infer(b)
            case t.Negate(operand=a):
                return self._infer(a)
            case t.CallExpr(function=t.Name(id=name), args=args):
                if name in CONDITIONS:
                    return BOOL
                if name == "bitcast":
                    return _type_in(e)
                return CASTS.get(name) or next((d for a in args if (d := self._infer(a))), None)
            case _:
                return None

    def _value(self, e: t.Expr, want: DType | None) -> ir.Expr:
        match e:
            case t.Number(value=v):
                return _literal(v, want, e.span)
            case t.Negate(operand=t.Number(value=v)):
                return _literal(-v, want, e.span)
            case t.Bool(value=v):
                return ir.Const(v, BOOL)
            case t.Name(id=name):
                return self._variable(name, e.span)
            case t.IndexExpr():
                return self.access(e)
            case t.Negate(operand=a):
                x = self._value(a, want)
                if ir.dtype_of(x) == BOOL:
                    raise TschedError(problems.NEGATED_BOOL(a.span))
                # -1 * x instead of 0 - x, which would lose the sign of a zero.
                kind = _computes(ir.dtype_of(x), "-", a.span)
                return (
                    ir.Binary("*", ir.Const(-1.0, kind), x) if kind.is_float else ir.Binary("-", ir.Const(0, kind), x)
                )
            case t.BinaryExpr(op=op, lhs=a, rhs=b):
                return self._arithmetic(op, a, b, want, e.span)
            case t.CompareExpr(ops=ops, operands=operands):
                return self._comparison(ops, operands)
            case t.LogicExpr(op=op, lhs=a, rhs=b):
                return ir.Logic(op, self.condition(a), self.condition(b))
            case t.NotExpr(operand=a):
                return ir.Not(self.condition(a))
            case t.Conditional(cond=c, then=a, other=b):
                x, y = self._pair(a, b, want, "the branches", e.span)
                return ir.Select(self.condition(c), x, y)
            case t.CallExpr():
                return self._call(e, want)
            case t.String() | t.Wildcard() | t.ListExpr() | t.MapExpr() | t.Attribute() | t.Reduce() | t.Scan() | (
                t.TupleExpr() | t.SliceExpr() | t.RangeExpr() | t.Lambda() | t.ForList()
            ):  # fmt: skip
                raise TschedError(problems.NOT_IN_PROGRAM(e.span))
            case _:
                assert_never(e)

    def _variable(self, name: str, span: Span) -> ir.Expr:
        if name in self.variables:
            return ir.Var(self.variables[name])
        if name in self.dims:
            return self.dims[name]
        if self._single(name):
            return ir.Load(name, (), self.buffers[name].dtype)
        if name in self.buffers:
            subscripts = ", ".join("…" for _ in self.buffers[name].shape)
            raise TschedError(problems.IS_BUFFER(span, name=name, subscripts=subscripts))
        if name in self.hidden:
            raise TschedError(problems.HIDDEN(span, name=name, reason=self.hidden[name]))
        raise TschedError(
            problems.UNKNOWN_NAME(span, near(name, (*self.variables, *self.dims), f"declare `{name}` first"), name=name)
        )

    def _single(self, name: str) -> bool:
        """Whether the name is that of a buffer without dimensions, which is a value."""
        return (
            name not in self.variables
            and name not in self.dims
            and name in self.buffers
            and not self.buffers[name].shape
        )

    def access(self, e: t.IndexExpr) -> ir.Load:
        """The load of an element, with the number and the types of its subscripts checked."""
        if not isinstance(e.base, t.Name):
            raise TschedError(problems.SUBSCRIPTED(e.base.span))
        buffer = self.buffer(e.base.id, e.base.span)
        self._rank(buffer, e.indices, e.span)
        return ir.Load(buffer.name, tuple(map(self._subscript, e.indices)), buffer.dtype)

    def buffer(self, name: str, span: Span) -> Buffer:
        if name not in self.buffers:
            raise TschedError(
                problems.UNKNOWN_BUFFER(span, near(name, self.buffers, f"declare `{name}` first"), name=name)
            )
        return self.buffers[name]

    def subscripts(self, buffer: Buffer, indices: tuple[t.Expr, ...], span: Span) -> tuple[ir.Expr, ...]:
        """The subscripts of a stored element, with their number and types checked."""
        self._rank(buffer, indices, span)
        return tuple(map(self.index, indices))

    def _rank(self, buffer: Buffer, indices: tuple[t.Expr, ...], span: Span) -> None:
        if len(indices) != len(buffer.shape):
            rank = "1 dimension" if len(buffer.shape) == 1 else f"{len(buffer.shape)} dimensions"
            raise TschedError(problems.RANK(span, name=buffer.name, rank=rank, count=len(indices)))

    def _pair(self, a: t.Expr, b: t.Expr, want: DType | None, what: str, span: Span) -> tuple[ir.Expr, ir.Expr]:
        kind = self._infer(a) or self._infer(b) or want
        x, y = self._value(a, kind), self._value(b, kind)
        left, right = ir.dtype_of(x), ir.dtype_of(y)
        if left != right:
            side = y if left not in (INDEX, BOOL) else x
            goal = left if side is y else right
            if not _is_cast(goal):
                raise TschedError(problems.TWO_TYPES(span, what=what, left=left, right=right))
            text = format_expr(side)
            raise TschedError(
                problems.ONE_CONVERTIBLE(span, what=what, left=left, right=right, wanted=goal, value=text)
            )
        return x, y

    def _arithmetic(self, op: ir.BinaryOp, a: t.Expr, b: t.Expr, want: DType | None, span: Span) -> ir.Expr:
        x, y = self._pair(a, b, want, f"the operands of `{op}`", span)
        if ir.dtype_of(x) == BOOL:
            raise TschedError(problems.BOOL_OPERANDS(span, op=op))
        _computes(ir.dtype_of(x), op, span)
        if op == "xor" and ir.dtype_of(x).is_float:
            raise TschedError(problems.XOR_OPERANDS(span, found=ir.dtype_of(x)))
        return ir.Binary(op, x, y)

    def _comparison(self, ops: tuple[ir.CompareOp, ...], operands: tuple[t.Expr, ...]) -> ir.Expr:
        parts: list[ir.Expr] = []
        for op, a, b in zip(ops, operands, operands[1:], strict=False):
            x, y = self._pair(a, b, None, f"the operands of `{op}`", a.span.to(b.span))
            _computes(ir.dtype_of(x), op, a.span.to(b.span))
            parts.append(ir.Compare(op, x, y))
        joined = ir.conjunction(tuple(parts))
        assert joined is not None
        return joined

    def _call(self, e: t.CallExpr, want: DType | None) -> ir.Expr:
        name = e.function.id if isinstance(e.function, t.Name) else ""
        if name in CASTS:
            return self._cast(e, CASTS[name])
        if name == "bitcast":
            return self._bitcast(e)
        wanted = {"min": 2, "max": 2, "xor": 2, "clamp": 3, **{f: m.count for f, m in MATHS.items()}}.get(name)
        if wanted is None:
            known = (*MATHS, *DTYPES, "min", "max", "xor", "clamp", "bitcast")
            span = e.function.span
            raise TschedError(problems.UNKNOWN_FUNCTION(span, near(name, known, _WRITTEN_OUT), name=span.text))
        _count(e, name, wanted)
        if name == "min" or name == "max" or name == "xor":
            return self._arithmetic(name, e.args[0], e.args[1], want, e.span)
        if name == "clamp":
            value, low, high = e.args
            above = t.CallExpr(t.Name("max", e.span), (value, low), (), e.span)
            return self._arithmetic("min", above, high, want, e.span)
        known = MATHS[name]
        kind = next((d for a in e.args if (d := self._infer(a))), None if known.tells else want)
        args = tuple(self._value(a, kind) for a in e.args)
        for a, value in zip(e.args, args, strict=True):
            found = ir.dtype_of(value)
            if not known.accepts(found) or found != ir.dtype_of(args[0]):
                problem = problems.INTEGER_ARGUMENTS if known.takes is Takes.INTEGERS else problems.FLOAT_ARGUMENTS
                raise TschedError(problem(a.span, name=name, found=found))
        return ir.Call(name, args)

    def _bitcast(self, e: t.CallExpr) -> ir.Expr:
        _count(e, "bitcast", 2)
        if (to := _type_in(e)) is None:
            raise TschedError(problems.BITS_OF(e.args[0].span, found=f"`{e.args[0].span.text}`"))
        value = self._value(e.args[1], self._infer(e.args[1]))
        if not to.has_bits_of(found := ir.dtype_of(value)):
            raise TschedError(problems.BITS_OF(e.span, found=f"{found} as {to}"))
        return ir.Bitcast(value, to)

    def _cast(self, e: t.CallExpr, to: DType) -> ir.Expr:
        _count(e, str(to), 1)
        argument = e.args[0]
        match argument:
            case t.Number() | t.Negate(operand=t.Number()):
                return self._value(argument, to)  # a typed literal
            case _:
                # Expressions of literals only take the type that they are converted to.
                value = self._value(argument, self._infer(argument) or to)
                if to == INDEX and not (found := ir.dtype_of(value)).is_integer:
                    raise TschedError(problems.INDEX_OF_FLOAT(e.span, found=found))
                return ir.Cast(value, to)


def _type_in(e: t.CallExpr) -> DType | None:
    """The type that the first argument of a call names."""
    first = e.args[0] if e.args else None
    return DTYPES.get(first.id) if isinstance(first, t.Name) else None


_WRITTEN_OUT = "expand it to the operators and functions of programs"


def _computes(t: DType, op: str, span: Span) -> DType:
    """The type, if there is arithmetic on it. Raises TschedError otherwise."""
    if not t.has_arithmetic:
        raise TschedError(problems.STORED_OPERANDS(span, op=op, found=t))
    return t


def _is_cast(to: DType) -> bool:
    """Whether a value can be converted by writing the name of the type around it, without an effect on its meaning."""
    return to in DTYPES.values() and to != BOOL


def _compared_or_converted(value: str, found: DType, want: DType) -> str:
    """How a bool or an index is made of a value of another type."""
    if want == BOOL:
        return f"compare it with something: `{value} != 0`"
    if found == BOOL:
        return f"choose an index by it: `1 if {value} else 0`"
    return f"convert it: `index({value if found.is_integer else f'i32({value})'})`"


def _known(e: ir.Expr, span: Span, repair: str) -> ir.Expr:
    """The expression, if it does not depend on data. Raises TschedError otherwise."""
    if read := ir.loads(e):
        raise TschedError(problems.DEPENDS_ON_DATA(span, buffer=read[0].buffer, repair=repair))
    return e


def _count(e: t.CallExpr, name: str, wanted: int) -> None:
    if e.kwargs or len(e.args) != wanted:
        given = len(e.args) + len(e.kwargs)
        arguments = f"{wanted} argument{'s' * (wanted > 1)}"
        raise TschedError(problems.ARGUMENTS(e.span, name=name, wanted=arguments, count=given))


def _literal(value: int | float, want: DType | None, span: Span) -> ir.Expr:
    if want is None:
        if isinstance(value, int):
            return _literal(value, INDEX, span)
        raise TschedError(problems.NO_TYPE(span, value=value))
    if want.is_float:
        if not holds_value(want, value):
            raise TschedError(problems.NOT_HELD(span, dtype=want, value=value, limit="too large"))
        return ir.Const(float(value), want)
    if want == BOOL:
        raise TschedError(problems.NO_BOOL(span))
    if isinstance(value, float):
        raise TschedError(problems.NOT_HELD(span, dtype=want, value=value, limit="not an integer"))
    low, high = limits(want)
    if not low <= value <= high:
        raise TschedError(problems.NOT_HELD(span, dtype=want, value=value, limit=f"{low} to {high}"))
    return ir.Const(value, want)


def literal_value(e: t.Expr) -> int | float | str | bool:
    """The value of an annotation. Raises TschedError for anything but a number, a string or a bool."""
    match e:
        case t.Number(value=v) | t.String(value=v) | t.Bool(value=v) if v == v:  # not NaN: annotations are compared
            return v
        case t.Negate(operand=t.Number(value=v)):
            return -v
        case _:
            raise TschedError(problems.NO_LITERAL(e.span))
