"""Running reductions: which scans are such, whether products of factors stay in range, and the look-back of blocks of a
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, log2, prod
from typing import Literal, TypeGuard, cast

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.annotations import passed_along
from tensorc_dsl.ir.dtypes import BOOL, DType, largest_finite, smallest_normal, unit_roundoff
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    constant,
    dtype_of,
    free_vars,
    loads,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Store, blocks, find_block, find_loop, walk
from tensorc_dsl.ir.reductions import Fold, FoldOp, combine, identity, update_of
from tensorc_dsl.proof.sets.linear_forms import FALSE, TRUE, logic, negate
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify

# Recognises running reductions: scans whose step combines the value so far, maybe scaled, with one more term, or begins
# anew.
#
# `Y[t] = first if t < 1 else Y[t - 1] op term` is the reduction of all terms up to `t`, if `op` is associative. In `Y[t] =
# first if t < 1 else (Y[t - 1] by factor) op term` each term is scaled by all factors after its own step, if `by`
# distributes over `op`: a linear recurrence (Blelloch, Prefix sums and their applications, 1990, section 1.4). Where a step
# does not read the value before, no earlier term is in its value: a segment begins (section 1.5 there). So a step is a map
# of the value before, `v -> term if reset else (v by factor) op term`. The maps of several steps in a row compose to one of
# this form: factors are combined by `by`, and resets by `or`. Only the form is looked at here.


@frozen
class Scale:
    """What a step does to the value before: it combines it with `factor` by an operation that distributes over the scan's."""

    op: FoldOp
    factor: Expr


@frozen
class Running:
    """A scan along the iterator `steps`: `first` at 0, then the value `read` of the step before combined with `term`."""

    op: FoldOp
    steps: str
    first: Expr
    read: Load
    term: Expr
    scale: Scale | None = None
    """What is done to the value before; None if it is taken as it is."""
    reset: Expr | None = None
    """The condition under which `term` alone is the value of a step, whatever the factor is; None if it never is."""

    @property
    def passed(self) -> tuple[Scale, ...]:
        """What a step does to the value before: each is combined over several steps by its operation. A reset leaves nothing
        of that value, whatever it is, so it comes last.
        """
        resets = () if self.reset is None else (Scale("or", self.reset),)
        return resets if self.scale is None else (self.scale, *resets)

    @property
    def alone(self) -> Expr:
        """The value of a step that begins anew."""
        return self.term if self.reset is None else _given(self.term, self.reset, holds=True)

    @property
    def added(self) -> Expr:
        """The term of a step that does not."""
        return self.unless_reset(self.term)

    def unless_reset(self, e: Expr) -> Expr:
        """The term or factor of a step that does not begin anew."""
        return e if self.reset is None else _given(e, self.reset, holds=False)


def distributing(op: FoldOp, t: DType) -> tuple[FoldOp, ...]:
    """The operations that distribute over `op`: x by (y op z) = (x by y) op (x by z).

    Sums of integers wrap around, and then no longer keep an order. Products may turn it round.
    """
    match op:
        case "+":
            return ("*",)
        case "max":
            return ("+", "min") if t.is_float else ("min",)
        case "min":
            return ("+", "max") if t.is_float else ("max",)
        case "and":
            return ("or",)
        case "or":
            return ("and",)
        case "*":
            return ()


