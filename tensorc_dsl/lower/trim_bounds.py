"""Trims loops to the iterations that do work: bounds by the conditions of all statements in them, or the one iteration that
data choose of a scattered loop. Guards move out of the loops that they do not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as data_replace

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import INDEX, DType, holds, limits
from tensorc_dsl.ir.expr import (
    ONE,
    SWAPPED,
    ZERO,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Var,
    add,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    loads,
    sub,
)
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.program import Buffer, LoopKind, Program, Store
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    hull,
    inside,
    loop_interval,
    store_loads,
    stores,
    within,
)
from tensorc_dsl.lower.partition import Cut, cuts_of, decided
from tensorc_dsl.lower.storage import element_count
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, depends_on_data, linear
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, simplify, simplify_where
from tensorc_dsl.proof.sets.store_guards import Guarded, NotChosen, chosen_of, needed, never_negative_zero, parts

# Bounds of a loop's variable from a condition: the least or the greatest value for which it can hold.
#
# A condition over numbers of the data, `R[i] <= i32(p)`, is one over indices if each position is a number of its type. A
# number of 64 bits is limited to the positions and one beyond them, so no difference leaves 64 bits.


NEAR = 2**60
"""Positions are closer to 0 than this: their differences from data that are limited to them do not leave 64 bits."""

TYPICAL = 1000
"""The size that is assumed for one that is not known, where only the gain depends on it."""

_SAMPLES = 16


def limits_of(cond: Expr, var: str, inner: Ranges, ranges: Ranges) -> tuple[Cut, ...]:
    """The bounds of `var` from a condition for all values of the variables `inner`; none if it is not linear in it."""
    found = over_indices(cond, var, {**ranges, **inner})
    return tuple(cut for c in found for cut in cuts_of(c, var, inner, ranges))


def over_indices(cond: Expr, var: str, ranges: Ranges) -> Iterator[Compare]:
    """The condition as a comparison of indices, if it compares a position with what does not depend on `var`."""
    if not isinstance(cond, Compare):
        return
    t = dtype_of(cond.lhs)
    if t == INDEX:
        yield cond
    elif t.is_integer:
        sides: tuple[tuple[Expr, Expr, CompareOp], ...] = (
            (cond.lhs, cond.rhs, cond.op),
            (cond.rhs, cond.lhs, SWAPPED[cond.op]),
        )
        for own, other, op in sides:
            if var in free_vars(own) and var not in free_vars(other):
                position = _position(own, t, ranges)
                low, high = (None, None) if position is None else _reach(position, ranges)
                if position is not None and low is not None and high is not None:
                    yield Compare(op, position, _datum(other, t, low, high))


def _reach(position: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    low, high = bounds(position, ranges)
    low, high = -NEAR if low is None else low, NEAR if high is None else high
    return (low, high) if low >= -NEAR and high <= NEAR else (None, None)


def _datum(e: Expr, t: DType, low: int, high: int) -> Expr:
    """A number of the data as an index; one that is beyond all positions from `low` to `high` may be another such number."""
    made = Cast(e, INDEX)
    if t.kind == "uint":
        return made if t.bits < 64 else Cast(Binary("min", e, Const(max(high + 1, 0), t)), INDEX)
    return made if t.bits < 64 else Binary("min", Binary("max", made, index(low - 1)), index(high + 1))


def _position(e: Expr, t: DType, ranges: Ranges) -> Expr | None:
    """An index that is equal to `e`, a number of an integer type; None if it may be another one modulo the type's width."""
    made: Expr | None = None
    match e:
        case Cast(operand=x) if dtype_of(x) == INDEX:
            made = x
        case Const(value=int(n)):
            made = index(n)
        case Binary(op="+" | "-" | "*" as op, lhs=a, rhs=b):
            x, y = _position(a, t, ranges), _position(b, t, ranges)
            made = None if x is None or y is None else Binary(op, x, y)
        case _:
            return None
    if made is None:
        return None
    low, high = bounds(made, ranges)
    least, most = limits(t)
    if holds(t, INDEX) and isinstance(e, Cast):
        return made
    return made if low is not None and high is not None and least <= low and high <= most else None


