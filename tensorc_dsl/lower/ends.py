"""Ends loops where the conditions of their statements do: those that all have in common, or each of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    add,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    sub,
)
from tensorc_dsl.lower.decided import decided
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Loop,
    Shuffle,
    inside,
)
from tensorc_dsl.lower.limits import share
from tensorc_dsl.lower.plans import WORTH, Around, Known, extreme, own_buffers, plan_of
from tensorc_dsl.lower.ranges import hull, interval, within
from tensorc_dsl.lower.work import work
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import conjuncts, linear_form, simplify_where


def ended(s: Loop, known: Known, ranges: Ranges, lanes: Ranges, always: bool) -> Loop:
    """The loop, ending at the latest where it can for all values of the variables `lanes`, as far as indices say, without the
    conditions that hold up to there; as it is where that is not worth it, unless it is `always`."""
    around = Around(ranges, lanes)
    plan = plan_of(s, known, around)
    if plan is None and always:
        return ended_apart(s, known, around, worth=False)
    if plan is None or not (plan.worth or always):
        return s
    highs = [x.at for x in plan.stages[0].highs if not loads(x.at)]
    inner = {**ranges, **lanes, s.var: interval(s), **hull(s.body)}
    body = decided(s.body, [*plan.ends, *_joined(s, plan.ends, inner)])
    return replace(s, end=extreme("min", s.end, highs, ranges), body=body)


def ended_apart(s: Loop, known: Known, around: Around, *, worth: bool) -> Loop:
    """The loop, ending where none of its statements has work left: each has conditions of its own, which stay. If it is to
    be `worth` it, there are several, and some of their conditions leave many iterations out."""
    statements, made = _without_buffers(s.body)
    own, ends, few = made | own_buffers(s, known), list[Expr](), True
    for x in statements:
        needs = work((x,), known.above_zero, own)
        if needs is None:
            continue
        lanes = {**around.lanes, **_narrower(hull((x,)), needs)}
        plan = plan_of(replace(s, body=(x,)), known, replace(around, lanes=lanes), own)
        highs = [] if plan is None else [x.at for x in plan.stages[0].highs if not loads(x.at)]
        if not highs:
            return s
        every = {**within(around.ranges, s), **hull(s.body), **lanes}
        few = few and not any(share(c, s.var, every) <= WORTH for c in needs if s.var in free_vars(c))
        ends.append(extreme("min", s.end, highs, around.ranges))
    end = extreme("max", ends[0], ends[1:], around.ranges) if ends else s.end
    united = any(isinstance(x, Collective | Shuffle) for x in inside(s.body))
    if (united and not known.together.isdisjoint(free_vars(end))) or (worth and (few or len(ends) < 2)):
        return s
    return replace(s, end=end)


def _narrower(ranges: Ranges, needs: Iterable[Expr]) -> Ranges:
    """The ranges of the variables that are less than a number where anything is changed."""
    out: Ranges = {}
    for c in needs:
        match c:
            case Compare(op="<", lhs=Var(name=v), rhs=Const(value=int(n))) if v in ranges:
                low, high = ranges[v]
                out[v] = low, n - 1 if high is None else min(high, n - 1)
            case _:
                pass
    return out


def _without_buffers(body: tuple[Flat, ...]) -> tuple[list[Flat], frozenset[str]]:
    """The statements, those in the scope of a buffer among them, and these buffers."""
    out, made = list[Flat](), frozenset[str]()
    for s in body:
        if isinstance(s, Alloc):
            inner, names = _without_buffers(s.body)
            out += inner
            made |= {s.name, *names}
        else:
            out.append(s)
    return out, made


def _joined(s: Loop, facts: Iterable[Expr], ranges: Ranges) -> Iterable[Expr]:
    """The conditions in a loop that say of the greater of two values what `facts` say of each: `i + max(x, y) < n`."""
    known = {*simplify_where(facts, ranges)}
    for x in inside(s.body):
        for c in conjuncts(x.cond) if isinstance(x, If) else ():
            halves = _halves(c)
            if halves is not None and known.issuperset(simplify_where(halves, ranges)):
                yield c


def _halves(cond: Expr) -> tuple[Expr, Expr] | None:
    """Two conditions that hold together exactly if `cond` does, one for each operand of a `max` on its lesser side."""
    if not isinstance(cond, Compare) or cond.op not in ("<", "<=") or dtype_of(cond.lhs) != INDEX:
        return None
    terms = linear_form(cond.lhs, {})[0]
    for e, factor in terms.items():
        match e:
            case Binary(op="max", lhs=a, rhs=b) if factor > 0:
                rest = sub(cond.lhs, mul(index(factor), e))
                first, second = (Compare(cond.op, add(rest, mul(index(factor), x)), cond.rhs) for x in (a, b))
                return first, second
            case _:
                pass
    return None
