"""Reducers, and the blocks that are updates of a reduction, whose instances may run in any order.

There are two kinds of updates. A store `C[i] = C[i] op e` is recognised by its form. The block of any other reducer keeps one
or several values, each in a buffer, and carries the annotation "reducer": the reducer as text, or `argmin` or `argmax`. Its
stores are matched with the reducer, which gives the values that a step adds. Reducers are associative and commutative;
`proof.sets.laws` proves that, here only the form is checked. Schedules cannot write the annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, assert_never

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.dtypes import DType, highest, lowest
from tensorc_dsl.ir.expr import (
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
    children,
    dtype_of,
    loads,
    rewrite_expr,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import ATOMIC, Block, Buffer, Store

REDUCER = "reducer"
"""The key of the annotation that has the reducer of a block."""

ArgKind = Literal["argmin", "argmax"]


FoldOp = Literal["+", "*", "min", "max", "and", "or"]
"""Operations that are associative and commutative."""


@frozen
class Fold:
    """`C[…] = C[…] op value`."""

    op: FoldOp
    value: Expr


@frozen
class Combiner:
    """A reducer of one or several values: `results` over loads of scalars named `before`, the values so far, and `following`.

    All are stored at once: each reads the values so far as they were before. They stand in an order in which few are read
    after they are stored (`needed_later`).
    """

    name: str
    before: tuple[str, ...]
    following: tuple[str, ...]
    results: tuple[Expr, ...]
    identity: tuple[Const, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(c.dtype for c in self.identity)

    @property
    def nameless(self) -> Combiner:
        """The reducer with an empty name and operands of fixed names: equal for reducers that differ in names."""
        before, following = (tuple(f"{n}{k}" for k in range(len(self.identity))) for n in "ab")
        operands = (tuple(Load(n, (), t) for n, t in zip(x, self.dtypes, strict=True)) for x in (before, following))
        return Combiner("", before, following, self.combine(*operands), self.identity)

    @property
    def picks(self) -> bool:
        """Whether it is `argmin` or `argmax`: the first value is the position of the least or greatest second one."""
        return self.name in ("argmin", "argmax")

    @property
    def text(self) -> str:
        """What the annotation says, which `combiner` reads."""
        if self.picks:
            return self.name

        def several(items: Sequence[str]) -> str:
            return items[0] if len(items) == 1 else f"({', '.join(items)})"

        results, identity = (several([format_expr(e) for e in x]) for x in (self.results, self.identity))
        return f"{self.name}({several(self.before)}, {several(self.following)}) = {results} identity {identity}"

    def combine(self, before: Sequence[Expr], following: Sequence[Expr]) -> tuple[Expr, ...]:
        """The combination of the accumulated values and the next values."""
        values = dict(zip((*self.before, *self.following), (*before, *following), strict=True))

        def operand(e: Expr) -> Expr:
            return values[e.buffer] if isinstance(e, Load) and e.buffer in values else e

        return tuple(rewrite_expr(e, operand) for e in self.results)

    def stores(self, places: Sequence[tuple[str, tuple[Expr, ...]]], following: Sequence[Expr]) -> tuple[Store, ...]:
        """The stores that combine the next values into elements of buffers."""
        before = [Load(name, at, t) for (name, at), t in zip(places, self.dtypes, strict=True)]
        made = self.combine(before, following)
        return tuple(Store(name, at, e) for (name, at), e in zip(places, made, strict=True))

    def starts(self, places: Sequence[tuple[str, tuple[Expr, ...]]]) -> tuple[Store, ...]:
        """The stores of the identity."""
        return tuple(Store(name, at, e) for (name, at), e in zip(places, self.identity, strict=True))


@lru_cache(maxsize=256)
def combiner(text: str, dtypes: tuple[DType, ...]) -> Combiner | None:
    """The reducer of an annotation for values of these types; None if it is not one."""
    if text == "argmin" or text == "argmax":
        return position_combiner(text, dtypes[1], dtypes[0]) if len(dtypes) == 2 else None
    from tensorc_dsl.ir.parse_expr import VisibleNames  # it needs the modules that need this one
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse

    try:
        (item,) = parse(Source("reducer", f"reducer {text}")).items
        if not isinstance(item, tree.ReducerDef):
            return None
        before, following = tuple(map(str, item.before)), tuple(map(str, item.following))
        if {len(x) for x in (before, following, item.values, item.starts)} != {len(dtypes)}:
            return None
        typed = [Buffer("", t, ()) for t in dtypes]
        operands = {n: Buffer(n, t, ()) for names in (before, following) for n, t in zip(names, dtypes, strict=True)}
        scope, nothing = VisibleNames(operands, {}, {}, {}), VisibleNames({}, {}, {}, {})
        results = tuple(map(scope.stored, item.values, typed))
        identity = tuple(e for e in map(nothing.stored, item.starts, typed) if isinstance(e, Const))
    except TschedError:
        return None
    if len(identity) != len(dtypes):
        return None
    return Combiner(str(item.name), before, following, results, identity)


@frozen
class Combination:
    """Stores that are one step of a reducer: they combine `values` into the elements that they store."""

    reducer: Combiner
    values: tuple[Expr, ...]


Update = Fold | Combination


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


def reducer_text(b: Block) -> str | None:
    """The reducer of the block's annotation; None without one."""
    value = dict(b.annotations).get(REDUCER)
    return value if isinstance(value, str) else None


