"""Layers of PyTorch: products, attention, convolutions and pools, norms, and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from tensorc_dsl.graph.aten.traced import Call, Name, Translator, Value
from tensorc_dsl.graph.graph import REASON, Array, Node
from tensorc_dsl.graph.operators.products import GROUPED

# --- products ----------------------------------------------------------------------------------------------------------


def _linear(c: Call) -> Value:
    x, weight, bias = c["input"], c["weight"], c.get("bias")
    if c.rank("input") == 2:
        return c.emit("Gemm", x, weight, bias, transB=1) if bias is not None else c.emit("Gemm", x, weight, transB=1)
    product = c.emit("MatMul", x, _turned(c, weight))
    return product if bias is None else c.emit("Add", product, bias)


def _turned(c: Call, weight: Name) -> Name:
    """The transpose of a matrix; of a weight a constant, which is made once."""
    value = c.graph.constants.get(weight)
    if value is None:
        return c.emit("Transpose", weight, perm=[1, 0])
    name = Name(f"{weight}.T")
    if name not in c.graph.constants:
        c.graph.constant(np.ascontiguousarray(value.T), name)
    return name


def _matrix_product(second: str) -> Translator:
    return lambda c: c.emit("MatMul", c["self"], c[second])


def _added_product(c: Call) -> Value:
    inputs = (c["mat1"], c["mat2"], c["self"])
    return c.emit("Gemm", *inputs, alpha=float(c.get("alpha", 1)), beta=float(c.get("beta", 1)))


def _added_products(first: str, second: str, total: bool = False) -> Translator:
    """beta * self + alpha * (first @ second), of all products of a batch together if that is wanted."""

    def translate(c: Call) -> Value:
        made, dtype = c.emit("MatMul", c[first], c[second]), c.result.dtype
        if total:
            made = c.emit("ReduceSum", made, axes=[0], keepdims=0)
        if c.get("alpha", 1) != 1:
            made = c.emit("Mul", made, c.number(c["alpha"], dtype))
        beta = c.get("beta", 1)
        if beta == 0:
            return made
        other = c["self"] if beta == 1 else c.emit("Mul", c["self"], c.number(beta, dtype))
        return c.emit("Add", other, made)

    return translate


def _outer(c: Call) -> Value:
    other = next(n for n in ("vec2", "other") if n in c.given)
    return c.emit("Mul", c.reshaped(c.typed("self"), (-1, 1)), c.reshaped(c.typed(other), (1, -1)))


def _weight_norm(c: Call) -> Value:
    """v * (g / |v|), where g has a number for each element of an axis."""
    axis, rank = c.axis(of="v"), c.rank("v")
    length = c.emit("ReduceL2", c["v"], axes=[a for a in range(rank) if a != axis], keepdims=1)
    return c.emit("Mul", c["v"], c.emit("Div", c["g"], length))


def _distances(c: Call) -> Value:
    """Of each row of one tensor to each of another."""
    order = float(c.get("p", 2))
    c.refuse_unless(order in (1, 2), f"distances of the order {order}")
    apart = c.emit("Sub", c.emit("Unsqueeze", c["x1"], c.ints(-2)), c.emit("Unsqueeze", c["x2"], c.ints(-3)))
    return c.emit(f"ReduceL{order:g}", apart, axes=[-1], keepdims=0)


def _grouped_product(c: Call) -> Value:
    """Rows in groups, each with a matrix of its own: the experts of a mixture."""
    c.refuse_unless(c.get("offs") is not None and c.get("bias") is None, "products without the ends of groups")
    rows, matrices = ("self", "mat2") if "self" in c.given else ("input", "weight")
    c.refuse_unless((c.rank(rows), c.rank(matrices)) == (2, 3), "groups of columns")
    return c.emit(GROUPED, c[rows], c[matrices], c["offs"])


def _bags(c: Call) -> Value:
    """Sums, means or maxima of rows, in bags of the numbers that `offsets` tells."""
    rows, (count, *_) = c.emit("Gather", c["weight"], c["indices"], axis=0), c.shape("indices")
    begins, mode, dtype = c.array(c["offsets"]).tolist(), int(c.get("mode", 0)), c.result.dtype
    left_out = int(c.get("padding_idx", -1))
    ends = [*begins[1:], count][: c.result_shape[0]]
    sizes = {end - begin for begin, end in zip(begins, ends, strict=False)}
    if mode == 2:
        c.refuse_unless(len(sizes) == 1 and left_out < 0, "maxima of bags of several sizes")
        each = c.reshaped(rows, (c.result_shape[0], sizes.pop(), c.result_shape[1]))
        return (c.emit("ReduceMax", each, axes=[1], keepdims=0), None, None, None)
    if c.get("per_sample_weights") is not None:
        rows = c.emit("Mul", rows, c.emit("Unsqueeze", c["per_sample_weights"], c.ints(1)))
    table = np.zeros((c.result_shape[0], count), c.graph.array_dtype(dtype))
    for bag, begin, end in zip(table, begins, ends, strict=False):
        bag[begin:end] = 1 if mode == 0 or left_out >= 0 else 1 / max(end - begin, 1)
    if left_out < 0:
        return (c.emit("MatMul", c.graph.constant(table), rows), None, None, None)
    is_left_out = c.emit("Equal", c["indices"], c.number(left_out, c.metas["indices"].meta["val"].dtype))
    kept = c.emit("Unsqueeze", c.cast(c.emit("Not", is_left_out), dtype), c.ints(1))
    made = c.emit("MatMul", c.graph.constant(table), c.emit("Mul", rows, kept))
    if mode == 1:
        number = c.emit("MatMul", c.graph.constant(table), kept)
        made = c.emit("Div", made, c.emit("Max", number, c.number(1, dtype)))
    return (made, None, None, None)


def _bilinear(c: Call) -> Value:
    made = c.emit("Einsum", c["input1"], c["weight"], c["input2"], equation="...i,oij,...j->...o")
    return made if c.get("bias") is None else c.emit("Add", made, c["bias"])


def _einsum(c: Call) -> Value:
    return c.emit("Einsum", *c["tensors"], equation=c["equation"])


def _attention(c: Call) -> Value:
    """softmax(query · keyᵀ · scale + mask) · value, and 0 where a mask leaves nothing."""
    c.refuse_unless(not c.get("dropout_p", 0.0), "dropout")
    names, rank = ("query", "key", "value"), len(c.result_shape)
    grouped = bool(c.get("enable_gqa", False))
    outer = [c.shape(n)[:-3] if grouped else c.shape(n)[:-2] for n in names]
    lead = np.broadcast_shapes(*outer)
    given: list[Value] = []
    for n, own in zip(names, outer, strict=True):
        inner = c.shape(n)[len(own) :]
        x = c[n] if own == lead else c.emit("Expand", c[n], c.ints(*lead, *inner))
        given.append(x if rank == 4 else c.reshaped(x, _four((*lead, *inner))))
    mask = c.get("attn_mask")
    if mask is not None and rank > 4:
        whole = (*c.result_shape[:-2], c.shape("query")[-2], c.shape("key")[-2])
        mask = c.reshaped(c.emit("Expand", mask, c.ints(*whole)), _four(whole))
    more = [] if mask is None else [mask]
    scale = float(c.get("scale", 1 / sqrt(c.shape("query")[-1])))
    made = c.emit("Attention", *given, *more, scale=scale, is_causal=int(bool(c.get("is_causal", False))))
    return made if rank == 4 else c.reshaped(made, c.result_shape)


def _four(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of four dimensions with the last three, or with ones in front of fewer."""
    wide = (1, 1, *shape)
    return (prod(wide[:-3]), *wide[-3:])


