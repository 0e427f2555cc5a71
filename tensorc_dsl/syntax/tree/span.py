"""The span of a node: where it was written, which takes no part in equality."""

from __future__ import annotations

from dataclasses import field

from tensorc_dsl.source import Span


def span_field() -> Span:
    """The field of a node that says where it was written."""
    return field(compare=False, repr=False)  # type: ignore[no-any-return]
