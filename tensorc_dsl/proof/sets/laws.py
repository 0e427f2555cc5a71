"""Decides whether a reducer is associative, commutative and has a neutral identity: proved, refuted, or neither.

Floats are real numbers and NaN: the laws ignore rounding, but not branches, bounds and constants. Integers wrap around. A
refutation is an example. There are three kinds of proofs: all values of a small type were tried; both sides have the same
normal form (`normal_form`); they are piecewise affine, and integer sets show that they are equal.

An SMT solver was tried (z3, 1,029 laws): real numbers without NaN prove laws that NaN breaks, division by 0 refutes laws that
hold, and roots and exponentials cannot be said. It would replace 170 lines by as many that translate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import isfinite, isinf
from typing import Any, Literal, assert_never, get_args

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType, highest, lowest
from tensorc_dsl.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
)
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.ir.reductions import Combination, Combiner, update_of
from tensorc_dsl.proof.sets.isl import Exhausted, bounded
from tensorc_dsl.proof.sets.normal_form import NAN, Special, Unknown, normal

# Compares two piecewise affine expressions exactly, with integer sets.
#
# A float is a real number: an operand is `x / d` for integers `x` and `d >= 1`, which turns every question about
# rational numbers into one about integers. Integers wrap around. A value that is NaN is undefined there.


class NotPieces(Exception):
    """The expressions are not piecewise affine, or take too many operations."""


def difference(
    a: Expr, b: Expr, operands: Mapping[str, DType], undefined: Collection[str] = ()
) -> tuple[Fraction, ...] | None:
    """Values of the operands, which have these types, for which the two expressions differ; None if they are equal.

    The `undefined` operands are NaN. Raises NotPieces if the question cannot be decided.
    """
    if BOOL in operands.values():
        raise NotPieces
    from islpy import Error

    try:
        with bounded():
            return _Pieces(operands, undefined).difference(a, b)
    except (Exhausted, Error) as e:
        raise NotPieces from e


class _Pieces:
    """Values as piecewise affine functions of the operands; conditions as sets."""

    def __init__(self, operands: Mapping[str, DType], undefined: Collection[str]) -> None:
        import islpy

        self.isl: Any = islpy
        self.operands = tuple(operands)
        self.types = tuple(operands.values())
        self.undefined = frozenset(undefined)
        where = [f"{lowest(t)} <= {n} <= {highest(t)}" for n, t in operands.items() if not t.is_float]
        self.all = islpy.Set(f"{{ [{', '.join([*operands, 'd'])}] : {' and '.join([*where, 'd >= 1'])} }}")
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
        return tuple(Fraction(v, at[-1] if t.is_float else 1) for v, t in zip(at, self.types, strict=False))

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
            case Compare(op=op, lhs=a, rhs=b) if _is_infinite(a) or _is_infinite(b):
                return self.beside_infinity(op, a, b)
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

    def beside_infinity(self, op: CompareOp, a: Expr, b: Expr) -> Any:
        """The comparison of a number, or an infinity, with an infinity."""
        sides: list[float] = []
        known = self.all
        for e in (a, b):
            if isinstance(e, Const):
                sides.append(0.0 if isfinite(e.value) else float(e.value))
            else:
                sides.append(0.0)
                known = known.intersect(self.value(e).domain())
        x, y = sides
        holds = COMPARISONS[op](x, y)
        if op == "!=":  # true for a NaN, too
            return self.all if holds else self.all.subtract(known)
        return known if holds else self.all.subtract(self.all)


def _is_infinite(e: Expr) -> bool:
    return isinstance(e, Const) and isinstance(e.value, float) and isinf(e.value)


Law = Literal["commutative", "associative", "identity"]
LAWS: tuple[Law, ...] = get_args(Law)


@frozen
class Holds:
    law: Law


@frozen
class Broken:
    """Values of the operands for which the two sides of the law differ, and the values of these: `left` and `right`."""

    law: Law
    at: tuple[tuple[Any, ...], ...]
    left: tuple[Any, ...]
    right: tuple[Any, ...]


@frozen
class Open:
    """The law is neither proved nor refuted. `nan` may hold an example for which it fails with NaN."""

    law: Law
    nan: Broken | None = None


Verdict = Holds | Broken | Open


@frozen
class Sides:
    """The two sides of a law, value by value, and the names and types of what they are over."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    operands: Mapping[str, DType]

    @property
    def pairs(self) -> list[tuple[Expr, Expr]]:
        return [*zip(self.left, self.right, strict=True)]

    @property
    def floats(self) -> tuple[str, ...]:
        return tuple(n for n, t in self.operands.items() if t.is_float)


def verdicts(c: Combiner) -> tuple[Verdict, ...]:
    """The verdict on each law, computed once for reducers that differ in names."""
    return _verdicts(c.nameless)


@lru_cache(maxsize=1024)
def _verdicts(c: Combiner) -> tuple[Verdict, ...]:
    from tensorc_dsl.proof.sets import laws_samples as samples  # imports NumPy, which only files with a reducer need

    if samples.count_of(c.dtypes) <= samples.MOST_VALUES:
        return _by_all_values(c)
    return tuple(_verdict(law, c) for law in LAWS)


