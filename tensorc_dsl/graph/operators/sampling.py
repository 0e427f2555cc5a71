"""Operators that sample images between their elements: changes of size, and places from data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc_dsl.graph.graph import Array, Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Site,
    Writer,
    axis_of,
    indices,
    offset,
    onnx_index,
    place,
    ranged,
    scaled,
    viewed,
)

# --- changes of size ---------------------------------------------------------------------------------------------------


_COORDINATES = (
    *(
        "half_pixel",
        "pytorch_half_pixel",
        "tf_half_pixel_for_nn",
        "asymmetric",
        "align_corners",
        "half_pixel_symmetric",
    ),
    "tf_crop_and_resize",
)
"""How Resize says where elements lie."""


def _coordinates(mode: str, size: int, result: int, scale: Any, region: tuple[float, float]) -> Array:
    """Where the elements of a result lie in the input, computed in the type of the scale.

    https://onnx.ai/onnx/operators/onnx__Resize.html
    """
    x = np.arange(result, dtype=scale.dtype)
    match mode:
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if result > 1 else x * 0
        case "tf_half_pixel_for_nn":  # of opset 11 alone
            return (x + 0.5) / scale
        case "asymmetric":
            return x / scale
        case "align_corners":
            # Of the tensor that is made, as in ONNX Runtime and PyTorch; ONNX's own reference takes `scale * size`.
            return x * (size - 1) / scale.dtype.type(result - 1) if result > 1 else x * 0
        case "half_pixel_symmetric":
            adjusted = result / (scale * size)
            return size / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
        case "tf_crop_and_resize":
            start, end = region
            if result > 1:
                return start * (size - 1) + x * (end - start) * (size - 1) / (result - 1)
            return x * 0 + 0.5 * (start + end) * (size - 1)
        case _:  # half_pixel
            return (x + 0.5) / scale - 0.5


SIMPLE = "simple"
"""How ONNX Runtime takes the nearest element before opset 11, which did not say: the next one where there are fewer."""


_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", SIMPLE)
"""How Resize takes the nearest element."""


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
        case _:
            return np.ceil(at)


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
    mode, how = (
        site.word("mode", "nearest", "linear", "cubic"),
        site.word("coordinate_transformation_mode", *_COORDINATES),
    )
    policy = site.word("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
    if sizes is not None and sizes.size:
        asked = [int(n) for n in sizes]
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
            # In f32, as runtimes have it: 10 elements by 0.7 are 7.
            shape[a] = int(np.floor(np.float32(given[k]) * np.float32(x.shape[a])))
    else:
        raise Unsupported("neither scales nor sizes")
    if min(shape) < 1:
        raise Unsupported(f"a result of the shape {shape}")
    names = indices(rank)
    source, weights, taps = names.copy(), list[str](), list[str]()
    inside: list[str] = []
    crops, nearest = how == "tf_crop_and_resize", site.word("nearest_mode", *_ROUNDINGS)
    site.parameter("X", x)
    for k, a in enumerate(axes):
        region = (float(roi[k]), float(roi[k + len(axes)])) if crops and roi is not None and roi.size else (0.0, 1.0)
        if shape[a] == x.shape[a] and scales[a] == 1.0 and not crops:
            continue
        # Runtimes compute in f32, which tells between two elements that are equally near.
        wide = np.float32 if mode == "nearest" else np.float64
        at = _coordinates(how, x.shape[a], shape[a], wide(scales[a]), region)
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
            dtype = np.float64 if x.dtype == "f64" else np.float32
            weights.append(place(site.table(f"W{names[a]}", factors.astype(dtype)), [names[a], tap]))
    value = place("X", source)
    if weights:
        if not x.type.is_float:
            value = f"f32({value})"
        value = f"sum[{', '.join(taps)}] {value} * {' * '.join(weights)}"
        if not x.type.is_float:  # what is behind the point is cut off, as in ONNX Runtime
            value = f"saturate({x.dtype}, {value})"
    if inside:
        fill = literal(np.float32(site.attribute("extrapolation_value", 0.0)), x.dtype)
        value = f"({value}) if {' and '.join(inside)} else {fill}"
    if not weights and source == names and not inside:
        return viewed(x, shape)
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("resize", ("Y", Tensor(x.dtype, tuple(shape))))


_TAPS = {"linear": 2, "nearest": 1, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _grid_sample(site: Site) -> Lowered:
    """Along each axis, the elements around a place and their weights; the result is a sum of products with them."""
    x, grid = site.given(0), site.given(1)
    rank = x.type.rank - 2
    mode, padding = site.word("mode", *_TAPS), site.word("padding_mode", "zeros", "border", "reflection")
    taps = _TAPS[mode]
    if not 0 < rank <= 3 or grid.type.rank != rank + 2 or (grid.shape[0], grid.shape[-1]) != (x.shape[0], rank):
        raise Unsupported(f"a grid {grid.type} for {x.type}")
    if x.dtype != grid.dtype or 0 in x.shape:
        raise Unsupported(f"samples of {x.type} at {grid.type}")
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


def _roi_align(site: Site) -> Lowered:
    """The means of samples in the cells of regions. Along each axis, the two elements around a sample have weights."""
    x, regions, batches = (site.given(n) for n in range(3))
    counts = site.attribute("output_height", 1), site.attribute("output_width", 1)
    samples = site.attribute("sampling_ratio", 0)
    half = site.word("coordinate_transformation_mode", "half_pixel", "output_half_pixel") == "half_pixel"
    site.word("mode", "avg")
    if samples < 1 or min(counts) < 1:
        raise Unsupported(f"regions with {samples} samples: it has to name their number")
    number = regions.shape[0]
    if x.type.rank != 4 or regions.shape != (number, 4) or batches.shape != (number,) or 0 in x.shape:
        raise Unsupported(f"regions {regions.type} of {x.type}")
    scale, shift = literal(np.float32(site.attribute("spatial_scale", 1.0)), x.dtype), " - 0.5" if half else ""
    site.parameter("X", x)
    site.parameter("R", regions)
    at, weights = list[str](), list[str]()
    for d, (size, count) in enumerate(zip(x.shape[2:], counts, strict=True)):
        begin, end = (f"(R[r, {1 - d + k}] * {scale}{shift})" for k in (0, 2))
        length = f"{end} - {begin}" if half else f"max({end} - {begin}, 1.0)"
        outer = f"r in {number}, o in {count}, s in {samples}"
        step = f"({x.dtype}(o) + ({x.dtype}(s) + 0.5) / {samples}.0)"
        site.stage(f"let u{d}[{outer}] = {begin} + {step} * (({length}) / {count}.0)")
        site.stage(f"let v{d}[{outer}] = clamp(u{d}[r, o, s], 0.0, {size - 1}.0)")
        site.stage(f"let n{d}[{outer}, t in 2] = i64(floor(v{d}[r, o, s])) + i64(t)")
        behind = f"v{d}[r, o, s] - floor(v{d}[r, o, s])"
        inside = f"-1.0 <= u{d}[r, o, s] and u{d}[r, o, s] <= {size}.0"
        weight = f"(1.0 - ({behind}) if t == 0 else {behind})"
        site.stage(f"let w{d}[{outer}, t in 2] = {weight} if {inside} else 0.0")
        place_of = f"[r, {'pq'[d]}, s{d}, t{d}]"
        at.append(f"clamp(n{d}{place_of}, 0, {size - 1})")
        weights.append(f"w{d}{place_of}")
    image = onnx_index(place(site.parameter("B", batches), ["r"]), x.shape[0])
    value = f"X[{image}, c, {at[0]}, {at[1]}] * {' * '.join(weights)}"
    reduced = f"s0 in {samples}, s1 in {samples}, t0 in 2, t1 in 2"
    shape = (number, x.shape[1], *counts)
    site.stage(f"{place('Y', ranged('rcpq', shape))} = (sum[{reduced}] {value}) / {samples**2}.0")
    return site.computed("roi_align", ("Y", Tensor(x.dtype, shape)))


TABLE: Mapping[str, Writer] = {"Resize": _resize, "GridSample": _grid_sample, "RoiAlign": _roi_align}
