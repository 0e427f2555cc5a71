"""Assigns each comment of a text to a word.

A comment belongs to the word before it if it stands on that word's line, else to the word after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.words import Node, Token, Tree


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment without trailing blanks. `blank` is true if an empty line stands above it."""

    text: str
    blank: bool


def leaves(node: Node) -> Iterator[Token]:
    """The words below a node, in text order, without the ends of statements and the descriptions of items."""
    stack: list[Node | None] = [node]
    while stack:
        match stack.pop():
            case None:
                pass
            case Token() as token:
                if token.type not in ("_NL", "DOC"):
                    yield token
            case Tree() as tree:
                stack.extend(reversed(tree.children))


_NO_PART = frozenset(("_NL", "DOC"))
"""Kinds of words that begin no node: the end of a statement, and the description of an item."""


def first(node: Node) -> Token:
    while not isinstance(node, Token):
        for child in node.children:
            if child is not None and not (isinstance(child, Token) and child.type in _NO_PART):
                node = child
                break
        else:
            return next(leaves(node))
    return node


def last(node: Node) -> Token:
    while not isinstance(node, Token):
        for child in reversed(node.children):
            if child is not None and not (isinstance(child, Token) and child.type == "_NL"):
                node = child
                break
        else:
            raise ValueError(f"`{node.data}` has no words")
    return node


def start(token: Token) -> int:
    return token.start_pos


def end(token: Token) -> int:
    return token.end_pos


class Remarks:
    """The comments of a text by the word that they belong to. Each comment is handed out once."""

    def __init__(self, source: Source, file: Tree, comments: list[Token]) -> None:
        self.source = source
        self._above: dict[int, list[Remark]] = {}
        self._behind: dict[int, Remark] = {}
        words = [*leaves(file)]
        n = 0
        for c in comments:
            while n < len(words) and start(words[n]) < start(c):
                n += 1
            remark = Remark(str(c).rstrip(), self.blank_above(start(c)))
            if n > 0 and not self.newline(end(words[n - 1]), start(c)):
                self._behind[start(words[n - 1])] = remark
            else:
                self._above.setdefault(start(words[n]) if n < len(words) else -1, []).append(remark)

    def newline(self, start: int, end: int) -> bool:
        """Whether the text has a line end between two offsets."""
        return self.source.text.find("\n", start, end) >= 0

    def blank_above(self, offset: int) -> bool:
        line = self.source.line_column(offset)[0]
        return line > 1 and not self.source.line(line - 1).strip()

    def above(self, word: Token | None) -> list[Remark]:
        """The comments on lines of their own before a word; for None, those before the end of the file."""
        return self._above.pop(-1 if word is None else start(word), [])

    def ends_line(self, word: Token) -> bool:
        """Whether a comment follows a word on the same line."""
        return start(word) in self._behind

    def behind(self, word: Token) -> list[Remark]:
        """The comment that ends the line of a word, if there is one."""
        found = self._behind.pop(start(word), None)
        return [] if found is None else [found]