def share(cond: Expr, var: str, ranges: Ranges) -> float:
    """The part of the values of `var` for which a condition holds, about, if its other side is anything: 1 if that is not
    known. Data say of few of them that they count; a condition over an open size is the end of a tile.
    """
    least = 1.0
    for c in over_indices(cond, var, ranges):
        if depends_on_data((c,)):
            return 0.0
        every = {v: _typical(r) for v, r in ranges.items()}
        context = Context(every)
        form = linear(c.lhs, context).minus(linear(c.rhs, context))
        factor = form.terms.get(var, 0)
        if not factor or c.op == "!=" or dims_in(c):
            continue
        low, high = context.range_of_terms({a: f for a, f in form.terms.items() if a != var}, form.constant)
        if low is None or high is None:
            continue
        first, last = every[var]
        least = min(least, _sampled(c.op, factor, (first, last), (low, high)))
    return least


def _typical(r: tuple[int | None, int | None]) -> tuple[int, int]:
    low = 0 if r[0] is None else r[0]
    return low, low + TYPICAL - 1 if r[1] is None else r[1]


def _sampled(op: CompareOp, factor: int, own: tuple[int, int], other: tuple[int, int]) -> float:
    if op == "==":
        return 1 / (own[1] - own[0] + 1)
    holds = 0
    for m in range(_SAMPLES):
        for n in range(_SAMPLES):
            x = own[0] + (own[1] - own[0]) * m // (_SAMPLES - 1)
            y = other[0] + (other[1] - other[0]) * n // (_SAMPLES - 1)
            d = factor * x + y
            holds += d < 0 if op == "<" else d <= 0 if op == "<=" else d > 0 if op == ">" else d >= 0
    return holds / _SAMPLES**2


# The conditions without which the body of a loop changes nothing, wherever they stand: around its stores, or in folds.


Needs = dict[Expr, bool]
"""Conditions in the order in which an iteration asks them, each with whether it is asked for certain where those before it
hold."""


def work(body: tuple[Flat, ...], above_zero: frozenset[str], own: frozenset[str] = frozenset()) -> Needs | None:
    """The conditions without one of which an iteration changes nothing; None if it changes nothing in any case.

    That a loop of the body runs is a condition like others. What an iteration stores in buffers of its own is no change:
    those that are made in it, and `own`.
    """
    return _all(body, own, above_zero)


def _all(body: tuple[Flat, ...], own: frozenset[str], above_zero: frozenset[str]) -> Needs | None:
    found = [_of(s, own, above_zero) for s in body]
    changes = [x for x in found if x is not None]
    if not changes:
        return None
    first, *others = changes
    out: Needs = {}
    certain = True
    for c, asked in first.items():
        if all(c in x for x in others):
            out[c] = certain and asked
        else:
            certain = False
    return out


def _of(s: Flat, own: frozenset[str], above_zero: frozenset[str]) -> Needs | None:
    match s:
        case Store():
            return None if s.buffer in own else dict.fromkeys(_needed(s, above_zero), True)
        case If(cond=cond):
            return _under(parts(cond), _all(s.body, own, above_zero))
        case Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
            made = {x.buffer for x in stores((s,))}
            return None if made and made <= own else {}
        case Loop():
            return _under(_runs(s.begin, s.end), _all(s.body, own, above_zero))
        case Parallel():
            return _under((c for e in s.extents for c in _runs(ZERO, e)), _all(s.body, own, above_zero))
        case Alloc(name=name):
            return _all(s.body, own | {name}, above_zero)


@by_first(4096)
def _needed(s: Store, above_zero: frozenset[str]) -> tuple[Expr, ...]:
    return needed(s, above_zero)


