"""Binds values of the language to the parameters of primitives, draws, queries and modules, by their signatures; and the
functions and methods of the schedule layer."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check.kinds import usage
from tensorc_dsl.check.vocabulary import FUNCTIONS
from tensorc_dsl.interp.evaluate import (
    MAX_LIST,
    AnyRankMap,
    Budget,
    Drawn,
    ModuleRef,
    OpenFactor,
    ProgramRef,
    Value,
    Weights,
    as_int,
    bare,
    binary,
    element_code,
    is_number,
    kind_of,
    plain,
)
from tensorc_dsl.interp.problems import (
    ARGUMENT_KIND,
    FUNCTION_ARGUMENTS,
    LONELY_SO_FAR,
    NO_METHOD,
    NOT_WITHIN,
    STEP_ARGUMENTS,
    TOO_LONG,
    fail,
)
from tensorc_dsl.ir.expr import BinaryOp, Const, index
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.nests import the_block, the_buffer
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.step import (
    BlockPattern,
    BlockRef,
    BufferRef,
    IndexMap,
    IntrinsicRef,
    LoopPattern,
    LoopRef,
    NodeRef,
)
from tensorc_dsl.schedule.trace.distribution import Choices, Interval, Items
from tensorc_dsl.syntax import tree


@frozen
class Bound:
    """Arguments for the function, and the same with the formulas of drawn values for the trace."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    code_args: tuple[Value, ...]
    code_kwargs: dict[str, Value]


@lru_cache(maxsize=512)
def _members(annotation: object) -> tuple[object, ...]:
    """The alternatives of a union type, with aliases resolved."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return tuple(m for part in typing.get_args(annotation) for m in _members(part))
    return (annotation,)


_NAMES: dict[object, str] = {
    LoopRef: "a loop", BlockRef: "a block", BufferRef: "a buffer", IndexMap: "an index map", int: "an int",
    float: "a float", str: "a string", bool: "a bool", type(None): "`_`", Const: "an int", ProgramRef: "the program",
    Target: "a target", IntrinsicRef: "an instruction", Interval: "a range `lo..hi`", Items: "a list", list: "a list",
    Choices: "a list of numbers, strings or bools, or a map from them to weights", ModuleRef: "a module",
    LoopPattern: "a pattern", BlockPattern: "a pattern", NodeRef: "a node",
}  # fmt: skip


def describe(annotation: object) -> str:
    """The name of a parameter's type in messages."""
    names: list[str] = []
    for m in _members(annotation):
        if typing.get_origin(m) is tuple:
            names.append(f"a list of {describe(typing.get_args(m)[0])}")
        elif m in _NAMES:
            names.append(_NAMES[m])
    return " or ".join(dict.fromkeys(names))


_NO = object()
_TEXTS = (IntrinsicRef, LoopPattern, BlockPattern)
"""Types of strings that have a meaning of their own."""


def convert(value: Value, annotation: object, program: Program) -> object:
    """The value converted for a parameter of that type; a result for which `unfit` holds means that it does not fit."""
    members = _members(annotation)
    value = bare(value)
    match value:
        case BlockRef() if BlockRef not in members and BufferRef in members:
            return BufferRef(the_block(program, value)[1].body[0].buffer)
        case BufferRef(name=name) if BufferRef not in members and BlockRef in members:
            writers = [b.name for b in blocks(program) if any(s.buffer == name for s in b.body)]
            return BlockRef(writers[0]) if len(writers) == 1 else _NO
        case (
            LoopRef()
            | BlockRef()
            | BufferRef()
            | NodeRef()
            | IndexMap()
            | AnyRankMap()
            | Interval()
            | Target()
            | ModuleRef()
        ):
            return value if type(value) in members else _NO
        case IntrinsicRef():
            return value if IntrinsicRef in members else convert(str(value), annotation, program)
        case ProgramRef() if ProgramRef in members:
            return value
        case ProgramRef():
            # If a step takes a block or None, None means the whole program.
            return None if BlockRef in members and type(None) in members else _NO
        case OpenFactor() | None:
            return None if type(None) in members else _NO
        case bool():
            return value if bool in members else _NO
        case int():
            if int in members:
                return value
            if Const in members:
                return index(value)
            return float(value) if float in members and abs(value) < 1 << 1000 else _NO
        case str() if str not in members and (named := [m for m in _TEXTS if m in members]):
            return named[0](value)
        case float() | str():
            return value if type(value) in members else _NO
        case Weights(items=items):
            return _choices(items) if Choices in members else _NO
        case tuple():
            return _convert_list(value, members, program)


