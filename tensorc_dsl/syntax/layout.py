"""Between the words and the grammar: which newlines count, and which names begin a reduction.

Both need to look ahead further than an LALR parser does. The rules are written at the top of `grammar/tsched.lark`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.syntax.words import Token

REDUCERS = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax")

LOOP_KINDS = frozenset("PARALLEL VECTORIZED UNROLLED PIPELINED".split())
"""What may stand before the `for` of a program."""

SOFT_WORDS = LOOP_KINDS | frozenset(
    "COMPUTE REDUCER INTRINSIC TARGET MODULE SPACE SCHEDULE TASK USE PROGRAM IDENTITY DESC LAYOUT LOWER REQUIRES ASM CALL "
    "WHEN WITH INIT STEP SCAN SPATIAL REDUCE BLOCK BUFFER".split()
)
"""Words that are names where a name is expected."""

MAX_DEPTH = 100
"""How deep brackets, and trees, may be nested, so that functions over them may recurse."""

_NAMES = SOFT_WORDS | {"NAME"}
_ENDS_STATEMENT = _NAMES | set("INT FLOAT STRING INF TRUE FALSE WILDCARD RPAR RSQB RBRACE".split())
_CONTINUES = frozenset(
    "PLUS MINUS STAR SLASH PERCENT COMPARE ADDS AND OR ELSE DOT DOTS COMMA COLON EQUAL PIN TILDE ARROW AT LBRACE "
    "RPAR RSQB RBRACE".split()
)
_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_CLOSERS = frozenset(_CLOSER.values())


class Mismatch(Exception):
    """A closing bracket that fits no opening one, or not the last one."""

    def __init__(self, closer: Token, opener: Token | None) -> None:
        super().__init__(f"unmatched {closer}")
        self.closer = closer
        self.opener = opener


class TooDeep(Exception):
    """An opening bracket inside too many others."""

    def __init__(self, opener: Token) -> None:
        super().__init__(f"too deep: {opener}")
        self.opener = opener


class Layout:
    """A Lark post-lexer.

    After a failed parse, `open` are the brackets that were open where it failed, and `last` is the word before.
    """

    always_accept = ("NEWLINE", "SEMICOLON", "DOC")

    def __init__(self) -> None:
        self.open: list[Token] = []
        self.last: Token | None = None

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        self.open, self.last = [], None
        tokens = list(stream)
        match = _brackets(tokens)
        in_program = False
        headers: set[int] = set()  # closing brackets of `sum[k]` and `scan[t]`, after which a line goes on
        scans = [0]  # by depth: scans that still wait for their `step`
        newline: Token | None = None  # one that counts unless the next word goes on with the line
        forced = False
        doc: Token | None = None  # lines of a description so far
        previous = -1
        inside = ""
        for i, token in enumerate(tokens):
            kind = token.type
            if kind == "NEWLINE" or (kind == "SEMICOLON" and inside == "LBRACE"):
                ends = previous >= 0 and tokens[previous].type in _ENDS_STATEMENT and previous not in headers
                if inside == "LBRACE" and ends:
                    newline = newline or token
                    forced |= kind == "SEMICOLON"
                continue
            if kind == "DOC":
                if not inside:
                    doc = _joined(doc, token)
                continue
            if doc is not None:
                yield doc
                self.last, doc = doc, None
            if newline is not None:
                goes_on = kind in _CONTINUES or (kind == "STEP" and scans[-1] > 0)
                if kind != "RBRACE" and (forced or not goes_on):
                    yield newline.update(type="_NL")
                newline, forced = None, False
            if kind == "PROGRAM" and not inside and _is_program(tokens, i):
                in_program = True
            elif kind == "RBRACE" and len(self.open) == 1:
                in_program = False
            elif kind in ("NAME", "SCAN", "REDUCE") and not in_program and (header := _header(tokens, i, match)):
                token = token.update(type=header)
                headers.add(match[i + 2 if header == "REDUCE_BY" else i + 1])
                scans[-1] += header == "SCAN_OF"
            elif kind == "STEP" and scans[-1] > 0 and (self.last is None or self.last.type != "REDUCE_BY"):
                scans[-1] -= 1
            if kind in _CLOSERS and i not in match:
                raise Mismatch(token, self.open[-1] if self.open else None)
            yield token
            if kind in _CLOSER:
                if len(self.open) == MAX_DEPTH:
                    raise TooDeep(token)
                self.open.append(token)
                scans.append(0)
                inside = kind
            elif kind in _CLOSERS:
                self.open.pop()
                scans.pop()
                inside = self.open[-1].type if self.open else ""
            previous, self.last = i, token
        if doc is not None:
            yield doc
            self.last = doc


def _joined(doc: Token | None, line: Token) -> Token:
    if doc is None:
        return line
    joined = doc.update(value=f"{doc}\n{line}")
    joined.end_pos = line.end_pos
    return joined


def _brackets(tokens: list[Token]) -> dict[int, int]:
    """Positions of brackets that fit each other, both ways, up to the first that does not fit."""
    match: dict[int, int] = {}
    stack: list[int] = []
    for i, token in enumerate(tokens):
        if token.type in _CLOSER:
            stack.append(i)
        elif token.type in _CLOSERS:
            if not stack or _CLOSER[tokens[stack[-1]].type] != token.type:
                break
            match[i] = stack.pop()
            match[match[i]] = i
    return match


def _header(tokens: list[Token], i: int, match: dict[int, int]) -> str:
    """What the name at `i` begins: REDUCE_OF, REDUCE_BY, SCAN_OF, or nothing."""
    if tokens[i].type == "REDUCE":
        named = i + 2 < len(tokens) and tokens[i + 1].type in _NAMES
        return "REDUCE_BY" if named and tokens[i + 2].type == "LSQB" and i + 2 in match else ""
    if i + 1 >= len(tokens) or tokens[i + 1].type != "LSQB" or i + 1 not in match:
        return ""
    after = match[i + 1] + 1
    while after < len(tokens) and tokens[after].type == "NEWLINE":
        after += 1
    follows = tokens[after].type if after < len(tokens) else ""
    if tokens[i].type == "SCAN":
        return "SCAN_OF" if follows == "INIT" else ""
    # `let sum[i] = …` defines a stage of that name.
    return "REDUCE_OF" if str(tokens[i]) in REDUCERS and follows not in ("EQUAL", "ADDS") else ""


def _is_program(tokens: list[Token], i: int) -> bool:
    """Whether the word `program` at `i` begins an item."""
    return i + 2 < len(tokens) and tokens[i + 2].type == "LPAR"
