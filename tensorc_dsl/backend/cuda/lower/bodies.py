"""What each phase becomes for one thread: vectors of whole lanes, and unrolled loops that keep private buffers in registers.

Unrolled loops are left to LLVM, which is faster at it than text is at being unrolled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorc_dsl.affine.form import Interval
from tensorc_dsl.affine.simplify import conjuncts, linear_form
from tensorc_dsl.backend.cuda.lower.kernels import Device, Guard, Phase, Steps
from tensorc_dsl.backend.llvm.lower.registers import limit_unrolling, unroll_small
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Expr,
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
)
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.lower.bounds import stride
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, Store, buffers_of, inside, store_loads, stores

CODE_LIMIT = 4096
"""The largest code of one unrolled nest, as `code_size` counts: beyond it ptxas takes long, and registers run out before."""

MOST_STEPS = 32
"""The largest `unroll.max_step` that is obeyed: with more, a loop of `exp` takes ptxas half a minute."""


def finished(body: tuple[Device, ...], private: Collection[str], max_step: int) -> tuple[Device, ...]:
    """The phases with vectors that are whole, and with the loops unrolled that subscript private buffers."""
    out: list[Device] = []
    for s in _joined(body):
        if isinstance(s, Phase):
            names = {*private, *(x.name for x in inside(s.body) if isinstance(x, Alloc))}
            flat = _unrolled(_vectors(s.body), _walkers(s.body, names))
            out.append(Phase(_limited(flat, min(max_step, MOST_STEPS))))
        else:
            out.append(replace(s, body=finished(s.body, private, max_step)) if isinstance(s, Steps | Guard) else s)
    return tuple(out)


def _limited(body: tuple[Flat, ...], max_step: int) -> tuple[Flat, ...]:
    """The body with short loops unrolled, unless others would be too long then, and with these in order if they are."""
    plain = limit_unrolling(body, CODE_LIMIT)
    short = limit_unrolling(unroll_small(body, max_step), CODE_LIMIT)
    return short if _in_order(short) <= _in_order(plain) else plain


def _in_order(body: tuple[Flat, ...]) -> frozenset[str]:
    """The variables of loops that run in order."""
    return frozenset(s.var for s in inside(body) if isinstance(s, Loop) and s.kind is LoopKind.SERIAL)


def _joined(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements with everything between two barriers as one phase."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Steps | Guard):
            s = replace(s, body=_joined(s.body))
            if len(s.body) == 1 and isinstance(s.body[0], Phase):
                inner = s.body[0].body
                s = Phase(
                    (Loop(s.var, ZERO, s.end, LoopKind.SERIAL, inner) if isinstance(s, Steps) else If(s.cond, inner),)
                )
        if isinstance(s, Phase) and out and isinstance(before := out[-1], Phase):
            out[-1] = Phase((*before.body, *s.body))
        else:
            out.append(s)
    return tuple(out)


def _walkers(body: tuple[Flat, ...], private: Collection[str]) -> frozenset[str]:
    """The variables in subscripts of private buffers."""
    out: set[str] = set()
    for s in stores(body):
        if not buffers_of(s).isdisjoint(private):
            used = [*(s.indices if s.buffer in private else ())]
            used += [i for x in store_loads(s) if x.buffer in private for i in x.indices]
            out.update(v for i in used for v in free_vars(i))
    return frozenset(out)


def _unrolled(body: tuple[Flat, ...], walkers: Collection[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_unrolled(s.body, walkers))
        if isinstance(s, Loop) and s.var in walkers and s.kind is LoopKind.SERIAL:
            s = replace(s, kind=LoopKind.UNROLLED)
        out.append(s)
    return tuple(out)


def _vectors(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """Vectorized loops as they are if each lane moves one element on, under conditions that all lanes share; else unrolled.

    Loops of other kinds than these and serial or unrolled ones are in order.
    """
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_vectors(s.body))
        if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED:
            n = constant(s.end)
            s = replace(s, body=_shared_conditions(s.body, s.var, n)) if n else s
            s = s if n and _is_whole(s.body, s.var) else replace(s, kind=LoopKind.UNROLLED)
        elif isinstance(s, Loop) and s.kind not in (LoopKind.UNROLLED, LoopKind.TENSORIZED):
            s = replace(s, kind=LoopKind.SERIAL)
        out.append(s)
    return tuple(out)


def _shared_conditions(body: tuple[Flat, ...], var: str, lanes: int) -> tuple[Flat, ...]:
    """The statements with conditions over a lane replaced by those over the whole vector, where these are equal."""
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_shared_conditions(s.body, var, lanes))
        if isinstance(s, If):
            cond = conjunction(tuple(_for_all_lanes(c, var, lanes) for c in conjuncts(s.cond)))
            assert cond is not None
            s = replace(s, cond=cond)
        out.append(s)
    return tuple(out)


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
                if stride(at, var) != 1 or any(stride(x.indices[0], var) not in (0, 1) for x in store_loads(s)):
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
