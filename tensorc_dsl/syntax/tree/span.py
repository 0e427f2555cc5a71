"""The span of a node: its place in the text, which takes no part in equality."""

from __future__ import annotations

from dataclasses import field

from tensorc_dsl.base.source import Span


def span_field() -> Span:
    """The field of a node for its place in the text."""
    return field(compare=False, repr=False)