def running(b: Block) -> Running | None:
    """The running reduction that a block computes; None for others."""
    steps = [it.name for it in b.iters if it.kind is IterKind.SCAN]
    if len(steps) != 1 or len(b.body) != 1 or b.init or b.is_reduction:
        return None
    (v,), (store,) = steps, b.body
    match store.value:
        case Select(cond=Compare(op="<", lhs=Var(name=name), rhs=limit), then=first, other=step) if (
            name == v and limit == ONE
        ):
            pass
        case _:
            return None
    own = list(dict.fromkeys(x for x in loads(store.value) if x.buffer == store.buffer))
    inside = [x for i in store.indices for x in loads(i)]
    if len(own) != 1 or inside or own[0] in loads(first) or not _is_before(own[0], store.indices, v):
        return None
    t = dtype_of(step)
    used = _operations(step, own[0])
    ops: list[FoldOp] = ["or", "and"] if t == BOOL else ["max", "min", "+", "*"]
    # By any operation a step is combined that takes the value before as it is, or begins anew.
    tried: list[FoldOp] = [x for x in ops if x in used] or ops[:1]
    for op in tried:
        scales: list[FoldOp | None] = [None, *(x for x in distributing(op, t) if x in used)]
        for by in scales:
            found = _Form(own[0], op, by).of(step)
            reset, factor, term = (FALSE, None, None) if found is None else _whole(found, op, by)
            if (factor is None and term is None) or reset == TRUE:
                continue
            scale = None if by is None or factor is None else Scale(by, factor)
            term = identity(op, t) if term is None else term
            return Running(op, v, first, own[0], term, scale, None if reset == FALSE else reset)
    return None


@frozen
class _Arm:
    """A map of the value before: it is scaled by `factor` and combined with `term`, or `term` alone is the value."""

    takes: bool
    factor: Expr | None = None
    term: Expr | None = None


@frozen
class _Choice:
    """One map under a condition, another one otherwise."""

    cond: Expr
    then: _Map
    other: _Map


_Map = _Arm | _Choice


@frozen
class _Form:
    """What maps of the value `own` before are looked for: combined by `op`, scaled by `by` if that is an operation."""

    own: Load
    op: FoldOp
    by: FoldOp | None

    def of(self, e: Expr) -> _Map | None:
        """The map that an expression is; None if it has another form."""
        if not self._reads(e):
            return _Arm(takes=False, term=e)
        if e == self.own:
            return _Arm(takes=True)
        match e:
            case Select(cond=c, then=a, other=b) if not self._reads(c):
                x, y = self.of(a), self.of(b)
                return None if x is None or y is None else _Choice(c, x, y)
            case Binary(op="-", lhs=a, rhs=b) if not self._reads(b):
                return self.of(Binary("+", a, _negative(b)))
            case Binary(op="-", lhs=a, rhs=b) if not self._reads(a) and dtype_of(e).kind != "uint":
                return self.of(Binary("+", _negative(b), a))
            case Binary(op=o, lhs=a, rhs=b) | Logic(op=o, lhs=a, rhs=b) if o in (self.op, self.by):
                inner, other = (b, a) if self._reads(b) else (a, b)
                if self._reads(other) or (found := self.of(inner)) is None:
                    return None
                return self._combined(found, other) if o == self.op else self._scaled(found, other)
            case _:
                return None

    def _reads(self, e: Expr) -> bool:
        return self.own in loads(e)

    def _combined(self, m: _Map, term: Expr) -> _Map:
        if isinstance(m, _Choice):
            return _Choice(m.cond, self._combined(m.then, term), self._combined(m.other, term))
        # A neutral value where a segment begins, such as `X[t] + (0.0 if F[t] else Y[t - 1])`, is no term.
        alone = m.term is None or m.term == identity(self.op, dtype_of(term))
        return replace(m, term=term if alone or m.term is None else combine(self.op, m.term, term))

    def _scaled(self, m: _Map, factor: Expr) -> _Map | None:
        """The map and a product with a factor after it. Of terms in a sum no product is written out."""
        if isinstance(m, _Choice):
            x, y = self._scaled(m.then, factor), self._scaled(m.other, factor)
            return None if x is None or y is None else _Choice(m.cond, x, y)
        assert self.by is not None
        if not m.takes and m.term is not None:
            return replace(m, term=combine(self.by, m.term, factor))
        if m.term is not None:
            return None
        return replace(m, factor=factor if m.factor is None else combine(self.by, m.factor, factor))


