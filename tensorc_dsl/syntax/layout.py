"""The words of a text, and the pass between lexer and parser: it decides which newlines count and which names begin a
reduction.

Both need to look ahead further than an LALR parser does. The rules are written at the top of `grammar/tsched.lark`.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Self

from tensorc_dsl.base.frozen import frozen

REDUCERS = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax")

LOOP_KINDS = frozenset("PARALLEL VECTORIZED UNROLLED PIPELINED TENSORIZED BOUND".split())
"""Kinds of words that may stand before the `for` of a program."""

SOFT_WORDS = LOOP_KINDS | frozenset(
    "COMPUTE REDUCER INTRINSIC TARGET MODULE SPACE SCHEDULE TASK USE PROGRAM IDENTITY ASSUME DESC LAYOUT LOWER REQUIRES ASM "
    "CALL WHEN WITH INIT STEP SCAN SPATIAL REDUCE BLOCK BUFFER CONST PRIOR TIMED_AT STRIDES UPDATES "
    "TRY OTHERWISE MODEL WEIGHTS SHA256 SELECT LIKE".split()
)
"""Words that are names where a name is expected."""

MAX_DEPTH = 100
"""The largest depth of brackets and trees, of which a chain of operators, as `a + b - c`, is one level."""

MOST_TERMS = 400
"""The operands that chains of operators may have, those inside of each other added: each is a level of the tree."""

MOST_LEVELS = 512
"""The largest depth of an expression of a program. Steps make deep ones of others."""

FRAMES = 10_000
"""Python's limit of recursion: functions over expressions recurse, and take up to this many frames for MOST_LEVELS."""
sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))

_REDUCERS = frozenset(REDUCERS)
_NAMES = SOFT_WORDS | {"NAME"}
_ENDS_STATEMENT = _NAMES | set("INT FLOAT STRING INF NAN TRUE FALSE WILDCARD RPAR RSQB RBRACE".split())
_CONTINUES = frozenset(
    "PLUS MINUS STAR SLASH PERCENT COMPARE ADDS AND OR ELSE IN DOT DOTS COMMA COLON EQUAL PIN TILDE ARROW CASE_ARROW AT "
    "LBRACE RPAR RSQB RBRACE".split()
)
_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_CLOSERS = frozenset(_CLOSER.values())
_NESTS = {"IF", "ELSE", "SEMICOLON", *_CLOSER, *_CLOSERS}
_SPECIAL = {"NEWLINE", "SEMICOLON", "DOC", "PROGRAM", "SCAN", "REDUCE", "INIT", "STEP", *_CLOSER, *_CLOSERS}
"""Kinds that need a decision; all other words are passed on, except names of reducers and words that follow a newline."""


class Mismatch(Exception):
    """A closing bracket that does not match the last opening one, or any."""

    def __init__(self, closer: Token, opener: Token | None) -> None:
        super().__init__(f"unmatched {closer}")
        self.closer = closer
        self.opener = opener


class TooDeep(Exception):
    """An opening bracket that is nested too deeply."""

    def __init__(self, opener: Token) -> None:
        super().__init__(f"too deep: {opener}")
        self.opener = opener


@frozen
class Arranged:
    """The words that the parser reads. If `stop` is not None, it is the error behind the last word."""

    words: Words
    stop: Mismatch | TooDeep | None

    def before(self, n: int) -> Token | None:
        """The last word before word number `n`, without ends of statements."""
        kinds = self.words.kinds
        last = next((k for k in range(n - 1, -1, -1) if kinds[k] != "_NL"), None)
        return None if last is None else self.words.token(last)

    def open(self, n: int) -> list[Token]:
        """The brackets that are open before word number `n`, outermost first."""
        stack: list[int] = []
        for k, kind in enumerate(self.words.kinds[:n]):
            if kind in _CLOSER:
                stack.append(k)
            elif kind in _CLOSERS:
                stack.pop()
        return [self.words.token(k) for k in stack]

    def header(self, n: int) -> frozenset[str]:
        """The kinds of the words between the innermost brace that is open before word number `n` and what it belongs to."""
        kinds = self.words.kinds
        depth = 0
        for k in range(n - 1, -1, -1):
            if kinds[k] == "LBRACE":
                if depth == 0:
                    return frozenset(kinds[self._begins(k) : k])
                depth -= 1
            elif kinds[k] == "RBRACE":
                depth += 1
        return frozenset()

    def statement(self, n: int) -> list[Token]:
        """The words of the statement or the item up to word number `n`, without it."""
        return [self.words.token(k) for k in range(self._begins(n), n)]

    def _begins(self, n: int) -> int:
        """The number of the first word of the statement in which word number `n` stands."""
        kinds = self.words.kinds
        before = (k for k in range(n - 1, -1, -1) if kinds[k] in ("_NL", "DOC", "LBRACE", "RBRACE"))
        return next(before, -1) + 1


