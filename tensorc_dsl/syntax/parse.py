"""Parses a text into its syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import accumulate, compress

from tensorc_dsl.base.diagnostic import Diagnostic, Note, TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.build import FileBuilder
from tensorc_dsl.syntax.engine import Engine, Tables, Unexpected, tables
from tensorc_dsl.syntax.errors import TOO_DEEP, TOO_LONG, bad_character, mismatch, unexpected
from tensorc_dsl.syntax.layout import MAX_DEPTH, MOST_TERMS, Mismatch, Token, TooDeep, Tree, Words, arrange
from tensorc_dsl.syntax.traversal import first_deeper_than

# Cuts text into words.


class BadCharacter(Exception):
    """No word begins at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"no word begins at {offset}")
        self.offset = offset


class Lexer:
    """Cuts a text into words with one pattern, and looks up the kind of each different word once."""

    def __init__(self, tables: Tables) -> None:
        self._cut = re.compile(f"{tables.cut}|(?s:.)").findall
        self._kinds = re.compile(tables.words).fullmatch
        self._keywords = tables.keywords
        self._ignored = frozenset(tables.ignored)

    def _kind(self, word: str) -> str:
        """The kind of a word: "" for a word that is skipped, "BAD" for a character that begins no word."""
        match = self._kinds(word)
        if match is None:
            return "BAD"
        kind = match.lastgroup or ""
        return "" if kind in self._ignored else self._keywords.get(kind, {}).get(word, kind)

    def words(self, text: str, start: int, end: int) -> Words:
        """The words between two offsets of a text. Raises BadCharacter."""
        texts: list[str] = self._cut(text, start, end)
        kind_of = {word: self._kind(word) for word in set(texts)}
        kinds = [kind_of[word] for word in texts]
        places = [*accumulate(map(len, texts), initial=start)]
        if "BAD" in kind_of.values():
            raise BadCharacter(places[kinds.index("BAD")])
        # Words that are skipped have an empty kind.
        kept = [*compress(kinds, kinds)], [*compress(texts, kinds)], [*compress(places, kinds)]
        return Words(*kept, [*compress(places[1:], kinds)])

    def everything(self, text: str) -> Words:
        """All words of a text, comments and characters that begin none (of kind "BAD") too; blanks are left out."""
        texts: list[str] = self._cut(text)
        kind_of = {word: "COMMENT" if word[:2] == "//" else self._kind(word) for word in set(texts)}
        kinds = [kind_of[word] for word in texts]
        places = [*accumulate(map(len, texts), initial=0)]
        kept = [*compress(kinds, kinds)], [*compress(texts, kinds)], [*compress(places, kinds)]
        return Words(*kept, [*compress(places[1:], kinds)])

    def comments(self, text: str) -> list[Token]:
        """The comments of a text, `///` lines included."""
        texts: list[str] = self._cut(text)
        ends = accumulate(map(len, texts))
        return [Token("COMMENT", w, end - len(w), end) for w, end in zip(texts, ends, strict=True) if w[:2] == "//"]


MAX_FINDINGS = 100
"""The number of syntax errors of one file that are reported."""

CHAINS = {tree.BinaryExpr: "lhs", tree.LogicExpr: "lhs"}
"""Operators whose chains are not nested, with the operand that is the rest of the chain."""

_ITEM = re.compile(
    r"^(?:compute|reducer|intrinsic|target|const|module|space|schedule|prior|task|model|use|program)\b", re.MULTILINE
)
_LINE = re.compile(r"^.*\n", re.MULTILINE)


@cache
def _reader() -> tuple[Lexer, Engine]:
    return Lexer(tables()), Engine(tables(), FileBuilder())


@cache
def _tree_engine() -> Engine:
    return Engine(tables())


@frozen
class Text:
    """A parsed text: its tree, words and comments."""

    file: tree.File
    words: Tree
    """The tree of all words, by the rules of the grammar."""
    comments: list[Token]
    """All comments, `///` lines included."""


def read(source: Source) -> Text:
    """The tree of a whole file, with its words and comments. Raises TschedError as `parse` does."""
    file = parse(source)
    lexer, size = _reader()[0], len(source.text)
    arranged = arrange(lexer.words(source.text, 0, size))
    return Text(file, _tree_engine().parse(source, 0, size, arranged), lexer.comments(source.text))


def all_words(text: str) -> Words:
    """The words of any text, as `Lexer.everything`."""
    return _reader()[0].everything(text)


def _words(source: Source, start: int, end: int) -> Words:
    """The words of a part of a text. Raises TschedError."""
    try:
        return _reader()[0].words(source.text, start, end)
    except BadCharacter as e:
        raise TschedError(bad_character(source, e.offset)) from None


def words_of(source: Source, start: int, end: int) -> list[Token]:
    """The words of a part of a text, of which `…` is one, the same as `...`. Raises TschedError for what begins no word."""
    out: list[Token] = []
    for part in re.finditer("[^…]+|…", source.text[start:end]):
        begin, stop = start + part.start(), start + part.end()
        words = Words(["REST"], ["…"], [begin], [stop]) if part[0] == "…" else _words(source, begin, stop)
        out += map(words.token, range(len(words.kinds)))
    return out


