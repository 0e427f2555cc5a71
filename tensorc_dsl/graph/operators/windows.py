"""Operators that slide a window over one to three dimensions: convolutions, their transposes, and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Operand,
    Site,
    Writer,
    each_of,
    offset,
    place,
    ranged,
    same_padding,
    scaled,
)

_PLACES, _TAPS = ("oh", "ow", "od"), ("kh", "kw", "kd")
_PADDED = ("h", "w", "d")


@frozen
class Window:
    """Where a window is, for each dimension that it slides over."""

    sizes: tuple[int, ...]
    """Of the input."""
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """The padding in front."""
    after: tuple[int, ...]
    results: tuple[int, ...]
    """The sizes of the result."""

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def padded(self) -> tuple[int, ...]:
        """The sizes of the input with its padding, and beyond it where the last window ends later."""
        ends = (
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(self.results, self.strides, self.extents, self.dilations, strict=True)
        )
        whole = (b + n + a for b, n, a in zip(self.before, self.sizes, self.after, strict=True))
        return tuple(map(max, ends, whole))

    def taps(self) -> list[str]:
        """The elements of the padded input under the window, by `oh` and `kh`."""
        return [
            _sum(
                scaled(_PLACES[n], self.strides[n]), scaled(_TAPS[n], self.dilations[n]) if self.extents[n] > 1 else ""
            )
            for n in range(self.rank)
        ]

    def within(self) -> list[str]:
        """The places in a window by the indices of `sums`."""
        return [_TAPS[n] if self.extents[n] > 1 else "0" for n in range(self.rank)]

    def sums(self) -> list[tuple[str, int]]:
        """The indices over a window with their sizes, but for those of one element."""
        return [(_TAPS[n], self.extents[n]) for n in range(self.rank) if self.extents[n] > 1]


def _sum(a: str, b: str) -> str:
    return f"{a} + {b}" if b else a


def _attribute(site: Site, name: str, rank: int, default: int) -> list[int]:
    found = site.attribute(name) or [default] * rank
    if len(found) != rank:
        raise Unsupported(f"`{name}` has {len(found)} numbers for {rank} dimensions")
    if name != "pads" and min(found) < 1:
        raise Unsupported(f"`{name}` is {found}")
    return list(found)


def _auto_pad(site: Site) -> str:
    return site.word("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")


def window_of(site: Site, sizes: Sequence[int], extents: Sequence[int], ceil: bool = False) -> Window:
    """The window of a convolution or a pool over these sizes. Raises Unsupported."""
    rank = len(sizes)
    if not 1 <= rank <= 3:
        raise Unsupported(f"a window over {rank} dimensions")
    strides = _attribute(site, "strides", rank, 1)
    dilations = _attribute(site, "dilations", rank, 1)
    auto = _auto_pad(site)
    pads = site.attribute("pads") or [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise Unsupported(f"`pads` has {len(pads)} numbers for {rank} dimensions")
    before, after, results = list(pads[:rank]), list(pads[rank:]), list[int]()
    for n in range(rank):
        reach = (extents[n] - 1) * dilations[n] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            before[n], after[n] = same_padding(sizes[n], reach, strides[n], auto == "SAME_UPPER")
        elif auto == "VALID":
            before[n] = after[n] = 0
        left = sizes[n] + before[n] + after[n] - reach
        count = (-(-left // strides[n]) if ceil else left // strides[n]) + 1
        if ceil and (count - 1) * strides[n] >= sizes[n] + before[n]:
            count -= 1  # a window may not begin in the padding behind
        if left < 0 or min(before[n], after[n]) < 0:
            raise Unsupported("a window that is larger than its input, or negative padding")
        results.append(count)
    return Window(
        tuple(sizes), tuple(extents), tuple(strides), tuple(dilations), tuple(before), tuple(after), tuple(results)
    )


def padded(site: Site, name: str, leading: Sequence[str], w: Window, fill: str, element: str = "{}") -> str:
    """The name of the input with its padding: of a stage that is added, or of the input itself if there is none.

    `element` is what the stage has of an element of the input.
    """
    spatial = _PADDED[: w.rank]
    inside = [
        f"{b} <= {i} < {b + n}" for i, b, n, p in zip(spatial, w.before, w.sizes, w.padded, strict=True) if b or p != n
    ]
    if not inside and element == "{}":
        return name
    value = element.format(place(name, [*leading, *(offset(i, -b) for i, b in zip(spatial, w.before, strict=True))]))
    if inside:
        value = f"{value} if {' and '.join(inside)} else {fill}"
    site.stage(f"let {name}p[{', '.join([*leading, *ranged(spatial, w.padded)])}] = {value}")
    return f"{name}p"


@frozen
class _Filters:
    """The sizes of a convolution of `X` with `F`, whose result has `made` channels, of `each` channels of the input."""

    window: Window
    batch: int
    made: int
    groups: int
    each: int

    @property
    def names(self) -> tuple[str, ...]:
        return ("n", "co", *_PLACES[: self.window.rank])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.made, *self.window.results)

    @property
    def ranges(self) -> str:
        """The indices of the result with their ranges."""
        return ", ".join(ranged(self.names, self.shape))

    def product(self, source: str, factor: str = "{}") -> str:
        """The sum of products of what is under the window with what `factor` makes of the filter."""
        w = self.window
        channel = _channel(self.groups, self.made // self.groups, self.each)
        tap = factor.format(place("F", ["co", "0" if self.each == 1 else "c", *w.within()]))
        value = f"{place(source, ['n', channel, *w.taps()])} * {tap}"
        # A tap that is the only one has no index: a convolution of 1×1 is a product of matrices.
        reduced = [*([] if self.each == 1 else [f"c in {self.each}"]), *(f"{t} in {n}" for t, n in w.sums())]
        return f"sum[{', '.join(reduced)}] {value}" if reduced else value


def _filters(site: Site, x: Operand, f: Operand) -> _Filters:
    """The sizes of the node. Raises Unsupported if filter and input do not fit."""
    groups = site.attribute("group", 1)
    if f.type.rank != x.type.rank or not 3 <= x.type.rank <= 5:
        raise Unsupported(f"a filter {f.type} for {x.type}")
    (batch, channels), (made, each) = x.shape[:2], f.shape[:2]
    if groups < 1 or each * groups != channels or made % groups:
        raise Unsupported(f"a filter {f.type} in {groups} groups for {x.type}")
    _require_kernel(site, f)
    site.parameter("X", x)
    site.parameter("F", f)
    return _Filters(window_of(site, x.shape[2:], f.shape[2:]), batch, made, groups, each)


def _biased(site: Site, bias: Operand | None, made: int, value: str) -> str:
    """The value with the bias of its channel, if there is one."""
    if bias is None:
        return value
    return f"{place(site.parameter('B', bias, (made,)), ['co'])} + ({value})"


def _require_kernel(site: Site, f: Operand) -> None:
    """Raise Unsupported if the node says other sizes than its filter has."""
    said = site.attribute("kernel_shape")
    if said and tuple(said) != f.shape[2:]:
        raise Unsupported(f"`kernel_shape` is {said} for a filter {f.type}")


def _convolved(site: Site) -> Lowered:
    x = site.given(0)
    f = _filters(site, x, site.given(1))
    source = padded(site, "X", ("n", "c"), f.window, literal(0, x.dtype))
    if source != "X" and x.type.is_float:
        # So that a schedule may leave out the zeros around the input.
        site.finite("F", site.given(1).value)
    site.stage(f"Y[{f.ranges}] = {_biased(site, site.optional(2), f.made, f.product(source))}")
    rank = f.window.rank
    stem = f"conv{rank}d" if f.groups == 1 else "depthwise" if f.each == 1 else f"conv{rank}d_grouped"
    return site.computed(stem, ("Y", Tensor(x.dtype, f.shape)))


def _zero(site: Site, o: Operand | None, name: str, channel: str, count: int) -> str:
    """What is subtracted from an integer: its zero point, for all or for each channel; empty for 0."""
    if o is None or (o.value is not None and not o.value.any()):
        return ""
    if o.scalar is not None:
        return f" - i32({o.dtype}({o.scalar}))"
    return f" - i32({each_of(site, name, o, channel, count)})"


def _scale(site: Site, o: Operand, name: str, channel: str, count: int) -> str:
    """A scale, for all or for each channel."""
    if o.scalar is not None:
        return f"{o.dtype}({o.scalar})"
    return each_of(site, name, o, channel, count)


def _deformed(site: Site) -> Lowered:
    """The products of a filter with samples between the elements of the input, at places that data shifts.

    https://onnx.ai/onnx/operators/onnx__DeformConv.html
    """
    x, mask = site.given(0), site.optional(4)
    f, parts = _filters(site, x, site.given(1)), site.attribute("offset_group", 1)
    w, rank = f.window, f.window.rank
    if parts < 1 or x.shape[1] % parts or not x.type.is_float or 0 in x.shape:
        raise Unsupported(f"{parts} groups of places in {x.type}")
    taps, spots = _TAPS[:rank], _PLACES[:rank]
    number = "p"
    for tap, size in zip(taps, w.extents, strict=True):
        number = f"({number}) * {size} + {tap}"
    site.parameter("O", site.given(2), (f.batch, parts * prod(w.extents) * rank, *w.results))
    outer = ["n", "p", *taps, *spots]
    ranges = ranged(outer, (f.batch, parts, *w.extents, *w.results))
    source, weights = list[str](), list[str]()
    for d, size in enumerate(w.sizes):
        u, n, near = f"u{d}", f"n{d}", f"t{d}"
        still = offset(f"{scaled(spots[d], w.strides[d])} + {scaled(taps[d], w.dilations[d])}", -w.before[d])
        moved = place("O", ["n", f"({number}) * {rank} + {d}", *spots])
        # So far outside that no element is near, a place stays there.
        site.stage(f"let {place(u, ranges)} = clamp({x.dtype}({still}) + {moved}, -2.0, {size + 1}.0)")
        site.stage(f"let {place(n, [*ranges, f'{near} in 2'])} = i64(floor({place(u, outer)})) + i64({near})")
        element = place(n, [*outer, near])
        apart = f"1.0 - abs({place(u, outer)} - {x.dtype}({element}))"
        weight = f"({apart}) if 0 <= {element} and {element} < {size} else 0.0"
        site.stage(f"let {place(f'w{d}', [*ranges, f'{near} in 2'])} = {weight}")
        inner = ["n", _group_of(x.shape[1], parts), *taps, *spots, near]
        source.append(f"clamp({place(n, inner)}, 0, {size - 1})")
        weights.append(place(f"w{d}", inner))
    reduced = ", ".join(f"t{d} in 2" for d in range(rank))
    value = f"sum[{reduced}] {' * '.join([place('X', ['n', 'c', *source]), *weights])}"
    if mask is not None:
        site.parameter("M", mask, (f.batch, parts * prod(w.extents), *w.results))
        kept = number.replace("p", _group_of(x.shape[1], parts), 1)
        value = f"({value}) * {place('M', ['n', kept, *spots])}"
    site.stage(
        f"let S[{', '.join(ranged(['n', 'c', *taps, *spots], (*x.shape[:2], *w.extents, *w.results)))}] = {value}"
    )
    channel = _channel(f.groups, f.made // f.groups, f.each)
    product = f"{place('S', ['n', channel, *taps, *spots])} * {place('F', ['co', '0' if f.each == 1 else 'c', *taps])}"
    sums = [*([] if f.each == 1 else [f"c in {f.each}"]), *ranged(taps, w.extents)]
    total = f"sum[{', '.join(sums)}] {product}"
    site.stage(f"Y[{f.ranges}] = {_biased(site, site.optional(3), f.made, total)}")
    return site.computed(f"deform_conv{rank}d", ("Y", Tensor(x.dtype, f.shape)))


def _group_of(channels: int, groups: int) -> str:
    """The group of channel `c`."""
    return "0" if groups == 1 else "c" if groups == channels else f"c / {channels // groups}"


def _integer_convolved(site: Site) -> Lowered:
    """The products of integers less their zero points, as i32; of QLinearConv scaled, rounded and limited."""
    linear = site.node.op == "QLinearConv"
    f = _filters(site, site.given(0), site.given(3 if linear else 1))
    zero_x, zero_f = (site.optional(n) for n in ((2, 5) if linear else (2, 3)))
    source = padded(site, "X", ("n", "c"), f.window, "0", f"i32({{}}){_zero(site, zero_x, 'P', '0', 1)}")
    value = f.product(source, f"(i32({{}}){_zero(site, zero_f, 'Q', 'co', f.made)})")
    if not linear:
        site.stage(f"Y[{f.ranges}] = {value}")
        return site.computed("conv_integer", ("Y", Tensor("i32", f.shape)))
    scales = [_scale(site, site.given(n), name, "co", f.made) for n, name in ((1, "U"), (4, "V"), (6, "W"))]
    zero = site.given(7)
    site.stage(f"let S[{f.ranges}] = {value}")
    total = _biased(site, site.optional(8), f.made, place("S", f.names))
    added = zero.scalar or place(site.parameter("Z", zero), ["0"] * zero.type.rank)
    value = f"round(f32({total}) * ({scales[0]} * {scales[1]} / {scales[2]})) + f32({zero.dtype}({added}))"
    site.stage(f"Y[{f.ranges}] = saturate({zero.dtype}, {value})")
    return site.computed("qlinear_conv", ("Y", Tensor(zero.dtype, f.shape)))


def _channel(groups: int, made: int, each: int) -> str:
    """The input channel of output channel `co`: `made` of them and `each` input channels are in a group."""
    group = "co" if made == 1 else f"co / {made}"
    if groups == 1:
        return "0" if each == 1 else "c"
    return group if each == 1 else f"({group}) * {each} + c" if made != 1 else f"co * {each} + c"


def _transposed(site: Site) -> Lowered:
    x, f, bias = site.given(0), site.given(1), site.optional(2)
    rank = x.type.rank - 2
    if f.type.rank != x.type.rank or not 1 <= rank <= 3:
        raise Unsupported(f"a filter {f.type} for {x.type}")
    groups = site.attribute("group", 1)
    (batch, channels), (taken, each) = x.shape[:2], f.shape[:2]
    if groups < 1 or taken != channels or channels % groups:
        raise Unsupported(f"a filter {f.type} in {groups} groups for {x.type}")
    _require_kernel(site, f)
    sizes, extents = x.shape[2:], f.shape[2:]
    strides, dilations = _attribute(site, "strides", rank, 1), _attribute(site, "dilations", rank, 1)
    more = site.attribute("output_padding") or [0] * rank
    before, results = _transposed_sizes(site, sizes, extents, strides, dilations, more)
    site.parameter("X", x)
    site.parameter("F", f)
    inside: list[str] = []
    source: list[str] = []
    for n in range(rank):
        at = offset(_PLACES[n], before[n]) + (f" - {scaled(_TAPS[n], dilations[n])}" if extents[n] > 1 else "")
        if strides[n] > 1:
            inside.append(f"({at}) % {strides[n]} == 0")
        inside.append(f"0 <= {at} < {(sizes[n] - 1) * strides[n] + 1}")
        source.append(at if strides[n] == 1 else f"({at}) / {strides[n]}")
    made, share = each * groups, channels // groups
    channel = "c" if groups == 1 else f"(co / {each}) * {share} + c"
    tap = place("F", [channel, "co" if groups == 1 else f"co % {each}", *_TAPS[:rank]])
    reduced = ranged(("c", *_TAPS[:rank]), (share, *extents))
    product = f"{place('X', ['n', channel, *source])} * {tap}"
    value = f"sum[{', '.join(reduced)}] ({product} if {' and '.join(inside)} else 0.0)"
    value = _biased(site, bias, made, value)
    site.stage(f"Y[{', '.join(ranged(('n', 'co', *_PLACES[:rank]), (batch, made, *results)))}] = {value}")
    return site.computed(f"conv{rank}d_transpose", ("Y", Tensor(x.dtype, (batch, made, *results))))


def _transposed_sizes(
    site: Site,
    sizes: Sequence[int],
    extents: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    more: Sequence[int],
) -> tuple[list[int], list[int]]:
    """What is cut off in front, and the sizes of the result of a transposed convolution."""
    rank = len(sizes)
    auto, asked = _auto_pad(site), site.attribute("output_shape")
    pads = site.attribute("pads") or [0] * (2 * rank)
    whole = [strides[n] * (sizes[n] - 1) + more[n] + (extents[n] - 1) * dilations[n] + 1 for n in range(rank)]
    if asked is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        asked = [sizes[n] * strides[n] for n in range(rank)]
    if asked is not None:
        total = [max(0, whole[n] - asked[n]) for n in range(rank)]
        before = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
        return before, list(asked)
    if auto == "VALID":
        pads = [0] * (2 * rank)
    results = [whole[n] - pads[n] - pads[n + rank] for n in range(rank)]
    if min(results) < 1:
        raise Unsupported("padding that leaves nothing")
    return list(pads[:rank]), results


def _added_up(site: Site) -> Lowered:
    """The sum of blocks at their places in an image: the blocks are the columns of a matrix."""
    x, image, block = site.given(0), site.ints(1, "the size of the image"), site.ints(2, "the size of a block")
    if image is None or block is None or len(image) != len(block) or not 1 <= len(image) <= 3 or x.type.rank != 3:
        raise Unsupported(f"blocks {block} of {x.type} in an image {image}")
    w = window_of(site, image, block)
    taken, rank = prod(block), w.rank
    if x.shape[1] % taken or x.shape[2] != prod(w.results):
        raise Unsupported(f"blocks {block} of {x.type} in an image {image}")
    inside, places = list[str](), list[str]()
    for n in range(rank):
        at = offset(_PLACES[n], w.before[n]) + (f" - {scaled(_TAPS[n], w.dilations[n])}" if block[n] > 1 else "")
        if w.strides[n] > 1:
            inside.append(f"({at}) % {w.strides[n]} == 0")
        inside.append(f"0 <= {at} < {(w.results[n] - 1) * w.strides[n] + 1}")
        places.append(scaled(f"(({at}) / {w.strides[n]})", prod(w.results[n + 1 :])))
    row = " + ".join(
        ["c * " + str(taken), *(scaled(t, prod(block[n + 1 :])) for n, t in enumerate(_TAPS[:rank]) if block[n] > 1)]
    )
    value = place(site.parameter("X", x), ["n", row, " + ".join(places)])
    shape = (x.shape[0], x.shape[1] // taken, *image)
    chosen = f"({value} if {' and '.join(inside)} else {literal(0, x.dtype)})"
    reduced = ", ".join(f"{t} in {n}" for t, n in w.sums())
    site.stage(
        f"{place('Y', ranged(('n', 'c', *_PLACES[:rank]), shape))} = {f'sum[{reduced}] ' if reduced else ''}{chosen}"
    )
    return site.computed("add_blocks", ("Y", Tensor(x.dtype, shape)))


# --- pools -------------------------------------------------------------------------------------------------------------


def _pooled(word: str, site: Site) -> Lowered:
    x = site.given(0)
    extents = site.attribute("kernel_shape")
    if extents is None or len(extents) != x.type.rank - 2:
        raise Unsupported("a window without sizes")
    w = window_of(site, x.shape[2:], extents, bool(site.attribute("ceil_mode", 0)))
    last = [(n - 1) * s - b for n, s, b in zip(w.results, w.strides, w.before, strict=True)]
    if any(b > (e - 1) * d for b, e, d in zip(w.before, w.extents, w.dilations, strict=True)) or any(
        begin >= n for begin, n in zip(last, w.sizes, strict=True)
    ):
        raise Unsupported("a window with padding alone in it")
    site.parameter("X", x)
    names = ("n", "c", *_PLACES[: w.rank])
    shape = (*x.shape[:2], *w.results)
    reduced = ", ".join(ranged(_TAPS[: w.rank], w.extents))
    results = (", ".join(ranged(names, shape)), Tensor(x.dtype, shape))
    if word == "max":
        return _max_pooled(site, x, w, results, reduced)
    if word == "average":
        return _averaged(site, w, results, reduced)
    return _normed(site, w, results, reduced)


def _max_pooled(site: Site, x: Operand, w: Window, results: tuple[str, Tensor], reduced: str) -> Lowered:
    least = "-inf" if x.type.is_float else {"i8": "(-128)", "u8": "0"}.get(x.dtype)
    if least is None:
        raise Unsupported(f"elements of type {x.dtype}")
    source = padded(site, "X", ("n", "c"), w, least)
    under = place(source, ["n", "c", *w.taps()])
    site.stage(f"Y[{results[0]}] = max[{reduced}] {under}")
    if not site.wants(1):
        return site.computed("max_pool", ("Y", results[1]))
    # The place of the maximum in the input: that in the window, counted row by row, tells the taps.
    site.stage(f"let at[{results[0]}] = argmax[{reduced}] {under}")
    names = ["n", "c", *_PLACES[: w.rank]]
    position = place("at", names)
    steps = [prod(w.extents[n + 1 :]) for n in range(w.rank)]
    taps = [f"({position} / {steps[n]} % {w.extents[n]})" for n in range(w.rank)]
    source_at = [
        f"(i64({_PLACES[n]}) * {w.strides[n]} + {taps[n]} * {w.dilations[n]} - {w.before[n]})" for n in range(w.rank)
    ]
    sizes = list(w.sizes)
    if site.attribute("storage_order", 0):
        source_at, sizes = source_at[::-1], sizes[::-1]
    index = f"i64(n) * {x.shape[1] * prod(w.sizes)} + i64(c) * {prod(w.sizes)}"
    index += "".join(f" + {source_at[n]} * {prod(sizes[n + 1 :])}" for n in range(w.rank))
    site.stage(f"I[{results[0]}] = {index}")
    return site.computed("max_pool", ("Y", results[1]), ("I", Tensor("i64", results[1].shape)))


def _averaged(site: Site, w: Window, results: tuple[str, Tensor], reduced: str) -> Lowered:
    source = padded(site, "X", ("n", "c"), w, "0.0")
    under = f"sum[{reduced}] {place(source, ['n', 'c', *w.taps()])}"
    dtype = results[1].dtype
    whole = tuple(b + n + a for b, n, a in zip(w.before, w.sizes, w.after, strict=True))
    counted = [(0, p) for p in whole] if site.attribute("count_include_pad", 0) else [
        (b, b + n) for b, n in zip(w.before, w.sizes, strict=True)
    ]  # fmt: skip
    if all(low == 0 and high == end for (low, high), end in zip(counted, w.padded, strict=True)):
        site.stage(f"Y[{results[0]}] = ({under}) / {prod(w.extents)}.0")
    else:
        inside = " and ".join(f"{low} <= {tap} < {high}" for tap, (low, high) in zip(w.taps(), counted, strict=True))
        places = ", ".join(ranged(_PLACES[: w.rank], w.results))
        site.stage(f"let count[{places}] = sum[{reduced}] ({dtype}(1.0) if {inside} else 0.0)")
        site.stage(f"Y[{results[0]}] = ({under}) / {place('count', _PLACES[: w.rank])}")
    return site.computed("average_pool", ("Y", results[1]))


def _normed(site: Site, w: Window, results: tuple[str, Tensor], reduced: str) -> Lowered:
    p = site.attribute("p", 2)
    source = padded(site, "X", ("n", "c"), w, "0.0")
    under = place(source, ["n", "c", *w.taps()])
    site.stage(f"Y[{results[0]}] = {norm(p, f'[{reduced}]', under)}")
    return site.computed("lp_pool", ("Y", results[1]))


def norm(p: int, reduced: str, value: str) -> str:
    """The Lp norm of the values of a reduction."""
    if p == 1:
        return f"sum{reduced} abs({value})"
    if p == 2:
        return f"sqrt(sum{reduced} {value} * {value})"
    return f"pow(sum{reduced} pow(abs({value}), {p}.0), {1 / p!r})"


def _global(word: str, site: Site) -> Lowered:
    x = site.given(0)
    rank = x.type.rank - 2
    if rank < 1:
        raise Unsupported(f"a pool over {x.type}")
    taps = [f"k{n}" for n in range(rank)]
    site.parameter("X", x)
    reduced = f"[{', '.join(taps)}]"
    value = place("X", ["n", "c", *taps])
    ones = (1,) * rank
    results = ", ".join(("n", "c", *ranged([f"o{n}" for n in range(rank)], ones)))
    count = prod(x.shape[2:])
    if word == "max":
        text = f"max{reduced} {value}"
    elif word == "average":
        text = f"(sum{reduced} {value}) / {literal(count, x.dtype)}"
    else:
        text = norm(site.attribute("p", 2), reduced, value)
    site.stage(f"Y[{results}] = {text}")
    return site.computed(f"global_{word}_pool", ("Y", Tensor(x.dtype, (*x.shape[:2], *ones))))


CONVOLUTIONS: Mapping[str, Writer] = {
    "Conv": _convolved,
    "ConvInteger": _integer_convolved,
    "QLinearConv": _integer_convolved,
    "ConvTranspose": _transposed,
}
"""Operators that read channels innermost."""

POOLS: Mapping[str, Writer] = {
    "MaxPool": partial(_pooled, "max"),
    "AveragePool": partial(_pooled, "average"),
    "LpPool": partial(_pooled, "lp"),
}

TABLE: Mapping[str, Writer] = {
    **CONVOLUTIONS,
    **POOLS,
    "Col2Im": _added_up,
    "DeformConv": _deformed,
    "GlobalMaxPool": partial(_global, "max"),
    "GlobalAveragePool": partial(_global, "average"),
    "GlobalLpPool": partial(_global, "lp"),
}