def in_folds(body: tuple[Flat, ...], above_zero: frozenset[str]) -> frozenset[Expr]:
    """The conditions of folds."""
    return frozenset(c for s in stores(body) for c in _needed(s, above_zero))


def _runs(begin: Expr, end: Expr) -> tuple[Expr, ...]:
    """The condition that a loop runs at all; none if it is known to."""
    low, high = constant(begin), constant(end)
    return () if low is not None and high is not None and low < high else (Compare("<", begin, end),)


def _under(conds: Iterable[Expr], found: Needs | None) -> Needs | None:
    return None if found is None else {**dict.fromkeys(conds, True), **found}


@by_first(512)
def asks(s: Flat, above_zero: frozenset[str]) -> frozenset[str]:
    """The names in the conditions of a statement."""
    if isinstance(s, Store):
        return frozenset[str]().union(*map(free_vars, _needed(s, above_zero)))
    own = frozenset[str]()
    if isinstance(s, If):
        own = free_vars(s.cond)
    elif isinstance(s, Loop):
        own = free_vars(s.begin) | free_vars(s.end)
    return own.union(*(asks(x, above_zero) for x in s.body))


def guard_folds(
    body: tuple[Flat, ...], above_zero: frozenset[str], lanes: frozenset[str] = frozenset()
) -> tuple[Flat, ...]:
    """The same results, with folds of lanes under the conditions over open sizes without which they change nothing: their
    loops are cut there, as those of other guards, and lanes behind an end are no choices in all iterations.

    m[j] = max(m[j], X[o * 16 + j] if o * 16 + j < N else -inf)  ->  if o * 16 + j < N { m[j] = max(m[j], X[o * 16 + j]) }
    """
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                asked = () if lanes.isdisjoint(asks(s, above_zero)) else _needed(s, above_zero)
                conds = [c for c in asked if dims_in(c) and not loads(c) and not lanes.isdisjoint(free_vars(c))]
                cond = conjunction(tuple(conds))
                out += (s,) if cond is None else (If(cond, decided((s,), conds)),)
            case Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
                out.append(s)
            case _:
                inner = lanes | {s.var} if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED else lanes
                out.append(replace(s, body=guard_folds(s.body, above_zero, inner)))
    return tuple(out)


# What the conditions of the work of a loop say of its bounds.


WORTH = 0.75
"""The part of a loop's iterations that a condition of a fold may leave for bounds to be worth it: borders leave more. Guards
of tiles are left to the passes that cut loops."""


@frozen
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
class Stage:
    """Limits that are computed together, where `guards` hold."""

    guards: list[Expr] = field(default_factory=list[Expr])
    lows: list[Cut] = field(default_factory=list[Cut])
    highs: list[Cut] = field(default_factory=list[Cut])

    def add(self, found: Iterable[Cut]) -> None:
        for x in found:
            (self.highs if x.first else self.lows).append(x)


@dataclass(slots=True)
class Plan:
    """How a loop is narrowed: stages of limits, each computed only if an iteration is left by those before; the conditions
    that hold in what is left, and those that hold in the middle of it."""

    stages: list[Stage]
    facts: list[Expr]
    inner_facts: list[Expr]
    ends: list[Expr]
    """The conditions over indices alone that hold exactly up to an end of the first stage."""
    worth: bool = False


@frozen
class Around:
    ranges: Ranges
    lanes: Ranges = field(default_factory=dict[str, tuple[int | None, int | None]])
    """The ranges of vectorized loops around, of which all iterations run in lock step."""
    asked: frozenset[Expr] = frozenset()
    """The conditions from which a loop around has bounds."""
    private: frozenset[str] = frozenset()
    whole: bool = True
    """Whether a loop may have code of its own for its middle."""

    def within(self, s: Flat) -> Around:
        return data_replace(self, ranges=within(self.ranges, s))


