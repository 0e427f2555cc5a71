"""What the conditions of the work of a loop say of its bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    constant,
    free_vars,
    loads,
)
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.lower.flat import (
    Collective,
    Flat,
    Loop,
    Shuffle,
    inside,
    stores,
)
from tensorc_dsl.lower.limits import Limit, limits_of, share
from tensorc_dsl.lower.ranges import hull, within
from tensorc_dsl.lower.storage import element_count
from tensorc_dsl.lower.work import Needs, asks, in_folds, work
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds, simplify
from tensorc_dsl.proof.sets.store_guards import never_negative_zero

WORTH = 0.75
"""The part of a loop's iterations that a condition of a fold may leave for bounds to be worth it: borders leave more. Guards
of tiles are left to the passes that cut loops."""


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
class Stage:
    """Limits that are computed together, where `guards` hold."""

    guards: list[Expr] = field(default_factory=list[Expr])
    lows: list[Limit] = field(default_factory=list[Limit])
    highs: list[Limit] = field(default_factory=list[Limit])

    def add(self, found: Iterable[Limit]) -> None:
        for x in found:
            (self.highs if x.upper else self.lows).append(x)


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


@dataclass(frozen=True, slots=True)
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
        return replace(self, ranges=within(self.ranges, s))


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
                exact = alone and all(x.at == x.sure for x in found)
                (facts if exact else middle).append(cond)
                ends += [cond] if exact and all(x.upper and not loads(x.at) for x in found) else []
                clean &= exact
                worth |= cond in own and share(cond, self.s.var, {**self.ranges, **self.inner}) <= WORTH
            else:
                clean = False
        return Plan(stages, facts, middle, ends, worth)

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


def own_buffers(s: Loop, known: Known) -> frozenset[str]:
    """The buffers that are new in each iteration of a loop."""
    return frozenset(name for name, loops in known.homes.items() if s.var in loops)


def extreme(op: BinaryOp, e: Expr, others: Iterable[Expr], ranges: Ranges) -> Expr:
    for x in dict.fromkeys(others):
        e = simplify(Binary(op, e, x), ranges)
    return e
