"""The words of the compute layer, and the functions and methods of the schedule layer."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generate.pages import code, table
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import LIST, STR, Base, Kind, ListOf, show
from tensorc_dsl.check.signatures import Rule, Signature
from tensorc_dsl.elaborate.reducers import ARG_REDUCERS, REDUCERS, Reducer
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F32, I32, DType
from tensorc_dsl.ir.expr import MATH_FUNCTIONS
from tensorc_dsl.ir.print import format_expr


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


def _rows(signatures: Mapping[str, Signature], before: str = "") -> list[list[str]]:
    return [[code(before + _call(name, s)), _kind(s.result), s.doc] for name, s in signatures.items()]


def functions() -> str:
    return table(["function", "is", "which says"], _rows(v.FUNCTIONS))


def methods() -> str:
    """Those of strings and lists; the methods of blocks and the others are queries."""
    rows = [row for kind, subject in ((STR, "s."), (LIST, "list.")) for row in _rows(v.METHODS[kind], subject)]
    return table(["method", "is", "which says"], rows)


def reducers() -> str:
    rows = [
        [code(name), "conditions" if r.on_bool else "numbers", *(_identity(r, t) for t in _types(r.on_bool))]
        for name, r in REDUCERS.items()
    ]
    rows += [[code(name), "numbers; gives a position", "refused", "refused"] for name in ARG_REDUCERS]
    return table(["reducer", "over", "of nothing (f32)", "of nothing (i32)"], rows)


def _types(on_bool: bool) -> tuple[DType, DType]:
    return (BOOL, BOOL) if on_bool else (F32, I32)


def _identity(reducer: Reducer, dtype: DType) -> str:
    return code(format_expr(reducer.identity(dtype)))


MATHS: dict[str, str] = {
    "exp": "e to the power of x",
    "log": "the natural logarithm",
    "tanh": "the hyperbolic tangent",
    "erf": "the error function",
    "sqrt": "the square root",
    "rsqrt": "1 / sqrt(x)",
    "sigmoid": "1 / (1 + exp(-x))",
    "floor": "the greatest whole number that is not above x",
    "ceil": "the least whole number that is not below x",
    "round": "the nearest whole number; halves go to the even one",
    "abs": "x without its sign; of integers too",
    "sin": "the sine",
    "cos": "the cosine",
    "pow": "x to the power of y",
}


def maths() -> str:
    letters = ("x", "y", "z")
    rows = [[code(f"{name}({', '.join(letters[:count])})"), MATHS[name]] for name, count in MATH_FUNCTIONS.items()]
    return table(["function", "is"], rows)


def dtypes() -> str:
    kinds = {"float": "floating point", "int": "integer", "uint": "integer without sign", "bool": "true or false"}
    return table(
        ["type", "is", "bits", "bytes"],
        [[code(t.name), kinds[t.kind], str(t.bits), str(t.bytes)] for t in DTYPES.values()],
    )
