"""Operators of PyTorch along axes: reductions, and those that move elements."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Any

import numpy as np

from tensorc_dsl.graph.aten.pointwise import binary
from tensorc_dsl.graph.aten.traced import Call, Translator, Value

# --- reductions --------------------------------------------------------------------------------------------------------


def _softmax(op: str) -> Translator:
    return lambda c: c.emit(op, c.typed("self"), axis=c.axis())


def _reduced(op: str) -> Translator:
    def translate(c: Call) -> Value:
        dims = c.get("dim", [])
        axes = [int(d) for d in ([dims] if isinstance(dims, int) else dims)]
        kept = int(c.get("keepdim", False))
        x = c.typed("self")
        return c.emit(op, x, axes=axes, keepdims=kept) if axes else c.emit(op, x, keepdims=kept)

    return translate


def _extreme(op: str, position: str) -> Translator:
    """`max` and `min`: of two tensors, of all elements, or along a dimension, then with positions."""

    def translate(c: Call) -> Value:
        if "other" in c.given:
            return binary(op.removeprefix("Reduce"))(c)
        if "dim" not in c.given:
            return c.emit(op, c["self"], keepdims=0)
        kept = int(c["keepdim"])
        values = c.emit(op, c["self"], axes=[int(c["dim"])], keepdims=kept)
        return values, c.emit(position, c["self"], axis=c.axis(), keepdims=kept)

    return translate


def _position(op: str) -> Translator:
    def translate(c: Call) -> Value:
        if c.get("dim") is None:
            flat = c.reshaped(c["self"], (-1,))
            return c.emit(op, flat, axis=0, keepdims=0)
        return c.emit(op, c["self"], axis=c.axis(), keepdims=int(c["keepdim"]))

    return translate


def _cumulative(op: str) -> Translator:
    return lambda c: c.emit(op, c.typed("self"), c.ints(c.axis()))


def _spread(root: bool) -> Translator:
    """The variance, or the standard deviation, over axes."""

    def translate(c: Call) -> Value:
        rank, dims = c.rank("self"), c.get("dim", [])
        axes = [int(d) % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims)] or list(range(rank))
        kept, dtype = int(c.get("keepdim", False)), c.result.dtype
        count = prod(c.shape("self")[a] for a in axes)
        less = c.get("correction", 1) if "unbiased" not in c.given else int(c["unbiased"])
        centred = c.emit("Sub", c["self"], c.emit("ReduceMean", c["self"], axes=axes, keepdims=1))
        total = c.emit("ReduceSumSquare", centred, axes=axes, keepdims=kept)
        made = c.emit("Div", total, c.number(max(0, count - less), dtype))
        return c.emit("Sqrt", made) if root else made

    return translate


def _spread_and_mean(root: bool) -> Translator:
    spread, mean = _spread(root), _reduced("ReduceMean")
    return lambda c: (spread(c), mean(c))


def _prefixes(c: Call, fill: float) -> Value:
    """For each place along an axis what is there up to it, along a further axis; behind it `fill`."""
    axis, rank, size = c.axis(), c.rank("self"), c.shape("self")[c.axis()]
    seen = c.graph.constant(np.tril(np.ones((size, size), np.bool_)).reshape(size, size, *[1] * (rank - 1 - axis)))
    return c.emit("Where", seen, c.emit("Unsqueeze", c["self"], c.ints(axis)), c.number(fill, c.result.dtype))


def _running_extreme(op: str, position: str) -> Translator:
    def translate(c: Call) -> Value:
        c.refuse_unless(c.result.dtype.is_floating_point, "running extremes of integers")
        x, axis = _prefixes(c, -inf if op == "ReduceMax" else inf), c.axis() + 1
        places = c.emit(position, x, axis=axis, keepdims=0, select_last_index=1)
        return c.emit(op, x, axes=[axis], keepdims=0), places

    return translate


def _running_log_sum(c: Call) -> Value:
    return c.emit("ReduceLogSumExp", _prefixes(c, -inf), axes=[c.axis() + 1], keepdims=0)


def _in_order(middle: bool) -> Translator:
    """The element of a number in order, or the lower one in the middle; of an axis also its place."""

    def translate(c: Call) -> Value:
        shape, whole = c.shape("self"), "dim" not in c.given
        axis, x = (0, c.reshaped(c["self"], (-1,))) if whole else (c.axis(), c["self"])
        size = prod(shape) if whole else shape[axis] if shape else 1
        k = (size + 1) // 2 if middle else int(c["k"])
        made = c.graph.emit("TopK", [x, c.ints(k)], 2, axis=axis, largest=0, sorted=1)
        ends = [c.emit("Slice", v, c.ints(k - 1), c.ints(k), c.ints(axis)) for v in made]
        ends = [c.reshaped(v, c.result_shape) for v in ends]
        return ends[0] if whole else tuple(ends)

    return translate


def _norm(c: Call) -> Value:
    dims = c.get("dim", [])
    axes = [int(d) for d in ([dims] if isinstance(dims, int) else dims)] or list(range(c.rank("self")))
    return _of_order(c, c.typed("self"), c.get("ord", c.get("p", 2)), axes=axes, keepdims=int(c.get("keepdim", False)))


def _of_order(c: Call, x: Value, order: float, **how: Any) -> Value:
    """The norm of that order: of 0 the count of what is not 0."""
    if order in (1, 2):
        return c.emit(f"ReduceL{order:g}", x, **how)
    if order in (inf, -inf):
        return c.emit("ReduceMax" if order > 0 else "ReduceMin", c.emit("Abs", x), **how)
    dtype = c.result.dtype
    if order == 0:
        return c.emit("ReduceSum", c.cast(c.cast(x, c.graph.torch.bool), dtype), **how)
    total = c.emit("ReduceSum", c.emit("Pow", c.emit("Abs", x), c.number(order, dtype)), **how)
    return c.emit("Pow", total, c.number(1 / order, dtype))


def _distance(c: Call) -> Value:
    """The norm of a difference."""
    dtype, (a, b) = c.same_type("self", "other")
    rank = max(c.rank("self"), c.rank("other"))
    return _of_order(c, c.cast(c.emit("Sub", a, b), dtype), c.get("p", 2), axes=list(range(rank)), keepdims=0)


def _quantified(op: str) -> Translator:
    """`any` and `all`, by integers."""

    def translate(c: Call) -> Value:
        torch, dims = c.graph.torch, c.get("dim", [])
        axes = [int(d) for d in ([dims] if isinstance(dims, int) else dims)] or list(range(c.rank("self")))
        x = c.cast(c.cast(c["self"], torch.bool), torch.int32)
        made = c.emit(op, x, axes=axes, keepdims=int(c.get("keepdim", False))) if axes else x
        return c.cast(made, c.result.dtype)

    return translate


def _differences(c: Call) -> Value:
    axis, parts = c.axis(), [n for n in ("prepend", "self", "append") if c.get(n) is not None]
    x, size = c["self"], sum(c.shape(n)[axis] for n in parts)
    if len(parts) > 1:
        x = c.emit("Concat", *(c[n] for n in parts), axis=axis)
    op = "Xor" if c.result.dtype == c.graph.torch.bool else "Sub"
    for n in range(size, size - int(c.get("n", 1)), -1):
        b, a = (c.emit("Slice", x, c.ints(k), c.ints(k + n - 1), c.ints(axis)) for k in (1, 0))
        x = c.emit(op, b, a)
    return x


def _greatest(c: Call) -> Value:
    return tuple(
        c.graph.emit("TopK", [c["self"], c.ints(int(c["k"]))], 2, axis=c.axis(), largest=int(c["largest"]), sorted=1)
    )


# --- movement ----------------------------------------------------------------------------------------------------------


def _reshaped(c: Call) -> Value:
    return c.reshaped(c["self"], c.result_shape)


def _permuted(c: Call) -> Value:
    rank = c.rank("self")
    return c.emit("Transpose", c["self"], perm=[int(d) % rank for d in c["dims"]])


def _swapped(c: Call) -> Value:
    rank = c.rank("self")
    order = list(range(rank))
    names = ("axis0", "axis1") if "axis0" in c.given else ("dim0", "dim1")
    a, b = (int(c.get(n, k)) % max(rank, 1) for k, n in enumerate(names))
    if rank > 1:
        order[a], order[b] = order[b], order[a]
    return c.emit("Transpose", c["self"], perm=order)


def _last_swapped(c: Call) -> Value:
    rank = c.rank("self")
    return c.emit("Transpose", c["self"], perm=[*range(rank - 2), rank - 1, rank - 2])


def _expanded(c: Call) -> Value:
    return c.emit("Expand", c["self"], c.ints(*c.result_shape))


def _repeated(c: Call) -> Value:
    repeats = [int(n) for n in c.get("repeats", c.get("dims"))]
    repeats = [*[1] * (c.rank("self") - len(repeats)), *repeats]
    x = c.reshaped(c["self"], (*(1,) * (len(repeats) - c.rank("self")), *c.shape("self")))
    return c.emit("Tile", x, c.ints(*repeats))


def _concatenated(c: Call) -> Value:
    dtype, given = c.result.dtype, zip(c["tensors"], c.metas["tensors"], strict=True)
    parts = [t if m.meta["val"].dtype == dtype else c.cast(t, dtype) for t, m in given]
    return c.emit("Concat", *parts, axis=int(c["dim"]) % len(c.result_shape))


def _stacked(c: Call) -> Value:
    axis, rank = int(c["dim"]), len(c.result_shape)
    parts = [c.emit("Unsqueeze", t, c.ints(axis % rank)) for t in c["tensors"]]
    return c.emit("Concat", *parts, axis=axis % rank)


def _split(c: Call) -> Value:
    axis = c.axis()
    sizes = [int(part.shape[axis]) for part in c.node.meta["val"]]
    return tuple(c.graph.emit("Split", [c["self"], c.ints(*sizes)], len(sizes), axis=axis))


def _unbound(c: Call) -> Value:
    axis, count = c.axis(), len(c.node.meta["val"])
    parts = c.graph.emit("Split", [c["self"], c.ints(*[1] * count)], count, axis=axis)
    return tuple(c.reshaped(p, c.result_shape) for p in parts)


def _sliced(c: Call) -> Value:
    axis = c.axis()
    start, end, step = c.get("start", 0), c.get("end", c.shape("self")[axis]), int(c.get("step", 1))
    if "length" in c.given:
        end = int(start) + int(c["length"])
    return c.emit("Slice", c["self"], c.ints(start), c.ints(end), c.ints(axis), c.ints(step))


def _selected(c: Call) -> Value:
    axis, index = c.axis(), int(c["index"])
    index += c.shape("self")[axis] if index < 0 else 0
    return c.reshaped(c.emit("Slice", c["self"], c.ints(index), c.ints(index + 1), c.ints(axis)), c.result_shape)


def _embedded(c: Call) -> Value:
    return c.emit("Gather", c["weight"], c["indices"], axis=0)


def _index_selected(c: Call) -> Value:
    return c.emit("Gather", c["self"], c["index"], axis=c.axis())


def _gathered(c: Call) -> Value:
    return c.emit("GatherElements", c["self"], c["index"], axis=c.axis())


def _rolled(c: Call) -> Value:
    x = c["self"]
    c.refuse_unless(bool(c["dims"]), "no dimensions")
    for shift, dim in zip(c["shifts"], c["dims"], strict=True):
        axis = int(dim) % c.rank("self")
        size = c.shape("self")[axis]
        at = -int(shift) % max(size, 1)
        if at:
            begin, end = (c.emit("Slice", x, c.ints(a), c.ints(b), c.ints(axis)) for a, b in ((0, at), (at, size)))
            x = c.emit("Concat", end, begin, axis=axis)
    return x


def _triangle(upper: int) -> Translator:
    return lambda c: c.emit("Trilu", c["self"], c.ints(int(c["diagonal"])), upper=upper)


def _moved(c: Call) -> Value:
    rank = c.rank("self")
    sources, ends = (
        [int(d) % rank for d in ([v] if isinstance(v, int) else v)] for v in (c["source"], c["destination"])
    )
    rest = iter(a for a in range(rank) if a not in sources)
    return c.emit(
        "Transpose", c["self"], perm=[sources[ends.index(k)] if k in ends else next(rest) for k in range(rank)]
    )


def _unshuffled(c: Call) -> Value:
    r, (*outer, channels, high, wide) = int(c["downscale_factor"]), c.shape("self")
    count = len(outer)
    x = c.reshaped(c["self"], (*outer, channels, high // r, r, wide // r, r))
    order = [*range(count + 1), count + 2, count + 4, count + 1, count + 3]
    return c.reshaped(c.emit("Transpose", x, perm=order), c.result_shape)


def _channels_shuffled(c: Call) -> Value:
    groups, (n, channels, *rest) = int(c["groups"]), c.shape("self")
    x = c.reshaped(c["self"], (n, groups, channels // groups, *rest))
    return c.reshaped(c.emit("Transpose", x, perm=[0, 2, 1, *range(3, len(rest) + 3)]), c.result_shape)


def _meshed(c: Call) -> Value:
    """Each tensor along an axis of its own."""
    shapes = [tuple(int(n) for n in part.shape) for part in c.node.meta["val"]]
    made: list[Value] = []
    for k, (tensor, shape) in enumerate(zip(c["tensors"], shapes, strict=True)):
        axis = 1 - k if c.get("indexing", "ij") == "xy" and k < 2 and len(shape) > 1 else k
        row = c.reshaped(tensor, [n if a == axis else 1 for a, n in enumerate(shape)])
        made.append(c.emit("Expand", row, c.ints(*shape)))
    return tuple(made)


def _shuffled(c: Call) -> Value:
    return c.emit("DepthToSpace", c["self"], blocksize=int(c["upscale_factor"]), mode="CRD")


TABLE: Mapping[str, Translator] = {
    **dict.fromkeys(("softmax", "_softmax"), _softmax("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _softmax("LogSoftmax")),
    "mean": _reduced("ReduceMean"),
    "sum": _reduced("ReduceSum"),
    "prod": _reduced("ReduceProd"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    "max": _extreme("ReduceMax", "ArgMax"),
    "min": _extreme("ReduceMin", "ArgMin"),
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "logsumexp": _reduced("ReduceLogSumExp"),
    "var": _spread(root=False),
    "var_mean": _spread_and_mean(root=False),
    "std_mean": _spread_and_mean(root=True),
    "cummax": _running_extreme("ReduceMax", "ArgMax"),
    "cummin": _running_extreme("ReduceMin", "ArgMin"),
    "logcumsumexp": _running_log_sum,
    "median": _in_order(middle=True),
    "kthvalue": _in_order(middle=False),
    "std": _spread(root=True),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
    "dist": _distance,
    "any": _quantified("ReduceMax"),
    "all": _quantified("ReduceMin"),
    "cumsum": _cumulative("CumSum"),
    "cumprod": _cumulative("CumProd"),
    "diff": _differences,
    "topk": _greatest,
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
        _reshaped,
    ),
    "permute": _permuted,
    **dict.fromkeys(("transpose", "t", "swapaxes"), _swapped),
    "numpy_T": lambda c: c.emit("Transpose", c["self"]),
    "mT": _last_swapped,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    **dict.fromkeys(("repeat", "tile"), _repeated),
    **dict.fromkeys(("cat", "concat"), _concatenated),
    "stack": _stacked,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _split),
    "unbind": _unbound,
    **dict.fromkeys(("slice", "narrow"), _sliced),
    "select": _selected,
    "embedding": _embedded,
    "index_select": _index_selected,
    "gather": _gathered,
    "roll": _rolled,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "pixel_shuffle": _shuffled,
    "pixel_unshuffle": _unshuffled,
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), _channels_shuffled),
    "movedim": _moved,
    "meshgrid": _meshed,
}  # fmt: skip
"""How operators of PyTorch are translated, by their names without overloads."""
