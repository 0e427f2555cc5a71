"""Which names an expression of a stage may use: asked first, so that a misspelt name is not reported as what follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensorc_dsl.check.compute_bindings import Environment
from tensorc_dsl.check.compute_problems import (
    NOT_IN_COMPUTE,
    TOO_EARLY,
    UNKNOWN_FUNCTION,
    UNKNOWN_NAME,
    UNSUPPORTED,
    Invalid,
    suggestion,
)
from tensorc_dsl.diagnostic import Note
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.expr import MATH_FUNCTIONS
from tensorc_dsl.syntax import tree


def parts(e: tree.Expr) -> tuple[tree.Expr, ...]:
    """The expressions directly inside an expression of the compute layer, those in subscripts included."""
    match e:
        case tree.BinaryExpr(lhs=a, rhs=b) | tree.LogicExpr(lhs=a, rhs=b) | tree.Scan(init=a, step=b):
            return (a, b)
        case tree.Negate(operand=a) | tree.NotExpr(operand=a) | tree.Reduce(body=a):
            return (a,)
        case tree.CompareExpr(operands=several) | tree.ListExpr(items=several):
            return several
        case tree.CallExpr(args=args, kwargs=kwargs):
            return (*args, *(value for _, value in kwargs))
        case tree.Conditional(cond=c, then=a, other=b):
            return (c, a, b)
        case tree.IndexExpr(base=base, indices=indices):
            return (base, *indices)
        case _:
            return ()


def inside(e: tree.Expr) -> Iterator[tree.Expr]:
    """`e` and all expressions in it, in text order."""
    yield e
    for p in parts(e):
        yield from inside(p)


def check_names(e: tree.Expr, tensors: Collection[str], later: Collection[str], env: Environment) -> None:
    """Raise Invalid for the first subscripted name that is no tensor, or call of what is no function.

    `later` are the stages that do not exist yet where `e` stands.
    """
    functions = {*MATH_FUNCTIONS, "min", "max", *DTYPES, *env.dtypes}
    for x in inside(e):
        match x:
            case tree.Scan():
                raise Invalid(UNSUPPORTED(x.span, what="`scan`", repair="write the steps as stages"))
            case tree.IndexExpr(base=tree.Name(id=name, span=span)) if name in later:
                raise Invalid(TOO_EARLY(span, name=name))
            case tree.IndexExpr(base=tree.Name(id=name, span=span)) if name not in tensors:
                raise Invalid(UNKNOWN_NAME(span, what="tensor", name=name, notes=suggestion(name, tensors)))
            case tree.CallExpr(function=tree.Name(id=name, span=span)) if name not in functions:
                note = Note("note", "a compute cannot call another compute yet")
                raise Invalid(UNKNOWN_FUNCTION(span, name=name, notes=(*suggestion(name, functions), note)))
            case tree.CallExpr(function=base) | tree.IndexExpr(base=base) if not isinstance(base, tree.Name):
                raise Invalid(NOT_IN_COMPUTE(base.span, what=f"`{base.span.text}`"))
            case _:
                pass
