"""Reducers that a file declares: `reducer name(a, b) = combine identity e`, of one value or of several.

A reduction may run in any order, so a reducer must be associative and commutative, with a neutral identity. A law that is
broken, or neither proved nor assumed, is an error; it is checked for each type of use (`elaborate.user_reducers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import isnan
from typing import TypeVar

from tensorc_dsl.base.diagnostic import Diagnostic, Note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.names import Definitions, StageNames, check_names, inside
from tensorc_dsl.elaborate.problems import (
    NO_LAW,
    NOT_A_REDUCER,
    NOT_CONSTANT,
    TAKEN,
    UNEVEN_REDUCER,
    UNKNOWN_LAW,
    UNPROVED_LAW,
    Invalid,
)
from tensorc_dsl.elaborate.values import ValueBuilder
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F64, I64, DType
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.ir.reductions import Combiner
from tensorc_dsl.proof.sets.laws import LAWS, Broken, Holds, Law, Open, Verdict, verdicts
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near

T = TypeVar("T")

MOST_MIXED = 4
"""The number of values of a reducer for which all types are tried; further ones have that of the last."""

# Findings about the laws of user-defined reducers: laws that are broken, and laws that are neither proved nor assumed.


def unknown_laws(defn: tree.ReducerDef) -> list[Diagnostic]:
    """The findings for assumed names that are no laws."""
    return [UNKNOWN_LAW(law.span, name=law.id, notes=near(law.id, LAWS)) for law in defn.assumes if law.id not in LAWS]


def law_findings(defn: tree.ReducerDef, made: Declared) -> list[Diagnostic]:
    """The findings about the laws of a reducer for values of one type: the broken laws, else the unproved ones."""
    found = tuple(_as_written(v, made.order) for v in verdicts(made.combiner))
    broken = [v for v in found if isinstance(v, Broken)]
    if broken:
        proved = {v.law for v in found if isinstance(v, Holds)}
        return [_broken(defn, v, in_order="associative" in proved) for v in broken]
    assumed = {law.id for law in defn.assumes}
    open_laws = [v for v in found if isinstance(v, Open) and v.law not in assumed]
    return [_unproved(defn, found, open_laws)] if open_laws else []


def _as_written(v: Verdict, order: Sequence[int]) -> Verdict:
    """The verdict with the values of its example in the order of the file; `order` is that in which they are stored."""
    match v:
        case Broken():
            return _example_as_written(v, order)
        case Open(nan=Broken() as nan):
            return replace(v, nan=_example_as_written(nan, order))
        case _:
            return v


def _example_as_written(v: Broken, order: Sequence[int]) -> Broken:
    def put(values: Sequence[object]) -> tuple[object, ...]:
        return tuple(values[order.index(k)] for k in range(len(order)))

    return replace(v, at=tuple(map(put, v.at)), left=put(v.left), right=put(v.right))


def _broken(defn: tree.ReducerDef, v: Broken, *, in_order: bool) -> Diagnostic:
    """The finding about a broken law of a reducer; `in_order`, if it is known to be associative."""
    name = defn.name
    if v.law == "identity":
        place = defn.identity
        repair = f"a reduction starts from its identity; it must change nothing that `{name}` makes"
    elif v.law == "commutative" and in_order:
        place = defn.combine
        several = ", which has several values along a dimension" * (len(defn.before) > 1)
        at = ", c" * (len(defn.before) > 1)
        repair = f"steps in their order are a `scan`{several}: `P[t{at}] = scan[t] init X[0{at}] step …P[t - 1{at}]…`"
    else:
        place = defn.combine
        added = _text(defn.following)
        repair = f"steps run in any order; what a step does to `{added}` alone belongs behind `reduce {name}[…]`"
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


def _text(values: Sequence[object]) -> str:
    """Some values as text: in parentheses if they are several."""
    shown = [_one(v) for v in values]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _one(v: object) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return "NaN" if isnan(v) else f"{v:.12g}"
    return str(v)


def user_reducer(defn: tree.ReducerDef, dtypes: Sequence[DType], at: tree.Expr) -> Declared:
    """The reducer for values of these types at its use. Raises Invalid unless it accepts them and its laws hold."""
    if found := check_reducer(defn):
        raise Invalid(*found)
    made, found = None, list[Diagnostic]()
    try:
        made = reducer_of(defn, dtypes)
        found = law_findings(defn, made)
    except Invalid as e:
        found = list(e.diagnostics)
    if made is None or found:
        note = Note("note", f"for {_text(dtypes)}, as used at ", at.span)
        raise Invalid(*(replace(d, notes=(*d.notes, note)) for d in found))
    return made


@frozen
class Declared:
    """A reducer of a file for values of some types. `order` has the number, in the file, of each value of the `combiner`."""

    combiner: Combiner
    order: tuple[int, ...]


def reducer_of(defn: tree.ReducerDef, dtypes: Sequence[DType]) -> Declared:
    """The reducer for values of these types, in an order in which they can be stored. Raises Invalid."""
    counts = [len(x) for x in (defn.before, defn.following, defn.values, defn.starts)]
    if len({*counts}) > 1:
        text = f"{', '.join(map(str, counts[:3]))} and {counts[3]}"
        raise Invalid(UNEVEN_REDUCER(defn.span, reducer=defn.name, counts=text))
    operands = (*defn.before, *defn.following)
    for n, name in enumerate(operands):
        if name in operands[:n]:
            raise Invalid(TAKEN(defn.span, name=name, what="an operand of this reducer"))
    a, b = _text(defn.before), _text(defn.following)
    for e in (*inside(defn.combine), *inside(defn.identity)):
        if isinstance(e, tree.Reduce | tree.Scan | tree.IndexExpr):
            raise Invalid(NOT_A_REDUCER(e.span, what=f"`{e.span.text}`", a=a, b=b))
    env = Environment()
    check_names(defn.combine, StageNames("", (), (), env, Definitions()))
    check_names(defn.identity, StageNames("", (), (), env, Definitions()))
    types = {n: t for names in (defn.before, defn.following) for n, t in zip(names, dtypes, strict=True)}
    builder = ValueBuilder(env, {n: Buffer(str(n), t, ()) for n, t in types.items()})
    results: list[ir.Expr] = []
    identity: list[ir.Const] = []
    for k, (value, start, t) in enumerate(zip(defn.values, defn.starts, dtypes, strict=True)):
        which = "" if len(dtypes) == 1 else f"value {k + 1} of "
        made = builder.build(value, t)
        builder.same_type(ir.dtype_of(made), t, value, f"{which}what `{defn.name}` makes of two values of {t}")
        results.append(made)
        first = ValueBuilder(env, {}).build(start, t)
        if not isinstance(first, ir.Const):
            raise Invalid(NOT_CONSTANT(start.span, reducer=defn.name))
        builder.same_type(first.dtype, t, start, f"{which}the identity of `{defn.name}`")
        identity.append(first)
    order = _store_order([str(n) for n in defn.before], results)

    def ordered(items: Sequence[T]) -> tuple[T, ...]:
        return tuple(items[k] for k in order)

    before, following = (tuple(map(str, ordered(x))) for x in (defn.before, defn.following))
    return Declared(Combiner(str(defn.name), before, following, ordered(results), ordered(identity)), order)


def _store_order(before: Sequence[str], results: Sequence[ir.Expr]) -> tuple[int, ...]:
    """An order in which few values are needed after they are stored: next is the one that the fewest of the others read."""
    reads = [{x.buffer for x in ir.loads(e)} for e in results]
    left, out = [*range(len(results))], list[int]()
    while left:
        out.append(min(left, key=lambda k: sum(before[k] in reads[x] for x in left if x != k)))
        left.remove(out[-1])
    return tuple(out)


def check_reducer(defn: tree.ReducerDef) -> list[Diagnostic]:
    """The findings that a reducer has for values of every type: in its expressions, or about its laws."""
    if found := unknown_laws(defn):
        return found
    wrong: list[Diagnostic] = []
    untyped: dict[tuple[DType, ...], tuple[Diagnostic, ...]] = {}
    count = len(defn.before)
    mixed = product((F64, I64, BOOL), repeat=min(count, MOST_MIXED))
    for some in (*mixed, *((t,) * count for t in DTYPES.values())):
        types = (*some, *some[-1:] * (count - len(some)))
        try:
            found = law_findings(defn, reducer_of(defn, types))
        except Invalid as e:
            untyped[types] = e.diagnostics
            continue
        if not found:
            return []
        wrong = wrong or found
    logical = any(isinstance(e, tree.LogicExpr | tree.NotExpr | tree.Bool) for e in inside(defn.combine))
    return wrong or list(untyped[(BOOL if logical and count == 1 else F64,) * count])
