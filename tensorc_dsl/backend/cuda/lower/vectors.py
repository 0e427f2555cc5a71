"""Vectorized loops of one thread: a loop is a vector if its lanes are adjacent, under conditions that all of them share."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.affine.form import Interval, Ranges
from tensorc_dsl.affine.simplify import conjuncts, linear_form, simplify
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    add,
    children,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    mul,
    transform,
)
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.lower.bounds import stride
from tensorc_dsl.lower.flat import Flat, If, Loop, Store, store_loads


def whole_vectors(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """Vectorized loops as they are if each lane moves one element on, under conditions that all lanes share; else unrolled.

    Loops of other kinds than these and serial or unrolled ones are in order.
    """
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=whole_vectors(s.body))
        if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED:
            n = constant(s.end)
            s = replace(s, body=_shared_conditions(s.body, s.var, n)) if n else s
            if n and not _is_whole(s.body, s.var):  # perhaps it is seen with the numbers of the lanes
                s = replace(s, body=_simplified(s.body, {s.var: (0, n - 1)}))
            s = s if n and _is_whole(s.body, s.var) else replace(s, kind=LoopKind.UNROLLED)
        elif isinstance(s, Loop) and s.kind not in (LoopKind.UNROLLED, LoopKind.TENSORIZED):
            s = replace(s, kind=LoopKind.SERIAL)
        out.append(s)
    return tuple(out)


def _simplified(body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
    """The statements with subscripts as they are for variables in these ranges."""

    def expr(e: Expr) -> Expr:
        return replace(e, indices=tuple(simplify(i, ranges) for i in e.indices)) if isinstance(e, Load) else e

    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            at = tuple(simplify(transform(i, expr), ranges) for i in s.indices)
            out.append(replace(s, indices=at, value=transform(s.value, expr)))
        else:
            out.append(replace(s, body=_simplified(s.body, ranges)))
    return tuple(out)


def _shared_conditions(body: tuple[Flat, ...], var: str, lanes: int) -> tuple[Flat, ...]:
    """The statements with conditions over a lane replaced by those over the whole vector, where these are equal."""
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_shared_conditions(s.body, var, lanes))
        if isinstance(s, If):
            s = replace(s, cond=_shared(s.cond, var, lanes))
        elif isinstance(s, Store):
            s = replace(s, value=transform(s.value, lambda e: _with_shared(e, var, lanes)))
        out.append(s)
    return tuple(out)


def _with_shared(e: Expr, var: str, lanes: int) -> Expr:
    return replace(e, cond=_shared(e.cond, var, lanes)) if isinstance(e, Select) and var in free_vars(e.cond) else e


def _shared(cond: Expr, var: str, lanes: int) -> Expr:
    """A condition with each of those that it joins replaced by one over the whole vector, where these are equal."""
    out = conjunction(tuple(_for_all_lanes(c, var, lanes) for c in conjuncts(cond)))
    assert out is not None  # `true` is no condition of a statement
    return out


def _for_all_lanes(cond: Expr, var: str, lanes: int) -> Expr:
    """A condition that holds for one lane exactly if it holds for all, without the lane; else the condition as it is.

    With lane v of n: f + v < 0 is f < 0 if n divides f, and f - v < 0 is f - (n - 1) < 0 if n divides that.
    """
    if not isinstance(cond, Compare) or var not in free_vars(cond) or dtype_of(cond.lhs) != INDEX:
        return cond
    a, b = (cond.lhs, cond.rhs) if cond.op in ("<", "<=") else (cond.rhs, cond.lhs)
    if cond.op not in ("<", "<=", ">", ">="):
        return cond
    known: dict[str, Interval] = {var: (0, lanes - 1)}
    (left, x), (right, y) = linear_form(a, known), linear_form(b, known)
    terms = {e: left.get(e, 0) - right.get(e, 0) for e in (*left, *right)}
    rest = x - y - (0 if cond.op in ("<=", ">=") else -1) - 1
    factor = terms.pop(Var(var), 0)
    if any(var in free_vars(e) for e in terms) or abs(factor) != 1:
        return cond
    rest -= lanes - 1 if factor < 0 else 0
    if rest % lanes or any(c % lanes for c in terms.values()):
        return cond
    total: Expr = index(rest)
    for e, c in terms.items():
        total = add(total, mul(e, index(c)))
    return Compare("<", total, ZERO)


def _is_whole(body: tuple[Flat, ...], var: str) -> bool:
    """Whether all lanes run each store, to adjacent elements, from adjacent elements or the same one."""
    for s in body:
        match s:
            case Store(indices=(at,)):
                if (
                    s.atomic
                    or stride(at, var) != 1
                    or any(stride(x.indices[0], var) not in (0, 1) for x in store_loads(s))
                ):
                    return False
                if _chooses(s.value, var):
                    return False
            case If(cond=cond, body=inner):
                if var in free_vars(cond) or not _is_whole(inner, var):
                    return False
            case _:
                return False
    return True


def _chooses(e: Expr, var: str) -> bool:
    """Whether an expression loads or not, by its lane."""
    if isinstance(e, Select | Logic) and var in free_vars(e.cond if isinstance(e, Select) else e):
        return True
    return any(_chooses(x, var) for x in children(e))
