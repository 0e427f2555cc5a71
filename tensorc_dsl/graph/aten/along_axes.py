"""Operators of PyTorch along axes: reductions, and those that move elements."""

from __future__ import annotations

from collections.abc import Mapping

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


def _cumulative(c: Call) -> Value:
    return c.emit("CumSum", c.typed("self"), c.ints(c.axis()))


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
    names = ("dim0", "dim1") if "dim0" in c.given else ("axis0", "axis1")
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
    repeats = [int(n) for n in c["repeats"]]
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


def _indexed(c: Call) -> Value:
    given = [(k, i) for k, i in enumerate(c["indices"]) if i is not None]
    kinds = [i.meta["val"].dtype for i in c.metas["indices"] if i is not None]
    c.refuse_unless(len(given) == 1 and kinds[0] != c.graph.torch.bool, "several indices, or a mask")
    ((axis, index),) = given
    return c.emit("Gather", c["self"], index, axis=axis)


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
    "cumsum": _cumulative,
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
    "repeat": _repeated,
    **dict.fromkeys(("cat", "concat"), _concatenated),
    "stack": _stacked,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "unbind": _unbound,
    **dict.fromkeys(("slice", "narrow"), _sliced),
    "select": _selected,
    "embedding": _embedded,
    "index_select": _index_selected,
    "gather": _gathered,
    "index": _indexed,
    "roll": _rolled,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "pixel_shuffle": _shuffled,
}  # fmt: skip
"""How operators of PyTorch are translated, by their names without overloads."""
