"""Dependences between block instances through buffers, and what they forbid: reorderings, pipelines, loops at once, outputs
in place. Intervals of distances between two accesses of one element decide most of these questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from types import MappingProxyType

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.annotations import pipeline, roles
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    add,
    constant,
    dims_in,
    free_vars,
    index,
    loads,
    mul,
    sub,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    AT_ONCE,
    Block,
    Buffer,
    For,
    LoopKind,
    Program,
    Stmt,
    blocks_in,
    find_loop,
    is_atomic,
    walk,
)
from tensorc_dsl.ir.reductions import fold_of, reducer_text
from tensorc_dsl.proof.sets.accesses import (
    Access,
    accesses,
    common_loops,
    context_of,
    follow_writes,
    is_private,
    touched,
    written,
)
from tensorc_dsl.proof.sets.encodings import DATA, encoded
from tensorc_dsl.proof.sets.linear_forms import (
    OPEN,
    Atom,
    Context,
    Interval,
    Linear,
    expr_of,
    linear,
    product_with_open_size,
    to_expr,
)
from tensorc_dsl.proof.sets.running import passed_on
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible

# Bounds the distance between two accesses of one element: an interval per loop that both share.
#
# For accesses a and b in loops x, `d = x_b - x_a` is the distance. Accessing the same element is one equation per
# subscript. Bounds are propagated through these equations, which removes only values for which one of them cannot hold.
# So an interval contains every possible distance, and [0, 0] proves that the iterations are the same: for
# `x0*14 + x1` with x1 in 0..13, 14*d0 = -d1 with |d1| <= 13 leaves only d0 = 0, then d1 = 0. In addition, `y / c` and `y % c`
# together determine `y`, and `x0*Q + x1` with an open size Q and x1 in 0..Q-1 determines x0.


Equation = tuple[list[tuple[str, int]], int]

_ROUNDS = 8
"""The number of passes after which propagation stops; the intervals are valid then, only less tight."""


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
            for terms, rest in self.equations:
                # The ends of each term, the sums of those that are known, and how many are not.
                ends: list[Interval] = []
                low = high = rest
                below = above = 0
                for u, c in terms:
                    a, b = self.ranges.get(u, OPEN)
                    if c < 0:
                        a, b = b, a
                    if a is None:
                        below += 1
                    else:
                        low += (a := c * a)
                    if b is None:
                        above += 1
                    else:
                        high += (b := c * b)
                    ends.append((a, b))
                if (not below and low > 0) or (not above and high < 0):
                    return False
                for (u, c), (a, b) in zip(terms, ends, strict=True):
                    # c * u = -others, where what else is in the equation is open if another term is
                    least = -(high - (b or 0)) if above == (b is None) else None
                    most = -(low - (a or 0)) if below == (a is None) else None
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
        self.context = context_of(a, b)
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
    context = context_of(a, a)
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


@frozen
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
        if c > 0 and (product := product_with_open_size(expr_of(atom))) is not None:
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


# Dependences between block instances through buffers, and the reorderings that they forbid.
#
# Two instances depend on each other if both access one element of a buffer and one of them writes it. Updates of one
# reduction (`C[i] = C[i] + e` by the same store) may run in any order among themselves. All other orders must be kept: an
# `init` before the updates that it starts, an update before reads of the result. Statements trade places although they
# update one element, if both do so by one operation. A buffer that is private to an iteration of a loop
# (`proof.sets.accesses`) causes no dependence between iterations of that loop.
#
# Each question first uses intervals of distances, which prove most answers. The others are decided by
# an integer set, exactly if all subscripts and conditions are affine. A subscript that depends on data may be any element
# in the bounds of its datum (`proof.sets.encodings`); a subscript that is not affine may be any element.


@frozen
class Dependence:
    """Instances of two blocks access one element of `buffer`, so they may not be reordered or run at once."""

    buffer: str
    first: str
    second: str
    loop: str
    reduction: bool
    """Whether both belong to one reduction, so that an atomic reduction or partial results would remove the conflict."""
    product: str = ""
    """A subscript that no integer set has, if there is one: then it is only not known that the elements differ."""

    def __str__(self) -> str:
        if self.reduction:
            return f"`{self.first}` accumulates into `{self.buffer}` over `{self.loop}`"
        touch = "may touch" if self.product else "touch"
        why = f": `{self.product}` is not a sum of multiples of loops" if self.product else ""
        if self.first == self.second:
            return f"iterations of `{self.loop}` {touch} the same elements of `{self.buffer}` in `{self.first}`{why}"
        return (
            f"`{self.second}` and `{self.first}` {touch} the same elements of `{self.buffer}` across `{self.loop}`{why}"
        )


def _dependence(a: Access, b: Access, loop: str, reduction: bool = False) -> Dependence:
    """The dependence of two accesses to one element, which may be one only as far as is known."""
    unknown = (i for x in (a, b) for i in x.indices if not loads(i) and not affine_only((Compare("==", i, ZERO),)))
    product = next(map(format_expr, unknown), "")
    return Dependence(a.buffer, a.block.name, b.block.name, loop, reduction, product)


def pairs(found: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses that may conflict, each once, the earlier in text order first.

    A read of an element that the same instance writes is left out: a conflict with it is also one with the write.
    """
    writes = {(x.block.name, x.buffer, x.indices, x.guard, x.is_init, x.update) for x in found if x.is_write}
    kept = [
        x
        for x in found
        if x.is_write or (x.block.name, x.buffer, x.indices, x.guard, x.is_init, x.update) not in writes
    ]
    for n, a in enumerate(kept):
        for b in kept[n:]:
            if a.buffer == b.buffer and (a.is_write or b.is_write):
                yield a, b


