"""Expressions of the schedule layer: values in, values out. Only calls of primitives and modules change anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from tensorc_dsl.interp.record import combine
from tensorc_dsl.interp.values import Drawn, OpenFactor, Value, error, kind_of, plain
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.schedule.primitive import IndexMap
from tensorc_dsl.syntax import tree

MAX_LIST = 100_000
"""No list is longer: the language is total, and a file from a stranger must not fill the memory."""

Env = dict[str, Value]


class Machine(Protocol):
    """What evaluation needs of the interpreter."""

    def attribute(self, base: Value, at: tree.Attribute) -> Value: ...
    def call(self, call: tree.CallExpr, env: Env) -> Value: ...
    def for_list(self, loop: tree.ForList, env: Env) -> Value: ...


def evaluate(e: tree.Expr, env: Env, machine: Machine) -> Value:
    match e:
        case tree.Number(value=v) | tree.String(value=v) | tree.Bool(value=v):
            return v
        case tree.Wildcard():
            return OpenFactor()
        case tree.Name(id=name):
            if name in env:
                return env[name]
            raise error("E0520", f"there is no `{name}` here", e.span, "not found in this scope")
        case tree.ListExpr(items=items):
            return tuple(evaluate(i, env, machine) for i in items)
        case tree.MapExpr(items=items):
            return tuple((evaluate(k, env, machine), evaluate(v, env, machine)) for k, v in items)
        case tree.BinaryExpr(op=op, lhs=a, rhs=b):
            return _binary(op, evaluate(a, env, machine), evaluate(b, env, machine), e)
        case tree.Negate(operand=a):
            return _binary("-", 0, evaluate(a, env, machine), e) if not isinstance(a, tree.Number) else -a.value
        case tree.CompareExpr(ops=ops, operands=operands):
            values = [plain(evaluate(o, env, machine)) for o in operands]
            return all(_compare(op, x, y, e) for op, x, y in zip(ops, values, values[1:], strict=False))
        case tree.LogicExpr(op=op, lhs=a, rhs=b):
            left = _truth(evaluate(a, env, machine), a)
            return left if left == (op == "or") else _truth(evaluate(b, env, machine), b)
        case tree.NotExpr(operand=a):
            return not _truth(evaluate(a, env, machine), a)
        case tree.Conditional(cond=c, then=t, other=o):
            return evaluate(t if _truth(evaluate(c, env, machine), c) else o, env, machine)
        case tree.Attribute(base=base):
            return machine.attribute(evaluate(base, env, machine), e)
        case tree.IndexExpr(base=base, indices=indices):
            return _index(evaluate(base, env, machine), [evaluate(i, env, machine) for i in indices], e)
        case tree.Lambda():
            return _lambda(e, env)
        case tree.CallExpr():
            return machine.call(e, env)
        case tree.ForList():
            return machine.for_list(e, env)
        case tree.Reduce() | tree.Scan() | tree.RangeExpr():
            raise error("E0521", "this belongs to a compute, not to a schedule", e.span)


def _truth(value: Value, at: tree.Expr) -> bool:
    v = plain(value)
    if isinstance(v, bool):
        return v
    raise error("E0522", f"a condition is true or false; this is {kind_of(v)}", at.span)


def _is_number(v: Value) -> bool:
    return isinstance(v, int | float) and not isinstance(v, bool)


def arithmetic(op: str, a: int | float, b: int | float) -> int | float:
    """`/` and `%` floor on integers. Raises ZeroDivisionError."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // b if isinstance(a, int) and isinstance(b, int) else a / b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case _:
            return max(a, b)


def _binary(op: str, lhs: Value, rhs: Value, at: tree.Expr) -> Value:
    a, b = plain(lhs), plain(rhs)
    if op == "+" and isinstance(lhs, tuple) and isinstance(rhs, tuple):
        return lhs + rhs
    if op == "+" and isinstance(a, str) and isinstance(b, str):
        return combine(op, lhs, rhs, a + b)
    if not (_is_number(a) and _is_number(b)):
        raise error("E0523", f"`{op}` does not take {kind_of(a)} and {kind_of(b)}", at.span)
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    try:
        value = arithmetic(op, a, b)
    except (ZeroDivisionError, OverflowError) as problem:
        raise error("E0524", f"`{a} {op} {b}` has no value: {problem}", at.span) from None
    if isinstance(value, int) and value.bit_length() > 256:
        raise error("E0524", f"`{op}` makes a number of {value.bit_length()} bits; 256 are allowed", at.span)
    return combine(op, lhs, rhs, value)


def _compare(op: str, a: Value, b: Value, at: tree.Expr) -> bool:
    if op in ("==", "!="):
        return (a == b) == (op == "==")
    if not ((_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str))):
        raise error("E0523", f"`{op}` does not take {kind_of(a)} and {kind_of(b)}", at.span)
    match op:
        case "<":
            return a < b  # type: ignore[operator]
        case "<=":
            return a <= b  # type: ignore[operator]
        case ">":
            return a > b  # type: ignore[operator]
        case _:
            return a >= b  # type: ignore[operator]