def plan_of(s: Loop, known: Known, around: Around, own: frozenset[str] = frozenset()) -> Plan | None:
    """How the loop is narrowed; None if none of its conditions says where it begins or ends. `own` are new in each
    iteration."""
    if not any(s.var in asks(x, known.above_zero) for x in s.body):
        return None
    needs = work(s.body, known.above_zero, own | own_buffers(s, known))
    if needs is None or not any(s.var in free_vars(c) for c in needs):
        return None
    return _Planner(s, known, around).plan(needs)


class _Planner:
    def __init__(self, s: Loop, known: Known, around: Around) -> None:
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

    def plan(self, needs: Needs) -> Plan | None:
        stages, facts, middle, ends = [Stage()], list[Expr](), list[Expr](), list[Expr]()
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
                stages.append(Stage())
            if is_guard:
                stages[-1 if unsafe else 0].guards.append(cond)
                facts.append(cond)
            elif found:
                stages[-1 if unsafe else 0].add(found)
                exact = alone and all(x.maybe == x.sure for x in found)
                (facts if exact else middle).append(cond)
                ends += [cond] if exact and all(x.first and not loads(x.maybe) for x in found) else []
                clean &= exact
                worth |= cond in own and share(cond, self.s.var, {**self.ranges, **self.inner}) <= WORTH
            else:
                clean = False
        return Plan(stages, facts, middle, ends, worth)

    def limits(self, cond: Expr) -> tuple[Cut, ...]:
        if self.s.var not in free_vars(cond):
            return ()
        found = limits_of(cond, self.s.var, self.inner, self.ranges)
        united = all(self.apart.isdisjoint(free_vars(x.maybe) | free_vars(x.sure)) for x in found)
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


def own_buffers(s: Loop, known: Known) -> frozenset[str]:
    """The buffers that are new in each iteration of a loop."""
    return frozenset(name for name, loops in known.homes.items() if s.var in loops)


def extreme(op: BinaryOp, e: Expr, others: Iterable[Expr], ranges: Ranges) -> Expr:
    for x in dict.fromkeys(others):
        e = simplify(Binary(op, e, x), ranges)
    return e


# Ends loops where the conditions of their statements do: those that all have in common, or each of its own.


def ended(s: Loop, known: Known, ranges: Ranges, lanes: Ranges, always: bool) -> Loop:
    """The loop, ending at the latest where it can for all values of the variables `lanes`, as far as indices say, without the
    conditions that hold up to there; as it is where that is not worth it, unless it is `always`."""
    around = Around(ranges, lanes)
    plan = plan_of(s, known, around)
    if plan is None and always:
        return ended_apart(s, known, around, worth=False)
    if plan is None or not (plan.worth or always):
        return s
    highs = [x.maybe for x in plan.stages[0].highs if not loads(x.maybe)]
    body = decided(s.body, [*plan.ends, Compare("<", Var(s.var), s.end)])
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
        plan = plan_of(replace(s, body=(x,)), known, data_replace(around, lanes=lanes), own)
        highs = [] if plan is None else [x.maybe for x in plan.stages[0].highs if not loads(x.maybe)]
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


# Begins and ends loops where conditions do: a loop whose whole work stands under conditions on its variable runs only where
# these can hold.
#
#     for p in 0 .. n { S[i] = S[i] + (V[p] if R[i] <= p and p < R[i + 1] else 0.0) }
#         ->  for p in max(0, R[i]) .. min(n, R[i + 1]) { S[i] = S[i] + V[p] }
#
# What does not change in the loop is computed before it. A number that is loaded for this is loaded only where the loop
# would load it: behind the tests before, and if an iteration is left; or if it is an element of an argument for certain.


SHORT = 4
"""The number of iterations up to which a loop keeps its conditions: it is written out."""

CHUNK = 32
"""The same, of a loop inside of another one that has bounds by the same condition."""

PRIVATE = 64
"""The same, of a loop that subscripts a private buffer, which may be in registers if the loop is written out."""

PIECES = 4
"""How many times longer than the parts at its ends a loop has to be for the part between them to have code of its own."""


