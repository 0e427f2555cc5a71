"""Reducers that a file declares: `reducer name(a, b) = combine identity e`.

A reduction may run in any order, so a reducer must be associative and commutative, with a neutral identity. A law that is
broken, or neither proved nor assumed, is an error; it is checked for each type of use (`elaborate.laws`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Note
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.laws import law_findings, unknown_laws
from tensorc_dsl.elaborate.library import Definitions
from tensorc_dsl.elaborate.names import StageNames, check_names, inside
from tensorc_dsl.elaborate.problems import NOT_A_REDUCER, NOT_CONSTANT, TAKEN, Invalid
from tensorc_dsl.elaborate.values import ValueBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F64, I64, DType
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.proof.sets.laws import Combination
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class UserReducer:
    """A reducer of a file, for values of one type; its operands are loads of scalars with their names."""

    name: str
    operands: tuple[str, str]
    expr: ir.Expr
    identity: ir.Const

    @property
    def combination(self) -> Combination:
        """The combination without the reducer's names."""
        a, b = (ir.Load(n, (), self.identity.dtype) for n in ("a", "b"))
        return Combination(self.combine(a, b), self.identity)

    def combine(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """The combination of the accumulated value `a` and the next value `b`."""
        values = dict(zip(self.operands, (a, b), strict=True))

        def operand(e: ir.Expr) -> ir.Expr:
            return values[e.buffer] if isinstance(e, ir.Load) and not e.indices and e.buffer in values else e

        return ir.transform(self.expr, operand)


def user_reducer(defn: tree.ReducerDef, dtype: DType, at: tree.Expr) -> UserReducer:
    """The reducer for values of `dtype` at its use. Raises Invalid unless it accepts the type and its laws hold."""
    if found := check_reducer(defn):
        raise Invalid(*found)
    made, found = None, list[Diagnostic]()
    try:
        made = reducer_of(defn, dtype)
        found = law_findings(defn, made)
    except Invalid as e:
        found = list(e.diagnostics)
    if made is None or found:
        note = Note("note", f"for {dtype}, as used at ", at.span)
        raise Invalid(*(replace(d, notes=(*d.notes, note)) for d in found))
    return made


def reducer_of(defn: tree.ReducerDef, dtype: DType) -> UserReducer:
    a, b = defn.params
    if a == b:
        raise Invalid(TAKEN(defn.span, name=a, what="an operand of this reducer"))
    for e in (*inside(defn.combine), *inside(defn.identity)):
        if isinstance(e, tree.Reduce | tree.Scan | tree.IndexExpr):
            raise Invalid(NOT_A_REDUCER(e.span, what=f"`{e.span.text}`", a=a, b=b))
    env = Environment()
    check_names(defn.combine, StageNames("", (), (), env, Definitions()))
    check_names(defn.identity, StageNames("", (), (), env, Definitions()))
    builder = ValueBuilder(env, {n: Buffer(n, dtype, ()) for n in (a, b)})
    combined = builder.build(defn.combine, dtype)
    builder.same_type(ir.dtype_of(combined), dtype, defn.combine, f"what `{defn.name}` makes of two values of {dtype}")
    start = ValueBuilder(env, {}).build(defn.identity, dtype)
    if not isinstance(start, ir.Const):
        raise Invalid(NOT_CONSTANT(defn.identity.span, reducer=defn.name))
    builder.same_type(start.dtype, dtype, defn.identity, f"the identity of `{defn.name}`")
    return UserReducer(defn.name, (a, b), combined, start)


def check_reducer(defn: tree.ReducerDef) -> list[Diagnostic]:
    """The findings that a reducer has for values of every type: in its expressions, or about its laws."""
    if found := unknown_laws(defn):
        return found
    wrong: list[Diagnostic] = []
    untyped: dict[DType, tuple[Diagnostic, ...]] = {}
    for t in (F64, I64, BOOL, *DTYPES.values()):
        try:
            found = law_findings(defn, reducer_of(defn, t))
        except Invalid as e:
            untyped[t] = e.diagnostics
            continue
        if not found:
            return []
        wrong = wrong or found
    logical = any(isinstance(e, tree.LogicExpr | tree.NotExpr | tree.Bool) for e in inside(defn.combine))
    return wrong or list(untyped[BOOL if logical else F64])
