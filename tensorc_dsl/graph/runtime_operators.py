"""Operators of ONNX Runtime's own domain, as the files have them that it has optimized or quantized: each as those of ONNX.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorc_dsl.graph.control import MOST_NODES
from tensorc_dsl.graph.expanding import Expansion
from tensorc_dsl.graph.graph import Array, Unsupported, onnx_dtype
from tensorc_dsl.graph.operators.lowering import Operand, Site
from tensorc_dsl.graph.runtime_attention import ATTENTIONS, given_name, parts_along

Expand = Callable[[Site, Expansion], None]


def _without(site: Site, *names: str) -> dict[str, Any]:
    """The attributes of the node but for these."""
    return {name: value for name, value in site.node.attributes.items() if name not in names}


def _first(site: Site, *further: int) -> str:
    """The name of the only output that is supported. Raises Unsupported if another one is read."""
    if any(site.wants(n) for n in range(1, len(site.node.outputs)) if n not in further):
        raise Unsupported("an output that is there for training")
    return site.node.outputs[0]


# --- activations and products ------------------------------------------------------------------------------------------


def _renamed(op: str, site: Site, out: Expansion) -> None:
    """The operator of ONNX that does the same."""
    out.emit(op, *site.node.inputs, to=_first(site), **site.node.attributes)


def _biased_gelu(how: str, site: Site, out: Expansion) -> None:
    x = site.node.inputs[0]
    if given_name(site, 1):
        x = out.emit("Add", x, site.node.inputs[1])
    out.emit("Gelu", x, to=_first(site), approximate=how)


def _quick_gelu(site: Site, out: Expansion) -> None:
    out.emit("Swish", site.node.inputs[0], to=_first(site), alpha=site.attribute("alpha", 1.702))


_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"),
}  # fmt: skip
"""Activations behind convolutions and products, with the names of their numbers."""


def _activated(site: Site, out: Expansion, x: str, name: str, numbers: Sequence[float]) -> None:
    """An activation of `x`, which is the result of the node."""
    if not name:
        out.emit("Identity", x, to=site.node.outputs[0])
        return
    if name not in _ACTIVATIONS or len(numbers) > len(_ACTIVATIONS[name]):
        raise Unsupported(f"the activation {name}")
    if name == "Clip":
        bounds = [out.constant(v, onnx_dtype(site.given(0).dtype)) for v in numbers]
        out.emit("Clip", x, *bounds, to=site.node.outputs[0])
        return
    out.emit(name, x, to=site.node.outputs[0], **dict(zip(_ACTIVATIONS[name], numbers, strict=False)))


def _fused_conv(site: Site, out: Expansion) -> None:
    rest = _without(site, "activation", "activation_params")
    x = out.emit("Conv", *site.node.inputs[:3], **rest)
    if given_name(site, 3):
        x = out.emit("Add", x, site.node.inputs[3])
    _activated(site, out, x, site.attribute("activation", ""), site.attribute("activation_params", []))


def _fused_gemm(site: Site, out: Expansion) -> None:
    named = ("activation_alpha", "activation_beta")
    rest = _without(site, "activation", "activation_gamma", *named)
    numbers = [site.attribute(n) for n in named if site.attribute(n) is not None]
    op: str = site.attribute("activation", "")
    x = out.emit("Gemm", *site.node.inputs, **rest)
    _activated(site, out, x, op, numbers[: len(_ACTIVATIONS.get(op, ()))])


def _fused_matmul(site: Site, out: Expansion) -> None:
    names: list[str] = []
    for n, side in enumerate("AB"):
        o = site.given(n)
        order = list(range(o.type.rank))
        if site.attribute(f"transBatch{side}", 0) and o.type.rank > 2:  # rows come before the batches
            order = [*order[1:-1], 0, order[-1]]
        if site.attribute(f"trans{side}", 0) and o.type.rank > 1:
            order[-2:] = order[-1], order[-2]
        names.append(o.name if order == sorted(order) else out.emit("Transpose", o.name, perm=order))
    alpha = site.attribute("alpha", 1.0)
    if alpha == 1.0:
        out.emit("MatMul", *names, to=site.node.outputs[0])
        return
    out.emit(
        "Mul", out.emit("MatMul", *names), out.constant(alpha, onnx_dtype(site.given(0).dtype)), to=site.node.outputs[0]
    )


# --- norms and embeddings ----------------------------------------------------------------------------------------------


def _skip_norm(op: str, site: Site, out: Expansion) -> None:
    """The norm of a sum, which may be the fourth output."""
    is_layer = op == "LayerNormalization"
    bias = given_name(site, 4 if is_layer else 3)
    end = _first(site, 3)
    total = site.node.outputs[3] if site.wants(3) else ""
    x = site.node.inputs[0]
    if bias:
        x = out.emit("Add", x, bias)
    x = out.emit("Add", x, site.node.inputs[1], to=total)
    scales = [n for n in (given_name(site, 2), given_name(site, 3) if is_layer else "") if n]
    out.emit(op, x, *scales, to=end, axis=-1, epsilon=site.attribute("epsilon", 1e-12 if is_layer else 1e-5))


def _embedded_norm(site: Site, out: Expansion) -> None:
    """The norm of the sum of rows of words, of places and of segments; the sum may be the third output."""
    words, segments, at = site.given(0), site.optional(1), given_name(site, 8)
    if site.wants(1) and given_name(site, 7):
        raise Unsupported("the number of words that count as an output")
    batch, length = words.shape
    x = out.emit("Gather", site.node.inputs[2], words.name)
    x = out.emit("Add", x, out.emit("Gather", site.node.inputs[3], at or out.constant([list(range(length))])))
    if segments is not None:
        x = out.emit("Add", x, out.emit("Gather", site.node.inputs[4], segments.name))
    if site.wants(2):
        out.emit("Identity", x, to=site.node.outputs[2])
    if site.wants(1):
        out.emit("Identity", out.constant([0] * batch, np.int32), to=site.node.outputs[1])
    scales = site.node.inputs[5:7]
    out.emit(
        "LayerNormalization", x, *scales, to=site.node.outputs[0], axis=-1, epsilon=site.attribute("epsilon", 1e-12)
    )


# --- quantized values --------------------------------------------------------------------------------------------------


def _real(site: Site, out: Expansion, n: int, axis: int = 1) -> str:
    """The numbers that quantized ones stand for, whose scale and zero point are the inputs behind them."""
    return out.emit("DequantizeLinear", *(i for i in site.node.inputs[n : n + 3] if i), axis=axis)


def _quantized(site: Site, out: Expansion, x: str, scale: int, like: int) -> None:
    """The result of the node, quantized; without a zero point, to the type of the input of number `like`."""
    zero = given_name(site, scale + 1) or out.constant(0, onnx_dtype(site.given(like).dtype))
    out.emit("QuantizeLinear", x, site.node.inputs[scale], zero, to=site.node.outputs[0])


def _quantized_pair(op: str, site: Site, out: Expansion) -> None:
    _quantized(site, out, out.emit(op, _real(site, out, 0), _real(site, out, 3)), 6, 0)


def _channels_last(op: str, site: Site, out: Expansion) -> None:
    """The operator with channels behind the places, which other operators have in front of them."""
    x, rest = site.given(0), _without(site, "channels_last")
    if not site.attribute("channels_last", op == "MaxPool") or x.type.rank < 3:
        out.add(op, site.node.inputs, site.node.outputs, **rest)
        return
    places = list(range(1, x.type.rank - 1))
    first = out.emit("Transpose", x.name, perm=[0, x.type.rank - 1, *places])
    made = out.emit(op, first, *site.node.inputs[1:], **rest)
    out.emit("Transpose", made, to=_first(site), perm=[0, *(p + 1 for p in places), 1])


def _quantized_choice(site: Site, out: Expansion) -> None:
    """Elements of one of two values by flags."""
    made = out.emit("Where", site.node.inputs[0], _real(site, out, 1), _real(site, out, 4))
    _quantized(site, out, made, 7, 1)


def _quantized_one(op: str, site: Site, out: Expansion) -> None:
    if site.attribute("channels_last", 0):
        _channels_last(site.node.op, site, out)
        return
    rank = site.given(0).type.rank
    if site.attribute("opset", 13) < 13 and site.attribute("axis", 1) % max(rank, 1) != rank - 1:
        raise Unsupported("a softmax over several axes")
    _quantized(site, out, out.emit(op, _real(site, out, 0), **_without(site, "channels_last", "opset")), 3, 0)


def _quantized_concat(site: Site, out: Expansion) -> None:
    count = (len(site.node.inputs) - 2) // 3
    parts = [_real(site, out, 2 + 3 * k) for k in range(count)]
    _quantized(site, out, out.emit("Concat", *parts, axis=site.attribute("axis", 0)), 0, 2)


def _quantized_gemm(site: Site, out: Expansion) -> None:
    """The term is of integers in the scale of the products."""
    rest = site.node.attributes
    # Weights have a scale for each column of the result.
    parts = [_real(site, out, 0), _real(site, out, 3, axis=0 if rest.get("transB", 0) else 1)]
    x = out.emit("Gemm", *parts, **rest)
    if given_name(site, 6):
        scale = out.emit("Mul", site.node.inputs[1], site.node.inputs[4])
        term = out.emit("Mul", out.cast(site.node.inputs[6], 1), scale)  # float
        x = out.emit("Add", x, term)
    if given_name(site, 7):
        _quantized(site, out, x, 7, 0)
    else:
        out.emit("Identity", x, to=site.node.outputs[0])


def _scaled_product(site: Site, out: Expansion, a: str, b: str, zeros: Sequence[str], scale: str, bias: str) -> None:
    """A product of integers less their zero points, scaled."""
    total = out.cast(out.emit("MatMulInteger", a, b, *zeros), 1)  # float
    end = site.node.outputs[0]
    x = out.emit("Mul", total, scale, to="" if bias else end)
    if bias:
        out.emit("Add", x, bias, to=end)


def _dynamic_matmul(site: Site, out: Expansion) -> None:
    a, scale, zero = out.part(), out.part(), out.part()
    out.add("DynamicQuantizeLinear", (site.node.inputs[0],), [a, scale, zero])
    product = out.emit("Mul", scale, site.node.inputs[2])
    _scaled_product(site, out, a, site.node.inputs[1], [zero, given_name(site, 3)], product, given_name(site, 4))


def _integer_matmul(site: Site, out: Expansion) -> None:
    product = out.emit("Mul", site.node.inputs[2], site.node.inputs[3])
    zeros = [given_name(site, 4), given_name(site, 5)]
    _scaled_product(site, out, site.node.inputs[0], site.node.inputs[1], zeros, product, given_name(site, 6))


_NODES_A_STEP = 3
"""Of a recurrent layer whose states are quantized."""


def _requantized(out: Expansion, x: str) -> str:
    """The numbers that a value becomes when it is quantized by its own range."""
    parts = [out.part() for _ in range(3)]
    out.add("DynamicQuantizeLinear", (x,), parts)
    return out.emit("DequantizeLinear", *parts)


def _dynamic_lstm(site: Site, out: Expansion) -> None:
    """Steps of a layer, each behind a quantization of the states before it: of those of a direction together."""
    x, lengths = site.given(0), site.optional(4)
    directions, hidden = site.given(2).shape[:2]
    steps, batch = x.shape[:2]
    if lengths is not None and (lengths.value is None or (lengths.value < steps).any()):
        raise Unsupported("sequences of several lengths")
    if directions * steps * _NODES_A_STEP > MOST_NODES or site.attribute("layout", 0):
        raise Unsupported(f"{steps} steps in {directions} directions, which become too many nodes")
    weights: list[Array] = []
    for n, at in ((1, 8), (2, 10)):
        content = _constant_of(site.given(n), "weights")
        scale, zero = (_constant_of(site.given(at + k), "scales").reshape(directions, 1, -1) for k in (0, 1))
        real = (content.astype(np.float32) - zero.astype(np.float32)) * scale
        weights.append(np.ascontiguousarray(real.transpose(0, 2, 1)))
    lines = parts_along(out, _requantized(out, x.name), [1] * steps, 0)
    first = site.word("direction", "forward", "reverse", "bidirectional") == "reverse"
    rest = _without(site, "direction", "layout")
    for name in ("activations", "activation_alpha", "activation_beta"):
        if directions > 1 and rest.get(name):
            both = rest[name]
            if both[: len(both) // 2] != both[len(both) // 2 :]:
                raise Unsupported("directions with other activations")
            rest[name] = both[: len(both) // 2]
    ends: list[list[str]] = [[], [], []]
    for d in range(directions):
        at = out.constant([d]), out.constant([d + 1]), out.constant([0])
        own = [out.constant(w[d : d + 1], np.float32) for w in weights]
        bias, h, c, peep = (out.emit("Slice", i, *at) if (i := given_name(site, n)) else "" for n in (3, 5, 6, 7))
        h, c = (s or out.constant(np.zeros((1, batch, hidden)), np.float32) for s in (h, c))
        back, made = first != bool(d), list[str]()
        for line in lines[::-1] if back else lines:
            row, after = out.part(), (out.part(), out.part())
            inputs = (line, *own, bias, "", _requantized(out, h), c, *([peep] if peep else []))
            out.add("LSTM", inputs, [row, *after], **rest)
            made.append(row)
            h, c = after
        ends[0].append(out.emit("Concat", *(made[::-1] if back else made), axis=0))
        ends[1].append(h)
        ends[2].append(c)
    for n, (parts, axis) in enumerate(zip(ends, (1, 0, 0), strict=True)):
        if site.wants(n):
            out.emit("Concat", *parts, to=site.node.outputs[n], axis=axis)


def _unpacked(content: Array, bits: int, count: int) -> Array:
    """Numbers of some bits in the bytes of each row, the lowest bits first, as bytes; `count` of a row."""
    if bits not in (2, 4, 8):
        raise Unsupported(f"weights of {bits} bits")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = content[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return numbers.reshape(*content.shape[:-1], -1)[..., :count]


def _constant_of(o: Operand, what: str) -> Array:
    if o.value is None:
        raise Unsupported(f"{what} that are computed")
    return o.value


def _zero_points(out: Expansion, o: Operand | None, shape: tuple[int, int], bits: int) -> str:
    """The zero points of blocks, which are packed row by row; half of the numbers lie below the one that is left out."""
    if o is None:
        return out.constant(np.full(shape, 1 << bits - 1), np.uint8)
    packed = _constant_of(o, "zero points")
    if packed.dtype != np.uint8 or packed.size != shape[0] * -(-shape[1] * bits // 8):
        raise Unsupported(f"zero points {o.type} of {list(shape)} blocks")
    return out.constant(_unpacked(packed.reshape(shape[0], -1), bits, shape[1]), np.uint8)


def _single(out: Expansion, o: Operand) -> str:
    """The value as f32."""
    return o.name if o.dtype == "f32" else out.cast(o.name, 1)


def _packed_matmul(site: Site, out: Expansion) -> None:
    """A product with weights of few bits, whose rows have a scale and a zero point for each block of columns."""
    k, n, block, bits = (site.attribute(name, d) for name, d in (("K", 0), ("N", 0), ("block_size", 0), ("bits", 4)))
    x, packed = site.given(0), _constant_of(site.given(1), "weights")
    if min(k, n, block) < 1 or packed.dtype != np.uint8 or packed.size * 8 != n * -(-k // block) * block * bits:
        raise Unsupported(f"{n} rows of {k} weights of {bits} bits in {site.given(1).type}")
    order, groups = site.optional(4), [x // block for x in range(k)]
    if order is not None and _constant_of(order, "groups").reshape(-1)[:k].tolist() != groups:
        raise Unsupported("weights in an order of their own: quantize them without reordering")
    blocks = (n, -(-k // block))
    weights = out.constant(_unpacked(packed.reshape(n, -1), bits, k), np.uint8)
    scale = out.reshaped(_single(out, site.given(2)), blocks)
    zero = _zero_points(out, site.optional(3), blocks, bits)
    made = out.emit("DequantizeLinear", weights, scale, zero, axis=1, block_size=block)
    made = out.emit("MatMul", _single(out, x), out.emit("Transpose", made, perm=[1, 0]))
    bias = site.optional(5)
    if bias is not None:
        made = out.emit("Add", made, _single(out, bias))
    out.emit("CastLike", made, x.name, to=site.node.outputs[0])


def _packed_rows(site: Site, out: Expansion) -> None:
    """Rows of a table of few bits, whose rows have a scale and a zero point for each block of columns."""
    table, scale, bits, block = (
        site.given(0),
        site.given(2),
        site.attribute("bits", 4),
        site.attribute("block_size", 128),
    )
    content = _constant_of(table, "rows")
    axes = site.attribute("gather_axis", 0), site.attribute("quantize_axis", 1) % max(table.type.rank, 1)
    if table.type.rank != 2 or axes != (0, 1) or scale.type.rank != 2 or block < 1:
        raise Unsupported(f"rows along the axis {axes[0]} of {table.type} with blocks along the axis {axes[1]}")
    zero = site.given(3).name if given_name(site, 3) else ""
    # Elements of a type of 4 bits are held as bytes already.
    if table.dtype == "u8" and -(-table.shape[1] // block) != scale.shape[1]:
        content = _unpacked(content, bits, table.shape[1] * 8 // bits)
        zero = _zero_points(out, site.optional(3), (scale.shape[0], scale.shape[1]), bits)
    if -(-content.shape[1] // block) != scale.shape[1]:
        raise Unsupported(f"scales {scale.type} of blocks of {block} of {table.type}")
    names = [out.constant(content, content.dtype), _single(out, scale), *([zero] if zero else [])]
    rows = [out.emit("Gather", name, site.node.inputs[1], axis=0) for name in names]
    made = out.emit("DequantizeLinear", *rows, axis=-1, block_size=block)
    out.emit("CastLike", made, scale.name, to=site.node.outputs[0])


OWN = "com.microsoft"
"""The domain."""

_OWN = f"{OWN}."

RUNTIME: Mapping[str, Expand] = {
    "SimplifiedLayerNormalization": partial(_renamed, "RMSNormalization"),
    **{_OWN + op: partial(_renamed, op) for op in ("QuantizeLinear", "DequantizeLinear", "Trilu")},
    _OWN + "SimplifiedLayerNormalization": partial(_renamed, "RMSNormalization"),
    _OWN + "Gelu": partial(_renamed, "Gelu"),
    _OWN + "BiasGelu": partial(_biased_gelu, "none"),
    _OWN + "FastGelu": partial(_biased_gelu, "tanh"),
    _OWN + "QuickGelu": _quick_gelu,
    _OWN + "FusedConv": _fused_conv,
    _OWN + "FusedGemm": _fused_gemm,
    _OWN + "FusedMatMul": _fused_matmul,
    _OWN + "SkipLayerNormalization": partial(_skip_norm, "LayerNormalization"),
    _OWN + "SkipSimplifiedLayerNormalization": partial(_skip_norm, "RMSNormalization"),
    _OWN + "EmbedLayerNormalization": _embedded_norm,
    **{_OWN + op: expand for op, expand in ATTENTIONS.items()},
    _OWN + "QLinearAdd": partial(_quantized_pair, "Add"),
    _OWN + "QLinearMul": partial(_quantized_pair, "Mul"),
    _OWN + "QLinearSigmoid": partial(_quantized_one, "Sigmoid"),
    _OWN + "QLinearLeakyRelu": partial(_quantized_one, "LeakyRelu"),
    _OWN + "QLinearSoftmax": partial(_quantized_one, "Softmax"),
    _OWN + "QLinearAveragePool": partial(_quantized_one, "AveragePool"),
    _OWN + "QLinearGlobalAveragePool": partial(_quantized_one, "GlobalAveragePool"),
    _OWN + "QLinearConcat": _quantized_concat,
    _OWN + "QLinearConv": partial(_channels_last, "QLinearConv"),
    _OWN + "QLinearWhere": _quantized_choice,
    _OWN + "NhwcMaxPool": partial(_channels_last, "MaxPool"),
    _OWN + "QGemm": _quantized_gemm,
    _OWN + "DynamicQuantizeMatMul": _dynamic_matmul,
    _OWN + "DynamicQuantizeLSTM": _dynamic_lstm,
    _OWN + "MatMulIntegerToFloat": _integer_matmul,
    _OWN + "MatMulNBits": _packed_matmul,
    _OWN + "GatherBlockQuantized": _packed_rows,
}
"""What adds the nodes for an operator, by its domain and name."""
