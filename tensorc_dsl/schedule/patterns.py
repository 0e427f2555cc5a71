"""Patterns of loops and blocks, written as programs are printed: `for i in _ { … C[_, _] = _ … }`, `block C`, `C += _ * _`.

In a pattern `_` is any name, number or expression, and `…` (or `...`) anything: in a body, other statements, and loops around
what stands behind it; around a value, what the value is a part of. A buffer without subscripts is any of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NoReturn, TypeVar

from tensorc_dsl.base.diagnostic import Diagnostic, Note, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import BOOL
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.parse_expr import CASTS
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Block, For, LoopKind, Program, Stmt, Store, walk
from tensorc_dsl.schedule.step import BlockPattern, LoopPattern, refusal
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.layout import LOOP_KINDS, MAX_DEPTH, SOFT_WORDS
from tensorc_dsl.syntax.names import listed, near
from tensorc_dsl.syntax.parse import NoExpression, expression, words_of
from tensorc_dsl.syntax.traversal import walk as nodes_of

FORMS_OF_PARTS = "a loop, a block or a store"
FORMS = "a loop is `for i in _ { … }`, a block `block C`, or what it stores: `C[_, _] = _`, `C += _`, `C = … A …`"

SHOWN = 100
"""The letters of a loop or block that are shown where nothing is found."""


@problem("E0263", "{what} is expected in this pattern", help="{forms}")
def WRONG_PATTERN(*, what: str, forms: str) -> None: ...
@problem(
    "E0263",
    "this is a pattern of a {found}, and a {wanted} is looked for",
    help="ask `find_{found}(…)`, or `find_{found}s(…)`",
)
def OTHER_KIND(*, found: str, wanted: str) -> None: ...
@problem(
    "E0263",
    "programs have no such expression, so nothing is like it",
    help="write it as `show` prints it, `_` for any part",
)
def NO_EXPRESSION() -> None: ...
@problem("E0263", "programs have no function `{name}`, so nothing is like it")
def NO_FUNCTION(*, name: str) -> None: ...


@refusal("E0695", "nothing here is like `{pattern}`", help="{those}", at="pattern")
def NO_MATCH(*focus: str, pattern: str, those: str) -> None: ...


@frozen
class Gap:
    """`…` in a body."""


@frozen
class StoreShape:
    """`target = value`. `adds` is `+=`; `within`: the value has it as a part."""

    target: t.Expr
    value: t.Expr
    adds: bool
    within: bool


@frozen
class BlockShape:
    name: t.Name | t.Wildcard
    body: tuple[StoreShape | Gap, ...]


@frozen
class LoopShape:
    kind: LoopKind | None
    name: t.Name | t.Wildcard
    extent: t.Expr
    body: tuple[LoopShape | BlockShape | Gap, ...]


Shape = LoopShape | BlockShape
P = TypeVar("P", Shape, StoreShape)
_ANY = (Gap(),)


# --- reading ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads one statement from words; expressions are those of the language's grammar."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source = source
        self.words = words_of(source, start, end)
        self.end = end
        self.at = 0
        self.depth = 0

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.words[at].type if at < len(self.words) else ""

    def fail(self, what: str) -> NoReturn:
        word = self.words[self.at] if self.at < len(self.words) else None
        place = (word.start_pos, word.end_pos) if word is not None else (self.end, self.end)
        raise TschedError(WRONG_PATTERN(Span(self.source, *place), what=what, forms=FORMS))

    def take(self, kind: str, what: str) -> None:
        if self.kind() != kind:
            self.fail(what)
        self.at += 1

    def whole(self) -> Shape:
        shape = self.statement()
        self.ends()
        if self.kind():
            self.fail("the end")
        return shape

    def ends(self) -> None:
        """Skip ends of statements."""
        while self.kind() in ("NEWLINE", "SEMICOLON"):
            self.at += 1

    def name(self, what: str) -> t.Name | t.Wildcard:
        if self.kind() not in SOFT_WORDS | {"NAME", "WILDCARD"}:
            self.fail(what)
        word = self.words[self.at]
        self.at += 1
        span = Span(self.source, word.start_pos, word.end_pos)
        return t.Wildcard(span) if word.type == "WILDCARD" else t.Name(str(word), span)

    def statement(self) -> Shape:
        self.ends()
        if self.kind() == "FOR" or (self.kind() in LOOP_KINDS and self.kind(1) == "FOR"):
            kind = None if self.kind() == "FOR" else LoopKind(str(self.words[self.at]))
            self.at += kind is not None
            return self.loop(kind)
        if self.kind() == "BLOCK" and self.kind(1) in SOFT_WORDS | {"NAME", "WILDCARD"}:
            self.at += 1
            return BlockShape(self.name("a name or `_`"), self.body(self.store))
        return BlockShape(t.Wildcard(Span(self.source, self.end, self.end)), (Gap(), self.store(), Gap()))

    def loop(self, kind: LoopKind | None) -> LoopShape:
        """The loop whose `for`, or the comma before whose name, is the next word."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"a depth of at most {MAX_DEPTH}")
        self.at += 1
        name = self.name("the name of a loop, or `_`,")
        self.take("IN", "`in` and an extent, or `in _`,")
        extent = self.expression(("COMMA", "LBRACE", "COLON", "REST"), "an extent, or `_`,")
        several = self.kind() == "COMMA" and kind is None
        body = (self.loop(None),) if several else self.body(self.statement)
        self.depth -= 1
        return LoopShape(kind, name, extent, body)

    def body(self, part: Callable[[], P]) -> tuple[P | Gap, ...]:
        """The parts in braces; anything without braces."""
        if self.kind() != "LBRACE":
            if self.kind() not in ("", "NEWLINE", "SEMICOLON", "RBRACE", "REST"):
                self.fail("a body in braces, `{ … }`,")
            return (Gap(),)
        self.at += 1
        parts: list[P | Gap] = []
        self.ends()
        while self.kind() != "RBRACE":
            if self.kind() == "REST":
                self.at += 1
                parts += [] if parts[-1:] == [Gap()] else [Gap()]
            else:
                parts.append(part())
            if self.kind() not in ("NEWLINE", "SEMICOLON", "REST", "RBRACE") and not isinstance(parts[-1], Gap):
                self.fail("`;` or `}`")
            self.ends()
        self.at += 1
        return tuple(parts)

    def store(self) -> StoreShape:
        target = self.expression(("EQUAL", "ADDS", "REST", "FOR"), FORMS_OF_PARTS)
        if not isinstance(target, t.Name | t.Wildcard | t.IndexExpr):
            raise TschedError(WRONG_PATTERN(target.span, what="an element, `C[_, _]`, `C` or `_`,", forms=FORMS))
        adds = self.kind() == "ADDS"
        if not adds:
            self.take("EQUAL", "`=` or `+=`")
        self.at += adds
        within = self.kind() == "REST"
        self.at += within
        if within and self.kind() in ("", *_ENDS):
            return StoreShape(target, t.Wildcard(target.span), adds, within)
        value = self.expression(("REST",), "a value, or `_`,")
        if within:
            self.take("REST", "`…` behind the value too")
            self.at -= self.kind() not in ("", "NEWLINE", "SEMICOLON")  # in a body what follows is anything, too
        return StoreShape(target, value, adds, within)

    def expression(self, stops: tuple[str, ...], what: str) -> t.Expr:
        """The expression up to a word of these kinds, or to the end of the statement."""
        begin, depth = self.at, 0
        while (kind := self.kind()) and (depth > 0 or kind not in (*stops, *_ENDS, "RPAR", "RSQB")):
            depth += (kind in ("LPAR", "LSQB")) - (kind in ("RPAR", "RSQB"))
            self.at += 1
        if self.at == begin:
            self.fail(what)
        try:
            e = expression(self.source, self.words[begin : self.at])
        except NoExpression as part:
            self.at = begin + part.n
            self.fail(part.wanted)
        for node in nodes_of(e):
            _require_known(node)
        return e


