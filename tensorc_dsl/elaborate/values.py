"""Turns expressions of the compute layer into typed IR: resolves names, checks types.

No conversion is silent. A literal takes the type of its context. An index, a dimension or an int attribute becomes a value
only through a cast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.elaborate import choices, problems, repairs
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.indices import IndexBuilder
from tensorc_dsl.elaborate.inference import Extents
from tensorc_dsl.elaborate.limited import kept, saturated
from tensorc_dsl.elaborate.loads import GuardedLoad
from tensorc_dsl.elaborate.names import FUNCTIONS
from tensorc_dsl.elaborate.problems import Invalid, each
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, F32, F64, I64, INDEX, U8, U16, U32, U64, DType
from tensorc_dsl.ir.maths import MATHS, Takes
from tensorc_dsl.ir.numbers import holds_value, limits, wrapped
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.proof.sets.linear_forms import FALSE, negate
from tensorc_dsl.proof.sets.safety import ranges_of
from tensorc_dsl.proof.sets.sets import affine_only
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near


class ValueBuilder(IndexBuilder):
    """Builds the expressions of one stage. Findings in parts that do not depend on each other are reported together."""

    def __init__(self, env: Environment, buffers: Mapping[str, Buffer]) -> None:
        super().__init__(env, buffers)
        self.loads: list[GuardedLoad] = []
        self.conditions: tuple[ir.Expr, ...] = ()
        self.around: tuple[ir.Expr, ...] = ()
        """What holds wherever the value that is being built counts, reductions around it included."""

    def reduction(self, e: tree.Reduce, want: DType | None) -> ir.Expr:
        """The value of a reduction inside an expression. Raises Invalid if none is allowed there."""
        raise Invalid(problems.NOT_IN_COMPUTE(e.span, what="a reduction"))

    def _literal(self, value: int | float, want: DType | None, at: tree.Expr) -> ir.Const:
        if want is None:
            raise Invalid(problems.NO_TYPE(at.span, value=at.span.text))
        if want.is_float:
            if not holds_value(want, value):
                raise _unfit(value, want, at)
            return ir.Const(float(value), want)
        low, high = limits(want)
        if want == BOOL or not isinstance(value, int) or not low <= value <= high:
            raise _unfit(value, want, at)
        return ir.Const(value, want)

    # --- values ------------------------------------------------------------------------------------------------------

    def build(self, e: tree.Expr, want: DType | None) -> ir.Expr:
        """`e` as IR; `want` gives literals a type. The result may have another type than `want`: the caller checks that."""
        match e:
            case tree.Number(value=value):
                return self._literal(value, want, e)
            case tree.Bool(value=value):
                return ir.Const(value, BOOL)
            case tree.Name():
                return self._name(e, want)
            case tree.Negate(operand=tree.Number(value=value)):
                return self._literal(-value, want, e)
            case tree.Negate(operand=a):
                x = self.build(a, want)
                t = self._arithmetic(x, "-", e)
                if t == INDEX:
                    return ir.sub(ir.ZERO, x)
                if isinstance(x, ir.Const):
                    return ir.Const(-x.value if t.is_float else wrapped(-int(x.value), t), t)
                return ir.Binary("*", ir.Const(-1.0, t), x) if t.is_float else ir.Binary("-", ir.Const(0, t), x)
            case tree.BinaryExpr():
                return self._binary(e, want)
            case tree.CompareExpr():
                choice = choices.of_comparisons(e, self.infer)
                return self._conditional(choice, BOOL) if choice else self._compare(e)
            case tree.LogicExpr(op=op, lhs=a, rhs=b):
                return self._logic(op, a, b)
            case tree.NotExpr(operand=a):
                return ir.Not(self._condition(a))
            case tree.Conditional():
                return self._conditional(e, want)
            case tree.CallExpr():
                return self._call(e, want)
            case tree.IndexExpr():
                choice = choices.of_elements(e, self.infer)
                return self._conditional(choice, want) if choice else self.load(e)
            case tree.Reduce():
                return self.reduction(e, want)
            case (
                tree.String() | tree.Wildcard() | tree.ListExpr() | tree.MapExpr() | tree.Attribute()
                | tree.SliceExpr() | tree.RangeExpr() | tree.Lambda() | tree.ForList() | tree.Scan()
            ):  # fmt: skip
                raise Invalid(problems.NOT_IN_COMPUTE(e.span, what=f"`{e.span.text}`"))
            case _:
                assert_never(e)

    def _name(self, e: tree.Name, want: DType | None) -> ir.Expr:
        name = e.id
        if name in self.scope:
            return ir.Var(str(name))
        if name in self.env.sizes:
            return self.env.sizes[name]
        if name in self.env.floats:
            return self._literal(self.env.floats[name], want, e)
        if name in self.buffers:
            buffer = self.buffers[name]
            if buffer.shape:
                letters = ", ".join("ijklmnop"[: len(buffer.shape)])
                raise Invalid(problems.NO_INDEX_LIST(e.span, name=name, indices=letters))
            return ir.Load(buffer.name, (), buffer.dtype)
        if name == "inf":
            return self._literal(float("inf"), want, e)
        known = [*self.scope, *self.buffers, *self.env.names()]
        raise Invalid(
            problems.UNKNOWN_NAME(e.span, what="name", name=name, notes=near(name, known, f"declare `{name}` first"))
        )

    def _arithmetic(self, x: ir.Expr, op: str, at: tree.Expr) -> DType:
        t = ir.dtype_of(x)
        if t == BOOL:
            raise Invalid(problems.BOOL_ARITHMETIC(at.span, op=op))
        if not t.has_arithmetic:
            raise Invalid(problems.STORED_ONLY(at.span, op=op, dtype=t))
        return t

    def _pair(self, a: tree.Expr, b: tree.Expr, want: DType | None, op: str, at: tree.Expr) -> tuple[ir.Expr, ir.Expr]:
        """Both operands as IR. Raises Invalid if their types differ."""
        t = self.infer(a) or self.infer(b) or want
        x, y = each(lambda: self.build(a, t), lambda: self.build(b, t))
        s, t = ir.dtype_of(x), ir.dtype_of(y)
        if s != t:
            cast = repairs.of_one_type(op, a, s, b, t, at)
            raise Invalid(problems.MIXED_TYPES(at.span, op=op, lhs=s, rhs=t, cast=cast))
        return x, y

    def _binary(self, e: tree.BinaryExpr, want: DType | None) -> ir.Expr:
        x, y = self._pair(e.lhs, e.rhs, want, e.op, e)
        t = self._arithmetic(x, e.op, e)
        if e.op in "/%" and not t.is_float and isinstance(y, ir.Const) and y.value == 0:
            raise Invalid(problems.DIVISION_BY_ZERO(e.rhs.span, value=0))
        if t == INDEX:
            choice = choices.of_arithmetic(e, self.infer)
            return self._conditional(choice, want) if choice else self.index(e)
        return ir.Binary(e.op, x, y)

    def _compare(self, e: tree.CompareExpr) -> ir.Expr:
        parts: list[ir.Expr] = []
        for op, a, b in zip(e.ops, e.operands, e.operands[1:], strict=False):
            literals = F64 if self.is_decimal(a) or self.is_decimal(b) else INDEX
            x, y = self._pair(a, b, literals, op, e)
            if ir.dtype_of(x) != BOOL or op not in ("==", "!="):
                self._arithmetic(x, op, e)
            parts.append(ir.Compare(op, x, y))
            self.require_64_bits(parts[-1], e)
        out = ir.conjunction(tuple(parts))
        assert out is not None  # the parser returns at least two operands
        return out

    def _condition(self, e: tree.Expr) -> ir.Expr:
        cond = self.build(e, BOOL)
        self.same_type(ir.dtype_of(cond), BOOL, e, "the condition")
        return cond

    def _logic(self, op: ir.LogicOp, a: tree.Expr, b: tree.Expr) -> ir.Expr:
        """`a and b`, `a or b`. The first condition guards the loads of the second one, if they have to be guarded."""
        try:
            first = self._condition(a)
        except Invalid:
            each(lambda: self._condition(a), lambda: self._condition(b))
            raise
        open_yet = first if op == "and" else negate(first)
        before, around = self.loads, self.around
        self.loads, self.around = [], (*around, open_yet)
        second = self._condition(b)
        loads, self.loads, self.around = self.loads, before, around
        # The conditions are asked last: in a chain, the first of two has all that are before.
        if all(self.stays_inside(g, self.scope) for g in loads) or not (undecided := affine_only((open_yet,))):
            self.loads += loads
            return ir.Logic(op, first, second)
        self.loads += (replace(g, conditions=(*g.conditions, *undecided)) for g in loads)
        guard = ir.conjunction(undecided)
        assert guard is not None
        # Where the guard does not hold, the first condition decides. It stays one of two, where proofs look for it.
        return ir.Logic(op, first, ir.Select(guard, second, FALSE))

    def stays_inside(self, g: GuardedLoad, sizes: Extents) -> bool:
        """Whether a load is proved to stay inside for indices of these sizes; that of a nested reduction's stage does."""
        shape = next((b.shape for b in self.buffers.values() if b.name == g.load.buffer), None)
        return shape is None or g.leaves(sizes, shape, self.env) is None

    def _conditional(self, e: tree.Conditional, want: DType | None) -> ir.Expr:
        outer, before, around = self.conditions, self.loads, self.around
        want = self.infer(e.then) or self.infer(e.other) or want

        def branch(part: tree.Expr, *holds: ir.Expr) -> tuple[ir.Expr, list[GuardedLoad]]:
            self.loads, self.conditions, self.around = [], (*outer, *holds), (*around, *holds)
            return self.build(part, want), self.loads

        def condition() -> ir.Expr:
            return simplify(self._condition(e.cond), ranges_of(self.scope))

        try:
            cond = condition()
        except Invalid:
            each(condition, lambda: branch(e.then), lambda: branch(e.other))
            raise
        # Both branches are typed even if the condition is decided; only the branch taken has to stay in bounds.
        parts = each(lambda: branch(e.then, cond), lambda: branch(e.other, negate(cond)))
        self.loads, self.conditions, self.around = before, outer, around
        (then, in_then), (other, in_other) = parts
        self.same_type(ir.dtype_of(other), ir.dtype_of(then), e.other, "the `else` branch")
        if isinstance(cond, ir.Const):
            value, loads = (then, in_then) if cond.value else (other, in_other)
            self.loads.extend(loads)
            return value
        self.loads.extend([*in_then, *in_other])
        return ir.Select(cond, then, other)

    def load(self, e: tree.IndexExpr) -> ir.Load:
        """A load of a tensor's element. Raises Invalid."""
        assert isinstance(e.base, tree.Name)  # check_names has run before
        name = e.base.id
        buffer = self.buffers[name]
        if len(buffer.shape) != len(e.indices):
            raise Invalid(problems.RANK(e.span, name=name, rank=len(buffer.shape), count=len(e.indices)))
        subscripts = zip(e.indices, buffer.shape, strict=True)
        indices = each(*(lambda i=i, size=size: self.index(i, size) for i, size in subscripts))
        load = ir.Load(buffer.name, indices, buffer.dtype)
        data = tuple(next(self.unclamped(i), None) for i in e.indices)
        self.loads.append(GuardedLoad(load, self.conditions, tuple(i.span for i in e.indices), data))
        return load

    def _call(self, e: tree.CallExpr, want: DType | None) -> ir.Expr:
        assert isinstance(e.function, tree.Name)  # check_names has run before
        name, count = e.function.id, len(e.args)
        cast = self.named_dtype(name)
        wanted = 1 if cast is not None else FUNCTIONS[name]
        if e.kwargs or count != wanted:
            values = "1 value" if wanted == 1 else f"{wanted} values"
            raise Invalid(problems.ARITY(e.span, name=name, wanted=values, count=count + len(e.kwargs)))
        if cast is not None:
            return self._cast(e, e.args[0], cast)
        if name == "clamp":
            t = self.infer(e)
            return self.index(e) if t == INDEX else self._clamped_value(e, t or want)
        if name == "select":
            return self._conditional(tree.Conditional(e.args[0], e.args[1], e.args[2], e.span), want)
        if name == "saturate":
            return self._saturate(e.args[0], e.args[1])
        if name == "bitcast":
            return self._bitcast(e, e.args[0], e.args[1])
        if name == "min" or name == "max":
            x, y = self._pair(e.args[0], e.args[1], want, name, e)
            return self.index(e) if self._arithmetic(x, name, e) == INDEX else ir.Binary(name, x, y)
        if name == "xor":
            _whole(name, e.args)
            x, y = self._pair(e.args[0], e.args[1], want, name, e)
            if (t := self._arithmetic(x, name, e)).is_float:
                raise self._wrong(name, Takes.INTEGERS, t, e)
            return self.index(e) if t == INDEX else ir.Binary(name, x, y)
        if name == "abs" and self.infer(e) == INDEX:
            return self.index(e)  # as a choice of two, which conditions on indices are proved with
        known = MATHS[name]
        if known.takes is Takes.INTEGERS:
            _whole(name, e.args)
        want = None if known.tells else want
        args = self._pair(e.args[0], e.args[1], want, name, e) if wanted == 2 else (self.build(e.args[0], want),)
        t = self._arithmetic(args[0], name, e)
        if not known.accepts(t):
            raise self._wrong(name, known.takes, t, e)
        return ir.Call(name, args)

    def _wrong(self, name: str, kind: Takes, t: DType, e: tree.CallExpr) -> Invalid:
        found, repair = "an index" if t == INDEX else t, repairs.of_kind(name, kind, e.args, e)
        return Invalid(problems.TAKES(e.span, name=name, kind=kind.value, found=found, repair=repair))

    def _clamped_value(self, e: tree.CallExpr, want: DType | None) -> ir.Expr:
        """A float that is limited to two others."""
        made = each(*(lambda a=a: self.build(a, want) for a in e.args))
        for x, a in zip(made, e.args, strict=True):
            self.same_type(ir.dtype_of(x), ir.dtype_of(made[0]), a, "a bound of `clamp`")
        self._arithmetic(made[0], "clamp", e)
        return kept(*made)

    def _saturate(self, to: tree.Expr, operand: tree.Expr) -> ir.Expr:
        """`saturate(type, x)`. Literals alone are counted in 64 bits, so that they may be beyond the type."""
        t = self.type_named_by(to)
        if t is None or (not t.is_integer and t.has_arithmetic):
            raise Invalid(problems.SATURATES_TO(to.span, text=to.span.text, operand=operand.span.text))
        x = self.build(operand, self.infer(operand) or (F64 if self.is_decimal(operand) else I64))
        if ir.dtype_of(x) == BOOL:
            raise Invalid(problems.SATURATES(operand.span, text=operand.span.text, dtype=t))
        self._arithmetic(x, "saturate", operand)
        return saturated(x, t)

    def _bitcast(self, e: tree.CallExpr, to: tree.Expr, operand: tree.Expr) -> ir.Expr:
        """`bitcast(type, x)`. Literals alone are integers of the width, or f32 and f64."""
        t = self.type_named_by(to)
        if t is None:
            raise Invalid(problems.BITS_OF(e.span, text=to.span.text, found=f"`{operand.span.text}`"))
        own = [s for s in (U8, U16, U32, U64, F32, F64) if s.has_bits_of(t)]
        x = self.build(operand, self.infer(operand) or next(iter(own), None))
        if not t.has_bits_of(found := ir.dtype_of(x)):
            kind = "an index" if found == INDEX else found
            raise Invalid(problems.BITS_OF(e.span, text=to.span.text, found=kind))
        return ir.Bitcast(x, t)

    def _cast(self, e: tree.CallExpr, operand: tree.Expr, to: DType) -> ir.Expr:
        if to == BOOL:
            raise Invalid(problems.NO_BOOL_CAST(e.span, repair=repairs.not_zero(operand)))
        if choice := choices.of_conversions(e, self.infer):
            return self._conditional(choice, to)
        x = self.build(operand, to)
        t = ir.dtype_of(x)
        if t == to:
            return x
        if isinstance(x, ir.Const) and not isinstance(x.value, bool) and isinstance(x.value, int):
            return self._literal(x.value, to, e)
        return ir.Cast(x, to)


def _whole(name: str, args: Sequence[tree.Expr]) -> None:
    """Raise Invalid if an argument of a function of integers is a literal that is none: no conversion of the others helps."""
    for a in args:
        number = a.operand if isinstance(a, tree.Negate) else a
        if isinstance(number, tree.Number) and isinstance(number.value, float):
            raise Invalid(problems.TAKES_WHOLE(a.span, name=name, found=a.span.text))


def _unfit(value: int | float, want: DType, at: tree.Expr) -> Invalid:
    span, wider = repairs.held(want, value)
    return Invalid(problems.LITERAL(at.span, value=at.span.text, dtype=want, range=span, wider=wider))
