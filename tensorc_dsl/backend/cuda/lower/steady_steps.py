"""The steps of a loop in which conditions hold for all threads of a block have code of their own, without the conditions.

A causal mask decides nothing below the diagonal, `p < 1` is for the first step alone. In the other steps a thread neither
compares nor selects: a condition over the step, the block and the thread, `f*p + rest + r < 0`, holds for all threads from
some step on, or up to one, which `lower.partition` finds. What threads do is there twice, under one branch that all of them
take together. Products stand outside: they need no condition, and are not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tensorc_dsl.backend.cuda.lower.bodies import joined
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Device,
    DeviceKernel,
    Nested,
    Phase,
    Role,
    Steps,
    launch_ranges,
)
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Compare, Expr, Not, Var, children, conjunction, constant, dtype_of, free_vars, loads
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, hull, inside, span
from tensorc_dsl.lower.partition import cut_at, decided, possible
from tensorc_dsl.proof.sets.linear_forms import Ranges, negate
from tensorc_dsl.proof.sets.simplify import conjuncts

FEWEST = 16
"""The evaluations of conditions in a step of a thread that are worth a copy of it."""


def with_steady_steps(k: DeviceKernel) -> DeviceKernel:
    """The kernel with a copy of what its threads do in steps for which their conditions are decided."""
    return replace(k, body=_of(joined(k.body), launch_ranges(k), None))


def _of(body: tuple[Device, ...], ranges: Ranges, step: Steps | None) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner, asynchronous=False) if step is not None:
                parts = groupby(inner, lambda x: any(isinstance(y, Collective) for y in inside((x,))))
                flat = (tuple(part) if fixed else _in_two(tuple(part), ranges, step) for fixed, part in parts)
                out.append(replace(s, body=tuple(x for part in flat for x in part)))
            case Steps(var=var, end=end, body=inner):
                out.append(replace(s, body=_of(inner, {**ranges, var: span(end)}, s)))
            case Role(threads=threads, body=inner):
                out.append(replace(s, body=_of(inner, {**ranges, THREAD: (0, threads - 1)}, step)))
            case _:
                out.append(replace(s, body=_of(s.body, ranges, step)) if isinstance(s, Nested) else s)
    return tuple(out)


def _in_two(body: tuple[Flat, ...], ranges: Ranges, step: Steps) -> tuple[Flat, ...]:
    """The statements under one condition that all threads share, and without their own, and else as they are."""
    times = dict[Expr, int]()
    # Loops that were cut have one variable, and a condition may stand in each of them.
    inner = {**hull(body), THREAD: ranges[THREAD]}
    for c, count in _conditions(body, 1):
        if step.var in free_vars(c):
            times[c] = times.get(c, 0) + count
    shared, facts, worth = dict[Expr, None](), list[Expr](), 0
    for c, count in times.items():
        if (found := steady(c, step, inner, ranges)) is not None:
            shared[found[0]], worth = None, worth + count
            facts.append(found[1])
    cond = conjunction(tuple(shared))
    if cond is None or worth < FEWEST or not possible(cond, ranges):
        return body
    short = decided(body, facts)
    return body if short == body else (If(cond, short), If(Not(cond), body))


def steady(cond: Expr, step: Steps, inner: Ranges, ranges: Ranges) -> tuple[Expr, Expr] | None:
    """A condition over the step that all threads share, and what it decides: that another one holds, or that it does not,
    where this is so in most steps."""
    outer = {v: r for v, r in ranges.items() if v not in inner}
    cut = cut_at(cond, step.var, inner, outer)
    if cut is None:
        return None
    sure = Compare("<" if cut.first else ">=", Var(step.var), cut.sure), cond
    place, count = constant(cut.sure), constant(step.end)
    if place is None or count is None or (place if cut.first else count - place) > count // 2:
        return sure
    return Compare(">=" if cut.first else "<", Var(step.var), cut.maybe), negate(cond)


def _conditions(body: Sequence[Flat], count: int) -> Iterator[tuple[Expr, int]]:
    """Comparisons of indices, without data, and how often a thread evaluates them."""
    for s in body:
        match s:
            case Store():
                for c in _compared(s.value):
                    yield c, count
                continue
            case If(cond=cond):
                for c in conjuncts(cond):
                    for x in _compared(c):
                        yield x, count
                yield from _conditions(s.body, count)
            case Loop(begin=begin, end=end):
                first, last = constant(begin), constant(end)
                here = 1 if first is None or last is None else max(0, last - first)
                yield from _conditions(s.body, count * here)
            case _:
                yield from _conditions(s.body, count)


def _compared(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Compare) and dtype_of(e.lhs) == INDEX:
        if not loads(e):
            yield e
        return
    for x in children(e):
        yield from _compared(x)
