"""Going through a tree without knowing its kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from tensorc_dsl.source import Source, Span

Node = Any
"""Any dataclass of `syntax.tree`."""


@cache
def _parts(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name not in ("span", "source"))


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in the order of the fields."""
    for name in _parts(node.__class__):
        yield from _nodes(getattr(node, name))


def _nodes(value: object) -> Iterator[Node]:
    if isinstance(value, tuple):
        for v in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _nodes(v)  # pyright: ignore[reportUnknownArgumentType]
    elif is_dataclass(value) and not isinstance(value, (type, Span, Source)):
        yield value


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, outermost first; however deep."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))


def first_deeper_than(node: Node, limit: int) -> Node | None:
    """The first node more than `limit` levels below `node`."""
    stack = [(node, 0)]
    while stack:
        top, depth = stack.pop()
        if depth > limit:
            return top
        stack.extend((c, depth + 1) for c in children(top))
    return None
