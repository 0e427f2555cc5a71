"""Functions and methods of the schedule layer, which are pure. `check.vocabulary` has their signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tensorc_dsl.check.kinds import usage
from tensorc_dsl.check.vocabulary import FUNCTIONS
from tensorc_dsl.interp.evaluate import binary, element_code
from tensorc_dsl.interp.limits import MAX_LIST, Budget
from tensorc_dsl.interp.problems import FUNCTION_ARGUMENTS, LONELY_SO_FAR, NO_METHOD, NOT_WITHIN, TOO_LONG, fail
from tensorc_dsl.interp.values import Drawn, Value, as_int, bare, is_number, kind_of, plain
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.trace.declare import Interval
from tensorc_dsl.syntax import tree

_loop_kind = QUERIES[LoopRef]["kind"].function


class _Unfit(Exception):
    """The function does not accept the arguments."""


def elements(value: Value) -> tuple[Value, ...] | None:
    """The elements of a list, each with the draws that it depends on; None for other values."""
    inner = bare(value)
    if not isinstance(inner, tuple):
        return None
    if isinstance(value, Drawn):
        return tuple(Drawn(bare(v), element_code(value, n), value.draws) for n, v in enumerate(inner))
    return inner


def _list(value: Value) -> tuple[Value, ...]:
    found = elements(value)
    if found is None:
        raise _Unfit
    return found


def _int(value: Value) -> int:
    found = as_int(value)
    if found is None:
        raise _Unfit
    return found


def _number(value: Value) -> Value:
    if not is_number(bare(value)):
        raise _Unfit
    return value


class Builtins:
    """The functions for one expansion; their results count against its budget.

    `rounds` has the values that the enclosing `for`s have yielded so far, the innermost one last.
    """

    def __init__(self, budget: Budget, rounds: Sequence[Sequence[Value]]) -> None:
        self._budget = budget
        self._rounds = rounds
        self.functions: Mapping[str, Callable[[list[Value], Program, tree.CallExpr], Value]] = {
            "len": self._len,
            "range": self._range,
            "min": lambda args, _, at: self._fold("min", args, at),
            "max": lambda args, _, at: self._fold("max", args, at),
            "clamp": self._clamp,
            "xor": self._xor,
            "sum": lambda args, _, at: self._over_list("+", 0, args, at),
            "product": lambda args, _, at: self._over_list("*", 1, args, at),
            "any": lambda args, _program, _at: any(self._bools(args)),
            "all": lambda args, _program, _at: all(self._bools(args)),
            "reversed": self._reversed,
            "concat": self._concat,
            "log2": self._log2,
            "so_far": self._so_far,
            "within": self._within,
            "interleave": lambda args, program, _at: tuple(x for level in self._levels(args, program) for x in level),
            "tile_levels": lambda args, program, _at: self._levels(args, program),
        }

    def call(self, name: str, args: list[Value], program: Program, at: tree.CallExpr) -> Value:
        """The function's value. Raises TschedError if it does not accept the arguments."""
        for a in args:
            self._budget.use(a, at.span)
        try:
            result = self.functions[name](args, program, at)
        except _Unfit:
            found = ", ".join(kind_of(a) for a in args) or "nothing"
            shape = usage(name, FUNCTIONS[name])
            raise fail(FUNCTION_ARGUMENTS, at.span, name=name, found=found, usage=shape) from None
        self._budget.use(result, at.span)
        return result

    @staticmethod
    def _only(args: list[Value], least: int, most: int) -> list[Value]:
        if not least <= len(args) <= most:
            raise _Unfit
        return args

    def _bools(self, args: list[Value]) -> list[bool]:
        (value,) = self._only(args, 1, 1)
        found = [bare(v) for v in _list(value)]
        bools = [v for v in found if isinstance(v, bool)]
        if len(bools) < len(found):
            raise _Unfit
        return bools

    def _len(self, args: list[Value], _program: Program, _at: tree.CallExpr) -> Value:
        (value,) = self._only(args, 1, 1)
        inner = bare(value)
        if not isinstance(inner, tuple | str):
            raise _Unfit
        return len(inner)

    def _range(self, args: list[Value], _program: Program, at: tree.CallExpr) -> Value:
        bounds = [_int(a) for a in self._only(args, 1, 2)]
        low, high = bounds if len(bounds) == 2 else (0, bounds[0])
        count = max(high - low, 0)
        if count > MAX_LIST:
            raise fail(TOO_LONG, at.span, what="a list", count=count, parts="values", most=MAX_LIST)
        return tuple(range(low, high))

    def _fold(self, op: str, args: list[Value], at: tree.CallExpr) -> Value:
        values = _list(args[0]) if len(args) == 1 and not is_number(bare(args[0])) else tuple(args)
        if not values:
            raise _Unfit
        out = _number(values[0])
        for v in values[1:]:
            out = binary(op, out, _number(v), at.span)
        return out

    def _clamp(self, args: list[Value], _program: Program, at: tree.CallExpr) -> Value:
        value, low, high = map(_number, self._only(args, 3, 3))
        return binary("min", binary("max", value, low, at.span), high, at.span)

    def _over_list(self, op: str, start: int, args: list[Value], at: tree.CallExpr) -> Value:
        (value,) = self._only(args, 1, 1)
        out: Value = start
        for v in _list(value):
            out = binary(op, out, _number(v), at.span)
        return out

    def _reversed(self, args: list[Value], _program: Program, _at: tree.CallExpr) -> Value:
        (value,) = self._only(args, 1, 1)
        return tuple(reversed(_list(value)))

    def _concat(self, args: list[Value], _program: Program, _at: tree.CallExpr) -> Value:
        return tuple(v for a in args for v in _list(a))

    def _xor(self, args: list[Value], _program: Program, at: tree.CallExpr) -> Value:
        self._only(args, 2, 2)
        for a in args:
            _int(a)
        return binary("xor", args[0], args[1], at.span)

    def _log2(self, args: list[Value], _program: Program, _at: tree.CallExpr) -> Value:
        (value,) = self._only(args, 1, 1)
        x = bare(value)
        if not isinstance(x, int | float) or isinstance(x, bool) or not x > 0:
            raise _Unfit
        return math.log2(x)

    def _so_far(self, args: list[Value], _program: Program, at: tree.CallExpr) -> Value:
        self._only(args, 0, 0)
        if not self._rounds:
            raise fail(LONELY_SO_FAR, at.span)
        return tuple(self._rounds[-1])

    def _within(self, args: list[Value], program: Program, _at: tree.CallExpr) -> Value:
        value, span, what = self._only(args, 3, 3)
        found, legal, name = _int(value), bare(span), bare(what)
        if not isinstance(legal, Interval) or not isinstance(name, str):
            raise _Unfit
        if not legal.low <= found <= legal.high:
            raise NOT_WITHIN(program, what=name, value=found, low=legal.low, high=legal.high)
        return value

    def _levels(self, args: list[Value], program: Program) -> tuple[tuple[Value, ...], ...]:
        """A list for each letter: for the n-th letter of a kind, level n of every tile of that kind."""
        self._only(args, 2, 3)
        structure, tiles = bare(args[0]), [_list(t) for t in _list(args[1])]
        if not isinstance(structure, str):
            raise _Unfit
        kinds = [plain(k) for k in _list(args[2])] if len(args) == 3 else [self._tile_kind(t, program) for t in tiles]
        if len(kinds) != len(tiles):
            raise _Unfit
        out: list[tuple[Value, ...]] = []
        seen: dict[str, int] = {}
        for letter in structure:
            level = seen.get(letter, 0)
            seen[letter] = level + 1
            here = (t for t, kind in zip(tiles, kinds, strict=True) if kind == letter and level < len(t))
            out.append(tuple(t[level] for t in here))
        return tuple(out)

    @staticmethod
    def _tile_kind(tile: tuple[Value, ...], program: Program) -> str:
        """The kind of the loops of a tile; the loops of one split have the same kind."""
        loop = bare(tile[0]) if tile else None
        if not isinstance(loop, LoopRef):
            raise _Unfit
        return _loop_kind(program, loop)


