"""Findings about the laws of user-defined reducers: laws that are broken, and laws that are neither proved nor assumed."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import Diagnostic, Note
from tensorc_dsl.elaborate.problems import NO_LAW, UNKNOWN_LAW, UNPROVED_LAW
from tensorc_dsl.proof.sets.laws import LAWS, Broken, Holds, Law, Open, Verdict, verdicts
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near

if TYPE_CHECKING:
    from tensorc_dsl.elaborate.user_reducers import UserReducer


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
