"""Operators of PyTorch that read or write elements at places that tensors name, or in windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.aten.traced import Call, Name, Torch, Translator, Value
from tensorc_dsl.graph.graph import Array, Unsupported

# --- several indices ---------------------------------------------------------------------------------------------------


@frozen
class _Places:
    """Indices of some axes of `self`, which stand in front of the others in the order `axes`.

    In a result the dimensions `shape` of the indices are where the first axis was if the axes are adjacent, else in front.
    """

    call: Call
    indices: Name
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def order(self) -> list[int]:
        """All axes, the indexed ones in front."""
        return [*self.axes, *(a for a in range(self.call.rank("self")) if a not in self.axes)]

    @property
    def before(self) -> int:
        """The dimensions of a result in front of those of the indices."""
        first = self.axes[0]
        return first if self.axes == tuple(range(first, first + len(self.axes))) else 0

    @property
    def turned(self) -> list[int]:
        """For each dimension of a result that dimension of what is gathered with the indices in front."""
        count, rest = len(self.shape), self.call.rank("self") - len(self.axes)
        at = [count + k for k in range(rest)]
        return [*at[: self.before], *range(count), *at[self.before :]]


def _places(c: Call) -> _Places:
    """The indices of a call; masks have to be constant. Raises Unsupported."""
    axes: list[int] = []
    parts: list[tuple[Name, tuple[int, ...]]] = []
    axis = 0
    for index, meta in zip(c["indices"], c.metas["indices"], strict=True):
        if index is None:
            axis += 1
            continue
        value = meta.meta["val"]
        if value.dtype in (c.graph.torch.bool, c.graph.torch.uint8):
            mask = c.graph.constants.get(index)
            c.refuse_unless(mask is not None, "a mask that is computed, so that the size of its result depends on data")
            parts += [(c.ints(*at.tolist()), at.shape) for at in np.nonzero(np.asarray(mask))]
        else:
            parts.append((index, tuple(int(n) for n in value.shape)))
        axes += range(axis, axis + len(parts) - len(axes))
        axis = axes[-1] + 1
    shape = np.broadcast_shapes(*(s for _, s in parts))
    wide = [c.emit("Expand", c.cast(i, c.graph.torch.int64), c.ints(*shape)) for i, _ in parts]
    columns = [c.emit("Unsqueeze", i, c.ints(-1)) for i in wide]
    return _Places(c, c.emit("Concat", *columns, axis=-1), shape, tuple(axes))


def _indexed(c: Call) -> Value:
    given = [(k, i) for k, i in enumerate(c["indices"]) if i is not None]
    kinds = [i.meta["val"].dtype for i in c.metas["indices"] if i is not None]
    if len(given) == 1 and kinds[0] not in (c.graph.torch.bool, c.graph.torch.uint8):
        ((axis, index),) = given
        return c.emit("Gather", c["self"], index, axis=axis)
    at = _places(c)
    made = c.emit("GatherND", c.emit("Transpose", c["self"], perm=at.order), at.indices)
    return c.emit("Transpose", made, perm=at.turned)


def _put(c: Call) -> Value:
    """A copy with values at the places of indices, or with one value where a mask is true."""
    (first, *others), (meta, *_) = c["indices"], c.metas["indices"]
    if not others and meta is not None and meta.meta["val"].dtype == c.graph.torch.bool and not c["accumulate"]:
        if prod(c.shape("values")) == 1:
            mask = c.reshaped(first, (*meta.meta["val"].shape, *[1] * (c.rank("self") - meta.meta["val"].ndim)))
            return c.emit("Where", mask, c.reshaped(c.typed("values"), ()), c["self"])
    at = _places(c)
    rest = [c.shape("self")[a] for a in at.order[len(at.axes) :]]
    whole = [*rest[: at.before], *at.shape, *rest[at.before :]]
    values = c.emit("Transpose", c.emit("Expand", c.typed("values"), c.ints(*whole)), perm=_inverse(at.turned))
    how = "add" if c["accumulate"] else "none"
    made = c.emit("ScatterND", c.emit("Transpose", c["self"], perm=at.order), at.indices, values, reduction=how)
    return c.emit("Transpose", made, perm=_inverse(at.order))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


# --- along one axis ----------------------------------------------------------------------------------------------------

_JOINS: Mapping[str, str] = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


_NEUTRAL: Mapping[str, float] = {"add": 0.0, "mul": 1.0, "max": -inf, "min": inf}
"""What changes nothing where it is joined."""


def _scattered(join: str) -> Translator:
    """A copy with values at places along an axis; elements of `src` behind the indices are not read."""

    def translate(c: Call) -> Value:
        shape = c.shape("index")
        if "value" in c.given:
            updates = c.emit("Expand", c.typed("value"), c.ints(*shape))
        else:
            rank = len(shape)
            updates = c.emit("Slice", c.typed("src"), c.ints(*[0] * rank), c.ints(*shape), c.ints(*range(rank)))
        return _joined(c, c["index"], updates, shape, c.get("reduce", join))

    return translate


def _joined(c: Call, index: Value, updates: Value, shape: Sequence[int], how: str) -> Value:
    """A copy with updates of a shape at places along an axis, joined with what was there, or among themselves alone."""
    c.refuse_unless(how in ("none", "mean") or how in _JOINS, f"updates that are joined by `{how}`")
    dtype, joined = c.result.dtype, "add" if how == "mean" else _JOINS.get(how, "none")
    base, alone = c["self"], not c.get("include_self", True)
    c.refuse_unless(
        dtype.is_floating_point or not (alone or how == "mean"), "means of integers, or without what was there"
    )

    def put(into: Value, what: Value, reduction: str) -> Name:
        return c.emit("ScatterElements", into, index, what, axis=c.axis(), reduction=reduction)

    def filled(value: float, sizes: Sequence[int]) -> Name:
        content = np.broadcast_to(np.asarray(value, c.graph.array_dtype(dtype)), tuple(sizes))
        return c.graph.constant(np.ascontiguousarray(content))

    zeros, ones = filled(0, c.result_shape), filled(1, shape)
    if alone:
        touched = c.emit("Greater", put(zeros, ones, "none"), c.number(0, dtype))
        base = c.emit("Where", touched, c.number(_NEUTRAL[joined], dtype), base)
    made = put(base, updates, joined)
    if how != "mean":
        return made
    count = put(zeros if alone else filled(1, c.result_shape), ones, "add")
    return c.emit("Div", made, c.emit("Max", count, c.number(1, dtype)))


def _lines(join: str) -> Translator:
    """A copy with whole lines at the places of an index."""

    def translate(c: Call) -> Value:
        axis, shape = c.axis(), c.shape("source")
        source = c.typed("source")
        if c.get("alpha", 1) != 1:
            source = c.emit("Mul", source, c.number(c["alpha"], c.result.dtype))
        row = [n if k == axis else 1 for k, n in enumerate(shape)]
        index = c.emit("Expand", c.reshaped(c["index"], row), c.ints(*shape))
        return _joined(c, index, source, shape, c.get("reduce", join))

    return translate


def _masked(c: Call) -> Value:
    """A copy with the next element of `source` wherever a mask is true, as features of an image among embeddings of words."""
    shape, taken = c.result_shape, prod(c.shape("source"))
    c.refuse_unless(taken > 0, "a source without elements")
    mask = c.emit("Expand", c["mask"], c.ints(*shape))
    before = c.emit("CumSum", c.reshaped(c.cast(mask, c.graph.torch.int64), [prod(shape)]), c.ints(0), exclusive=1)
    at = c.emit("Min", before, c.ints(taken - 1))
    values = c.emit("Gather", c.reshaped(c.typed("source"), [taken]), at, axis=0)
    return c.emit("Where", mask, c.reshaped(values, shape), c.emit("Expand", c["self"], c.ints(*shape)))


def _placed(c: Call) -> Value:
    """A copy with values at places of the flat tensor."""
    shape, count = c.result_shape, prod(c.shape("index"))
    index, source = (c.reshaped(v, [count]) for v in (c["index"], c.typed("source")))
    flat = c.reshaped(c["self"], [prod(shape)])
    reduction = "add" if c.get("accumulate", False) else "none"
    return c.reshaped(c.emit("ScatterElements", flat, index, source, axis=0, reduction=reduction), shape)


def _diagonal_replaced(c: Call) -> Value:
    """A copy with another diagonal."""
    places = np.arange(prod(c.result_shape)).reshape(c.result_shape)
    named = (("offset", 0), ("dim1", 0), ("dim2", 1))
    return _flat_replaced(c, places.diagonal(*(int(c.get(name, usual)) for name, usual in named)))


def _flat_replaced(c: Call, places: Array) -> Value:
    """A copy with `src` at places of the flat tensor."""
    flat, source = (c.reshaped(v, (-1,)) for v in (c["self"], c.typed("src")))
    made = c.emit("ScatterElements", flat, c.ints(*places.reshape(-1).tolist()), source, axis=0)
    return c.reshaped(made, c.result_shape)


def _replaced(c: Call) -> Value:
    """A copy with a slice, or one element of an axis, replaced."""
    axis, shape = c.axis(), c.shape("self")
    size = shape[axis]
    source = c.typed("src")
    if "index" in c.given:
        start = int(c["index"]) % size
        end, step, source = start + 1, 1, c.emit("Unsqueeze", source, c.ints(axis))
    else:
        start, end, step = slice(c.get("start", 0), c.get("end"), int(c.get("step", 1))).indices(size)
    at = np.arange(start, end, step).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    wide = [n if k != axis else at.size for k, n in enumerate(shape)]
    index = c.graph.constant(np.ascontiguousarray(np.broadcast_to(at, wide)).astype(np.int64))
    return c.emit("ScatterElements", c["self"], index, source, axis=axis)


def _reversed(c: Call) -> Value:
    dims = [int(d) % c.rank("self") for d in c["dims"]]
    if not dims:
        return c["self"]
    back, least = c.ints(*[-1] * len(dims)), int(np.iinfo(np.int64).min)
    return c.emit("Slice", c["self"], back, c.ints(*[least] * len(dims)), c.ints(*dims), back)


def _sorted(positions: bool) -> Translator:
    def translate(c: Call) -> Value:
        axis = c.axis()
        if not c.rank("self"):
            raise Unsupported("a single value")
        made = c.graph.emit(
            "TopK", [c["self"], c.ints(c.shape("self")[axis])], 2, axis=axis, largest=int(c["descending"])
        )
        return made[1] if positions else tuple(made)

    return translate


def _interleaved(c: Call) -> Value:
    """Each element several times in a row."""
    repeats = c["repeats"]
    c.refuse_unless(isinstance(repeats, int), "numbers of repeats that are computed")
    x, shape = c["self"], c.shape("self")
    if c.get("dim") is None:
        x, shape = c.reshaped(x, (-1,)), (prod(shape),)
    axis = int(c.get("dim", 0)) % len(shape)
    wide = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
    return c.reshaped(c.emit("Expand", c.emit("Unsqueeze", x, c.ints(axis + 1)), c.ints(*wide)), c.result_shape)


def _diagonal(c: Call) -> Value:
    rank, offset = c.rank("self"), int(c.get("offset", 0))
    first, second = (int(c.get(n, k)) % rank for k, n in enumerate(("dim1", "dim2")))
    rest = [a for a in range(rank) if a not in (first, second)]
    rows = np.arange(c.result_shape[-1]) + max(0, -offset)
    at = c.graph.constant(np.stack([rows, rows + offset], -1).astype(np.int64))
    made = c.emit("GatherND", c.emit("Transpose", c["self"], perm=[first, second, *rest]), at)
    return c.emit("Transpose", made, perm=[*range(1, rank - 1), 0])


# --- windows -----------------------------------------------------------------------------------------------------------


def _windowed(c: Call) -> Value:
    """Windows along an axis, whose elements become the last one."""
    axis, rank = int(c["dimension"]) % c.rank("self"), c.rank("self")
    starts = np.arange(c.result_shape[axis]) * int(c["step"])
    at = c.graph.constant((starts[:, None] + np.arange(int(c["size"]))).astype(np.int64))
    made = c.emit("Gather", c["self"], at, axis=axis)
    return c.emit("Transpose", made, perm=[*(a for a in range(rank + 1) if a != axis + 1), axis + 1])


def _columns(c: Call) -> Value:
    """The windows of an image as columns."""
    x, shape = c["self"], c.shape("self")
    if len(shape) == 3:
        x, shape = c.emit("Unsqueeze", x, c.ints(0)), (1, *shape)
    kernel, dilation, padding, stride = (_pair(c[n]) for n in ("kernel_size", "dilation", "padding", "stride"))
    x = c.emit("Pad", x, c.ints(0, 0, *padding, 0, 0, *padding))
    counts: list[int] = []
    for k in range(2):
        count = (shape[2 + k] + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1
        at = np.arange(kernel[k])[:, None] * dilation[k] + np.arange(count) * stride[k]
        x = c.emit("Gather", x, c.graph.constant(at.astype(np.int64)), axis=2 + 2 * k)
        counts.append(count)
    return c.reshaped(c.emit("Transpose", x, perm=[0, 1, 2, 4, 3, 5]), c.result_shape)


def _image_of_columns(c: Call) -> Value:
    x, rank = c["self"], c.rank("self")
    if rank == 2:
        x = c.emit("Unsqueeze", x, c.ints(0))
    padding = _pair(c["padding"])
    made = c.emit("Col2Im", x, c.ints(*_pair(c["output_size"])), c.ints(*_pair(c["kernel_size"])),
                  dilations=_pair(c["dilation"]), pads=[*padding, *padding], strides=_pair(c["stride"]))  # fmt: skip
    return c.reshaped(made, c.result_shape)


def _pair(value: Sequence[Any]) -> list[int]:
    values = [int(v) for v in value]
    return values * 2 if len(values) == 1 else values


def _sampled(c: Call) -> Value:
    mode = ("linear", "nearest", "cubic")[int(c["interpolation_mode"])]
    padding = ("zeros", "border", "reflection")[int(c["padding_mode"])]
    corners = int(bool(c["align_corners"]))
    return c.emit("GridSample", c["input"], c["grid"], mode=mode, padding_mode=padding, align_corners=corners)


def _regions(c: Call) -> Value:
    """Means of samples in the cells of regions, whose first number is that of their image."""
    rois = c["rois"]
    at = c.cast(c.emit("Gather", rois, c.number(0, c.graph.torch.int64), axis=1), c.graph.torch.int64)
    how = "half_pixel" if c["aligned"] else "output_half_pixel"
    return c.emit(
        "RoiAlign", c["input"], c.emit("Slice", rois, c.ints(1), c.ints(5), c.ints(1)), at,
        output_height=int(c["pooled_height"]), output_width=int(c["pooled_width"]), spatial_scale=float(c["spatial_scale"]),
        sampling_ratio=int(c["sampling_ratio"]), coordinate_transformation_mode=how,
    )  # fmt: skip


def _affine_grid(c: Call) -> Value:
    """The places that affine maps of an image of [-1, 1]² read."""
    sizes = [int(n) for n in c["size"]]
    c.refuse_unless(len(sizes) == 4, "a grid of a volume")
    ends = [
        np.linspace(-1, 1, n) if c["align_corners"] and n > 1 else (2 * np.arange(n) + 1) / n - 1 for n in sizes[2:]
    ]
    y, x = np.meshgrid(*ends, indexing="ij")
    base = np.stack([x, y, np.ones_like(x)], -1).reshape(1, -1, 3)
    dtype = c.graph.array_dtype(c.result.dtype)
    made = c.emit("MatMul", c.graph.constant(base.astype(dtype)), c.emit("Transpose", c["theta"], perm=[0, 2, 1]))
    return c.reshaped(made, c.result_shape)


def _strided_places(c: Call) -> Array:
    """The places of the flat tensor that strides tell."""
    c.refuse_unless(bool(c.metas["self"].meta["val"].is_contiguous()), "strides of a tensor that is a view")
    at = np.array(int(c.get("storage_offset", 0)), np.int64)
    for n, stride in zip(c["size"], c["stride"], strict=True):
        at = at[..., None] + np.arange(int(n)) * int(stride)
    return at


def _strided(c: Call) -> Value:
    return c.emit("Gather", c.reshaped(c["self"], (-1,)), c.graph.constant(_strided_places(c)), axis=0)


# --- numbers of classes ------------------------------------------------------------------------------------------------


def _one_hot(c: Call) -> Value:
    count = int(c.get("num_classes", -1))
    c.refuse_unless(count >= 0, "a number of classes that depends on data")
    return c.emit("OneHot", c["self"], c.ints(count), c.ints(0, 1), axis=-1)


def _bucketed(c: Call) -> Value:
    """How many boundaries are below each element, or not above it."""
    name = "boundaries" if "boundaries" in c.given else "sorted_sequence"
    c.refuse_unless(name in c.given and hasattr(c.metas["self"], "meta"), "a single value")
    c.refuse_unless(c.get("sorter") is None, "boundaries in an order of their own")
    torch: Torch = c.graph.torch
    dtype = torch.result_type(c.metas["self"].meta["val"], c.metas[name].meta["val"])
    x, ends = c.emit("Unsqueeze", c.cast(c["self"], dtype), c.ints(-1)), c.cast(c[name], dtype)
    if c.rank(name) > 1:
        ends = c.emit("Unsqueeze", ends, c.ints(-2))
    passed = c.emit("LessOrEqual" if c["right"] or c.get("side") == "right" else "Less", ends, x)
    return c.emit("ReduceSum", c.cast(passed, c.result.dtype), axes=[-1], keepdims=0)


def _histogram(c: Call) -> Value:
    """How many elements are in each of the bins of a range; its end belongs to the last bin."""
    bins, low, high, dtype = int(c["bins"]), float(c["min"]), float(c["max"]), c.result.dtype
    c.refuse_unless(low < high, "a range that is that of the elements")
    x = c.emit("Sub", c.cast(c.reshaped(c["self"], (-1, 1)), dtype), c.number(low, dtype))
    at = c.emit("Floor", c.emit("Mul", x, c.number(bins / (high - low), dtype)))
    is_end = c.emit("Equal", x, c.number(high - low, dtype))
    at = c.emit("Where", is_end, c.number(bins - 1, dtype), at)
    hits = c.emit("Equal", at, c.graph.constant(np.arange(bins).astype(c.graph.array_dtype(dtype))))
    return c.emit("ReduceSum", c.cast(hits, dtype), axes=[0], keepdims=0)


TABLE: Mapping[str, Translator] = {
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _put),
    "scatter": _scattered("none"),
    "scatter_add": _scattered("sum"),
    "scatter_reduce": _scattered("none"),
    "index_add": _lines("add"),
    "index_copy": _lines("none"),
    "index_reduce": _lines("none"),
    "masked_scatter": _masked,
    "put": _placed,
    "diagonal_scatter": _diagonal_replaced,
    "as_strided_scatter": lambda c: _flat_replaced(c, _strided_places(c)),
    **dict.fromkeys(("slice_scatter", "select_scatter"), _replaced),
    "flip": _reversed,
    "sort": _sorted(False),
    "argsort": _sorted(True),
    "repeat_interleave": _interleaved,
    "diagonal": _diagonal,
    "unfold": _windowed,
    "im2col": _columns,
    "col2im": _image_of_columns,
    "grid_sampler": _sampled,
    "affine_grid_generator": _affine_grid,
    "torchvision::roi_align": _regions,
    "one_hot": _one_hot,
    **dict.fromkeys(("bucketize", "searchsorted"), _bucketed),
    "as_strided": _strided,
    "histc": _histogram,
}
"""How operators of PyTorch are translated, by their names without overloads."""
