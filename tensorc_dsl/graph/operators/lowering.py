"""What an operator is given and makes: the operands of a node, and the text of a compute with literal sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Array, Node, Tensor, Unsupported, literal, type_of


@frozen
class Operand:
    """An input of a node: its type, and its content if it is constant."""

    name: str
    type: Tensor
    value: Array | None = None
    varies: bool = False
    """Whether a constant of one element is a parameter like others, since equal nodes have other ones."""

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def scalar(self) -> str | None:
        """The literal of a constant with one element; None for other operands."""
        if self.value is None or self.value.size != 1 or self.varies:
            return None
        return literal(self.value.reshape(()).item(), self.dtype)


@frozen
class Parameter:
    name: str
    type: Tensor
    constant: bool

    def __str__(self) -> str:
        return f"{self.name}: {'const ' * self.constant}{self.type}"


@frozen
class Definition:
    """A compute without its name. Nodes with equal definitions share one compute."""

    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    stages: tuple[str, ...]
    finite: tuple[str, ...] = ()
    """The parameters without infinities and NaN."""

    def text(self, name: str) -> str:
        """The item."""
        inputs, outputs = (", ".join(map(str, some)) for some in (self.parameters, self.results))
        assumed = f"\nassume {', '.join(f'{p} finite' for p in self.finite)}\n" if self.finite else " "
        lines = "".join(f"    {s}\n" for s in self.stages)
        return f"compute {name}({inputs}) -> {outputs}{assumed}{{\n{lines}}}\n"


@frozen
class Computed:
    """The outputs of a node are those of a call: `arguments` are values by name; `stem` begins the name of the compute."""

    stem: str
    definition: Definition
    arguments: tuple[str, ...]
    tables: Mapping[str, Array]
    """Constants that the call needs beside those of the graph, by the names in `arguments`."""

    @property
    def types(self) -> tuple[Tensor, ...]:
        return tuple(r.type for r in self.definition.results)

    def without_empty(self) -> Computed:
        """The call without its results that have no elements, which are no tensors of the language."""
        empty = tuple(f"{r.name}[" for r in self.definition.results if not r.type.size)
        if not empty:
            return self
        results = tuple(r for r in self.definition.results if r.type.size)
        stages = tuple(s for s in self.definition.stages if not s.startswith(empty))
        return replace(self, definition=replace(self.definition, results=results, stages=stages))


@frozen
class Viewed:
    """The output of a node is a value, with the same elements in another shape."""

    source: str
    type: Tensor

    @property
    def types(self) -> tuple[Tensor, ...]:
        return (self.type,)


@frozen
class Known:
    """The outputs of a node are constants."""

    values: tuple[Array, ...]


Lowered = Computed | Viewed | Known


@dataclass(slots=True)
class Site:
    """A node with the operands of its inputs; None for an optional one that is left out."""

    node: Node
    operands: tuple[Operand | None, ...]
    _parameters: dict[str, tuple[Parameter, str]] = field(default_factory=dict[str, tuple[Parameter, str]])
    _tables: dict[str, Array] = field(default_factory=dict[str, Array])
    stages: list[str] = field(default_factory=list[str])
    _finite: list[str] = field(default_factory=list[str])
    asked: set[int] = field(default_factory=set[int])
    """The numbers of the inputs that the translation asks for."""

    # --- what the node says ---

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute of the node."""
        found = self.node.attributes.get(name)
        return default if found is None else found

    def word(self, name: str, usual: str, *others: str) -> str:
        """The text of an attribute, which is one of these; the first if it is left out. Raises Unsupported."""
        found = self.attribute(name, usual)
        if found not in (usual, *others):
            known = ", ".join(f"`{w}`" for w in (usual, *others))
            raise Unsupported(f"`{name}` is `{found}`, which is none of {known}")
        return found

    def given(self, n: int) -> Operand:
        """The input of that number. Raises Unsupported if it is left out."""
        found = self.optional(n)
        if found is None:
            raise Unsupported(f"input {n + 1} is missing")
        return found

    def optional(self, n: int) -> Operand | None:
        """The input of that number, or None."""
        self.asked.add(n)
        return self.operands[n] if n < len(self.operands) else None

    def constant(self, n: int, what: str) -> Array | None:
        """The content of an optional input, which has to be constant. Raises Unsupported."""
        found = self.optional(n)
        if found is None:
            return None
        if found.value is None:
            raise Unsupported(
                f"`{what}` is computed, and has to be constant: give the inputs that tell it values by `--set`"
            )
        return found.value

    def ints(self, n: int, what: str) -> list[int] | None:
        """As `constant`, as a list of ints."""
        found = self.constant(n, what)
        return None if found is None else [int(v) for v in found.reshape(-1)]

    def wants(self, n: int) -> bool:
        """Whether the node names its output of that number."""
        return n < len(self.node.outputs) and bool(self.node.outputs[n])

    # --- the compute ---

    def parameter(self, name: str, operand: Operand, shape: tuple[int, ...] | None = None) -> str:
        """The name of a parameter for the operand. It is constant if the operand is.

        Raises Unsupported if the operand has another shape than the one that the operator asks for.
        """
        if shape is not None and operand.shape != shape:
            raise Unsupported(f"{operand.type}, where its other inputs ask for the shape {list(shape)}")
        self._parameters[name] = Parameter(name, operand.type, operand.value is not None), operand.name
        return name

    def table(self, name: str, content: Array) -> str:
        """The name of a constant parameter with that content."""
        value = next(o for o in self.node.outputs if o) + f".{name}"
        self._tables[value] = content
        return self.parameter(name, Operand(value, type_of(content), content))

    def finite(self, name: str, content: Array | None) -> None:
        """Let the compute assume that the parameter has no infinities and no NaN, if it is constant and has none."""
        if content is not None and np.isfinite(content).all():
            self._finite.append(name)

    def stage(self, text: str) -> None:
        """Add a line to the compute."""
        self.stages.append(text)

    def computed(self, stem: str, *results: tuple[str, Tensor]) -> Computed:
        """The compute with the parameters and stages so far."""
        parameters = [p for p, _ in self._parameters.values()]
        made = tuple(Parameter(name, type_, False) for name, type_ in results)
        return Computed(
            stem,
            Definition(tuple(parameters), made, tuple(self.stages), tuple(self._finite)),
            tuple(name for _, name in self._parameters.values()),
            self._tables,
        )


