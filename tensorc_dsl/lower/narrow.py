"""Begins and ends loops where conditions do: a loop whose whole work stands under conditions on its variable runs only where
these can hold.

    for p in 0 .. n { S[i] = S[i] + (V[p] if R[i] <= p and p < R[i + 1] else 0.0) }
        ->  for p in max(0, R[i]) .. min(n, R[i + 1]) { S[i] = S[i] + V[p] }

What does not change in the loop is computed before it. A number that is loaded for this is loaded only where the loop would
load it: behind the tests before, and if an iteration is left; or if it is an element of an argument for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.affine.conditions import FALSE, TRUE, logic, negate
from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.needed import never_negative_zero
from tensorc_dsl.affine.simplify import bounds, conjuncts, linear_form, simplify, simplify_where
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    add,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    sub,
    transform,
)
from tensorc_dsl.ir.program import Buffer, LoopKind, Program, Store
from tensorc_dsl.ir.reductions import combine, fold_of
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    inside,
    store_loads,
    stores,
)
from tensorc_dsl.lower.limits import Limit, limits_of, share
from tensorc_dsl.lower.ranges import hull, interval, within
from tensorc_dsl.lower.storage import element_count
from tensorc_dsl.lower.work import Needs, asks, in_folds, work

WORTH = 0.75
"""The part of a loop's iterations that a condition of a fold may leave for bounds to be worth it: borders leave more. Guards
of tiles are left to the passes that cut loops."""

SHORT = 4
"""The number of iterations up to which a loop keeps its conditions: it is written out."""

CHUNK = 32
"""The same, of a loop inside of another one that has bounds by the same condition."""

PRIVATE = 64
"""The same, of a loop that subscripts a private buffer, which may be in registers if the loop is written out."""

PIECES = 4
"""How many times longer than the parts at its ends a loop has to be for the part between them to have code of its own."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a unit: the buffers without -0.0, the numbers of elements of arguments, the variables whose values
    differ between what runs in lock step, the buffers that may be in registers, and the loops in each of whose iterations
    a buffer is new."""

    above_zero: frozenset[str]
    sizes: Mapping[str, int]
    together: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()
    homes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


def known_of(program: Program, arrays: Iterable[Buffer]) -> Known:
    """What is known of nests of a program that access `arrays`, each of them as a whole."""
    sizes = {b.name: constant(element_count(b)) for b in arrays}
    return Known(never_negative_zero(program), {name: n for name, n in sizes.items() if n is not None})


@dataclass(slots=True)
class _Stage:
    """Limits that are computed together, where `guards` hold."""

    guards: list[Expr] = field(default_factory=list[Expr])
    lows: list[Limit] = field(default_factory=list[Limit])
    highs: list[Limit] = field(default_factory=list[Limit])

    def add(self, found: Iterable[Limit]) -> None:
        for x in found:
            (self.highs if x.upper else self.lows).append(x)


@dataclass(slots=True)
class _Plan:
    """How a loop is narrowed: stages of limits, each computed only if an iteration is left by those before; the conditions
    that hold in what is left, and those that hold in the middle of it."""

    stages: list[_Stage]
    facts: list[Expr]
    inner_facts: list[Expr]
    ends: list[Expr]
    """The conditions over indices alone that hold exactly up to an end of the first stage."""
    worth: bool = False


@dataclass(frozen=True, slots=True)
class _Around:
    ranges: Ranges
    lanes: Ranges = field(default_factory=dict[str, tuple[int | None, int | None]])
    """The ranges of vectorized loops around, of which all iterations run in lock step."""
    asked: frozenset[Expr] = frozenset()
    """The conditions from which a loop around has bounds."""
    private: frozenset[str] = frozenset()
    whole: bool = True
    """Whether a loop may have code of its own for its middle."""

    def within(self, s: Flat) -> _Around:
        return replace(self, ranges=within(self.ranges, s))


def narrow(body: tuple[Flat, ...], known: Known, ranges: Ranges | None = None) -> tuple[Flat, ...]:
    """The same results, with serial loops that begin and end where the conditions of all their work do."""
    return _narrow(body, known, _Around(ranges or {}, private=known.private))


def ended(s: Loop, known: Known, ranges: Ranges, lanes: Ranges, always: bool) -> Loop:
    """The loop, ending at the latest where it can for all values of the variables `lanes`, as far as indices say, without the
    conditions that hold up to there; as it is where that is not worth it, unless it is `always`."""
    plan = _plan(s, known, _Around(ranges, lanes))
    if plan is None or not (plan.worth or always):
        return s
    highs = [x.at for x in plan.stages[0].highs if not loads(x.at)]
    inner = {**ranges, **lanes, s.var: interval(s), **hull(s.body)}
    body = decided(s.body, [*plan.ends, *_joined(s, plan.ends, inner)])
    return replace(s, end=_extreme("min", s.end, highs, ranges), body=body)


def _joined(s: Loop, facts: Iterable[Expr], ranges: Ranges) -> Iterable[Expr]:
    """The conditions in a loop on the greater of two values that `facts` imply for each: `i + max(x, y) < n`."""
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


def _narrow(body: tuple[Flat, ...], known: Known, around: _Around) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store() | Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
                out.append(s)
            case Loop():
                out.extend(_loop(s, known, around))
            case Alloc():
                own = {s.name} if s.space == "stack" else set[str]()
                out.append(replace(s, body=_narrow(s.body, known, replace(around, private=around.private | own))))
            case Parallel() | If():
                out.append(replace(s, body=_narrow(s.body, known, around.within(s))))
    return tuple(out)


def _loop(s: Loop, known: Known, around: _Around) -> tuple[Flat, ...]:
    inner = around.within(s)
    if s.kind is LoopKind.VECTORIZED:
        inner = replace(inner, lanes=within(around.lanes, s))
    plan = _plan(s, known, around) if s.kind is LoopKind.SERIAL and not s.scattered else None
    if plan is None or not plan.worth or _stays_whole(s, plan, around):
        return (replace(s, body=_narrow(s.body, known, inner)),)
    return _narrowed(s, plan, known, inner)


def _stays_whole(s: Loop, plan: _Plan, around: _Around) -> bool:
    """Whether a loop is so short that it should be written out with its conditions."""
    count = bounds(sub(s.end, s.begin), around.ranges)[1]
    if count is None:
        return False
    if count <= PRIVATE and any(s.var in free_vars(i) for i in _subscripts(s.body, around.private)):
        return True
    return count <= (SHORT if around.asked.isdisjoint((*plan.facts, *plan.inner_facts)) else CHUNK)


def _subscripts(body: tuple[Flat, ...], names: frozenset[str]) -> Iterable[Expr]:
    for x in stores(body):
        yield from x.indices if x.buffer in names else ()
        for y in store_loads(x):
            yield from y.indices if y.buffer in names else ()


def _plan(s: Loop, known: Known, around: _Around) -> _Plan | None:
    """How the loop is narrowed; None if none of its conditions says where it begins or ends."""
    if not any(s.var in asks(x, known.above_zero) for x in s.body):
        return None
    own = frozenset(name for name, loops in known.homes.items() if s.var in loops)
    needs = work(s.body, known.above_zero, own)
    if needs is None or not any(s.var in free_vars(c) for c in needs):
        return None
    return _Planner(s, known, around).plan(needs)


class _Planner:
    def __init__(self, s: Loop, known: Known, around: _Around) -> None:
        self.s = s
        self.known = known
        self.around = around
        self.ranges = within(around.ranges, s)
        self.written = frozenset(x.buffer for x in stores(s.body))
        united = any(isinstance(x, Collective | Shuffle) for x in inside(s.body))
        self.apart = known.together if united else frozenset[str]()
        """The variables that bounds must not have, since what runs in lock step would part."""
        self.inner: Ranges = {**hull(s.body), **around.lanes}
        """The variables that have several values in an iteration."""

    def plan(self, needs: Needs) -> _Plan | None:
        stages, facts, middle, ends = [_Stage()], list[Expr](), list[Expr](), list[Expr]()
        clean, worth = True, False
        own = in_folds(self.s.body, self.known.above_zero)
        for cond, certain in needs.items():
            unsafe = not self.is_safe(cond)
            if not self.is_fixed(cond) or (unsafe and not (clean and certain)):
                clean = False
                continue
            found = self.limits(cond)
            alone = self.inner.keys().isdisjoint(free_vars(cond))
            is_guard = alone and self.s.var not in free_vars(cond) and self.apart.isdisjoint(free_vars(cond))
            if unsafe and (found or is_guard):
                stages.append(_Stage())
            if is_guard:
                stages[-1 if unsafe else 0].guards.append(cond)
                facts.append(cond)
            elif found:
                stages[-1 if unsafe else 0].add(found)
                exact = alone and all(x.at == x.sure for x in found)
                (facts if exact else middle).append(cond)
                ends += [cond] if exact and all(x.upper and not loads(x.at) for x in found) else []
                clean &= exact
                worth |= cond in own and share(cond, self.s.var, {**self.ranges, **self.inner}) <= WORTH
            else:
                clean = False
        return _Plan(stages, facts, middle, ends, worth)

    def limits(self, cond: Expr) -> tuple[Limit, ...]:
        if self.s.var not in free_vars(cond):
            return ()
        found = limits_of(cond, self.s.var, self.inner, self.ranges)
        united = all(self.apart.isdisjoint(free_vars(x.at) | free_vars(x.sure)) for x in found)
        return found if united else ()

    def is_fixed(self, cond: Expr) -> bool:
        """Whether a condition loads the same numbers in all iterations, those of inner loops and of lanes among them."""
        moving = self.inner.keys() | {self.s.var}
        return all(x.buffer not in self.written and moving.isdisjoint(free_vars(x)) for x in loads(cond))

    def is_safe(self, cond: Expr) -> bool:
        """Whether all that a condition loads is in arguments, wherever it is loaded."""
        return all(self.is_inside(x.buffer, x.indices) for x in loads(cond))

    def is_inside(self, buffer: str, indices: tuple[Expr, ...]) -> bool:
        size = self.known.sizes.get(buffer)
        if size is None or len(indices) != 1:
            return False
        low, high = bounds(indices[0], self.ranges)
        return low is not None and high is not None and low >= 0 and high < size


def _narrowed(s: Loop, plan: _Plan, known: Known, inner: _Around) -> tuple[Flat, ...]:
    begin, end = s.begin, s.end
    guards: list[Expr] = []
    for n, stage in enumerate(plan.stages):
        guards += [Compare("<", begin, end)] if n else []
        guards += stage.guards
        begin = _extreme("max", begin, [x.at for x in stage.lows], inner.ranges)
        end = _extreme("min", end, [x.at for x in stage.highs], inner.ranges)
    asked = inner.asked | {*plan.facts, *plan.inner_facts}
    body = decided(s.body, plan.facts)
    made: list[Flat] = []
    edges = _middle(s, plan, begin, end, inner) if inner.whole else None
    once = replace(inner, asked=asked, whole=False)
    if edges is None:
        made.append(replace(s, begin=begin, end=end, body=_narrow(body, known, once)))
    else:
        near, far = edges
        border = _narrow(body, known, once)
        plain = _narrow(decided(body, plan.inner_facts), known, replace(inner, asked=asked))
        made += [replace(s, begin=begin, end=near, body=border)] if near != begin else []
        made.append(replace(s, begin=near, end=far, body=plain))
        made += [replace(s, begin=far, end=end, body=border)] if far != end else []
    cond = conjunction(simplify_where(guards, inner.ranges))
    return tuple(made) if cond is None else (If(cond, tuple(made)),)


def _middle(s: Loop, plan: _Plan, begin: Expr, end: Expr, inner: _Around) -> tuple[Expr, Expr] | None:
    """Where the middle of a loop begins and ends, in which all conditions hold; None if it is not worth code of its own."""
    if not plan.inner_facts:
        return None
    lows = [x for stage in plan.stages for x in stage.lows]
    highs = [x for stage in plan.stages for x in stage.highs]
    first, last = interval(s)
    longest = [] if first is None or last is None else [last - first + 1]
    apart = (bounds(sub(high.at, low.at), inner.ranges)[1] for low in lows for high in highs)
    longest += [n for n in apart if n is not None]
    if longest and PIECES * sum(x.width for x in (*lows, *highs)) > min(longest):
        return None
    near, far = begin, end
    if any(x.sure != x.at for x in lows):
        near = _extreme("min", _extreme("max", s.begin, [x.sure for x in lows], inner.ranges), [end], inner.ranges)
    if any(x.sure != x.at for x in highs):
        far = _extreme("max", _extreme("min", s.end, [x.sure for x in highs], inner.ranges), [near], inner.ranges)
    return near, far


def _extreme(op: BinaryOp, e: Expr, others: Iterable[Expr], ranges: Ranges) -> Expr:
    for x in dict.fromkeys(others):
        e = simplify(Binary(op, e, x), ranges)
    return e


def decided(body: tuple[Flat, ...], facts: Iterable[Expr]) -> tuple[Flat, ...]:
    """The body with conditions that are known to hold, and what they decide."""
    known: dict[Expr, Const] = {}
    for c in facts:
        known[c] = TRUE
        known[negate(c)] = FALSE

    def new(e: Expr) -> Expr:
        if (value := known.get(e)) is not None:
            return value
        match e:
            case Logic(op=op, lhs=a, rhs=b):
                return logic(op == "and", a, b)
            case Not(operand=Const(value=value)):
                return FALSE if value else TRUE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case _:
                return e

    return _replaced(body, lambda e: transform(e, new)) if known else body


def _replaced(body: tuple[Flat, ...], new: Callable[[Expr], Expr]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                fold = fold_of(s)
                old = Load(s.buffer, s.indices, dtype_of(s.value))
                # `S[i] or true` stays a fold, which an atomic update is.
                value = new(s.value) if fold is None else combine(fold.op, old, new(fold.value))
                out.append(replace(s, value=value))
                continue
            case If():
                s = replace(s, cond=new(s.cond))
                if s.cond == TRUE:
                    out.extend(_replaced(s.body, new))
                    continue
            case Loop():
                s = replace(s, begin=new(s.begin), end=new(s.end))
            case Parallel() | Alloc() | Instruction() | Collective() | Shuffle():
                pass
        out.append(replace(s, body=_replaced(s.body, new)))
    return tuple(out)
