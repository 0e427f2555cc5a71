"""Entries of functions and methods of the schedule layer, and of reducers and maths functions of the compute layer."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.check.kinds import Base, Kind, ListOf, show
from tensorc_dsl.check.signatures import Rule, Signature
from tensorc_dsl.elaborate.reducers import ARG_REDUCERS, REDUCERS, Reducer
from tensorc_dsl.ir.dtypes import BOOL, F32, I32, DType
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.report.entries.markdown import code

SIGNATURES_HEAD = ("is", "which says")
REDUCERS_HEAD = ("reducer", "over", "of nothing (f32)", "of nothing (i32)")
MATHS_HEAD = ("function", "is")


def _kind(kind: Kind | Rule) -> str:
    match kind:
        case ListOf(element=Base.ANY):
            return "list"
        case ListOf(element=element):
            return f"[{_kind(element)}]"
        case Rule.NUMBER:
            return "int or float"
        case Rule.FIRST | Rule.ELEMENT:
            return "as the argument"
        case _:
            return show(kind).removeprefix("a ").removeprefix("an ").replace("string", "str")


def _call(name: str, s: Signature) -> str:
    parts = [p.name if p.required else f"[{p.name}]" for p in s.positional]
    parts += ["…"] if s.rest else []
    return f"{name}({', '.join((*parts, *(f'{p.name}=…' for p in s.params if p.named)))})"


def signature_rows(signatures: Mapping[str, Signature], before: str = "") -> list[list[str]]:
    """The rows of callables: their call, the kind of the result, and a description."""
    return [[code(before + _call(name, s)), _kind(s.result), s.doc] for name, s in signatures.items()]


def reducer_rows() -> dict[str, list[str]]:
    """For each reducer, the types that it accepts, and its result for an empty range."""
    rows = {
        name: [
            code(name),
            "conditions" if r.on_bool else "numbers",
            *(_identity(r, t) for t in _types(r.on_bool)),
        ]
        for name, r in REDUCERS.items()
    }
    return rows | {name: [code(name), "numbers; gives a position", "refused", "refused"] for name in ARG_REDUCERS}


def _types(on_bool: bool) -> tuple[DType, DType]:
    return (BOOL, BOOL) if on_bool else (F32, I32)


def _identity(reducer: Reducer, dtype: DType) -> str:
    return code(format_expr(reducer.identity(dtype)))


def maths_rows() -> dict[str, list[str]]:
    """For each maths function, its call and a description."""
    letters = ("x", "y", "z")
    return {name: [code(f"{name}({', '.join(letters[: m.count])})"), m.words] for name, m in MATHS.items()}
