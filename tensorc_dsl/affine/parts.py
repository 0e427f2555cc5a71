"""Takes reductions apart: the contribution of one step, the values that leave a result alone, the combination of two results.

A block may hold several updates that do not read each other's results. The store of a declared reducer does not name the
contribution of a step. It is the subexpression whose replacement by `b` leaves a function of `a` and `b` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    children,
    dtype_of,
    free_vars,
    loads,
    rebuild,
    transform,
)
from tensorc_dsl.ir.program import Block, Store
from tensorc_dsl.ir.reductions import (
    ArgFold,
    DeclaredFold,
    Fold,
    arg_start,
    arg_stores,
    combine,
    fold_of,
    identity,
    keeps_to_itself,
    update_of,
)

Element = tuple[str, tuple[Expr, ...]]
"""A buffer and the subscripts of an element."""


WITH_REDUCER = "write the reduction with a reducer: `sum[k] …`, `reduce mine[k] …`"


class NotApart(Exception):
    """The block cannot be split into parts. The message is a phrase with `block` as its subject, and `repair` a repair."""

    def __init__(self, reason: str, repair: str) -> None:
        super().__init__(reason)
        self.repair = repair


@dataclass(frozen=True, slots=True)
class Part:
    """One update of a block. It writes one of `values` to each of `places`; `start` has values that change no result."""

    kind: Fold | ArgFold | DeclaredFold
    places: tuple[Element, ...]
    values: tuple[Expr, ...]
    start: tuple[Const, ...]
    step: Expr | None = None
    """For a declared reducer, the value of its store."""

    def stores(self, places: Sequence[Element], values: Sequence[Expr]) -> tuple[Store, ...]:
        """The stores that combine other values into other places."""
        match self.kind:
            case Fold(op=op):
                ((name, at),), (value,) = places, values
                return (Store(name, at, combine(op, Load(name, at, dtype_of(value)), value)),)
            case ArgFold(kind=kind):
                ((index, at), (best, _)), (position, value) = places, values
                return arg_stores(kind, index, best, at, value, position)
            case DeclaredFold():
                ((name, at),), (value,) = places, values
                assert self.step is not None
                old = Load(*self.places[0], dtype_of(value))
                parts: dict[Expr, Expr] = {old: Load(name, at, dtype_of(value)), self.values[0]: value}
                return (Store(name, at, _replaced(self.step, parts)),)
            case _:
                assert_never(self.kind)

    def keeps_start(self) -> bool:
        """Whether initial values combine to initial values, so that parts without a step are allowed."""
        if not isinstance(self.kind, DeclaredFold):
            return True
        assert self.step is not None
        old = Load(*self.places[0], self.start[0].dtype)
        made = constant_value(_replaced(self.step, {old: self.start[0], self.values[0]: self.start[0]}))
        return made == self.start[0].value


def constant_value(e: Expr) -> int | float | bool | None:
    """The value of an expression without variables and loads; None for others."""
    if loads(e) or free_vars(e):
        return None
    import numpy as np  # a late import: checking a file does not need it

    from tensorc_dsl.reference.boxes import Box
    from tensorc_dsl.reference.values import Values

    with np.errstate(all="ignore"):
        return Values("", {}).value(e, Box((), (), ()), None).item()


def parts_of(b: Block) -> tuple[Part, ...]:
    """The updates of a block; without its `init`, the block does nothing else. Raises NotApart."""
    update = update_of(b)
    if isinstance(update, ArgFold):
        index, best = b.body
        start = arg_start(
            update.kind, index.buffer, best.buffer, best.indices, dtype_of(update.value), dtype_of(update.position)
        )
        identities = tuple(s.value for s in start if isinstance(s.value, Const))
        return (Part(update, _places(b.body), (update.position, update.value), identities),)
    if isinstance(update, DeclaredFold):
        return (_declared(update, b),)
    folds = [(s, fold_of(s)) for s in b.body]
    out = tuple(
        Part(f, _places((s,)), (f.value,), (identity(f.op, dtype_of(f.value)),)) for s, f in folds if f is not None
    )
    if len(out) < len(b.body):
        raise NotApart("does not accumulate by an operation that may run in any order", WITH_REDUCER)
    if not keeps_to_itself(b):
        raise NotApart("reads what its own updates make", "keep each of the values in a block of its own")
    return out


def _places(stores: Sequence[Store]) -> tuple[Element, ...]:
    return tuple((s.buffer, s.indices) for s in stores)


# --- declared reducers -----------------------------------------------------------------------------------------------


def _declared(update: DeclaredFold, b: Block) -> Part:
    if len(b.body) != 1 or len(b.init) != 1:
        raise NotApart(f"keeps several values by `{update.reducer}`", "keep each of the values in a block of its own")
    start = b.init[0].value
    if not isinstance(start, Const):
        raise NotApart(
            f"does not start from the identity of `{update.reducer}`",
            "do this before the step that changed where it starts",
        )
    store = b.body[0]
    old = Load(store.buffer, store.indices, start.dtype)
    return Part(update, _places(b.body), (_value(update, store.value, old),), (start,), store.value)


def _value(update: DeclaredFold, step: Expr, old: Load) -> Expr:
    """The contribution of a step."""
    found = contributions(step, old)
    if not found:
        raise NotApart(f"is no step of `{update.reducer}` from the value so far and one other", WITH_REDUCER)
    if len(found) > 1:
        raise NotApart(
            f"does not show which part of its step is the value that `{update.reducer}` combines",
            "compute that value in a stage of its own, and reduce what the stage holds: `let v[i, k] = …`",
        )
    return found[0]


def contributions(step: Expr, old: Load) -> list[Expr]:
    """The subexpressions that may be the contribution of a step. Of several those in which the step is symmetric count, since
    a reducer commutes, and all of them if there is not one of these.
    """
    found = [e for e in dict.fromkeys(_inside(step)) if e != old and _is_all_else(e, step, old)]
    symmetric = [e for e in found if _ordered(step) == _ordered(_replaced(step, {old: e, e: old}))]
    return symmetric if len(symmetric) == 1 else found


def _inside(e: Expr) -> tuple[Expr, ...]:
    """`e` and its subexpressions, without subscripts."""
    return (e,) if isinstance(e, Load) else (e, *(x for c in children(e) for x in _inside(c)))


def _is_all_else(e: Expr, step: Expr, old: Load) -> bool:
    """Whether `step` is a function of the old value and of `e` alone."""
    if isinstance(e, Const) or dtype_of(e) != dtype_of(old) or old in loads(e):
        return False
    return all(isinstance(x, Const) or x in (old, e) for x in _leaves(step, (old, e)))


def _leaves(e: Expr, whole: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The leaves of `e`: loads, names, numbers, and the expressions of `whole`."""
    if e in whole or isinstance(e, Load) or not children(e):
        return (e,)
    return tuple(x for c in children(e) for x in _leaves(c, whole))


def _replaced(e: Expr, values: dict[Expr, Expr]) -> Expr:
    """`e` with subexpressions replaced, all at once; replacements are not searched again."""
    if e in values:
        return values[e]
    return rebuild(e, tuple(_replaced(c, values) for c in children(e)))


def _ordered(e: Expr) -> Expr:
    """`e` with the operands of commutative operations in a canonical order."""

    def order(x: Expr) -> Expr:
        match x:
            case (
                Binary(op="+" | "*" | "min" | "max" | "xor")
                | Logic()
                | Compare(op="==" | "!=")
                | Call(function="bit_and" | "bit_or" | "hypot")
            ):
                return rebuild(x, tuple(sorted(children(x), key=repr)))
            case _:
                return x

    return transform(e, order)
