"""The interface of objects that are told the meanings of names while a body is checked."""

from __future__ import annotations

from tensorc_dsl.check.signatures import Signature
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree as t


class Listener:
    """A listener that ignores everything; `positions` has one that records it."""

    def named(self, at: Span, name: str, places: tuple[Span, ...]) -> None:
        """The name at `at` is bound at `places`; they are empty for names that every body has."""

    def asked(self, at: Span, name: str, doc: str) -> None:
        """The name at `at` is a query without parentheses."""

    def called(self, call: t.CallExpr, at: Span, name: str, to: Signature | t.ModuleDef) -> None:
        """The name at `at` is called, with the signature or module that it stands for."""


NOBODY = Listener()
