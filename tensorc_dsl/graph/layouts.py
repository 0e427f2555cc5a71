"""Chooses the order of axes in which each value of a model lies in memory, and rewrites the computes for it.

Convolutions and pools want channels innermost; other computes take their operands as they are, and a view can if elements
stay where they are. Inputs and outputs of the model keep the order of the file. Each step has one of two states: all its
values in the order of the file, or all as they would be if the convolutions decided. The states are chosen together, so
that the fewest bytes are transposed: a minimum cut, since a transposition is paid between steps of different states.

More than two orders of a value would need approximations, and layouts in each operator would double its texts and tests.

Boykov, Kolmogorov: An experimental comparison of min-cut/max-flow algorithms (2004), section 2, for the reduction.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from tensorc_dsl.graph.axes import Axes, Order, channels_last, moves, ordered, plain, reshaped
from tensorc_dsl.graph.calls import Asks, Computes, Imported, Step, without_redundant_views
from tensorc_dsl.graph.graph import NUMPY, Array, Tensor
from tensorc_dsl.graph.operators.lowering import Definition, Parameter, indices, place, ranged


def with_layouts(model: Imported) -> Imported:
    """The model with its values in the orders that are best for it as a whole, and transpositions where these meet."""
    choice = _Choice(model)
    return without_redundant_views(_Rewriting(model, choice, choice.moved_steps()).result())


@dataclass
class _Choice:
    """The orders that convolutions ask for, carried through the other steps; and which steps take them."""

    model: Imported
    axes: dict[str, Axes] = field(init=False)
    orders: dict[str, Order] = field(default_factory=dict[str, Order])
    """Of values, as the convolutions would have them. A value that is not named keeps the order of the file."""

    def __post_init__(self) -> None:
        self.axes = {name: Axes(d) for name, d in self.model.computes.items()}
        self._carry(self._asked())

    @cached_property
    def users(self) -> Mapping[str, list[int]]:
        """The steps that make or read a value, by number."""
        out: dict[str, list[int]] = defaultdict(list)
        for number, step in enumerate(self.model.steps):
            for name in {*step.arguments, *step.results} - {""}:
                if name not in self.model.constants:
                    out[name].append(number)
        return out

    def _asked(self) -> deque[str]:
        found: deque[str] = deque()
        for step in self.model.steps:
            if step.asks in (Asks.LAST, Asks.RATHER_LAST):
                for name in (*step.arguments[:1], *step.results):
                    if name and name not in self.model.constants and name not in self.orders:
                        order = channels_last(self.model.types[name].rank)
                        if order != plain(len(order)):
                            self.orders[name] = order
                            found.append(name)
        return found

    def _carry(self, values: deque[str]) -> None:
        while values:
            name = values.popleft()
            for number in self.users[name]:
                step = self.model.steps[number]
                for other, order in self._following(step, name) if step.asks is Asks.NOTHING else ():
                    if other and other not in self.model.constants and other not in self.orders:
                        if order != plain(len(order)):
                            self.orders[other] = order
                            values.append(other)

    def _following(self, step: Step, name: str) -> Iterator[tuple[str, Order]]:
        """The orders of the other values of a step that go with the order of one of them."""
        order, shape = self.orders[name], self.model.types[name].shape
        if not step.compute:
            (x,), (y,) = step.arguments, step.results
            other = y if name == x else x
            found = reshaped(order, shape, self.model.types[other].shape)
            if found is not None:
                yield other, found
            return
        tensors = self.tensors(step)
        # A value may be two operands; then the first counts.
        tensor = next(p.name for p, value in tensors if value == name)
        following = self.axes[step.compute].following(tensor, order)
        yield from ((value, following[p.name]) for p, value in tensors)

    def tensors(self, step: Step) -> list[tuple[Parameter, str]]:
        """The parameters and results of a call, with the values."""
        d = self.model.computes[step.compute]
        return list(zip((*d.parameters, *d.results), (*step.arguments, *step.results), strict=True))

    def order_of(self, name: str) -> Order:
        return self.orders.get(name) or plain(self.model.types[name].rank)

    def _bytes(self, name: str) -> int:
        t = self.model.types[name]
        return t.size * np.dtype(NUMPY[t.dtype]).itemsize

    # --- the cut ---

    def moved_steps(self) -> set[int]:
        """The steps whose values are in the orders of `orders`; those of the others are as in the file."""
        chosen = [n for n, s in enumerate(self.model.steps) if self._concerned(s)]
        if not chosen:
            return set()
        cut = _Cut()
        for number in chosen:
            self._state(cut, number, self.model.steps[number])
        for name in self.orders:
            self._meeting(cut, name)
        return cut.sources().intersection(chosen)

    def _concerned(self, step: Step) -> bool:
        return any(name in self.orders for name in (*step.arguments, *step.results))

    def _state(self, cut: _Cut, number: int, step: Step) -> None:
        """What a step costs in each state."""
        types = self.model.types
        if not step.compute:
            (x,), (y,) = step.arguments, step.results
            made = reshaped(self.order_of(x), types[x].shape, types[y].shape) if x in types else None
            if made is None or moves(made, self.order_of(y), types[y].shape):
                cut.forbid_moved(number)
            return
        size = sum(self._bytes(r) for r in step.results if r)
        match step.asks:
            case Asks.LAST:
                cut.force_moved(number)
            case Asks.FILE:
                cut.forbid_moved(number)
            case Asks.RATHER_LAST:
                cut.add(_MOVED, number, sum(self._bytes(a) for a in step.arguments[:1] if a in types))
            case Asks.NOTHING:
                axes = self.axes[step.compute]
                orders = {p.name: self.order_of(v) for p, v in self.tensors(step) if v in self.orders}
                if axes.copied({}) is False:
                    cut.add(_MOVED, number, size)
                if axes.copied({}) is not None and not axes.copied(orders):
                    cut.add(number, _KEPT, size)

    def _meeting(self, cut: _Cut, name: str) -> None:
        """What it costs if the maker of a value and one that reads it are in different states: once, however many read it."""
        shape = self.model.types[name].shape
        # One unit decides between equals: each view is a line, too.
        size = 1 + (2 * self._bytes(name) if moves(self.orders[name], plain(len(shape)), shape) else 0)
        makers = [n for n in self.users[name] if name in self.model.steps[n].results]
        readers: list[int | str] = [n for n in self.users[name] if name in self.model.steps[n].arguments]
        maker = makers[0] if makers else _KEPT
        if name in self.model.outputs:
            readers.append(_KEPT)
        cut.add(maker, f"{name} as moved", size)
        cut.add(f"{name} as kept", maker, size)
        for reader in readers:
            cut.add(f"{name} as moved", reader, None)
            cut.add(reader, f"{name} as kept", None)


_MOVED, _KEPT = "moved", "kept"
"""The source and the sink of the cut: a step on the side of the source has its values moved."""


@dataclass
class _Cut:
    """A minimum cut between `_MOVED` and `_KEPT`: an edge from the side of the first to that of the second is paid."""

    numbers: dict[int | str, int] = field(default_factory=lambda: cast("dict[int | str, int]", {_MOVED: 0, _KEPT: 1}))
    edges: dict[tuple[int, int], int | None] = field(default_factory=dict[tuple[int, int], int | None])
    """Costs; None for what may not be cut."""

    def add(self, start: int | str, end: int | str, cost: int | None) -> None:
        key = tuple(self.numbers.setdefault(n, len(self.numbers)) for n in (start, end))
        before = self.edges.get((key[0], key[1]), 0)
        self.edges[key[0], key[1]] = None if cost is None or before is None else before + cost

    def force_moved(self, node: int) -> None:
        self.add(_MOVED, node, None)

    def forbid_moved(self, node: int) -> None:
        self.add(node, _KEPT, None)

    def sources(self) -> set[int]:
        """The steps on the side of `_MOVED`."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        # Capacities are of 32 bits. What may not be cut costs more than all else together.
        total = sum(c for c in self.edges.values() if c is not None)
        unit = -(-(total + 1) // (1 << 29))
        costs = [(1 << 30) if c is None else -(-c // unit) for c in self.edges.values()]
        rows, columns = np.array(list(self.edges)).T
        size = len(self.numbers)
        graph = csr_array((np.array(costs, np.int32), (rows, columns)), shape=(size, size))
        rest = graph - maximum_flow(graph, 0, 1).flow
        reached = set(map(int, breadth_first_order(rest > 0, 0, return_predecessors=False)))
        return {node for node, number in self.numbers.items() if number in reached and isinstance(node, int)}


@dataclass
class _Rewriting:
    """The steps with their values in the orders of their states."""

    model: Imported
    choice: _Choice
    moved: set[int]
    steps: list[Step] = field(default_factory=list[Step])
    types: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    computes: Computes = field(default_factory=Computes)
    _made: dict[str, dict[Order, str]] = field(default_factory=lambda: defaultdict(dict))
    """For each value its names by order."""
    _stored: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The names of each constant, one for each order."""
    _arranged: dict[tuple[str, tuple[tuple[str, Order], ...]], tuple[Definition, dict[str, Order]]] = field(
        default_factory=dict[tuple[str, tuple[tuple[str, Order], ...]], tuple[Definition, dict[str, Order]]]
    )

    def result(self) -> Imported:
        for name, type_ in self.model.inputs.items():
            self._name(name, plain(type_.rank))
        for number, step in enumerate(self.model.steps):
            if step.compute:
                self._call(number, step)
            else:
                self._view(number, step)
        for name in self.model.outputs:
            self._value(name, plain(self.model.types[name].rank))
        # A constant that is needed in one order keeps its name.
        own = {words.pop(): name for name, words in self._stored.items() if len(words) == 1}
        return replace(
            self.model,
            steps=[replace(s, arguments=tuple(own.get(a, a) for a in s.arguments)) for s in self.steps],
            types=self.types,
            constants={own.get(word, word): value for word, value in self.constants.items()},
            computes=self.computes.items,
        )

    def _order(self, number: int, name: str) -> Order:
        """The order of a value in a step."""
        return self.choice.order_of(name) if number in self.moved else plain(self.model.types[name].rank)

    def _twice(self, name: str) -> bool:
        """Whether a value is wanted in both orders."""
        users = self.choice.users[name]
        states = {n in self.moved for n in users}
        return states == {True, False} or (True in states and name in (*self.model.inputs, *self.model.outputs))

    def _name(self, name: str, order: Order) -> str:
        """The name of a value in an order, which has the value's own if it is the only one or that of the file."""
        type_ = self.model.types[name]
        own = order == plain(type_.rank) or not self._twice(name)
        word = name if own else f"{name}/{'last' if order == channels_last(type_.rank) else 'moved'}"
        self.types[word] = Tensor(type_.dtype, ordered(type_.shape, order))
        self._made[name][order] = word
        return word

    def _value(self, name: str, order: Order) -> str:
        """The name of a value in an order, in which it is brought if it is not."""
        if order in self._made[name]:
            return self._made[name][order]
        ((has, source),) = self._made[name].items()
        shape = self.model.types[name].shape
        target = self._name(name, order)
        if moves(has, order, shape):
            made = self.computes.add("transpose", _transposition(self.types[source], [has.index(k) for k in order]))
        else:
            made = ""
        self.steps.append(Step(made, (source,), (target,)))
        return target

    def _call(self, number: int, step: Step) -> None:
        tensors = self.choice.tensors(step)
        orders: dict[str, Order] = {}
        for p, value in tensors:
            if value and value not in self.model.constants:
                orders[p.name] = self._order(number, value)
        if number in self.moved:
            orders |= self._constant_orders(step, tensors, orders)
        definition, used = self._arrange(step.compute, orders)
        arguments: list[str] = []
        for (p, _), value in zip(tensors, step.arguments, strict=False):
            if value in self.model.constants:
                arguments.append(self._constant(value, used[p.name]))
            else:
                arguments.append(self._value(value, used[p.name]))
        results = [self._name(r, self._order(number, r)) if r else "" for r in step.results]
        from_value = step.arguments and step.arguments[0] not in self.model.constants
        if from_value and self.choice.axes[step.compute].copied(orders):
            self.steps.append(Step("", (arguments[0],), (results[0],)))
            return
        name = self.computes.add(step.compute.rpartition("_")[0], definition)
        self.steps.append(Step(name, tuple(arguments), tuple(results), step.asks))

    def _constant_orders(
        self, step: Step, tensors: Sequence[tuple[Parameter, str]], orders: Mapping[str, Order]
    ) -> dict[str, Order]:
        """The orders of constants that are added and the like, as the result has them; products have theirs anyway."""
        if step.asks is not Asks.NOTHING:
            return {}
        result = self.model.computes[step.compute].results[0]
        order = orders.get(result.name) or plain(result.type.rank)
        following = self.choice.axes[step.compute].following(result.name, order)
        return {p.name: following[p.name] for p, value in tensors if value in self.model.constants}

    def _arrange(self, compute: str, orders: Mapping[str, Order]) -> tuple[Definition, dict[str, Order]]:
        key = compute, tuple(orders.items())
        if key not in self._arranged:
            self._arranged[key] = self.choice.axes[compute].arranged(orders)
        return self._arranged[key]

    def _constant(self, name: str, order: Order) -> str:
        """The name of a constant in an order, in which it is stored."""
        word = f"{name}/{''.join(map(str, order))}"
        self.constants[word] = np.transpose(self.model.constants[name], order)
        self._stored[name].add(word)
        return word

    def _view(self, number: int, step: Step) -> None:
        (x,), (y,) = step.arguments, step.results
        if x in self.model.constants:
            source = self._constant(x, plain(self.model.constants[x].ndim))
        else:
            source = self._value(x, self._order(number, x))
        self.steps.append(Step("", (source,), (self._name(y, self._order(number, y)),)))


def _transposition(type_: Tensor, order: Sequence[int]) -> Definition:
    """The compute that copies a value into another order of its axes."""
    names = indices(type_.rank)
    made = Tensor(type_.dtype, tuple(type_.shape[k] for k in order))
    left = [names[k] for k in order]
    text = f"{place('Y', ranged(left, made.shape))} = {place('X', names)}"
    return Definition((Parameter("X", type_, False),), (Parameter("Y", made, False),), (text,))
