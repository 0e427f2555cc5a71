"""Reducers that a file declares: `reducer name(a, b) = combine identity e`.

A reduction may run in any order, so a reducer must be associative and commutative, with a neutral identity. A law that is
broken, or neither proved nor assumed, is an error; it is checked for each type of use (`elaborate.user_reducers`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

from tensorc_dsl.base.diagnostic import Diagnostic, Note
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.names import Definitions, StageNames, check_names, inside
from tensorc_dsl.elaborate.problems import (
    NO_LAW,
    NOT_A_REDUCER,
    NOT_CONSTANT,
    TAKEN,
    UNKNOWN_LAW,
    UNPROVED_LAW,
    Invalid,
)
from tensorc_dsl.elaborate.values import ValueBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F64, I64, DType
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.proof.sets.laws import LAWS, Broken, Combination, Holds, Law, Open, Verdict, verdicts
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near

# Findings about the laws of user-defined reducers: laws that are broken, and laws that are neither proved nor assumed.


def unknown_laws(defn: tree.ReducerDef) -> list[Diagnostic]:
    """The findings for assumed names that are no laws."""
    return [UNKNOWN_LAW(law.span, name=law.id, notes=near(law.id, LAWS)) for law in defn.assumes if law.id not in LAWS]


def law_findings(defn: tree.ReducerDef, reducer: UserReducer) -> list[Diagnostic]:
    """The findings about the laws of a reducer for values of one type: the broken laws, else the unproved ones."""
    found = verdicts(reducer.combination)
    broken = [v for v in found if isinstance(v, Broken)]
    if broken:
        return [_broken(defn, v) for v in broken]
    assumed = {law.id for law in defn.assumes}
    open_laws = [v for v in found if isinstance(v, Open) and v.law not in assumed]
    return [_unproved(defn, found, open_laws)] if open_laws else []


def _broken(defn: tree.ReducerDef, v: Broken) -> Diagnostic:
    name = defn.name
    if v.law == "identity":
        place = defn.identity
        repair = f"a reduction starts from its identity; it must change nothing that `{name}` makes"
    else:
        place = defn.combine
        repair = (
            f"steps run in any order; what a step does to `{defn.params[1]}` alone belongs behind `reduce {name}[…]`"
        )
    notes = [Note("note", _example(defn, v))]
    if any(law.id == v.law for law in defn.assumes):
        notes.append(Note("note", f"`assume {v.law}` is for what nobody can tell, not for what is known to be false"))
    return NO_LAW(place.span, notes=tuple(notes), reducer=name, law=_as_said(defn, v.law), repair=repair)


def _unproved(defn: tree.ReducerDef, found: tuple[Verdict, ...], open_laws: list[Open]) -> Diagnostic:
    said = [_as_said(defn, v.law) for v in open_laws]
    with_nan = [v.nan for v in open_laws if v.nan is not None]
    if with_nan and len(with_nan) == len(open_laws):
        notes = [Note("note", f"of a NaN: {_example(defn, v)}") for v in with_nan]
        repair = "`max(a, b)` and `min(a, b)` keep a NaN; where none can occur, declare it"
    else:
        notes = [
            Note(
                "note",
                "no values are known for which it is not; proofs reach as far as + - * min max and conditions",
            )
        ]
        repair = "if you know that it is, declare it"
    proved = {v.law for v in found if isinstance(v, Holds)}
    laws = ", ".join(law for law in LAWS if law not in proved)
    repair += f": `… identity {defn.identity.span.text} assume {laws}`"
    place = defn.identity if all(v.law == "identity" for v in open_laws) else defn.combine
    return UNPROVED_LAW(place.span, notes=tuple(notes), reducer=defn.name, laws=" and ".join(said), repair=repair)


def _as_said(defn: tree.ReducerDef, law: Law) -> str:
    """A law as an adjective of the reducer, for messages."""
    return f"left alone by its identity {defn.identity.span.text}" if law == "identity" else law


def _example(defn: tree.ReducerDef, v: Broken) -> str:
    """Both sides of a law for an example, as text."""
    f, e = defn.name, defn.identity.span.text
    match v.law:
        case "commutative":
            left, right = f"{f}({{0}}, {{1}})", f"{f}({{1}}, {{0}})"
        case "associative":
            left, right = f"{f}({f}({{0}}, {{1}}), {{2}})", f"{f}({{0}}, {f}({{1}}, {{2}}))"
        case "identity":
            left, right = f"{f}({e}, {f}({{0}}, {{1}}))", f"{f}({{0}}, {{1}})"
    shown = [_text(x) for x in v.at]
    return f"{left.format(*shown)} is {_text(v.left)}, {right.format(*shown)} is {_text(v.right)}"


def _text(v: float | int | bool) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return "NaN" if isnan(v) else f"{v:.12g}"
    return str(v)


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
