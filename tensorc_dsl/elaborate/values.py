"""Turns expressions of the compute layer into typed IR: resolves names, checks types.

No conversion is silent. A literal takes the type of its context. An index, a dimension or an int attribute becomes a value
only through a cast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import pi, prod
from typing import assert_never

from tensorc_dsl.base.diagnostic import help_note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import inference, problems
from tensorc_dsl.elaborate.bindings import LARGEST, Environment, index_expr
from tensorc_dsl.elaborate.inference import Extents, TypeFinder
from tensorc_dsl.elaborate.names import FUNCTIONS, parts, unknown_index
from tensorc_dsl.elaborate.problems import TOO_MANY_CASES, Invalid, each
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import (
    BOOL,
    F32,
    F64,
    I64,
    INDEX,
    U8,
    U16,
    U32,
    U64,
    DType,
    holds,
    holds_value,
    largest_finite,
    limits,
    wrapped_integer,
)
from tensorc_dsl.ir.maths import MATHS, Takes
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.proof.sets.linear_forms import FALSE, depends_on_data, negate, outermost
from tensorc_dsl.proof.sets.safety import Outside, Unproven, check_access, ranges_of, too_far, without_open_quotients
from tensorc_dsl.proof.sets.sets import affine_only
from tensorc_dsl.proof.sets.simplify import conjuncts, simplify
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.traversal import rewrite_tree

# Choices between indices: `A[i if c else j]` is `A[i] if c else A[j]`.


Infer = Callable[[tree.Expr], DType | None]

MOST_CASES = 256
"""The largest number of cases of one expression: each choice doubles them."""
FAR_TOO_MANY = 1_000_000
"""A number of cases that is not told exactly."""


def of_elements(e: tree.IndexExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between elements, if a subscript of `e` has a choice between indices: of several the first."""
    return _lifted(e, (c for p in e.indices for c in _choices(p, infer)), infer)