def _find(value: str, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    part, after = _strings(args, kwargs, "after")
    start = 0 if after is None else value.find(after) + len(after)
    return -1 if after is not None and after not in value else value.find(part, start)


def _rfind(value: str, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    part, before = _strings(args, kwargs, "before")
    end = len(value) if before is None else value.find(before)
    return -1 if end < 0 else value.rfind(part, 0, end)


def _strings(args: list[Value], kwargs: Mapping[str, Value], keyword: str) -> tuple[str, str | None]:
    part = bare(args[0]) if len(args) == 1 and not set(kwargs) - {keyword} else None
    limit = bare(kwargs[keyword]) if keyword in kwargs else None
    if not isinstance(part, str) or not (limit is None or isinstance(limit, str)):
        raise _Unfit
    return part, limit


def _one(args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        raise _Unfit
    return plain(args[0])


def _count_in_string(value: str, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    part = _one(args, kwargs)
    if not isinstance(part, str):
        raise _Unfit
    return value.count(part)


def _in_string(value: str, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    part = _one(args, kwargs)
    if not isinstance(part, str):
        raise _Unfit
    return part in value


def _count(values: tuple[Value, ...], args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    wanted = _one(args, kwargs)
    return sum(1 for v in values if plain(v) == wanted)


def _contains(values: tuple[Value, ...], args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    wanted = _one(args, kwargs)
    return any(plain(v) == wanted for v in values)


def _position(values: tuple[Value, ...], args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    wanted = _one(args, kwargs)
    return next((n for n, v in enumerate(values) if plain(v) == wanted), -1)


STRING_METHODS: Mapping[str, Callable[[str, list[Value], Mapping[str, Value]], Value]] = {
    "count": _count_in_string,
    "find": _find,
    "rfind": _rfind,
    "contains": _in_string,
}

LIST_METHODS: Mapping[str, Callable[[tuple[Value, ...], list[Value], Mapping[str, Value]], Value]] = {
    "count": _count,
    "find": _position,
    "contains": _contains,
}


def method(
    base: Value, name: str, args: list[Value], kwargs: Mapping[str, Value], at: tree.CallExpr, budget: Budget
) -> Value:
    """The value of a method of a string or a list. Raises TschedError if there is no such method for the arguments."""
    for v in (base, *args, *kwargs.values()):
        budget.use(v, at.span)
    value = bare(base)
    try:
        match value:
            case str() if name in STRING_METHODS:
                return STRING_METHODS[name](value, args, kwargs)
            case tuple() if name in LIST_METHODS:
                return LIST_METHODS[name](value, args, kwargs)
            case _:
                raise _Unfit
    except _Unfit:
        raise fail(NO_METHOD, at.span, kind=kind_of(value), name=name) from None