def narrow(body: tuple[Flat, ...], known: Known, ranges: Ranges | None = None) -> tuple[Flat, ...]:
    """The same results, with serial loops that begin and end where the conditions of all their work do."""
    return _narrow(body, known, Around(ranges or {}, private=known.private))


def _narrow(body: tuple[Flat, ...], known: Known, around: Around) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store() | Loop(kind=LoopKind.TENSORIZED) | Instruction() | Collective() | Shuffle():
                out.append(s)
            case Loop(scattered=True):
                out.extend(_narrow(_scattered(s, around.ranges), known, around))
            case Loop():
                out.extend(_loop(s, known, around))
            case Alloc():
                own = {s.name} if s.space == "stack" else set[str]()
                out.append(replace(s, body=_narrow(s.body, known, data_replace(around, private=around.private | own))))
            case Parallel() | If():
                out.append(replace(s, body=_narrow(s.body, known, around.within(s))))
    return tuple(out)


def _loop(s: Loop, known: Known, around: Around) -> tuple[Flat, ...]:
    inner = around.within(s)
    if s.kind is LoopKind.VECTORIZED:
        inner = data_replace(inner, lanes=within(around.lanes, s))
    plan = plan_of(s, known, around) if s.kind is LoopKind.SERIAL else None
    if s.kind is LoopKind.SERIAL and not (plan and plan.worth):
        s = ended_apart(s, known, around, worth=True)
    if plan is None or not plan.worth or _stays_whole(s, plan, around):
        return (replace(s, body=_narrow(s.body, known, inner)),)
    return _narrowed(s, plan, known, inner)


def _stays_whole(s: Loop, plan: Plan, around: Around) -> bool:
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


def _narrowed(s: Loop, plan: Plan, known: Known, inner: Around) -> tuple[Flat, ...]:
    begin, end = s.begin, s.end
    guards: list[Expr] = []
    for n, stage in enumerate(plan.stages):
        guards += [Compare("<", begin, end)] if n else []
        guards += stage.guards
        begin = extreme("max", begin, [x.maybe for x in stage.lows], inner.ranges)
        end = extreme("min", end, [x.maybe for x in stage.highs], inner.ranges)
    asked = inner.asked | {*plan.facts, *plan.inner_facts}
    body = decided(s.body, plan.facts)
    made: list[Flat] = []
    edges = _middle(s, plan, begin, end, inner) if inner.whole else None
    once = data_replace(inner, asked=asked, whole=False)
    if edges is None:
        made.append(replace(s, begin=begin, end=end, body=_narrow(body, known, once)))
    else:
        near, far = edges
        border = _narrow(body, known, once)
        plain = _narrow(decided(body, plan.inner_facts), known, data_replace(inner, asked=asked))
        made += [replace(s, begin=begin, end=near, body=border)] if near != begin else []
        made.append(replace(s, begin=near, end=far, body=plain))
        made += [replace(s, begin=far, end=end, body=border)] if far != end else []
    cond = conjunction(simplify_where(guards, inner.ranges))
    return tuple(made) if cond is None else (If(cond, tuple(made)),)


def _middle(s: Loop, plan: Plan, begin: Expr, end: Expr, inner: Around) -> tuple[Expr, Expr] | None:
    """Where the middle of a loop begins and ends, in which all conditions hold; None if it is not worth code of its own."""
    if not plan.inner_facts:
        return None
    lows = [x for stage in plan.stages for x in stage.lows]
    highs = [x for stage in plan.stages for x in stage.highs]
    first, last = loop_interval(s)
    longest = [] if first is None or last is None else [last - first + 1]
    apart = (bounds(sub(high.maybe, low.maybe), inner.ranges)[1] for low in lows for high in highs)
    longest += [n for n in apart if n is not None]
    if longest and PIECES * sum(x.width for x in (*lows, *highs)) > min(longest):
        return None
    near, far = begin, end
    if any(x.sure != x.maybe for x in lows):
        near = extreme("min", extreme("max", s.begin, [x.sure for x in lows], inner.ranges), [end], inner.ranges)
    if any(x.sure != x.maybe for x in highs):
        far = extreme("max", extreme("min", s.end, [x.sure for x in highs], inner.ranges), [near], inner.ranges)
    return near, far