def sides(law: Law, c: Combiner) -> Sides:
    """The two sides of a law."""
    x, y, z = (tuple(Load(f"{n}{k}", (), t) for k, t in enumerate(c.dtypes)) for n in "abc")
    match law:
        case "commutative":
            left, right, over = c.combine(x, y), c.combine(y, x), (x, y)
        case "associative":
            left, right, over = c.combine(c.combine(x, y), z), c.combine(x, c.combine(y, z)), (x, y, z)
        case "identity":
            left, right, over = c.combine(c.identity, c.combine(x, y)), c.combine(x, y), (x, y)
    return Sides(left, right, {e.buffer: e.dtype for one in over for e in one})


def _verdict(law: Law, c: Combiner) -> Verdict:
    from tensorc_dsl.proof.sets import laws_samples as samples

    both, n = sides(law, c), len(c.dtypes)

    def refuted(at: Sequence[Any]) -> Broken:
        left, right = ([samples.value(e, at, both.operands) for e in x] for x in (both.left, both.right))
        return Broken(law, tuple(tuple(at[k : k + n]) for k in range(0, len(at), n)), tuple(left), tuple(right))

    found = samples.example(both.pairs, both.operands)
    if found is None and law == "identity":
        found = samples.undefined_example(both.pairs, both.operands)
    if found is not None:
        return refuted(found)
    for a, b in both.pairs:
        if _same(a, b, {}):
            continue
        try:
            apart = difference(a, b, both.operands)
        except NotPieces:
            return Open(law)
        if apart is not None:
            return refuted(
                [float(v) if t.is_float else int(v) for v, t in zip(apart, both.operands.values(), strict=True)]
            )
    chosen = [(a, b) for a, b in both.pairs if not _undefined_together(a, b)]
    for count in range(1, len(both.floats) + 1 if chosen else 0):
        for some in combinations(both.floats, count):
            if not all(_same_where_nan(a, b, both.operands, some) for a, b in chosen):
                shown = samples.nan_example(both.pairs, both.operands)
                return Open(law, None if shown is None else refuted(shown))
    return Holds(law)


def _same(a: Expr, b: Expr, given: Mapping[str, Special]) -> bool:
    """Whether two expressions have the same normal form."""
    try:
        return normal(a, given) == normal(b, given)
    except Unknown:
        return False


def _undefined_together(a: Expr, b: Expr) -> bool:
    """Whether two sums of products have the same operands: any of them that is NaN makes both NaN."""
    return (names := _summed(a)) is not None and names == _summed(b)


def _summed(e: Expr) -> frozenset[str] | None:
    """The operands of a sum of products; None of another expression, which may leave an operand out that is NaN."""
    match e:
        case Load(buffer=name, indices=()) if e.dtype.is_float:
            return frozenset((name,))
        case Const(value=value) if e.dtype.is_float and isfinite(value):
            return frozenset()
        case Binary(op="+" | "-" | "*", lhs=x, rhs=y):
            a, b = _summed(x), _summed(y)
            return None if a is None or b is None else a | b
        case _:
            return None


def _same_where_nan(a: Expr, b: Expr, operands: Mapping[str, DType], some: tuple[str, ...]) -> bool:
    """Whether two expressions are equal if `some` of their operands are NaN and the others are numbers."""
    if _same(a, b, dict.fromkeys(some, NAN)):
        return True
    try:
        return difference(a, b, operands, some) is None
    except NotPieces:
        return False


def _by_all_values(c: Combiner) -> tuple[Verdict, ...]:
    from tensorc_dsl.proof.sets import laws_samples as samples

    made, start = samples.table(c), samples.place(tuple(e.value for e in c.identity), c.dtypes)
    apart: dict[Law, tuple[int, ...] | None] = {
        "commutative": samples.first_counterexample(made != made.T),
        "associative": samples.unassociative(made),
        "identity": samples.first_counterexample(made[start][made] != made),
    }

    def shown(place: Any) -> tuple[Any, ...]:
        return samples.at_place(int(place), c.dtypes)

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
        return Broken(law, tuple(map(shown, at)), shown(left), shown(right))

    return tuple(map(verdict, LAWS))


# --- the reductions of a program -------------------------------------------------------------------------------------


def reducer_laws(program: Program) -> tuple[tuple[str, Verdict], ...]:
    """The laws of the program's declared reducers that are not proved, with the reducers' names."""
    found: dict[tuple[str, Verdict], None] = {}
    for _, s in walk(program.body):
        if isinstance(s, Block) and isinstance(update := update_of(s), Combination) and not update.reducer.picks:
            known = verdicts(update.reducer)
            found |= {(update.reducer.name, v): None for v in known if not isinstance(v, Holds)}
    return tuple(found)


def law_text(reducer: str, v: Verdict) -> str:
    """A law of a reducer as a clause: ``mine` is associative`."""
    return f"`{reducer}` is {'left alone by its identity' if v.law == 'identity' else v.law}"


def assumptions(program: Program) -> tuple[str, ...]:
    """The laws that schedules of the program need and that are assumed, as clauses: neither proved nor known to be broken."""
    return tuple(law_text(reducer, v) for reducer, v in reducer_laws(program) if isinstance(v, Open))
