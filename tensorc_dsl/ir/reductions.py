"""Recognises blocks that are updates of a reduction, whose instances may run in any order.

There are three kinds. A store `C[i] = C[i] op e` is recognised by its form. The block of an `argmin` or `argmax` keeps a
pair, the best value and its position, in two buffers, and carries the annotation "reducer"; its stores are compared with
those that this module makes. A block with the name of any other reducer declares that its stores combine associatively and
commutatively. Only their form is checked here; `proof.sets.laws` proves laws. Schedules cannot write the annotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from tensorc_dsl.ir.dtypes import DType, highest, lowest
from tensorc_dsl.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    dtype_of,
    loads,
)
from tensorc_dsl.ir.program import ATOMIC, Block, Store

REDUCER = "reducer"
"""The key of the annotation that names the reducer of a block."""

ArgKind = Literal["argmin", "argmax"]


FoldOp = Literal["+", "*", "min", "max", "and", "or"]
"""Operations that are associative and commutative."""


@dataclass(frozen=True, slots=True)
class Fold:
    """`C[…] = C[…] op value`."""

    op: FoldOp
    value: Expr


@dataclass(frozen=True, slots=True)
class ArgFold:
    """The position of the least or greatest `value`: the lowest among equals, that of the first NaN if there is one."""

    kind: ArgKind
    value: Expr
    position: Expr


@dataclass(frozen=True, slots=True)
class DeclaredFold:
    """Stores that are one step of a declared reducer."""

    reducer: str


Update = Fold | ArgFold | DeclaredFold


def is_fold(s: Store) -> bool:
    """Whether the store is `C[i] = C[i] op e` with an associative, commutative op and no other use of C: updates commute.

    Floats count as associative, as in other scheduling languages; the tolerance of the comparison allows for it.
    """
    match s.value:
        case Binary(op="+" | "*" | "min" | "max", lhs=Load(buffer=b, indices=i), rhs=e):
            pass
        case Logic(lhs=Load(buffer=b, indices=i), rhs=e):
            pass
        case _:
            return False
    return b == s.buffer and i == s.indices and all(x.buffer != b for x in (*loads(e), *_inside(s.indices)))


def _inside(indices: tuple[Expr, ...]) -> tuple[Load, ...]:
    return tuple(x for i in indices for x in loads(i))


def reducer_name(b: Block) -> str | None:
    """The reducer that the block's annotation names; None without one."""
    value = dict(b.annotations).get(REDUCER)
    return value if isinstance(value, str) else None


def update_of(b: Block) -> Update | None:
    """The reduction step that all stores of the block make together; None if they do not have the form of one."""
    name = reducer_name(b)
    if name is None:
        return fold_of(b.body[0]) if len(b.body) == 1 else None
    if not keeps_to_itself(b):
        return None
    return _arg_fold(name, b) if name == "argmin" or name == "argmax" else DeclaredFold(name)


def is_whole_update(b: Block) -> bool:
    """Whether the block names a reducer and its stores have the form of one update."""
    return reducer_name(b) is not None and update_of(b) is not None


def combine(op: FoldOp, a: Expr, b: Expr) -> Expr:
    """`a op b`."""
    return Logic(op, a, b) if op == "and" or op == "or" else Binary(op, a, b)


def fold_of(s: Store) -> Fold | None:
    """The fold that the store makes; None if it does not have that form."""
    match s.value:
        case Binary(op="+" | "*" | "min" | "max" as op, rhs=value) if is_fold(s):
            return Fold(op, value)
        case Logic(op=op, rhs=value) if is_fold(s):
            return Fold(op, value)
        case _:
            return None


def keeps_to_itself(b: Block) -> bool:
    """Whether each buffer is stored once, and read only at the stored element."""
    places = {s.buffer: s.indices for s in b.body}
    own = [x for s in b.body for x in (*loads(s.value), *_inside(s.indices)) if x.buffer in places]
    return len(places) == len(b.body) and all(x.indices == places[x.buffer] for x in own)


def _arg_fold(kind: ArgKind, b: Block) -> ArgFold | None:
    match b.body:
        case (
            Store(buffer=i, indices=at, value=Select(then=position)),
            Store(buffer=v, indices=there, value=Binary(rhs=value)),
        ) if at == there:
            same = b.body == arg_stores(kind, i, v, at, value, position)
            return ArgFold(kind, value, position) if same else None
        case _:
            return None


def arg_stores(
    kind: ArgKind, index: str, best: str, at: tuple[Expr, ...], value: Expr, position: Expr
) -> tuple[Store, Store]:
    """The update of an `argmin` or `argmax`: `index[at]` and `best[at]` become `position` and `value` if that is better.

    A value is better if it is greater (less), if it is a NaN and the best one is not, or if it is equal and its position is
    lower; so any order gives the same result.
    The position is stored first, while the best value is still that of the steps before.
    """
    old, old_index = Load(best, at, dtype_of(value)), Load(index, at, dtype_of(position))
    lower = Compare("<", position, old_index)
    beaten: CompareOp = "<=" if kind == "argmax" else ">="
    if dtype_of(value).is_float:
        # A comparison with NaN is false: not (x <= b) holds for x > b and for a NaN on either side.
        better = Logic("and", Not(Compare(beaten, value, old)), Compare("==", old, old))
        tie = Logic("or", Compare("==", value, old), Compare("!=", value, value))
    else:
        better, tie = Compare(">" if kind == "argmax" else "<", value, old), Compare("==", value, old)
    take = Logic("or", better, Logic("and", tie, lower))
    least: BinaryOp = "max" if kind == "argmax" else "min"
    return Store(index, at, Select(take, position, old_index)), Store(best, at, Binary(least, old, value))


