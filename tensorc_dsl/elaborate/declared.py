"""Reducers that a file declares: `reducer name(a, b) = combine identity e`.

That a reducer is associative and commutative, so that a reduction may run in any order, is checked on samples: an example
against it is an error. Where no example is found it is trusted. The identity is checked on what the reducer makes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.diagnostic import Diagnostic, Note
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.library import Definitions
from tensorc_dsl.elaborate.names import Scope, check_names, inside
from tensorc_dsl.elaborate.problems import NOT_A_REDUCER, NOT_CONSTANT, TAKEN, Invalid
from tensorc_dsl.elaborate.values import ValueBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, F64, I64, DType
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared reducer for values of one type; its operands are loads of scalars with their names."""

    name: str
    operands: tuple[str, str]
    expr: ir.Expr
    identity: ir.Const

    def combine(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """What `a`, made so far, and the next value `b` become."""
        values = dict(zip(self.operands, (a, b), strict=True))

        def operand(e: ir.Expr) -> ir.Expr:
            return values[e.buffer] if isinstance(e, ir.Load) and not e.indices and e.buffer in values else e

        return ir.transform(self.expr, operand)


def declared(defn: tree.ReducerDef, dtype: DType, at: tree.Expr | None = None) -> Declared:
    """The reducer for values of `dtype`. Raises Invalid, with the place of its use if that is `at`, unless it takes them."""
    try:
        return _declared(defn, dtype)
    except Invalid as e:
        if at is None:
            raise
        line, column = at.span.source.line_column(at.span.start)
        note = Note("note", f"for {dtype}, as used at {at.span.source.name}:{line}:{column}")
        found = [Diagnostic(d.code, d.message, d.span, d.label, (*d.notes, note)) for d in e.diagnostics]
        raise Invalid(*found) from None


def _declared(defn: tree.ReducerDef, dtype: DType) -> Declared:
    a, b = defn.params
    if a == b:
        raise Invalid(TAKEN(defn.span, name=a, what="an operand of this reducer"))
    for e in (*inside(defn.combine), *inside(defn.identity)):
        if isinstance(e, tree.Reduce | tree.Scan | tree.IndexExpr):
            raise Invalid(NOT_A_REDUCER(e.span, what=f"`{e.span.text}`", a=a, b=b))
    env = Environment()
    check_names(defn.combine, Scope("", (), (), env, Definitions()))
    check_names(defn.identity, Scope("", (), (), env, Definitions()))
    builder = ValueBuilder(env, {n: Buffer(n, dtype, ()) for n in (a, b)})
    combined = builder.build(defn.combine, dtype)
    builder.same_type(ir.dtype_of(combined), dtype, defn.combine, f"what `{defn.name}` makes of two values of {dtype}")
    start = ValueBuilder(env, {}).build(defn.identity, dtype)
    if not isinstance(start, ir.Const):
        raise Invalid(NOT_CONSTANT(defn.identity.span, reducer=defn.name))
    builder.same_type(start.dtype, dtype, defn.identity, f"the identity of `{defn.name}`")
    return Declared(defn.name, (a, b), combined, start)


# --- laws ------------------------------------------------------------------------------------------------------------


def check_reducer(defn: tree.ReducerDef) -> list[Diagnostic]:
    """What is wrong with a declared reducer: its expressions for every type, or a law that some values break."""
    fitting: list[Declared] = []
    wrong: dict[DType, tuple[Diagnostic, ...]] = {}
    for t in (F64, I64, BOOL):
        try:
            fitting.append(declared(defn, t))
        except Invalid as e:
            wrong[t] = e.diagnostics
    if not fitting:
        logical = any(isinstance(e, tree.LogicExpr | tree.NotExpr | tree.Bool) for e in inside(defn.combine))
        return list(wrong[BOOL if logical else F64])
    from tensorc_dsl.elaborate.laws import broken_laws  # with NumPy, which files without a reducer do not wait for

    for reducer in fitting:
        found = broken_laws(defn, reducer)
        if found:
            return found
    return []
