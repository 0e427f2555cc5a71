"""Operators that move elements: views, maps of indices, parts and joins, look-ups, and changes of size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tensorc_dsl.graph.graph import NUMPY, Array, Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Known,
    Lowered,
    Operand,
    Site,
    Viewed,
    Writer,
    axes_of,
    axis_of,
    broadcast,
    indices,
    offset,
    place,
    ranged,
    scaled,
    stretched,
    wrapped,
)

# --- views -------------------------------------------------------------------------------------------------------------


def _viewed(x: Operand, shape: Sequence[int]) -> Lowered:
    if prod(shape) != x.type.size or min(shape, default=0) < 0:
        raise Unsupported(f"{x.type} in the shape {list(shape)}")
    return Viewed(x.name, Tensor(x.dtype, tuple(shape)))


def _reshape(site: Site) -> Lowered:
    x, asked = site.given(0), site.ints(1, "the shape")
    if asked is None:
        asked = site.attribute("shape", [])
    shape = [
        x.shape[k] if n == 0 and not site.attribute("allowzero", 0) and k < x.type.rank else n
        for k, n in enumerate(asked)
    ]
    if shape.count(-1) == 1:
        rest = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = x.type.size // rest if rest else 0
    return _viewed(x, shape)


def _flatten(site: Site) -> Lowered:
    x = site.given(0)
    axis = site.attribute("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise Unsupported(f"there is no axis {axis} of {x.type.rank} dimensions")
    axis += x.type.rank if axis < 0 else 0
    return _viewed(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(site: Site) -> Lowered:
    x = site.given(0)
    axes = site.ints(1, "axes") or site.attribute("axes")
    chosen = axes_of(axes, x.type.rank) if axes else [k for k, n in enumerate(x.shape) if n == 1]
    return _viewed(x, [n for k, n in enumerate(x.shape) if k not in chosen])


def _unsqueeze(site: Site) -> Lowered:
    x = site.given(0)
    axes = site.ints(1, "axes") or site.attribute("axes") or []
    rank = x.type.rank + len(axes)
    chosen = axes_of(axes, rank)
    rest = iter(x.shape)
    return _viewed(x, [1 if k in chosen else next(rest) for k in range(rank)])


# --- maps of indices ---------------------------------------------------------------------------------------------------


def mapped(site: Site, stem: str, x: Operand, shape: Sequence[int], source: Sequence[str]) -> Lowered:
    """A result whose element at `i, j, …` is that of `x` at the subscripts `source`."""
    names = indices(len(shape))
    site.stage(f"{place('Y', ranged(names, shape))} = {place(site.parameter('X', x), source)}")
    return site.computed(stem, ("Y", Tensor(x.dtype, tuple(shape))))


def _transpose(site: Site) -> Lowered:
    x = site.given(0)
    order = site.attribute("perm") or list(range(x.type.rank))[::-1]
    if sorted(order) != list(range(x.type.rank)):
        raise Unsupported(f"the order {order} of {x.type.rank} dimensions")
    shape = [x.shape[k] for k in order]
    kept = [k for k in order if x.shape[k] != 1]
    if kept == sorted(kept):  # only dimensions of one element move
        return _viewed(x, shape)
    names = indices(len(order))
    return mapped(site, "transpose", x, shape, [names[order.index(k)] for k in range(len(order))])


def _expand(site: Site) -> Lowered:
    x, asked = site.given(0), site.ints(1, "the shape")
    assert asked is not None
    shape = broadcast([x.shape, tuple(asked)])
    if shape == x.shape:
        return _viewed(x, shape)
    return mapped(site, "expand", x, shape, stretched(x.shape, indices(len(shape))))


def _tile(site: Site) -> Lowered:
    x, repeats = site.given(0), site.ints(1, "the repeats")
    if repeats is None or len(repeats) != x.type.rank:
        raise Unsupported("another number of repeats than dimensions")
    shape = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    if tuple(shape) == x.shape:
        return _viewed(x, shape)
    names = indices(len(shape))
    source = [n if r == 1 else "0" if s == 1 else f"{n} % {s}" for n, r, s in zip(names, repeats, x.shape, strict=True)]
    return mapped(site, "tile", x, shape, source)


def slice_bounds(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """The first element of a slice, and the number of its elements."""
    if step == 0:
        raise Unsupported("a slice with a step of 0")
    chosen = range(size)[slice(start, end if step > 0 or end >= -size else None, step)]
    return (chosen.start, len(chosen))


def _slice(site: Site) -> Lowered:
    x = site.given(0)
    starts, ends = site.ints(1, "the starts"), site.ints(2, "the ends")
    if starts is None or ends is None:
        starts, ends = site.attribute("starts", []), site.attribute("ends", [])
    axes = site.ints(3, "the axes") or site.attribute("axes") or list(range(len(starts)))
    steps = site.ints(4, "the steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Unsupported("starts, ends, axes and steps of other lengths")
    shape = list(x.shape)
    source = indices(x.type.rank)
    for axis, start, end, step in zip((axis_of(a, x.type.rank) for a in axes), starts, ends, steps, strict=True):
        first, count = slice_bounds(x.shape[axis], start, end, step)
        shape[axis] = count
        index = source[axis]
        source[axis] = f"{first} - {scaled(index, -step)}" if step < 0 else offset(scaled(index, step), first)
    if tuple(shape) == x.shape and all(s > 0 for s in steps):
        return _viewed(x, shape)
    return mapped(site, "slice", x, shape, source)


def _depth_to_space(site: Site) -> Lowered:
    x, block = site.given(0), site.attribute("blocksize", 1)
    batch, channels, height, width = x.shape
    made = channels // (block * block)
    n, c, h, w = indices(4)
    inner = f"{h} % {block} * {block} + {w} % {block}"
    if site.attribute("mode", "DCR") == "CRD":
        channel = f"{c} * {block * block} + {inner}"
    else:
        channel = f"({inner}) * {made} + {c}"
    shape = (batch, made, height * block, width * block)
    return mapped(site, "depth_to_space", x, shape, [n, channel, f"{h} / {block}", f"{w} / {block}"])


def _space_to_depth(site: Site) -> Lowered:
    x, block = site.given(0), site.attribute("blocksize", 1)
    batch, channels, height, width = x.shape
    n, c, h, w = indices(4)
    shape = (batch, channels * block * block, height // block, width // block)
    crd = site.attribute("mode", "DCR") == "CRD"
    at, channel = (
        (f"{c} % {block * block}", f"{c} / {block * block}") if crd else (f"{c} / {channels}", f"{c} % {channels}")
    )
    source = [n, channel, f"{h} * {block} + {at} / {block}", f"{w} * {block} + {at} % {block}"]
    return mapped(site, "space_to_depth", x, shape, source)


def _triangle(site: Site) -> Lowered:
    x, shift = site.given(0), site.ints(1, "k")
    names = indices(x.type.rank)
    i, j = names[-2:]
    kept = f"{offset(i, shift[0] if shift else 0)} {'<=' if site.attribute('upper', 1) else '>='} {j}"
    value = place(site.parameter("X", x), names)
    site.stage(f"{place('Y', ranged(names, x.shape))} = {value} if {kept} else {literal(0, x.dtype)}")
    return site.computed("triangle", ("Y", x.type))


def _reversed(site: Site) -> Lowered:
    x, lengths = site.given(0), site.given(1)
    names = indices(x.type.rank)
    time: int = site.attribute("time_axis", 0)
    batch: int = site.attribute("batch_axis", 1)
    n = x.shape[time]
    count = f"clamp({place(site.parameter('L', lengths), [names[batch]])}, 0, {n})"
    source = names.copy()
    source[time] = f"clamp({count} - 1 - {names[time]}, 0, {n - 1})"
    value = place(site.parameter("X", x), source)
    kept = f"i64({names[time]}) < {place('L', [names[batch]])}"
    site.stage(f"{place('Y', ranged(names, x.shape))} = {value} if {kept} else {place('X', names)}")
    return site.computed("reverse_sequence", ("Y", x.type))


# --- parts and joins ---------------------------------------------------------------------------------------------------


_MOST_CASES = 16


def _concat(site: Site) -> Lowered:
    operands = [o for n in range(len(site.operands)) if (o := site.given(n)).type.size or len(site.operands) == 1]
    if not operands:
        return _viewed(site.given(0), site.given(0).shape)
    rank = operands[0].type.rank
    axis = axis_of(site.attribute("axis", 0), rank)
    rest = {(o.dtype, o.shape[:axis], o.shape[axis + 1 :]) for o in operands}
    if len(rest) != 1:
        raise Unsupported("operands of other shapes")
    if len(operands) == 1:
        return _viewed(operands[0], operands[0].shape)
    names = indices(rank)
    at, parts = 0, list[tuple[str, int]]()
    known: dict[str, str] = {}
    for o in operands:
        if o.name not in known:
            known[o.name] = site.parameter(f"X{len(known)}", o)
        source = [offset(n, -at) if k == axis else n for k, n in enumerate(names)]
        at += o.shape[axis]
        parts.append((place(known[o.name], source), at))
    while len(parts) > _MOST_CASES:  # a tree of cases, since a chain of many is nested too deep
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [
            (f"({p[0][0]} if {names[axis]} < {p[0][1]} else {p[1][0]})", p[1][1]) if p[1:] else p[0] for p in pairs
        ]
    value = " else ".join(f"{text} if {names[axis]} < {end}" for text, end in parts[:-1]) + f" else {parts[-1][0]}"
    shape = tuple(at if k == axis else n for k, n in enumerate(operands[0].shape))
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("concat", ("Y", Tensor(operands[0].dtype, shape)))


def _split(site: Site) -> Lowered:
    x = site.given(0)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    size, count = x.shape[axis], len(site.node.outputs)
    sizes = site.ints(1, "the sizes") or site.attribute("split")
    if sizes is None:
        each = -(-size // count)
        sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if sum(sizes) != size or len(sizes) != count or min(sizes) < 0:
        raise Unsupported(f"{size} elements in parts of {sizes}")
    names = indices(x.type.rank)
    site.parameter("X", x)
    results: list[tuple[str, Tensor]] = []
    at = 0
    for n, part in enumerate(sizes):
        shape = tuple(part if k == axis else s for k, s in enumerate(x.shape))
        source = [offset(i, at) if k == axis else i for k, i in enumerate(names)]
        at += part
        if site.wants(n):
            site.stage(f"{place(f'Y{n}', ranged(names, shape))} = {place('X', source)}")
            results.append((f"Y{n}", Tensor(x.dtype, shape)))
    return site.computed("split", *results)


def _pad(site: Site) -> Lowered:
    x = site.given(0)
    mode = site.attribute("mode", "constant")
    pads, axes = site.ints(1, "the padding") or site.attribute("pads"), site.ints(3, "the axes")
    rank = x.type.rank
    chosen = [axis_of(a, rank) for a in axes] if axes is not None else list(range(rank))
    if pads is None or len(pads) != 2 * len(chosen):
        raise Unsupported("another number of paddings than of dimensions")
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(chosen):
        before[axis], after[axis] = pads[k], pads[k + len(chosen)]
    shape = [b + n + a for b, n, a in zip(before, x.shape, after, strict=True)]
    if min(shape, default=1) < 0:
        raise Unsupported(f"padding {pads} of {x.type}")
    if not any(before) and not any(after):
        return _viewed(x, shape)
    names = indices(rank)
    source: list[str] = []
    inside: list[str] = []
    for i, b, n, a in zip(names, before, x.shape, after, strict=True):
        at = offset(i, -b)
        if b <= 0 and a <= 0:
            source.append(at)
        elif mode == "constant":
            source.append(at)
            inside.append(f"{max(b, 0)} <= {i} < {b + n}" if b > 0 else f"{i} < {b + n}")
        elif mode == "edge":
            source.append(f"clamp({at}, 0, {n - 1})")
        elif mode == "wrap":
            source.append(f"({at}) % {n}")
        elif n == 1:
            source.append("0")
        else:  # there and back: a period of 2 (n - 1)
            period = 2 * (n - 1)
            source.append(f"{n - 1} - abs(({at}) % {period} - {n - 1})")
    value = place(site.parameter("X", x), source)
    if inside:
        fill = site.optional(2)
        text = literal(0 if fill is not None else site.attribute("value", 0), x.dtype)
        if fill is not None:
            text = fill.scalar or place(site.parameter("V", fill), ["0"] * fill.type.rank)
        value = f"{value} if {' and '.join(inside)} else {text}"
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("pad", ("Y", Tensor(x.dtype, tuple(shape))))


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
        index = wrapped(place(site.parameter("I", at), inner), x.shape[axis])
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
        return Known((np.empty(shape, NUMPY[x.dtype]),))
    index = place(site.table("I", chosen), [names[axis or 0]])
    if axis is None:
        return mapped(site, "compress", x, shape, _numbered(index, x.shape))
    return mapped(site, "compress", x, shape, [wrapped(index, size) if k == axis else n for k, n in enumerate(names)])


def _gather_elements(site: Site) -> Lowered:
    x, at = site.given(0), site.given(1)
    axis = axis_of(site.attribute("axis", 0), x.type.rank)
    names = indices(x.type.rank)
    index = wrapped(place(site.parameter("I", at), names), x.shape[axis])
    return mapped(site, "gather", x, at.shape, [index if k == axis else n for k, n in enumerate(names)])


def _gather_nd(site: Site) -> Lowered:
    x, at = site.given(0), site.given(1)
    batch: int = site.attribute("batch_dims", 0)
    depth = at.shape[-1]
    outer = at.shape[:-1]
    shape = (*outer, *x.shape[batch + depth :])
    names = indices(len(shape))
    site.parameter("I", at)
    inner = [wrapped(place("I", [*names[: len(outer)], str(d)]), x.shape[batch + d]) for d in range(depth)]
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
    site.parameter("V", values)
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
    index = wrapped(place("I", names), size)
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


@dataclass(frozen=True, slots=True)
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
        out.append("0" if size == 1 else wrapped(number if rest == 1 else f"{number} / {rest}", size))
    return out


def _reduction(site: Site) -> str:
    found = site.attribute("reduction", "none")
    if found != "none" and found not in _JOINED:
        raise Unsupported(f"updates that are joined by `{found}`")
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

    same = f"{wrapped(element('I', at, 'x'), x.shape[axis])} == {at.dtype}({names[axis]})"
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
    hits = [f"{wrapped(place('I', [*own, str(k)]), x.shape[k])} == {at.dtype}({names[k]})" for k in range(depth)]
    return scatter.by_search(site, depth, " and ".join(hits), own, read)


# --- changes of size ---------------------------------------------------------------------------------------------------


def _coordinates(mode: str, size: int, result: int, scale: float, region: tuple[float, float]) -> Array:
    """Where the elements of a result lie in the input, as f64. https://onnx.ai/onnx/operators/onnx__Resize.html"""
    x = np.arange(result, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if result > 1 else x * 0
        case "asymmetric":
            return x / scale
        case "align_corners":
            length = scale * size  # not rounded
            return x * (size - 1) / (length - 1) if length != 1 else x * 0
        case "half_pixel_symmetric":
            adjusted = result / (scale * size)
            return size / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
        case "tf_crop_and_resize":
            start, end = region
            if result > 1:
                return start * (size - 1) + x * (end - start) * (size - 1) / (result - 1)
            return x * 0 + 0.5 * (start + end) * (size - 1)
        case _:
            raise Unsupported(f"coordinates by `{mode}`")


SIMPLE = "simple"
"""How ONNX Runtime takes the nearest element before opset 11, which did not say: the next one where there are fewer."""


def _nearest(at: Array, how: str, scale: float) -> Array:
    match how:
        case _ if how == SIMPLE:
            return np.ceil(at) if scale < 1 else np.floor(at)
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case _:
            raise Unsupported(f"the nearest element by `{how}`")


def _filters(site: Site, mode: str, at: Array, scale: float, size: int) -> tuple[Array, Array]:
    """For each place, the elements that it is made of, and their weights: arrays [places, taps]."""
    down = scale if site.attribute("antialias", 0) and scale < 1 else 1.0
    reach = (1 if mode == "linear" else 2) / down
    base = np.floor(at)
    taps = np.arange(-int(np.ceil(reach)) + 1, int(np.ceil(reach)) + 1)
    elements = base[:, None] + taps
    distance = np.abs(at[:, None] - elements) * down
    if mode == "linear":
        weights = np.maximum(0.0, 1.0 - distance)
    else:
        a = site.attribute("cubic_coeff_a", -0.75)
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    if site.attribute("exclude_outside", 0):
        weights = np.where((elements >= 0) & (elements < size), weights, 0.0)
        weights /= weights.sum(1, keepdims=True)
    elif down != 1.0:
        weights /= weights.sum(1, keepdims=True)
    return np.clip(elements, 0, size - 1).astype(np.int64), weights


def _looked_up(site: Site, index: str, table: Array, size: int) -> str:
    """The subscript that a table of elements gives an index: a quotient where it is one, else read from the table."""
    count = len(table)
    numbers = np.arange(count)
    for text, value in (
        (f"{index} * {size} / {count}", numbers * size // count),
        (f"({index} * {size} + {size // 2}) / {count}", (numbers * size + size // 2) // count),
    ):
        if np.array_equal(value, table):
            if count % size == 0 and count != size:
                return f"{index} / {count // size}"
            if size % count == 0:
                return offset(scaled(index, size // count), int(table[0]))
            return text
    name = site.table(f"T{index}", table.astype(np.int32))
    return f"clamp({place(name, [index])}, 0, {size - 1})"


def _resize(site: Site) -> Lowered:
    x = site.given(0)
    rank = x.type.rank
    axes = [axis_of(a, rank) for a in site.attribute("axes") or range(rank)]
    roi, given, sizes = site.constant(1, "the region"), site.constant(2, "the scales"), site.constant(3, "the sizes")
    shape, scales = list(x.shape), [1.0] * rank
    mode, how = site.attribute("mode", "nearest"), site.attribute("coordinate_transformation_mode", "half_pixel")
    if sizes is not None and sizes.size:
        asked = [int(n) for n in sizes]
        policy = site.attribute("keep_aspect_ratio_policy", "stretch")
        ratios = [asked[k] / x.shape[a] for k, a in enumerate(axes)]
        for k, a in enumerate(axes):
            scales[a], shape[a] = ratios[k], asked[k]
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            for a in axes:
                scales[a], shape[a] = one, int(np.floor(one * x.shape[a] + 0.5))
    elif given is not None and given.size:
        for k, a in enumerate(axes):
            scales[a] = float(given[k])
            shape[a] = int(np.floor(scales[a] * x.shape[a] + 1e-9))
    else:
        raise Unsupported("neither scales nor sizes")
    if min(shape) < 1:
        raise Unsupported(f"a result of the shape {shape}")
    names = indices(rank)
    source, weights, taps = names.copy(), list[str](), list[str]()
    inside: list[str] = []
    crops, nearest = how == "tf_crop_and_resize", site.attribute("nearest_mode", "round_prefer_floor")
    site.parameter("X", x)
    for k, a in enumerate(axes):
        region = (float(roi[k]), float(roi[k + len(axes)])) if crops and roi is not None and roi.size else (0.0, 1.0)
        if shape[a] == x.shape[a] and scales[a] == 1.0 and not crops:
            continue
        at = _coordinates(how, x.shape[a], shape[a], scales[a], region)
        if crops and ((at < 0) | (at > x.shape[a] - 1)).any():
            kept = [int(v) for v in np.flatnonzero((at >= 0) & (at <= x.shape[a] - 1))]
            inside.append(f"{kept[0]} <= {names[a]} <= {kept[-1]}" if kept else "false")
        if mode == "nearest":
            table = np.clip(_nearest(at, nearest, scales[a]), 0, x.shape[a] - 1)
            source[a] = _looked_up(site, names[a], table, x.shape[a])
        else:
            elements, factors = _filters(site, mode, at, scales[a], x.shape[a])
            tap = f"t{names[a]}"
            taps.append(f"{tap} in {elements.shape[1]}")
            source[a] = (
                f"clamp({place(site.table(f'T{names[a]}', elements.astype(np.int32)), [names[a], tap])}, 0, {x.shape[a] - 1})"
            )
            dtype = np.float32 if x.dtype == "f32" else np.float64
            weights.append(place(site.table(f"W{names[a]}", factors.astype(dtype)), [names[a], tap]))
    value = place("X", source)
    if weights:
        value = f"sum[{', '.join(taps)}] {value} * {' * '.join(weights)}"
    if inside:
        fill = literal(np.float32(site.attribute("extrapolation_value", 0.0)), x.dtype)
        value = f"({value}) if {' and '.join(inside)} else {fill}"
    if not weights and source == names and not inside:
        return _viewed(x, shape)
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("resize", ("Y", Tensor(x.dtype, tuple(shape))))


_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _grid_sample(site: Site) -> Lowered:
    """Along each axis, the elements around a place and their weights; the result is a sum of products with them."""
    x, grid = site.given(0), site.given(1)
    rank = x.type.rank - 2
    mode, padding = site.attribute("mode", "linear"), site.attribute("padding_mode", "zeros")
    taps = _TAPS.get(mode, 0)
    if not 0 < rank <= 3 or grid.type.rank != rank + 2 or (grid.shape[0], grid.shape[-1]) != (x.shape[0], rank):
        raise Unsupported(f"a grid {grid.type} for {x.type}")
    if not taps or padding not in ("zeros", "border", "reflection") or x.dtype != grid.dtype or 0 in x.shape:
        raise Unsupported(f"samples by `{mode}` with `{padding}` of {x.type} at {grid.type}")
    names = indices(x.type.rank)
    outer = [names[0], *names[2:]]
    sizes = (x.shape[0], *grid.shape[1:-1])
    site.parameter("X", x)
    site.parameter("G", grid)
    aligned = bool(site.attribute("align_corners", 0))
    source, weights = names[:2], list[str]()
    for d, size in enumerate(x.shape[2:]):
        spot, tap = place(f"x{d}", outer), f"t{d}"
        ranges = [*ranged(outer, sizes), f"{tap} in {taps}"]
        at = _unnormalized(place("G", [*outer, str(rank - 1 - d)]), size, aligned)
        site.stage(f"let {place(f'u{d}', ranged(outer, sizes))} = {f'round({at})' if taps == 1 else at}")
        # A cubic's place stays beyond a border, as in PyTorch and ONNX Runtime; its elements stop there.
        back = "zeros" if taps == 4 and padding == "border" else padding
        site.stage(f"let {spot} = {_brought_back(place(f'u{d}', outer), size, back, aligned)}")
        first = "" if taps < 4 else " - 1"
        site.stage(f"let {place(f'n{d}', ranges)} = i64(floor({spot})) + i64({tap}){first}")
        element = place(f"n{d}", [*outer, tap])
        source.append(f"clamp({_standing(element, size, padding, aligned)}, 0, {size - 1})")
        if taps > 1 or padding == "zeros":
            apart = f"abs({spot} - {x.dtype}({element}))"
            weight = f"{x.dtype}(1.0)" if taps == 1 else f"1.0 - {apart}" if taps == 2 else _cubic(apart)
            if padding == "zeros":
                weight = f"({weight}) if 0 <= {element} and {element} < {size} else 0.0"
            site.stage(f"let {place(f'w{d}', ranges)} = {weight}")
            weights.append(place(f"w{d}", [*outer, tap]))
    value = f"sum[{', '.join(f't{d} in {taps}' for d in range(rank))}] {' * '.join([place('X', source), *weights])}"
    shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("grid_sample", ("Y", Tensor(x.dtype, shape)))


def _unnormalized(at: str, size: int, aligned: bool) -> str:
    return f"({at} + 1.0) / 2.0 * {size - 1}.0" if aligned else f"(({at} + 1.0) * {size}.0 - 1.0) / 2.0"


def _brought_back(at: str, size: int, padding: str, aligned: bool) -> str:
    """A place that the padding brings back; with zeros around, one so far outside that no element is near stays there."""
    low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
    beyond = f"{at} < {literal(low, 'f32')} or {at} > {literal(low + span, 'f32')}"
    if padding == "zeros":
        return f"clamp({at}, -4.0, {size + 3}.0)"
    if padding == "border":
        return f"clamp({at}, 0.0, {size - 1}.0) if {beyond} else {at}"
    if not span:
        return f"{at} * 0.0"
    turned = f"{literal(low + span, 'f32')} - abs(({at} - {literal(low, 'f32')}) % {2 * span} - {span})"
    return f"{turned} if {beyond} else {at}"


def _standing(element: str, size: int, padding: str, aligned: bool) -> str:
    """The element that stands for one outside."""
    if padding != "reflection" or size == 1:
        return element
    if aligned:
        return f"{size - 1} - abs({element} % {2 * size - 2} - {size - 1})"
    return f"min({element} % {2 * size}, {2 * size - 1} - {element} % {2 * size})"


def _cubic(apart: str) -> str:
    """The weight of an element of a cubic convolution by its distance, as in `_filters`."""
    near = f"(1.25 * {apart} - 2.25) * {apart} * {apart} + 1.0"
    return f"{near} if {apart} <= 1.0 else ((-0.75 * {apart} + 3.75) * {apart} - 6.0) * {apart} + 3.0"


TABLE: Mapping[str, Writer] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _triangle,
    "ReverseSequence": _reversed,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Compress": _compressed,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Resize": _resize,
    "GridSample": _grid_sample,
}
