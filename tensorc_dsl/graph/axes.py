"""The axes of a compute's tensors: which move together, and the same compute with its tensors in another order of axes.

Computes are written for the axes that the model's file has. In which order these lie in memory is a property of a value,
an `Order`; a compute is rewritten for the orders of its operands and results by permuting types, indices and subscripts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from tensorc_dsl.base.source import Source
from tensorc_dsl.graph.graph import Tensor
from tensorc_dsl.graph.operators.lowering import LETTERS, Definition, Parameter
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.format import format_stage
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import Node, rewrite_tree, walk

Order = tuple[int, ...]
"""The axes of a value from the outermost one in memory to the innermost one; `(0, 1, 2)` is that of the file."""


def plain(rank: int) -> Order:
    """The order of the file."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Axis 1 innermost; the order of the file below three dimensions."""
    return (0, *range(2, rank), 1) if rank > 2 else plain(rank)


def ordered(shape: Sequence[int], order: Order) -> tuple[int, ...]:
    """The sizes in the order of memory."""
    return tuple(shape[k] for k in order)


def moves(before: Order, after: Order, shape: Sequence[int]) -> bool:
    """Whether elements change their places between two orders: axes of one element may go anywhere."""
    return [k for k in before if shape[k] != 1] != [k for k in after if shape[k] != 1]