# --- windows -----------------------------------------------------------------------------------------------------------


def _spread(value: Value, rank: int) -> list[int]:
    """A number for each dimension; one may stand for all."""
    found = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (found * rank if len(found) == 1 else found)]


def _convolution(c: Call) -> Value:
    if c.get("transposed", False):
        return _convolution_transposed(c)
    rank = c.rank("weight") - 2
    dilations = _spread(c["dilation"], rank)
    padding = c["padding"]
    if isinstance(padding, str):
        whole = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, c.shape("weight")[2:], strict=True)]
        pads = [*(n // 2 for n in whole), *(n - n // 2 for n in whole)]
    else:
        pads = _spread(padding, rank) * 2
    return _over_batch(
        c, "Conv", rank, strides=_spread(c["stride"], rank), pads=pads, dilations=dilations, group=c["groups"]
    )


def _convolution_transposed(c: Call) -> Value:
    rank = c.rank("weight") - 2
    strides, dilations, more = (_spread(c[n], rank) for n in ("stride", "dilation", "output_padding"))
    return _over_batch(
        c, "ConvTranspose", rank, strides=strides, pads=_spread(c["padding"], rank) * 2, dilations=dilations,
        group=c["groups"], output_padding=more,
    )  # fmt: skip


def _deformed(c: Call) -> Value:
    """Of torchvision: rows come before columns, and a mask may be left out by a flag."""
    strides, pads, dilations = ([int(c[f"{word}_{d}"]) for d in "hw"] for word in ("stride", "pad", "dilation"))
    mask = [c["mask"]] if c["use_mask"] else []
    return c.emit(
        "DeformConv", c["input"], c["weight"], c["offset"], c["bias"], *mask, strides=strides, pads=pads * 2,
        dilations=dilations, group=int(c["groups"]), offset_group=int(c["offset_groups"]),
    )  # fmt: skip


def _over_batch(c: Call, op: str, rank: int, **attributes: Any) -> Value:
    """The node; an input without the dimension of a batch gets one."""
    inputs = [c["weight"], *([] if c.get("bias") is None else [c["bias"]])]
    if c.rank("input") == rank + 2:
        return c.emit(op, c["input"], *inputs, **attributes)
    made = c.emit(op, c.reshaped(c["input"], (1, *c.shape("input"))), *inputs, **attributes)
    return c.reshaped(made, c.result_shape)


def _max_pool(rank: int, with_positions: bool = False) -> Translator:
    def translate(c: Call) -> Value:
        extents = _spread(c["kernel_size"], rank)
        how = {
            "kernel_shape": extents, "strides": _spread(c.get("stride") or extents, rank),
            "pads": _spread(c["padding"], rank) * 2, "dilations": _spread(c["dilation"], rank),
            "ceil_mode": int(c["ceil_mode"]),
        }  # fmt: skip
        return _with_places(c, rank, **how) if with_positions else _pooled(c, "MaxPool", rank, **how)

    return translate


def _with_places(c: Call, rank: int, **attributes: Any) -> Value:
    """The maxima, and their places in an image, where ONNX counts them in all images."""
    x, shape = c["self"], c.shape("self")
    if len(shape) != rank + 2:
        x = c.reshaped(x, (1, *shape))
    values, places = c.graph.emit("MaxPool", [x], 2, **attributes)
    places = c.emit("Mod", places, c.number(prod(shape[-rank:]), c.graph.torch.int64))
    return tuple(c.reshaped(v, c.result_shape) for v in (values, places))


def _unpooled(rank: int) -> Translator:
    """Zeros, with values at their places in an image."""

    def translate(c: Call) -> Value:
        shape = c.result_shape
        rows = prod(shape[:-rank])
        zeros = np.broadcast_to(np.zeros((), c.graph.array_dtype(c.result.dtype)), (rows, prod(shape[-rank:])))
        at, values = (c.reshaped(c[name], (rows, -1)) for name in ("indices", "self"))
        return c.reshaped(c.emit("ScatterElements", c.graph.constant(zeros), at, values, axis=1), shape)

    return translate


def _average_pool(rank: int) -> Translator:
    def translate(c: Call) -> Value:
        divisor, extents = c.get("divisor_override"), _spread(c["kernel_size"], rank)
        c.refuse_unless(divisor is None or not c["ceil_mode"], "a divisor of windows that end behind the padding")
        made = _pooled(
            c, "AveragePool", rank, kernel_shape=extents, strides=_spread(c.get("stride") or extents, rank),
            pads=_spread(c["padding"], rank) * 2, ceil_mode=int(c["ceil_mode"]),
            count_include_pad=int(c.get("count_include_pad", True) or divisor is not None),
        )  # fmt: skip
        return made if divisor is None else c.emit("Mul", made, c.number(prod(extents) / divisor, c.result.dtype))

    return translate


def _adaptive(op: str, rank: int, with_positions: bool = False) -> Translator:
    def translate(c: Call) -> Value:
        wanted, sizes = c.result_shape[-rank:], c.shape("self")[-rank:]
        extents = [n // m for n, m in zip(sizes, wanted, strict=True)]
        if any(n % m for n, m in zip(sizes, wanted, strict=True)):
            made = _uneven(c, sizes, wanted) if op == "AveragePool" else _uneven_maxima(c, sizes, wanted)
            return (made, _no_places(c)) if with_positions else made
        if set(wanted) == {1}:
            made = _pooled(c, f"Global{op}", rank)
        elif wanted == sizes:
            made = c["self"]
        else:
            made = _pooled(c, op, rank, kernel_shape=extents, strides=extents)
        return (made, _with_places(c, rank, kernel_shape=extents, strides=extents)[1]) if with_positions else made

    return translate


def _windows(n: int, m: int) -> list[range]:
    """The elements of `n` under each of `m` windows, which overlap if they differ in size."""
    return [range(w * n // m, -(-(w + 1) * n // m)) for w in range(m)]


def _uneven_maxima(c: Call, sizes: Sequence[int], wanted: Sequence[int]) -> Name:
    """Maxima over windows that differ in size, axis by axis: a smaller one has its last element several times."""
    made = c["self"]
    for axis, (n, m) in enumerate(zip(sizes, wanted, strict=True), c.rank("self") - len(sizes)):
        windows = _windows(n, m)
        most = max(map(len, windows))
        at = np.array([[*w, *[w[-1]] * (most - len(w))] for w in windows], np.int64)
        made = c.emit("ReduceMax", c.emit("Gather", made, c.graph.constant(at), axis=axis), axes=[axis + 1], keepdims=0)
    return made


def _no_places(c: Call) -> Name:
    """The places of maxima in uneven windows, which may be there unread."""
    name = Name(c.graph.fresh("places"))
    c.graph.nodes.append(Node("places", (), (name,), {REASON: "places in windows that differ in size"}, c.graph.place))
    return name


def _uneven(c: Call, sizes: Sequence[int], wanted: Sequence[int]) -> Value:
    """Means over windows that overlap and differ in size: along each axis a product with their weights."""
    dtype = c.graph.array_dtype(c.result.dtype)
    axes, made = "abcdefg"[: c.rank("self")], c["self"]
    for axis, (n, m) in enumerate(zip(sizes, wanted, strict=True), len(axes) - len(sizes)):
        weights = np.zeros((n, m), dtype)
        for k, window in enumerate(_windows(n, m)):
            weights[window, k] = 1 / len(window)
        equation = f"{axes},{axes[axis]}z->{axes[:axis]}z{axes[axis + 1 :]}"
        made = c.emit("Einsum", made, c.graph.constant(weights), equation=equation)
    return made


def _pooled(c: Call, op: str, rank: int, **attributes: Any) -> Value:
    x = c["self"]
    if c.rank("self") == rank + 2:
        return c.emit(op, x, **attributes)
    return c.reshaped(c.emit(op, c.reshaped(x, (1, *c.shape("self"))), **attributes), c.result_shape)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(c: Call) -> Value:
    mode, given = c.get("mode", "constant"), c["pad"]
    rank = c.rank("self")
    before, after = [0] * rank, [0] * rank
    for k in range(len(given) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = int(given[2 * k]), int(given[2 * k + 1])
    fill = c.number(c.get("value", 0), c.result.dtype)
    return c.emit("Pad", c["self"], c.ints(*before, *after), fill, mode=_MODES[mode])


def _resized(mode: str, rank: int, exact: bool = False, smooth: bool = False) -> Translator:
    """A resize; `exact` takes the nearest element by the middles of elements, `smooth` is with antialiasing."""

    def translate(c: Call) -> Value:
        how = "align_corners" if c.get("align_corners") else "half_pixel"
        if mode == "nearest" and not exact:
            how = "asymmetric"
        shape, result = c.shape("input" if "input" in c.given else "self"), c.result_shape
        own = [c.get(name) for name in (("scales",) if rank == 1 else ("scales_d", "scales_h", "scales_w")[-rank:])]
        factors = c.get("scale_factors", None if None in own else own)
        if factors is None:
            sizes = [None, None, None, c.ints(*result)]
        else:
            scales = np.array([1.0] * (len(shape) - rank) + [float(f) for f in factors], np.float32)
            sizes = [None, None, c.graph.constant(scales)]
        x = c.get("input", c.get("self"))
        inputs = [x, *sizes[1:]]
        attributes: dict[str, Any] = {"cubic_coeff_a": -0.5 if smooth else -0.75} if mode == "cubic" else {}
        if smooth:
            attributes |= {"antialias": 1, "exclude_outside": 1}
        return c.emit(
            "Resize", *inputs, mode=mode, coordinate_transformation_mode=how,
            nearest_mode="round_prefer_ceil" if exact else "floor", **attributes,
        )  # fmt: skip

    return translate


# --- norms -------------------------------------------------------------------------------------------------------------


def _weight_or(c: Call, name: str, value: float, shape: Sequence[int]) -> Value:
    filled = np.full(tuple(shape), value, c.graph.array_dtype(c.result.dtype))
    return c.graph.constant(filled) if c.get(name) is None else c[name]


def _batch_norm(c: Call) -> Value:
    channels = c.shape("input")[1:2]
    training = int(bool(c.get("training", False)))  # of a layer that keeps no statistics, too
    names = (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))
    inputs = (c["input"], *(_weight_or(c, name, usual, channels) for name, usual in names))
    return c.emit("BatchNormalization", *inputs, epsilon=float(c["eps"]), training_mode=training)


def _instance_norm(c: Call) -> Value:
    c.refuse_unless(bool(c["use_input_stats"]), "kept statistics")
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    return c.emit("InstanceNormalization", c["input"], scale, bias, epsilon=float(c["eps"]))


def _group_norm(c: Call) -> Value:
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    groups = int(c["num_groups"])
    return c.emit("GroupNormalization", c["input"], scale, bias, epsilon=float(c["eps"]), num_groups=groups)


def _layer_norm(c: Call) -> Value:
    shape = [int(n) for n in c["normalized_shape"]]
    inputs = [c["input"], _weight_or(c, "weight", 1.0, shape), *([] if c.get("bias") is None else [c["bias"]])]
    return c.emit("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(c["eps"]))


def _rms_norm(c: Call) -> Value:
    shape = [int(n) for n in c["normalized_shape"]]
    least = c.get("eps", float(c.graph.torch.finfo(c.result.dtype).eps))
    return c.emit(
        "RMSNormalization", c["input"], _weight_or(c, "weight", 1.0, shape), axis=-len(shape), epsilon=float(least)
    )


# --- recurrent layers --------------------------------------------------------------------------------------------------


def _gates(array: Array, order: Sequence[int]) -> Array:
    """The rows of the gates in another order."""
    size = array.shape[0] // len(order)
    return np.concatenate([array[k * size : (k + 1) * size] for k in order])


_WORST_CONDITION = 1e3
"""How much larger states may become that a projection makes to given ones."""


def _before_projection(c: Call, begin: Name, states: Value, back: Array) -> Value:
    """States whose projections are those that a layer begins with: a layer with projected states, [directions, batch,
    projected], is one without, whose weights of the states are multiplied by the projection. `back` has its transposes.
    """
    known = c.graph.constants.get(states)
    if known is not None and not known.any():
        d, hidden, _ = back.shape
        return c.graph.constant(np.zeros((d, known.shape[1], hidden), known.dtype))
    c.refuse_unless(
        bool((np.linalg.cond(back) < _WORST_CONDITION).all()), "a projection that loses parts of the states"
    )
    return c.emit("MatMul", begin, c.graph.constant(np.linalg.pinv(back)))


def _recurrent(op: str, order: Sequence[int], **attributes: Any) -> Translator:
    """A stack of layers. `order` has the gates of ONNX among those of PyTorch."""

    def translate(c: Call) -> Value:
        lstm = op == "LSTM"
        c.refuse_unless("batch_first" in c.given and c.rank("input") == 3, "a batch of sequences of several lengths")
        c.refuse_unless(not (c["train"] and c["dropout"]), "dropout")
        states = list(c["hx"]) if lstm else [c["hx"]]
        both, layers, biased = bool(c["bidirectional"]), int(c["num_layers"]), bool(c["has_biases"])
        directions, each = 2 if both else 1, 4 if biased else 2
        parameters = [c.array(p) for p in c["params"]]
        projected = len(parameters) == layers * directions * (each + 1)
        each += projected
        x = c["input"]
        if c["batch_first"]:
            x = c.emit("Transpose", x, perm=[1, 0, 2])
        ends: list[list[Name]] = [[] for _ in states]
        batch, steps = (c.shape("input")[k] for k in ((0, 1) if c["batch_first"] else (1, 0)))
        for layer in range(layers):
            first = layer * directions
            rows = [parameters[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
            back = np.stack([p[-1].T for p in rows]) if projected else None
            w = np.stack([_gates(p[0], order) for p in rows])
            r = np.stack([_gates(p[1] @ p[-1] if projected else p[1], order) for p in rows])
            hidden = r.shape[2]
            inputs: list[Value] = [x, c.graph.constant(w), c.graph.constant(r), None, None]
            if biased:
                b = np.stack([np.concatenate([_gates(p[2], order), _gates(p[3], order)]) for p in rows])
                inputs[3] = c.graph.constant(b)
            at = c.ints(first), c.ints(first + directions), c.ints(0)
            begin = [c.emit("Slice", s, *at) for s in states]
            if back is not None:
                begin[0] = _before_projection(c, begin[0], states[0], back)
            direction = "bidirectional" if both else "forward"
            made = c.graph.emit(
                op, inputs + begin, 1 + len(states), hidden_size=hidden, direction=direction, **attributes
            )
            if back is not None:
                made[:2] = (c.emit("MatMul", value, c.graph.constant(back)) for value in made[:2])
                hidden = back.shape[2]
            for end, value in zip(ends, made[1:], strict=True):
                end.append(value)
            turned = c.emit("Transpose", made[0], perm=[0, 2, 1, 3])
            x = c.reshaped(turned, (steps, batch, directions * hidden))
        if c["batch_first"]:
            x = c.emit("Transpose", x, perm=[1, 0, 2])
        return (x, *(c.emit("Concat", *end, axis=0) for end in ends))

    return translate


TABLE: Mapping[str, Translator] = {
    "linear": _linear,
    "matmul": _matrix_product("other"),
    "bmm": _matrix_product("mat2"),
    "mm": _matrix_product("mat2"),
    "addmm": _added_product,
    "baddbmm": _added_products("batch1", "batch2"),
    "addbmm": _added_products("batch1", "batch2", total=True),
    "addmv": _added_products("mat", "vec"),
    "mv": _matrix_product("vec"),
    "dot": _matrix_product("tensor"),
    **dict.fromkeys(("outer", "ger"), _outer),
    "_weight_norm": _weight_norm,
    "cdist": _distances,
    "bilinear": _bilinear,
    **dict.fromkeys(("_grouped_mm", "grouped_mm", "transformers::grouped_mm_fallback"), _grouped_product),
    **dict.fromkeys(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), _bags),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution_transposed),
    "torchvision::deform_conv2d": _deformed,
    **{f"max_pool{r}d": _max_pool(r) for r in (1, 2, 3)},
    **{f"max_pool{r}d_with_indices": _max_pool(r, True) for r in (1, 2, 3)},
    **{f"avg_pool{r}d": _average_pool(r) for r in (1, 2, 3)},
    **{f"adaptive_avg_pool{r}d": _adaptive("AveragePool", r) for r in (1, 2, 3)},
    **{f"adaptive_max_pool{r}d": _adaptive("MaxPool", r, True) for r in (1, 2, 3)},
    "pad": _padded,
    "constant_pad_nd": _padded,
    **{f"max_unpool{r}d": _unpooled(r) for r in (2, 3)},
    **{f"upsample_nearest{r}d": _resized("nearest", r) for r in (1, 2, 3)},
    **{f"_upsample_nearest_exact{r}d": _resized("nearest", r, exact=True) for r in (1, 2, 3)},
    "upsample_linear1d": _resized("linear", 1),
    "upsample_bilinear2d": _resized("linear", 2),
    "upsample_trilinear3d": _resized("linear", 3),
    "upsample_bicubic2d": _resized("cubic", 2),
    "_upsample_bilinear2d_aa": _resized("linear", 2, smooth=True),
    "_upsample_bicubic2d_aa": _resized("cubic", 2, smooth=True),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "lstm": _recurrent("LSTM", (0, 3, 1, 2)),
    "gru": _recurrent("GRU", (1, 0, 2), linear_before_reset=1),
    "rnn_tanh": _recurrent("RNN", (0,)),
    "rnn_relu": _recurrent("RNN", (0,), activations=["Relu", "Relu"]),
}  # fmt: skip
"""How operators of PyTorch are translated, by their names without overloads."""
