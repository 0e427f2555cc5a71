"""Queries about the nodes of a graph: `c.producers`, `c.post_dominates(p)`; and the nodes of a program that is a graph."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, Load, children, constant
from tensorc_dsl.ir.graph import Graph, GraphNode, Links, bytes_of, sizes_of, values_of
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, IterKind, Program, blocks
from tensorc_dsl.schedule.nests import the_node
from tensorc_dsl.schedule.queries.block import has_reuse as reuses
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.step import BlockRef, NodeRef

# What a computation is like, from its program.


@frozen
class Nature:
    """What a node computes: of its calls all are injective, one has reuse, one reduces, one is a scan."""

    is_injective: bool = True
    """Each element is made of one element of each array that it reads, none of which is summed up."""
    has_reuse: bool = False
    """An element is read for several elements, as in a product or a convolution."""
    is_reduction: bool = False
    is_scan: bool = False

    def with_other(self, other: Nature) -> Nature:
        return Nature(
            self.is_injective and other.is_injective,
            self.has_reuse or other.has_reuse,
            self.is_reduction or other.is_reduction,
            self.is_scan or other.is_scan,
        )


@by_identity(512)
def _nature_of_node(program: Program) -> Nature:
    """What the computation of an unscheduled program is like."""
    made = Nature()
    for b in blocks(program):
        kinds = {it.kind for it in b.iters if constant(it.extent) != 1}
        reduces, scans = IterKind.REDUCE in kinds, IterKind.SCAN in kinds
        again = reduces and reuses(program, BlockRef(b.name))
        made = made.with_other(Nature(not reduces and not scans and _reads_once(b), again, reduces, scans))
    return made


def _reads_once(b: Block) -> bool:
    """Whether an instance of the block reads one place of each array."""
    places: dict[str, set[object]] = {}
    for s in b.body:
        waiting: list[Expr] = [s.value]
        while waiting:
            e = waiting.pop()
            if isinstance(e, Load):
                places.setdefault(e.buffer, set()).add(e.indices)
            waiting += children(e)
    return all(len(p) == 1 for p in places.values())


@by_identity(512)
def _nature_of(of: GraphNode) -> Nature:
    """What a node computes; a view computes nothing."""
    made = Nature()
    for c in of.calls:
        if c.program is not None:
            made = made.with_other(_nature_of_node(c.program))
    return made


def _of(program: Program, ref: NodeRef) -> tuple[Links, int, GraphNode]:
    found, n = the_node(program, ref)
    return found, n, found.graph.nodes[n]


def _refs(found: Links, positions: Iterable[int]) -> tuple[NodeRef, ...]:
    return tuple(NodeRef(found.graph.nodes[n].name) for n in positions)


# Queries.


@query
def nodes(program: Program) -> tuple[NodeRef, ...]:
    """All nodes of a graph, each behind those whose values it reads; none of any other program."""
    return tuple(NodeRef(n.name) for n in program.nodes) if isinstance(program, Graph) else ()


@query
def name(program: Program, node: NodeRef) -> str:
    """The name: that of the value that its last call makes."""
    return _of(program, node)[2].name


@query
def calls(program: Program, node: NodeRef) -> tuple[str, ...]:
    """The names of the computes that it calls, in order; that of a view is `reshape`."""
    return tuple(c.compute for c in _of(program, node)[2].calls)


@query
def producers(program: Program, node: NodeRef) -> tuple[NodeRef, ...]:
    """The nodes whose values it reads, each once, in the order of its arguments."""
    found, n, _ = _of(program, node)
    return _refs(found, found.producers[n])


@query
def consumers(program: Program, node: NodeRef) -> tuple[NodeRef, ...]:
    """The nodes that read its values, in order."""
    found, n, _ = _of(program, node)
    return _refs(found, found.consumers[n])


@query
def between(program: Program, node: NodeRef, later: NodeRef) -> tuple[NodeRef, ...]:
    """The nodes on paths from it to a later one, without these two."""
    found, n, _ = _of(program, node)
    return _refs(found, found.between(n, the_node(program, later)[1]))


@query
def post_dominates(program: Program, node: NodeRef, earlier: NodeRef) -> bool:
    """Whether all that is made of the values of the other node goes through this one, as x * sigmoid(x) does for x; false if
    one of these values is an output of the model.
    """
    found, n, _ = _of(program, node)
    return found.post_dominates(n, the_node(program, earlier)[1])


@query
def same_extent(program: Program, node: NodeRef, other: NodeRef) -> bool:
    """Whether both make as many elements: it does not repeat, sum up or leave out those of the other one."""
    return elements(program, node) == elements(program, other)


@query
def is_view(program: Program, node: NodeRef) -> bool:
    """Whether it is a `reshape`, or several: it costs nothing."""
    return all(c.program is None for c in _of(program, node)[2].calls)


@query
def is_injective(program: Program, node: NodeRef) -> bool:
    """Whether each element is made of at most one element of each array: an activation, a transpose, a slice, a view."""
    return _nature_of(_of(program, node)[2]).is_injective


@query
def has_reuse(program: Program, node: NodeRef) -> bool:
    """Whether it reads elements several times, as a product or a convolution does."""
    return _nature_of(_of(program, node)[2]).has_reuse


@query
def is_reduction(program: Program, node: NodeRef) -> bool:
    """Whether it sums up, or reduces otherwise: a product, a pool, a softmax, a norm."""
    return _nature_of(_of(program, node)[2]).is_reduction


@query
def is_scan(program: Program, node: NodeRef) -> bool:
    """Whether it goes on from step to step, as an LSTM does."""
    return _nature_of(_of(program, node)[2]).is_scan


@query
def is_output(program: Program, node: NodeRef) -> bool:
    """Whether one of its values is an output of the model."""
    found, n, _ = _of(program, node)
    return found.is_end[n]


@query
def shape(program: Program, node: NodeRef) -> tuple[int, ...]:
    """The shape of the value that its last call makes."""
    found, _, own = _of(program, node)
    made = [r for r in own.calls[-1].results if r != "_"]
    return sizes_of(values_of(found.graph)[made[0]]) if made else ()


@query
def elements(program: Program, node: NodeRef) -> int:
    """The number of elements of the largest value that it makes for others."""
    found, n, own = _of(program, node)
    values = values_of(found.graph)
    names = found.written(n) or [r for r in own.calls[-1].results if r != "_"]
    return max((prod(sizes_of(values[v])) for v in names), default=0)


@query
def flops(program: Program, node: NodeRef) -> int:
    """The number of its operations, as `report` counts them."""
    # The reference loads NumPy, which a check of a file does without.
    from tensorc_dsl.reference.work import flops as flops_of

    return sum(flops_of(c.program) for c in _of(program, node)[2].calls if c.program is not None)


@query
def bytes_read(program: Program, node: NodeRef) -> int:
    """The bytes of the values that it reads, weights among them."""
    found, n, _ = _of(program, node)
    values = values_of(found.graph)
    return sum(bytes_of(values[v]) for v in found.read(n))


@query
def bytes_written(program: Program, node: NodeRef) -> int:
    """The bytes of the values that it makes for others."""
    found, n, _ = _of(program, node)
    values = values_of(found.graph)
    return sum(bytes_of(values[v]) for v in found.written(n))
