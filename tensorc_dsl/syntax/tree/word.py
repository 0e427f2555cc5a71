"""A name with its place, for the names in items that are no expressions."""

from __future__ import annotations

from typing import Self

from tensorc_dsl.base.source import Span


class Word(str):
    """A name with its place in the text. It is a `str`; the place takes no part in equality or hashing."""

    __slots__ = ("span",)

    span: Span

    def __new__(cls, text: str, span: Span) -> Self:
        word = str.__new__(cls, text)
        word.span = span
        return word

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickles and copies as plain text: the place refers to a text that other processes do not have."""
        return str, (str(self),)
