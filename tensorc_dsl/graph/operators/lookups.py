"""Operators that find elements by data: look-ups, selections, ranks, and updates that are scattered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Array, Tensor, Unsupported, literal, onnx_dtype
from tensorc_dsl.graph.operators.lowering import (
    Known,
    Lowered,
    Operand,
    Site,
    Viewed,
    Writer,
    axis_of,
    indices,
    mapped,
    offset,
    onnx_index,
    place,
    ranged,
    scaled,
)

# --- look-ups ----------------------------------------------------------------------------------------------------------


def _gather(site: Site) -> Lowered:
    x, at = site.given(0), site.given(1)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    shape = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
    names = indices(len(shape))
    inner = names[axis : axis + at.type.rank]
    if at.scalar is not None:
        chosen = int(at.value.reshape(()).item()) if at.value is not None else 0
        index = str(range(x.shape[axis])[chosen]) if -x.shape[axis] <= chosen < x.shape[axis] else None
        if index is None:
            raise Unsupported(f"the element {chosen} of {x.shape[axis]}")
    else:
        index = onnx_index(place(site.parameter("I", at), inner), x.shape[axis])
    return mapped(site, "gather", x, shape, [*names[:axis], index, *names[axis + at.type.rank :]])


def _compressed(site: Site) -> Lowered:
    x, condition = site.given(0), site.constant(1, "the condition")
    assert condition is not None
    axis = site.attribute("axis")
    names, chosen = indices(x.type.rank), np.flatnonzero(condition)
    axis = None if axis is None else axis_of(axis, x.type.rank)
    size = x.type.size if axis is None else x.shape[axis]
    if len(chosen) and chosen[-1] >= size:
        raise Unsupported(f"the element {chosen[-1]} of {size}")
    shape = (len(chosen),) if axis is None else (*x.shape[:axis], len(chosen), *x.shape[axis + 1 :])
    if not prod(shape):
        return Known((np.empty(shape, onnx_dtype(x.dtype)),))
    index = place(site.table("I", chosen), [names[axis or 0]])
    if axis is None:
        return mapped(site, "compress", x, shape, _numbered(index, x.shape))
    return mapped(
        site, "compress", x, shape, [onnx_index(index, size) if k == axis else n for k, n in enumerate(names)]
    )


def _gather_elements(site: Site) -> Lowered:
    x, at = site.given(0), site.given(1)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    names = indices(x.type.rank)
    index = onnx_index(place(site.parameter("I", at), names), x.shape[axis])
    return mapped(site, "gather", x, at.shape, [index if k == axis else n for k, n in enumerate(names)])


def _gather_nd(site: Site) -> Lowered:
    x, at = site.given(0), site.given(1)
    batch: int = site.attribute("batch_dims", 0)
    depth = at.shape[-1]
    outer = at.shape[:-1]
    shape = (*outer, *x.shape[batch + depth :])
    names = indices(len(shape))
    site.parameter("I", at)
    inner = [onnx_index(place("I", [*names[: len(outer)], str(d)]), x.shape[batch + d]) for d in range(depth)]
    return mapped(site, "gather", x, shape, [*names[:batch], *inner, *names[len(outer) :]])


def _one_hot(site: Site) -> Lowered:
    at, depth, values = site.given(0), site.constant(1, "the depth"), site.given(2)
    assert depth is not None
    count = int(depth.reshape(-1)[0])
    axis = axis_of(site.attribute("axis", -1), at.type.rank + 1)
    shape = (*at.shape[:axis], count, *at.shape[axis:])
    names = indices(len(shape))
    index = place(site.parameter("I", at), [n for k, n in enumerate(names) if k != axis])
    # An index that is out of [-depth, depth - 1] has no place.
    size = f"{at.dtype}({count})"
    hit = f"{at.dtype}({names[axis]}) == {index} or {at.dtype}({names[axis]}) == {index} + {size}"
    site.parameter("V", values, (2,))
    site.stage(f"{place('Y', ranged(names, shape))} = V[1] if {hit} else V[0]")
    return site.computed("one_hot", ("Y", Tensor(values.dtype, shape)))


def _top_k(site: Site) -> Lowered:
    """The rank of each element is the number of those before it in the order, and its place in the result."""
    x, count = site.given(0), site.constant(1, "k")
    assert count is not None
    k, axis = int(count.reshape(-1)[0]), axis_of(site.attribute("axis", -1), x.type.rank)
    names = indices(x.type.rank)
    size = x.shape[axis]
    if not 0 < k <= size:
        raise Unsupported(f"{k} of {size} elements")
    site.parameter("X", x)
    n = names[axis]
    other = place("X", ["q" if d == axis else i for d, i in enumerate(names)])
    own = place("X", names)
    sign = ">" if site.attribute("largest", 1) else "<"
    first = f"{other} {sign} {own} or ({other} == {own} and q < {n})"
    site.stage(f"let {place('r', ranged(names, x.shape))} = sum[q in {size}] i32({first})")
    shape = tuple(k if d == axis else s for d, s in enumerate(x.shape))
    at = place("r", ["q" if d == axis else i for d, i in enumerate(names)])
    places = f"sum[q in {size}] (i64(q) if {at} == i32({n}) else 0)"
    site.stage(f"{place('I', ranged(names, shape))} = {places}")
    index = onnx_index(place("I", names), size)
    source = place("X", [index if d == axis else i for d, i in enumerate(names)])
    site.stage(f"{place('Y', ranged(names, shape))} = {source}")
    return site.computed("top_k", ("Y", Tensor(x.dtype, shape)), ("I", Tensor("i64", shape)))


# --- scattered updates -------------------------------------------------------------------------------------------------

_MOST_PLACES = 1 << 26
"""The elements of a value for each of which a table is made."""

_JOINED: Mapping[str, tuple[str, str, int | None]] = {
    "add": ("sum", "{} + {}", 0),
    "mul": ("prod", "{} * {}", 1),
    "max": ("max", "max({}, {})", None),
    "min": ("min", "min({}, {})", None),
}
"""How updates of one place are joined, how the result and the element there are, and what is joined where there is none."""


@frozen
class _Scatter:
    """Updates of the elements of `x`. One has the indices `over`, and names a place among the first axes of `x`.

    The further axes of the updates are those of `x`; `names` has the indices of the result.
    """

    x: Operand
    updates: Operand
    names: list[str]
    over: Sequence[int]
    """The sizes of the axes by which updates are told apart."""
    reduction: str

    def result(self, site: Site, value: str) -> Lowered:
        site.stage(f"{place('Y', ranged(self.names, self.x.shape))} = {value}")
        return site.computed("scatter", ("Y", self.x.type))

    def joined(self, own: str, update: str) -> str:
        """The element after an update of it."""
        return update if self.reduction == "none" else _JOINED[self.reduction][1].format(own, update)

    def numbers(self, places: Sequence[Array], shape: tuple[int, ...]) -> Array | None:
        """For each place of the shape the number of its last update, -1 for none; None if one number cannot tell.

        `places` are the indices of all updates.
        """
        flat = np.ravel_multi_index(tuple(places), shape)
        if prod(shape) > _MOST_PLACES or (self.reduction != "none" and len(np.unique(flat)) < len(flat)):
            return None
        out = np.full(prod(shape), -1)
        out[flat] = np.arange(len(flat))
        return out.reshape(shape)

    def by_table(self, site: Site, numbers: Array, read: Callable[[list[str]], str]) -> Lowered:
        own = place(site.parameter("X", self.x), self.names)
        hit = numbers >= 0
        lines = [np.flatnonzero(hit.any(tuple(a for a in range(hit.ndim) if a != k))) for k in range(hit.ndim)]
        steps = [int(v[1] - v[0]) if len(v) > 1 else 1 for v in lines]
        even = all(np.array_equal(v, v[0] + step * np.arange(len(v))) for v, step in zip(lines, steps, strict=True))
        wide = [k for k, v in enumerate(lines) if len(v) > 1]
        sizes = [n for n in self.over if n > 1]
        block = numbers[np.ix_(*lines)].reshape(-1)
        if even and [len(lines[k]) for k in wide] == sizes and np.array_equal(block, np.arange(prod(sizes))):
            # A slice that is assigned: its bounds tell what a table would.
            inside: list[str] = []
            at = dict[int, str]()
            for k, v, step in zip(range(hit.ndim), lines, steps, strict=True):
                first, last, name = int(v[0]), int(v[-1]), self.names[k]
                at[k] = offset(name, -first) if step == 1 else f"({offset(name, -first)}) / {step}"
                if len(v) < self.x.shape[k]:
                    inside.append(f"{name} == {first}" if first == last else f"{first} <= {name} <= {last}")
                if step > 1:
                    inside.append(f"({offset(name, -first)}) % {step} == 0")
            chosen = iter(at[k] for k in wide)
            update = read([next(chosen) if n > 1 else "0" for n in self.over])
            value = self.joined(own, update)
            return self.result(site, f"{value} if {' and '.join(inside)} else {own}" if inside else value)
        # Axes along which the table says the same are left out of it.
        kept = [k for k in range(numbers.ndim) if (numbers != numbers.take([0], k)).any()]
        table = numbers[tuple(slice(None) if k in kept else 0 for k in range(numbers.ndim))]
        found = place(site.table("T", table.astype(np.int32)), [self.names[k] for k in kept])
        update = read(_numbered(found, self.over))
        return self.result(site, f"{self.joined(own, update)} if {found} >= 0 else {own}")

    def by_search(
        self, site: Site, depth: int, hit: str, over: Sequence[str], read: Callable[[list[str]], str]
    ) -> Lowered:
        """`hit` says whether the update with the indices `over` is one of the place, which the first axes tell."""
        own = place(site.parameter("X", self.x), self.names)
        if not over:
            return self.result(site, f"{self.joined(own, read([]))} if {hit} else {own}")
        ranges = ", ".join(ranged(over, self.over))
        if self.reduction == "none":
            number = " + ".join(scaled(n, prod(self.over[k + 1 :])) for k, n in enumerate(over))
            left = place("at", ranged(self.names[:depth], self.x.shape[:depth]))
            site.stage(f"let {left} = max[{ranges}] (i64({number}) if {hit} else -1)")
            found = place("at", self.names[:depth])
            return self.result(site, f"{read(_numbered(found, self.over))} if {found} >= 0 else {own}")
        word, _, neutral = _JOINED[self.reduction]
        dtype = self.x.dtype
        update = read(list(over))
        value = self.joined(
            own, f"({word}[{ranges}] ({update} if {hit} else {own if neutral is None else literal(neutral, dtype)}))"
        )
        return self.result(site, value)


def _numbered(number: str, sizes: Sequence[int]) -> list[str]:
    """The indices of the element of that number, row by row; inside whatever the number."""
    out: list[str] = []
    for k, size in enumerate(sizes):
        rest = prod(sizes[k + 1 :])
        out.append("0" if size == 1 else onnx_index(number if rest == 1 else f"{number} / {rest}", size))
    return out


def _reduction(site: Site) -> str:
    found = site.word("reduction", "none", *_JOINED)
    if found != "none" and site.given(0).dtype == "bool":
        raise Unsupported(f"updates of bool that are joined by `{found}`")
    return found


def _from_front(at: Array, size: int) -> Array:
    """Constant indices, counted from the front. Raises Unsupported."""
    if at.size and not -size <= at.min() <= at.max() < size:
        raise Unsupported(f"the elements {at.min()} to {at.max()} of {size}")
    return np.where(at < 0, at + size, at)


def _scatter_elements(site: Site) -> Lowered:
    x, at, updates = (site.given(n) for n in range(3))
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    fits = at.shape == updates.shape and at.type.rank == x.type.rank
    if not fits or any(m > n for k, (m, n) in enumerate(zip(at.shape, x.shape, strict=True)) if k != axis):
        raise Unsupported(f"updates {updates.type} at {at.type} of {x.type}")
    if not at.type.size:
        return Viewed(x.name, x.type)
    names = indices(x.type.rank)
    scatter = _Scatter(x, updates, names, at.shape, _reduction(site))
    if at.value is not None:
        places = list(np.indices(at.shape, sparse=True))
        places[axis] = _from_front(at.value, x.shape[axis])
        numbers = scatter.numbers([np.broadcast_to(p, at.shape).reshape(-1) for p in places], x.shape)
        if numbers is not None:
            return scatter.by_table(site, numbers, lambda own: place(site.parameter("U", updates), own))
    # Updates lie in the lines of the places that they name.
    lines = [(n, m, s) for n, m, s in zip(names, at.shape, x.shape, strict=True)]
    inside = [f"{n} < {m}" for k, (n, m, s) in enumerate(lines) if k != axis and m < s]
    others = [n if m == s else f"min({n}, {m - 1})" for n, m, s in lines]

    def element(name: str, o: Operand, index: str) -> str:
        return place(site.parameter(name, o), [index if k == axis else n for k, n in enumerate(others)])

    same = f"{onnx_index(element('I', at, 'x'), x.shape[axis])} == {at.dtype}({names[axis]})"
    line = replace(scatter, over=at.shape[axis : axis + 1])
    hit = " and ".join([*inside, same])
    return line.by_search(site, x.type.rank, hit, ["x"], lambda own: element("U", updates, own[0]))


def _scatter_nd(site: Site) -> Lowered:
    x, at, updates = (site.given(n) for n in range(3))
    depth = at.shape[-1] if at.type.rank else 0
    over = at.shape[:-1]
    if not 0 < depth <= x.type.rank or updates.shape != (*over, *x.shape[depth:]):
        raise Unsupported(f"updates {updates.type} at {at.type} of {x.type}")
    if not updates.type.size:
        return Viewed(x.name, x.type)
    names = indices(x.type.rank)
    scatter = _Scatter(x, updates, names, over, _reduction(site))

    def read(own: list[str]) -> str:
        return place(site.parameter("U", updates), [*own, *names[depth:]])

    if at.value is not None:
        places = [_from_front(v, x.shape[k]) for k, v in enumerate(at.value.reshape(-1, depth).T)]
        numbers = scatter.numbers(places, x.shape[:depth])
        if numbers is not None:
            return scatter.by_table(site, numbers, read)
    own = [f"x{k}" for k in range(len(over))]
    site.parameter("I", at)
    hits = [f"{onnx_index(place('I', [*own, str(k)]), x.shape[k])} == {at.dtype}({names[k]})" for k in range(depth)]
    return scatter.by_search(site, depth, " and ".join(hits), own, read)


def _written_rows(site: Site) -> Lowered:
    """Rows of a cache that are replaced, from a place on which each batch names, and again from the front at the end."""
    x, updates, at = site.given(0), site.given(1), site.optional(2)
    axis = axis_of(site.attribute("axis", -2), x.type.rank)
    size, count = x.shape[axis], updates.shape[axis]
    rest = [tuple(n for k, n in enumerate(o.shape) if k != axis) for o in (x, updates)]
    if not axis or rest[0] != rest[1] or not 0 < count <= size or (at is not None and at.shape != x.shape[:1]):
        raise Unsupported(f"updates {updates.type} of {x.type}")
    names = indices(x.type.rank)
    row = (
        f"i64({names[axis]})"
        if at is None
        else f"(i64({names[axis]}) - {place(site.parameter('W', at), names[:1])}) % {size}"
    )
    site.stage(f"let p[{', '.join(ranged([names[0], names[axis]], [x.shape[0], size]))}] = {row}")
    found = f"p[{names[0]}, {names[axis]}]"
    source = [f"clamp({found}, 0, {count - 1})" if k == axis else n for k, n in enumerate(names)]
    value = f"{place(site.parameter('U', updates), source)} if {found} < {count} else {place(site.parameter('X', x), names)}"
    site.stage(f"{place('Y', ranged(names, x.shape))} = {value}")
    return site.computed("write_rows", ("Y", x.type))


TABLE: Mapping[str, Writer] = {
    "TensorScatter": _written_rows,
    "Compress": _compressed,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "TopK": _top_k,
}