Writer = Callable[[Site], Lowered]


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises Unsupported if there is none."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"there is no axis {axis} of {rank} dimensions")
    return axis % rank if rank else 0


def axes_of(axes: Iterable[int], rank: int) -> list[int]:
    """Axes counted from the front, in order. Raises Unsupported."""
    found = [axis_of(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise Unsupported("an axis is named twice")
    return sorted(found)


LETTERS = "ijklmnopqrstuvw"


def indices(rank: int) -> list[str]:
    """Names of indices of so many dimensions."""
    if rank > len(LETTERS):
        raise Unsupported(f"it has {rank} dimensions")
    return list(LETTERS[:rank])


def place(name: str, subscripts: Sequence[str]) -> str:
    """`name[i, j]`; the name alone without subscripts."""
    return f"{name}[{', '.join(subscripts)}]" if subscripts else name


def each_of(site: Site, name: str, o: Operand, index: str, count: int) -> str:
    """The element of an operand that has one number for all, or one for each of `count`. Raises Unsupported."""
    if o.type.rank > 1 or o.type.size not in (1, count):
        raise Unsupported(f"{o.type}, where there are {count} numbers or one")
    return place(site.parameter(name, o), ["0" if o.type.size == 1 else index][: o.type.rank])


def ranged(names: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Indices with their ranges, `i in 4`."""
    return [f"{n} in {size}" for n, size in zip(names, shape, strict=True)]


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all are broadcast to. Raises Unsupported."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as e:
        raise Unsupported("shapes that do not broadcast") from e


def stretched(shape: Sequence[int], names: Sequence[str]) -> list[str]:
    """The subscripts of an operand of the shape in a result with these indices: dimensions of size 1 are stretched."""
    own = names[len(names) - len(shape) :]
    return ["0" if size == 1 else n for n, size in zip(own, shape, strict=True)]


def offset(index: str, by: int) -> str:
    """`index + by`."""
    return index if by == 0 else f"{index} + {by}" if by > 0 else f"{index} - {-by}"


def scaled(index: str, factor: int) -> str:
    """`index * factor`."""
    return index if factor == 1 else f"{index} * {factor}"


def onnx_index(index: str, size: int) -> str:
    """An index from data, negative ones from the end, that stays inside whatever the data."""
    return f"{index} % {size}"


def same_padding(size: int, extent: int, stride: int, upper: bool) -> tuple[int, int]:
    """The padding at both ends of SAME_UPPER or SAME_LOWER: the result has ceil(size / stride) elements."""
    total = max(0, (-(-size // stride) - 1) * stride + extent - size)
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def viewed(x: Operand, shape: Sequence[int]) -> Lowered:
    """The elements of an operand in another shape. Raises Unsupported if there are not as many."""
    if prod(shape) != x.type.size or min(shape, default=0) < 0:
        raise Unsupported(f"{x.type} in the shape {list(shape)}")
    return Viewed(x.name, Tensor(x.dtype, tuple(shape)))


def mapped(site: Site, stem: str, x: Operand, shape: Sequence[int], source: Sequence[str]) -> Lowered:
    """A result whose element at `i, j, …` is that of `x` at the subscripts `source`."""
    names = indices(len(shape))
    site.stage(f"{place('Y', ranged(names, shape))} = {place(site.parameter('X', x), source)}")
    return site.computed(stem, ("Y", Tensor(x.dtype, tuple(shape))))
