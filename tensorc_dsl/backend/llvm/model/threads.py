"""How many threads a kernel is worth, by the model of a common core: its code depends on no measurement.

To hand work to a thread that waits for it takes `HANDED` cycles, and where other programs have the cores, thousands of times
as much. So a thread has at least as much work as that, or the caller does all of it alone. Of a kernel of fixed sizes this is
known when it is compiled. One of open sizes counts at each call: the work of a parallel loop is an expression over the sizes,
the sum of how often its loops run, times what a round of each takes. Loops whose bounds depend on loops around them run as
often as in the middle of these, and so are guards decided. The tasks of a loop are the same on one thread as on many, and so
are the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as data_replace
from typing import assert_never

from tensorc_dsl.backend.llvm.model.bounds import Cost, costs_on
from tensorc_dsl.backend.llvm.model.counts import Counted, counted
from tensorc_dsl.backend.llvm.model.machine import Machine
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.dtypes import F64, INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Cast,
    Const,
    Expr,
    add,
    floordiv,
    index,
    loads,
    sub,
    substitute,
)
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Kernel, Loop, Parallel, Shuffle
from tensorc_dsl.proof.sets.linear_forms import TRUE
from tensorc_dsl.proof.sets.simplify import simplify

HANDED = 2000.0
"""Cycles to hand work to a thread that waits for it, and to wait until it is done."""


def workers(kernel: Kernel, target: Target, threads: int) -> int:
    """How many of the threads a kernel is worth."""
    if threads == 1 or kernel.dims:
        return threads
    return threads if is_worth_threads(counted(kernel, target, {}), target) else 1


def is_worth_threads(found: Counted, target: Target) -> bool:
    """Whether a kernel of fixed sizes has work for more than one thread."""
    common = Machine()
    least = sum(n.rounds * n.instructions for n in found.nests) / common.issue
    return least >= 2 * HANDED or sum(c.cycles for c in costs_on(found, alone(target), common)) >= 2 * HANDED


def alone(target: Target) -> Target:
    """The target with one of its cores."""
    return data_replace(target, cores=1)


@by_first(64)
def shared_out(kernel: Kernel, target: Target, threads: int) -> Kernel:
    """The kernel; if sizes are open, with how many threads each of its parallel loops is worth."""
    if threads == 1 or not kernel.dims:
        return kernel
    one = alone(target)
    least = {d.name: max(1, d.low) for d in kernel.dims}
    found = counted(kernel, one, least, least=1.0)
    rounds = {id(c.nest.body): _of_round(c) for c in costs_on(found, one, Machine())}
    return replace(kernel, body=_shared_out(kernel.body, rounds, threads))


def _of_round(c: Cost) -> float:
    """The cycles of an iteration of a nest's loop: of few iterations the data are in the first cache."""
    return (max(c.bounds[:5]) + c.bounds[9]) / (c.nest.rounds * c.nest.steps)


def _shared_out(body: tuple[Flat, ...], rounds: Mapping[int, float], threads: int) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Parallel():
                work = _work((s,), rounds, {})
                out.append(s if work is None else replace(s, worth=_worth(work, threads)))
            case _:
                out.append(replace(s, body=_shared_out(s.body, rounds, threads)))
    return tuple(out)


def _worth(work: Expr, threads: int) -> Expr:
    """The number of threads for so many cycles."""
    return Cast(Binary("min", _times(work, _number(1 / HANDED)), _number(threads)), INDEX)


# The work of statements in cycles: an f64 over sizes and the loops around, since a product of sizes may not fit integers.


def _work(body: tuple[Flat, ...], rounds: Mapping[int, float], at: Mapping[str, Expr]) -> Expr | None:
    """The cycles of the loops in a body, with variables `at` these places; None if data decide how often one runs."""
    total: Expr = _number(0.0)
    for s in body:
        match s:
            case Store():
                continue
            case Parallel():
                trips, inner = [_settled(n, at) for n in s.extents], dict(at)
                inner.update((v, _middle(ZERO, n)) for v, n in zip(s.vars, trips, strict=True))
            case Loop():
                # Lanes are at their first place, where a guard of the end of a row holds.
                begin, n = _settled(s.begin, at), _settled(sub(s.end, s.begin), at)
                n = ONE if s.scattered else n
                trips = [] if s.kind is LoopKind.VECTORIZED and id(s.body) not in rounds else [n]
                inner = {**at, s.var: begin if s.kind is LoopKind.VECTORIZED else _middle(begin, n)}
            case If() | Alloc() | Instruction() | Collective() | Shuffle():
                trips, inner = [], at
            case _:
                assert_never(s)
        found = _work(s.body, rounds, inner)
        if found is None or any(map(loads, trips)):
            return None
        found = _plus(found, _number(0.0 if isinstance(s, If) else rounds.get(id(s.body), 0.0)))
        if found == _number(0.0):
            continue
        for n in trips:
            found = _times(found, _float(_settled(Binary("max", n, ZERO), {})))
        cond = _settled(s.cond, at) if isinstance(s, If) else TRUE
        total = _plus(total, found if cond == TRUE or loads(cond) else _times(found, _float(cond)))
    return total


def _settled(e: Expr, at: Mapping[str, Expr]) -> Expr:
    return simplify(substitute(e, at), {})


def _middle(begin: Expr, trips: Expr) -> Expr:
    """The iteration in the middle of a loop."""
    return simplify(add(begin, floordiv(sub(trips, ONE), index(2))), {})


def _number(x: float) -> Const:
    return Const(x, F64)


def _float(e: Expr) -> Expr:
    return _number(float(e.value)) if isinstance(e, Const) else Cast(e, F64)


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return _number(a.value + b.value)
    return b if a == _number(0.0) else a if b == _number(0.0) else Binary("+", a, b)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return _number(a.value * b.value)
    return b if a == _number(1.0) else a if b == _number(1.0) else Binary("*", a, b)
