"""Brings a graph to calls of computes: sizes are fixed, constants folded, and each node that is left is written out.

One pass in the order of the nodes does this, since each step needs the one before: the type of a value is that of the compute
which makes it, and a shape that a node asks for is a constant by the time it is needed. Then the axes of all values come into
the order in which they lie in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tensorc_dsl.base.diagnostic import Note, TschedError, problem
from tensorc_dsl.graph.calls import Asks, Computes, Imported, Step, without_redundant_views
from tensorc_dsl.graph.expanding import EXPANSIONS, Expansion
from tensorc_dsl.graph.folding import EVALUATORS, fold
from tensorc_dsl.graph.graph import (
    MOST_ELEMENTS,
    NUMPY,
    REASON,
    Array,
    Graph,
    Node,
    Tensor,
    Unsupported,
    renamed,
    type_of,
)
from tensorc_dsl.graph.layouts import with_layouts
from tensorc_dsl.graph.operators import elementwise, movement, products, recurrent, reductions, windows
from tensorc_dsl.graph.operators.lowering import Computed, Definition, Known, Operand, Site, Viewed, Writer
from tensorc_dsl.graph.rewriting import rewritten

TABLE: Mapping[str, Writer] = {
    **elementwise.TABLE,
    **movement.TABLE,
    **products.TABLE,
    **recurrent.TABLE,
    **reductions.TABLE,
    **windows.TABLE,
}
"""Which function writes which operator."""

_WRITERS: Mapping[str, Writer] = {
    **TABLE,
    products.ATTENTION: products.attention,
    products.ROTATION: products.rotation,
    reductions.FLAT_SOFTMAX: partial(reductions.softmax, False, True),
}

_ASKS: Mapping[str, Asks] = {
    **dict.fromkeys(windows.CONVOLUTIONS, Asks.LAST),
    **dict.fromkeys(windows.POOLS, Asks.RATHER_LAST),
    **dict.fromkeys((*products.TABLE, products.ATTENTION, *recurrent.TABLE), Asks.FILE),
}
"""What operators ask of the order of axes; the others ask nothing."""


@problem(
    "E0941", "{count} of the model cannot be imported", help="export the model without them, or leave the part out"
)
def UNSUPPORTED(*, count: str) -> None: ...
@problem("E0942", "the size {dims} of the input `{name}` is open", help="give it: `--shape {name}={example}`")
def OPEN_SIZE(*, name: str, dims: str, example: str) -> None: ...
@problem("E0942", "the shape {given} does not fit the input `{name}`, which is {wanted}", help="{repair}")
def OTHER_SHAPE(*, name: str, given: str, wanted: str, repair: str) -> None: ...


def import_graph(graph: Graph, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int | float]) -> Imported:
    """The graph with inputs of these shapes, and scalar inputs of these values.

    Raises TschedError: E0942 if a size stays open or does not fit, E0941 with every node that is not supported.
    """
    types = _input_types(graph, shapes, values)
    graph = rewritten(graph)
    worker = _Importer(dict(graph.constants))
    for name, type_ in types.items():
        if name in values:
            worker.constants[name] = np.full(type_.shape, values[name], np.dtype(NUMPY[type_.dtype]))
        else:
            worker.types[name] = type_
    worker.run(graph.nodes)
    if worker.refused:
        notes = tuple(Note("note", f"{place}: {reason}") for place, reason in worker.refused)
        count = len(worker.refused)
        raise TschedError(UNSUPPORTED(None, notes, count=f"{count} node{'s' * (count != 1)}"))
    inputs = {name: t for name, t in types.items() if name not in values}
    return with_layouts(worker.imported(inputs, graph.outputs))


def _input_types(
    graph: Graph, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int | float]
) -> dict[str, Tensor]:
    """The types of the inputs. A dimension with a name has the same size in all inputs."""
    found: list[Exception] = []
    unknown = [n for n in (*shapes, *values) if n not in graph.inputs]
    for name in unknown:
        wanted = ", ".join(graph.inputs) or "none"
        raise TschedError(OTHER_SHAPE(None, name=name, given=str(list(shapes.get(name, ()))), wanted="none of the model",
                                      repair=f"its inputs are {wanted}"))  # fmt: skip
    named: dict[str, int] = {}
    for name, (_, dims) in graph.inputs.items():
        given = shapes.get(name)
        if given is None:
            continue
        if len(given) != len(dims) or any(isinstance(d, int) and d != g for d, g in zip(dims, given, strict=True)):
            wanted = f"[{', '.join('?' if d is None else str(d) for d in dims)}]"
            repair = "give as many sizes as it has dimensions, and those that it has"
            raise TschedError(OTHER_SHAPE(None, name=name, given=str(list(given)), wanted=wanted, repair=repair))
        for d, g in zip(dims, given, strict=True):
            if isinstance(d, str):
                named.setdefault(d, g)
    types: dict[str, Tensor] = {}
    for name, (dtype, dims) in graph.inputs.items():
        shape = shapes.get(name) or [named.get(d, d) if isinstance(d, str) else d for d in dims]
        missing = [d for d in shape if not isinstance(d, int)]
        if missing and name not in values:
            shown = " and ".join("without a name" if d is None else f"`{d}`" for d in missing)
            example = ",".join(str(d) if isinstance(d, int) else "1" for d in shape)
            found.append(TschedError(OPEN_SIZE(None, name=name, dims=shown, example=example)))
        types[name] = Tensor(dtype, tuple(d if isinstance(d, int) else 1 for d in shape))
    if found:
        raise TschedError(*(d for e in found if isinstance(e, TschedError) for d in e.diagnostics))
    return types


_UNKNOWN = "this operator is not supported"

_TOLD = ("Shape", "Size")
"""Operators of the types of their inputs."""


@dataclass(slots=True)
class _Importer:
    constants: dict[str, Array]
    types: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    calls: dict[int, tuple[Computed, Computed]] = field(default_factory=dict[int, tuple[Computed, Computed]])
    """For the number of a step what it calls, and that with numbers as parameters."""
    steps: list[Step] = field(default_factory=list[Step])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _same: dict[str, str] = field(default_factory=dict[str, str])
    """Values that are others by another name."""
    _lost: set[str] = field(default_factory=set[str])
    """Values of nodes that are refused, and those that need them."""

    def run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "If" and self._branch(node):
                continue
            if self._lost.intersection(node.inputs):
                self._lost |= {*node.outputs} - {""}
                if not any(node.op in known for known in (_WRITERS, EVALUATORS, EXPANSIONS, _TOLD)):
                    self.refused.append((f"`{node.place}` ({node.op})", node.attributes.get(REASON, _UNKNOWN)))
                continue
            try:
                self._node(node)
            except Unsupported as e:
                self.refused.append((f"`{node.place}` ({node.op})", str(e)))
                self._lost |= {*node.outputs} - {""}

    def _branch(self, node: Node) -> bool:
        """Take the branch of an `If` whose condition is constant; False if it is not."""
        condition = self.constants.get(self._same.get(node.inputs[0], node.inputs[0]))
        taken = node.attributes.get("then_branch" if condition is not None and condition.any() else "else_branch")
        if condition is None or not isinstance(taken, Graph):
            return False
        own = {o for n in taken.nodes for o in n.outputs if o} | set(taken.constants)
        # The names of a branch are its own: another one may have the same.
        names = {name: f"{node.place}/{name}" for name in own}
        self.constants |= {names[name]: value for name, value in taken.constants.items()}
        inner = [renamed(n, names) for n in taken.nodes]
        ends = [
            Node("Identity", (names.get(source, source),), (name,), {}, node.place)
            for source, name in zip(taken.outputs, node.outputs, strict=True)
            if name
        ]
        self.run([*inner, *ends])
        return True

    def _node(self, node: Node) -> None:
        inputs = tuple(self._same.get(i, i) for i in node.inputs)
        node = replace(node, inputs=inputs)
        if node.op in _TOLD:
            self._told(node)
            return
        given = [self.constants.get(i) for i in inputs]
        if all(v is not None or not i for v, i in zip(given, inputs, strict=True)):
            made = fold(node, given)
            if made is not None:
                self.constants |= {name: v for name, v in zip(node.outputs, made, strict=False) if name}
                return
        operands = tuple(map(self._operand, inputs))
        if node.op in EXPANSIONS:
            made = Expansion(node)
            EXPANSIONS[node.op](Site(node, operands), made)
            self.constants |= made.constants
            self.run(made.nodes)
            return
        if node.op not in _WRITERS:
            raise Unsupported(node.attributes.get(REASON, _UNKNOWN))
        lowered = _WRITERS[node.op](Site(node, operands))
        match lowered:
            case Known(values=values):
                self.constants |= dict(zip(node.outputs, values, strict=False))
            case Viewed(source=source, type=type_):
                self._view(source, node.outputs[0], type_)
            case Computed():
                self._call(node, lowered, operands)

    def _told(self, node: Node) -> None:
        """A shape, or a number of elements."""
        x = self._operand(node.inputs[0])
        assert x is not None
        start, end = node.attributes.get("start") or 0, node.attributes.get("end")
        shape = np.array(x.shape, np.int64)
        self.constants[node.outputs[0]] = shape[start:end] if node.op == "Shape" else np.array(x.type.size, np.int64)

    def _operand(self, name: str) -> Operand | None:
        if not name:
            return None
        value = self.constants.get(name)
        return Operand(name, self.types[name] if value is None else type_of(value), value)

    def _view(self, source: str, name: str, type_: Tensor) -> None:
        if source in self.constants:
            self.constants[name] = self.constants[source].reshape(type_.shape)
        elif self.types[source] == type_:
            self._same[name] = self._same.get(source, source)
            self.types[name] = type_
        else:
            self.steps.append(Step("", (source,), (name,)))
            self.types[name] = type_

    def _call(self, node: Node, made: Computed, operands: Sequence[Operand | None]) -> None:
        for t in made.types:
            if t.size > MOST_ELEMENTS:
                raise Unsupported(f"a result of the type {t}, which is too large")
        general = made
        if any(o is not None and o.scalar is not None and o.type.is_float for o in operands):
            others = tuple(replace(o, varies=o.type.is_float) if o is not None else None for o in operands)
            again = _WRITERS[node.op](Site(node, others))
            assert isinstance(again, Computed)
            general = again
        # A compute leaves out what the node does, or makes all; what the node does not name is dropped.
        named = [o for o in node.outputs if o]
        count = len(made.types)
        results = named if len(named) == count else [*node.outputs, *[""] * count][:count]
        self.calls[len(self.steps)] = made, general
        self.steps.append(Step("called", (), tuple(results), _ASKS.get(node.op, Asks.NOTHING)))
        self.types |= dict(zip(results, made.types, strict=True))

    def _named(self) -> Computes:
        """Name the computes of all calls. Numbers are literals, but for those that equal nodes have different ones of."""
        literals: dict[Definition, set[Definition]] = {}
        for made, general in self.calls.values():
            literals.setdefault(general.definition, set()).add(made.definition)
        computes = Computes()
        for number, (made, general) in self.calls.items():
            chosen = made if len(literals[general.definition]) == 1 else general
            name = computes.add(chosen.stem, chosen.definition)
            self.steps[number] = replace(self.steps[number], compute=name, arguments=chosen.arguments)
            self.constants |= chosen.tables
        return computes

    def imported(self, inputs: dict[str, Tensor], outputs: Sequence[str]) -> Imported:
        """The calls, without those that no output needs."""
        computes = self._named()
        ends: list[str] = []
        for name in outputs:
            source = self._same.get(name, name)
            if source != name or name in self.constants or name in inputs or name in ends:
                # An input, a constant or another value by a name of its own.
                end = f"{name}/output" if source == name else name
                self.types[end] = self.types[source] if source in self.types else type_of(self.constants[source])
                self.steps.append(Step("", (source,), (end,)))
                ends.append(end)
            else:
                ends.append(name)
        return without_redundant_views(
            Imported(inputs, tuple(ends), self.constants, computes.items, self.steps, self.types)
        )