def update_of(b: Block) -> Update | None:
    """The reduction step that all stores of the block make together; None if they do not have the form of one."""
    text = reducer_text(b)
    if text is None:
        return fold_of(b.body[0]) if len(b.body) == 1 else None
    if not keeps_to_itself(b) or any(s.indices != b.body[0].indices for s in b.body):
        return None
    found = combiner(text, tuple(dtype_of(s.value) for s in b.body))
    return None if found is None else _combination(found, b.body)


def _combination(c: Combiner, stores: Sequence[Store]) -> Combination | None:
    """The step of a reducer that the stores are."""
    old = {name: Load(s.buffer, s.indices, dtype_of(s.value)) for name, s in zip(c.before, stores, strict=True)}
    own = {s.buffer for s in stores}
    values: dict[str, Expr] = {}
    for pattern, s in zip(c.results, stores, strict=True):
        if not _matches(pattern, s.value, old, set(c.following), values):
            return None
    if any(x.buffer in own for e in values.values() for x in loads(e)):
        return None
    return Combination(c, tuple(values.get(n, e) for n, e in zip(c.following, c.identity, strict=True)))


def _matches(pattern: Expr, e: Expr, old: dict[str, Load], new: set[str], values: dict[str, Expr]) -> bool:
    """Whether `e` is the pattern with expressions in the place of its operands; those of the next values are added to
    `values`."""
    if isinstance(pattern, Load):
        if pattern.buffer in new:
            return values.setdefault(pattern.buffer, e) == e and dtype_of(e) == pattern.dtype
        return e == old.get(pattern.buffer)
    if type(pattern) is not type(e) or _operation(pattern) != _operation(e):
        return False
    below = children(pattern), children(e)
    return len(below[0]) == len(below[1]) and all(_matches(p, x, old, new, values) for p, x in zip(*below, strict=True))


def _operation(e: Expr) -> object:
    """What an expression is beside its operands."""
    match e:
        case Binary(op=op) | Compare(op=op) | Logic(op=op):
            return op
        case Cast(dtype=t) | Bitcast(dtype=t):
            return t
        case Call(function=f):
            return f
        case Select() | Not():
            return None
        case Const(value=v, dtype=t):
            return repr(v), t
        case Var() | Dim() | Load():
            return e
        case _:
            assert_never(e)


def needed_later(b: Block) -> tuple[str, ...]:
    """The buffers whose old elements are read after the block has stored new ones, where its stores run in their order: those
    of a reducer are made at once."""
    if reducer_text(b) is None:
        return ()
    later = [{x.buffer for x in loads(s.value)} for s in b.body]
    return tuple(s.buffer for n, s in enumerate(b.body) if any(s.buffer in read for read in later[n + 1 :]))


def is_whole_update(b: Block) -> bool:
    """Whether the block names a reducer and its stores have the form of one update."""
    return reducer_text(b) is not None and update_of(b) is not None


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


def position_combiner(kind: ArgKind, dtype: DType, position: DType) -> Combiner:
    """`argmin` or `argmax` of values of `dtype`, each with its position, which is the first value.

    A value is better if it is greater (less), if it is a NaN and the best one is not, or if it is equal and its position is
    lower; so any order gives the same result. Initial are the worst value, and a position above all others.
    """
    i, j = (Load(n, (), position) for n in ("i", "j"))
    old, value = (Load(n, (), dtype) for n in ("v", "w"))
    lower = Compare("<", j, i)
    beaten: CompareOp = "<=" if kind == "argmax" else ">="
    if dtype.is_float:
        # A comparison with NaN is false: not (x <= b) holds for x > b and for a NaN on either side.
        better = Logic("and", Not(Compare(beaten, value, old)), Compare("==", old, old))
        tie = Logic("or", Compare("==", value, old), Compare("!=", value, value))
    else:
        better, tie = Compare(">" if kind == "argmax" else "<", value, old), Compare("==", value, old)
    take = Logic("or", better, Logic("and", tie, lower))
    extreme: BinaryOp = "max" if kind == "argmax" else "min"
    start = Const(highest(position), position), identity("max" if kind == "argmax" else "min", dtype)
    return Combiner(kind, ("i", "v"), ("j", "w"), (Select(take, j, i), Binary(extreme, old, value)), start)


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


@frozen
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
    declared = isinstance(update, Combination)
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


def atomic_change_of(s: Store) -> Change | None:
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


def is_exact(b: Block) -> bool:
    """Whether the updates of a block have one result in every order and grouping, but for which of two zeros or of several
    NaNs it is: those of whole numbers and of conditions, and the choice of the least or greatest."""
    match update_of(b):
        case Fold(op=op, value=value):
            return not dtype_of(value).is_float or op in ("min", "max")
        case Combination(reducer=reducer):
            return reducer.picks or not any(t.is_float for t in reducer.dtypes)
        case None:
            return False
