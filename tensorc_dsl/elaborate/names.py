"""The names in an expression of a stage: functions, built-in reducers with their operations and identities
(`elaborate.user_reducers` has those that a file declares), and the check that comes first, so that a misspelt name is not
reported as a consequence of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tensorc_dsl.base.diagnostic import Diagnostic, Note, help_note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.problems import (
    CHAINED,
    MISPLACED_VIEW,
    NARROW_POSITION,
    NO_INDEX_LIST,
    NOT_IN_COMPUTE,
    NOT_REDUCIBLE,
    NOTHING_TO_PICK,
    OF_MODULE,
    SCAN_INIT,
    SCAN_PLACE,
    SELF_READ,
    SIZE_BY_SHAPE,
    STEPS_TOGETHER,
    STORED_ONLY,
    TOO_EARLY,
    UNKNOWN_FUNCTION,
    UNKNOWN_NAME,
    Invalid,
)
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, I64, INDEX, DType, limits
from tensorc_dsl.ir.expr import ZERO, Const, Expr, Var, add, constant, mul
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.reductions import ArgKind, FoldOp, combine, identity
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near


@frozen
class Reducer:
    """The reducer `accumulator op value`, with the identity of `op`."""

    name: str
    op: FoldOp

    def combine(self, a: Expr, b: Expr) -> Expr:
        return combine(self.op, a, b)

    def identity(self, dtype: DType) -> Const:
        """The initial value of a reduction."""
        return identity(self.op, dtype)

    @property
    def on_bool(self) -> bool:
        """Whether it combines conditions instead of numbers."""
        return self.op in ("and", "or")

    def check(self, e: tree.Reduce, dtype: DType) -> None:
        """Raise Invalid unless this reducer accepts the type."""
        if not dtype.has_arithmetic:
            raise Invalid(STORED_ONLY(e.body.span, op=e.reducer, dtype=dtype))
        if (dtype == BOOL) == self.on_bool:
            return
        wanted = "conditions" if self.on_bool else "numbers"
        text = e.body.span.text
        repair = f"compare: `{text} != 0`" if self.on_bool else f"convert: `i32({text})`"
        raise Invalid(NOT_REDUCIBLE(e.body.span, reducer=e.reducer, wanted=wanted, found=dtype, repair=repair))


REDUCERS: dict[str, Reducer] = {
    r.name: r
    for r in (
        Reducer("sum", "+"),
        Reducer("prod", "*"),
        Reducer("min", "min"),
        Reducer("max", "max"),
        Reducer("any", "or"),
        Reducer("all", "and"),
    )
}


ARG_REDUCERS: tuple[ArgKind, ...] = ("argmin", "argmax")


def position_type(e: tree.Reduce, want: DType | None, over: Mapping[str, Expr]) -> DType:
    """The type of the positions of `argmin` and `argmax`: the integer type `want` if given, else i64. Raises Invalid."""
    t = want if want is not None and want.is_integer and want != INDEX else I64
    for name, extent in over.items():
        if constant(extent) == 0:
            raise Invalid(NOTHING_TO_PICK(e.span, reducer=e.reducer, index=name))
    count = bounds(flat(over)[1], {})[1]
    # The highest number of the type is the initial position, so it cannot be a position.
    room = limits(t)[1]
    if count is not None and count > room:
        raise Invalid(NARROW_POSITION(e.span, count=count, dtype=t, room=room))
    return t


def flat(over: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """The position of the indices, counted row by row, and the number of positions."""
    at: Expr = ZERO
    count: Expr = Const(1, INDEX)
    for n, extent in over.items():
        at, count = add(mul(at, extent), Var(str(n))), mul(count, extent)
    return at, count


# The computes and reducers that a compute can name: those of its file, and those that the file uses.


@frozen
class Definitions:
    """The computes and reducers that the items of one file can name."""

    computes: Mapping[str, tree.ComputeDef] = field(default_factory=dict[str, tree.ComputeDef])
    reducers: Mapping[str, tree.ReducerDef] = field(default_factory=dict[str, tree.ReducerDef])


_NONE = Definitions()


@dataclass(slots=True)
class Library:
    """The definitions of every file, by the name of its source. A compute sees the definitions of its own file.

    So the calls of a used compute mean the names of its own file, whatever the user's file calls so.
    """

    files: dict[str, Definitions] = field(default_factory=dict[str, Definitions])
    heights: dict[int, tuple[tree.ComputeDef, int]] = field(
        default_factory=dict[int, tuple[tree.ComputeDef, int]], compare=False, repr=False
    )
    """By the identity of a compute, which is kept, how many calls are below it, one in the other (`calls.recursion`)."""

    def seen_by(self, item: tree.ComputeDef | tree.ReducerDef) -> Definitions:
        return self.files.get(item.span.source.name, _NONE)


FUNCTIONS: dict[str, int] = {
    **{f: m.count for f, m in MATHS.items()},
    "min": 2,
    "max": 2,
    "xor": 2,
    "select": 3,
    "clamp": 3,
    "saturate": 2,
    "bitcast": 2,
}
"""The functions of the compute layer, with the number of their arguments."""


def parts(e: tree.Expr) -> tuple[tree.Expr, ...]:
    """The expressions directly inside an expression of the compute layer, those in subscripts included."""
    match e:
        case tree.Name() | tree.Number():  # the most frequent nodes
            return ()
        case tree.IndexExpr(base=base, indices=indices):
            return (base, *indices)
        case tree.BinaryExpr(lhs=a, rhs=b) | tree.LogicExpr(lhs=a, rhs=b) | tree.Scan(init=a, step=b):
            return (a, b)
        case tree.Negate(operand=a) | tree.NotExpr(operand=a) | tree.Reduce(body=a):
            return (a,)
        case tree.CompareExpr(operands=several) | tree.ListExpr(items=several) | tree.TupleExpr(items=several):
            return several
        case tree.CallExpr(args=args, kwargs=kwargs):
            return (*args, *(value for _, value in kwargs))
        case tree.Conditional(cond=c, then=a, other=b):
            return (c, a, b)
        case _:
            return ()


def inside(e: tree.Expr) -> Iterator[tree.Expr]:
    """`e` and all expressions in it, in text order."""
    stack = [e]
    while stack:
        yield (top := stack.pop())
        stack += reversed(parts(top))


@frozen
class StageNames:
    """The names that the stage `stage` can use: the `tensors` above it, not those `later`, and the file's definitions."""

    stage: str
    tensors: Collection[str]
    later: Collection[str]
    env: Environment
    defined: Definitions


