"""The words of a text, and trees of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


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


@dataclass(frozen=True, slots=True)
class Tree:
    """A match of a grammar rule with all of its words; None for an optional part that is missing."""

    data: str
    """The name of the rule, or of its alternative."""
    children: list[Tree | Token | None]


Node = Tree | Token


@dataclass(frozen=True, slots=True)
class Words:
    """Words in the order of their text, stored as columns, since most words are only looked at by kind."""

    kinds: list[str]
    texts: list[str]
    starts: list[int]
    ends: list[int]

    def token(self, n: int) -> Token:
        return Token(self.kinds[n], self.texts[n], self.starts[n], self.ends[n])
