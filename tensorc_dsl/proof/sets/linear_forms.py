"""Linear forms: a constant plus integer multiples of atoms, with intervals over them; expressions as such forms, and
conditions decided. An atom may be a number that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Literal, TypeGuard, assert_never

from tensorc_dsl.ir.dtypes import BOOL, INDEX, limits
from tensorc_dsl.ir.expr import (
    SWAPPED,
    Binary,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Logic,
    Not,
    Select,
    Var,
    children,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rebuild,
)

# Subscripts that depend on data: `W[min(max(index(I[i]), 0), 9), d]` reads a row that is known at run time only.
#
# A *datum* is a conversion to `index` of a value that is read, or computed from such values. Proofs hold for every value of a
# datum: it is replaced by a variable of which only the range is known, and the subscript around it, `min(max(x, 0), 9)`, is
# affine again. So an access is taken to access every element that its clamp allows, and no other.
# `docs/decisions/0016-values-as-subscripts-are-unconstrained.md` explains why.


def data_in(e: Expr) -> tuple[Cast, ...]:
    """The data in an expression, outermost first, each once; data inside other data are included."""
    found: list[Cast] = []
    stack = [e]
    while stack:
        top = stack.pop()
        if is_datum(top):
            found.append(top)
        stack += reversed(children(top))
    return tuple(dict.fromkeys(found))


def is_datum(e: Expr) -> TypeGuard[Cast]:
    """Whether the expression converts a value of a buffer's type to an index."""
    return isinstance(e, Cast) and e.dtype == INDEX


def depends_on_data(es: Iterable[Expr]) -> bool:
    """Whether the value of some expression depends on the contents of buffers."""
    return any(is_datum(e) or depends_on_data(children(e)) for e in es)