def _whole(m: _Map, op: FoldOp, by: FoldOp | None) -> tuple[Expr, Expr | None, Expr | None]:
    """When a map ignores the value before, its factor and its term, None where it has none. Each is under the conditions of
    its arm, as are the elements that it reads.
    """
    if isinstance(m, _Arm):
        return FALSE if m.takes else TRUE, m.factor, m.term
    (r, f, x), (s, g, y) = (_whole(k, op, by) for k in (m.then, m.other))
    # Where a step begins anew its factor is any. A condition over loops stays, since it may guard what the factor reads.
    if loads(m.cond) and TRUE in (r, s):
        factor = g if r == TRUE else f
    else:
        factor = None if by is None else _chosen(m.cond, f, g, by)
    return _either(m.cond, r, s), factor, _chosen(m.cond, x, y, op)


def _chosen(cond: Expr, a: Expr | None, b: Expr | None, op: FoldOp) -> Expr | None:
    if a is None and b is None:
        return None
    one = identity(op, dtype_of(a if a is not None else cast("Expr", b)))
    a, b = (one if x is None else x for x in (a, b))
    return a if a == b else Select(cond, a, b)


def _either(cond: Expr, a: Expr, b: Expr) -> Expr:
    """The condition `a` under a condition, otherwise `b`."""
    if a == b:
        return a
    if {a, b} == {TRUE, FALSE}:
        return cond if a == TRUE else negate(cond)
    # A condition over loops may be what keeps the reads of the other one inside of their buffer.
    if loads(a) or loads(b) if not loads(cond) else not {a, b} & {TRUE, FALSE}:
        return Select(cond, a, b)
    return logic(False, logic(True, cond, a), logic(True, negate(cond), b))


def _given(e: Expr, cond: Expr, *, holds: bool) -> Expr:
    """The value of an expression where it is known whether a condition holds that it chooses by."""
    if isinstance(e, Select) and cond in (e.cond, negate(e.cond)):
        return _given(e.then if (cond == e.cond) == holds else e.other, cond, holds=holds)
    return e


def _operations(e: Expr, own: Load) -> set[FoldOp]:
    """The operations that a value has `own` in an operand of. A difference may be a sum, and a product with -1."""
    if own not in loads(e):
        return set()
    found = set[FoldOp]().union(*(_operations(c, own) for c in children(e)))
    match e:
        case Binary(op="-"):
            return {*found, "+", "*"}
        case Binary(op="+" | "*" | "min" | "max" as op) | Logic(op=op):
            return {*found, op}
        case _:
            return found


def _negative(e: Expr) -> Expr:
    """`0 - e`, as a factor -1 of a product if its type has that number."""
    t = dtype_of(e)
    if t.kind == "uint":
        return Binary("-", identity("+", t), e)
    match e:
        case Const(value=value) if t.is_float:
            return Const(-value, t)
        case Binary(op="*", lhs=a, rhs=b):
            return Binary("*", _negative(a), b)
        case _:
            return Binary("*", Const(-1.0 if t.is_float else -1, t), e)


def _is_before(read: Load, stored: Sequence[Expr], v: str) -> bool:
    """Whether the read is of what the step before has stored."""
    back = {v: sub(Var(v), ONE)}
    return all(simplify(sub(substitute(i, back), j), {}) == ZERO for i, j in zip(stored, read.indices, strict=True))


# Whether products of the factors of a scan stay in the range of their type, by the numbers that they are made of.
#
# A linear recurrence `Y[t] = f[t] * Y[t-1] + e[t]` multiplies the value before by one factor at a time. Regrouped, it
# multiplies factors with each other: `p = f[t+1] * … * f[t+n]`, and then `p * Y[t]`. Where `p` underflows or overflows, the
# result differs though no step leaves the range: with factors of 0.1, 1e38 is divided by ten forty times, and 0.1^40 is no
# number in f32; 0 times infinity is NaN. Where each `p` is a normal number, or 0 because a factor is, `p * Y[t]` is what
# the steps make of `Y[t]`, up to rounding, infinities and NaN included. The same holds for sums of what is added under a
# maximum or minimum, and for running products.
#
# Integers wrap around and conditions have no range, so any grouping of these is right. The terms of a running sum are those
# of a reduction, whose order is open.


By = Literal["*", "+"]
"""How the factors of a scan are combined with each other: those of a sum or product are multiplied, those of an extreme
added.
"""