def _misfit(value: Value, annotation: object, program: Program) -> str:
    """What a value is that does not fit a parameter: of a list of something else, its first element of another kind."""
    inner = elements(value)
    wanted = [typing.get_args(m)[0] for m in _members(annotation) if typing.get_origin(m) is tuple]
    if inner and wanted:
        wrong = [(n, v) for n, v in enumerate(inner, 1) if all(convert(v, w, program) is _NO for w in wanted)]
        if wrong:
            n, v = wrong[0]
            return f"a list whose element {n} is {kind_of(v)}"
    return kind_of(value)


def _convert_list(values: tuple[Value, ...], members: tuple[object, ...], program: Program) -> object:
    if Items in members:
        return Items(values)
    if Choices in members:
        return _choices(tuple((v, 1.0) for v in values))
    if list in members:
        return values
    for m in members:
        if typing.get_origin(m) is tuple:
            element = typing.get_args(m)[0]
            parts = [convert(v, element, program) for v in values]
            if not any(p is _NO for p in parts):
                return tuple(parts)
    return _NO


def _choices(items: tuple[tuple[Value, Value], ...]) -> object:
    values: list[int | float | str | bool] = []
    weights: list[float] = []
    for value, weight in items:
        v, w = bare(value), bare(weight)
        if not isinstance(v, int | float | str) or not isinstance(w, int | float) or isinstance(w, bool):
            return _NO
        values.append(v)
        weights.append(float(w) if abs(w) < 1 << 1000 else float("inf"))
    return Choices(tuple(values), tuple(weights))


def unfit(converted: object) -> bool:
    return converted is _NO


def splat(value: Value) -> list[Value]:
    """The elements of a list that is an argument of a variadic parameter; other values by themselves."""
    inner = elements(value)
    return [value] if inner is None else [x for v in inner for x in splat(v)]


def _flat(value: Value) -> list[Value]:
    """As `splat`, but a list that was drawn as a whole stays whole, since a trace refers to it by name."""
    return [x for v in value for x in _flat(v)] if isinstance(value, tuple) else [value]