_ENDS = ("NEWLINE", "SEMICOLON", "RBRACE")
_FUNCTIONS = (*CASTS, *MATHS, "bitcast", "min", "max", "xor")


def _require_known(e: t.Expr) -> None:
    """Raises TschedError for an expression that no program has."""
    match e:
        case t.CallExpr(function=t.Name(id=name)) if name not in _FUNCTIONS:
            raise TschedError(NO_FUNCTION(e.function.span, near(name, _FUNCTIONS, "`_(_)` is any function"), name=name))
        case t.CallExpr(function=t.Name() | t.Wildcard(), kwargs=()) | t.IndexExpr(base=t.Name() | t.Wildcard()):
            pass
        case t.Number() | t.Negate() | t.Bool() | t.Name() | t.Wildcard() | t.BinaryExpr() | t.CompareExpr():
            pass
        case t.LogicExpr() | t.NotExpr() | t.Conditional():
            pass
        case _:
            raise TschedError(NO_EXPRESSION(e.span))


def parse_pattern(source: Source, start: int, end: int, wanted: type[LoopPattern | BlockPattern]) -> Shape:
    """The pattern of a loop or block between two offsets of a text. Raises TschedError with its places there."""
    shape = _Reader(source, start, end).whole()
    found, sought = ("loop", "block") if isinstance(shape, LoopShape) else ("block", "loop")
    if (wanted is LoopPattern) != isinstance(shape, LoopShape):
        raise TschedError(OTHER_KIND(Span(source, start, end), found=found, wanted=sought))
    return shape