@frozen
class Span:
    """Numbers of which combining adds the ends: of sizes above 0 the logarithms to the base 2, or the numbers to add.

    Of 0 as a factor there is no end: a product with it is 0.
    """

    low: float = inf
    high: float = -inf

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def joined(self, other: Span) -> Span:
        return Span(min(self.low, other.low), max(self.high, other.high))

    def combined(self, other: Span) -> Span:
        return Span() if self.is_empty or other.is_empty else Span(self.low + other.low, self.high + other.high)

    def repeated(self, most: int) -> Span:
        """What from none to `most` of these combine to."""
        if self.is_empty:
            return Span(0.0, 0.0)
        return Span(min(0.0, most * self.low), max(0.0, most * self.high))


def factors_of(scan: Running) -> tuple[By, tuple[Expr, ...]] | None:
    """What regrouping a scan combines apart from the value before, and how; None if any grouping of it is right."""
    t = dtype_of(scan.read)
    if not t.is_float:
        return None
    if scan.scale is not None:
        return (scan.scale.op, (scan.scale.factor,)) if _is_by(scan.scale.op) else None
    return ("*", (scan.first, scan.alone, scan.added)) if scan.op == "*" else None


def _is_by(op: FoldOp) -> TypeGuard[By]:
    return op in ("*", "+")


class Products:
    """The products, or sums, of constants that a program computes in one type."""

    def __init__(self, program: Program, by: By, t: DType) -> None:
        self._by: By = by
        self._type = t
        self._writers: dict[str, list[tuple[Block, Store]]] = {}
        for b in blocks(program):
            for s in (*b.init, *b.body):
                self._writers.setdefault(s.buffer, []).append((b, s))
        self._buffers: dict[str, Span | None] = {}

    def holds(self, buffer: str) -> bool:
        """Whether all that a buffer holds is proved to be in range."""
        return self._holds(self.stored(buffer))

    def every(self) -> bool:
        """Whether all products of constants in the program are in range."""
        for name, stores in self._writers.items():
            for b, s in stores:
                steps = (b.is_reduction and s in b.body) or running(b) is not None
                if steps and self._combines(s.value) and not self._has_data(s.value, {name}) and not self.holds(name):
                    return False
                # What a step combines with the value before is as far as all steps go.
                if any(self._open(x) for x in _parts(s.value) if not steps or all(y.buffer != name for y in loads(x))):
                    return False
        return True

    def known(self, e: Expr) -> bool:
        """Whether a value is made of constants alone, as far as this looks."""
        return self.of(e) is not None

    def of(self, e: Expr) -> Span | None:
        """The values of an expression; None if they are not known."""
        match e:
            case Const(value=value) if dtype_of(e) == self._type:
                return self._constant(float(value))
            case Load(buffer=name):
                return self.stored(name)
            case Select(then=a, other=b):
                return _joined((self.of(a), self.of(b)))
            case Binary(op=op, lhs=a, rhs=b) if op == self._by:
                return self._times(self.of(a), self.of(b), 1)
            case _:
                return None

    def stored(self, buffer: str) -> Span | None:
        """The values that a buffer may hold; None if they are not known."""
        if buffer not in self._buffers:
            self._buffers[buffer] = None  # for what is made of itself
            made = self._writers.get(buffer, [])
            self._buffers[buffer] = _joined([self._made(b, s) for b, s in made]) if made else None
        return self._buffers[buffer]

    def _made(self, b: Block, s: Store) -> Span | None:
        if s in b.init:
            return self.of(s.value)
        if b.is_reduction:
            update = update_of(b)
            if not isinstance(update, Fold) or update.op != self._by or len(b.init) != 1:
                return None
            most = _count(b, IterKind.REDUCE)
            return self._repeated(self.of(b.init[0].value), self.of(update.value), most)
        scan = running(b)
        if scan is None:
            return self.of(s.value)
        if scan.op != self._by or scan.scale is not None:
            return None
        most = _count(b, IterKind.SCAN)
        later = None if most is None else max(0, most - 1)
        starts = [self.of(e) for e in (scan.first, *(() if scan.reset is None else (scan.alone,)))]
        return _joined([self._repeated(x, self.of(scan.added), later) for x in starts])

    def _repeated(self, first: Span | None, term: Span | None, most: int | None) -> Span | None:
        """A value combined with up to `most` terms."""
        if first is None or term is None or most is None:
            return None
        return self._times(first, term.repeated(most), most)

    def _times(self, a: Span | None, b: Span | None, roundings: int) -> Span | None:
        """Both combined, and what so many roundings do to that."""
        u = unit_roundoff(self._type)
        if a is None or b is None or roundings * u > 0.5:
            return None
        made = a.combined(b)
        off = 2 * roundings * u * (1.0 if self._by == "*" else max(abs(made.low), abs(made.high)))
        return made if made.is_empty else Span(made.low - off, made.high + off)

    def _constant(self, value: float) -> Span | None:
        if not isfinite(value):
            return None
        if self._by == "+":
            return Span(value, value)
        return Span(log2(abs(value)), log2(abs(value))) if value else Span()

    def _holds(self, x: Span | None) -> bool:
        if x is None or x.is_empty:
            return x is not None
        most = largest_finite(self._type)
        if self._by == "+":
            return -most <= x.low and x.high <= most
        return log2(smallest_normal(self._type)) <= x.low and x.high <= log2(most)

    def _open(self, e: Expr) -> bool:
        """Whether it is a product of constants that is not proved to be in range."""
        return isinstance(e, Binary) and e.op == self._by and dtype_of(e) == self._type and (
            not self._holds(found) if (found := self.of(e)) is not None else not self._has_data(e, set())
        )  # fmt: skip

    def _combines(self, e: Expr) -> bool:
        return any(isinstance(x, Binary) and x.op == self._by and dtype_of(x) == self._type for x in _parts(e))

    def _has_data(self, e: Expr, met: set[str]) -> bool:
        """Whether a value depends on an input, but for what chooses it."""
        match e:
            case Load(buffer=name) if name in met:
                return False
            case Load(buffer=name):
                stores = self._writers.get(name)
                return stores is None or any(self._has_data(s.value, {*met, name}) for _, s in stores)
            case Select(then=a, other=b):
                return self._has_data(a, met) or self._has_data(b, met)
            case _:
                return any(self._has_data(c, met) for c in children(e))