class NoExpression(Exception):
    """Words that begin an expression; `wanted` would have to stand before word number `n`, or behind the last word."""

    def __init__(self, n: int, wanted: str) -> None:
        super().__init__(f"{wanted} at word {n}")
        self.n = n
        self.wanted = wanted


def expression(source: Source, words: Sequence[Token]) -> tree.Expr:
    """The expression that some words of a text are: the value of a constant. Raises TschedError, or NoExpression."""
    start, end = words[0].start_pos, words[-1].end_pos
    head = [Token(kind, word, start, start) for kind, word in (("CONST", "const"), ("NAME", "_"), ("EQUAL", "="))]
    every = [*head, *words]
    columns = [w.type for w in every], [*map(str, every)], [w.start_pos for w in every], [w.end_pos for w in every]
    try:
        (item,) = _tree(source, start, end, Words(*columns)).items
    except TschedError as error:
        match error.__cause__:
            case Unexpected(n=n, accepts=accepts) if n == len(every):
                wanted = "an expression" if "NAME" in accepts else "a closing bracket"
            case Unexpected(n=n, accepts=accepts) if "COMPUTE" in accepts and "NAME" not in accepts:  # the next item
                wanted = "an operator, or the end of the expression,"
            case _:
                raise
        raise NoExpression(n - len(head), wanted) from None
    assert isinstance(item, tree.ConstDef)
    return item.value


def _parse(source: Source, start: int, end: int) -> tree.File:
    """The tree of a part of a text. Raises TschedError with the first finding."""
    return _tree(source, start, end, _words(source, start, end))


def _tree(source: Source, start: int, end: int, words: Words) -> tree.File:
    """The tree of some words, which stand between two offsets of a text. Raises TschedError with the first finding."""
    engine, arranged = _reader()[1], arrange(words)
    try:
        file: tree.File = engine.parse(source, start, end, arranged)
    except Unexpected as e:
        raise TschedError(unexpected(source, e, arranged, end)) from e
    except Mismatch as e:
        raise TschedError(mismatch(source, e)) from None
    except TooDeep as e:
        raise TschedError(TOO_DEEP(Span(source, e.opener.start_pos, e.opener.end_pos), most=MAX_DEPTH)) from None
    if deep := first_deeper_than(file, MAX_DEPTH, CHAINS):
        raise TschedError(TOO_DEEP(deep.span, most=MAX_DEPTH))
    if long := first_deeper_than(file, MAX_DEPTH + MOST_TERMS, {}):
        raise TschedError(TOO_LONG(long.span, most=MOST_TERMS))
    return file


@frozen
class Parsed:
    """The items of a file that parse, and the diagnostics of the others."""

    file: tree.File
    diagnostics: tuple[Diagnostic, ...]


def parse(source: Source) -> tree.File:
    """The tree of a whole file. Raises TschedError with the diagnostics of `parse_items`, if there are any."""
    parsed = parse_items(source)
    if parsed.diagnostics:
        raise TschedError(*parsed.diagnostics)
    return parsed.file


def parse_items(source: Source) -> Parsed:
    """The items that parse, in order, and one diagnostic for each of the first MAX_FINDINGS items that do not.

    The text behind the last of these is not read.
    """
    size = len(source.text)
    try:
        return Parsed(_parse(source, 0, size), ())
    except TschedError as whole:
        # Parse item by item, so that one mistake does not hide the next.
        starts = item_starts(source.text)
        items, found = _parts(source, zip([0, *starts], [*starts, size], strict=True))
        return Parsed(tree.File(source, items), found or whole.diagnostics)


@lru_cache(maxsize=256)
def used_items(source: Source) -> Parsed:
    """As `parse_items`, of a file that others use: those of the library are read again and again in one process."""
    return parse_items(source)


def item_starts(text: str) -> list[int]:
    """The offsets of lines at which items seem to begin, with the descriptions above them. Each line is looked at once."""
    starts: list[int] = []
    begin: int | None = None  # offset of the current description
    for line in _LINE.finditer(text + "\n"):
        if _ITEM.match(text, line.start()):
            starts.append(line.start() if begin is None else begin)
            begin = None
        elif text.startswith("///", line.start()):
            begin = line.start() if begin is None else begin
        elif line[0].strip(" \t\n"):
            begin = None
    return starts


def _parts(source: Source, parts: Iterable[tuple[int, int]]) -> tuple[tuple[tree.Item, ...], tuple[Diagnostic, ...]]:
    """The items of the parts that parse, and the first diagnostic of each other part."""
    items: list[tree.Item] = []
    found: list[Diagnostic] = []
    for start, end in parts:
        try:
            items += _parse(source, start, end).items
        except TschedError as e:
            found += e.diagnostics
        if len(found) == MAX_FINDINGS:
            rest = Note("note", "there may be more below; no more than this many are looked for")
            found[-1] = replace(found[-1], notes=(*found[-1].notes, rest))
            break
    return tuple(items), tuple(found)
