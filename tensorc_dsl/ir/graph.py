"""The graph of a model: nodes, each of one or several calls of computes, and the values that go from call to call.

A graph takes the place of a program where rules are applied to it: it has no loops and blocks, but nodes. They are in an
order in which each stands behind those whose values it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Buffer, Program


@frozen
class GraphCall:
    """A call of a compute, or, without a program, a view: the elements of a value in another shape.

    Values by name; "_" is a result that is dropped. The name is that of the first result, and unique.
    """

    name: str
    compute: str
    program: Program | None
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def text(self) -> str:
        """As the model has it: `h = conv2d(x, w)`."""
        left = self.results[0] if len(self.results) == 1 else f"({', '.join(self.results)})"
        return f"{left} = {self.compute}({', '.join(self.arguments)})"


@frozen
class GraphNode:
    """Calls that are computed together, in order. Its name is that of its last call."""

    name: str
    calls: tuple[GraphCall, ...]


@frozen
class Graph(Program):
    """A model as nodes. `values` are all of them by name, `ends` the outputs of the model, `weights` those of a file."""

    nodes: tuple[GraphNode, ...] = ()
    values: tuple[Buffer, ...] = ()
    ends: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()


def sizes_of(b: Buffer) -> tuple[int, ...]:
    """The shape of a value of a model, in which all sizes are numbers."""
    return tuple(n for e in b.shape if (n := constant(e)) is not None)


def bytes_of(b: Buffer) -> int:
    """The bytes of a value of a model."""
    return b.dtype.bytes * prod(sizes_of(b))


@frozen
class Links:
    """What each node of a graph reads from others and writes for them. Nodes by their positions."""

    graph: Graph
    position: Mapping[str, int]
    """By the name of a call the position of the node that has it."""
    maker: Mapping[str, int]
    """By the name of a value the position of the node that makes it; inputs and weights have none."""
    producers: Sequence[Sequence[int]]
    consumers: Sequence[Sequence[int]]
    is_end: Sequence[bool]
    """Whether one of its values is an output of the model."""

    def written(self, n: int) -> list[str]:
        """The values that a node makes and others read, or that are outputs of the model, in order."""
        own = self.graph.nodes[n]
        outside = {a for k in self.consumers[n] for c in self.graph.nodes[k].calls for a in c.arguments}
        return [r for c in own.calls for r in c.results if r in outside or r in self.graph.ends]

    def read(self, n: int) -> list[str]:
        """The values that a node reads and does not make, each once, in order."""
        found = (a for c in self.graph.nodes[n].calls for a in c.arguments if self.maker.get(a) != n)
        return list(dict.fromkeys(found))

    def path_behind(self, inside: frozenset[int], last: int) -> list[int]:
        """A path from a node that is not `inside`, but reads one that is, back into it: its nodes outside; else empty.

        No node behind the position `last` is looked at.
        """
        came: dict[int, int | None] = {}
        for n in sorted(inside):
            for k in self.consumers[n]:
                if k not in inside and k < last:
                    came.setdefault(k, None)
        for k in range(min(came, default=last), last):
            if k not in came:
                continue
            for c in self.consumers[k]:
                if c in inside:
                    path: list[int] = []
                    at: int | None = k
                    while at is not None:
                        path.append(at)
                        at = came[at]
                    return path[::-1]
                if c < last:
                    came.setdefault(c, k)
        return []

    def between(self, first: int, last: int) -> list[int]:
        """The nodes on paths from the first to the last, without these, in order."""
        ahead = {first}
        for n in range(first + 1, last):
            if not ahead.isdisjoint(self.producers[n]):
                ahead.add(n)
        back = {last}
        for n in range(last - 1, first, -1):
            if not back.isdisjoint(self.consumers[n]):
                back.add(n)
        return sorted((ahead & back) - {first, last})

    def post_dominates(self, last: int, first: int) -> bool:
        """Whether all that is made of the first node's values goes through the last one, which is another node."""
        if first >= last or self.is_end[first]:
            return False
        seen = {first}
        for n in range(first, last):
            if n not in seen:
                continue
            if n != first and (self.is_end[n] or not self.consumers[n]):
                return False
            if any(k > last for k in self.consumers[n]):
                return False
            seen.update(self.consumers[n])
        return last in seen


