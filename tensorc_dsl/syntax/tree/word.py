"""A name with its place, wherever the text of an item has one that is no expression."""

from __future__ import annotations

from typing import Self

from tensorc_dsl.source import Span


class Word(str):
    """A name as it is written, and where. It is its text wherever one is wanted: the place takes no part in equality."""

    __slots__ = ("span",)

    span: Span

    def __new__(cls, text: str, span: Span) -> Self:
        word = str.__new__(cls, text)
        word.span = span
        return word

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """A pickle or a copy is the text: a place is one of the text at hand, which other processes do not have."""
        return str, (str(self),)
