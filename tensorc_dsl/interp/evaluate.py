"""Expressions of the schedule layer: their values, the bounds that make expansion terminate quickly, and how they are
evaluated. Only calls of primitives and modules have effects.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NoReturn, Protocol, TypeVar, get_args

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.problems import (
    BAD_BOUND,
    IN_COMPUTE_ONLY,
    INDEX_MAP,
    MAP_ENTRY,
    NESTED_LIST,
    NO_CONDITION,
    NO_ELEMENT,
    NO_INDEX,
    NO_RESULT,
    OPERANDS,
    TOO_DEEP,
    TOO_LONG,
    TOO_MANY_BITS,
    TOO_MANY_STEPS,
    fail,
)
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.expr import ARITHMETIC, COMPARISONS, BinaryOp, CompareOp, Expr, Var
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, IntrinsicRef, LoopRef, NodeRef
from tensorc_dsl.schedule.trace.distribution import Interval, Plain, literal
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.tree import MAX_BITS


@frozen
class ProgramRef:
    """The program as a whole; `p.root` is the same."""


@frozen
class OpenFactor:
    """`_` among the factors of a split."""


@frozen
class Weights:
    """`{4: 0.2, 8: 0.8}`: values, each with its weight."""

    items: tuple[tuple[Value, Value], ...]


@frozen
class ModuleRef:
    """A module, with values for some of its parameters."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()


@frozen
class AnyRankMap:
    """`(..., k, j) -> (..., j / 4, k, j % 4)`: an index map, but for how many indices `...` is; None stands for it.

    Results are expressions with their code, which mentions `draws`; `taken` are the names that mean something where it is
    written.
    """

    params: tuple[str | None, ...]
    results: tuple[tuple[Expr, str] | None, ...]
    draws: frozenset[str]
    taken: frozenset[str]

    @property
    def code(self) -> str:
        results = ("..." if r is None else r[1] for r in self.results)
        return f"({', '.join(p or '...' for p in self.params)}) -> ({', '.join(results)})"

    def of(self, rank: int) -> Value:
        """The map of so many indices; that of fewer than are named has only those."""
        names = (n for k in itertools.count() for n in (letter + str(k or "") for letter in ascii_lowercase))
        taken = self.taken.union(self.draws, (p for p in self.params if p))
        free = (n for n in names if n not in taken)
        rest = [*itertools.islice(free, max(0, rank + 1 - len(self.params)))]
        params = tuple(name for p in self.params for name in (rest if p is None else [p]))
        spelled: list[tuple[Expr, str]] = [(Var(name), name) for name in rest]
        results = [pair for r in self.results for pair in (spelled if r is None else [r])]
        return index_map(params, results, self.draws)


Scalar = (
    Plain | IntrinsicRef | OpenFactor | LoopRef | BlockRef | BufferRef | NodeRef | ProgramRef | Target | IndexMap
    | AnyRankMap | Interval | Weights | ModuleRef | None
)  # fmt: skip


@frozen
class Drawn:
    """A value that depends on draws, with the straight-line code that computes it. A trace has this code, not the number.

    So deleting a pin from a trace reopens everything that follows from it.
    """

    value: Scalar | tuple[Value, ...]
    code: str
    draws: frozenset[str]
    """The names of the draws that the value depends on."""
    tight: bool = True
    """Whether the code needs no parentheses as an operand."""


Value = Scalar | Drawn | tuple["Value", ...]


def index_map(params: tuple[str, ...], results: Sequence[tuple[Expr, str]], draws: frozenset[str]) -> Value:
    """An index map; where its code mentions draws, it remembers them."""
    result = IndexMap(params, tuple(e for e, _ in results))
    return Drawn(result, f"({', '.join(params)}) -> ({', '.join(c for _, c in results)})", draws) if draws else result


def bare(value: Value) -> Scalar | tuple[Value, ...]:
    """The value without its own provenance; elements of a list keep theirs."""
    return value.value if isinstance(value, Drawn) else value


def draws_of(*values: Value) -> frozenset[str]:
    """The names of the draws that the values depend on, elements of lists included."""
    todo, found = [*values], frozenset[str]()
    while todo:
        match todo.pop():
            case Drawn(draws=draws):
                found |= draws
            case tuple() as items:
                todo += items
            case _:
                pass
    return found