def arg_start(
    kind: ArgKind, index: str, best: str, at: tuple[Expr, ...], dtype: DType, position_type: DType
) -> tuple[Store, Store]:
    """The initial values of such an update: the worst value, and a position above all others."""
    worst = identity("max" if kind == "argmax" else "min", dtype)
    return Store(index, at, Const(highest(position_type), position_type)), Store(best, at, worst)


def identity(op: FoldOp, t: DType) -> Const:
    """The neutral element of `op` in the type."""
    match op:
        case "+":
            return Const(0.0 if t.is_float else 0, t)
        case "*":
            return Const(1.0 if t.is_float else 1, t)
        case "min":
            return Const(highest(t), t)
        case "max":
            return Const(lowest(t), t)
        case "and" | "or":
            return Const(op == "and", t)
        case _:
            assert_never(op)


# Blocks whose instances may update one element at once: which updates a machine can make whole, and which in any order.
#
# An update is atomic if it reads, changes and writes one number without interruption. Any number of them may be in flight,
# and each is made once, in an unknown order. So only folds that are associative and commutative have one result,
# and sums and products of floats have it up to rounding.


Order = Literal["exact", "any order"]
"""The values of the annotation `ATOMIC`."""

WORDS = (4, 8)
"""The bytes of the numbers that are compared and exchanged as a whole."""


@dataclass(frozen=True, slots=True)
class NotAtomic:
    """Why a block cannot be atomic: a phrase with the block as its subject, and a repair."""

    reason: str
    repair: str


def not_atomic(b: Block, order: object) -> NotAtomic | None:
    """Why instances of a block may not update one element at once; None if they may.

    `order` is the value of its annotation: "exact" requires the same result in any order, "any order" also allows results
    that differ by rounding.
    """
    if order not in ("exact", "any order"):
        return NotAtomic(f'has the order "{order}"', 'the orders are "exact" and "any order"')
    if b.init:
        return NotAtomic("initialises what it updates", f"`decompose_reduction` of `{b.name}` first")
    update = update_of(b) if len(b.body) == 1 else None
    declared = isinstance(update, DeclaredFold)
    if len({s.buffer for s in b.body}) < len(b.body) or not (declared or all(map(fold_of, b.body))):
        first, *more = b.body
        if more:
            return NotAtomic(
                "updates several numbers together, and a machine changes one word at once",
                "make partial results by `rfactor`, which other threads combine",
            )
        return NotAtomic(
            f"stores `{first.buffer}` without adding to it by an associative and commutative operation",
            "take a block that reduces, with `sum`, `max` or a reducer of the file",
        )
    for s in b.body:
        t = dtype_of(s.value)
        if not declared and is_switch(s):
            continue
        if t.bytes not in WORDS:
            wide = "f32" if t.is_float else "i32"
            return NotAtomic(
                f"updates `{s.buffer}`, which holds {t}, and a machine changes 32 or 64 bits at once",
                f"reduce in {wide}, and convert the result",
            )
        if order == "exact" and t.is_float and not _is_extreme(s, declared):
            return NotAtomic(
                f"adds up {t}, which rounds otherwise in each order, so results would differ from run to run",
                f"allow it by name, `atomic({b.name}, any_order=true)`, or make partial results by `rfactor`",
            )
    return None


def is_switch(s: Store) -> bool:
    """Whether a store makes a bool true, or false, for good: `any` or `all`."""
    fold = fold_of(s)
    return fold is not None and fold.op in ("and", "or")


def _is_extreme(s: Store, declared: bool) -> bool:
    """Whether a store keeps one of the numbers that it is given, the same in each order."""
    fold = fold_of(s)
    return not declared and fold is not None and fold.op in ("min", "max")


def order_of(b: Block) -> object:
    """The order in which instances of an atomic block may run; None for other blocks."""
    return dict(b.annotations).get(ATOMIC)


Change = Literal["add", "fadd", "min", "umin", "max", "umax"]
"""The changes of one number that GPUs make where it is, as LLVM calls them."""


def change_of(s: Store) -> Change | None:
    """What a GPU does at once for a fold; None if it has to compare and exchange.

    It has no `min` and `max` of floats. PTX ISA, "atom": add of 32 and 64 bits, f32 and f64; min and max of integers.
    """
    fold, t = fold_of(s), dtype_of(s.value)
    if fold is None or t.bytes not in WORDS:
        return None
    match fold.op:
        case "+":
            return "fadd" if t.is_float else "add"
        case "min":
            return None if t.is_float else "min" if _is_signed(t) else "umin"
        case "max":
            return None if t.is_float else "max" if _is_signed(t) else "umax"
        case _:
            return None


def _is_signed(t: DType) -> bool:
    return t.kind == "int"
