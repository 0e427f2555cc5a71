"""Walks and rewrites of syntax trees, which know no kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, cast

Node = Any
"""Any dataclass of `syntax.tree`."""


_WORDS = ("Word", "Word | None", "tuple[Word, ...]", "tuple[Word, Word]")
_LEAVES = frozenset(("str", "str | None", "int", "int | float", "bool", "tuple[str, ...]", "Span", "Source", *_WORDS))
"""Types of fields that hold no nodes."""


@cache
def node_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes."""
    return tuple(f.name for f in fields(kind) if f.type not in _LEAVES)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in the order of the fields."""
    for name in node_fields(node.__class__):
        yield from _nodes(getattr(node, name))


@cache
def is_node(kind: type[Any]) -> bool:
    """Whether values of a class, found in a field of a node, are nodes."""
    return is_dataclass(kind)


def _nodes(value: Any) -> Sequence[Node]:
    """The nodes in the value of a field, which is a node, a tuple that may hold nodes, or another value."""
    if value.__class__ is tuple:
        nodes: list[Node] = []
        for v in value:
            if v.__class__ is tuple:
                nodes += _nodes(v)
            elif is_node(v.__class__):
                nodes.append(v)
        return nodes
    return (value,) if is_node(value.__class__) else ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all nodes below it, outermost first; any depth is allowed."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack += reversed([*children(top)])


def first_deeper_than(node: Node, limit: int, chains: Mapping[type[Any], str]) -> Node | None:
    """A node `limit + 1` levels below `node`, if there is one.

    A chain, as `a + b - c + d`, is one level: in a node of a class in `chains`, the node of that class in the field that is
    named there goes on with the chain.
    """
    level = [node]
    for _ in range(limit + 1):
        below: list[Node] = []
        for top in level:  # grows by the links of its chains
            kind = top.__class__
            link = chains.get(kind)
            for name in node_fields(kind):
                value = getattr(top, name)
                if value.__class__ is tuple:
                    below += _nodes(value)
                elif name == link and value.__class__ is kind:
                    level.append(value)
                elif is_node(value.__class__):
                    below.append(value)
        if not (level := below):
            return None
    return level[0]


def rewrite_tree(node: Any, f: Callable[[Any], Any]) -> Any:
    """The tree with every node replaced for which `f` returns another one, outermost first."""
    new = f(node)
    if new is not None:
        return new
    changed: dict[str, Any] = {}
    for name in node_fields(node.__class__):
        old = getattr(node, name)
        value = _rewritten(old, f)
        if value is not old:
            changed[name] = value
    return replace(node, **changed) if changed else node


def _rewritten(value: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        old = cast("tuple[Any, ...]", value)
        new = tuple(_rewritten(v, f) for v in old)
        return old if all(x is y for x, y in zip(old, new, strict=True)) else new
    return rewrite_tree(value, f) if is_node(value.__class__) else value
