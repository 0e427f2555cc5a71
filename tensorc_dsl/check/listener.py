"""Who is told what the names of a body mean, while it is checked."""

from __future__ import annotations

from tensorc_dsl.check.signatures import Signature
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree as t


class Listener:
    """Does nothing with what it is told; `positions` has one that keeps it."""

    def named(self, at: Span, name: str, places: tuple[Span, ...]) -> None:
        """A name stands for what is bound at the places; there are none for what the body is given."""

    def asked(self, at: Span, name: str, doc: str) -> None:
        """A query without parentheses."""

    def called(self, call: t.CallExpr, at: Span, name: str, to: Signature | t.ModuleDef) -> None:
        """What the name at `at` calls."""


NOBODY = Listener()