def check_names(value: tree.Expr, scope: StageNames) -> None:
    """Raise Invalid for all subscripted names that are no tensors, calls of unknown functions, and misplaced scans."""
    found: list[Diagnostic] = []

    def go(e: tree.Expr, part: Literal["", "init", "step"]) -> None:
        found.extend(_wrong(e, scope, part, whole=e is value))
        if isinstance(e, tree.Scan):
            go(e.init, part or "init")
            go(e.step, part or "step")
            return
        for p in parts(e):
            go(p, part)

    go(value, "")
    if found:
        raise Invalid(*dict.fromkeys(found))


def unknown_index(span: Span, name: str, known: Iterable[str]) -> Diagnostic:
    """The finding for a name in a subscript that is none of the `known` indices and dimensions.

    A dimension that differs in case is not what was meant: `A[i, K]` is out of bounds.
    """
    repair = f"an index is one of the stage's left side, or goes over a reduction: `sum[{name}] …`"
    notes = near(name, (n for n in known if n.lower() != name.lower()))
    texts = tuple(n for n in notes if n.text.startswith("did you mean"))
    return UNKNOWN_NAME(span, what="index or dimension", name=name, notes=(*texts, help_note(repair)))


_ELSEWHERE = {
    **dict.fromkeys(("cast", "astype", "convert", "float"), "f32(x)"),
    "double": "f64(x)",
    "half": "f16(x)",
    "int": "i32(x)",
    "relu": "max(x, 0.0)",
    "square": "x * x",
    "fma": "x * y + z",
    "mod": "x % y",
    "ln": "log(x)",
}
"""What is written for functions of other languages whose names are like none of the functions that do the same."""


