"""Decides whether a reducer is associative, commutative and has a neutral identity: proved, refuted, or neither.

Floats are real numbers and NaN: the laws ignore rounding, but not branches, bounds and constants. Integers wrap around. A
refutation is an example. There are three kinds of proofs: all values of a small type were tried; both sides have the same
normal form (`laws_normal`); they are piecewise affine, and integer sets show that they are equal (`laws_pieces`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal, get_args

from tensorc_dsl.affine.laws_normal import normal
from tensorc_dsl.affine.laws_pieces import NotPieces, difference
from tensorc_dsl.affine.laws_values import NAN, Special, Unknown
from tensorc_dsl.affine.parts import NotApart, parts_of
from tensorc_dsl.ir.dtypes import BOOL, DType
from tensorc_dsl.ir.expr import Const, Expr, Load, transform
from tensorc_dsl.ir.numbers import lowest
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.ir.reductions import DeclaredFold, update_of

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
    from tensorc_dsl.affine import laws_samples as samples  # imports NumPy, which only files with a reducer need

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
    from tensorc_dsl.affine import laws_samples as samples

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
    from tensorc_dsl.affine import laws_samples as samples

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