def _index(base: Value, indices: list[Value], at: tree.IndexExpr) -> Value:
    items, position = plain(base), plain(indices[0]) if len(indices) == 1 else None
    if not isinstance(items, tuple | str) or not isinstance(position, int) or isinstance(position, bool):
        raise error("E0526", f"{kind_of(items)} is not indexed like this", at.span, help="one int in the brackets")
    if not -len(items) <= position < len(items):
        raise error("E0527", f"there is no element {position}: the list has {len(items)}", at.span)
    if isinstance(base, Drawn):
        assert not isinstance(base.value, int | float | IndexMap)
        return Drawn(base.value[position], f"{base.code}[{position}]")
    return items[position]


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
                make: Mapping[str, Callable[[ir.Expr, ir.Expr], ir.Expr]] = {
                    "+": ir.add, "-": ir.sub, "*": ir.mul, "/": ir.floordiv, "%": ir.floormod,
                }  # fmt: skip
                if op in "/%" and ir.constant(right) == 0:
                    raise error("E0524", "division by zero", x.span)
                wrap = [f"({c})" if " " in c else c for c in (left_code, right_code)]
                return make[op](left, right), f"{wrap[0]} {op} {wrap[1]}"
            case tree.Name(id=name) if name in env and isinstance(value := plain(env[name]), int):
                source = env[name]
                if isinstance(source, Drawn):
                    drawn = True
                    return ir.index(value), source.code if source.tight else f"({source.code})"
                return ir.index(value), str(value)
            case _:
                raise error("E0528", "an index map is made of its parameters, integers and + - * / %", x.span)

    pairs = [go(r) for r in e.results]
    result = IndexMap(e.params, tuple(p[0] for p in pairs))
    if not drawn:
        return result
    return Drawn(result, f"({', '.join(e.params)}) -> ({', '.join(p[1] for p in pairs)})")


def _int(v: Value) -> int | None:
    p = plain(v)
    return p if isinstance(p, int) and not isinstance(p, bool) else None


def _interleave(structure: str, tiles: tuple[Value, ...], kinds: tuple[Value, ...]) -> tuple[Value, ...]:
    """The loops of `tiles` in the order `structure` spells: level n of every tile of a kind at its n-th letter."""
    out: list[Value] = []
    seen: dict[str, int] = {}
    for letter in structure:
        level = seen.get(letter, 0)
        seen[letter] = level + 1
        for tile, kind in zip(tiles, kinds, strict=True):
            if kind == letter and isinstance(tile, tuple) and level < len(tile):
                out.append(tile[level])
    return tuple(out)


def builtin(name: str, args: list[Value], at: tree.CallExpr) -> Value:
    """Pure functions of values; the names are in `BUILTINS`."""
    first = plain(args[0]) if args else None
    match name:
        case "len" if len(args) == 1 and isinstance(first, tuple | str):
            return len(first)
        case "reversed" if len(args) == 1 and isinstance(args[0], tuple):
            return tuple(reversed(args[0]))
        case "interleave" if len(args) == 3 and isinstance(first, str):
            tiles, kinds = args[1], args[2]
            if isinstance(tiles, tuple) and isinstance(kinds, tuple) and len(tiles) == len(kinds):
                return _interleave(first, tiles, kinds)
        case "concat" if all(isinstance(a, tuple) for a in args):
            return tuple(x for a in args if isinstance(a, tuple) for x in a)
        case "range" if 1 <= len(args) <= 2 and all(_int(a) is not None for a in args):
            bounds = [n for a in args if (n := _int(a)) is not None]
            span = range(*bounds)
            if len(span) > MAX_LIST:
                raise error("E0529", f"a list of {len(span)} elements; {MAX_LIST} are allowed", at.span)
            return tuple(span)
        case "min" | "max" if args:
            if len(args) == 1 and isinstance(args[0], tuple) and args[0]:
                return builtin(name, list(args[0]), at)
            if all(_is_number(plain(a)) for a in args):
                out = args[0]
                for a in args[1:]:
                    out = _binary(name, out, a, at)
                return out
        case "product" if len(args) == 1 and isinstance(args[0], tuple) and all(_is_number(plain(a)) for a in args[0]):
            product: Value = 1
            for a in args[0]:
                product = _binary("*", product, a, at)
            return product
        case "log2" if len(args) == 1 and _is_number(first) and first > 0:  # type: ignore[operator]
            return math.log2(first)  # type: ignore[arg-type]
        case _:
            pass
    raise error("E0530", f"`{name}` does not take {', '.join(kind_of(a) for a in args) or 'nothing'}", at.span)


BUILTINS = frozenset({"len", "range", "min", "max", "reversed", "concat", "interleave", "product", "log2"})


def method(base: Value, name: str, args: list[Value], at: tree.CallExpr) -> Value:
    """Methods of strings and lists: `count find rfind contains`."""
    value, first = plain(base), plain(args[0]) if len(args) == 1 else None
    match value, name:
        case (str(), "count") if isinstance(first, str):
            return value.count(first)
        case (str(), "find") if isinstance(first, str):
            return value.find(first)
        case (str(), "rfind") if isinstance(first, str):
            return value.rfind(first)
        case (str(), "contains") if isinstance(first, str):
            return first in value
        case (tuple(), "count"):
            return sum(1 for v in value if v == first)
        case (tuple(), "contains"):
            return first in value
        case _:
            raise error("E0525", f"{kind_of(value)} has no method `{name}` that takes this", at.span)
