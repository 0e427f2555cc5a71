"""Subscripts that depend on data: `W[min(max(index(I[i]), 0), 9), d]` reads a row that is known at run time only.

A *datum* is a conversion to `index` of a value that is read, or computed from such values. Proofs hold for every value of a
datum: it is replaced by a variable of which only the range is known, and the subscript around it, `min(max(x, 0), 9)`, is
affine again. So an access is taken to access every element that its clamp allows, and no other.
`docs/decisions/0016-values-as-subscripts-are-unconstrained.md` explains why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from tensorc_dsl.ir.dtypes import INDEX, limits
from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    children,
    dtype_of,
    index,
    rebuild,
)


def data_in(e: Expr) -> tuple[Cast, ...]:
    """The data in an expression, outermost first, each once; data inside other data are included."""
    found: list[Cast] = []
    stack = [e]
    while stack:
        top = stack.pop()
        if is_datum(top):
            found.append(top)
        stack += reversed(children(top))
    return tuple(dict.fromkeys(found))


def is_datum(e: Expr) -> TypeGuard[Cast]:
    """Whether the expression converts a value of a buffer's type to an index."""
    return isinstance(e, Cast) and e.dtype == INDEX


def depends_on_data(es: Iterable[Expr]) -> bool:
    """Whether the value of some expression depends on the contents of buffers."""
    return any(is_datum(e) or depends_on_data(children(e)) for e in es)


def with_values(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`e` with expressions replaced, largest first; the parts of a replaced expression are not replaced."""
    if not values:
        return e
    if (new := values.get(e)) is not None:
        return new
    old = children(e)
    parts = tuple(with_values(c, values) for c in old)
    return e if all(a is b for a, b in zip(old, parts, strict=True)) else rebuild(e, parts)


def datum_range(datum: Cast) -> tuple[int, int]:
    """The least and the greatest index that a datum can be: those of its value, or, since a large u64 wraps around, any."""
    low, high = value_range(datum.operand)
    least, most = limits(INDEX)
    return (low, high) if least <= low and high <= most else (least, most)


def value_range(e: Expr) -> tuple[int, int]:
    """The least and the greatest value of an expression of integers, as far as the types and the operations in it tell,
    whatever buffers contain. Arithmetic that may wrap around has any value of its type.
    """
    t = dtype_of(e)
    if not t.is_integer:
        return (0, 1) if t.kind == "bool" else limits(INDEX)
    least, most = limits(t)

    def unless_wrapped(low: int, high: int) -> tuple[int, int]:
        return (low, high) if least <= low and high <= most else (least, most)

    match e:
        case Const(value=value):
            return int(value), int(value)
        case Select(then=x, other=y):
            (a, b), (c, d) = value_range(x), value_range(y)
            return min(a, c), max(b, d)
        case Cast(operand=x) if not dtype_of(x).is_float:
            return unless_wrapped(*value_range(x))
        case Call(function="bit_and", args=(x, y)):
            highs = [high for low, high in (value_range(x), value_range(y)) if low >= 0]
            return (0, min(highs)) if highs else (least, most)
        case Binary(op=op, lhs=x, rhs=y):
            (a, b), (c, d) = value_range(x), value_range(y)
            match op:
                case "min":
                    return min(a, c), min(b, d)
                case "max":
                    return max(a, c), max(b, d)
                case "%" if c >= 0:  # of 0 the remainder is 0
                    return (a, b) if a >= 0 and b < c else (0, max(d - 1, 0))
                case "/" if c > 0:
                    ends = [n // m for n in (a, b) for m in (c, d)]
                    return min(ends), max(ends)
                case "+":
                    return unless_wrapped(a + c, b + d)
                case "-":
                    return unless_wrapped(a - d, b - c)
                case "*":
                    ends = [n * m for n in (a, b) for m in (c, d)]
                    return unless_wrapped(min(ends), max(ends))
                case _:
                    return least, most
        case _:
            return least, most


def type_conditions(name: str, datum: Cast) -> tuple[Expr, Expr]:
    """The conditions that keep the variable `name` within the range of a datum's values."""
    low, high = datum_range(datum)
    return Compare("<=", index(low), Var(name)), Compare("<=", Var(name), index(high))


def outermost(exprs: Iterable[Expr]) -> tuple[Cast, ...]:
    """The data in the expressions that are not part of other data."""
    return tuple(d for e in exprs for d in ((e,) if is_datum(e) else outermost(children(e))))