def _form(name: str, signature: inspect.Signature) -> str:
    """The call's form as text: `split(loop, factors, partial)`."""
    text = ", ".join(f"…{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in signature.parameters.values())
    return f"{name}({text})"


def argument_spans(signature: inspect.Signature, call: tree.CallExpr) -> dict[str, Span]:
    """The place of the argument of each parameter that has one."""
    fixed = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    spans = {name: a.span for name, a in zip(fixed, call.args, strict=False)}
    return spans | {name: a.span for name, a in call.kwargs}


class Misfit(Protocol):
    """A problem of arguments that do not fit what is called."""

    def __call__(self, span: Span | None, *, name: str, reason: str, usage: str) -> Diagnostic: ...


def of_known_rank(
    args: list[Value], kwargs: dict[str, Value], signature: inspect.Signature, program: Program
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments with `...` of index maps written out: they map the indices of the buffer that the first argument is, or
    the iterators of the block.
    """
    if not any(isinstance(v, AnyRankMap) for v in (*args, *kwargs.values())):
        return args, kwargs
    subject = next(iter(signature.parameters.values()))
    given = args[0] if args else kwargs.get(subject.name)
    match convert(given, subject.annotation, program):
        case BufferRef() as buffer:
            rank = len(the_buffer(program, buffer).shape)
        case BlockRef() as block:
            rank = len(the_block(program, block)[1].iters)
        case _:
            return args, kwargs  # it is told that it does not fit

    def known(v: Value) -> Value:
        return v.of(rank) if isinstance(v, AnyRankMap) else v

    return [known(a) for a in args], {key: known(v) for key, v in kwargs.items()}


@frozen
class _Shape:
    """What binding needs of a signature: the number of parameters that have positions, and of those that need arguments."""

    parameters: tuple[inspect.Parameter, ...]
    names: tuple[str, ...]
    fixed: int
    required: int
    is_variadic: bool


@by_identity(1024)
def _shape(signature: inspect.Signature) -> _Shape:
    parameters = tuple(signature.parameters.values())
    fixed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [n for n, p in enumerate(parameters, 1) if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    names = tuple(p.name for p in parameters)
    return _Shape(parameters, names, len(fixed), max(needed, default=0), is_variadic)


def bind(
    name: str,
    signature: inspect.Signature,
    args: list[Value],
    kwargs: dict[str, Value],
    program: Program,
    call: tree.CallExpr,
    declared: Misfit,
) -> Bound:
    """The arguments for a signature. Raises `declared` if they do not match; a TschedError for a value of a wrong kind."""
    shape = _shape(signature)
    parameters, fixed = shape.parameters, shape.fixed
    own, rest = args[:fixed], args[fixed:]
    code = tuple(args)
    if shape.is_variadic:
        code = (*own, *(x for v in rest for x in _flat(v)))
        rest = [x for v in rest for x in splat(v)]
    if not kwargs and not rest and len(own) >= shape.required:  # as most are; `bind` takes as long as a small step
        arguments: Mapping[str, Any] = dict(zip(shape.names, own, strict=False))
    else:
        try:
            arguments = signature.bind(*own, *rest, **kwargs).arguments
        except TypeError as e:
            raise TschedError(declared(call.span, name=name, reason=_reason(e), usage=_form(name, signature))) from None
    out_args: list[object] = []
    out_kwargs: dict[str, object] = {}
    left_out = False

    def fitting(p: inspect.Parameter, value: Value) -> object:
        result = convert(value, p.annotation, program)
        if result is _NO:
            raise fail(
                ARGUMENT_KIND,
                argument_spans(signature, call).get(p.name, call.span),
                name=name,
                wanted=describe(p.annotation),
                parameter=p.name,
                found=_misfit(value, p.annotation, program),
            )
        return result

    for p in parameters:
        if p.name not in arguments:
            left_out = True
            continue
        value = arguments[p.name]
        if p.kind is p.VAR_POSITIONAL:
            out_args.extend(fitting(p, v) for v in value)
        elif p.kind is p.KEYWORD_ONLY or left_out:  # after a parameter without an argument, positions would shift
            out_kwargs[p.name] = fitting(p, value)
        else:
            out_args.append(fitting(p, value))
    return Bound(tuple(out_args), out_kwargs, code, kwargs)


def bind_primitive(
    name: str, args: list[Value], kwargs: dict[str, Value], program: Program, call: tree.CallExpr
) -> Bound:
    """The arguments of a primitive. Raises TschedError."""
    return bind(name, ALL_STEPS[name].signature, args, kwargs, program, call, STEP_ARGUMENTS)


def _reason(problem: TypeError) -> str:
    text = str(problem)
    return text if text.startswith(("missing", "got", "multiple", "too many")) else f"does not take these: {text}"


# Functions and methods of the schedule layer, which are pure. `check.vocabulary` has their signatures.


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

    def _fold(self, op: BinaryOp, args: list[Value], at: tree.CallExpr) -> Value:
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

    def _over_list(self, op: BinaryOp, start: int, args: list[Value], at: tree.CallExpr) -> Value:
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
