"""The interface of listeners for the meanings of names while a body is checked."""

from __future__ import annotations

from collections.abc import Iterable

from tensorc_dsl.base.source import Span
from tensorc_dsl.check.kinds import Kind
from tensorc_dsl.check.signatures import Signature
from tensorc_dsl.syntax import tree as t


class Listener:
    """A listener that ignores everything; `positions` has one that records it."""

    def named(self, at: Span, name: str, places: tuple[Span, ...], kind: Kind) -> None:
        """The name at `at` is bound at `places`; they are empty for names that every body has. Its value is of that kind."""

    def unknown(self, at: Span, scope: Iterable[str]) -> None:
        """The name at `at` is none of those in scope."""

    def part(self, at: Span, kind: Kind) -> None:
        """The name at `at` stands behind a point: a part, a query or a method of a value of that kind."""

    def asked(self, at: Span, name: str, doc: str) -> None:
        """The name at `at` is a query without parentheses."""

    def called(self, call: t.CallExpr, at: Span, name: str, to: Signature | t.ModuleDef) -> None:
        """The name at `at` is called, with the signature or module that it stands for."""


NOBODY = Listener()