def reshaped(order: Order, before: Sequence[int], after: Sequence[int]) -> Order | None:
    """The order of a value in another shape whose memory is that of one in this order; None if there is none.

    Both shapes are cut into the smallest groups of axes with equal products. A group has to lie in one piece, with its
    axes as in the file.
    """
    if 0 in before:
        return plain(len(after))
    groups = _groups(before, after)
    group_of = {k: n for n, (old, _) in enumerate(groups) for k in old}
    lying = [k for k in order if before[k] != 1]
    found: list[int] = []
    for k in lying:
        if group_of[k] not in found:
            found.append(group_of[k])
    if lying != [k for n in found for k in groups[n][0]]:
        return None
    whole = [k for n in found for k in groups[n][1]]
    # An axis of one element goes behind the one before it in the file.
    for k, size in enumerate(after):
        if k not in whole:
            assert size == 1
            whole.insert(whole.index(k - 1) + 1 if k else 0, k)
    return tuple(whole)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of axes, without those of one element, that have equal products in both shapes."""
    rest = [[k for k, n in enumerate(s) if n != 1] for s in (before, after)]
    groups: list[tuple[list[int], list[int]]] = []
    while rest[0]:
        old, new = [rest[0].pop(0)], [rest[1].pop(0)]
        left, right = before[old[0]], after[new[0]]
        while left != right:
            if left < right:
                old.append(rest[0].pop(0))
                left *= before[old[-1]]
            else:
                new.append(rest[1].pop(0))
                right *= after[new[-1]]
        groups.append((old, new))
    return groups


_Axis = tuple[str, str | int]
"""An axis of a tensor by its number, or an index of a stage by its name; the stages are named by their numbers."""

_FREE = ("sum", "prod", "max", "min", "any", "all")
"""Reductions whose result does not depend on the order of their indices, but for rounding."""


@dataclass(slots=True)
class _Stage:
    """A stage with the names of its indices and reductions, and what it reads of tensors."""

    node: t.Stage
    spatial: list[str]
    reduced: list[str]
    reads: list[t.IndexExpr]


@dataclass
class Axes:
    """The axes of the tensors of a compute."""

    definition: Definition
    stages: list[_Stage] = field(init=False)
    ranks: dict[str, int] = field(init=False)
    """Of parameters, results and stages."""

    def __post_init__(self) -> None:
        (item,) = parse(Source("compute", self.definition.text("f"))).items
        assert isinstance(item, t.ComputeDef)
        self.ranks = {p.name: p.type.rank for p in (*self.definition.parameters, *self.definition.results)}
        self.ranks |= {str(s.name): len(s.indices) for s in item.stages if s.is_let}
        self.stages = []
        for s in item.stages:
            spatial = [str(i.name) for i in s.indices]
            nodes = list(walk(s.value))
            reduced = [str(i.name) for n in nodes if isinstance(n, t.Reduce) for i in n.indices]
            self.stages.append(_Stage(s, spatial, reduced, list(_reads(nodes, self.ranks))))

    @cached_property
    def _together(self) -> dict[_Axis, _Axis]:
        """For each axis one that stands for all that move with it: those that stages read by the same index."""
        parent: dict[_Axis, _Axis] = {}

        def root(a: _Axis) -> _Axis:
            while parent.setdefault(a, a) != a:
                a = parent[a]
            return a

        for number, s in enumerate(self.stages):
            for k, name in enumerate(s.spatial):
                parent[root((str(s.node.name), k))] = root((f"#{number}", name))
            for read in s.reads:
                for k, name in enumerate(_subjects(read.indices, s.spatial, s.reduced)):
                    if name is not None:
                        parent[root((_base(read), k))] = root((f"#{number}", name))
        return {a: root(a) for a in list(parent)}

    def following(self, name: str, order: Order) -> dict[str, Order]:
        """The orders in which all parameters and results have their axes as the tensor `name` has them in `order`."""
        together = self._together
        rank_of = {together[name, k]: n for n, k in enumerate(order) if (name, k) in together}
        of_axis = {k: n for n, k in enumerate(order)}
        out: dict[str, Order] = {}
        for p in (*self.definition.parameters, *self.definition.results):
            rank = p.type.rank
            known = [rank_of.get(together.get((p.name, k), ("", ""))) for k in range(rank)]
            keys: list[float] = []
            for k in range(rank):
                # What no index tells goes where the axis of that number is, as operands are broadcast; else it stays
                # behind the axis before it.
                beside = of_axis.get(k + len(order) - rank)
                found = known[k] if known[k] is not None else beside if beside not in known else None
                keys.append(found if found is not None else keys[-1] if keys else -1)
            out[p.name] = tuple(sorted(range(rank), key=keys.__getitem__))
        return out

    def copied(self, orders: Mapping[str, Order]) -> bool | None:
        """Whether memory is copied as it lies, with tensors in these orders; None if the compute is no mere copy."""
        if len(self.stages) != 1 or len(self.definition.parameters) != 1 or len(self.definition.results) != 1:
            return None
        (s,), (x,), (y,) = self.stages, self.definition.parameters, self.definition.results
        value = s.node.value
        if not isinstance(value, t.IndexExpr) or x.type.size != y.type.size:
            return None
        names = [i.id if isinstance(i, t.Name) else "" for i in value.indices]
        if sorted(names) != sorted(s.spatial):
            return None
        lies = [names[k] for k in orders.get(x.name, plain(x.type.rank)) if x.type.shape[k] != 1]
        return lies == [s.spatial[k] for k in orders.get(y.name, plain(y.type.rank)) if y.type.shape[k] != 1]

    def arranged(self, orders: Mapping[str, Order]) -> tuple[Definition, dict[str, Order]]:
        """The compute with its tensors in these orders, and the order of each parameter and result.

        Those that are not named keep theirs; but weights of a product have the terms of a sum outermost and the channels
        of the result innermost. Loops of stages and sums go through memory in the order of what they read.
        """
        return _Arrangement(self, dict(orders)).result()


def _reads(nodes: Sequence[Node], tensors: Collection[str]) -> Iterator[t.IndexExpr]:
    for n in nodes:
        if isinstance(n, t.IndexExpr) and isinstance(n.base, t.Name) and n.base.id in tensors:
            yield n


def _base(read: t.IndexExpr) -> str:
    assert isinstance(read.base, t.Name)
    return read.base.id


def _subjects(subscripts: Sequence[t.Expr], spatial: Sequence[str], reduced: Sequence[str]) -> list[str | None]:
    """The index that each subscript moves with; each index once, and one of the result before one of a sum.

    Subscripts of one index choose first: in `X[c * 4 + h % 2, h / 2]` the first moves with `c`.
    """
    named = [{n.id for n in walk(e) if isinstance(n, t.Name)} for e in subscripts]
    wanted = [[x for x in (*spatial, *reduced) if x in names] for names in named]
    chosen: dict[int, str] = {}
    for k in sorted(range(len(wanted)), key=lambda k: len(wanted[k])):
        free = [x for x in wanted[k] if x not in chosen.values()]
        if free:
            chosen[k] = free[0]
    return [chosen.get(k) for k in range(len(wanted))]


@dataclass
class _Arrangement:
    axes: Axes
    orders: dict[str, Order]
    places: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """By stage, its reduced indices in their new order."""
    names: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    """By stage, the new names of indices."""

    def result(self) -> tuple[Definition, dict[str, Order]]:
        for number, s in enumerate(self.axes.stages):
            self._stage(number, s)
        self._weights()
        definition = self.axes.definition
        used = {p.name: self._order(p.name) for p in (*definition.parameters, *definition.results)}
        if all(self._order(n) == plain(r) for n, r in self.axes.ranks.items()):
            return definition, used
        stages = tuple(format_stage(self._written(number, s)) for number, s in enumerate(self.axes.stages))
        parameters, results = (tuple(map(self._typed, some)) for some in (definition.parameters, definition.results))
        return Definition(parameters, results, stages, definition.finite), used

    def _order(self, name: str) -> Order:
        return self.orders.get(name) or plain(self.axes.ranks[name])

    def _moved(self, name: str) -> bool:
        return self._order(name) != plain(self.axes.ranks[name])

    def _typed(self, p: Parameter) -> Parameter:
        return replace(p, type=Tensor(p.type.dtype, ordered(p.type.shape, self._order(p.name))))

    def _constants(self) -> set[str]:
        return {p.name for p in self.axes.definition.parameters if p.constant}

    def _stage(self, number: int, s: _Stage) -> None:
        """Fix the order of a stage's indices and reductions: that in which it reads what has moved."""
        constants = self._constants()
        seen: list[str] = []
        for read in s.reads:
            if self._moved(_base(read)) and _base(read) not in constants:
                for k in self._order(_base(read)):
                    names = [n.id for n in walk(read.indices[k]) if isinstance(n, t.Name)]
                    seen += [n for n in names if n not in seen]
        if seen and s.node.is_let:
            first = sorted(range(len(s.spatial)), key=lambda k: _at(seen, s.spatial[k]))
            self.orders[str(s.node.name)] = tuple(first)
        reduced = self.places[number] = sorted(s.reduced, key=lambda n: _at(seen, n)) if seen else s.reduced
        spatial = [s.spatial[k] for k in self._order(str(s.node.name))] if s.spatial else []
        # Letters stand for the axes in the order of memory, so that equal computes have equal texts.
        letters = [n for n in dict.fromkeys((*(seen if reduced else ()), *spatial, *reduced)) if n in LETTERS]
        if not seen and spatial == s.spatial:
            letters = []
        self.names[number] = dict(zip(letters, sorted(letters, key=LETTERS.index), strict=True))

    def _weights(self) -> None:
        """Orders of constants that are multiplied and summed."""
        for p in self.axes.definition.parameters:
            if p.constant and p.type.rank > 1 and p.name not in self.orders:
                found = {
                    self._weight(number, s, read)
                    for number, s in enumerate(self.axes.stages)
                    for read in s.reads
                    if _base(read) == p.name
                }
                if len(found) == 1:
                    (order,) = found
                    self.orders[p.name] = order

    def _weight(self, number: int, s: _Stage, read: t.IndexExpr) -> Order:
        """A fixed subscript, batches, the terms of the sum, and what only the result has; its innermost index last."""
        kept = plain(len(read.indices))
        spatial = [s.spatial[k] for k in self._order(str(s.node.name))] if s.spatial else []
        subjects = _subjects(read.indices, spatial, s.reduced)
        if not spatial or spatial[-1] not in subjects or not set(s.reduced).intersection(n for n in subjects if n):
            return kept
        constants = self._constants()
        shared = {
            n.id
            for r in s.reads
            if _base(r) not in constants
            for i in r.indices
            for n in walk(i)
            if isinstance(n, t.Name)
        }

        def key(k: int) -> tuple[int, int]:
            name = subjects[k]
            if name is None:
                return (0, k)
            if name in s.reduced:
                return (2, self.places[number].index(name))
            return (1 if name in shared and name != spatial[-1] else 3, spatial.index(name))

        return tuple(sorted(kept, key=key))

    def _written(self, number: int, s: _Stage) -> t.Stage:
        own = self._order(str(s.node.name))
        order, names = self.places[number], self.names[number]

        def named(i: t.IndexSpec) -> t.IndexSpec:
            return replace(i, name=t.Word(names.get(i.name, i.name), i.name.span))

        def moved(e: Any) -> Any:
            match e:
                case t.IndexExpr(base=t.Name(id=name), indices=indices) if name in self.axes.ranks:
                    inner = tuple(rewrite_tree(i, moved) for i in indices)
                    return replace(e, indices=tuple(inner[k] for k in self._order(name)))
                case t.Reduce(reducer=reducer, indices=indices) if reducer in _FREE:
                    specs = tuple(map(named, sorted(indices, key=lambda i: order.index(str(i.name)))))
                    return replace(e, indices=specs, body=rewrite_tree(e.body, moved))
                case t.IndexSpec():
                    return named(e)
                case t.Name(id=name) if name in names:
                    return replace(e, id=names[name])
                case _:
                    return None

        indices = tuple(named(s.node.indices[k]) for k in own) if s.node.indices else ()
        return replace(s.node, indices=indices, value=cast("t.Expr", rewrite_tree(s.node.value, moved)))


def _at(seen: Sequence[str], name: str) -> int:
    """The place of a name; of one that is missing, behind all."""
    return seen.index(name) if name in seen else len(seen)