def with_values(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`e` with expressions replaced, largest first; the parts of a replaced expression are not replaced."""
    if not values:
        return e
    if (new := values.get(e)) is not None:
        return new
    old = children(e)
    parts = tuple(with_values(c, values) for c in old)
    return e if all(a is b for a, b in zip(old, parts, strict=True)) else rebuild(e, parts)


def datum_range(datum: Cast) -> tuple[int, int]:
    """The least and the greatest index that a datum can be: those of its value, or, since a large u64 wraps around, any."""
    low, high = value_range(datum.operand)
    least, most = limits(INDEX)
    return (low, high) if least <= low and high <= most else (least, most)


def value_range(e: Expr) -> tuple[int, int]:
    """The least and the greatest value of an expression of integers, as far as the types and the operations in it tell,
    whatever buffers contain. Arithmetic that may wrap around has any value of its type.
    """
    t = dtype_of(e)
    if not t.is_integer:
        return (0, 1) if t.kind == "bool" else limits(INDEX)
    least, most = limits(t)

    def unless_wrapped(low: int, high: int) -> tuple[int, int]:
        return (low, high) if least <= low and high <= most else (least, most)

    match e:
        case Const(value=value):
            return int(value), int(value)
        case Select(then=x, other=y):
            (a, b), (c, d) = value_range(x), value_range(y)
            return min(a, c), max(b, d)
        case Cast(operand=x) if not dtype_of(x).is_float:
            return unless_wrapped(*value_range(x))
        case Call(function="bit_and", args=(x, y)):
            highs = [high for low, high in (value_range(x), value_range(y)) if low >= 0]
            return (0, min(highs)) if highs else (least, most)
        case Binary(op=op, lhs=x, rhs=y):
            (a, b), (c, d) = value_range(x), value_range(y)
            match op:
                case "min":
                    return min(a, c), min(b, d)
                case "max":
                    return max(a, c), max(b, d)
                case "%" if c >= 0:  # of 0 the remainder is 0
                    return (a, b) if a >= 0 and b < c else (0, max(d - 1, 0))
                case "/" if c > 0:
                    ends = [n // m for n in (a, b) for m in (c, d)]
                    return min(ends), max(ends)
                case "+":
                    return unless_wrapped(a + c, b + d)
                case "-":
                    return unless_wrapped(a - d, b - c)
                case "*":
                    ends = [n * m for n in (a, b) for m in (c, d)]
                    return unless_wrapped(min(ends), max(ends))
                case _:
                    return least, most
        case _:
            return least, most


def type_conditions(name: str, datum: Cast) -> tuple[Expr, Expr]:
    """The conditions that keep the variable `name` within the range of a datum's values."""
    low, high = datum_range(datum)
    return Compare("<=", index(low), Var(name)), Compare("<=", Var(name), index(high))


def outermost(exprs: Iterable[Expr]) -> tuple[Cast, ...]:
    """The data in the expressions that are not part of other data."""
    return tuple(d for e in exprs for d in ((e,) if is_datum(e) else outermost(children(e))))


# Linear forms as data: a constant plus integer multiples of atoms, intervals over them, and their text order.


Atom = str | Expr
Interval = tuple[int | None, int | None]
Ranges = Mapping[str, Interval]

OPEN: Interval = (None, None)


def joined(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    (low, high), (least, most) = a, b
    return (
        None if low is None or least is None else min(low, least),
        None if high is None or most is None else max(high, most),
    )


FAR = 2**62
"""Values further from 0 than this may overflow 64 bits in an addition, and change sign."""


@dataclass(slots=True)
class Linear:
    """`constant` + the sum of factor * atom over `terms`; no factor is 0. Immutable by convention."""

    terms: dict[Atom, int]
    constant: int

    def plus(self, other: Linear) -> Linear:
        if not other.terms:
            return self if not other.constant else Linear(self.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, self.constant + other.constant)

    def times(self, n: int) -> Linear:
        if n == 1:
            return self
        if n == 0:
            return Linear({}, 0)
        return Linear({a: c * n for a, c in self.terms.items()}, self.constant * n)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other.times(-1))

    def plus_constant(self, n: int) -> Linear:
        return Linear(self.terms, self.constant + n) if n else self

    def content(self) -> int:
        """The greatest common divisor of the factors; 0 without terms."""
        return gcd(*self.terms.values())


class Context:
    """The ranges of the variables, and ranges of atoms that were computed so far."""

    __slots__ = ("_atoms", "forms", "ranges")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._atoms: dict[Expr, Interval] = {}
        self.forms: dict[int, tuple[Expr, Linear]] = {}
        """The forms of sums, products and quotients so far, by the identities of the expressions, which are kept alive."""

    def atom(self, e: Expr, interval: Interval) -> Linear:
        """The form of one atom that is not a variable. If its interval has a single value, the form is a constant."""
        low, high = interval
        if low is not None and low == high:
            return Linear({}, low)
        self._atoms[e] = interval
        return Linear({e: 1}, 0)

    def variable(self, name: str) -> Linear:
        low, high = self.ranges.get(name, OPEN)
        if low is not None and low == high:
            return Linear({}, low)
        return Linear({name: 1}, 0)

    def dim(self, e: Dim) -> Linear:
        """The form of an open dimension, within its own range and the range in the context."""
        low, high = self.ranges.get(e.name, OPEN)
        least = e.low if low is None else max(low, e.low)
        most = e.high if high is None else high if e.high is None else min(high, e.high)
        return self.atom(e, (least, most))

    def atom_range(self, a: Atom) -> Interval:
        return self.ranges.get(a, OPEN) if isinstance(a, str) else self._atoms.get(a, OPEN)

    def range_of(self, form: Linear) -> Interval:
        return self.range_of_terms(form.terms, form.constant)

    def range_of_terms(self, terms: Mapping[Atom, int], constant: int) -> Interval:
        low: int | None = constant
        high: int | None = constant
        for a, c in terms.items():
            below, above = self.atom_range(a)
            if c < 0:
                below, above = above, below
            low = None if low is None or below is None else low + c * below
            high = None if high is None or above is None else high + c * above
        if _far(low, high) or ((low is None) != (high is None) and any(_far(*self.atom_range(a)) for a in terms)):
            return OPEN
        return low, high


def _far(low: int | None, high: int | None) -> bool:
    return (low is not None and low < -FAR) or (high is not None and high > FAR)


def expr_of(a: Atom) -> Expr:
    return Var(a) if isinstance(a, str) else a


def order_key(a: Atom) -> tuple[int, str]:
    if isinstance(a, str):
        return 0, a
    return 1, _text(a)


def _text(e: Expr) -> str:
    match e:
        case Var(name=name) | Dim(name=name):
            return name
        case Const(value=value):
            return str(value)
        case Binary(op=op, lhs=a, rhs=b):
            return f"({_text(a)} {op} {_text(b)})"
        case _:
            return repr(e)


def to_expr(form: Linear) -> Expr:
    """The form as an expression: larger factors first, then by name, then subtracted terms, then the constant."""
    terms = form.terms
    if not terms:
        return index(form.constant)
    if len(terms) == 1 and not form.constant:
        ((a, c),) = terms.items()
        return expr_of(a) if c == 1 else Binary("*", expr_of(a), index(c))
    ordered = sorted(terms.items(), key=lambda t: (t[1] < 0, -abs(t[1]), *order_key(t[0])))
    out: Expr | None = index(form.constant) if ordered[0][1] < 0 and form.constant > 0 else None
    constant = 0 if out is not None else form.constant
    for a, c in ordered:
        size = abs(c) if out is not None else c
        part = expr_of(a) if size == 1 else Binary("*", expr_of(a), index(size))
        out = part if out is None else Binary("+" if c > 0 else "-", out, part)
    assert out is not None  # there is at least one term
    if constant:
        out = Binary("+" if constant > 0 else "-", out, index(abs(constant)))
    return out


def decide(op: CompareOp, low: int | None, high: int | None) -> bool | None:
    """The truth of `d op 0` for a difference d in [low, high]; None if the interval does not decide it."""
    match op:
        case "<":
            return True if high is not None and high < 0 else False if low is not None and low >= 0 else None
        case "<=":
            return True if high is not None and high <= 0 else False if low is not None and low > 0 else None
        case ">":
            return True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        case ">=":
            return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
        case "==":
            if low == 0 and high == 0:
                return True
            return False if (low is not None and low > 0) or (high is not None and high < 0) else None
        case "!=":
            equal = decide("==", low, high)
            return None if equal is None else not equal
        case _:
            assert_never(op)


# Conditions: the two constants, and `and`, `or` and `not` of conditions without parts that decide nothing.


TRUE = Const(True, BOOL)
FALSE = Const(False, BOOL)

_NEGATED: dict[CompareOp, CompareOp] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def logic(both: bool, a: Expr, b: Expr) -> Expr:
    """`a and b` if `both`, else `a or b`, without operands that decide nothing."""
    unit, zero = (TRUE, FALSE) if both else (FALSE, TRUE)
    if zero in (a, b):
        return zero
    if a in (unit, b):
        return b
    return a if b == unit else Logic("and" if both else "or", a, b)


def negate(cond: Expr) -> Expr:
    """The opposite condition, with `not` pushed inwards."""
    match cond:
        case Const(value=value):
            return FALSE if value else TRUE
        case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) == INDEX:
            return Compare(_NEGATED[op], a, b)
        case Logic(op=op, lhs=a, rhs=b):
            return Logic("or" if op == "and" else "and", negate(a), negate(b))
        case Not(operand=a):
            return a
        case _:
            return Not(cond)


