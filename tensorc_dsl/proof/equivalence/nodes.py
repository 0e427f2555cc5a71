"""The values that proofs are about: expressions in statements, totals, and the terms of reductions."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.proof.equivalence.code import Statement
from tensorc_dsl.proof.equivalence.flow import Total
from tensorc_dsl.proof.sets import isl


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """An expression in a statement; its instances are those of the statement."""

    statement: Statement
    expr: Expr


Node = At | Total
Key = tuple[int, tuple[str, ...], int]
Sources = tuple[tuple[Node, isl.Map], ...]
"""Nodes that have a node's value, with maps from its instances to theirs."""


def place(node: Node) -> Statement:
    return node.statement if isinstance(node, At) else node.at


def key(node: Node) -> Key:
    return (node.statement.number, node.statement.names, id(node.expr)) if isinstance(node, At) else (-1, (), id(node))


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Some terms of a total: one for each point of a path. The term's value is that of `node` at the point's `leaf`."""

    node: Node
    path: isl.Map
    """The map from an instance of the total to points that identify its terms."""
    leaf: isl.Map
    """The map from such a point to the instance of the node."""
    update: tuple[Statement, isl.Map] | None
    """The statement that combines the term, and the map to its instance."""


@dataclass(slots=True)
class Terms:
    """All terms of a node, as a reduction of one kind."""

    found: list[Term] = field(default_factory=list[Term])
    starts: set[str] = field(default_factory=set[str])
    """Initial values of declared reductions, which are neutral because the file says so."""
    whole: bool = False
    """Whether what an update adds is one term, although it is a reduction of that kind itself."""
