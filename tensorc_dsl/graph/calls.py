"""A model as calls of computes with literal sizes: what an import makes, and what is written to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Array, Tensor
from tensorc_dsl.graph.operators.lowering import Definition


class Asks(Enum):
    """What a call asks of the order of axes in memory."""

    LAST = "channels innermost"
    RATHER_LAST = "channels innermost, if they are there anyway"
    FILE = "the order of the file"
    NOTHING = "that its operands and results agree"


@frozen
class Step:
    """A call of the compute of that name, or without one a view; values by name, "" for a result that nobody reads."""

    compute: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    asks: Asks = Asks.NOTHING


@dataclass(slots=True)
class Computes:
    """Computes by name. Equal ones are one."""

    items: dict[str, Definition] = field(default_factory=dict[str, Definition])
    _names: dict[Definition, str] = field(default_factory=dict[Definition, str])

    def add(self, stem: str, definition: Definition) -> str:
        """The name of a compute, `stem` with a number."""
        name = self._names.get(definition)
        if name is None:
            number = 1
            while (name := f"{stem}_{number}") in self.items:
                number += 1
            self._names[definition] = name
            self.items[name] = definition
        return name


@dataclass(slots=True)
class Imported:
    """A model as calls: `types` has those of all values, `constants` those values that are weights."""

    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    constants: dict[str, Array]
    computes: Mapping[str, Definition]
    steps: Sequence[Step]
    types: dict[str, Tensor]


def without_redundant_views(model: Imported) -> Imported:
    """The model without views of views, without views of a value's own shape, and without what no output needs."""
    whole: dict[str, str] = {}
    """The values that views are of."""
    same: dict[str, str] = {}
    steps: list[Step] = []
    for step in model.steps:
        if step.compute:
            steps.append(replace(step, arguments=tuple(same.get(a, a) for a in step.arguments)))
            continue
        (x,), (y,) = step.arguments, step.results
        base = whole.get(x, same.get(x, x))
        if y not in model.outputs and base not in model.constants and model.types[base] == model.types[y]:
            same[y] = base
        else:
            whole[y] = base
            steps.append(replace(step, arguments=(base,)))
    return _needed(replace(model, steps=steps))


def _needed(model: Imported) -> Imported:
    """The model without what no output needs."""
    needed = set(model.outputs)
    steps: list[Step] = []
    for step in reversed(model.steps):
        if needed.intersection(step.results):
            steps.append(step)
            needed |= set(step.arguments)

    called = {s.compute for s in steps}
    computes = {name: d for name, d in model.computes.items() if name in called}
    constants = {name: v for name, v in model.constants.items() if name in needed}
    return replace(model, steps=steps[::-1], computes=computes, constants=constants)
