"""Converts expressions to integer sets and maps, and answers questions about them exactly.

An expression is *affine* here if it consists of variables, integer constants, `+ - min max`, products with a
constant, and floor division and modulo by a positive constant. A condition is affine if it compares such expressions and
joins comparisons with `and`, `or`, `not`. `xor` is affine if the text of one operand shows that it has few bits, as `i % 8`
does and `simplify` makes it do. Everything else raises `NotAffine`; callers then refuse, or assume all
possible values. Names that are not loop variables or iterators in scope become parameters of the set, open dimensions
with their ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    substitute,
)
from tensorc_dsl.ir.program import Block, For
from tensorc_dsl.ir.sizes import conditions_of
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.encodings import QUOTIENTS_BY_NUMBERS, encoded
from tensorc_dsl.proof.sets.linear_forms import (
    FALSE,
    OPEN,
    TRUE,
    Context,
    Linear,
    Ranges,
    comparison,
    difference,
    linear,
    to_expr,
)
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, ranges_below, simplify, simplify_where

# Integer sets of linear conditions, made row by row: isl takes several times as long to read the same set as text.
#
# A condition here compares sums of multiples of variables. What has quotients, or joins conditions by `or`, is for `sets`.


_Row = dict[str, int]
"""A sum: the factor of each variable, and the number without one by the name "". An open dimension is a variable."""


def linear_set(conditions: Sequence[Expr]) -> isl.BasicSet | None:
    """The values of all variables and open dimensions in conditions at which these hold, as a set; None if a condition is not
    linear."""
    equal: list[_Row] = []
    positive: list[_Row] = []
    for c in conditions:
        if not isinstance(c, Compare) or dtype_of(c.lhs) != INDEX:
            return None
        row: _Row = {}
        sign = -1 if c.op in ("<", "<=") else 1
        if c.op == "!=" or not (_add(c.lhs, sign, row) and _add(c.rhs, -sign, row)):
            return None
        if c.op in ("<", ">"):
            row[""] = row.get("", 0) - 1
        (equal if c.op == "==" else positive).append(row)
    numbers = {v: n for n, v in enumerate(sorted({v for row in (*equal, *positive) for v in row if v}))}
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(numbers))
    local = isl.LocalSpace.from_space(space)
    out = isl.BasicSet.universe(space)
    for rows, empty in (
        (equal, isl.Constraint.equality_alloc(local)),
        (positive, isl.Constraint.inequality_alloc(local)),
    ):
        for row in rows:
            constraint = empty
            for v, factor in row.items():
                if v:
                    constraint = constraint.set_coefficient_val(isl.dim_type.set, numbers[v], factor)
                else:
                    constraint = constraint.set_constant_val(factor)
            out = out.add_constraint(constraint)
    return out


def _add(e: Expr, factor: int, row: _Row) -> bool:
    """Add a multiple of an expression to a row; False if it is no sum."""
    match e:
        case Var(name=name) | Dim(name=name):
            row[name] = row.get(name, 0) + factor
        case Const(value=value) if e.dtype == INDEX:
            row[""] = row.get("", 0) + factor * int(value)
        case Binary(op="+" | "-" as op, lhs=a, rhs=b):
            return _add(a, factor, row) and _add(b, factor if op == "+" else -factor, row)
        case Binary(op="*", lhs=a, rhs=b):
            if (n := constant(b)) is not None:
                return _add(a, factor * n, row)
            return (n := constant(a)) is not None and _add(b, factor * n, row)
        case _:
            return False
    return True


# Cuts an equality of mixed radix numbers into one for each of their digits.
#
#     c*h + l == 0   if and only if   h == 0 and l == 0,   where -c < l < c
#
# Places in memory are such numbers: the version of a buffer, the row, the element. Each digit has few variables, so one of
# them refutes what cannot be equal, and a solver has less to eliminate.


def by_digits(conditions: Sequence[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """Conditions that hold exactly where the given ones do, with equalities cut into those of digits."""
    context, out = Context(ranges), list[Expr]()
    for c in conditions:
        match c:
            case Compare(op="==", lhs=a, rhs=b) if dtype_of(a) == INDEX:
                digits = _digits(difference(a, b, context), context)
                out += [e for d in digits if (e := comparison("==", d, context)) != TRUE] if digits else [c]
            case _:
                out.append(c)
    return tuple(out)


def _digits(form: Linear, context: Context) -> list[Linear]:
    """Forms that are all 0 exactly where this one is, the highest digit first."""
    out: list[Linear] = []
    for c in sorted({abs(f) for f in form.terms.values()}, reverse=True):
        high = {a: f // c for a, f in form.terms.items() if f % c == 0}
        low = {a: f for a, f in form.terms.items() if f % c}
        for rest in (form.constant % c, form.constant % c - c) if low else ():
            least, most = context.range_of(Linear(low, rest))
            if least is not None and most is not None and -c < least and most < c:
                out.append(Linear(high, (form.constant - rest) // c))
                form = Linear(low, rest)
                break
    return [*out, form] if out else []


_KEYWORDS = frozenset(
    (
        "and",
        "or",
        "not",
        "exists",
        "implies",
        "mod",
        "min",
        "max",
        "floor",
        "ceil",
        "floord",
        "ceild",
        "true",
        "false",
        "True",
        "False",
        "infty",
        "NaN",
        "rat",
    )
)

_MAX_BITS = 12
"""The largest number of bits of the smaller operand of an `xor`: each bit costs isl two divisions."""


class NotAffine(Exception):
    """The expression has no exact counterpart as an integer set; `expr` is the subexpression at fault."""

    def __init__(self, expr: Expr) -> None:
        super().__init__(expr)
        self.expr = expr

    def __str__(self) -> str:
        return f"not affine: {self.expr}"


def set_name(name: str) -> str:
    """The name of a variable inside a set: its own, unless isl reads it as a keyword."""
    return f"{name}'" if name in _KEYWORDS else name


def affine_text(e: Expr) -> str:
    """An index expression in the notation of isl."""
    match e:
        case Var(name=name) | Dim(name=name):
            return set_name(name)
        case Const(value=value) if e.dtype == INDEX:
            return f"({value})" if value < 0 else str(value)
        case Binary(op="+" | "-" as op, lhs=a, rhs=b):
            return f"({affine_text(a)} {op} {affine_text(b)})"
        case Binary(op="*", lhs=a, rhs=b):
            factor = constant(a) if constant(b) is None else constant(b)
            if factor is None:
                raise NotAffine(e)
            return f"({factor}*{affine_text(b if constant(b) is None else a)})"  # isl requires the number first
        case Binary(op="/" | "%" as op, lhs=a, rhs=b):
            divisor = constant(b)
            if divisor is None or divisor <= 0:
                raise NotAffine(e)
            return f"floor({affine_text(a)} / {divisor})" if op == "/" else f"({affine_text(a)} mod {divisor})"
        case Binary(op="min" | "max" as op, lhs=a, rhs=b):
            return f"{op}({affine_text(a)}, {affine_text(b)})"
        case Binary(lhs=a, rhs=b):  # xor
            return _xor_text(e, a, b)
        case Const() | Compare() | Logic() | Not() | Select() | Cast() | Bitcast() | Call() | Load():
            raise NotAffine(e)
        case _:
            assert_never(e)


def _xor_text(e: Expr, a: Expr, b: Expr) -> str:
    """The `xor` bit by bit up to the size of the smaller operand; higher bits of the other operand are unchanged."""
    for small, other in ((a, b), (b, a)):
        low, high = bounds(small, {})
        if low is not None and low >= 0 and high is not None and high < 1 << _MAX_BITS:
            x, y, bits = affine_text(small), affine_text(other), [1 << k for k in range(high.bit_length())]
            size = 1 << high.bit_length()
            each = (f"{n}*((floor({x} / {n}) + floor({y} / {n})) mod 2)" for n in bits)
            return f"({' + '.join((f'{size}*floor({y} / {size})', *each))})"
    raise NotAffine(e)


def condition_text(c: Expr) -> str:
    """A condition in the notation of isl."""
    match c:
        case Const(value=value) if isinstance(value, bool):
            return "true" if value else "false"
        case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) == INDEX:
            return f"{affine_text(a)} {'=' if op == '==' else op} {affine_text(b)}"
        case Logic(op=op, lhs=a, rhs=b):
            return f"({condition_text(a)} {op} {condition_text(b)})"
        case Not(operand=a):
            return f"not ({condition_text(a)})"
        case _:
            raise NotAffine(c)


def affine_only(conditions: Iterable[Expr]) -> tuple[Expr, ...]:
    """The affine ones of the conditions and of those that they join by `and`. Their conjunction holds wherever all of the
    conditions do.
    """
    out: list[Expr] = []
    for c in (part for whole in conditions for part in conjuncts(whole)):
        try:
            condition_text(c)
        except NotAffine:
            continue
        out.append(c)
    return tuple(out)


def loop_conditions(loops: Sequence[For]) -> tuple[Expr, ...]:
    """Conditions that keep each variable within its loop."""
    out: list[Expr] = []
    for loop in loops:
        out += [Compare("<=", ZERO, Var(loop.var)), Compare("<", Var(loop.var), loop.extent)]
    return tuple(out)


def dim_conditions(dims: Iterable[Dim]) -> tuple[Expr, ...]:
    """Conditions that keep each open dimension within its range, and what its size and others meet."""
    dims = tuple(dims)
    told = affine_only(conditions_of(dims))
    out: list[Expr] = []
    for d in {d.name: d for d in (*sorted(_dims_of(told), key=lambda d: d.name), *dims)}.values():
        out.append(Compare("<=", index(d.low), d))
        if d.high is not None:
            out.append(Compare("<=", d, index(d.high)))
    return (*out, *told)


def _dims_of(exprs: Iterable[Expr]) -> frozenset[Dim]:
    return frozenset[Dim]().union(*map(dims_in, exprs))


def facts_of(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    """What is known of the open dimensions in expressions. A set that is compared with one in which they occur needs it, too,
    since that one has no points at other sizes.
    """
    return dim_conditions(sorted(_dims_of(exprs), key=lambda d: d.name))


def _tuple(names: Iterable[str]) -> str:
    return f"[{', '.join(map(set_name, names))}]"


def _header(bound: Sequence[str], used: Sequence[Expr]) -> tuple[str, tuple[Expr, ...]]:
    """The text that declares the parameters, and the known facts about them."""
    if frozenset[str]().union(*map(free_vars, used)) <= set(bound):
        return "", ()
    known = facts_of(used)
    free = frozenset[str]().union(*map(free_vars, (*used, *known))) - set(bound)
    return f"{_tuple(sorted(free))} -> ", known


def points(variables: Sequence[str], conditions: Sequence[Expr]) -> isl.Set:
    """The set `{ [variables] : all conditions }`."""
    head, known = _header(variables, conditions)
    text = " and ".join(map(condition_text, (*conditions, *known)))
    return isl.Set(f"{head}{{ {_tuple(variables)}{' : ' if text else ''}{text} }}")


def mapping(variables: Sequence[str], results: Sequence[Expr], conditions: Sequence[Expr] = ()) -> isl.Map:
    """The map `{ [variables] -> [results] : all conditions }`."""
    head, known = _header(variables, (*results, *conditions))
    text = " and ".join(map(condition_text, (*conditions, *known)))
    image = ", ".join(map(affine_text, results))
    return isl.Map(f"{head}{{ {_tuple(variables)} -> [{image}]{' : ' if text else ''}{text} }}")


def domain(loops: Sequence[For]) -> isl.Set:
    """The iterations of a nest: `{ [i, j] : 0 <= i < 8 and … }`."""
    return points([loop.var for loop in loops], loop_conditions(loops))


def instance_map(loops: Sequence[For], block: Block) -> isl.Map:
    """The map from iterations in which the block runs to values of its iterators: `{ [i, j] -> [vi, vj] : … }`."""
    conditions = (*loop_conditions(loops), *block.where)
    return mapping([loop.var for loop in loops], [it.binding for it in block.iters], conditions)


def bindings(block: Block) -> dict[str, Expr]:
    """The binding of each iterator, over the loop variables."""
    return {it.name: it.binding for it in block.iters}


def feasible(extents: Mapping[str, Expr], conditions: Sequence[Expr]) -> bool:
    """Whether some integers satisfy all conditions, with `0 <= v < extents[v]` for the variables in `extents`.

    Other names stand for any integers, open dimensions for the sizes in their ranges. Raises NotAffine if a condition or an
    extent that matters is not affine.
    """
    ranges = ranges_below(extents.items())
    if any(high is not None and high < 0 for _, high in ranges.values()):
        return False
    kept = by_digits(simplify_where(conditions, ranges), ranges)
    if FALSE in kept:
        return False
    # A variable with a constant extent that no condition contains always has a value.
    needed = frozenset[str]().union(*map(free_vars, kept))
    pending = {v for v, e in extents.items() if v in needed or constant(e) is None}
    bounded: set[str] = set()
    while pending:
        v = pending.pop()
        bounded.add(v)
        pending |= {n for n in free_vars(extents[v]) if n in extents and n not in bounded}
    limits = tuple((v, simplify(extents[v], ranges)) for v in sorted(bounded))
    return _feasible(limits, kept)


@lru_cache(maxsize=16384)
def _feasible(limits: tuple[tuple[str, Expr], ...], conditions: tuple[Expr, ...]) -> bool:
    within = [c for v, e in limits for c in (Compare("<=", ZERO, Var(v)), Compare("<", Var(v), e))]
    dims = _dims_of((*within, *conditions))
    terms = encoded((*within, *conditions, *dim_conditions(dims)), QUOTIENTS_BY_NUMBERS)
    every = [*terms.exprs, *terms.conditions]
    names = sorted(frozenset[str]().union(*map(free_vars, every)))
    plain: dict[str, Expr] = {n: Var(f"x{k}") for k, n in enumerate(names)}  # callers' names may be unreadable for isl
    return _have_solution([f"x{k}" for k in range(len(names))], [substitute(c, plain) for c in every])


def _have_solution(variables: Sequence[str], conditions: list[Expr]) -> bool:
    """Whether some integers satisfy all conditions. `a != b` is two questions: isl takes far longer for the union."""
    for n, c in enumerate(conditions):
        if isinstance(c, Compare) and c.op == "!=":
            rest = [*conditions[:n], *conditions[n + 1 :]]
            halves = (Compare("<", c.lhs, c.rhs), Compare(">", c.lhs, c.rhs))
            return any(_have_solution(variables, [*rest, half]) for half in halves)
    if not conditions:
        return True
    rows = linear_set(conditions)
    return not (points(variables, conditions) if rows is None else rows).is_empty()


_Limits = tuple[tuple[str, int | None, int | None], ...]
"""Variables with the least and the greatest of their values, as far as these are known."""


def extremes(e: Expr, ranges: Ranges, given: Sequence[Expr] = ()) -> tuple[int, int] | None:
    """The least and the greatest value of an index expression over the ranges of its variables and of open dimensions, where
    `given` holds as far as it is affine. None if the expression is not affine, or not known to have both.

    Most guards say nothing of the expression: they are left out, and intervals are exact for a sum of variables.
    """
    kept = affine_only(given)
    limits = _limits(e, ranges, kept)
    lows = {n: index(low) for n, low, high in limits if low is not None and high is not None and low <= high}
    if len(lows) == len(limits) and not _dims_of((e, *kept)):
        context = Context(ranges)
        form = linear(e, context)
        bearing = _bearing(form, kept)
        apart = (c for c in kept if c not in bearing)
        if all(isinstance(a, str) for a in form.terms) and all(
            simplify(substitute(c, lows), {}) == TRUE for c in apart
        ):
            low, high = context.range_of(form)
            if not bearing and low is not None and high is not None:
                return low, high
            e, kept = to_expr(form), bearing
            limits = _limits(e, ranges, kept)
    return _extremes(e, limits, kept)


def _limits(e: Expr, ranges: Ranges, given: tuple[Expr, ...]) -> _Limits:
    names = sorted(free_vars(e).union(*map(free_vars, given)))
    return tuple((n, *ranges.get(n, OPEN)) for n in names)


def _bearing(form: Linear, conditions: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The conditions whose variables, by way of each other, depend on those of a sum."""
    reached: set[object] = set(form.terms)
    while True:
        found = [c for c in conditions if not reached.isdisjoint(free_vars(c))]
        more = reached.union(*map(free_vars, found))
        if more == reached:
            return tuple(found)
        reached = more