# Products, extremes and quotients of linear forms that are not linear themselves, as atoms with their ranges.


def product(a: Linear, b: Linear, context: Context) -> Linear:
    """The form of `a * b`."""
    if not a.terms:
        return b.times(a.constant)
    if not b.terms:
        return a.times(b.constant)
    out = a.times(b.constant).plus(Linear(b.terms, 0).times(a.constant))
    for x, m in a.terms.items():
        for y, n in b.terms.items():
            factors = sorted((*_factors(x), *_factors(y)), key=order_key)
            atom: Expr = expr_of(factors[0])
            for f in factors[1:]:
                atom = Binary("*", atom, expr_of(f))
            out = out.plus(
                context.atom(atom, _product_range(context.atom_range(x), context.atom_range(y))).times(m * n)
            )
    return out


def product_with_open_size(e: Expr) -> tuple[Expr, Expr] | None:
    """`x` and `Q` of a product `x * Q` of an expression over variables and a size that is open; None if `e` is none."""
    if not isinstance(e, Binary) or e.op != "*" or loads(e):
        return None
    factors = [expr_of(a) for a in _factors(e)]
    sizes = [f for f in factors if free_vars(f) == frozenset(d.name for d in dims_in(f))]
    others = [f for f in factors if f not in sizes]
    if not others or all(constant(f) is not None for f in sizes):
        return None
    return reduce(mul, others), reduce(mul, sizes)


