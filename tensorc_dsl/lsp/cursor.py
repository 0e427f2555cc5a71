"""What stands around a place in a text that may be half typed: words, open brackets, the call that is being written."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.syntax.parse import all_words
from tensorc_dsl.syntax.words import Token

_CLOSER = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
_CLOSERS = frozenset(("RPAR", "RSQB", "RBRACE"))

WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose bracket is open: the word in front, whether a point stands before it, and what has been written.

    `at` is the offset of the word, `given` the number of arguments before the one that is being written, `keyword` the name
    in front of it, and `named` the names that others have.
    """

    name: str
    at: int
    is_method: bool
    given: int
    keyword: str
    named: frozenset[str]


@dataclass(frozen=True, slots=True)
class Cursor:
    """`before` are the words before the cursor without the one that it ends, `prefix`; `open` are the open brackets."""

    before: tuple[Token, ...]
    prefix: str
    silent: bool
    """Whether it stands in a comment or a string."""
    open: tuple[int, ...]
    """Positions of open brackets among the words, outermost first."""

    @property
    def last(self) -> str:
        """The text of the word before, newlines left out; empty at the start."""
        return next((str(w) for w in reversed(self.before) if w.type != "NEWLINE"), "")

    @property
    def line(self) -> tuple[str, ...]:
        """The words since the statement began."""
        out: list[str] = []
        for w in reversed(self.before):
            if w.type in ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE"):
                break
            out.append(str(w))
        return tuple(reversed(out))

    @property
    def head(self) -> str:
        """The first word of the item: what kind of item it is."""
        return next((str(w) for w in self.before if w.type not in ("NEWLINE", "COMMENT")), "")

    @property
    def in_body(self) -> bool:
        return any(self.before[n].type == "LBRACE" for n in self.open)

    @property
    def call(self) -> Call | None:
        """The innermost call that is open, looking through lists in its arguments."""
        for n in reversed(self.open):
            word = self.before[n]
            if word.type == "LBRACE":
                return None
            if word.type != "LPAR" or n == 0 or self.before[n - 1].type in _NO_CALL:
                continue
            return self._call(n)
        return None

    def _call(self, n: int) -> Call:
        name = self.before[n - 1]
        depth = given = 0
        named: set[str] = set()
        start = n + 1
        for k in range(n + 1, len(self.before)):
            kind = self.before[k].type
            depth += (kind in _CLOSER) - (kind in _CLOSERS)
            if depth == 0 and kind == "COMMA":
                given, start = given + 1, k + 1
            if depth == 0 and kind == "EQUAL" and k > n + 1:
                named.add(str(self.before[k - 1]))
        now = self.before[start : start + 2]
        keyword = str(now[0]) if len(now) == 2 and now[1].type == "EQUAL" else ""
        is_method = n >= 2 and self.before[n - 2].type == "DOT"
        return Call(str(name), name.start_pos, is_method, given, keyword, frozenset(named - {keyword}))

    def closing(self, since: int) -> str:
        """The brackets that close what is open since an offset."""
        return "".join(_CLOSER[self.before[n].type] for n in reversed(self.open) if self.before[n].start_pos >= since)


_NO_CALL = frozenset(
    "EQUAL COMMA LPAR LSQB COLON ARROW AND OR NOT IF ELSE IN NEWLINE PLUS MINUS STAR SLASH PERCENT".split()
)


def cursor(text: str, offset: int) -> Cursor:
    """What stands before an offset of a part."""
    start = offset
    while start > 0 and text[start - 1] in WORDS:
        start -= 1
    words = all_words(text)
    before: list[Token] = []
    open_: list[int] = []
    silent = False
    for n, (kind, begin, end) in enumerate(zip(words.kinds, words.starts, words.ends, strict=True)):
        if begin >= start:
            break
        token = words.token(n)
        silent = kind in ("COMMENT", "DOC") and begin < offset <= end
        silent |= (kind == "STRING" and offset < end) or (
            kind == "BAD" and token == '"' and "\n" not in text[begin:offset]
        )
        if kind in ("COMMENT", "DOC"):
            continue
        if kind in _CLOSER:
            open_.append(len(before))
        elif kind in _CLOSERS and open_:
            open_.pop()
        before.append(token)
        if silent:
            break
    return Cursor(tuple(before), text[start:offset], silent, tuple(open_))
