"""Control flow that is decided when a model is imported: branches, loops of a known length, and sequences of values.

Both branches of a computed condition are computed, and one is chosen, since a node has no effect but its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tensorc_dsl.graph.graph import Array, Graph, Node, Tensor, Unsupported, anchor, copied

MOST_NODES = 1 << 12
"""The nodes that a loop becomes."""


class Runner(Protocol):
    """What brings nodes to calls, one after another."""

    sequences: dict[str, tuple[str, ...]]
    """Values that are sequences: the names of their elements."""

    def run(self, nodes: Sequence[Node]) -> None:
        """Bring the nodes to calls, in their order."""
        ...

    def store(self, name: str, value: Array) -> None:
        """Let a value be this constant."""
        ...

    def constant(self, name: str) -> Array | None:
        """The content of a value, if it is constant."""
        ...

    def type(self, name: str) -> Tensor | None:
        """The type of a value; None for a sequence."""
        ...

    def is_lost(self, names: Sequence[str]) -> bool:
        """Whether one of the values depends on a node that is refused, which loses those that need it."""
        ...

    def lose(self, node: Node) -> None:
        """Let the outputs of a node depend on one that is refused."""
        ...


class _Copies:
    """Adds nodes and copies of graphs in the place of a node, under names of its own."""

    def __init__(self, runner: Runner, node: Node) -> None:
        self.runner, self.node, self._count = runner, node, 0

    def name(self) -> str:
        self._count += 1
        return f"{anchor(self.node)}/{self._count}"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = self.name()
        self.runner.store(name, np.asarray(value, dtype))
        return name

    def emit(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = to or self.name()
        self.runner.run([Node(op, inputs, (name,), attributes, self.node.place)])
        return name

    def copy(self, body: Graph, mark: str, given: Mapping[str, str]) -> list[str]:
        """The outputs of a copy of a graph whose inputs have other names."""
        nodes, constants, ends = copied(body, f"{anchor(self.node)}/{mark}", given)
        for name, value in constants.items():
            self.runner.store(name, value)
        self.runner.run(nodes)
        return ends

    def alias(self, sources: Sequence[str], names: Sequence[str]) -> None:
        """Let values be others by these names; "" for one that nothing reads."""
        for source, name in zip(sources, names, strict=False):
            if name:
                self.emit("Identity", source, to=name)

    def scalar(self, condition: str) -> str:
        """A condition without dimensions."""
        return self.emit("Reshape", condition, self.constant([]))

    def chosen(self, condition: str, first: str, second: str, what: str) -> str:
        """One of two values of equal types."""
        types = self.runner.type(first), self.runner.type(second)
        if types[0] is None or types[0] != types[1]:
            shown = " or ".join("a sequence" if t is None else str(t) for t in types)
            raise Unsupported(
                f"{what} is {shown} by a computed condition: give it one shape, or make the condition constant"
            )
        return first if first == second else self.emit("Where", condition, first, second)


# --- branches and loops ------------------------------------------------------------------------------------------------


def _branch(runner: Runner, node: Node) -> None:
    branches = [node.attributes.get(name) for name in ("then_branch", "else_branch")]
    graphs = [b for b in branches if isinstance(b, Graph)]
    if len(graphs) != 2 or not node.inputs or any(len(b.outputs) != len(node.outputs) for b in graphs):
        raise Unsupported("branches that do not fit it")
    out, condition = _Copies(runner, node), runner.constant(node.inputs[0])
    if condition is not None:
        out.alias(out.copy(graphs[0 if condition.any() else 1], "", {}), node.outputs)
        return
    first, second = (out.copy(b, mark, {}) for b, mark in zip(graphs, ("then", "else"), strict=True))
    if runner.is_lost([*first, *second]):
        runner.lose(node)
        return
    flag = out.scalar(node.inputs[0])
    for a, b, name in zip(first, second, node.outputs, strict=True):
        if name:
            out.alias([out.chosen(flag, a, b, f"its output `{name}`")], [name])


def _loop(runner: Runner, node: Node) -> None:
    """A copy of the body for each step. Where the end is computed, later steps keep the states of the last one."""
    body = node.attributes.get("body")
    trips, going, *states = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    count = len(states)
    if not isinstance(body, Graph) or len(body.inputs) != count + 2 or len(body.outputs) <= count:
        raise Unsupported("a body that does not fit the inputs")
    most = runner.constant(trips) if trips else None
    if trips and most is None:
        raise Unsupported("the number of its steps is computed: give the input that tells it a value with `--set`")
    limit = None if most is None else int(most.reshape(-1)[0])
    out, scans = _Copies(runner, node), [list[str]() for _ in body.outputs[count + 1 :]]
    flag, goes_on, step = "", True, 0
    if going:
        first = runner.constant(going)
        goes_on = first is None or bool(first.any())
        flag = out.scalar(going) if first is None else ""
    while goes_on and (limit is None or step < limit):
        if flag and (scans or limit is None or limit * (len(body.nodes) + 2) > MOST_NODES):
            what = (
                "the sizes of its outputs depend" if scans and limit is not None else "the number of its steps depends"
            )
            raise Unsupported(f"{what} on data: make its condition constant")
        if step * (len(body.nodes) + 2) > MOST_NODES:
            raise Unsupported(f"more than {step} steps of {len(body.nodes)} nodes")
        number, true = out.constant(step), out.constant(True, np.bool_)
        ends = out.copy(body, str(step), dict(zip(body.inputs, (number, true, *states), strict=True)))
        if runner.is_lost(ends):
            runner.lose(node)
            return
        made = ends[1 : count + 1]
        if flag:
            made = [out.chosen(flag, a, b, "a state") for a, b in zip(made, states, strict=True)]
        states = made
        for elements, end in zip(scans, ends[count + 1 :], strict=True):
            elements.append(end)
        last = runner.constant(ends[0])
        if last is not None:
            goes_on = bool(last.any())
        else:
            flag = out.emit("And", flag, out.scalar(ends[0])) if flag else out.scalar(ends[0])
        step += 1
    out.alias(states, node.outputs)
    for elements, name in zip(scans, node.outputs[count:], strict=False):
        if name and not elements:
            raise Unsupported("an output of no steps, whose size is unknown")
        if name:
            out.emit("Concat", *(out.emit("Unsqueeze", e, out.constant([0])) for e in elements), to=name, axis=0)


# --- sequences ---------------------------------------------------------------------------------------------------------


def _elements(runner: Runner, name: str) -> tuple[str, ...]:
    found = runner.sequences.get(name)
    if found is None:
        raise Unsupported("what it reads is no sequence")
    return found


def _position(runner: Runner, node: Node, n: int, size: int, default: int, last: int) -> int:
    """The place in a sequence that a node names, counted from the front; it may be as large as `last`."""
    if n >= len(node.inputs) or not node.inputs[n]:
        return default
    found = runner.constant(node.inputs[n])
    if found is None:
        raise Unsupported("its position is computed, and has to be constant")
    at = int(found.reshape(-1)[0])
    if not -size <= at <= last:
        raise Unsupported(f"the element {at} of {size}")
    return at + size if at < 0 else at


def _constructed(runner: Runner, node: Node) -> None:
    runner.sequences[node.outputs[0]] = node.inputs


def _inserted(runner: Runner, node: Node) -> None:
    held = _elements(runner, node.inputs[0])
    at = _position(runner, node, 2, len(held), len(held), len(held))
    runner.sequences[node.outputs[0]] = (*held[:at], node.inputs[1], *held[at:])


def _erased(runner: Runner, node: Node) -> None:
    held = _elements(runner, node.inputs[0])
    at = _position(runner, node, 1, len(held), len(held) - 1, len(held) - 1)
    runner.sequences[node.outputs[0]] = (*held[:at], *held[at + 1 :])


def _taken(runner: Runner, node: Node) -> None:
    held = _elements(runner, node.inputs[0])
    at = _position(runner, node, 1, len(held), 0, len(held) - 1)
    if not held:
        raise Unsupported("an element of a sequence that has none")
    _Copies(runner, node).alias([held[at]], node.outputs)


def _counted(runner: Runner, node: Node) -> None:
    runner.store(node.outputs[0], np.array(len(_elements(runner, node.inputs[0]))))


def _joined(runner: Runner, node: Node) -> None:
    held, axis = _elements(runner, node.inputs[0]), node.attributes.get("axis", 0)
    out = _Copies(runner, node)
    if node.attributes.get("new_axis", 0):
        held = tuple(out.emit("Unsqueeze", e, out.constant([axis])) for e in held)
    if not held:
        raise Unsupported("a sequence without elements")
    out.emit("Concat", *held, to=node.outputs[0], axis=axis)


def _cut(runner: Runner, node: Node) -> None:
    source, asked = (*node.inputs, "", "")[:2]
    x, axis = runner.type(source), int(node.attributes.get("axis", 0))
    if x is None or not -x.rank <= axis < x.rank:
        raise Unsupported("what it cuts is no tensor with this axis")
    size = x.shape[axis]
    sizes = [1] * size
    if asked:
        given = runner.constant(asked)
        if given is None:
            raise Unsupported("the sizes of its parts are computed, and have to be constant")
        sizes = [int(n) for n in given.reshape(-1)]
        if given.ndim == 0 and sizes[0] > 0:
            sizes = [min(sizes[0], size - k) for k in range(0, size, sizes[0])]
    out = _Copies(runner, node)
    if len(sizes) > MOST_NODES:
        raise Unsupported(f"{len(sizes)} parts")
    names = tuple(out.name() for _ in sizes)
    if names:
        runner.run([Node("Split", (source, out.constant(sizes)), names, {"axis": axis}, node.place)])
    if not asked and not node.attributes.get("keepdims", 1):
        names = tuple(out.emit("Squeeze", n, out.constant([axis])) for n in names)
    runner.sequences[node.outputs[0]] = names


CONTROL: Mapping[str, Callable[[Runner, Node], None]] = {
    "If": _branch,
    "Loop": _loop,
    "SequenceEmpty": _constructed,
    "SequenceConstruct": _constructed,
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceAt": _taken,
    "SequenceLength": _counted,
    "ConcatFromSequence": _joined,
    "SplitToSequence": _cut,
}
"""What runs the nodes of an operator, or names what its results are."""