def _relaxable(a: Access, b: Access) -> bool:
    return a.update is not None and a.update == b.update and a.block is b.block


def _commute(a: Access, b: Access) -> bool:
    """Whether both accesses belong to updates by one operation of two blocks, such as parts of one reduction: a sum has its
    terms in any order.
    """
    return a.block is not b.block and (op := _operation(a)) is not None and op == _operation(b)


def _operation(x: Access) -> str | None:
    """The operation of the fold that an access belongs to."""
    if x.update is None or reducer_text(x.block) is not None:
        return None
    fold = fold_of(x.block.body[x.update])
    return None if fold is None else fold.op


def _at_once(a: Access, b: Access) -> bool:
    """Whether both accesses belong to one update of an atomic block, which several threads may make at once."""
    return _relaxable(a, b) and is_atomic(a.block)


def _one_reduction(a: Access, b: Access) -> bool:
    """Whether both accesses accumulate, or initialise the accumulation, of one block."""
    return a.block is b.block and all(x.is_init or x.update is not None for x in (a, b))


def _other(name: str) -> str:
    return f"{name}'b"


def conflict(
    a: Access,
    b: Access,
    equal: int,
    order: Sequence[tuple[str, int]] = (),
    apart: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> bool:
    """Whether instances of both accesses access one element in the same iteration of the first `equal` loops, with
    distances as in `order`: (x, 1) requires x_b > x_a, (x, -1) x_b < x_a, (x, 0) x_b = x_a; and with x_b - x_a from `low`
    to `high` for each x in `apart`.
    """
    common = common_loops(a, b)
    rename: dict[str, Expr] = {loop.var: Var(_other(loop.var)) for loop in common[equal:]}
    extents = {loop.var: a.extent(loop) for loop in a.loops}
    for loop in b.loops[equal:]:
        name = _other(loop.var) if loop.var in rename else loop.var
        extents[name] = substitute(b.extent(loop), rename)
    conditions: list[Expr] = [*a.guard, *(substitute(c, rename) for c in b.guard)]
    here = encoded(a.indices, DATA, tag="a")
    there = encoded([substitute(j, rename) for j in b.indices], DATA, tag="b")
    conditions += [Compare("==", i, j) for i, j in zip(here.exprs, there.exprs, strict=True)]
    conditions += [*here.conditions, *there.conditions]
    for name, sign in order:
        x, y = Var(name), rename.get(name, Var(name))
        conditions.append(Compare("==", x, y) if sign == 0 else Compare("<", x, y) if sign > 0 else Compare("<", y, x))
    for name, (low, high) in apart.items():
        x, y = Var(name), rename[name]
        conditions += [Compare("<=", add(x, index(low)), y), Compare("<=", y, add(x, index(high)))]
    try:
        return feasible(extents, affine_only(conditions))
    except NotAffine:  # an extent is not affine
        return True


def _allows(interval: Interval, sign: int) -> bool:
    low, high = interval
    if sign > 0:
        return high is None or high > 0
    if sign < 0:
        return low is None or low < 0
    return (low is None or low <= 0) and (high is None or high >= 0)


def _certain(a: Access, b: Access, loop: For) -> bool:
    """Theorem: without guards, and with constant extents, every iteration runs. If `loop` does not occur in the
    subscripts and has two iterations, two of its iterations access one element. For one access, or two equal ones.
    """
    return (
        a.indices == b.indices
        and a.loops == b.loops
        and not (a.guard or b.guard)
        and all((n := constant(x.extent)) is not None and n > 0 for x in a.loops)
        and constant(loop.extent) != 1
        and all(loop.var not in free_vars(i) for i in a.indices)
    )


def _privacy(program: Program, var: str) -> Callable[[str], bool]:
    """`is_private` of a loop, computed once for each buffer."""

    @cache
    def private(buffer: str) -> bool:
        return is_private(program, buffer, var)

    return private


def carried(program: Program, var: str, kind: LoopKind | None = None) -> Dependence | None:
    """A dependence between different iterations of the loop `var` (within one iteration of the loops around it), if any.

    A dependence outside of a reduction is preferred. None means that the iterations can run in any order and at once, as
    those of a loop of its `kind`, or of another one if that is given: the threads of a bound loop may make updates of one
    atomic block, and its blocks may pass on the value of a scan. Raises KeyError if there is no such loop.
    """
    outer, loop = find_loop(program, var)
    found = accesses(outer, (loop,), written((loop,)))
    depth = len(outer)
    weak: Dependence | None = None
    private = _privacy(program, var)
    bound = (kind or loop.kind) is LoopKind.BOUND
    passed = passed_on(program, var) if bound else frozenset[str]()
    for a, b in pairs(found):
        if a.buffer in passed:
            continue  # blocks wait for it
        reduction = _one_reduction(a, b)
        if (reduction and weak) or (bound and _at_once(a, b)) or keeps_apart(a, b, loop, depth) or private(a.buffer):
            continue
        near = distances(a, b, depth)
        if near is None or near[depth] == (0, 0):
            continue
        signs = [s for s in ((1,) if a is b else (1, -1)) if _allows(near[depth], s)]
        if _certain(a, b, loop) or any(conflict(a, b, depth, [(var, s)]) for s in signs):
            here = _dependence(a, b, var, reduction)
            if not reduction:
                return here
            weak = here
    return weak


def broken(program: Program, order: Sequence[str]) -> Dependence | None:
    """A dependence that is violated if a perfect nest of loops gets the order `order`; None if there is none.

    `order` names all loops of the nest, from its outermost to its innermost, in their new places.
    """
    nest = sorted(order, key=lambda v: len(find_loop(program, v)[0]))
    outer, top = find_loop(program, nest[0])
    place, now = {v: n for n, v in enumerate(order)}, {v: n for n, v in enumerate(nest)}
    inversions = [(u, w) for n, u in enumerate(nest) for w in nest[n + 1 :] if place[w] < place[u]]
    if not inversions:
        return None
    depth = len(outer)
    private = _privacy(program, nest[-1])
    for a, b in pairs(accesses(outer, (top,), written((top,)))):
        if _relaxable(a, b) or private(a.buffer):
            continue
        near = distances(a, b, depth)
        if near is None:
            continue
        span = dict(zip(nest, near[depth:], strict=False))
        for u, w in inversions:
            # Loop u decides the order now, loop w afterwards; all loops outside, before and after, have equal values.
            signs = [s for s in (1, -1) if _allows(span[u], s) and _allows(span[w], -s)]
            if not signs:
                continue
            level = [x for n, x in enumerate(nest) if n < now[u] or place[x] < place[w]]
            if not all(_allows(span[x], 0) for x in level):
                continue
            for sign in signs:
                asked = [*((x, 0) for x in level), (u, sign), (w, -sign)]
                if conflict(a, b, depth, asked):
                    return _dependence(a, b, u)
    return None


def runs_ahead(program: Program, var: str, first: Collection[str]) -> Dependence | None:
    """A dependence of a block below the loop `var` on one of `first` that runs in a later iteration; None if there is none.

    The blocks `first` stand before the others. None means that the loop can be split into two, with all blocks of `first`
    done before the others begin, and that two such loops can be merged into this one.
    """
    outer, loop = find_loop(program, var)
    depth = len(outer)
    for a, b in pairs(accesses(outer, (loop,), written((loop,)))):
        if a.block.name in first and b.block.name not in first and not _commute(a, b):
            near = distances(a, b, depth)
            if near is not None and _allows(near[depth], -1) and conflict(a, b, depth, [(var, -1)]):
                return _dependence(a, b, var)
    return None


def meeting(outer: tuple[For, ...], stmt: Stmt, others: tuple[Stmt, ...]) -> Dependence | None:
    """A dependence between the statement and one of the others, which all stand directly in the loops `outer`, within one
    iteration of these; None if there is none. None means that the statement can trade places with the others.
    """
    everything = (stmt, *others)
    own = {b.name for b in blocks_in((stmt,))}
    for a, b in pairs(accesses(outer, everything, written(everything))):
        if a.block.name in own and b.block.name not in own and not _commute(a, b) and conflict(a, b, len(outer)):
            loop = outer[-1].var if outer else ""
            return _dependence(a, b, loop)
    return None


def happens_before(a: Access, b: Access, equal: int) -> bool:
    """Whether an instance of `a` accesses an element before an instance of `b` does, in the same iteration of the first
    `equal` loops.
    """
    near = distances(a, b, equal)
    if near is None:
        return False
    common = common_loops(a, b)
    for n in range(equal, len(common)):
        if _allows(near[n], 1) and conflict(a, b, equal, [*((x.var, 0) for x in common[equal:n]), (common[n].var, 1)]):
            return True
        if not _allows(near[n], 0):
            return False
    return a.seq < b.seq and conflict(a, b, equal, [(x.var, 0) for x in common[equal:]])


def overtaken(outer: tuple[For, ...], stmts: tuple[Stmt, ...], block: str) -> Dependence | None:
    """A dependence that is violated if the `init` of `block` moves before all of `stmts`, which stand in `outer`."""
    found = accesses(outer, stmts, written(stmts))
    inits = [x for x in found if x.is_init and x.block.name == block]
    for b in inits:
        for a in found:
            own = a.is_init and a.block.name == block
            if a.buffer == b.buffer and not own and (a.is_write or b.is_write) and happens_before(a, b, len(outer)):
                return Dependence(
                    a.buffer, a.block.name, block, stmts[0].var if isinstance(stmts[0], For) else block, False
                )
    return None


# Checks the reordering of statements by a software pipeline (Lam, "Software Pipelining", PLDI 1988).
#
# In a pipeline, round `t` of a loop runs statement `s` for iteration `t - stage(s)`, and the statements of a round in the
# order given by `order`. So two instances, of statement `p` in iteration `i` and of `q` in iteration `j`, keep their order
# iff `(i + stage(p), order(p)) < (j + stage(q), order(q))`. A buffer that is private to an iteration gets as many versions
# as there are iterations in flight, so only dependences within one iteration count for it.


def overtakes(program: Program, var: str, stages: Sequence[int], order: Sequence[int]) -> Dependence | None:
    """A dependence that the pipeline of loop `var` violates, or None; `stages` and `order` have one entry per statement."""
    outer, loop = find_loop(program, var)
    place = {b.name: n for n, s in enumerate(loop.body) for _, b in walk((s,)) if isinstance(b, Block)}
    depth = len(outer)
    for x, y in pairs(accesses(outer, (loop,), written((loop,)))):
        private = is_private(program, x.buffer, var)
        for a, b in ((x, y), (y, x)):
            p, q = place[a.block.name], place[b.block.name]
            if p == q:  # the instances of one statement keep their order
                break
            # `b` comes `d` iterations after `a`; it overtakes if (d + stage(b), order(b)) < (stage(a), order(a)).
            least = 0 if a.seq < b.seq else 1
            most = stages[p] - stages[q] - (0 if order[q] < order[p] else 1)
            if private:
                most = min(most, 0)
            if least <= most and _meets(a, b, depth, var, least, most):
                return Dependence(a.buffer, a.block.name, b.block.name, var, False)
    return None


def versions(loop: For, buffer: Buffer) -> int:
    """The number of iterations of a loop that need a copy of a buffer at one time, if the buffer is private to an iteration.

    In a pipeline an iteration needs it from the first stage that accesses it to the last; in other loops it is 1. Registers
    that are read earlier in a round than they are written need no copy for that round. Of shared memory each round has its
    own: what fills it may run beside the threads, and so may what reads it. With roles all that passes between stages is
    released together, behind the last stage.
    """
    found = pipeline(loop) if loop.kind is LoopKind.PIPELINED else None
    if found is None:
        return 1
    parts = [(stage, place, (s,)) for stage, place, s in zip(*found, loop.body, strict=True)]
    used = [(stage, place) for stage, place, s in parts if any(buffer.name in touched(b) for b in blocks_in(s))]
    if not buffer.scope.startswith("shared"):
        stored = [(stage, place) for stage, place, s in parts if buffer.name in written(s)]
        apart = (t - stage + (at >= place) for stage, place in stored for t, at in used)
        return max(1, *apart) if stored else 1
    stages = {stage for stage, _ in used}
    if roles(loop) and len(stages) > 1:
        stages.add(max(found[0]))
    return max(stages) - min(stages) + 1 if stages else 1


def _meets(a: Access, b: Access, depth: int, var: str, least: int, most: int) -> bool:
    near = distances(a, b, depth)
    if near is None:
        return False
    low, high = near[depth]
    if (high is not None and high < least) or (low is not None and low > most):
        return False
    return conflict(a, b, depth, apart={var: (least, most)})


# Loops that run at once although their iterations depend on each other: no step makes one, and a program that is written
# by hand may have one.


def races(program: Program) -> Iterator[tuple[For, Dependence]]:
    """Each parallel, vectorized or bound loop with a dependence that it may carry, as steps ask for: by integer sets, which
    take what they do not know for a dependence.
    """
    for _, s in walk(program.body):
        if isinstance(s, For) and s.kind in AT_ONCE and (found := carried(program, s.var)) is not None:
            yield s, found


# Proves that an output can be written over an input: each element is read for the last time before it is written.
#
# The program has two arrays, and this asks what happens if they share memory. Nothing may read an element of the input
# after the same element of the output is written. "After" is the order of the program, and for loops whose iterations have
# no order any other iteration. Loops that are pipelined or tensorized run in an order of their own, so below them the two
# may not meet. Questions that integer sets do not decide are answered with a conflict.


_OWN_ORDER = (LoopKind.PIPELINED, LoopKind.TENSORIZED)


@frozen
class Overwritten:
    """The block `reader` may read an element of `read` that `writer` has written, or writes at once, as one of `written`."""

    read: str
    written: str
    reader: str
    writer: str
    loop: str
    """The loop without an order in whose iterations that happens; empty if it happens in program order."""

    def __str__(self) -> str:
        when = f"in another iteration of `{self.loop}`, which has no order" if self.loop else "earlier"
        return f"`{self.reader}` may read elements of `{self.read}` that `{self.writer}` overwrites {when}"


def overwritten(program: Program, written: str, read: str) -> Overwritten | None:
    """An element of the input `read` that may be lost if the output `written` is in its memory; None if there is none."""
    found = accesses((), program.body, frozenset((read, written)))
    writes = [x for x in found if x.is_write and x.buffer == written]
    reads = [x for x in found if not x.is_write and x.buffer == read]
    for w, r in product(writes, reads):
        if (loop := _may_precede(w, r)) is not None:
            return Overwritten(read, written, r.block.name, w.block.name, loop)
    return None


def _may_precede(a: Access, b: Access) -> str | None:
    """Whether an instance of `a` may run before one of `b` with the same subscripts: the loop without an order in whose
    iterations that may be, empty for the order of the program; None if it is proved that none does.
    """
    for depth, loop in enumerate(common_loops(a, b)):
        early = (
            any(conflict(a, b, depth, [(loop.var, sign)]) for sign in (1, -1))
            if loop.kind in AT_ONCE
            else loop.kind in _OWN_ORDER and conflict(a, b, depth)
        )
        if early:
            return loop.var
    return "" if happens_before(a, b, 0) else None


# Proves that a dimension may keep some places only, each index in the place that is its remainder.


def keeps_places(program: Program, buffer: Buffer, axis: int, size: int) -> bool:
    """Theorem: reads of a buffer see the same values if the indices of a dimension are taken modulo `size`, where

    - each read comes after a write of its element,
    - no write of a larger index with the same remainder may run before it, and
    - writes to one place run by rising indices: none before one of a smaller index with the same remainder;

    or all of this with smaller for larger. For then the last write to the place before a read has the index of the read.
    Intervals of distances show most of it, as steps of a scan run in order.
    """
    found = accesses((), program.body, frozenset((buffer.name,)))
    writes, reads = [x for x in found if x.is_write], [x for x in found if not x.is_write]
    rounds = For("round'", buffer.shape[axis], ())  # no loop of a program has a name with a quote
    more = mul(index(size), add(Var(rounds.var), ONE))

    def moved(x: Access, to: Callable[[Expr, Expr], Expr]) -> Access:
        """The access with its index in the dimension moved by a multiple of the size."""
        place = to(x.indices[axis], more)
        return replace(x, indices=(*x.indices[:axis], place, *x.indices[axis + 1 :]), loops=(*x.loops, rounds))

    def in_order(ahead: Callable[[Expr, Expr], Expr], back: Callable[[Expr, Expr], Expr]) -> bool:
        """Whether writes come in the order in which `ahead` counts, and reads before the next write to the place."""
        later, earlier = [moved(w, back) for w in writes], [moved(w, ahead) for w in writes]
        asked = (*product(later, reads), *product(writes, earlier))
        return all(_may_precede(a, b) is None for a, b in asked)

    readers = dict.fromkeys(r.block.name for r in reads)
    return (in_order(add, sub) or in_order(sub, add)) and all(follow_writes(program, buffer.name, r) for r in readers)