# Moves guards outwards: a condition is tested in the outermost loop that has its variables.
#
# All lanes of a warp run a shuffle, so no guard leaves one. A condition over data stays where a store may change them.


def hoist_guards(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The same stores under the same conditions, with each condition tested as far out as its variables allow.

    if c1 and c2(i) { s } inside `for i`  ->  if c1 { for i { if c2(i) { s } } }
    """
    out: list[Flat] = []
    for s in body:
        for new in _hoist(s):
            last = out[-1] if out else None
            if isinstance(new, If) and isinstance(last, If) and last.cond == new.cond and _lasts(new.cond, last.body):
                out[-1] = If(new.cond, (*last.body, *new.body))
            else:
                out.append(new)
    return tuple(out)


def _hoist(s: Flat) -> tuple[Flat, ...]:
    if isinstance(s, Store | Shuffle):
        return (s,)
    inner = hoist_guards(s.body)
    if isinstance(s, If):
        if len(inner) == 1 and isinstance(inner[0], If):
            joined = conjunction((*conjuncts(s.cond), *conjuncts(inner[0].cond)))
            return _guarded(joined, inner[0].body)
        return (If(s.cond, inner),)
    if len(inner) != 1 or not isinstance(inner[0], If) or isinstance(s, Alloc):
        return (replace(s, body=inner),)
    own = {s.var} if isinstance(s, Loop) else set(s.vars) if isinstance(s, Parallel) else set[str]()
    conds = conjuncts(inner[0].cond)
    here = tuple(c for c in conds if not free_vars(c) & own and _lasts(c, inner))
    kept = tuple(c for c in conds if c not in here)
    return _guarded(conjunction(here), (replace(s, body=_guarded(conjunction(kept), inner[0].body)),))


def _guarded(cond: Expr | None, body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    return body if cond is None else (If(cond, body),)


def _lasts(cond: Expr, body: tuple[Flat, ...]) -> bool:
    """Whether no store of a body changes what a condition reads."""
    read = {x.buffer for x in loads(cond)}
    return not read or read.isdisjoint(s.buffer for s in stores(body))


# Runs the only iteration of a scattered loop that changes anything: the one that data choose.


def _scattered(s: Loop, ranges: Ranges) -> tuple[Flat, ...]:
    """A scattered loop as one iteration where the data choose one, and none elsewhere.

    scattered for b in 0 .. n { H[b] = H[b] + (1 if X[i] == b else 0) }
        ->  if 0 <= X[i] and X[i] < n { for b in X[i] .. X[i] + 1 { H[b] = … } }

    A loop for which the choice is not found runs all of its iterations.
    """
    below = hull(s.body)
    try:
        found = chosen_of(s.var, frozenset(below), tuple(_stores(s.body, ())), {**within(ranges, s), **below})
    except NotChosen:
        return (replace(s, scattered=False),)
    if found is None:
        return ()
    one = Loop(s.var, found.at, add(found.at, ONE), LoopKind.SERIAL, s.body)
    inside_it = simplify_where((Compare(">=", found.at, s.begin), Compare("<", found.at, s.end)), ranges)
    alone = _guarded(conjunction(inside_it), (one,))
    return _guarded(conjunction((*_runs(s.begin, s.end), *found.path)), alone)


def _stores(body: tuple[Flat, ...], guards: tuple[Expr, ...]) -> Iterator[Guarded]:
    """The stores with the conditions around them. Raises NotChosen for statements that are more than loops and guards."""
    for s in body:
        match s:
            case Store():
                yield guards, s
            case If():
                yield from _stores(s.body, (*guards, s.cond))
            case Loop():
                yield from _stores(s.body, guards)
            case _:
                raise NotChosen("holds more than stores")
