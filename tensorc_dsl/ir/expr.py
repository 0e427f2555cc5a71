"""Expressions of a program: one closed union for subscripts, conditions and values.

Nodes are frozen and compare by structure. Facts that are needed often (`Facts`) are cached in them. Loop
variables and block iterators are `Var`s, open dimensions `Dim`s, both of type `index`. Buffers are referred to by name, and
a `Load` carries its element type, so every expression has a type.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from operator import attrgetter, is_
from typing import Any, Literal, NamedTuple, assert_never, get_args

from tensorc_dsl.base.frozen import Hashed, frozen
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType
from tensorc_dsl.ir.maths import CONDITIONS
from tensorc_dsl.syntax.layout import MOST_LEVELS

BinaryOp = Literal["+", "-", "*", "/", "%", "min", "max", "xor"]
CompareOp = Literal["<", "<=", ">", ">=", "==", "!="]
LogicOp = Literal["and", "or"]


class _Node(Hashed):
    """A place for the facts about an expression, which are computed at the first question and take no part in equality."""

    __slots__ = ("extent", "facts", "known_type")
    facts: Facts
    extent: Extent
    known_type: DType


@frozen(eq=False)
class Const(_Node):
    """A literal. Infinities and NaN are floats; `true`/`false` have dtype bool.

    Equality is that of computed values: 0.0 is not -0.0, and NaN equals NaN. A float means the nearest number of its type.
    """

    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.dtype != other.dtype:
            return False
        x, y = self.value, other.value
        if x == y:
            return bool(x) or not self.dtype.is_float or math.copysign(1.0, x) == math.copysign(1.0, y)
        return x != x and y != y

    def __hash__(self) -> int:
        return hash((self.value if self.value == self.value else "nan", self.dtype))


@frozen
class Var(_Node):
    """A loop variable or a block iterator."""

    name: str


@frozen
class Dim(_Node):
    """An open dimension: a size from `low` to `high`, both included, that is known when the kernel is called.

    Every occurrence carries the range, so that bounds of an extent can be computed from it. Without `high` there is no limit.
    `at` has the sizes at which a task wants its kernels timed; if it is empty, they are chosen automatically. `weights` says
    how often each of these occurs; without them, times count by the inverse of the work. `where` has the conditions that the
    sizes of a call meet, beside their ranges: all of them in each dimension of a condition. Dimensions there have no `where`.
    """

    name: str
    low: int = 0
    high: int | None = None
    at: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    where: tuple[Expr, ...] = ()


@frozen
class Binary(_Node):
    """Arithmetic on two operands of one type. `/` and `%` round down on integers, as in Python; `xor` takes integers only."""

    op: BinaryOp
    lhs: Expr
    rhs: Expr


@frozen
class Compare(_Node):
    op: CompareOp
    lhs: Expr
    rhs: Expr


@frozen
class Logic(_Node):
    op: LogicOp
    lhs: Expr
    rhs: Expr


@frozen
class Not(_Node):
    operand: Expr


@frozen
class Select(_Node):
    """`then if cond else other`. The branch that is not taken is not evaluated, and may access elements out of bounds."""

    cond: Expr
    then: Expr
    other: Expr


@frozen
class Cast(_Node):
    operand: Expr
    dtype: DType


@frozen
class Bitcast(_Node):
    """The bits of a float as the unsigned integer of its width, or the reverse: `dtype` is the type that they are read in."""

    operand: Expr
    dtype: DType


@frozen
class Call(_Node):
    """A maths function (`ir.maths`); its type is that of its first argument, or bool."""

    function: str
    args: tuple[Expr, ...]


@frozen
class Load(_Node):
    buffer: str
    indices: tuple[Expr, ...]
    dtype: DType


Expr = Const | Var | Dim | Binary | Compare | Logic | Not | Select | Cast | Bitcast | Call | Load


def dtype_of(e: Expr) -> DType:
    """The type of the values of `e`."""
    unknown: list[Expr] = []
    while True:
        match e:
            case Const(dtype=t) | Cast(dtype=t) | Bitcast(dtype=t) | Load(dtype=t):
                break
            case Var() | Dim():
                t = INDEX
                break
            case Compare() | Logic() | Not():
                t = BOOL
                break
            case Call(function=f) if f in CONDITIONS:
                t = BOOL
                break
            case Binary() | Select() | Call():
                if hasattr(e, "known_type"):
                    t = e.known_type
                    break
                unknown.append(e)
                e = e.lhs if isinstance(e, Binary) else e.then if isinstance(e, Select) else e.args[0]
            case _:
                assert_never(e)
    for x in unknown:
        object.__setattr__(x, "known_type", t)
    return t


def zero_of(t: DType) -> Const:
    """The zero of a type, which is false for bools."""
    return Const(False if t == BOOL else 0.0 if t.is_float else 0, t)


def index(value: int) -> Const:
    """A constant subscript or extent."""
    return Const(value, INDEX)


ZERO = index(0)
ONE = index(1)


_PARTS: Mapping[type, Callable[[Any], tuple[Expr, ...]]] = {
    Const: lambda _: (),
    Var: lambda _: (),
    Dim: lambda _: (),
    Binary: attrgetter("lhs", "rhs"),
    Compare: attrgetter("lhs", "rhs"),
    Logic: attrgetter("lhs", "rhs"),
    Not: lambda e: (e.operand,),
    Select: attrgetter("cond", "then", "other"),
    Cast: lambda e: (e.operand,),
    Bitcast: lambda e: (e.operand,),
    Call: attrgetter("args"),
    Load: attrgetter("indices"),
}
"""The parts of each kind of expression. Dispatch by type is fast, and steps ask for parts all the time."""
assert set(_PARTS) == set(get_args(Expr))


def children(e: Expr) -> tuple[Expr, ...]:
    """The expressions that `e` is made of, in the order of the text."""
    return _PARTS[type(e)](e)


def rebuild(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`e` with its children replaced by `parts`, in the order of `children`."""
    match e:
        case Const() | Var() | Dim():
            return e
        case Binary(op=op):
            return Binary(op, parts[0], parts[1])
        case Compare(op=op):
            return Compare(op, parts[0], parts[1])
        case Logic(op=op):
            return Logic(op, parts[0], parts[1])
        case Not():
            return Not(parts[0])
        case Cast(dtype=t):
            return Cast(parts[0], t)
        case Bitcast(dtype=t):
            return Bitcast(parts[0], t)
        case Select():
            return Select(parts[0], parts[1], parts[2])
        case Call(function=f):
            return Call(f, parts)
        case Load(buffer=b, dtype=t):
            return Load(b, parts, t)
        case _:
            assert_never(e)