def _called(call: tree.CallExpr, name: str, scope: StageNames) -> tuple[Note, ...]:
    """What is written in place of a call of `name`, which is no function."""
    if name in {*REDUCERS, *ARG_REDUCERS}:
        return (help_note(f"a reduction names the indices that it goes over: `{name}[k] …`"),)
    if name in scope.tensors:
        subscripts = ", ".join(a.span.text for a in call.args) or "i"
        return (help_note(f"an element of a tensor is read with brackets: `{name}[{subscripts}]`"),)
    if name in _ELSEWHERE:
        return (help_note(f"write `{_ELSEWHERE[name]}`"),)
    known = {*FUNCTIONS, *DTYPES, *scope.env.dtypes, *scope.defined.computes}
    return near(name, known, "there are " + ", ".join(f"`{f}`" for f in sorted(FUNCTIONS)))


def _wrong(x: tree.Expr, scope: StageNames, part: Literal["", "init", "step"], whole: bool) -> Iterator[Diagnostic]:
    """The findings about `x` itself; `part` is the part of a scan in which it stands."""
    match x:
        case tree.Name() | tree.Number():
            pass
        case tree.Scan() if not whole:
            yield SCAN_PLACE(x.span, index=x.index.name)
        case tree.IndexExpr(base=tree.Name(id=name, span=span)) if name == scope.stage and name not in scope.tensors:
            if part == "init":
                yield SCAN_INIT(span, stage=name)
            elif not part:
                yield SELF_READ(span, name=name)
        case tree.IndexExpr(base=tree.Name(id=name, span=span)) if name in scope.later:
            yield TOO_EARLY(span, name=name, notes=(STEPS_TOGETHER,) if part == "step" else ())
        case tree.IndexExpr(base=tree.Name(id=name, span=span)) if name not in scope.tensors:
            yield UNKNOWN_NAME(
                span, what="tensor", name=name, notes=near(name, scope.tensors, f"declare `{name}` first")
            )
        case tree.CallExpr(function=tree.Name(id="view")) if "view" not in scope.defined.computes:
            yield MISPLACED_VIEW(x.span)
        case tree.CallExpr(function=tree.Name(id=name)) if name in FUNCTIONS or name in DTYPES:
            pass
        case tree.CallExpr(function=tree.Name(id=name)) if name in scope.env.dtypes:
            pass
        case tree.CallExpr(function=tree.Name(id=name)) if name in scope.defined.computes:
            rank = len(scope.defined.computes[name].outputs[0].type.shape)
            yield NO_INDEX_LIST(x.span, name=x.span.text, indices=", ".join("ijklmnop"[:rank]))
        case tree.CallExpr(function=tree.Name(id=name, span=span)):
            yield UNKNOWN_FUNCTION(span, name=name, notes=_called(x, name, scope))
        case tree.IndexExpr(base=tree.IndexExpr(base=tree.Name(id=name), indices=first), indices=more):
            yield CHAINED(x.span, name=name, subscripts=", ".join(i.span.text for i in (*first, *more)))
        case tree.CallExpr(function=tree.Attribute(name=name, span=span)) if name in FUNCTIONS:
            yield OF_MODULE(span, what=f"`{span.text}`", name=name)
        case tree.CallExpr(function=base) | tree.IndexExpr(base=base) if not isinstance(base, tree.Name):
            is_size = isinstance(base, tree.Attribute) and base.name in ("shape", "size")
            yield (SIZE_BY_SHAPE if is_size else NOT_IN_COMPUTE)(base.span, what=f"`{base.span.text}`")
        case tree.Reduce(reducer=name) if name not in {*REDUCERS, *ARG_REDUCERS, *scope.defined.reducers}:
            yield UNKNOWN_NAME(
                x.span,
                what="reducer",
                name=name,
                notes=near(name, scope.defined.reducers, f"declare it: `reducer {name}(a, b) = … identity …`"),
            )
        case _:
            pass
