"""Whether products of the factors of a scan stay in the range of their type, by the numbers that they are made of.

A linear recurrence `Y[t] = f[t] * Y[t-1] + e[t]` multiplies the value before by one factor at a time. Regrouped, it
multiplies factors with each other: `p = f[t+1] * … * f[t+n]`, and then `p * Y[t]`. Where `p` underflows or overflows, the
result differs though no step leaves the range: with factors of 0.1, 1e38 is divided by ten forty times, and 0.1^40 is no
number in f32; 0 times infinity is NaN. Where each `p` is a normal number, or 0 because a factor is, `p * Y[t]` is what
the steps make of `Y[t]`, up to rounding, infinities and NaN included. The same holds for sums of what is added under a
maximum or minimum, and for running products.

Integers wrap around and conditions have no range, so any grouping of these is right. The terms of a running sum are those
of a reduction, whose order is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log2, prod
from typing import Literal, TypeGuard

from tensorc_dsl.affine.running import Running, running
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Binary, Const, Expr, Load, Select, children, constant, dtype_of, loads
from tensorc_dsl.ir.numbers import largest_finite, smallest_normal, unit_roundoff
from tensorc_dsl.ir.program import Block, IterKind, Program, Store, blocks
from tensorc_dsl.ir.reductions import Fold, FoldOp, update_of

By = Literal["*", "+"]
"""How the factors of a scan are combined with each other: those of a sum or product are multiplied, those of an extreme
added.
"""


@dataclass(frozen=True, slots=True)
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