def _factors(a: Atom) -> tuple[Atom, ...]:
    if isinstance(a, Binary) and a.op == "*":
        return (*_factors(_atom(a.lhs)), *_factors(_atom(a.rhs)))
    return (a,)


def _atom(e: Expr) -> Atom:
    return e.name if isinstance(e, Var) else e


def _product_range(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    return OPEN


def extreme(op: Literal["min", "max"], a: Linear, b: Linear, context: Context) -> Linear:
    """The form of `min(a, b)` or `max(a, b)`; that of one operand if it is known to be the result."""
    low, high = context.range_of(a.minus(b))
    if high is not None and high <= 0:
        return a if op == "min" else b
    if low is not None and low >= 0:
        return b if op == "min" else a
    (a0, a1), (b0, b1) = context.range_of(a), context.range_of(b)
    if op == "min":
        interval = (
            None if a0 is None or b0 is None else min(a0, b0),
            b1 if a1 is None else a1 if b1 is None else min(a1, b1),
        )
    else:
        interval = (
            b0 if a0 is None else a0 if b0 is None else max(a0, b0),
            None if a1 is None or b1 is None else max(a1, b1),
        )
    return context.atom(Binary(op, to_expr(a), to_expr(b)), interval)


def quotient_range(op: str, n: Linear, c: Linear, context: Context) -> Interval:
    """The range of a quotient or remainder by an expression that is not a number, but may be known to be positive."""
    low, high = context.range_of(c)
    if low is None or low <= 0:
        return OPEN
    if op == "%":
        return 0, None if high is None else high - 1
    below, above = context.range_of(n)
    # A larger divisor brings the quotient closer to 0 (or -1), a smaller one moves it away.
    least = None if below is None else below // low if below < 0 else 0 if high is None else below // high
    most = None if above is None else above // low if above >= 0 else -1 if high is None else above // high
    return least, most


# Converts index expressions to linear forms, and decides conditions over them with intervals.
#
# An atom is a variable (held as its name) or an expression that is not linear in its parts. Floor division and modulo by a
# positive constant c use these identities, with n = c*q + r:
#
#     n / c = q + r / c          n % c = r % c
#     (g*h + l) / (g*c) = h / c  and  (g*h + l) % (g*c) = g*(h % c) + l        when 0 <= l < g
#     (x / a) / b = x / (a*b)    and  (x % a) % b = x % b when b divides a
#     x - (x / c)*c = x % c      and  (x / c)*c + x % c = x


def linear(e: Expr, context: Context) -> Linear:
    """The linear form of an index expression."""
    if type(e) is not Binary:
        return _linear(e, context)
    known = context.forms.get(id(e))
    if known is None:
        terms: dict[Atom, int] = {}
        constant = _gather(e, 1, terms, context)
        form = _linear(e, context) if constant is None else Linear(terms, constant)
        known = context.forms[id(e)] = (e, form)
    return known[1]


def _linear(e: Expr, context: Context) -> Linear:
    """As `linear`, computed."""
    match e:
        case Var(name=name):
            return context.variable(name)
        case Const(value=int(value)):
            return Linear({}, value)
        case Dim():
            return context.dim(e)
        case Binary(op="+", lhs=a, rhs=b):
            return join_quotients(linear(a, context).plus(linear(b, context)), context)
        case Binary(op="-", lhs=a, rhs=b):
            return join_quotients(linear(a, context).minus(linear(b, context)), context)
        case Binary(op="*", lhs=a, rhs=b):
            return product(linear(a, context), linear(b, context), context)
        case Binary(op="/" | "%" as op, lhs=a, rhs=b):
            n, c = linear(a, context), linear(b, context)
            if c.terms or c.constant <= 0:
                return context.atom(Binary(op, to_expr(n), to_expr(c)), quotient_range(op, n, c, context))
            return divide(n, c.constant, context) if op == "/" else modulo(n, c.constant, context)
        case Binary(op="min" | "max" as op, lhs=a, rhs=b):
            return extreme(op, linear(a, context), linear(b, context), context)
        case Binary(op="xor", lhs=a, rhs=b):
            return join_quotients(_xor(linear(a, context), linear(b, context), context), context)
        case Select(cond=c, then=a, other=b):
            known = truth(c, context)
            if known is not None:
                return linear(a if known else b, context)
            return _choice(c, linear(a, context), linear(b, context), context)
        case _:
            return context.atom(_parts_simplified(e, context), datum_range(e) if is_datum(e) else OPEN)


def _gather(e: Expr, factor: int, terms: dict[Atom, int], context: Context) -> int | None:
    """Adds the multiples of variables in `factor * e` to the terms, and returns the constant; None if there is more in `e`
    than sums of them. Most subscripts are such sums, which then are one form and not one for each part.
    """
    if type(e) is Var:
        low, high = context.atom_range(e.name)
        if low is not None and low == high:
            return factor * low
        total = terms.get(e.name, 0) + factor
        if total:
            terms[e.name] = total
        else:
            del terms[e.name]
        return 0
    if type(e) is Const:
        return factor * e.value if type(e.value) is int else None
    if type(e) is not Binary:
        return None
    if e.op == "*":
        times = e.rhs.value if type(e.rhs) is Const else 0
        return _gather(e.lhs, factor * times, terms, context) if type(times) is int and times else None
    if e.op != "+" and e.op != "-":
        return None
    left = _gather(e.lhs, factor, terms, context)
    if left is None:
        return None
    right = _gather(e.rhs, factor if e.op == "+" else -factor, terms, context)
    return None if right is None else left + right


def _xor(a: Linear, b: Linear, context: Context) -> Linear:
    """The form of `a xor b`. Bits without a counterpart in the other are added; the rest is an atom."""
    if not a.terms and not b.terms:
        return Linear({}, a.constant ^ b.constant)
    for one, other in ((a, b), (b, a)):
        if (rest := _without(one, to_expr(other))) is not None:
            return linear(rest, context)
    ends = [(high, x) for x in (a, b) for low, high in (context.range_of(x),) if low is not None and low >= 0]
    least, small = min(((high, x) for high, x in ends if high is not None), key=lambda t: t[0], default=(0, None))
    if small is None:
        text = sorted((to_expr(a), to_expr(b)), key=order_key)
        return context.atom(Binary("xor", text[0], text[1]), (0, None) if len(ends) == 2 else OPEN)
    size = 1 << least.bit_length()
    other = b if small is a else a
    above, other = divide(other, size, context).times(size), modulo(other, size, context)
    if other == small:
        return above
    if Linear({}, 0) in (small, other):
        return above.plus(other).plus(small)
    if (low := max(_twos(small), _twos(other))) > 1:
        rest = small if _twos(other) == low else other
        upper = _xor(divide(small, low, context), divide(other, low, context), context)
        return above.plus(upper.times(low)).plus(modulo(rest, low, context))
    x, y = to_expr(small), to_expr(other)
    if not (_shows(x, size) or _shows(y, size)):
        x = Binary("%", x, index(size))
    text = sorted((x, y), key=order_key)
    return above.plus(context.atom(Binary("xor", text[0], text[1]), (0, size - 1)))


def _without(form: Linear, operand: Expr) -> Expr | None:
    """The other operand of an `xor` of which this is one: `(x xor y) xor y` is `x`. None for other forms."""
    if form.constant or list(form.terms.values()) != [1]:
        return None
    match next(iter(form.terms)):
        case Binary(op="xor", lhs=p, rhs=q) if operand in (p, q):
            return q if operand == p else p
        case _:
            return None


def _shows(e: Expr, size: int) -> bool:
    """Whether the text of an expression alone shows that it is from 0 to `size - 1`, without ranges of variables."""
    context = Context({})
    low, high = context.range_of(linear(e, context))
    return low is not None and low >= 0 and high is not None and high < size


def _twos(n: Linear) -> int:
    """The largest power of 2 that divides a nonzero form."""
    common = gcd(n.content(), n.constant)
    return common & -common


def _choice(cond: Expr, a: Linear, b: Linear, context: Context) -> Linear:
    if a == b:
        return a
    interval = joined(context.range_of(a), context.range_of(b))
    return context.atom(Select(simplified(cond, context), to_expr(a), to_expr(b)), interval)


def _low_part(n: Linear, g: int, context: Context) -> tuple[dict[Atom, int], dict[Atom, int], int] | None:
    """`(high, low, k)` if n = g*(high + k) + rest with the rest in [0, g): the rest is `low` plus the constant minus g*k."""
    high: dict[Atom, int] = {}
    low: dict[Atom, int] = {}
    for a, c in n.terms.items():
        if c % g:
            low[a] = c
        else:
            high[a] = c // g
    least, most = context.range_of_terms(low, n.constant)
    if least is None or most is None or least // g != most // g:
        return None
    return high, low, least // g


def divide(n: Linear, c: int, context: Context) -> Linear:
    """`n / c` for c > 0."""
    if c == 1:
        return n
    whole: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for a, f in n.terms.items():
        if f % c:
            rest[a] = f
        else:
            whole[a] = f // c
    quotient = Linear(whole, n.constant // c)
    if not rest:
        return quotient
    r = Linear(rest, n.constant % c)
    low, high = context.range_of(r)
    if low is not None and high is not None and low // c == high // c:
        return quotient.plus_constant(low // c)
    for g in sorted({gcd(f, c) for f in rest.values()} - {1}, reverse=True):
        parts = _low_part(r, g, context)
        if parts is not None:
            return join_quotients(quotient.plus(divide(Linear(parts[0], parts[2]), c // g, context)), context)
    if len(rest) == 1:
        ((a, f),) = rest.items()
        if f == 1 and isinstance(a, Binary) and a.op == "/" and 0 < (d := constant(a.rhs) or 0) <= FAR // c:
            inner = linear(a.lhs, context).plus_constant(r.constant * d)
            return join_quotients(quotient.plus(divide(inner, c * d, context)), context)
    interval = (None if low is None else low // c, None if high is None else high // c)
    return join_quotients(quotient.plus(context.atom(Binary("/", to_expr(r), index(c)), interval)), context)


def modulo(n: Linear, c: int, context: Context) -> Linear:
    """`n % c` for c > 0."""
    if c == 1:
        return Linear({}, 0)
    rest: dict[Atom, int] = {}
    for a, f in n.terms.items():
        if f % c:
            if isinstance(a, Binary) and a.op == "%" and isinstance(a.rhs, Const):
                d = int(a.rhs.value)
                if d > 0 and d % c == 0:
                    others = Linear({x: m for x, m in n.terms.items() if x != a}, n.constant)
                    return modulo(others.plus(linear(a.lhs, context).times(f)), c, context)
            rest[a] = f % c if f > 0 else -(-f % c)
    r = Linear(rest, n.constant % c)
    if not rest:
        return r
    low, high = context.range_of(r)
    if low is not None and high is not None and low // c == high // c:
        return r.plus_constant(-c * (low // c))
    for g in sorted({gcd(f, c) for f in rest.values()} - {1}, reverse=True):
        parts = _low_part(r, g, context)
        if parts is not None:
            upper, lower, k = parts
            tail = Linear(lower, r.constant - g * k)
            return join_quotients(modulo(Linear(upper, k), c // g, context).times(g).plus(tail), context)
    return context.atom(Binary("%", to_expr(r), index(c)), (0, c - 1))


def join_quotients(form: Linear, context: Context) -> Linear:
    """The form with `(x / c)*c + x % c` joined to x, and `x - (x / c)*c` written as the remainder `x % c`."""
    quotients: list[tuple[Binary, int]] = []
    remainders: list[tuple[Binary, int]] = []
    for a, f in form.terms.items():
        if isinstance(a, Binary):
            if a.op == "/":
                quotients.append((a, f))
            elif a.op == "%" and isinstance(a.rhs, Const):
                remainders.append((a, f))
    if not quotients:
        return form
    for a, f in remainders:
        c = int(a.rhs.value) if isinstance(a.rhs, Const) else 0
        if c <= 0:
            continue
        x = linear(a.lhs, context)
        quotient = divide(x, c, context).times(f * c)
        if quotient.terms and all(form.terms.get(t) == m for t, m in quotient.terms.items()):
            return join_quotients(form.minus(Linear({a: f}, 0)).minus(quotient).plus(x.times(f)), context)
    for a, f in quotients:
        c = int(a.rhs.value) if isinstance(a.rhs, Const) else 0
        if c <= 0 or f % c:
            continue
        x = linear(a.lhs, context).times(-f // c)
        if x.terms and all(form.terms.get(t) == m for t, m in x.terms.items()):
            rest = modulo(linear(a.lhs, context), c, context).times(-f // c)
            return join_quotients(form.minus(Linear({a: f}, 0)).minus(x).plus(rest), context)
    return form


def difference(a: Expr, b: Expr, context: Context) -> Linear:
    """The form of `a - b`."""
    return join_quotients(linear(a, context).minus(linear(b, context)), context)


def compare_range(d: Linear, equality: bool, context: Context) -> Interval:
    """The range of a difference that is compared with 0; without 0 for an equality that divisibility refutes."""
    if equality and d.terms and d.constant % d.content():
        return 1, None
    return context.range_of(d)


def less(d: Linear, context: Context) -> Linear:
    """A form that is negative exactly when `d` is, without terms that cannot matter."""
    for g in sorted({abs(c) for c in d.terms.values()} - {1}, reverse=True):
        parts = _low_part(d, g, context)
        if parts is not None and parts[0]:
            return Linear(parts[0], parts[2])
    return d


def truth(cond: Expr, context: Context) -> bool | None:
    match cond:
        case Const(value=value):
            return bool(value)
        case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) == INDEX:
            return decide(op, *compare_range(difference(a, b, context), op in ("==", "!="), context))
        case Logic(op="and", lhs=a, rhs=b):
            first = truth(a, context)
            if first is False:
                return False
            second = truth(b, context)
            return second if first or second is False else None
        case Logic(op="or", lhs=a, rhs=b):
            first = truth(a, context)
            if first:
                return True
            second = truth(b, context)
            return second if first is False or second else None
        case Not(operand=a):
            inner = truth(a, context)
            return None if inner is None else not inner
        case _:
            return None


def comparison(op: CompareOp, d: Linear, context: Context) -> Expr:
    """`d op 0`, decided, or in canonical form: no common factor, no term that cannot matter, no leading negative factor."""
    known = decide(op, *compare_range(d, op in ("==", "!="), context))
    if known is not None:
        return TRUE if known else FALSE
    if op in ("==", "!="):
        g = d.content()
        if g > 1:  # if g does not divide the constant, compare_range has refuted the equality
            d = divide(d, g, context)
    else:  # d < 0 is d / g < 0 for any g > 0, and d > 0 is -d < 0; `<=` and `>=` are `<` and `>` of a neighbour
        strict: CompareOp = op
        if op == "<=":
            d, strict = d.plus_constant(-1), "<"
        elif op == ">=":
            d, strict = d.plus_constant(1), ">"
        d = less(d, context) if strict == "<" else less(d.times(-1), context).times(-1)
        op = strict
    left = Linear({a: c for a, c in d.terms.items() if c > 0}, 0)
    right = Linear({a: -c for a, c in d.terms.items() if c < 0}, -d.constant)
    if not left.terms:
        left, right, op = Linear(right.terms, 0), Linear({}, -right.constant), SWAPPED[op]
    elif right.terms and right.constant < 0:
        left, right = Linear(left.terms, -right.constant), Linear(right.terms, 0)
    if op == ">" and not right.terms:  # `i > 1` becomes `i >= 2`: the number is the first value that satisfies it
        op, right = ">=", Linear({}, right.constant + 1)
    return Compare(op, to_expr(left), to_expr(right))


def simplified(e: Expr, context: Context) -> Expr:
    """As `simplify.simplify`."""
    kind = type(e)
    if kind is Const:
        return e
    if kind is Var or (kind is Binary and dtype_of(e) is INDEX):
        return to_expr(linear(e, context))
    match e:
        case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) == INDEX:
            return comparison(op, difference(a, b, context), context)
        case Logic(op=op, lhs=a, rhs=b):
            return logic(op == "and", simplified(a, context), simplified(b, context))
        case Not(operand=a):
            return negate(simplified(a, context))
        case Select(cond=c, then=a, other=b):
            cond = simplified(c, context)
            if isinstance(cond, Const):
                return simplified(a if cond.value else b, context)
            then, other = simplified(a, context), simplified(b, context)
            return then if then == other else Select(cond, then, other)
        case _:
            return _parts_simplified(e, context)


def _parts_simplified(e: Expr, context: Context) -> Expr:
    old = children(e)
    new = tuple(simplified(c, context) for c in old)
    return e if all(x is y for x, y in zip(old, new, strict=True)) else rebuild(e, new)