def regroups_in_range(original: Program, scheduled: Program) -> bool:
    """Whether the products by which a scheduled program may regroup the scans of the original are proved to be in range."""
    asked: set[tuple[By, DType]] = set()
    for b in blocks(original):
        scan = running(b)
        found = None if scan is None else factors_of(scan)
        if scan is None or found is None:
            continue
        by, factors = found
        t = dtype_of(scan.read)
        known = Products(original, by, t)
        if not all(known.known(e) for e in factors):
            return False
        asked.add((by, t))
    return all(Products(scheduled, by, t).every() for by, t in asked)


def _count(b: Block, kind: IterKind) -> int | None:
    """How many steps of one kind a block has for an element; None if their number is open."""
    extents = [constant(it.extent) for it in b.iters if it.kind is kind]
    return prod(x for x in extents if x is not None) if None not in extents else None


def _joined(spans: Sequence[Span | None]) -> Span | None:
    out = Span()
    for x in spans:
        if x is None:
            return None
        out = out.joined(x)
    return out


def _parts(e: Expr) -> list[Expr]:
    """The expression and those in it, outside of subscripts."""
    return [e] if isinstance(e, Load) else [e, *(x for c in children(e) for x in _parts(c))]


# Scans whose value blocks of a GPU pass on: which are such that a block needs the value of the step before, and no other.
#
# A loop over blocks runs its iterations side by side. Those that are steps of such a scan wait for the one before, and only
# for the value that it makes. So the dependences through that value are kept by the machine. All others have to be none, as
# for any bound loop, and then each iteration computes what it computes in order.


@frozen
class NotPassed:
    """Why a scan cannot be passed on: a phrase with its block as the subject, and a repair."""

    reason: str
    repair: str


