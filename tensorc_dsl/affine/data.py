"""Subscripts that data decide: `W[min(max(index(I[i]), 0), 9), d]` reads a row that only a run of the program knows.

A *datum* is a conversion to `index`: a number that is read, or made of what is read. Proofs hold for every value that it
may have: it becomes a variable, of which the type is all that is known, and the subscript around it, `min(max(x, 0), 9)`,
is affine again. So an access may touch every element that its clamp allows, and no other.
`docs/decisions/0016-a-datum-is-any-number.md` tells why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Cast, Compare, Expr, Var, children, dtype_of, index, rebuild
from tensorc_dsl.ir.numbers import limits


def data_in(e: Expr) -> tuple[Cast, ...]:
    """The data in an expression, outermost first, each once; those that decide others included."""
    found: list[Cast] = []
    stack = [e]
    while stack:
        top = stack.pop()
        if is_datum(top):
            found.append(top)
        stack += reversed(children(top))
    return tuple(dict.fromkeys(found))


def is_datum(e: Expr) -> TypeGuard[Cast]:
    """Whether it is a number of a type that is read from buffers, made an index."""
    return isinstance(e, Cast) and e.dtype == INDEX


def depends_on_data(es: Iterable[Expr]) -> bool:
    """Whether some of the expressions have other values where other data are read."""
    return any(is_datum(e) or depends_on_data(children(e)) for e in es)


def with_values(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`e` with expressions in place of others, the largest first: what stands in a replaced one is gone with it."""
    if not values:
        return e
    if (new := values.get(e)) is not None:
        return new
    old = children(e)
    parts = tuple(with_values(c, values) for c in old)
    return e if all(a is b for a, b in zip(old, parts, strict=True)) else rebuild(e, parts)


def datum_range(datum: Cast) -> tuple[int, int]:
    """The least and the greatest value that a datum's type has."""
    return limits(dtype_of(datum.operand))


@dataclass(frozen=True, slots=True)
class Freed:
    """Expressions in which data are variables, and the data by the names of those."""

    exprs: tuple[Expr, ...]
    data: Mapping[str, Cast]

    @property
    def ranges(self) -> tuple[Expr, ...]:
        """What is known of the variables: conditions that say which values their types have."""
        return tuple(c for name, datum in self.data.items() for c in type_conditions(name, datum))


def type_conditions(name: str, datum: Cast) -> tuple[Expr, Expr]:
    """That the variable `name` is within the range of a datum's type."""
    low, high = datum_range(datum)
    return Compare("<=", index(low), Var(name)), Compare("<=", Var(name), index(high))


def freed(exprs: Sequence[Expr], tag: str = "") -> Freed:
    """The expressions with a variable in place of each datum, equal data being one. The names begin with `datum` and `tag`:
    no loop's name holds the sign that ends them.
    """
    found = dict.fromkeys(outermost(exprs))
    names: dict[Expr, Expr] = {d: Var(f"datum{tag}{n}'") for n, d in enumerate(found)}
    data = {f"datum{tag}{n}'": d for n, d in enumerate(found)}
    return Freed(tuple(with_values(e, names) for e in exprs), data)


def outermost(exprs: Iterable[Expr]) -> tuple[Cast, ...]:
    """The data in the expressions that decide them, but not those that decide other data."""
    return tuple(d for e in exprs for d in ((e,) if is_datum(e) else outermost(children(e))))
