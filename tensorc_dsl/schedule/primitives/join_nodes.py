"""`join_nodes`: make one node of several nodes of the graph of a model."""

from __future__ import annotations

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.graph import GraphNode, in_order, inner_views, links, sizes_of, source_of, split_places, values_of
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.schedule.nests import NO_GRAPH, the_graph, the_node
from tensorc_dsl.schedule.step import NodeRef, Rewrite, graph_step, refusal

MOST_STAGES = 256
"""The largest number of stages of a node: it becomes one compute, and each schedule of it takes time for each of them."""


@refusal("E0667", "there is nothing to join", help="name the nodes: `join_nodes(p, c)`")
def NOTHING(*focus: str) -> None: ...
@refusal(
    "E0667",
    "the nodes cannot be one: `{outside}` reads what they make, and they read what is made of it",
    help="join `{outside}`, too, or leave the nodes apart",
)
def NOT_CONVEX(*focus: str, outside: str) -> None: ...
@refusal(
    "E0667",
    "the view `{view}` would be inside, which makes {shape} of {source}: a subscript would need `/` and `%`",
    help="leave the nodes before and behind it apart: at the edge of a node a view costs nothing",
)
def MERGING_VIEW(*focus: str, view: str, shape: str, source: str) -> None: ...
@refusal("E0667", "the node would have {count} stages; {most} are allowed", help="join fewer nodes")
def TOO_MANY(*focus: str, count: int, most: int) -> None: ...


@graph_step(NO_GRAPH, NOTHING, NOT_CONVEX, MERGING_VIEW, TOO_MANY)
def join_nodes(program: Program, *nodes: NodeRef) -> Rewrite[NodeRef]:
    """The nodes of a graph become one, which computes all of their calls: a task of its own.

    h = conv2d(x, w); y = relu(h)  ->  compute conv2d_relu(X, W) -> Y { let h = conv2d(X, W); Y = relu(h) }

    No path may lead out of them and back: what it makes would be needed before it can be computed. A view between two of
    their calls has to be one that subscripts say without `/` and `%`; at the edge of the node it stays outside.
    In TVM: `FuseOps`.
    """
    graph = the_graph(program)
    inside = frozenset(the_node(program, ref)[1] for ref in nodes)
    members = [graph.nodes[n] for n in sorted(inside)]
    names = [m.name for m in members]
    if not members:
        raise NOTHING(program)
    if len(members) == 1:
        return Rewrite(program, NodeRef(names[0]))
    outside = links(graph).path_behind(inside, max(inside))
    if outside:
        first = graph.nodes[outside[0]].name
        raise NOT_CONVEX(program, *names, first, outside=first)
    calls = tuple(c for m in members for c in m.calls)
    stages = sum(len(blocks(c.program)) for c in calls if c.program is not None)
    if stages > MOST_STAGES:
        raise TOO_MANY(program, *names, count=stages, most=MOST_STAGES)
    joined = GraphNode(names[-1], calls)
    values = values_of(graph)
    for view in inner_views(joined):
        source, shape = sizes_of(values[source_of(joined, view)]), sizes_of(values[view.results[0]])
        if split_places(source, shape, [""] * len(shape)) is None:
            raise MERGING_VIEW(program, *names, view=view.name, shape=str(list(shape)), source=str(list(source)))
    # It stands in the place of its last member; what reads one of the others, and stood before, moves behind it.
    rest = [n for k, n in enumerate(graph.nodes) if k not in inside or k == max(inside)]
    made = replace(graph, nodes=in_order([joined if n is members[-1] else n for n in rest]))
    return Rewrite(made, NodeRef(joined.name))
