"""Elements that data decide: which data of two values are the same, so that both can be compared for each number they may be.

`W[min(max(index(I[n]), 0), 9)]` is the value of one of ten nodes. Once `index(I[n])` of the one program is known to be
some `index(J[m])` of the other, both values are compared at every number x that it may be: one is then the element
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
from tensorc_dsl.validate.values import At, Key, Node, Values, gathers, key


@dataclass(frozen=True, slots=True)
class Shared:
    """Data of one value, and at the same places the data of another one that they must be equal to.

    The longer of the two goes on with data of which the other value has nothing: it must be the same for each number.
    """

    ours: tuple[Cast, ...]
    theirs: tuple[Cast, ...]
    guessed: bool
    """Whether the values may be equal though those data are not, or are not the ones to take."""


def shared_data(a: At, b: At, pairs: isl.Map, original: Values, scheduled: Values) -> list[Shared]:
    """The ways of comparing two values of which data decide one, the best first; none where they differ.

    Data without a partner may decide nothing: then the value is the same one for each number that they may be.
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
    if types[0] == types[1]:  # at the same places: those are what a message is about
        guessed = not inputs and any(len(data_in(x.expr)) > 1 for x in (a, b))
        found.append(Shared(ours, theirs, guessed))
    return found


def deciding(node: Node) -> tuple[Cast, ...]:
    """The data that decide which element a node is; none where it is no such element."""
    return tuple(dict.fromkeys(outermost(children(node.expr)))) if gathers(node) else ()


def _partners(
    a: At, wanted: tuple[Cast, ...], b: At, pairs: isl.Map, of_a: Values, of_b: Values
) -> dict[Cast, tuple[Cast, bool]]:
    """Of the data of `a` that are wanted, those that equal data of `b`, with those; and whether that is sure."""
    found: dict[Cast, tuple[Cast, bool]] = {}
    for x in wanted:
        for y in data_in(b.expr):
            told = _told_equal(At(a.statement, x.operand), At(b.statement, y.operand), pairs, of_a, of_b)
            if told is not None and dtype_of(x.operand) == dtype_of(y.operand):
                found[x] = y, told
                break
    return found


def _told_equal(a: At, b: At, pairs: isl.Map, of_a: Values, of_b: Values) -> bool | None:
    """Whether both are the same by their signatures; False where those leave something open, None where they differ."""
    rest, everything = pairs, True
    for x in of_a.signature(a):
        for y in of_b.signature(b):
            if x.text == y.text:
                everything &= "…" not in x.text
                rest = rest.subtract(x.subscripts.apply_range(y.subscripts.reverse()))
    return everything if rest.is_empty() else None


class Lifted:
    """Values of one program at each number that data may be; asked again, the same nodes."""

    def __init__(self, values: Values) -> None:
        self._code = values.code
        self._nodes: dict[tuple[Key, tuple[Cast, ...]], At] = {}
        self._kept: list[At] = []

    def at(self, node: Node, data: Sequence[Cast]) -> Node:
        """The node with a variable for each of the data."""
        if isinstance(node, Total) or not data:
            return node
        k = key(node), tuple(data)
        if k not in self._nodes:
            statement, values = self._code.lifted(node.statement, data)
            self._kept.append(node)  # keys are made of ids
            self._nodes[k] = At(statement, with_values(node.expr, values))
        return self._nodes[k]


def at_all_numbers(pairs: isl.Map, a: Statement, b: Statement) -> isl.Map:
    """The pairs of instances at each number that the data may be: the same one on both sides, as far as both have data."""
    before, after = (pairs.dim(side) for side in (isl.dim_type.in_, isl.dim_type.out))
    shared = min(len(a.names) - before, len(b.names) - after)
    numbers = a.domain.project_out(isl.dim_type.set, before + shared, len(a.names) - before - shared)
    both = pairs.flat_product(numbers.project_out(isl.dim_type.set, 0, before).identity())
    of_a, of_b = (
        s.domain.identity().project_out(isl.dim_type.out, n, len(s.names) - n)
        for s, n in ((a, before + shared), (b, after + shared))
    )
    return of_a.apply_range(both).apply_range(of_b.reverse())
