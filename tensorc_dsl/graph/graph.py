"""The graph of a model: nodes in order, with named values, their types and the constants among them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen

Array = NDArray[Any]

MOST_ELEMENTS = 1 << 32
"""The largest tensor that is imported: sizes of a hostile file are refused before anything is made of them."""

DTYPES: Mapping[str, str] = {
    "float32": "f32", "float64": "f64", "float16": "f16", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "bfloat16": "bf16",
}  # fmt: skip
"""The element types of arrays that values have, with their names in the language."""

NUMPY: Mapping[str, str] = {ours: theirs for theirs, ours in DTYPES.items()} | {"bf16": "uint16"}
"""The element types of NumPy in memory. Of bf16, which NumPy lacks, it is that of the bits."""


def onnx_dtype(dtype: str) -> np.dtype[Any]:
    """The element type of a constant in an import; that of bf16 is from `ml_dtypes`, which comes with the extras."""
    if dtype == "bf16":
        from ml_dtypes import bfloat16

        return np.dtype(bfloat16)
    return np.dtype(NUMPY[dtype])


FLOATS = ("f16", "bf16", "f32", "f64")


@frozen
class Tensor:
    """The type of a value: its element type, by the name in the language, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]" if self.shape else self.dtype


def type_of(value: Array) -> Tensor:
    """The type of a constant."""
    return Tensor(DTYPES[value.dtype.name], value.shape)


_Value = TypeVar("_Value")


class Asked(Mapping[str, _Value]):
    """The attributes or arguments of a node. `names` are those that its translation asks for: what it ignores may change the
    result. Who takes all of them asks for each."""

    def __init__(self, given: Mapping[str, _Value]) -> None:
        self._given = given
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> _Value:
        self.names.add(name)
        return self._given[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


@frozen
class Node:
    """An operator on values by name; an optional input or output that is left out is "".

    `place` names the node in messages: its name in the file, or its number.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """By name: int, float, str, list of these, array, or for a branch or a body a `Graph`."""
    place: str


REASON = "reason"
"""The attribute of a node that no operator of the table is, with the reason, if its frontend knows one."""


RANDOM = "random numbers: export the model in evaluation mode, or let them be an input"


Dims = tuple[int | str | None, ...] | None
"""The dimensions of an input before its sizes are known: each is a number, a name, or None. None if their number is open."""


@dataclass(slots=True)
class Graph:
    """A model before its sizes are known. Inputs have their element types and dimensions."""

    name: str
    inputs: dict[str, tuple[str, Dims]]
    outputs: tuple[str, ...]
    nodes: list[Node]
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    opset: int = 0
    """That of the operators of a file, whose nodes have to fit what ONNX says of these; 0 for what was traced."""
    traced: dict[str, tuple[str, Tensor]] = field(default_factory=dict[str, tuple[str, Tensor]])
    """The types that values had when they were traced, each with the place of its node."""


class Unsupported(Exception):
    """A node that cannot be written as a compute, with the reason."""


def live(nodes: Sequence[Node], wanted: Collection[str]) -> list[Node]:
    """The nodes, in their order, that the wanted values depend on. Outputs after the first that none needs are nameless."""
    needed = set(wanted)
    out: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(o for o in node.outputs if o):
            first, *others = node.outputs
            out.append(replace(node, outputs=(first, *(o if o in needed else "" for o in others))))
            needed |= set(node.inputs)
            for branch in node.attributes.values():
                if isinstance(branch, Graph):
                    needed |= free_names(branch)
    return out[::-1]


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The node with other names for these values, in its branches too, but for values that a branch makes itself."""
    attributes = {
        name: _renamed_branch(value, names) if isinstance(value, Graph) else value
        for name, value in node.attributes.items()
    }
    inputs, outputs = (tuple(names.get(v, v) for v in some) for some in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs, attributes=attributes)


def _renamed_branch(branch: Graph, names: Mapping[str, str]) -> Graph:
    outer = {name: names[name] for name in free_names(branch).intersection(names)}
    nodes = [renamed(n, outer) for n in branch.nodes]
    return replace(branch, nodes=nodes, outputs=tuple(outer.get(o, o) for o in branch.outputs))


def free_names(graph: Graph) -> set[str]:
    """The values of a branch that come from the graph around it."""
    own = {*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs)}
    used = {*graph.outputs, *(i for n in graph.nodes for i in n.inputs)}
    for node in graph.nodes:
        for branch in node.attributes.values():
            if isinstance(branch, Graph):
                used |= free_names(branch)
    return used - own


def anchor(node: Node) -> str:
    """A name of which no other node has the like: names of nodes may be equal, and those of values are not."""
    return next((o for o in node.outputs if o), node.place)


def copied(body: Graph, prefix: str, given: Mapping[str, str]) -> tuple[list[Node], dict[str, Array], list[str]]:
    """The nodes, constants and outputs of a copy of a body, whose own values have the prefix, and its inputs these names."""
    own = {o for n in body.nodes for o in n.outputs if o} | set(body.constants)
    names = {name: f"{prefix}/{name}" for name in own} | dict(given)
    nodes = [renamed(n, names) for n in live(body.nodes, body.outputs)]
    constants = {names[name]: value for name, value in body.constants.items()}
    return nodes, constants, [names.get(o, o) for o in body.outputs]


def literal(value: Any, dtype: str) -> str:
    """The literal of a value of a type. Negative numbers are in parentheses."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in FLOATS:
        x = float(value)
        if np.isnan(x):
            return "nan"
        text = "inf" if np.isinf(x) else repr(abs(x))
        return f"(-{text})" if np.copysign(1.0, x) < 0 else text
    return f"(-{-int(value)})" if value < 0 else str(int(value))
