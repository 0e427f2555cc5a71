"""Operators that move elements: views, maps of indices, parts and joins."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorc_dsl.graph.graph import Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Site,
    Writer,
    axes_of,
    axis_of,
    broadcast,
    indices,
    mapped,
    offset,
    place,
    ranged,
    scaled,
    stretched,
    viewed,
)

# --- views -------------------------------------------------------------------------------------------------------------


def _reshape(site: Site) -> Lowered:
    x, asked = site.given(0), site.ints(1, "the shape")
    if asked is None:
        asked = site.attribute("shape", [])
    zero = site.attribute("allowzero", 0)
    shape = [x.shape[k] if n == 0 and not zero and k < x.type.rank else n for k, n in enumerate(asked)]
    if shape.count(-1) == 1:
        rest = prod(n for n in shape if n != -1)
        if rest == 0:
            raise Unsupported(f"{x.type} in the shape {shape}, of which -1 may be any size")
        shape[shape.index(-1)] = x.type.size // rest
    return viewed(x, shape)


def _flatten(site: Site) -> Lowered:
    x = site.given(0)
    axis = site.attribute("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise Unsupported(f"there is no axis {axis} of {x.type.rank} dimensions")
    axis += x.type.rank if axis < 0 else 0
    return viewed(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(site: Site) -> Lowered:
    x = site.given(0)
    axes = site.ints(1, "axes") or site.attribute("axes")
    chosen = axes_of(axes, x.type.rank) if axes else [k for k, n in enumerate(x.shape) if n == 1]
    return viewed(x, [n for k, n in enumerate(x.shape) if k not in chosen])


def _unsqueeze(site: Site) -> Lowered:
    x = site.given(0)
    axes = site.ints(1, "axes") or site.attribute("axes") or []
    rank = x.type.rank + len(axes)
    chosen = axes_of(axes, rank)
    rest = iter(x.shape)
    return viewed(x, [1 if k in chosen else next(rest) for k in range(rank)])


# --- maps of indices ---------------------------------------------------------------------------------------------------


def _transpose(site: Site) -> Lowered:
    x = site.given(0)
    order = site.attribute("perm") or list(range(x.type.rank))[::-1]
    if sorted(order) != list(range(x.type.rank)):
        raise Unsupported(f"the order {order} of {x.type.rank} dimensions")
    shape = [x.shape[k] for k in order]
    kept = [k for k in order if x.shape[k] != 1]
    if kept == sorted(kept):  # only dimensions of one element move
        return viewed(x, shape)
    names = indices(len(order))
    return mapped(site, "transpose", x, shape, [names[order.index(k)] for k in range(len(order))])


def _expand(site: Site) -> Lowered:
    x, asked = site.given(0), site.ints(1, "the shape")
    assert asked is not None
    shape = broadcast([x.shape, tuple(asked)])
    if shape == x.shape:
        return viewed(x, shape)
    return mapped(site, "expand", x, shape, stretched(x.shape, indices(len(shape))))


def _tile(site: Site) -> Lowered:
    x, repeats = site.given(0), site.ints(1, "the repeats")
    if repeats is None or len(repeats) != x.type.rank:
        raise Unsupported("another number of repeats than dimensions")
    shape = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    if tuple(shape) == x.shape:
        return viewed(x, shape)
    names = indices(len(shape))
    source = [n if r == 1 else "0" if s == 1 else f"{n} % {s}" for n, r, s in zip(names, repeats, x.shape, strict=True)]
    return mapped(site, "tile", x, shape, source)


def slice_bounds(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """The first element of a slice, and the number of its elements."""
    if step == 0:
        raise Unsupported("a slice with a step of 0")
    # A start in front of the first element is the first one, for steps backwards, too.
    chosen = range(size)[slice(max(start, -size), end if step > 0 or end >= -size else None, step)]
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
        return viewed(x, shape)
    return mapped(site, "slice", x, shape, source)


def _depth_to_space(site: Site) -> Lowered:
    x, block = site.given(0), site.attribute("blocksize", 1)
    batch, channels, height, width = x.shape
    made = channels // (block * block)
    n, c, h, w = indices(4)
    inner = f"{h} % {block} * {block} + {w} % {block}"
    if site.word("mode", "DCR", "CRD") == "CRD":
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
    crd = site.word("mode", "DCR", "CRD") == "CRD"
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
        return viewed(site.given(0), site.given(0).shape)
    rank = operands[0].type.rank
    axis = axis_of(site.attribute("axis", 0), rank)
    # What has no elements is left out, but has to fit; exporters begin lists with one of a single dimension.
    every = [site.given(n) for n in range(len(site.operands))]
    fitting = [o for o in every if o.type.size or o.type.rank == rank]
    rest = {(o.dtype, o.shape[:axis], o.shape[axis + 1 :]) for o in fitting}
    if len(rest) != 1:
        raise Unsupported("operands of other shapes")
    if len(operands) == 1:
        return viewed(operands[0], operands[0].shape)
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
    if sum(sizes) != size or {len(sizes), site.attribute("num_outputs", count)} != {count} or min(sizes) < 0:
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
    mode = site.word("mode", "constant", "edge", "reflect", "wrap")
    pads, axes = site.ints(1, "the padding") or site.attribute("pads"), site.ints(3, "the axes")
    fill, number = site.optional(2), site.attribute("value", 0)
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
        return viewed(x, shape)
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
        text = literal(0 if fill is not None else number, x.dtype)
        if fill is not None:
            text = fill.scalar or place(site.parameter("V", fill), ["0"] * fill.type.rank)
        value = f"{value} if {' and '.join(inside)} else {text}"
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("pad", ("Y", Tensor(x.dtype, tuple(shape))))


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
}
