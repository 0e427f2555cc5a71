"""Blocks whose instances may update one element at once: which updates a machine can make whole, and which in any order.

An update is atomic if it reads, changes and writes one number without interruption. Any number of them may be in flight,
and each is made once, in an unknown order. So only folds that are associative and commutative have one result,
and sums and products of floats have it up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import dtype_of
from tensorc_dsl.ir.program import ATOMIC, Block, Store
from tensorc_dsl.ir.reductions import DeclaredFold, fold_of, update_of

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