def of_comparisons(e: tree.CompareExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conditions, if `e` compares an index that is chosen."""
    types = {infer(p) for p in e.operands}
    if INDEX not in types or types - {None, INDEX}:
        return None
    return _lifted(e, (c for p in e.operands for c in _choices(p, infer)), infer)


def choice_in_arithmetic(e: tree.BinaryExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between numbers, if `e` is computed with an index that is chosen."""
    return _lifted(e, _choices(e, infer), infer)


def choice_in_conversions(e: tree.CallExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conversions, if `e` converts what is computed with an index that is chosen."""
    operand = e.args[0]
    if infer(operand) != INDEX:
        return None
    return _lifted(e, (c for c in _choices(operand, infer) if c is not operand), infer)


def _lifted(e: tree.Expr, found: Iterator[tree.Expr], infer: Infer) -> tree.Conditional | None:
    """`e` for one value of the choice, and for the other. Raises Invalid if all choices together make too many cases."""
    if (choice := next(found, None)) is None:
        return None
    if (count := _cases(e, infer)) > MOST_CASES:
        said = count if count < FAR_TOO_MANY else f"more than {FAR_TOO_MANY}"
        raise Invalid(TOO_MANY_CASES(e.span, count=said, most=MOST_CASES))
    cond, then, other = _parts(choice)
    return tree.Conditional(cond, _with(e, choice, then), _with(e, choice, other), e.span)


def _choices(e: tree.Expr, infer: Infer) -> Iterator[tree.Expr]:
    """The choices in the index arithmetic of `e`."""
    if infer(e) not in (None, INDEX) and INDEX not in map(infer, operands(e)):
        return
    match e:
        case tree.Conditional() | tree.CallExpr(function=tree.Name(id="select"), args=(_, _, _)):
            yield e
        case tree.BinaryExpr(lhs=a, rhs=b):
            yield from (*_choices(a, infer), *_choices(b, infer))
        case tree.Negate(operand=a):
            yield from _choices(a, infer)
        case tree.CallExpr(function=tree.Name(id="min" | "max" | "abs" | "xor" | "clamp"), args=args):
            for a in args:
                yield from _choices(a, infer)
        case _:
            pass


def operands(e: tree.Expr) -> Iterator[tree.Expr]:
    """The operands of the arithmetic in `e`: that of an integer that is read with an index is arithmetic of indices."""
    match e:
        case tree.BinaryExpr(lhs=a, rhs=b):
            yield from (*operands(a), *operands(b))
        case tree.Negate(operand=a):
            yield from operands(a)
        case tree.CallExpr(function=tree.Name(id="min" | "max"), args=args):
            for a in args:
                yield from operands(a)
        case tree.Conditional(then=a, other=b) | tree.CallExpr(function=tree.Name(id="select"), args=(_, a, b)):
            yield from (*operands(a), *operands(b))
        case _:
            yield e


def _cases(e: tree.Expr, infer: Infer) -> int:
    """How many expressions `e` becomes once no index in it is chosen; where nothing is lifted out, its parts add up."""
    match e:
        case tree.Conditional() | tree.CallExpr(function=tree.Name(id="select"), args=(_, _, _)):
            return sum(_cases(p, infer) for p in _parts(e)) - 1
        case tree.IndexExpr(indices=several) | tree.CompareExpr(operands=several) | tree.CallExpr(args=several):
            return prod(_cases(p, infer) for p in several)
        case tree.BinaryExpr(lhs=a, rhs=b) if infer(e) in (None, INDEX) or INDEX in map(infer, operands(e)):
            return _cases(a, infer) * _cases(b, infer)
        case _:
            return 1 + sum(_cases(p, infer) - 1 for p in parts(e))


def _parts(choice: tree.Expr) -> tuple[tree.Expr, tree.Expr, tree.Expr]:
    match choice:
        case tree.Conditional(cond=cond, then=then, other=other) | tree.CallExpr(args=(cond, then, other)):
            return cond, then, other
        case _:
            raise AssertionError(choice)


def _with(e: tree.Expr, choice: tree.Expr, part: tree.Expr) -> tree.Expr:
    return rewrite_tree(e, lambda node: part if node is choice else None)


# Values that are kept between two others: by `clamp`, or, with a conversion, by `saturate`.


def kept(value: ir.Expr, low: ir.Expr, high: ir.Expr) -> ir.Expr:
    """The value, limited to the other two."""
    return ir.Binary("min", ir.Binary("max", value, low), high)


_OPPOSITE: dict[ir.CompareOp, ir.CompareOp] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_TURNED: dict[ir.CompareOp, ir.CompareOp] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def is_kept_inside(x: ir.Expr, extent: ir.Expr, conditions: Iterable[ir.Expr]) -> bool:
    """Whether conditions say of an integer that is read that it is 0 at least, and less than the extent.

    An extent that is converted to the type of the integer may have lost bits, but has not become larger.
    """
    low, high = limits(ir.dtype_of(x))[0] == 0, False
    last, size = simplify(ir.sub(extent, ir.ONE), {}), ir.constant(extent)
    for c in chain.from_iterable(map(conjuncts, conditions)):
        match c:
            case ir.Compare(op=op, lhs=a, rhs=b):
                pass
            case ir.Not(operand=ir.Compare(op=op, lhs=a, rhs=b)):
                op = _OPPOSITE[op]
            case _:
                continue
        if b == x:
            a, b, op = b, a, _TURNED[op]
        match op, b:
            case _ if a != x:
                pass
            case ((">" | ">="), ir.Const(value=least)):
                low |= least + (op == ">") >= 0
            case (("<" | "<="), ir.Const(value=most)):
                high |= size is not None and most + (op == "<=") <= size
            case (("<" | "<="), ir.Cast(operand=limit)):
                high |= limit == (extent if op == "<" else last)
            case _:
                pass
    return low and high


def saturated(x: ir.Expr, to: DType) -> ir.Expr:
    """The number of an integer type that is nearest to `x`; of a float without its fraction, of NaN 0. The finite number of a
    float of 8 bits that is nearest to `x`; of NaN NaN.

    Only ends that the type of `x` goes beyond are compared with. A conversion of a float to an integer keeps to the ends by
    itself.
    """
    t = ir.dtype_of(x)
    if to.is_float:
        largest = int(largest_finite(to))
        if t.is_float:
            return ir.Cast(kept(x, ir.Const(-float(largest), t), ir.Const(float(largest), t)), to)
        low, high = limits(t)
        if low < -largest:
            x = ir.Binary("max", x, ir.Const(-largest, t))
        if largest < high:
            x = ir.Binary("min", x, ir.Const(largest, t))
        return ir.Cast(x, to)
    if not t.is_float:
        (least, most), (low, high) = limits(to), limits(t)
        if isinstance(x, ir.Const):
            return ir.Const(min(max(int(x.value), least), most), to)
        if low < least:
            x = ir.Binary("max", x, ir.Const(least, t))
        if most < high:
            x = ir.Binary("min", x, ir.Const(most, t))
    return x if t == to else ir.Cast(x, to)


# Turns expressions of the compute layer into indices: subscripts, operands of comparisons, `clamp`.


class IndexBuilder(TypeFinder, ABC):
    """Builds the indices of one stage. A subclass builds values, of which `clamp` makes indices."""

    @abstractmethod
    def build(self, e: tree.Expr, want: DType | None) -> ir.Expr:
        """`e` as IR; `want` gives literals a type."""

    def index(self, e: tree.Expr, extent: ir.Expr | None = None, clamp: tree.CallExpr | None = None) -> ir.Expr:
        """A subscript of a dimension with an extent, or the index operand of a comparison or cast: simplified
        under the ranges in scope. It may contain integers that are read, if it is a subscript or in a `clamp`.
        """
        if isinstance(e, tree.Name) and e.id in self.scope:
            return ir.Var(str(e.id))
        data = clamp is not None or extent is not None
        names: Extents = {**self.env.sizes, **{n: ir.Var(str(n)) for n in self.scope}}

        def known(x: tree.Expr) -> ir.Expr | None:
            match x:
                case tree.CallExpr(function=tree.Name(id="clamp")):
                    return self._clamp(x)
                case _ if data and self._of_data(x):
                    return self._datum(x, clamp or e, extent)
                case tree.Name(id=name, span=span) | tree.IndexExpr(base=tree.Name(id=name, span=span)) if (
                    name in self.buffers and name not in names
                ):
                    raise Invalid(problems.DATA_SUBSCRIPT(span, name=name, text=e.span.text, low=0, high="…"))
                case tree.Name(id=name) if name not in names:
                    raise Invalid(unknown_index(x.span, name, names))
                case _:
                    return None

        made = index_expr(e, names, known)
        self.require_64_bits(made, e)
        # An index of extent 1 is always 0, but primitives can use a plain `n` better than `0`.
        if not isinstance(made, ir.Var):
            made = simplify(without_open_quotients(made, self.scope), ranges_of(self.scope))
        _small(made, e)
        return made

    def require_64_bits(self, made: ir.Expr, at: tree.Expr) -> None:
        """Raise Invalid where index arithmetic may leave 64 bits. Nobody knows before sizes are bound."""
        if self.env.unbound or (far := too_far(made, ranges_of(self.scope))) is None:
            return
        data, dims = outermost((far,)), ir.dims_in(far)
        repair = "use smaller numbers"
        if data:
            repair = f"keep what is read between two indices before: `clamp({format_expr(data[0].operand)}, …, …)`"
        elif dims:
            repair = "let the open dimensions end at smaller sizes"
        raise Invalid(problems.TOO_FAR(at.span, text=at.span.text, repair=repair))

    def _clamp(self, e: tree.CallExpr) -> ir.Expr:
        """`clamp(x, low, high)`: an index, or an integer that is read, limited to two indices."""
        if e.kwargs or len(e.args) != FUNCTIONS["clamp"]:
            count = len(e.args) + len(e.kwargs)
            raise Invalid(problems.ARITY(e.span, name="clamp", wanted="3 values", count=count))
        made = each(*(lambda a=a, n=n: self.index(a, clamp=None if n else e) for n, a in enumerate(e.args)))
        return kept(*made)

    def unclamped(self, e: tree.Expr) -> Iterator[str]:
        """The tensors whose values a subscript takes without `clamp`."""
        match e:
            case tree.CallExpr(function=tree.Name(id="clamp")):
                return
            case tree.Name(id=name) | tree.IndexExpr(base=tree.Name(id=name)):
                if name in self.buffers and name not in self.scope:
                    yield name
            case _:
                for x in parts(e):
                    yield from self.unclamped(x)

    def _of_data(self, e: tree.Expr) -> bool:
        """Whether `e` consists of values that are read, without indices and sizes."""
        types = {self.infer(x) for x in operands(e)} - {None}
        return bool(types) and INDEX not in types

    def _datum(self, e: tree.Expr, place: tree.Expr, extent: ir.Expr | None) -> ir.Expr:
        """An integer that is read, converted to an index. `place` is the subscript or `clamp` that it is a part of; a
        subscript has an extent.
        """
        made = self.build(e, self.infer(e))
        found = ir.dtype_of(made)
        if not found.is_integer:
            at, text = e.span.start - place.span.start, place.span.text
            repair = f"{text[:at]}i32({e.span.text}){text[at + len(e.span.text) :]}"
            if extent is not None:
                repair = f"clamp({repair}, 0, {format_expr(ir.sub(extent, ir.ONE))})"
            raise Invalid(problems.CLAMPED(e.span, text=e.span.text, found=found, repair=" ".join(repair.split())))
        if not holds(INDEX, found):  # a number beyond all indices is above every bound, and its bits would be negative
            made = ir.Binary("min", made, ir.Const(limits(INDEX)[1], found))
        return ir.Cast(made, INDEX)


def _small(e: ir.Expr, at: tree.Expr) -> None:
    if isinstance(e, ir.Const) and abs(e.value) > LARGEST:
        raise Invalid(problems.TOO_LARGE(at.span, what=f"`{at.span.text}`", value=e.value))
    for c in ir.children(e):
        _small(c, at)


# The loads of a stage, with the conditions under which they happen.


LARGE = 2**40
"""A size beyond the integers that subscripts are taken from, where it is not known."""


@frozen
class GuardedLoad:
    """A load with the conditions around it, for the proof that it stays in bounds."""

    load: ir.Load
    conditions: tuple[ir.Expr, ...]
    spans: tuple[Span, ...]
    data: tuple[str | None, ...] = ()
    """For each subscript a tensor whose values it takes without `clamp`; None without one."""

    def leaves(
        self, extents: Mapping[str, ir.Expr], shape: tuple[ir.Expr, ...], env: Environment
    ) -> Outside | Unproven | None:
        """Where it leaves an array of `shape` for some sizes, or that it is not proved to stay inside; None if it is."""
        conditions = (*self.conditions, *(env.conditions if env.unbound else ()))
        if env.unbound and depends_on_data(self.load.indices):  # whether there are as many elements depends on sizes
            least = ir.index(LARGE if any(self.data) else 1)
            conditions = (*conditions, *(ir.Compare(">=", n, least) for n in shape if ir.constant(n) is None))
        return check_access(extents, conditions, self.load.indices, shape, env.open)


def likely_type(value: object) -> str:
    """The type that a number without one is most likely to have, for a repair."""
    if not isinstance(value, int):
        return "f32"
    return "i32" if abs(value) < 1 << 31 else "i64"


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
            raise Invalid(problems.NO_TYPE(at.span, value=at.span.text, likely=likely_type(value)))
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
                    return ir.Const(-x.value if t.is_float else wrapped_integer(-int(x.value), t), t)
                return ir.Binary("*", ir.Const(-1.0, t), x) if t.is_float else ir.Binary("-", ir.Const(0, t), x)
            case tree.BinaryExpr():
                return self._binary(e, want)
            case tree.CompareExpr():
                choice = of_comparisons(e, self.infer)
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
                choice = of_elements(e, self.infer)
                return self._conditional(choice, want) if choice else self.load(e)
            case tree.Reduce():
                return self.reduction(e, want)
            case (
                tree.String() | tree.Wildcard() | tree.ListExpr() | tree.MapExpr() | tree.Attribute()
                | tree.SliceExpr() | tree.RangeExpr() | tree.Lambda() | tree.ForList() | tree.Scan()
                | tree.TupleExpr()
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
        notes = (help_note(f"write it out: `{pi}`"),) if name == "pi" else near(name, known, f"declare `{name}` first")
        raise Invalid(problems.UNKNOWN_NAME(e.span, what="name", name=name, notes=notes))

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
            cast = inference.of_one_type(op, a, s, b, t, at)
            raise Invalid(problems.MIXED_TYPES(at.span, op=op, lhs=s, rhs=t, cast=cast))
        return x, y

    def _binary(self, e: tree.BinaryExpr, want: DType | None) -> ir.Expr:
        x, y = self._pair(e.lhs, e.rhs, want, e.op, e)
        t = self._arithmetic(x, e.op, e)
        if e.op in "/%" and not t.is_float and isinstance(y, ir.Const) and y.value == 0:
            raise Invalid(problems.DIVISION_BY_ZERO(e.rhs.span, value=0))
        if t == INDEX:
            choice = choice_in_arithmetic(e, self.infer)
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
        data = [next(self.unclamped(i), None) for i in e.indices]
        for n, (made, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            # What a condition keeps inside is read where it does not hold, too, as after `clamp`.
            if isinstance(made, ir.Cast) and data[n] and is_kept_inside(made.operand, size, self.conditions):
                inside = simplify(kept(made, ir.ZERO, ir.sub(size, ir.ONE)), ranges_of(self.scope))
                indices = (*indices[:n], inside, *indices[n + 1 :])
                data[n] = None
        load = ir.Load(buffer.name, indices, buffer.dtype)
        self.loads.append(GuardedLoad(load, self.conditions, tuple(i.span for i in e.indices), tuple(data)))
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
        found, repair = "an index" if t == INDEX else t, inference.of_kind(name, kind, e.args, e)
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
            raise Invalid(problems.NO_BOOL_CAST(e.span, repair=inference.not_zero(operand)))
        if choice := choice_in_conversions(e, self.infer):
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
    span, wider = inference.held(want, value)
    return Invalid(problems.LITERAL(at.span, value=at.span.text, dtype=want, range=span, wider=wider))