def rewrite_expr(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`e` rewritten bottom-up: children first, then `f` on the node itself. Unchanged nodes are shared, not copied."""
    old = children(e)
    if old:
        new = tuple([rewrite_expr(c, f) for c in old])
        if not all(map(is_, old, new)):
            e = rebuild(e, new)
    return f(e)


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """`e` with variables and open dimensions replaced by name, all at once. What has none of them is shared, not copied."""
    if values.keys().isdisjoint(free_vars(e)):
        return e
    if isinstance(e, (Var, Dim)):
        return values[e.name]
    old = children(e)
    new = tuple([substitute(c, values) for c in old])
    return e if all(map(is_, old, new)) else rebuild(e, new)


class Facts(NamedTuple):
    """The names of variables and open dimensions in an expression, the open dimensions, and the loads, outermost first."""

    names: frozenset[str]
    dims: frozenset[Dim]
    loads: tuple[Load, ...]


_NO_NAMES: frozenset[str] = frozenset()
_NO_DIMS: frozenset[Dim] = frozenset()
_NOTHING = Facts(_NO_NAMES, _NO_DIMS, ())


_LEAVES = frozenset((Const, Var, Dim))


def _settle(e: Expr, slot: str, own: Callable[[Expr], object]) -> None:
    """Keep in `slot` what `own` computes, of `e` and all expressions in it: parts before what is made of them, each once."""
    stack = [e]
    while stack:
        top = stack[-1]
        if not hasattr(top, slot):
            left: list[Expr] = []
            for c in children(top):
                if not hasattr(c, slot):
                    if type(c) in _LEAVES:  # at once: they are half of all
                        object.__setattr__(c, slot, own(c))
                    else:
                        left.append(c)
            if left:
                stack += left
                continue
            object.__setattr__(top, slot, own(top))
        stack.pop()


def _own_facts(e: Expr) -> Facts:
    """The facts about an expression from those about its parts."""
    if isinstance(e, Const):
        return _NOTHING
    if isinstance(e, Var):
        return Facts(frozenset((e.name,)), _NO_DIMS, ())
    if isinstance(e, Dim):
        return Facts(frozenset((e.name,)), frozenset((e,)), ())
    found = _NOTHING
    for c in children(e):
        own = c.facts
        if found is _NOTHING:
            found = own
        elif own is not _NOTHING and own is not found:
            found = Facts(found.names | own.names, found.dims | own.dims, found.loads + own.loads)
    return Facts(found.names, found.dims, (e, *found.loads)) if isinstance(e, Load) else found


def free_vars(e: Expr) -> frozenset[str]:
    """The names of the variables and of the open dimensions in `e`."""
    try:
        return e.facts.names
    except AttributeError:
        _settle(e, "facts", _own_facts)
        return e.facts.names


def dims_in(e: Expr) -> frozenset[Dim]:
    """The open dimensions in `e`."""
    try:
        return e.facts.dims
    except AttributeError:
        _settle(e, "facts", _own_facts)
        return e.facts.dims


def loads(e: Expr) -> tuple[Load, ...]:
    """Every load in `e`, outermost first, those inside subscripts included."""
    try:
        return e.facts.loads
    except AttributeError:
        _settle(e, "facts", _own_facts)
        return e.facts.loads


class Extent(NamedTuple):
    """How long the text of an expression is, in nodes, those of shared parts wherever they stand; and how deep."""

    nodes: int
    levels: int


MOST_NODES = 16_384
"""The most nodes of an expression of a program."""


def extent_of(e: Expr) -> Extent:
    """The extent of `e`. Parts that it shares are looked into once, so that this takes no longer than `e` took to make."""
    try:
        return e.extent
    except AttributeError:
        _settle(e, "extent", _own_extent)
        return e.extent


def _own_extent(e: Expr) -> Extent:
    nodes, levels = 1, 0
    for c in children(e):
        own = c.extent
        nodes += own.nodes
        levels = max(levels, own.levels)
    return Extent(nodes, levels + 1)


def too_large(e: Expr) -> str | None:
    """What is too large about an expression, with the limit: functions over it would take too long, or recurse too deep."""
    nodes, levels = extent_of(e)
    if levels > MOST_LEVELS:
        return f"{levels} operations deep, and may be {MOST_LEVELS} deep"
    return f"{nodes} operands and operations long, and may be {MOST_NODES} long" if nodes > MOST_NODES else None


def factors_of(e: Expr) -> list[Expr]:
    """`a * b * c` as a list."""
    if isinstance(e, Binary) and e.op == "*":
        return factors_of(e.lhs) + factors_of(e.rhs)
    return [e]


def constant(e: Expr) -> int | None:
    """The value of a constant integer expression that needs no simplification; None for other expressions."""
    return e.value if type(e) is Const and type(e.value) is int else None


ARITHMETIC: Mapping[BinaryOp, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda a, b: a // b, "%": operator.mod, "min": min,
    "max": max, "xor": lambda a, b: a ^ b,
}  # fmt: skip
"""The operations on integers, by Python's."""

COMPARISONS: Mapping[CompareOp, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

SWAPPED: Mapping[CompareOp, CompareOp] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""The comparison of the same operands in the other order."""


def fold(op: BinaryOp, a: int, b: int) -> int | None:
    """The result of index arithmetic on two numbers; None for a division by 0."""
    return None if op in ("/", "%") and not b else ARITHMETIC[op](a, b)


def _binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """Index arithmetic with constants folded and neutral operands dropped. `proof.sets.simplify` does more."""
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        folded = fold(op, x, y)
        if folded is not None:
            return index(folded)
    if (op in ("+", "xor") and x == 0) or (op == "*" and x == 1):
        return b
    if (op in ("+", "-", "xor") and y == 0) or (op in ("*", "/") and y == 1):
        return a
    if (op == "*" and (x == 0 or y == 0)) or (op == "%" and y == 1):
        return ZERO
    return Binary(op, a, b)


def add(a: Expr, b: Expr) -> Expr:
    return _binary("+", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return _binary("-", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return _binary("*", a, b)


def floordiv(a: Expr, b: Expr) -> Expr:
    return _binary("/", a, b)


def floormod(a: Expr, b: Expr) -> Expr:
    return _binary("%", a, b)


def xor(a: Expr, b: Expr) -> Expr:
    """Exclusive or of two integers, bit by bit, in two's complement of any length."""
    return _binary("xor", a, b)


def ceildiv(a: Expr, b: Expr) -> Expr:
    return floordiv(add(a, sub(b, ONE)), b)


def conjunction(conds: tuple[Expr, ...]) -> Expr | None:
    """The conjunction of `conds`, joined from left to right; None if there are none."""
    out: Expr | None = None
    for c in conds:
        out = c if out is None else Logic("and", out, c)
    return out
