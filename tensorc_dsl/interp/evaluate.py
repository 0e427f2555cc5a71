"""Expressions of the schedule layer: values in, values out. Only calls of primitives and modules change anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, assert_never

from tensorc_dsl.interp.arithmetic import binary, compare
from tensorc_dsl.interp.limits import MAX_FORMULA, Budget
from tensorc_dsl.interp.problems import (
    BAD_BOUND,
    IN_COMPUTE_ONLY,
    INDEX_MAP,
    MAP_ENTRY,
    NO_CONDITION,
    NO_ELEMENT,
    NO_INDEX,
    NO_RESULT,
    OPERANDS,
    TOO_LONG,
    UNKNOWN_NAME,
    fail,
)
from tensorc_dsl.interp.values import Drawn, OpenFactor, Value, Weights, as_int, bare, kind_of
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.schedule.primitive import IndexMap
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace.declare import Interval

Env = dict[str, Value]


class Machine(Protocol):
    """What evaluation needs of the interpreter."""

    @property
    def budget(self) -> Budget: ...
    def attribute(self, base: Value, at: tree.Attribute) -> Value: ...
    def call(self, call: tree.CallExpr, env: Env) -> Value: ...
    def for_list(self, loop: tree.ForList, env: Env) -> Value: ...


def evaluate(e: tree.Expr, env: Env, machine: Machine) -> Value:
    """The value of an expression. Raises TschedError, or ScheduleRefusal from what it calls."""
    machine.budget.enter(e.span)
    value = _evaluate(e, env, machine)
    machine.budget.leave()
    return value


def _evaluate(e: tree.Expr, env: Env, machine: Machine) -> Value:
    match e:
        case tree.Number(value=v) | tree.String(value=v) | tree.Bool(value=v):
            return v
        case tree.Wildcard():
            return OpenFactor()
        case tree.Name(id=name):
            if name in env:
                return env[name]
            raise fail(UNKNOWN_NAME, e.span, name=name)
        case tree.ListExpr(items=items):
            made = tuple(evaluate(i, env, machine) for i in items)
            machine.budget.use(made, e.span)
            return made
        case tree.MapExpr(items=items):
            return Weights(tuple((_entry(k, env, machine), _entry(v, env, machine)) for k, v in items))
        case tree.BinaryExpr(op=op, lhs=a, rhs=b):
            value = binary(op, evaluate(a, env, machine), evaluate(b, env, machine), e.span)
            machine.budget.use(bare(value), e.span)
            return value
        case tree.Negate(operand=a):
            return -a.value if isinstance(a, tree.Number) else binary("-", 0, evaluate(a, env, machine), e.span)
        case tree.CompareExpr(ops=ops, operands=operands):
            values = [evaluate(o, env, machine) for o in operands]
            for v in values:
                machine.budget.use(v, e.span)
            return all(compare(op, x, y, e.span) for op, x, y in zip(ops, values, values[1:], strict=False))
        case tree.LogicExpr(op=op, lhs=a, rhs=b):
            left = truth(evaluate(a, env, machine), a)
            return left if left == (op == "or") else truth(evaluate(b, env, machine), b)
        case tree.NotExpr(operand=a):
            return not truth(evaluate(a, env, machine), a)
        case tree.Conditional(cond=c, then=t, other=o):
            return evaluate(t if truth(evaluate(c, env, machine), c) else o, env, machine)
        case tree.Attribute(base=base):
            return machine.attribute(evaluate(base, env, machine), e)
        case tree.IndexExpr(base=base, indices=indices):
            return element(evaluate(base, env, machine), [evaluate(i, env, machine) for i in indices], e)
        case tree.SliceExpr(base=base, low=low, high=high):
            whole = evaluate(base, env, machine)
            made = part(whole, *(None if b is None else _position(b, env, machine) for b in (low, high)), at=e)
            machine.budget.use(made, e.span)
            return made
        case tree.RangeExpr(low=a, high=b):
            return _interval(evaluate(a, env, machine), evaluate(b, env, machine), e)
        case tree.Lambda():
            return _lambda(e, env)
        case tree.CallExpr():
            return machine.call(e, env)
        case tree.ForList():
            return machine.for_list(e, env)
        case tree.Reduce() | tree.Scan():
            raise fail(IN_COMPUTE_ONLY, e.span)
        case _:
            assert_never(e)


def truth(value: Value, at: tree.Expr) -> bool:
    """The bool that a condition is worth. Raises TschedError where it is none."""
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
    return Drawn(bare(items[position]), f"{base.code}[{position}]") if isinstance(base, Drawn) else items[position]


def part(base: Value, low: int | None, high: int | None, at: tree.SliceExpr) -> Value:
    """`base[low:high]` of a list or a string, as in Python: positions beyond the ends are the ends."""
    items = bare(base)
    if not isinstance(items, tuple | str):
        raise fail(NO_INDEX, at.span, kind=kind_of(items))
    if not isinstance(base, Drawn):
        return items[low:high]
    code = ":".join("" if bound is None else str(bound) for bound in (low, high))
    return Drawn(items[low:high], f"{base.code}[{code}]")


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

    return Drawn(value, f"{side(low, a)}..{side(high, b)}", tight=False)


def _entry(e: tree.Expr, env: Env, machine: Machine) -> Value:
    """One side of a map's entry: nothing that has parts."""
    value = evaluate(e, env, machine)
    if not isinstance(bare(value), int | float | str):
        raise fail(MAP_ENTRY, e.span, found=kind_of(value))
    return value


_INDEX: Mapping[str, Callable[[ir.Expr, ir.Expr], ir.Expr]] = {
    "+": ir.add, "-": ir.sub, "*": ir.mul, "/": ir.floordiv, "%": ir.floormod,
}  # fmt: skip


def _lambda(e: tree.Lambda, env: Env) -> Value:
    """An index map; where it mentions draws, its code keeps them by name."""
    drawn = False

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
                    drawn = True
                    return ir.index(value), source.code if source.tight else f"({source.code})"
                return ir.index(value), str(value)
            case _:
                raise fail(INDEX_MAP, x.span)

    pairs = [go(r) for r in e.results]
    result = IndexMap(e.params, tuple(p[0] for p in pairs))
    if not drawn:
        return result
    code = f"({', '.join(e.params)}) -> ({', '.join(p[1] for p in pairs)})"
    if len(code) > MAX_FORMULA:
        raise fail(TOO_LONG, e.span, what="an index map", count=len(code), parts="characters", most=MAX_FORMULA)
    return Drawn(result, code)