def findings(literal: t.String, wanted: type[LoopPattern | BlockPattern]) -> tuple[Diagnostic, ...]:
    """What is wrong with a pattern that is written in a file; at its place in the string."""
    span = literal.span
    try:
        if span.text[1:-1] == literal.value:
            parse_pattern(span.source, span.start + 1, span.end - 1, wanted)
        else:  # with escapes, places in the file are not those in the text
            _shape(literal.value, wanted)
    except TschedError as e:
        return tuple(d if d.span else replace(d, span=span) for d in e.diagnostics)
    return ()


@lru_cache(maxsize=256)
def _shape(pattern: str, wanted: type[LoopPattern | BlockPattern]) -> Shape:
    """The pattern of a text that stands in no file. Findings have no place, and say where in the text they are."""
    try:
        return parse_pattern(Source("pattern", pattern), 0, len(pattern), wanted)
    except TschedError as e:
        d = e.diagnostics[0]
        at = Note("note", f"at character {d.span.start + 1} of `{pattern}`" if d.span else f"in `{pattern}`")
        raise TschedError(replace(d, span=None, notes=(at, *d.notes))) from None


# --- matching --------------------------------------------------------------------------------------------------------


def matches(p: Shape | StoreShape, s: Stmt | Store) -> bool:
    """Whether a loop, block or store is like a pattern."""
    match p, s:
        case LoopShape(), For():
            return (
                p.kind in (None, s.kind)
                and _named(p.name, s.var)
                and _fits(p.extent, s.extent)
                and (p.body == _ANY or _in_order(p.body, _below(s)))
            )
        case BlockShape(), Block():
            stores = [_Place(x, n + 1, -1) for n, x in enumerate(s.body)]
            return _named(p.name, s.name) and _in_order(p.body, stores)
        case StoreShape(), Store():
            return _stores(p, s)
        case _:
            return False


def _named(p: t.Expr, name: str) -> bool:
    return isinstance(p, t.Wildcard) or (isinstance(p, t.Name) and p.id == name)


def _stores(p: StoreShape, s: Store) -> bool:
    if not _fits(p.target, ir.Load(s.buffer, s.indices, BOOL)):
        return False
    value = s.value
    if p.adds:
        match value:
            case ir.Binary(op="+", lhs=ir.Load(buffer=s.buffer, indices=indices), rhs=term) if indices == s.indices:
                value = term
            case _:
                return False
    return any(_fits(p.value, e) for e in _parts(value)) if p.within else _fits(p.value, value)


def _parts(e: ir.Expr) -> Iterator[ir.Expr]:
    """The expression and all of its parts, each object once: steps make expressions that share parts."""
    seen, todo = set[int](), [e]
    while todo:
        if id(x := todo.pop()) not in seen:
            seen.add(id(x))
            todo += ir.children(x)
            yield x


@frozen
class _Place:
    """A part of a body in the order of the text: the number behind its last part, and that of the loop directly around it."""

    part: Stmt | Store
    end: int
    around: int


def _below(loop: For) -> list[_Place]:
    """The statements below a loop."""
    walked = walk(loop.body)
    number = {id(s): n for n, (_, s) in enumerate(walked)}
    ends = [n + 1 for n in range(len(walked))]
    for n in range(len(walked) - 1, -1, -1):
        if around := walked[n][0]:
            outer = number[id(around[-1])]
            ends[outer] = max(ends[outer], ends[n])
    return [_Place(s, ends[n], number[id(around[-1])] if around else -1) for n, (around, s) in enumerate(walked)]


def _in_order(parts: Sequence[LoopShape | BlockShape | StoreShape | Gap], places: list[_Place]) -> bool:
    """Whether a body has the parts in this order: the next statement is the next part, and behind a gap any later one."""

    @cache
    def fits(n: int, at: int) -> bool:
        part = parts[n]
        return not isinstance(part, Gap) and matches(part, places[at].part)

    @cache
    def go(n: int, at: int, around: int) -> bool:
        if n == len(parts):
            return at == len(places)
        if isinstance(parts[n], Gap):
            later = range(at, len(places))
            return n + 1 == len(parts) or any(
                fits(n + 1, k) and go(n + 2, places[k].end, places[k].around) for k in later
            )
        return at < len(places) and places[at].around == around and fits(n, at) and go(n + 1, places[at].end, around)

    return go(0, 0, -1)