def plain(value: Value) -> Value:
    """The value without its provenance, lists included."""
    match value:
        case Drawn(value=inner):
            return plain(inner)
        case tuple():
            return tuple(plain(v) for v in value)
        case _:
            return value


def extent_of(value: Value, most: int) -> tuple[int, int]:
    """The number of values in a list with all nested ones, and its depth; counting stops beyond `most` of either.

    So of a module, which has its options.
    """
    inner = bare(value)
    if isinstance(inner, ModuleRef):
        inner = tuple(v for _, v in inner.options)
    if not isinstance(inner, tuple):
        return 1, 0
    count, depth = 1, 0
    for v in inner:
        if count > most or depth > most:
            break
        if isinstance(v, tuple | Drawn | ModuleRef):
            n, d = extent_of(v, most - count)
            count, depth = count + n, max(depth, d)
        else:
            count += 1
    return count, depth + 1


def is_number(value: Value) -> bool:
    """Whether the value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_int(value: Value) -> int | None:
    """The value as an int; None if it is none."""
    v = bare(value)
    return v if isinstance(v, int) and not isinstance(v, bool) else None


def kind_of(value: Value) -> str:
    """The name of a value's kind in messages."""
    match bare(value):
        case bool():
            return "a bool"
        case int():
            return "an int"
        case float():
            return "a float"
        case IntrinsicRef():
            return "an instruction"
        case str():
            return "a string"
        case tuple():
            return "a list"
        case LoopRef():
            return "a loop"
        case BlockRef():
            return "a block"
        case BufferRef():
            return "a buffer"
        case NodeRef():
            return "a node"
        case ProgramRef():
            return "the program"
        case Target():
            return "the target"
        case IndexMap() | AnyRankMap():
            return "an index map"
        case Interval():
            return "a range"
        case Weights():
            return "a map of weights"
        case OpenFactor():
            return "`_`"
        case ModuleRef():
            return "a module"
        case None:
            return "nothing"


# Bounds that make expansion terminate quickly, so that a foreign file can be checked, expanded and sampled safely.
#
# The numbers are far above the needs of schedules of large networks, and low enough that the worst file is refused within
# about a second.


MAX_STEPS = 300_000
"""The number of statements, expressions and list elements that one expansion may process."""

MAX_LIST = 50_000
"""The number of values in a list, including those of nested lists."""

MAX_LEVELS = 8
"""The nesting depth of lists."""

MAX_STRING = 10_000
MAX_FORMULA = 1_000
"""The number of characters of a string, and of the formula over draws that a trace keeps for a value."""

MAX_DEPTH = 120
"""The nesting depth of calls, blocks and expressions, so that the recursive interpreter does not overflow."""

MAX_LINES = 5_000
"""The number of lines of a trace, with those that were undone: draws, and steps that change the program."""

REFUSAL_STEPS = 100
"""A refusal that is undone counts as so many of MAX_STEPS: a step that changes nothing makes no line."""

MAX_LOOPS = 64
"""The number of loops around a block."""


_SINGLE = (BlockRef, LoopRef, BufferRef, NodeRef, int)


