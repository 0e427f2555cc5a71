"""Cuts text into words."""

from __future__ import annotations

import re
from itertools import accumulate, compress

from tensorc_dsl.syntax.tables import Tables
from tensorc_dsl.syntax.words import Token, Words


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
