"""Simplifies index expressions under ranges of their variables: the small, fast half of `proof.sets`.

An expression becomes a *linear form*: a constant plus integer multiples of atoms. An atom is a variable or a term
that is not linear (`x / 4`, `x % 4`, `min(x, y)`, a product of variables). Interval arithmetic over the form decides
conditions. Every result holds for all values of the variables within their ranges; undecided conditions stay as they are
written. `proof.sets.sets` answers exactly over whole domains; this module answers in microseconds.

Ranges are inclusive intervals `(low, high)`; None is an open end, and a variable without a range is open at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    constant,
    dtype_of,
)
from tensorc_dsl.ir.program import For, Iter
from tensorc_dsl.proof.sets.linear_forms import Context, Interval, Linear, Ranges, linear, simplified, to_expr, truth


def ranges_below(extents: Iterable[tuple[str, Expr]]) -> dict[str, Interval]:
    """The range of each variable: 0 to extent - 1, open above without a limit. An extent is over the variables before."""
    out: dict[str, Interval] = {}
    for name, extent in extents:
        n = constant(extent)
        high = bounds(extent, out)[1] if n is None else n
        out[name] = (0, None if high is None else high - 1)
    return out


def extent_ranges(loops: Iterable[For]) -> dict[str, Interval]:
    """The range of each loop variable."""
    return ranges_below((x.var, x.extent) for x in loops)


def iter_ranges(iters: Iterable[Iter]) -> dict[str, Interval]:
    """The range of each iterator of a block."""
    return ranges_below((it.name, it.extent) for it in iters)


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """An equal expression in canonical form: index expressions with the same linear form become the same expression.

    Index arithmetic and comparisons of index expressions are simplified wherever they occur in `e`; arithmetic on
    element values is not. Conditions that `ranges` decide become `true` or `false`.
    """
    return simplified(e, Context(ranges))


def prove(cond: Expr, ranges: Ranges) -> bool | None:
    """True if the condition always holds, False if it never does, None if neither is known."""
    return truth(cond, Context(ranges))


def bounds(e: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    """An interval that contains every value of an index expression; None is an open end."""
    context = Context(ranges)
    return context.range_of(linear(e, context))


def linear_form(e: Expr, ranges: Ranges) -> tuple[dict[Expr, int], int]:
    """The atoms of an index expression with their factors, and the constant."""
    form = linear(e, Context(ranges))
    return {Var(a) if isinstance(a, str) else a: c for a, c in form.terms.items()}, form.constant


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that `cond` joins by `and`; none if it is `true`."""
    match cond:
        case Const(value=True):
            return ()
        case Logic(op="and", lhs=a, rhs=b):
            return (*conjuncts(a), *conjuncts(b))
        case _:
            return (cond,)


def simplify_where(where: Iterable[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """Conditions simplified and split at `and`, in order, without duplicates and without those that always hold."""
    out: dict[Expr, None] = {}
    for cond in where:
        out.update(dict.fromkeys(conjuncts(simplify(cond, ranges))))
    return tuple(out)


def essential(where: Iterable[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """Conditions simplified as by `simplify_where`, without those that another one implies."""
    context = Context(ranges)
    kept: list[tuple[Expr, Linear | None]] = []
    for cond in simplify_where(where, ranges):
        new = _negative_form(cond, context)
        if any(_implies(old, new, context) for _, old in kept):
            continue
        kept = [(c, old) for c, old in kept if not _implies(new, old, context)]
        kept.append((cond, new))
    return tuple(c for c, _ in kept)


def consequences(known: Iterable[Expr]) -> Callable[[Expr], bool]:
    """The test whether a condition follows from one of those that are known, as far as intervals can show; of the greater of
    two values, `i + max(x, y) < n`, if it follows of both."""
    context = Context({})
    forms = [_negative_form(k, context) for k in known]

    def shown(wanted: Linear | None) -> bool:
        if wanted is None or any(_implies(k, wanted, context) for k in forms):
            return wanted is not None
        for atom, factor in wanted.terms.items():
            if isinstance(atom, Binary) and atom.op == ("max" if factor > 0 else "min"):
                rest = wanted.minus(Linear({atom: factor}, 0))
                return all(shown(rest.plus(linear(x, context).times(factor))) for x in (atom.lhs, atom.rhs))
        return False

    return lambda cond: shown(_negative_form(cond, context))


def _implies(a: Linear | None, b: Linear | None, context: Context) -> bool:
    """Whether `a < 0` implies `b < 0`, as far as intervals can show."""
    if a is None or b is None:
        return False
    most = context.range_of(b.minus(a))[1]
    return most is not None and most <= 0


def _negative_form(cond: Expr, context: Context) -> Linear | None:
    """A form that is negative exactly if the condition holds; a quotient that stands alone is multiplied out.

    d < x / c is c*d + c - 1 < x, and d + x / c < 0 is c*d + x < 0.
    """
    match cond:
        case Compare(op="<" | "<=" as op, lhs=a, rhs=b) | Compare(op=">" | ">=" as op, lhs=b, rhs=a) if (
            dtype_of(a) == INDEX
        ):
            form = linear(a, context).minus(linear(b, context)).plus_constant(0 if op in "<>" else -1)
        case _:
            return None
    for atom, factor in form.terms.items():
        match atom:
            case Binary(op="/", lhs=x, rhs=Const(value=int(c))) if abs(factor) == 1 and c > 0:
                rest = form.minus(Linear({atom: factor}, 0)).times(c)
                inner = linear(x, context)
                form = rest.plus(inner) if factor > 0 else rest.minus(inner).plus_constant(c - 1)
                return _negative_form(Compare("<", to_expr(form), ZERO), context)
            case _:
                continue
    return form


def is_multiple(e: Expr, n: int, ranges: Ranges) -> bool:
    """Whether `n` is proved to divide every value of an index expression."""
    form = linear(e, Context(ranges))
    return form.constant % n == 0 and all(c % n == 0 for c in form.terms.values())
