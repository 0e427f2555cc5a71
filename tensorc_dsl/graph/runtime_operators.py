"""Operators of ONNX Runtime's own domain, as the files have them that it has optimized or quantized: each as those of ONNX.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensorc_dsl.graph.expanding import Expansion
from tensorc_dsl.graph.graph import Unsupported, onnx_dtype
from tensorc_dsl.graph.operators.lowering import Site

Expand = Callable[[Site, Expansion], None]


def _given(site: Site, n: int) -> str:
    """The name of an input, "" for one that is left out."""
    return site.node.inputs[n] if n < len(site.node.inputs) else ""


def _without(site: Site, *names: str) -> dict[str, Any]:
    """The attributes of the node but for these."""
    return {name: value for name, value in site.node.attributes.items() if name not in names}


def _first(site: Site, *further: int) -> str:
    """The name of the only output that is supported. Raises Unsupported if another one is read."""
    if any(site.wants(n) for n in range(1, len(site.node.outputs)) if n not in further):
        raise Unsupported("an output that is there for training")
    return site.node.outputs[0]


def _cast(out: Expansion, name: str, kind: int) -> str:
    """A value in another element type, by ONNX's number of that."""
    made = out.part()
    out.add("Cast", (name,), [made], to=kind)
    return made


# --- activations and products ------------------------------------------------------------------------------------------


def _renamed(op: str, site: Site, out: Expansion) -> None:
    """The operator of ONNX that does the same."""
    out.emit(op, *site.node.inputs, to=_first(site), **site.node.attributes)


def _biased_gelu(how: str, site: Site, out: Expansion) -> None:
    x = site.node.inputs[0]
    if _given(site, 1):
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
    if _given(site, 3):
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
        if site.attribute(f"transBatch{side}", 0):
            raise Unsupported("batches that are transposed")
        if site.attribute(f"trans{side}", 0) and o.type.rank > 1:
            order[-2:] = order[:-3:-1]
        names.append(o.name if order == sorted(order) else out.emit("Transpose", o.name, perm=order))
    alpha = site.attribute("alpha", 1.0)
    if alpha == 1.0:
        out.emit("MatMul", *names, to=site.node.outputs[0])
        return
    out.emit(
        "Mul", out.emit("MatMul", *names), out.constant(alpha, onnx_dtype(site.given(0).dtype)), to=site.node.outputs[0]
    )


# --- norms and attention -----------------------------------------------------------------------------------------------


def _skip_norm(op: str, site: Site, out: Expansion) -> None:
    """The norm of a sum, which may be the fourth output."""
    is_layer = op == "LayerNormalization"
    bias = _given(site, 4 if is_layer else 3)
    end = _first(site, 3)
    total = site.node.outputs[3] if site.wants(3) else ""
    x = site.node.inputs[0]
    if bias:
        x = out.emit("Add", x, bias)
    x = out.emit("Add", x, site.node.inputs[1], to=total)
    scales = [n for n in (_given(site, 2), _given(site, 3) if is_layer else "") if n]
    out.emit(op, x, *scales, to=end, axis=-1, epsilon=site.attribute("epsilon", 1e-12 if is_layer else 1e-5))


def _multi_head(site: Site, out: Expansion) -> None:
    heads = site.attribute("num_heads", 0)
    if any(_given(site, n) for n in (4, *range(6, 10))) or any(site.wants(n) for n in range(1, len(site.node.outputs))):
        raise Unsupported("padded keys, or keys of earlier steps")
    parts = [site.given(n) for n in range(3)]
    if any(o.type.rank != 3 for o in parts):
        raise Unsupported(f"operands {', '.join(str(o.type) for o in parts)}")
    names = [o.name for o in parts]
    if _given(site, 3):
        sizes = out.constant([o.shape[2] for o in parts])
        biases = _split(out, site.node.inputs[3], sizes, 0)
        names = [out.emit("Add", n, b) for n, b in zip(names, biases, strict=True)]
    _attended(
        site, out, names, heads, _given(site, 5), site.attribute("scale"), bool(site.attribute("unidirectional", 0))
    )