def arrange(words: Words) -> Arranged:
    """The words with each newline that counts as `_NL`, each description as one word, and the kinds of reduction headers."""
    kinds, texts = words.kinds, words.texts
    match, conditionals = _nesting(kinds)
    out: list[str] = []
    order: list[int] = []  # by position in `out`: the number of the word
    docs: list[tuple[int, int, int]] = []  # position in `out`, first and last line of a description
    open_: list[int] = []
    in_program = False
    unfinished: dict[int, str] = {}  # names and closing brackets after which a line continues, with the kind of header
    scans = [0]  # by depth: the number of scans whose `step` is missing so far
    newline = -1  # a newline that counts unless the next word continues the line
    forced = False
    doc: tuple[int, int] | None = None  # lines of the current description
    last = ""  # kind of the previous word, without ends of statements
    previous = -1
    inside = ""
    stop: Mismatch | TooDeep | None = None
    for i, kind in enumerate(kinds):
        if kind == "NAME" and not in_program and texts[i] in _REDUCERS:
            # `(max[i], at[i]) = …` defines a stage of these names.
            result = inside == "LPAR" and open_[-1] in match and _next(kinds, match[open_[-1]]) in ("EQUAL", "AT")
            if not result and (header := _header(words, i, match)):
                kind = header
                unfinished[match[i + 1]] = header
        elif kind in _SPECIAL:
            if kind == "NEWLINE" or (kind == "SEMICOLON" and inside == "LBRACE"):
                if inside == "LBRACE" and previous >= 0 and previous not in unfinished:
                    if kinds[previous] in _ENDS_STATEMENT:
                        newline = i if newline < 0 else newline
                        forced |= kind == "SEMICOLON"
                continue
            if kind == "DOC":
                if not inside:
                    doc = (i, i) if doc is None else (doc[0], i)
                continue
        if doc is not None:
            docs.append((len(out), *doc))
            out.append("DOC")
            order.append(doc[0])
            last, doc = "DOC", None
        if newline >= 0:
            goes_on = kind in _CONTINUES or (kind == "STEP" and scans[-1] > 0) or i in conditionals
            goes_on = goes_on or (kind == "OTHERWISE" and _next(kinds, i) == "LBRACE")
            if kind != "RBRACE" and (forced or not goes_on):
                out.append("_NL")
                order.append(newline)
            newline, forced = -1, False
        if kind in _SPECIAL:
            if kind in _CLOSERS and i not in match:
                stop = Mismatch(words.token(i), words.token(open_[-1]) if open_ else None)
                break
            if kind in _CLOSER:
                if len(open_) == MAX_DEPTH:
                    stop = TooDeep(words.token(i))
                open_.append(i)
                scans.append(0)
                inside = kind
            elif kind in _CLOSERS:
                if kind == "RBRACE" and len(open_) == 1:
                    in_program = False
                open_.pop()
                scans.pop()
                inside = kinds[open_[-1]] if open_ else ""
            elif kind == "PROGRAM":
                in_program = in_program or (not inside and _is_program(kinds, i))
            elif kind == "INIT":
                if unfinished.get(previous) == "SCAN_OF":
                    unfinished[i] = kind
            elif kind == "STEP":
                # In the position of a value it is a name.
                after_value = previous not in unfinished and last != "REDUCE_BY" and kinds[previous] in _ENDS_STATEMENT
                if scans[-1] > 0 and after_value:
                    scans[-1] -= 1
                    unfinished[i] = kind
            elif kind != "SEMICOLON" and not in_program and (header := _header(words, i, match)):
                kind = header
                unfinished[match[i + 2 if header == "REDUCE_BY" else i + 1]] = header
                scans[-1] += header == "SCAN_OF"
        out.append(kind)
        order.append(i)
        previous, last = i, kind
        if stop is not None:
            break
    if doc is not None and stop is None:
        docs.append((len(out), *doc))
        out.append("DOC")
        order.append(doc[0])
    arranged = Words(out, [texts[i] for i in order], [words.starts[i] for i in order], [words.ends[i] for i in order])
    for n, first, final in docs:
        lines = zip(texts[first : final + 1], kinds[first : final + 1], strict=True)
        arranged.texts[n] = "\n".join(text for text, kind in lines if kind == "DOC")
        arranged.ends[n] = words.ends[final]
    return Arranged(arranged, stop)


