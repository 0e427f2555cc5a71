"""Layers of PyTorch: products, attention, convolutions and pools, norms, and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from tensorc_dsl.graph.aten.traced import Call, Name, Translator, Value
from tensorc_dsl.graph.graph import Array, Unsupported

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


def _added_products(c: Call) -> Value:
    """beta * self + alpha * (batch1 @ batch2)."""
    made, dtype = c.emit("MatMul", c["batch1"], c["batch2"]), c.result.dtype
    if c.get("alpha", 1) != 1:
        made = c.emit("Mul", made, c.number(c["alpha"], dtype))
    beta = c.get("beta", 1)
    if beta == 0:
        return made
    other = c["self"] if beta == 1 else c.emit("Mul", c["self"], c.number(beta, dtype))
    return c.emit("Add", other, made)


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
        made = _pooled(
            c, "MaxPool", rank, kernel_shape=extents, strides=_spread(c.get("stride") or extents, rank),
            pads=_spread(c["padding"], rank) * 2, dilations=_spread(c["dilation"], rank), ceil_mode=int(c["ceil_mode"]),
        )  # fmt: skip
        return (made, None) if with_positions else made

    return translate


def _average_pool(rank: int) -> Translator:
    def translate(c: Call) -> Value:
        c.refuse_unless(c.get("divisor_override") is None, "a divisor")
        extents = _spread(c["kernel_size"], rank)
        return _pooled(
            c, "AveragePool", rank, kernel_shape=extents, strides=_spread(c.get("stride") or extents, rank),
            pads=_spread(c["padding"], rank) * 2, ceil_mode=int(c["ceil_mode"]),
            count_include_pad=int(c.get("count_include_pad", True)),
        )  # fmt: skip

    return translate


def _adaptive(op: str, rank: int, with_positions: bool = False) -> Translator:
    def translate(c: Call) -> Value:
        wanted, sizes = c.result_shape[-rank:], c.shape("self")[-rank:]
        if any(n % m for n, m in zip(sizes, wanted, strict=True)):
            if op != "AveragePool":
                raise Unsupported(f"windows of other sizes: {list(sizes)} to {list(wanted)}")
            return _uneven(c, sizes, wanted)
        if set(wanted) == {1}:
            made = _pooled(c, f"Global{op}", rank)
        elif wanted == sizes:
            made = c["self"]
        else:
            extents = [n // m for n, m in zip(sizes, wanted, strict=True)]
            made = _pooled(c, op, rank, kernel_shape=extents, strides=extents)
        return (made, None) if with_positions else made

    return translate


def _uneven(c: Call, sizes: Sequence[int], wanted: Sequence[int]) -> Value:
    """Means over windows that overlap and differ in size: along each axis a product with their weights."""
    dtype = np.dtype(str(c.result.dtype).removeprefix("torch."))
    axes, made = "abcdefg"[: c.rank("self")], c["self"]
    for k, (n, m) in enumerate(zip(sizes, wanted, strict=True), len(axes) - len(sizes)):
        weights = np.zeros((n, m), dtype)
        for w in range(m):
            begin, end = w * n // m, -(-(w + 1) * n // m)
            weights[begin:end, w] = 1 / (end - begin)
        equation = f"{axes},{axes[k]}z->{axes[:k]}z{axes[k + 1 :]}"
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


def _resized(mode: str, rank: int) -> Translator:
    def translate(c: Call) -> Value:
        how = "asymmetric" if mode == "nearest" else "align_corners" if c.get("align_corners") else "half_pixel"
        shape, result = c.shape("input" if "input" in c.given else "self"), c.result_shape
        factors = c.get("scale_factors")
        if factors is None:
            sizes = [None, None, None, c.ints(*result)]
        else:
            scales = np.array([1.0] * (len(shape) - rank) + [float(f) for f in factors], np.float32)
            sizes = [None, None, c.graph.constant(scales)]
        x = c.get("input", c.get("self"))
        inputs = [x, *sizes[1:]]
        attributes: dict[str, Any] = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
        return c.emit(
            "Resize", *inputs, mode=mode, coordinate_transformation_mode=how, nearest_mode="floor", **attributes
        )

    return translate


# --- norms -------------------------------------------------------------------------------------------------------------


def _weight_or(c: Call, name: str, value: float, shape: Sequence[int]) -> Value:
    dtype = np.dtype(str(c.result.dtype).removeprefix("torch."))
    return c.graph.constant(np.full(tuple(shape), value, dtype)) if c.get(name) is None else c[name]


def _batch_norm(c: Call) -> Value:
    c.refuse_unless(not c.get("training", False) and c.get("running_mean") is not None, "statistics of the batch")
    channels = c.shape("input")[1:2]
    scale, bias = _weight_or(c, "weight", 1.0, channels), _weight_or(c, "bias", 0.0, channels)
    inputs = (c["input"], scale, bias, c["running_mean"], c["running_var"])
    return c.emit("BatchNormalization", *inputs, epsilon=float(c["eps"]))


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
    least = c.get("eps", float(np.finfo(str(c.result.dtype).removeprefix("torch.")).eps))
    return c.emit(
        "RMSNormalization", c["input"], _weight_or(c, "weight", 1.0, shape), axis=-len(shape), epsilon=float(least)
    )


# --- recurrent layers --------------------------------------------------------------------------------------------------


def _gates(array: Array, order: Sequence[int]) -> Array:
    """The rows of the gates in another order."""
    size = array.shape[0] // len(order)
    return np.concatenate([array[k * size : (k + 1) * size] for k in order])


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
        c.refuse_unless(len(parameters) == layers * directions * each, "a projection of the states")
        x = c["input"]
        if c["batch_first"]:
            x = c.emit("Transpose", x, perm=[1, 0, 2])
        ends: list[list[Name]] = [[] for _ in states]
        batch, steps = (c.shape("input")[k] for k in ((0, 1) if c["batch_first"] else (1, 0)))
        hidden = parameters[1].shape[1]
        for layer in range(layers):
            first = layer * directions
            rows = [parameters[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
            w, r = (np.stack([_gates(p[k], order) for p in rows]) for k in (0, 1))
            inputs: list[Value] = [x, c.graph.constant(w), c.graph.constant(r), None, None]
            if biased:
                b = np.stack([np.concatenate([_gates(p[2], order), _gates(p[3], order)]) for p in rows])
                inputs[3] = c.graph.constant(b)
            at = c.ints(first), c.ints(first + directions), c.ints(0)
            inputs += [c.emit("Slice", s, *at) for s in states]
            direction = "bidirectional" if both else "forward"
            made = c.graph.emit(op, inputs, 1 + len(states), hidden_size=hidden, direction=direction, **attributes)
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
    "baddbmm": _added_products,
    "mv": _matrix_product("vec"),
    "dot": _matrix_product("tensor"),
    **dict.fromkeys(("outer", "ger"), _outer),
    "_weight_norm": _weight_norm,
    "cdist": _distances,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution_transposed),
    **{f"max_pool{r}d": _max_pool(r) for r in (1, 2, 3)},
    **{f"max_pool{r}d_with_indices": _max_pool(r, True) for r in (1, 2, 3)},
    **{f"avg_pool{r}d": _average_pool(r) for r in (1, 2, 3)},
    **{f"adaptive_avg_pool{r}d": _adaptive("AveragePool", r) for r in (1, 2, 3)},
    **{f"adaptive_max_pool{r}d": _adaptive("MaxPool", r, True) for r in (1, 2, 3)},
    "pad": _padded,
    "constant_pad_nd": _padded,
    "upsample_nearest1d": _resized("nearest", 1),
    "upsample_nearest2d": _resized("nearest", 2),
    "upsample_bilinear2d": _resized("linear", 2),
    "upsample_bicubic2d": _resized("cubic", 2),
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