@lru_cache(maxsize=4096)
def _extremes(e: Expr, limits: _Limits, given: tuple[Expr, ...]) -> tuple[int, int] | None:
    dims = _dims_of((e, *given))
    if not dims and any(low is None or high is None for _, low, high in limits):
        return None
    value = Var("value'")  # no loop of a program has a name with a quote
    within = [Compare("<=", index(low), Var(n)) for n, low, _ in limits if low is not None]
    within += [Compare("<=", Var(n), index(high)) for n, _, high in limits if high is not None]
    terms = encoded([Compare("==", value, e), *within, *given], QUOTIENTS_BY_NUMBERS)
    every = [*terms.exprs, *terms.conditions]
    names = sorted(frozenset[str]().union(*map(free_vars, every)) - {value.name})
    # Callers' names may be unreadable for isl.
    plain_names = [f"x{k}" for k in range(len(names))]
    plain: dict[str, Expr] = {n: Var(x) for n, x in zip(names, plain_names, strict=True)}
    asked = [substitute(c, plain) for c in every]
    try:
        # Its names are sorted: the value comes first.
        rows = None if dims else linear_set(asked)
        found = points([value.name, *plain_names], asked).project_out_all_params() if rows is None else rows.to_set()
    except NotAffine:
        return None
    least, most = found.dim_min_val(0), found.dim_max_val(0)
    return (least.to_python(), most.to_python()) if least.is_int() and most.is_int() else None


def covers(
    loops: Sequence[For],
    needed: Sequence[Expr],
    given: Sequence[tuple[Sequence[For], Sequence[Expr]]],
    numbers: Sequence[str] = (),
) -> bool:
    """Whether each point of `loops`, with all values of `numbers`, at which `needed` holds is covered by an entry of `given`:
    some values of that entry's own loops satisfy its conditions. Raises NotAffine if anything is not affine.
    """
    names = [*(loop.var for loop in loops), *numbers]
    known = facts_of(e for own, conditions in given for e in (*conditions, *(loop.extent for loop in own)))
    rest = points(names, (*loop_conditions(loops), *needed, *known))
    for own, conditions in given:
        if rest.is_empty():
            return True
        inner = [loop.var for loop in own]
        found = points([*names, *inner], (*loop_conditions((*loops, *own)), *conditions))
        rest = rest.subtract(found.project_out(isl.dim_type.set, len(names), len(inner)))
    return rest.is_empty()
