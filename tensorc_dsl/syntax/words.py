"""The words of a text."""

from __future__ import annotations

from typing import Self


class Token(str):
    """A word, its kind and its place: as Lark's own class, as far as we ask."""

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

    def update(self, type: str | None = None, value: str | None = None) -> Token:
        """The same place with another kind or another text."""
        return Token(type or self.type, str(self) if value is None else value, self.start_pos, self.end_pos)
