"""Decides whether a reducer is associative, commutative and has a neutral identity: proved, refuted, or neither.

Floats are real numbers and NaN: the laws ignore rounding, but not branches, bounds and constants. Integers wrap around. A
refutation is an example. There are three kinds of proofs: all values of a small type were tried; both sides have the same
normal form (`normal_form`); they are piecewise affine, and integer sets show that they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import isfinite
from typing import Any, Literal, assert_never, get_args

from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType, highest, lowest
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
    transform,
)
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.ir.reductions import DeclaredFold, update_of
from tensorc_dsl.proof.sets.isl import Exhausted, bounded
from tensorc_dsl.proof.sets.normal_form import NAN, Special, Unknown, normal
from tensorc_dsl.proof.sets.reductions import NotApart, parts_of

# Compares two piecewise affine expressions exactly, with integer sets.
#
# A float is a real number: an operand is `x / d` for integers `x` and `d >= 1`, which turns every question about
# rational numbers into one about integers. Integers wrap around. A value that is NaN is undefined there.


class NotPieces(Exception):
    """The expressions are not piecewise affine, or take too many operations."""


def difference(
    a: Expr, b: Expr, operands: Sequence[str], t: DType, undefined: Sequence[str] = ()
) -> tuple[Fraction, ...] | None:
    """Values of the operands, which have type `t`, for which the two expressions differ; None if they are equal.

    The `undefined` operands are NaN. Raises NotPieces if the question cannot be decided.
    """
    if t == BOOL:
        raise NotPieces
    from islpy import Error

    try:
        with bounded():
            return _Pieces(operands, t, undefined).difference(a, b)
    except (Exhausted, Error) as e:
        raise NotPieces from e


class _Pieces:
    """Values as piecewise affine functions of the operands; conditions as sets."""

    def __init__(self, operands: Sequence[str], t: DType, undefined: Sequence[str]) -> None:
        import islpy

        self.isl: Any = islpy
        self.operands = tuple(operands)
        self.t = t
        self.undefined = frozenset(undefined)
        names = [*operands, *(["d"] if t.is_float else [])]
        where = "d >= 1" if t.is_float else " and ".join(f"{lowest(t)} <= {n} <= {highest(t)}" for n in names)
        self.all = islpy.Set(f"{{ [{', '.join(names)}] : {where} }}")
        self.local = islpy.LocalSpace.from_space(self.all.get_space())

    def difference(self, a: Expr, b: Expr) -> tuple[Fraction, ...] | None:
        x, y = self.value(a), self.value(b)
        defined = x.domain().subtract(y.domain()).union(y.domain().subtract(x.domain()))
        apart = x.ne_set(y).union(defined)
        if apart.is_empty():
            return None
        point = apart.sample_point()
        kind = self.isl.dim_type.set
        at = [int(str(point.get_coordinate_val(kind, k))) for k in range(self.all.dim(kind))]
        return tuple(Fraction(v, at[-1]) for v in at[:-1]) if self.t.is_float else tuple(map(Fraction, at))

    def constant(self, value: Fraction, t: DType) -> Any:
        isl = self.isl
        number = isl.Val(f"{value.numerator}/{value.denominator}")
        if t.is_float:
            return isl.PwAff.var_on_domain(self.local, isl.dim_type.set, len(self.operands)).scale_val(number)
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self.local, number))

    def value(self, e: Expr) -> Any:
        match e:
            case Const(value=value, dtype=t) if not isinstance(value, bool) and isfinite(value):
                return self.constant(Fraction(value), t).intersect_domain(self.all)
            case Load(buffer=name, indices=()):
                at = self.operands.index(name)
                known = self.all.subtract(self.all) if name in self.undefined else self.all
                return self.isl.PwAff.var_on_domain(self.local, self.isl.dim_type.set, at).intersect_domain(known)
            case Binary(op=op, lhs=a, rhs=b):
                return self.binary(op, a, b, dtype_of(a))
            case Select(cond=c, then=a, other=b):
                where = self.condition(c)
                then = self.value(a).intersect_domain(where)
                return then.union_add(self.value(b).intersect_domain(self.all.subtract(where))).coalesce()
            case Call(function="abs", args=(a,)):
                x = self.value(a)
                return self.near(x.max(x.neg()), dtype_of(a))
            case Cast(operand=a, dtype=t):
                old = dtype_of(a)
                if old.is_float and t.is_float:
                    return self.value(a)
                if old.is_integer and t.is_integer and INDEX not in (old, t):
                    return self.wrapped(self.value(a), t)
                raise NotPieces
            case Const() | Load() | Call() | Bitcast() | Var() | Dim() | Compare() | Logic() | Not():
                raise NotPieces
            case _:
                assert_never(e)

    def binary(self, op: BinaryOp, a: Expr, b: Expr, t: DType) -> Any:
        if t == INDEX:
            raise NotPieces
        match op:
            case "+":
                return self.near(self.value(a).add(self.value(b)), t)
            case "-":
                return self.near(self.value(a).sub(self.value(b)), t)
            case "min":
                return self.value(a).min(self.value(b)).coalesce()
            case "max":
                return self.value(a).max(self.value(b)).coalesce()
            case "*":
                factor, other = (a, b) if isinstance(a, Const) else (b, a)
                return self.wrapped(self.value(other).scale_val(self.number(factor)), t)
            case "/" if t.is_float:
                return self.value(a).scale_down_val(self.number(b))
            case "/":
                return self.wrapped(self.value(a).scale_down_val(self.number(b)).floor(), t)
            case "%" if t.is_integer:
                x, d = self.value(a), self.number(b)
                return x.sub(x.scale_down_val(d).floor().scale_val(d))
            case "%" | "xor":
                raise NotPieces
            case _:
                assert_never(op)

    def number(self, e: Expr) -> Any:
        """A factor or a divisor: a nonzero number."""
        if not isinstance(e, Const) or not e.value or not isfinite(e.value):
            raise NotPieces
        value = Fraction(e.value)
        return self.isl.Val(f"{value.numerator}/{value.denominator}")

    def near(self, x: Any, t: DType) -> Any:
        """A value wrapped around, if it is at most one turn outside of its type."""
        if not t.is_integer:
            return x
        turn, low, high = 2**t.bits, int(lowest(t)), int(highest(t))
        out = x
        for where, shift in (
            (x.gt_set(self.constant(Fraction(high), t).intersect_domain(self.all)), -turn),
            (x.lt_set(self.constant(Fraction(low), t).intersect_domain(self.all)), turn),
        ):
            if not where.is_empty():
                shifted = x.add(self.constant(Fraction(shift), t)).intersect_domain(where)
                out = out.subtract_domain(where).union_add(shifted)
        return out

    def wrapped(self, x: Any, t: DType) -> Any:
        """A value wrapped around."""
        if not t.is_integer:
            return x
        low, turn = self.constant(Fraction(lowest(t)), t), self.isl.Val(str(2**t.bits))
        turns = x.sub(low).scale_down_val(turn).floor()
        return x.sub(turns.scale_val(turn))

    def condition(self, e: Expr) -> Any:
        match e:
            case Const(value=bool(value)):
                return self.all if value else self.all.subtract(self.all)
            case Not(operand=a):
                return self.all.subtract(self.condition(a))
            case Logic(op=op, lhs=a, rhs=b):
                x, y = self.condition(a), self.condition(b)
                return x.intersect(y) if op == "and" else x.union(y)
            case Compare(op=op, lhs=a, rhs=b) if dtype_of(a) not in (BOOL, INDEX):
                x, y = self.value(a), self.value(b)
                if op == "!=":  # true for a NaN, too
                    return self.all.subtract(x.eq_set(y))
                asked = {"<": x.lt_set, "<=": x.le_set, ">": x.gt_set, ">=": x.ge_set, "==": x.eq_set}
                return asked[op](y)
            case Select(cond=c, then=a, other=b):
                where = self.condition(c)
                then = self.condition(a).intersect(where)
                return then.union(self.condition(b).subtract(where))
            case _:
                raise NotPieces


Law = Literal["commutative", "associative", "identity"]
LAWS: tuple[Law, ...] = get_args(Law)

_NAMES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Combination:
    """The combination of `a` and `b`, two loads of scalars with these names, and the initial value of a reduction."""

    value: Expr
    identity: Const

    def of(self, a: Expr, b: Expr) -> Expr:
        """The combination of two expressions."""

        def operand(e: Expr) -> Expr:
            return {"a": a, "b": b}[e.buffer] if isinstance(e, Load) else e

        return transform(self.value, operand)


@dataclass(frozen=True, slots=True)
class Holds:
    law: Law


@dataclass(frozen=True, slots=True)
class Broken:
    """Values for which the two sides of the law differ: `left` and `right`."""

    law: Law
    at: tuple[Any, ...]
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Open:
    """The law is neither proved nor refuted. `nan` may hold an example for which it fails with NaN."""

    law: Law
    nan: Broken | None = None


Verdict = Holds | Broken | Open


def operand(name: str, like: Const) -> Load:
    """An operand of a combination, of the type of `like`."""
    return Load(name, (), like.dtype)


@lru_cache(maxsize=1024)
def verdicts(c: Combination) -> tuple[Verdict, ...]:
    """The verdict on each law."""
    from tensorc_dsl.proof.sets import laws_samples as samples  # imports NumPy, which only files with a reducer need

    if samples.is_whole(c.identity.dtype):
        return _by_all_values(c)
    return tuple(_verdict(law, c) for law in LAWS)


def sides(law: Law, c: Combination) -> tuple[Expr, Expr, tuple[str, ...]]:
    """The two sides of a law, and their operands."""
    x, y, z = (operand(n, c.identity) for n in _NAMES)
    match law:
        case "commutative":
            return c.of(x, y), c.of(y, x), _NAMES[:2]
        case "associative":
            return c.of(c.of(x, y), z), c.of(x, c.of(y, z)), _NAMES
        case "identity":
            return c.of(c.identity, c.of(x, y)), c.of(x, y), _NAMES[:2]


def _verdict(law: Law, c: Combination) -> Verdict:
    from tensorc_dsl.proof.sets import laws_samples as samples

    t = c.identity.dtype
    left, right, operands = sides(law, c)

    def refuted(at: tuple[Any, ...]) -> Broken:
        given = dict(zip(operands, at, strict=True))
        return Broken(law, at, samples.value(left, given, t), samples.value(right, given, t))

    found = samples.example(left, right, operands, t)
    if found is None and law == "identity" and t.is_float:
        found = samples.undefined_example(left, right, operands)
    if found is not None:
        return refuted(found)
    if not _same(left, right, {}):
        try:
            apart = difference(left, right, operands, t)
        except NotPieces:
            return Open(law)
        if apart is not None:
            return refuted(tuple(float(v) if t.is_float else int(v) for v in apart))
    if t.is_float:
        for count in range(1, len(operands) + 1):
            for some in combinations(operands, count):
                if not _same_where_nan(left, right, operands, some, t):
                    shown = samples.nan_example(left, right, operands)
                    return Open(law, None if shown is None else refuted(shown))
    return Holds(law)


def _same(a: Expr, b: Expr, given: Mapping[str, Special]) -> bool:
    """Whether two expressions have the same normal form."""
    try:
        return normal(a, given) == normal(b, given)
    except Unknown:
        return False


def _same_where_nan(a: Expr, b: Expr, operands: Sequence[str], some: tuple[str, ...], t: DType) -> bool:
    """Whether two expressions are equal if `some` of their operands are NaN and the others are numbers."""
    if _same(a, b, dict.fromkeys(some, NAN)):
        return True
    try:
        return difference(a, b, operands, t, some) is None
    except NotPieces:
        return False


def _by_all_values(c: Combination) -> tuple[Verdict, ...]:
    from tensorc_dsl.proof.sets import laws_samples as samples

    t = c.identity.dtype
    low = 0 if t == BOOL else int(lowest(t))
    made = samples.table(c.value, _NAMES[:2], t)
    start = int(c.identity.value) - low
    apart: dict[Law, tuple[int, ...] | None] = {
        "commutative": samples.first(made != made.T),
        "associative": samples.unassociative(made),
        "identity": samples.first(made[start][made] != made),
    }

    def shown(value: int) -> Any:
        return bool(value) if t == BOOL else value + low

    def verdict(law: Law) -> Verdict:
        at = apart[law]
        if at is None:
            return Holds(law)
        a, b = at[:2]
        pairs = {
            "commutative": (made[a, b], made[b, a]),
            "associative": (made[made[a, b], at[-1]], made[a, made[b, at[-1]]]),
            "identity": (made[start, made[a, b]], made[a, b]),
        }
        left, right = pairs[law]
        return Broken(law, tuple(map(shown, at)), shown(int(left)), shown(int(right)))

    return tuple(map(verdict, LAWS))


# --- the reductions of a program -------------------------------------------------------------------------------------


def reducer_laws(program: Program) -> tuple[tuple[str, Verdict], ...]:
    """The laws of the program's declared reducers that are not proved, with the reducers' names."""
    found: dict[tuple[str, Verdict], None] = {}
    for _, s in walk(program.body):
        if isinstance(s, Block) and isinstance(update := update_of(s), DeclaredFold):
            c = _combination(s)
            known = tuple(map(Open, LAWS)) if c is None else verdicts(c)
            found |= {(update.reducer, v): None for v in known if not isinstance(v, Holds)}
    return tuple(found)


def law_text(reducer: str, v: Verdict) -> str:
    """A law of a reducer as a clause: ``mine` is associative`."""
    return f"`{reducer}` is {'left alone by its identity' if v.law == 'identity' else v.law}"


def assumptions(program: Program) -> tuple[str, ...]:
    """The laws that schedules of the program need and that are assumed, as clauses: neither proved nor known to be broken."""
    return tuple(law_text(reducer, v) for reducer, v in reducer_laws(program) if isinstance(v, Open))


def _combination(b: Block) -> Combination | None:
    """The combination of a block with a declared reducer; None if its stores do not show it."""
    try:
        (part,) = parts_of(b)
    except NotApart:
        return None
    (start,) = part.start
    (store,) = part.stores(((_NAMES[0], ()),), (operand(_NAMES[1], start),))
    return Combination(store.value, start)