def _self_attention(site: Site, out: Expansion) -> None:
    x, w, mask = site.given(0), site.given(1), site.optional(3)
    heads = site.attribute("num_heads", 0)
    if any(_given(site, n) for n in (4, 6)) or any(site.wants(n) for n in range(1, len(site.node.outputs))):
        raise Unsupported("keys of earlier steps")
    made = out.emit("MatMul", x.name, w.name)
    if _given(site, 2):
        made = out.emit("Add", made, site.node.inputs[2])
    sizes = site.attribute("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    names = _split(out, made, out.constant(sizes), 2)
    seen = _given(site, 5)
    if mask is not None:
        if seen or mask.type.rank != 2 or mask.shape != x.shape[:2]:
            raise Unsupported(f"a mask {mask.type}")
        kept = _cast(out, mask.name, 9)  # bool
        seen = out.reshaped(kept, (x.shape[0], 1, 1, x.shape[1]))
    _attended(site, out, names, heads, seen, site.attribute("scale"), bool(site.attribute("unidirectional", 0)))


def _split(out: Expansion, name: str, sizes: str, axis: int) -> list[str]:
    """The three parts of a value."""
    names = [out.part() for _ in range(3)]
    out.add("Split", (name, sizes), names, axis=axis)
    return names


def _attended(
    site: Site, out: Expansion, names: Sequence[str], heads: int, mask: str, scale: float | None, causal: bool
) -> None:
    given: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(causal)}
    if scale:
        given["scale"] = scale
    out.emit("Identity", out.emit("Attention", *names, *([mask] if mask else []), **given), to=site.node.outputs[0])


# --- quantized values --------------------------------------------------------------------------------------------------


def _real(site: Site, out: Expansion, n: int) -> str:
    """The numbers that quantized ones stand for, whose scale and zero point are the inputs behind them."""
    return out.emit("DequantizeLinear", *(i for i in site.node.inputs[n : n + 3] if i))


def _quantized(site: Site, out: Expansion, x: str, scale: int, like: int) -> None:
    """The result of the node, quantized; without a zero point, to the type of the input of number `like`."""
    zero = _given(site, scale + 1) or out.constant(0, onnx_dtype(site.given(like).dtype))
    out.emit("QuantizeLinear", x, site.node.inputs[scale], zero, to=site.node.outputs[0])


def _quantized_pair(op: str, site: Site, out: Expansion) -> None:
    _quantized(site, out, out.emit(op, _real(site, out, 0), _real(site, out, 3)), 6, 0)


def _quantized_one(op: str, site: Site, out: Expansion) -> None:
    if site.attribute("channels_last", 0):
        raise Unsupported("channels behind the places: quantize the model without changing its layout")
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
    parts, rest = [_real(site, out, 0), _real(site, out, 3)], site.node.attributes
    x = out.emit("Gemm", *parts, **rest)
    if _given(site, 6):
        scale = out.emit("Mul", site.node.inputs[1], site.node.inputs[4])
        term = out.emit("Mul", _cast(out, site.node.inputs[6], 1), scale)  # float
        x = out.emit("Add", x, term)
    if _given(site, 7):
        _quantized(site, out, x, 7, 0)
    else:
        out.emit("Identity", x, to=site.node.outputs[0])


def _scaled_product(site: Site, out: Expansion, a: str, b: str, zeros: Sequence[str], scale: str, bias: str) -> None:
    """A product of integers less their zero points, scaled."""
    total = _cast(out, out.emit("MatMulInteger", a, b, *zeros), 1)  # float
    end = site.node.outputs[0]
    x = out.emit("Mul", total, scale, to="" if bias else end)
    if bias:
        out.emit("Add", x, bias, to=end)


def _dynamic_matmul(site: Site, out: Expansion) -> None:
    a, scale, zero = out.part(), out.part(), out.part()
    out.add("DynamicQuantizeLinear", (site.node.inputs[0],), [a, scale, zero])
    product = out.emit("Mul", scale, site.node.inputs[2])
    _scaled_product(site, out, a, site.node.inputs[1], [zero, _given(site, 3)], product, _given(site, 4))


def _integer_matmul(site: Site, out: Expansion) -> None:
    product = out.emit("Mul", site.node.inputs[2], site.node.inputs[3])
    zeros = [_given(site, 4), _given(site, 5)]
    _scaled_product(site, out, site.node.inputs[0], site.node.inputs[1], zeros, product, _given(site, 6))


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
    _OWN + "MultiHeadAttention": _multi_head,
    _OWN + "Attention": _self_attention,
    _OWN + "QLinearAdd": partial(_quantized_pair, "Add"),
    _OWN + "QLinearMul": partial(_quantized_pair, "Mul"),
    _OWN + "QLinearSigmoid": partial(_quantized_one, "Sigmoid"),
    _OWN + "QLinearLeakyRelu": partial(_quantized_one, "LeakyRelu"),
    _OWN + "QLinearSoftmax": partial(_quantized_one, "Softmax"),
    _OWN + "QLinearAveragePool": partial(_quantized_one, "AveragePool"),
    _OWN + "QLinearGlobalAveragePool": partial(_quantized_one, "GlobalAveragePool"),
    _OWN + "QLinearConcat": _quantized_concat,
    _OWN + "QGemm": _quantized_gemm,
    _OWN + "DynamicQuantizeMatMul": _dynamic_matmul,
    _OWN + "MatMulIntegerToFloat": _integer_matmul,
}
"""What adds the nodes for an operator, by its domain and name."""