class Budget:
    """Counts the resources that an expansion uses; each method raises TschedError if a bound is exceeded."""

    __slots__ = ("depth", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0
        """The current depth. An error that ends a part of the expansion leaves it to its handler to go back."""

    def enter(self, span: Span) -> None:
        """Count one step and one level of depth."""
        self.depth += 1
        self.steps += 1
        if self.depth > MAX_DEPTH or self.steps > MAX_STEPS:
            self.refuse(span)

    def refuse(self, span: Span) -> NoReturn:
        """Raise the error for the bound that is exceeded."""
        if self.depth > MAX_DEPTH:
            raise fail(TOO_DEEP, span, most=MAX_DEPTH)
        raise fail(TOO_MANY_STEPS, span, most=MAX_STEPS)

    def use(self, value: Value, span: Span) -> None:
        """Count a value that is processed or made, with the values of nested lists."""
        if isinstance(value, str):  # not one that was drawn
            if len(value) > MAX_STRING:
                raise fail(TOO_LONG, span, what="a string", count=len(value), parts="characters", most=MAX_STRING)
            return
        count, levels = (1, 0) if isinstance(value, _SINGLE) else extent_of(value, MAX_LIST)
        if count > MAX_LIST:
            raise fail(TOO_LONG, span, what="a list", count=f"more than {MAX_LIST}", parts="values", most=MAX_LIST)
        if levels > MAX_LEVELS:
            raise fail(NESTED_LIST, span, most=MAX_LEVELS)
        self.steps += count
        if self.steps > MAX_STEPS:
            self.refuse(span)


# Operators of the schedule layer. The result of an operation on a drawn value keeps the formula, for the trace.


def _compute(op: BinaryOp, a: int | float, b: int | float) -> int | float:
    """The result on plain numbers; `/` and `%` round down on integers. Raises ArithmeticError."""
    if op == "/" and not (isinstance(a, int) and isinstance(b, int)):
        return a / b
    return ARITHMETIC[op](a, b)


def binary(op: BinaryOp, lhs: Value, rhs: Value, span: Span) -> Value:
    """`lhs op rhs`, also for `min`, `max` and, on ints, `xor`. Raises TschedError."""
    a, b = bare(lhs), bare(rhs)
    if op == "+" and isinstance(a, tuple) and isinstance(b, tuple):
        return a + b
    if op == "+" and isinstance(a, str) and isinstance(b, str):
        return _combine(op, lhs, rhs, a + b, span)
    if not (is_number(a) and is_number(b)):
        raise fail(OPERANDS, span, op=op, lhs=kind_of(a), rhs=kind_of(b))
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    try:
        value = _compute(op, a, b)
        reason = "it is not a number" if isinstance(value, float) and math.isnan(value) else None
    except ArithmeticError as problem:
        value, reason = 0, problem
    if reason is not None:
        raise fail(NO_RESULT, span, text=f"{literal(a)} {op} {literal(b)}", reason=reason)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise fail(TOO_MANY_BITS, span, op=op, bits=value.bit_length(), most=MAX_BITS)
    return _combine(op, lhs, rhs, value, span)


def _combine(op: str, lhs: Value, rhs: Value, value: int | float | str, span: Span) -> Value:
    if not isinstance(lhs, Drawn) and not isinstance(rhs, Drawn):
        return value
    if isinstance(lhs, Drawn) and _is_neutral(rhs, op, behind=True):
        return lhs
    if isinstance(rhs, Drawn) and _is_neutral(lhs, op, behind=False):
        return rhs

    call = op in ("min", "max", "xor")

    def side(v: Value) -> str:
        if isinstance(v, Drawn):
            return v.code if v.tight or call else f"({v.code})"
        assert isinstance(v, bool | int | float | str)
        return literal(v)

    code = f"{op}({side(lhs)}, {side(rhs)})" if call else f"{side(lhs)} {op} {side(rhs)}"
    if len(code) > MAX_FORMULA:
        raise fail(TOO_LONG, span, what="a formula over draws", count=len(code), parts="characters", most=MAX_FORMULA)
    return Drawn(value, code, draws_of(lhs, rhs), tight=call)


def _is_neutral(value: Value, op: str, *, behind: bool) -> bool:
    """Whether `x op value` (`value op x` unless `behind`) is x, whatever number x is: also -0.0, and of the same type.

    0 is left in sums: -0.0 + 0 is 0.0."""
    return value == 1 and type(value) is int and (op == "*" or (op == "/" and behind))


Ordered = TypeVar("Ordered", float, str)


def compare(op: CompareOp, lhs: Value, rhs: Value, span: Span) -> bool:
    """The truth of a comparison; only numbers and strings are ordered. Raises TschedError."""
    if type(lhs) is int and type(rhs) is int:  # most are
        return COMPARISONS[op](lhs, rhs)
    a, b = plain(lhs), plain(rhs)
    if op in ("==", "!="):
        return _equal(a, b) == (op == "==")
    match a, b:
        case (int() | float(), int() | float()) if is_number(a) and is_number(b):
            return _ordered(op, a, b)
        case str(), str():
            return _ordered(op, a, b)
        case _:
            raise fail(OPERANDS, span, op=op, lhs=kind_of(a), rhs=kind_of(b))


def _equal(a: Value, b: Value) -> bool:
    """Whether the values are equal and of one kind; true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _ordered(op: CompareOp, a: Ordered, b: Ordered) -> bool:
    return COMPARISONS[op](a, b)


# The code of elements and parts of drawn lists, as a trace has it: those of a part of a list are named in the whole list.
#
# The code is equal to the one that was written whenever that has a value, whatever the list holds and however long it is.


_PART = re.compile(r"(.*)\[(\d*):(-?\d+)?\]")
"""The code of a part that begins at a position from the start."""


def element_code(base: Drawn, position: int) -> str:
    """The code of `base[position]`: `x[1:][0]` is `x[1]`."""
    code = _operand(base)
    if (cut := _cut(code)) is not None:
        whole, begin, end = cut
        if position >= 0:
            return f"{whole}[{begin + position}]"
        if end is None or end < 0:
            return f"{whole}[{position + (end or 0)}]"
    return f"{code}[{position}]"


def part_code(base: Drawn, low: int | None, high: int | None) -> str:
    """The code of `base[low:high]`: `x[1:][:2]` is `x[1:3]`."""
    code = _operand(base)
    if (cut := _cut(code)) is not None and (low or 0) >= 0:
        whole, begin, end = cut
        first = begin + (low or 0)
        if high is None:
            return _part(whole, first, end)
        if high < 0 and (end is None or end < 0):
            return _part(whole, first, high + (end or 0))
        if high >= 0 and end is None:
            return _part(whole, first, begin + high)
    return _part(code, low, high)


def _operand(value: Drawn) -> str:
    """The code of a value, such that a bracket may follow."""
    return value.code if value.tight else f"({value.code})"


def _cut(code: str) -> tuple[str, int, int | None] | None:
    """Of the code of a part of a list: the code of the list, and where the part begins and ends; None for other codes."""
    found = _PART.fullmatch(code)
    return None if found is None else (found[1], int(found[2] or 0), int(found[3]) if found[3] else None)


def _part(code: str, low: int | None, high: int | None) -> str:
    return f"{code}[{low or ''}:{'' if high is None else high}]"


Env = dict[str, Value]


class Machine(Protocol):
    """The interface of the interpreter that evaluation needs."""

    @property
    def budget(self) -> Budget: ...
    def attribute(self, base: Value, at: tree.Attribute) -> Value: ...
    def call(self, call: tree.CallExpr, env: Env) -> Value: ...
    def named(self, e: tree.Name) -> Value: ...
    def for_list(self, loop: tree.ForList, env: Env) -> Value: ...


def evaluate(e: tree.Expr, env: Env, machine: Machine) -> Value:
    """The value of an expression. Raises TschedError, or ScheduleRefusal from a call."""
    budget = machine.budget
    budget.depth += 1  # as `budget.enter`, without a call for each expression
    budget.steps += 1
    if budget.depth > MAX_DEPTH or budget.steps > MAX_STEPS:
        budget.refuse(e.span)
    value = env[e.id] if type(e) is tree.Name and e.id in env else _RULES[type(e)](e, env, machine)
    budget.depth -= 1
    return value


def _literal(e: tree.Number | tree.String | tree.Bool, _env: Env, _machine: Machine) -> Value:
    if isinstance(e.value, float) and math.isnan(e.value):
        raise fail(NO_RESULT, e.span, text="nan", reason="it is not a number")
    return e.value


def _wildcard(_e: tree.Wildcard, _env: Env, _machine: Machine) -> Value:
    return OpenFactor()


def _name(e: tree.Name, env: Env, machine: Machine) -> Value:
    return env[e.id] if e.id in env else machine.named(e)


def _list(e: tree.ListExpr, env: Env, machine: Machine) -> Value:
    made = tuple([evaluate(i, env, machine) for i in e.items])
    machine.budget.use(made, e.span)
    return made


def _map(e: tree.MapExpr, env: Env, machine: Machine) -> Value:
    return Weights(tuple((_entry(k, env, machine), _entry(v, env, machine)) for k, v in e.items))


def _binary(e: tree.BinaryExpr, env: Env, machine: Machine) -> Value:
    value = binary(e.op, evaluate(e.lhs, env, machine), evaluate(e.rhs, env, machine), e.span)
    machine.budget.use(bare(value), e.span)
    return value


def _negate(e: tree.Negate, env: Env, machine: Machine) -> Value:
    a = e.operand
    return -a.value if isinstance(a, tree.Number) else binary("-", 0, evaluate(a, env, machine), e.span)


def _compare(e: tree.CompareExpr, env: Env, machine: Machine) -> Value:
    values = [evaluate(o, env, machine) for o in e.operands]
    for v in values:
        machine.budget.use(v, e.span)
    return all(compare(op, values[n], values[n + 1], e.span) for n, op in enumerate(e.ops))


def _logic(e: tree.LogicExpr, env: Env, machine: Machine) -> Value:
    left = truth(evaluate(e.lhs, env, machine), e.lhs)
    return left if left == (e.op == "or") else truth(evaluate(e.rhs, env, machine), e.rhs)


def _not(e: tree.NotExpr, env: Env, machine: Machine) -> Value:
    return not truth(evaluate(e.operand, env, machine), e.operand)


def _conditional(e: tree.Conditional, env: Env, machine: Machine) -> Value:
    return evaluate(e.then if truth(evaluate(e.cond, env, machine), e.cond) else e.other, env, machine)


def _attribute(e: tree.Attribute, env: Env, machine: Machine) -> Value:
    return machine.attribute(evaluate(e.base, env, machine), e)


def _index(e: tree.IndexExpr, env: Env, machine: Machine) -> Value:
    return element(evaluate(e.base, env, machine), [evaluate(i, env, machine) for i in e.indices], e)


def _slice(e: tree.SliceExpr, env: Env, machine: Machine) -> Value:
    whole = evaluate(e.base, env, machine)
    made = part(whole, *(None if b is None else _position(b, env, machine) for b in (e.low, e.high)), at=e)
    machine.budget.use(made, e.span)
    return made


def _range(e: tree.RangeExpr, env: Env, machine: Machine) -> Value:
    return _interval(evaluate(e.low, env, machine), evaluate(e.high, env, machine), e)


def _index_map(e: tree.Lambda, env: Env, _machine: Machine) -> Value:
    return _lambda(e, env)


def _call(e: tree.CallExpr, env: Env, machine: Machine) -> Value:
    return machine.call(e, env)


def _for_list(e: tree.ForList, env: Env, machine: Machine) -> Value:
    return machine.for_list(e, env)


def _in_computes_only(e: tree.Reduce | tree.Scan | tree.TupleExpr, _env: Env, _machine: Machine) -> Value:
    raise fail(IN_COMPUTE_ONLY, e.span)


_RULES: Mapping[type, Callable[[Any, Env, Machine], Value]] = {
    tree.Number: _literal,
    tree.String: _literal,
    tree.Bool: _literal,
    tree.Wildcard: _wildcard,
    tree.Name: _name,
    tree.ListExpr: _list,
    tree.MapExpr: _map,
    tree.BinaryExpr: _binary,
    tree.Negate: _negate,
    tree.CompareExpr: _compare,
    tree.LogicExpr: _logic,
    tree.NotExpr: _not,
    tree.Conditional: _conditional,
    tree.Attribute: _attribute,
    tree.IndexExpr: _index,
    tree.SliceExpr: _slice,
    tree.RangeExpr: _range,
    tree.Lambda: _index_map,
    tree.CallExpr: _call,
    tree.ForList: _for_list,
    tree.Reduce: _in_computes_only,
    tree.Scan: _in_computes_only,
    tree.TupleExpr: _in_computes_only,
}
"""The evaluation function of each kind of expression. Dispatch by type is fast; expansion spends most of its time here."""
assert set(_RULES) == set(get_args(tree.Expr))


def truth(value: Value, at: tree.Expr) -> bool:
    """The value of a condition as a bool. Raises TschedError for other values."""
    if value is True or value is False:  # most are not drawn
        return value
    v = bare(value)
    if isinstance(v, bool):
        return v
    raise fail(NO_CONDITION, at.span, found=kind_of(v))


def element(base: Value, indices: list[Value], at: tree.IndexExpr) -> Value:
    """`base[i]` of a list or a string; negative positions count from the end."""
    items, position = bare(base), as_int(indices[0]) if len(indices) == 1 else None
    if not isinstance(items, tuple | str) or position is None:
        raise fail(NO_INDEX, at.span, kind=kind_of(items))
    if not -len(items) <= position < len(items):
        raise fail(NO_ELEMENT, at.span, position=position, count=len(items))
    if not isinstance(base, Drawn):
        return items[position]
    return Drawn(bare(items[position]), element_code(base, position), base.draws)


def part(base: Value, low: int | None, high: int | None, at: tree.SliceExpr) -> Value:
    """`base[low:high]` of a list or a string, as in Python: positions beyond an end mean that end."""
    items = bare(base)
    if not isinstance(items, tuple | str):
        raise fail(NO_INDEX, at.span, kind=kind_of(items))
    if not isinstance(base, Drawn):
        return items[low:high]
    return Drawn(items[low:high], part_code(base, low, high), base.draws)


def _position(bound: tree.Expr, env: Env, machine: Machine) -> int:
    value = evaluate(bound, env, machine)
    position = as_int(value)
    if position is None:
        raise fail(BAD_BOUND, bound.span, found=kind_of(value))
    return position


def _interval(low: Value, high: Value, at: tree.RangeExpr) -> Value:
    a, b = as_int(low), as_int(high)
    if a is None or b is None:
        raise fail(OPERANDS, at.span, op="..", lhs=kind_of(low), rhs=kind_of(high))
    value = Interval(a, b)
    if not isinstance(low, Drawn) and not isinstance(high, Drawn):
        return value

    def side(v: Value, number: int) -> str:
        return v.code if isinstance(v, Drawn) else str(number)

    return Drawn(value, f"{side(low, a)}..{side(high, b)}", draws_of(low, high), tight=False)


def _entry(e: tree.Expr, env: Env, machine: Machine) -> Value:
    """The key or weight of a map's entry; it must not be a list or another structure."""
    value = evaluate(e, env, machine)
    if not isinstance(bare(value), int | float | str):
        raise fail(MAP_ENTRY, e.span, found=kind_of(value))
    return value


_INDEX: Mapping[str, Callable[[ir.Expr, ir.Expr], ir.Expr]] = {
    "+": ir.add, "-": ir.sub, "*": ir.mul, "/": ir.floordiv, "%": ir.floormod,
}  # fmt: skip


def _lambda(e: tree.Lambda, env: Env) -> Value:
    """An index map; if it depends on draws, its code refers to them by name. A step gives one with `...` its rank."""
    drawn = frozenset[str]()

    def go(x: tree.Expr) -> tuple[ir.Expr, str]:
        nonlocal drawn
        match x:
            case tree.Name(id=name) if name in e.params:
                return ir.Var(name), name
            case tree.Number(value=int() as v):
                return ir.index(v), str(v)
            case tree.BinaryExpr(op=op, lhs=a, rhs=b):
                (left, left_code), (right, right_code) = go(a), go(b)
                if op in "/%" and ir.constant(right) == 0:
                    raise fail(NO_RESULT, x.span, text=f"{left_code} {op} {right_code}", reason="division by zero")
                wrap = [f"({c})" if " " in c else c for c in (left_code, right_code)]
                return _INDEX[op](left, right), f"{wrap[0]} {op} {wrap[1]}"
            case tree.CallExpr(function=tree.Name(id="xor"), args=(a, b), kwargs=()):
                (left, left_code), (right, right_code) = go(a), go(b)
                return ir.xor(left, right), f"xor({left_code}, {right_code})"
            case tree.Name(id=name) if name in env and (value := as_int(env[name])) is not None:
                source = env[name]
                if isinstance(source, Drawn):
                    drawn |= source.draws
                    return ir.index(value), source.code if source.tight else f"({source.code})"
                return ir.index(value), str(value)
            case _:
                raise fail(INDEX_MAP, x.span)

    pairs = tuple(None if isinstance(r, tree.Rest) else go(r) for r in e.results)
    params = tuple(None if isinstance(p, tree.Rest) else str(p) for p in e.params)
    count = sum(len(p[1]) for p in pairs if p) if drawn else 0
    if count > MAX_FORMULA:
        raise fail(TOO_LONG, e.span, what="an index map", count=count, parts="characters", most=MAX_FORMULA)
    if None in params:
        return AnyRankMap(params, pairs, drawn, frozenset(env))
    return index_map(tuple(p for p in params if p), [p for p in pairs if p], drawn)