def _fits(p: t.Expr, e: ir.Expr) -> bool:
    """Whether an expression is like that of a pattern."""
    match p, e:
        case t.Wildcard(), _:
            return True
        case t.Number(value=v), ir.Const():
            return _equal(v, e)
        case t.Negate(operand=t.Number(value=v)), ir.Const():
            return _equal(-v, e)
        case t.Negate(operand=a), ir.Binary(op="-" | "*" as op, lhs=ir.Const(value=v), rhs=b):
            return v == (0 if op == "-" else -1) and _fits(a, b)
        case t.Bool(value=v), ir.Const(value=c):
            return v is c
        case t.Name(id=name), ir.Var(name=own) | ir.Dim(name=own) | ir.Load(buffer=own):
            return name == own
        case t.IndexExpr(base=base, indices=indices), ir.Load(buffer=own, indices=places):
            return _named(base, own) and _all_fit(indices, places)
        case t.BinaryExpr(op=op, lhs=a, rhs=b), ir.Binary(op=own):
            return op == own and _all_fit((a, b), ir.children(e))
        case t.CompareExpr(ops=(_, _, *_)), ir.Logic(op="and", lhs=x, rhs=y):
            before = t.CompareExpr(p.ops[:-1], p.operands[:-1], p.span)
            return _fits(before, x) and _fits(t.CompareExpr(p.ops[-1:], p.operands[-2:], p.span), y)
        case t.CompareExpr(ops=(op,), operands=operands), ir.Compare(op=own):
            return op == own and _all_fit(operands, ir.children(e))
        case t.LogicExpr(op=op, lhs=a, rhs=b), ir.Logic(op=own):
            return op == own and _all_fit((a, b), ir.children(e))
        case t.NotExpr(operand=a), ir.Not(operand=b):
            return _fits(a, b)
        case t.Conditional(cond=c, then=a, other=b), ir.Select():
            return _all_fit((c, a, b), ir.children(e))
        case t.CallExpr(function=f, args=args), _:
            return _calls(f, args, e)
        case _:
            return False


def _calls(function: t.Expr, args: tuple[t.Expr, ...], e: ir.Expr) -> bool:
    match e:
        case ir.Cast(dtype=dtype):
            name = str(dtype)
        case ir.Bitcast(dtype=dtype):
            name = "bitcast"
            if not args or not _named(args[0], str(dtype)):
                return False
            args = args[1:]
        case ir.Binary(op="min" | "max" | "xor" as name) | ir.Call(function=name):
            pass
        case ir.Const(dtype=dtype):  # a literal with its type
            return (
                _named(function, str(dtype)) and len(args) == 1 and isinstance(function, t.Name) and _fits(args[0], e)
            )
        case _:
            return False
    return _named(function, name) and _all_fit(args, ir.children(e))


def _equal(v: int | float, e: ir.Const) -> bool:
    return e.dtype != BOOL and ir.Const(float(v) if e.dtype.is_float else v, e.dtype) == e


def _all_fit(patterns: Sequence[t.Expr], parts: Sequence[ir.Expr]) -> bool:
    return len(patterns) == len(parts) and all(_fits(p, e) for p, e in zip(patterns, parts, strict=True))


# --- asking ----------------------------------------------------------------------------------------------------------


def found(body: tuple[Stmt, ...], pattern: LoopPattern | BlockPattern) -> Iterator[Stmt]:
    """The statements in a body, at any depth, that are like a pattern, in text order. Raises TschedError (E0263)."""
    shape = _shape(str(pattern), type(pattern))
    return (s for _, s in walk(body) if matches(shape, s))


def first(program: Program, body: tuple[Stmt, ...], pattern: LoopPattern | BlockPattern) -> str:
    """The name of the first of them. Raises ScheduleRefusal if there is none."""
    like = next(found(body, pattern), None)
    if like is not None:
        return name_of(like)
    kind = For if isinstance(pattern, LoopPattern) else Block
    there = [
        text if len(text := shown(s)) <= SHOWN else f"{text[: SHOWN - 1]}…" for _, s in walk(body) if type(s) is kind
    ]
    word = "loops" if kind is For else "blocks"
    those = f"the {word} here are: {listed(there)}" if there else f"there are no {word} here"
    raise NO_MATCH(program, pattern=str(pattern), those=those)


def name_of(s: Stmt) -> str:
    return s.var if isinstance(s, For) else s.name


def shown(s: Stmt) -> str:
    """A pattern that the statement is like: of a loop its header, of a block its stores."""
    if isinstance(s, Block):
        return f"block {s.name} {{ {'; '.join(map(format_store, s.body))} }}"
    return f"{'' if s.kind is LoopKind.SERIAL else f'{s.kind} '}for {s.var} in {format_expr(s.extent)}"
