"""Recognises running reductions: scans whose step combines the value so far, maybe scaled, with one more term, or begins
anew.

`Y[t] = first if t < 1 else Y[t - 1] op term` is the reduction of all terms up to `t`, if `op` is associative. In
`Y[t] = first if t < 1 else (Y[t - 1] by factor) op term` each term is scaled by all factors after its own step, if `by`
distributes over `op`: a linear recurrence (Blelloch, Prefix sums and their applications, 1990, section 1.4). Where a step
does not read the value before, no earlier term is in its value: a segment begins (section 1.5 there). So a step is a map of
the value before, `v -> term if reset else (v by factor) op term`. The maps of several steps in a row compose to one of this
form: factors are combined by `by`, and resets by `or`. Only the form is looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from tensorc_dsl.affine.conditions import FALSE, TRUE, logic, negate
from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.dtypes import BOOL, DType
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
    dtype_of,
    loads,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import Block, IterKind
from tensorc_dsl.ir.reductions import FoldOp, combine, identity


@dataclass(frozen=True, slots=True)
class Scale:
    """What a step does to the value before: it combines it with `factor` by an operation that distributes over the scan's."""

    op: FoldOp
    factor: Expr


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _Arm:
    """A map of the value before: it is scaled by `factor` and combined with `term`, or `term` alone is the value."""

    takes: bool
    factor: Expr | None = None
    term: Expr | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """One map under a condition, another one otherwise."""

    cond: Expr
    then: _Map
    other: _Map


_Map = _Arm | _Choice


@dataclass(frozen=True, slots=True)
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