_SCAN = "take a scan of one value, such as `Y_carry` of `split_scan(Y, n)`"
_SPLIT = "do this before its loop is split"
_ALONE = "`merge` its loop and that of what reads it, and leave other readers and outputs to a copy"
_OUTSIDE = "`merge` the loops around both outside of that of its steps first"


def not_passed(program: Program, name: str) -> NotPassed | None:
    """Why blocks of a GPU cannot pass on the value of the scan `name`; None if they can, along the loop of its steps."""
    around, b = find_block(program, name)
    steps = [it for it in b.iters if it.kind is IterKind.SCAN]
    others = [it for it in b.iters if it.kind is IterKind.REDUCE]
    if len(steps) != 1 or others or len(b.body) != 1 or b.init:
        return NotPassed("is no scan of one value along one iterator", _SCAN)
    (store,), (step,) = b.body, steps
    counted = [d for d, i in enumerate(store.indices) if step.name in free_vars(i)]
    if len(counted) != 1 or store.indices[counted[0]] != Var(step.name):
        return NotPassed(f"does not store the element of its step `{step.name}`", _SCAN)
    if not isinstance(step.binding, Var) or step.binding.name not in {x.var for x in around}:
        return NotPassed(f"takes its steps from `{step.name}`, which is no loop of its own", _SPLIT)
    if program.buffer(store.buffer).scope != "global" or store.buffer in {p.name for p in program.params}:
        return NotPassed(f"stores `{store.buffer}`, which is no intermediate result in global memory", _ALONE)
    before = tuple(sub(i, ONE) if d == counted[0] else i for d, i in enumerate(store.indices))
    if any(not _same(x, before, {}) for x in _reads(b, store.buffer)):
        return NotPassed(f"reads other elements of `{store.buffer}` than that of the step before", _SCAN)
    return _read_elsewhere(program, around, b, step.binding.name, before, counted[0])


def _read_elsewhere(
    program: Program, around: tuple[For, ...], b: Block, var: str, before: tuple[Expr, ...], counted: int
) -> NotPassed | None:
    """Why what reads or writes the scan beside its own steps does not do with the value before; `counted` is the dimension
    of the steps.
    """
    (store,) = b.body
    at = tuple(substitute(i, bindings(b)) for i in before)
    outside = [x.var for x in around]
    inner = outside[: outside.index(var) + 1]
    seen = False
    for loops, other in walk(program.body):
        if other is b:
            seen = True
        if not isinstance(other, Block) or other is b:
            continue
        if any(s.buffer == store.buffer for s in (*other.init, *other.body)):
            return NotPassed(f"is not the only one that stores `{store.buffer}`", _SCAN)
        values = bindings(other)
        for x in _reads(other, store.buffer):
            if not seen or [y.var for y in loops[: len(inner)]] != inner:
                return NotPassed(f"is read by `{other.name}`, which does not follow it in the loop `{var}`", _ALONE)
            read = tuple(substitute(i, values) for i in x)
            extents = {y.var: y.extent for y in (*around, *loops)}
            if not _same((read[counted],), (at[counted],), extents):
                return NotPassed(
                    f"is read by `{other.name}` at another step than the one before that of `{var}`", _ALONE
                )
            if not _same(read, at, extents):
                return NotPassed(
                    f"is read by `{other.name}` for other scans than the one whose step `{var}` is", _OUTSIDE
                )
    return None


def _reads(b: Block, buffer: str) -> list[tuple[Expr, ...]]:
    """The subscripts at which a block reads a buffer."""
    every = (x for s in (*b.init, *b.body) for e in (s.value, *s.indices) for x in loads(e))
    return [x.indices for x in every if x.buffer == buffer]


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...], extents: dict[str, Expr]) -> bool:
    ranges = extent_ranges(For(name, e, ()) for name, e in extents.items())
    return len(a) == len(b) and all(simplify(sub(x, y), ranges) == ZERO for x, y in zip(a, b, strict=True))


def passed_on(program: Program, var: str) -> frozenset[str]:
    """The buffers of the scans that the iterations of a loop over blocks pass on."""
    loop = find_loop(program, var)[1]
    return frozenset(b.body[0].buffer for b in passed_along(loop) if not_passed(program, b.name) is None)
