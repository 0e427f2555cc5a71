"""Decides whether index arithmetic can overflow the 64 bits that a machine has for it.

All proofs are about integers of any size. A kernel computes the same as long as no value leaves 64 bits;
an overflow changes the sign of a sum, and a bound that was proved for it does not hold. Each value has an
interval and a *weight*, the sum of its terms if all had one sign. Simplification rewrites `a - b < c` as
`a < b + c`, and no intermediate sum of such a form is further from 0 than the weight.

A number that is read may have any value of its type if `min` and `max` bound it. Operands of additions, multiplications,
divisions and comparisons must stay below `FAR`, which leaves room for the result of one operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tensorc_dsl.affine.data import datum_range, is_datum
from tensorc_dsl.affine.form import FAR, Ranges
from tensorc_dsl.affine.simplify import extent_ranges, iter_ranges
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Call, Compare, Const, Dim, Expr, Select, Var, children, dtype_of
from tensorc_dsl.ir.program import For, Program, walk

UNLIMITED = 2**20
"""The size that is assumed for one without a limit: a product of three such sizes exceeds any memory, and the sum of one and
a 64-bit number still counts as an overflow."""


@dataclass(frozen=True, slots=True)
class _Reach:
    low: int
    high: int
    weight: int


class _TooFar(Exception):
    def __init__(self, expr: Expr) -> None:
        super().__init__(expr)
        self.expr = expr


def too_far(e: Expr, ranges: Ranges) -> Expr | None:
    """The first subexpression that may leave 64 bits for variables in their `ranges`, inner ones before outer ones;
    None if there is none. Values that are no indices wrap around in their own type, as they should.
    """
    try:
        _look(e, ranges)
    except _TooFar as found:
        return found.expr
    return None


def too_far_in(program: Program) -> Expr | None:
    """As `too_far`, for all subscripts, conditions and extents of a program."""
    for loops, s in walk(program.body):
        if isinstance(s, For):
            inside: Ranges = {}
            every: tuple[Expr, ...] = (s.extent,)
        else:
            around = extent_ranges(loops)
            found = next((x for e in (*(it.binding for it in s.iters), *s.where) if (x := too_far(e, around))), None)
            if found is not None:
                return found
            inside = iter_ranges(s.iters)
            every = tuple(e for store in (*s.init, *s.body) for e in (*store.indices, store.value))
        for e in every:
            if (found := too_far(e, inside)) is not None:
                return found
    return None


def _look(e: Expr, ranges: Ranges) -> None:
    """Raise _TooFar for the first subexpression of `e` that may leave 64 bits."""
    match e:
        case _ if dtype_of(e) == INDEX:
            _reach(e, ranges)
        case Compare(lhs=a, rhs=b) if dtype_of(a) == INDEX:
            if _reach(a, ranges).weight + _reach(b, ranges).weight > FAR:
                raise _TooFar(e)
        case _:
            for part in children(e):
                _look(part, ranges)


def _between(low: int, high: int) -> _Reach:
    return _Reach(low, high, max(abs(low), abs(high)))


def _reach(e: Expr, ranges: Ranges) -> _Reach:
    match e:
        case Const(value=value):
            return _between(int(value), int(value))
        case Var(name=name):
            low, high = ranges.get(name, (None, None))
            return _between(-UNLIMITED if low is None else low, UNLIMITED if high is None else high)
        case Dim(low=low, high=high):
            return _between(low, max(low, UNLIMITED) if high is None else high)
        case Binary(op="min" | "max" as op, lhs=a, rhs=b):
            x, y = _reach(a, ranges), _reach(b, ranges)
            best = min if op == "min" else max
            return _between(best(x.low, y.low), best(x.high, y.high))
        case Binary(op=op, lhs=a, rhs=b):
            made = _arithmetic(op, _reach(a, ranges), _reach(b, ranges))
            return made if made.weight <= FAR else _refuse(e)
        case Select(cond=c, then=a, other=b):
            _look(c, ranges)
            x, y = _reach(a, ranges), _reach(b, ranges)
            return _between(min(x.low, y.low), max(x.high, y.high))
        case Call(args=args):  # `abs` of an index
            high = max(_reach(a, ranges).weight for a in args)
            return _between(0, high) if high <= FAR else _refuse(e)
        case _ if is_datum(e):
            _look(e.operand, ranges)
            return _between(*datum_range(e))
        case _:
            raise AssertionError(f"an index of no known kind: {e}")


def _refuse(e: Expr) -> NoReturn:
    raise _TooFar(e)


def _arithmetic(op: str, x: _Reach, y: _Reach) -> _Reach:
    """The reach of `x op y`; its weight exceeds `FAR` if that of an operand does."""
    weight = max(x.weight, y.weight)
    match op:
        case "+":
            return _Reach(x.low + y.low, x.high + y.high, x.weight + y.weight)
        case "-":
            return _Reach(x.low - y.high, x.high - y.low, x.weight + y.weight)
        case "*":
            corners = [m * n for m in (x.low, x.high) for n in (y.low, y.high)]
            return _Reach(min(corners), max(corners), max(weight, x.weight * y.weight))
        case "/" if y.low > 0:
            corners = [m // n for m in (x.low, x.high) for n in (y.low, y.high)]
            return _Reach(min(corners), max(corners), weight)
        case "%" if y.low > 0:
            return _Reach(0, y.high - 1, weight)
        case _:  # `xor` stays within the bits of the longer operand, a quotient or remainder within both
            most = 2 ** max(weight.bit_length(), 1)
            return _Reach(-most, most, max(weight, most))