@by_identity(8)
def links(graph: Graph) -> Links:
    """What the nodes of a graph read from each other."""
    position = {c.name: n for n, node_ in enumerate(graph.nodes) for c in node_.calls}
    maker = {r: n for n, node_ in enumerate(graph.nodes) for c in node_.calls for r in c.results if r != "_"}
    producers = [
        list(dict.fromkeys(k for c in node_.calls for a in c.arguments if (k := maker.get(a, n)) != n))
        for n, node_ in enumerate(graph.nodes)
    ]
    consumers: list[list[int]] = [[] for _ in graph.nodes]
    for n, found in enumerate(producers):
        for k in found:
            consumers[k].append(n)
    is_end = [any(r in graph.ends for c in node_.calls for r in c.results) for node_ in graph.nodes]
    return Links(graph, position, maker, producers, consumers, is_end)


@by_identity(8)
def values_of(graph: Graph) -> Mapping[str, Buffer]:
    """The values of a graph by name."""
    return {b.name: b for b in graph.values}


def in_order(nodes: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
    """The nodes, each behind those that it reads; else as they stand. They have no circle."""
    maker = {r: n for n, node_ in enumerate(nodes) for c in node_.calls for r in c.results if r != "_"}
    done: dict[int, None] = {}

    def place(first: int) -> None:
        waiting = [(first, _read(nodes[first], maker, first))]
        while waiting:
            n, rest = waiting[-1]
            k = next(rest, None)
            if k is None:
                waiting.pop()
                done.setdefault(n)
            elif k not in done:
                waiting.append((k, _read(nodes[k], maker, k)))

    for n in range(len(nodes)):
        place(n)
    return tuple(nodes[n] for n in done)


def _read(of: GraphNode, maker: Mapping[str, int], own: int) -> Iterator[int]:
    return iter([k for c in of.calls for a in c.arguments if (k := maker.get(a, own)) != own])


# Views, as far as subscripts say them without `/` and `%`.


def split_places(source: Sequence[int], shape: Sequence[int], names: Sequence[str]) -> list[str] | None:
    """The subscripts of an array of the shape `source` by the indices of one of the same elements in another shape.

    `names` are those indices. None if dimensions of the source are merged, so that a subscript is a quotient, or if an array
    has no elements or no dimensions.
    """
    if not source or not shape or prod(source) != prod(shape) or not prod(source):
        return None
    places: list[str] = []
    at = 0
    for size in source:
        taken: list[tuple[str, int]] = []
        left = size
        while left > 1:
            while at < len(shape) and shape[at] == 1:
                at += 1
            if at == len(shape) or left % shape[at]:
                return None
            left //= shape[at]
            taken.append((names[at], shape[at]))
            at += 1
        stride, terms = 1, list[str]()
        for name, extent in reversed(taken):
            terms.append(name if stride == 1 else f"{stride} * {name}")
            stride *= extent
        places.append(" + ".join(reversed(terms)) or "0")
    return places


def inner_views(of: GraphNode) -> list[GraphCall]:
    """The views of values that calls of the node make, which calls of the node read."""
    made = {r for c in of.calls if c.program is not None for r in c.results}
    read = {a for c in of.calls if c.program is not None for a in c.arguments}
    return [c for c in of.calls if c.program is None and c.results[0] in read and source_of(of, c) in made]


def source_of(of: GraphNode, view: GraphCall) -> str:
    """The value that a view is one of, through the views of the node before it."""
    views = {c.results[0]: c.arguments[0] for c in of.calls if c.program is None}
    name = view.arguments[0]
    while name in views:
        name = views[name]
    return name


def format_graph(g: Graph) -> str:
    """The graph as text, a node for each line or pair of braces, with a newline at the end."""
    lines = [f"graph {g.name} {{"]
    for n in g.nodes:
        if len(n.calls) == 1:
            lines.append(f"    node {n.name} {{ {n.calls[0].text} }}")
        else:
            lines += [f"    node {n.name} {{", *(f"        {c.text}" for c in n.calls), "    }"]
    return "\n".join([*lines, "}"]) + "\n"
