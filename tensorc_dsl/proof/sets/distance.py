"""Bounds the distance between two accesses of one element: an interval per loop that both share.

For accesses a and b in loops x, `d = x_b - x_a` is the distance. Accessing the same element is one equation per
subscript. Bounds are propagated through these equations, which removes only values for which one of them cannot hold.
So an interval contains every possible distance, and [0, 0] proves that the iterations are the same: for
`x0*14 + x1` with x1 in 0..13, 14*d0 = -d1 with |d1| <= 13 leaves only d0 = 0, then d1 = 0. In addition, `y / c` and `y % c`
together determine `y`, and `x0*Q + x1` with an open size Q and x1 in 0..Q-1 determines x0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.ir.expr import ONE, ZERO, Binary, Compare, Const, Expr, Var, dims_in, free_vars, loads
from tensorc_dsl.ir.program import For
from tensorc_dsl.proof.sets.accesses import Access
from tensorc_dsl.proof.sets.linear_forms import Atom, Context, Interval, Linear, by_open_size, expr_of, linear, to_expr
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import extent_ranges

Equation = tuple[list[tuple[str, int]], int]

_ROUNDS = 8
"""The number of passes after which propagation stops; the intervals are valid then, only less tight."""


def common_loops(a: Access, b: Access) -> tuple[For, ...]:
    """The loops around both accesses, outermost first."""
    n = 0
    while n < min(len(a.loops), len(b.loops)) and a.loops[n].var == b.loops[n].var:
        n += 1
    return a.loops[:n]


@dataclass(slots=True)
class _System:
    """Equations `constant + sum(factor * unknown) = 0`, with an interval for each unknown."""

    ranges: dict[str, Interval]
    equations: list[Equation] = field(default_factory=list[Equation])

    def interval(self, unknown: str) -> Interval:
        return self.ranges.get(unknown, (None, None))

    def narrow(self, unknown: str, low: int | None, high: int | None) -> bool:
        """Intersect the interval of an unknown with [low, high]. Returns whether it became smaller."""
        a, b = self.interval(unknown)
        new_low = a if low is None else low if a is None else max(a, low)
        new_high = b if high is None else high if b is None else min(b, high)
        if (new_low, new_high) == (a, b):
            return False
        self.ranges[unknown] = (new_low, new_high)
        return True

    def propagate(self) -> bool:
        """Narrow all unknowns. Returns False if some equation has no solution."""
        for _ in range(_ROUNDS):
            changed = False
            for terms, constant in self.equations:
                lows: list[int | None] = []
                highs: list[int | None] = []
                for u, c in terms:
                    a, b = self.interval(u)
                    if c < 0:
                        a, b = b, a
                    lows.append(None if a is None else c * a)
                    highs.append(None if b is None else c * b)
                low, high = _sum(lows), _sum(highs)
                if (low is not None and constant + low > 0) or (high is not None and constant + high < 0):
                    return False
                for n, (u, c) in enumerate(terms):
                    rest_low, rest_high = _without(lows, low, n), _without(highs, high, n)
                    # c * u = -(constant + rest)
                    least = None if rest_high is None else -(constant + rest_high)
                    most = None if rest_low is None else -(constant + rest_low)
                    if c < 0:
                        least, most = (None if most is None else -most), (None if least is None else -least)
                    size = abs(c)
                    changed |= self.narrow(
                        u, None if least is None else -(-least // size), None if most is None else most // size
                    )
                    a, b = self.interval(u)
                    if a is not None and b is not None and a > b:
                        return False
            if not changed:
                return True
        return True


def _sum(parts: list[int | None]) -> int | None:
    total = 0
    for p in parts:
        if p is None:
            return None
        total += p
    return total


def _without(parts: list[int | None], total: int | None, n: int) -> int | None:
    """The sum of all parts but the n-th, given their total; None if one of them is open."""
    own = parts[n]
    if total is not None and own is not None:
        return total - own
    return _sum(parts[:n] + parts[n + 1 :])


def _add(terms: dict[str, int], unknown: str, factor: int) -> None:
    total = terms.get(unknown, 0) + factor
    if total:
        terms[unknown] = total
    else:
        terms.pop(unknown, None)


class _Pair:
    """The equations of one pair of accesses. Unknowns: `x` (in a), `x'b` (in b), `x'd` (the distance), also for atoms."""

    def __init__(self, a: Access, b: Access, common: tuple[For, ...], equal: int) -> None:
        self.common = common
        self.shared = {loop.var for loop in common}
        self.context = Context(extent_ranges((*a.loops, *b.loops[len(common) :])))
        self.system = _System({})
        self.same = {loop.var for loop in common[:equal]}
        self.atoms: dict[Expr, str] = {}
        self.unlinked: set[str] = set()
        for loop in (*a.loops, *b.loops[len(common) :]):
            self.system.ranges[loop.var] = self.context.atom_range(loop.var)
        for loop in common:
            self._link(loop.var, self.context.atom_range(loop.var), loop.var in self.same)

    def _link(self, name: str, interval: Interval, same: bool) -> None:
        low, high = interval
        width = None if low is None or high is None else max(0, high - low)
        self.system.ranges[f"{name}'b"] = interval
        self.system.ranges[f"{name}'d"] = (0, 0) if same else (None if width is None else -width, width)
        self.unlinked.add(name)

    def _unknown(self, atom: Atom) -> str | None:
        """The name of an atom that has the same meaning on both sides; None for other atoms."""
        if isinstance(atom, str):
            return atom if atom in self.shared else None
        known = self.atoms.get(atom)
        if known is None and _loops_in(atom) <= self.shared and not loads(atom):
            known = f"atom'{len(self.atoms)}"
            self.atoms[atom] = known
            interval = self.context.atom_range(atom)
            self.system.ranges[known] = interval
            self._link(known, interval, _loops_in(atom) <= self.same)
        return known

    def equate(self, a: Expr, b: Expr) -> None:
        """Add the equation that subscript `a` of the first equals subscript `b` of the second."""
        left, right = linear(a, self.context), linear(b, self.context)
        terms: dict[str, int] = {}
        for atom, c in left.terms.items():
            name = self._unknown(atom)
            d = right.terms.get(atom, 0) if name is not None else 0
            if name is not None and d == c:
                _add(terms, f"{name}'d", d)
            else:
                _add(terms, self._own(atom, "a"), -c)
        for atom, c in right.terms.items():
            name = self._unknown(atom)
            if name is None:
                _add(terms, self._own(atom, "b"), c)
            elif left.terms.get(atom) != c:
                _add(terms, f"{name}'b", c)
        self._equation(terms, right.constant - left.constant)

    def _own(self, atom: Atom, side: str) -> str:
        """The unknown of an atom on one side."""
        if isinstance(atom, str):
            return atom
        name = self._unknown(atom)
        if name is None:
            name = f"{side}'{len(self.system.ranges)}"
            self.system.ranges[name] = self.context.atom_range(atom)
        return name

    def _equation(self, terms: Mapping[str, int], constant: int) -> None:
        self.system.equations.append((list(terms.items()), constant))
        for unknown in terms:
            name = unknown.removesuffix("'b")
            if name in self.unlinked:  # the value of the atom on the other side matters only if that side occurs alone
                self.unlinked.discard(name)
                self.system.equations.append(([(f"{name}'b", 1), (name, -1), (f"{name}'d", -1)], 0))

    def parts(self, i: Expr, j: Expr, a: Access, b: Access) -> None:
        """Use that both sides have the same number of parts of an open size, if subscripts `i` and `j` are such numbers."""
        left, right = linear(i, self.context), linear(j, self.context)
        alike = {t: c for t, c in left.terms.items() if right.terms.get(t) == c and self._is_same(t)}
        common = Linear(alike, left.constant if left.constant == right.constant else 0)
        for shared in (common, Linear({}, 0)):
            found = _part(left.minus(shared), a, self.context)
            if found is not None and found == _part(right.minus(shared), b, self.context):
                self._same_number(found)
                return

    def _same_number(self, found: _Parts) -> None:
        """Use that both sides have the same number of parts."""
        number = linear(found.number, self.context)
        names = [self._unknown(found.product), *map(self._unknown, number.terms)]
        for name in names if len(number.terms) == 1 else names[:1]:
            if name is not None:
                self.system.narrow(f"{name}'d", 0, 0)

    def _is_same(self, atom: Atom) -> bool:
        """Whether an atom has one value on both sides, as its loops have."""
        e = expr_of(atom)
        return _loops_in(e) <= self.same and not loads(e)

    def zero(self, e: Expr, side: str) -> None:
        """Add the equation `e = 0` on one side."""
        self._holds(linear(e, self.context), side, {})

    def _holds(self, form: Linear, side: str, terms: dict[str, int]) -> None:
        """Add the equation `form + terms = 0`, with the form on one side."""
        for atom, c in form.terms.items():
            name = self._unknown(atom)
            _add(terms, self._own(atom, side) if name is None or side == "a" else f"{name}'b", c)
        self._equation(terms, form.constant)

    def guard(self, condition: Expr, side: str) -> None:
        """Use a condition that holds on one side, as `y - x - rest = 0` with a nonnegative rest."""
        match condition:
            case Compare(op="<=" | "<" as op, lhs=x, rhs=y) | Compare(op=">=" | ">" as op, lhs=y, rhs=x):
                form = linear(y, self.context).minus(linear(x, self.context))
            case _:
                return
        rest = f"rest'{len(self.system.ranges)}"
        self.system.ranges[rest] = (0 if op in ("<=", ">=") else 1, None)
        self._holds(form, side, {rest: -1})

    def _zero_distance(self, name: str) -> bool:
        return self.system.interval(f"{name}'d") == (0, 0)

    def close(self) -> bool:
        """Use that `y / c` and `y % c` determine `y`. Returns whether that added an equation."""
        done = False
        for atom, name in list(self.atoms.items()):
            match atom:
                case Binary(op="%", lhs=y, rhs=Const(value=int(c))) if c > 0 and self._zero_distance(name):
                    pass
                case _:
                    continue
            quotient = linear(Binary("/", y, atom.rhs), self.context)
            if all((n := self._unknown(t)) is not None and self._zero_distance(n) for t in quotient.terms):
                done |= self._same(linear(y, self.context))
        return done

    def _same(self, form: Linear) -> bool:
        terms: dict[str, int] = {}
        for t, c in form.terms.items():
            name = self._unknown(t)
            if name is None:
                return False
            _add(terms, f"{name}'d", c)
        equation = (list(terms.items()), 0)
        if equation in self.system.equations:
            return False
        self.system.equations.append(equation)
        return True


def keeps_apart(a: Access, b: Access, loop: For, depth: int) -> bool:
    """Theorem: two accesses with the same subscripts meet in no two iterations of `loop`, below `depth` equal ones, if
    one subscript changes by more from each to the next than all of its other terms together can. For x*16 + y with y in
    0..15: a step of x is 16, and y makes at most 15 of it up.
    """
    if a.indices != b.indices:
        return False
    context = Context(extent_ranges(a.loops))
    equal = {x.var for x in a.loops[:depth]}
    for subscript in a.indices:
        if loop.var not in free_vars(subscript):
            continue
        form = linear(subscript, context)
        step, others = abs(form.terms.get(loop.var, 0)), 0
        for atom, c in form.terms.items():
            if atom == loop.var or (isinstance(atom, str) and atom in equal):
                continue
            if not isinstance(atom, str) and free_vars(atom) <= equal and not loads(atom):
                continue
            low, high = context.atom_range(atom)
            if low is None or high is None:
                break
            others += abs(c) * (high - low)
        else:
            if step > others:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Parts:
    """A form `number * unit + r`, where the unit has an open size and r is from 0 on and below it: so the value of the form
    determines the number. `product` is the product of both in which the size stands.
    """

    product: Atom
    number: Expr
    unit: Linear


def _part(form: Linear, x: Access, context: Context) -> _Parts | None:
    """The parts of an open size that a subscript of an access counts, if it does."""
    for atom, c in form.terms.items():
        if c > 0 and (product := by_open_size(expr_of(atom))) is not None:
            number, size = product
            # x * (Q + 1) is written as x * Q + x.
            more = form.terms.get(number.name, 0) if isinstance(number, Var) else 0
            unit = linear(size, context).times(c).plus_constant(more)
            rest = form.minus(Linear({atom: c}, 0)).minus(linear(number, context).times(more))
            return _Parts(atom, number, unit) if _is_below(rest, unit, x, context) else None
    return None


def _is_below(rest: Linear, unit: Linear, x: Access, context: Context) -> bool:
    """Whether `rest` is from 0 on and below `unit`, as its only loop, a condition or integer sets tell."""
    below = unit.minus(rest)
    if rest.constant >= 0 and all(isinstance(a, str) and c > 0 for a, c in rest.terms.items()):
        if any(rest == Linear({y.var: 1}, 0) and linear(y.extent, context) == unit for y in x.loops):
            return True
        for g in x.guard:
            if isinstance(g, Compare) and g.op == "<":
                if linear(g.rhs, context).minus(linear(g.lhs, context)) == below:
                    return True
    outside = (Compare("<", to_expr(rest), ZERO), Compare("<", to_expr(below), ONE))
    try:
        return not any(feasible({y.var: x.extent(y) for y in x.loops}, affine_only([*x.guard, c])) for c in outside)
    except NotAffine:
        return False


def _loops_in(e: Expr) -> frozenset[str]:
    """The loops that an expression depends on: all variables but open dimensions, which have one value."""
    return free_vars(e) - {d.name for d in dims_in(e)}


def distances(a: Access, b: Access, equal: int) -> tuple[Interval, ...] | None:
    """For each common loop an interval that contains `x_b - x_a` whenever both accesses access one element in the same
    iteration of the first `equal` common loops; None if they never do. Of guards, only comparisons of sums are used.
    """
    common = common_loops(a, b)
    pair = _Pair(a, b, common, equal)
    for i, j in zip(a.indices, b.indices, strict=True):
        pair.equate(i, j)
        pair.parts(i, j, a, b)
    for e in a.zero:
        pair.zero(e, "a")
    for e in b.zero:
        pair.zero(e, "b")
    for c in a.guard:
        pair.guard(c, "a")
    for c in b.guard:
        pair.guard(c, "b")
    while True:
        if not pair.system.propagate():
            return None
        if not pair.close():
            return tuple(pair.system.interval(f"{loop.var}'d") for loop in common)
