"""Pairs the data of two elements whose subscripts depend on data, so that the elements can be compared for each value.

`W[min(max(index(I[n]), 0), 9)]` is the value of one of ten nodes. Once `index(I[n])` of one program is known to equal
some `index(J[m])` of the other, both elements are compared for every value x of the datum: the first is then the element
`W[min(max(x, 0), 9)]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.data import data_in, outermost, with_values
from tensorc_dsl.ir.expr import Cast, children, dtype_of
from tensorc_dsl.validate.code import Statement
from tensorc_dsl.validate.flow import Total
from tensorc_dsl.validate.nodes import At, Key, Node, key
from tensorc_dsl.validate.values import Values, gathers


@dataclass(frozen=True, slots=True)
class Shared:
    """Data of one value, and the data of another one in the same places that they must equal.

    If one list is longer, the other value has no counterpart: then the values must be equal for each number.
    """

    ours: tuple[Cast, ...]
    theirs: tuple[Cast, ...]
    guessed: bool
    """Whether the values may be equal though these data are not, or though these are not the right pairs."""


def shared_data(a: At, b: At, pairs: isl.Map, original: Values, scheduled: Values) -> list[Shared]:
    """The ways to compare two values that depend on data, the best first; none if they differ.

    Data without a counterpart may have no effect: then the value is the same for each of their numbers.
    """
    ours, theirs = deciding(a), deciding(b)
    told = _partners(a, ours, b, pairs, original, scheduled)
    if ours and len(told) == len(ours):
        return [Shared(ours, tuple(y for y, _ in told.values()), not all(sure for _, sure in told.values()))]
    back = _partners(b, theirs, a, pairs.reverse(), scheduled, original)
    if theirs and len(back) == len(theirs):
        return [Shared(tuple(x for x, _ in back.values()), theirs, not all(sure for _, sure in back.values()))]
    found: list[Shared] = []
    if ours:
        alone = (x for x in ours if x not in told)
        found.append(Shared((*told, *alone), tuple(y for y, _ in told.values()), guessed=True))
    if theirs:
        alone = (y for y in theirs if y not in back)
        found.append(Shared(tuple(x for x, _ in back.values()), (*back, *alone), guessed=True))
    inputs = original.is_input_read(a) and scheduled.is_input_read(b)
    ours, theirs = ours or outermost((a.expr,)), theirs or outermost((b.expr,))
    types = [[dtype_of(d.operand) for d in data] for data in (ours, theirs)]
    if types[0] == types[1]:  # the data in the same places, which a message reports
        guessed = not inputs and any(len(data_in(x.expr)) > 1 for x in (a, b))
        found.append(Shared(ours, theirs, guessed))
    return found


def deciding(node: Node) -> tuple[Cast, ...]:
    """The data on which the element of a node depends; none for other nodes."""
    return tuple(dict.fromkeys(outermost(children(node.expr)))) if gathers(node) else ()


def _partners(
    a: At, wanted: tuple[Cast, ...], b: At, pairs: isl.Map, of_a: Values, of_b: Values
) -> dict[Cast, tuple[Cast, bool]]:
    """The wanted data of `a` that equal data of `b`, each with its counterpart and whether the equality is certain."""
    found: dict[Cast, tuple[Cast, bool]] = {}
    for x in wanted:
        for y in data_in(b.expr):
            told = _told_equal(At(a.statement, x.operand), At(b.statement, y.operand), pairs, of_a, of_b)
            if told is not None and dtype_of(x.operand) == dtype_of(y.operand):
                found[x] = y, told
                break
    return found


def _told_equal(a: At, b: At, pairs: isl.Map, of_a: Values, of_b: Values) -> bool | None:
    """Whether signatures show that both are equal: True, False if they leave something open, None if they differ."""
    rest, everything = pairs, True
    for x in of_a.signature(a):
        for y in of_b.signature(b):
            if x.text == y.text:
                everything &= "…" not in x.text
                rest = rest.subtract(x.subscripts.apply_range(y.subscripts.reverse()))
    return everything if rest.is_empty() else None


class Lifted:
    """Nodes of one program with variables for data; the same question returns the same node."""

    def __init__(self, values: Values) -> None:
        self._code = values.code
        self._nodes: dict[tuple[Key, tuple[Cast, ...]], At] = {}
        self._kept: list[At] = []

    def at(self, node: Node, data: Sequence[Cast]) -> Node:
        """The node with a variable in place of each of the data."""
        if isinstance(node, Total) or not data:
            return node
        k = key(node), tuple(data)
        if k not in self._nodes:
            statement, values = self._code.lifted(node.statement, data)
            self._kept.append(node)  # keys contain ids, so the object must stay alive
            self._nodes[k] = At(statement, with_values(node.expr, values))
        return self._nodes[k]


def at_all_numbers(pairs: isl.Map, a: Statement, b: Statement) -> isl.Map:
    """The pairs of instances for each value of the data, with equal values on both sides for the data that both have."""
    before, after = (pairs.dim(side) for side in (isl.dim_type.in_, isl.dim_type.out))
    shared = min(len(a.names) - before, len(b.names) - after)
    numbers = a.domain.project_out(isl.dim_type.set, before + shared, len(a.names) - before - shared)
    both = pairs.flat_product(numbers.project_out(isl.dim_type.set, 0, before).identity())
    of_a, of_b = (
        s.domain.identity().project_out(isl.dim_type.out, n, len(s.names) - n)
        for s, n in ((a, before + shared), (b, after + shared))
    )
    return of_a.apply_range(both).apply_range(of_b.reverse())