def _nesting(kinds: list[str]) -> tuple[dict[int, int], set[int]]:
    """The matching positions of brackets, in both directions, up to the first mismatch, and the positions of each `if` in
    an expression: its `else` comes before any `{` of a statement.
    """
    match: dict[int, int] = {}
    conditionals: set[int] = set()
    stack: list[int] = []
    ifs: list[list[int]] = [[]]  # by depth: each `if` without its `else` or `{` so far
    for i, kind in enumerate(kinds):
        if kind not in _NESTS:
            continue
        if kind in _CLOSER:
            if kind == "LBRACE":
                ifs[-1].clear()
            stack.append(i)
            ifs.append([])
        elif kind in _CLOSERS:
            if not stack or _CLOSER[kinds[stack[-1]]] != kind:
                break
            match[i] = stack.pop()
            match[match[i]] = i
            ifs.pop()
        elif kind == "IF":
            ifs[-1].append(i)
        elif kind == "SEMICOLON":
            ifs[-1].clear()
        elif ifs[-1]:
            conditionals.add(ifs[-1].pop())
    return match, conditionals


def _next(kinds: list[str], i: int) -> str:
    """The kind of the word after word `i`, in whatever line; "" behind the last one."""
    return next((kind for kind in islice(kinds, i + 1, None) if kind != "NEWLINE"), "")


def _header(words: Words, i: int, match: dict[int, int]) -> str:
    """The kind of header that the name at `i` begins: REDUCE_OF, REDUCE_BY, SCAN_OF, or "" for none."""
    kinds = words.kinds
    if i > 0 and kinds[i - 1] == "DOT":
        return ""
    if kinds[i] == "REDUCE":
        named = i + 2 < len(kinds) and kinds[i + 1] in _NAMES
        return "REDUCE_BY" if named and kinds[i + 2] == "LSQB" and i + 2 in match else ""
    if i + 1 >= len(kinds) or kinds[i + 1] != "LSQB" or i + 1 not in match:
        return ""
    follows = _next(kinds, match[i + 1])
    if kinds[i] == "SCAN":
        return "SCAN_OF" if follows == "INIT" else ""
    # `let sum[i] = …` and `let sum[i] @("key", 1) = …` define a stage of that name.
    return "REDUCE_OF" if words.texts[i] in _REDUCERS and follows not in ("EQUAL", "ADDS", "AT") else ""


def _is_program(kinds: list[str], i: int) -> bool:
    """Whether the word `program` at `i` begins an item."""
    return i + 2 < len(kinds) and kinds[i + 1] in _NAMES and kinds[i + 2] == "LPAR"


# The words of a text, and trees of them.


class Token(str):
    """A word with its kind and its place."""

    __slots__ = ("end_pos", "start_pos", "type")

    type: str
    start_pos: int
    end_pos: int

    def __new__(cls, type: str, value: str, start_pos: int, end_pos: int) -> Self:
        token = str.__new__(cls, value)
        token.type = type
        token.start_pos = start_pos
        token.end_pos = end_pos
        return token


@frozen
class Tree:
    """A match of a grammar rule with all of its words; None for an optional part that is missing."""

    data: str
    """The name of the rule, or of its alternative."""
    children: list[Tree | Token | None]


Node = Tree | Token


@frozen
class Words:
    """Words in the order of their text, stored as columns, since most words are only looked at by kind."""

    kinds: list[str]
    texts: list[str]
    starts: list[int]
    ends: list[int]

    def token(self, n: int) -> Token:
        return Token(self.kinds[n], self.texts[n], self.starts[n], self.ends[n])
