"""Attentions of ONNX Runtime's own domain: each as the `Attention` of ONNX, with its masks and its keys of earlier steps.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorc_dsl.graph.expanding import Expansion
from tensorc_dsl.graph.graph import Unsupported, onnx_dtype
from tensorc_dsl.graph.operators.lowering import Operand, Site

_FLOAT, _INT64, _BOOL = 1, 7, 9
"""ONNX's numbers of element types."""


def given_name(site: Site, n: int) -> str:
    """The name of an input, "" for one that is left out."""
    return site.node.inputs[n] if n < len(site.node.inputs) else ""


def _refuse(site: Site, inputs: Mapping[int, str], first_output: int) -> None:
    """Raise Unsupported if the node has one of these inputs, or an output from that number on."""
    for n, what in inputs.items():
        if given_name(site, n):
            raise Unsupported(what)
    if any(site.wants(n) for n in range(first_output, len(site.node.outputs))):
        raise Unsupported("its scores as an output")


def parts_along(out: Expansion, name: str, sizes: Sequence[int], axis: int) -> list[str]:
    """The parts of a value along an axis."""
    names = [out.part() for _ in sizes]
    out.add("Split", (name, out.constant(list(sizes))), names, axis=axis)
    return names


def _heads_first(out: Expansion, name: str, batch: int, length: int, heads: int, size: int) -> str:
    """Rows [batch, length, heads · size] as [batch, heads, length, size]."""
    return out.emit("Transpose", out.reshaped(name, (batch, length, heads, size)), perm=[0, 2, 1, 3])


def _attended(
    site: Site,
    out: Expansion,
    names: Sequence[str],
    mask: str,
    past: Sequence[str] = (),
    present: Sequence[str] = (),
    **attributes: Any,
) -> None:
    """The attention that makes the result of the node."""
    given = {name: value for name, value in attributes.items() if value}
    out.add("Attention", (*names, mask, *past), [site.node.outputs[0], *present], **given)


def _kept(out: Expansion, mask: Operand | None, batch: int, keys: int) -> str:
    """A mask of keys as one of scores: a flag for each key, or how many count, of each batch. "" for none."""
    if mask is None:
        return ""
    if mask.shape == (batch, keys):
        kept = out.cast(mask.name, _BOOL)
        return out.reshaped(kept, (batch, 1, 1, keys))
    if mask.shape == (batch,):
        count = out.reshaped(out.cast(mask.name, _INT64), (batch, 1, 1, 1))
        return out.emit("Less", out.constant(np.arange(keys)), count)
    if mask.type.rank == 3 and mask.shape[::2] == (batch, keys):
        kept = out.cast(mask.name, _BOOL)
        return out.reshaped(kept, (batch, 1, *mask.shape[1:]))
    raise Unsupported(f"a mask {mask.type} of {keys} keys")


def _biased(site: Site, out: Expansion, kept: str, bias: str) -> str:
    """What is added to scores, where keys are kept; either may be ""."""
    if not kept or not bias:
        return kept or bias
    return out.emit("Where", kept, bias, out.constant(-np.inf, onnx_dtype(site.given(0).dtype)))


def _multi_head(site: Site, out: Expansion) -> None:
    _refuse(site, {8: "a buffer of keys of earlier steps", 9: "an indirection of its cache"}, 3)
    heads, q, k, v = site.attribute("num_heads", 0), site.given(0), site.optional(1), site.optional(2)
    if heads < 1 or q.type.rank != (3 if k is not None else 5):
        raise Unsupported(f"{heads} heads of {q.type}")
    batch, rows = q.shape[:2]
    are_heads = k is not None and k.type.rank == 4
    if k is None:  # [batch, rows, heads, 3, size]
        length, widths = rows, [heads * q.shape[4]] * 3
        names = [out.reshaped(n, (batch, rows, widths[0])) for n in parts_along(out, q.name, (1, 1, 1), 3)]
    elif v is not None:
        length = k.shape[2 if are_heads else 1]
        widths = [q.shape[2], *(heads * o.shape[3] if are_heads else o.shape[2] for o in (k, v))]
        names = [q.name, k.name, v.name]
    elif k.type.rank == 5:  # [batch, keys, heads, 2, size]
        length, widths = k.shape[1], [q.shape[2], *[heads * k.shape[4]] * 2]
        names = [q.name, *(out.reshaped(n, (batch, length, widths[1])) for n in parts_along(out, k.name, (1, 1), 3))]
    else:
        raise Unsupported(f"keys {k.type} without values")
    if given_name(site, 3):
        for n, (bias, width) in enumerate(zip(parts_along(out, site.node.inputs[3], widths, 0), widths, strict=True)):
            shown = out.reshaped(bias, (heads, 1, width // heads)) if n and are_heads else bias
            names[n] = out.emit("Add", names[n], shown)
    past = site.optional(6)
    keys = length + (past.shape[2] if past is not None else 0)
    mask = _biased(site, out, _kept(out, site.optional(4), batch, keys), given_name(site, 5))
    present = [o if site.wants(n) else "" for n, o in enumerate(site.node.outputs[1:3], 1)]
    before = [given_name(site, n) for n in (6, 7)] if past is not None else []
    _attended(
        site, out, names, mask, before, present, q_num_heads=heads, kv_num_heads=heads, scale=site.attribute("scale"),
        is_causal=int(bool(site.attribute("unidirectional", 0))),
    )  # fmt: skip


def _self_attention(site: Site, out: Expansion) -> None:
    """The products with a joined weight come first. Keys and values of earlier steps are one tensor, and one result."""
    _refuse(site, {6: "a buffer of keys of earlier steps"}, 2)
    x, w = site.given(0), site.given(1)
    made = out.emit("MatMul", x.name, w.name)
    if given_name(site, 2):
        made = out.emit("Add", made, site.node.inputs[2])
    _of_joined(site, out, made, w.shape[1], 3, 4, 5)


def _of_joined(site: Site, out: Expansion, made: str, width: int, mask_at: int, past_at: int, bias_at: int) -> None:
    """The attention of queries, keys and values in one tensor, with the inputs of these numbers."""
    heads, (batch, rows) = site.attribute("num_heads", 0), site.given(0).shape[:2]
    sizes: list[int] = site.attribute("qkv_hidden_sizes") or [width // 3] * 3
    if heads < 1 or sum(sizes) != width or any(n % heads for n in sizes):
        raise Unsupported(f"{heads} heads of queries, keys and values of {width} numbers")
    if site.attribute("do_rotary", 0):
        raise Unsupported("a rotation inside")
    names = parts_along(out, made, sizes, 2)
    past, before, present = site.optional(past_at), list[str](), ["", ""]
    shape = (batch, heads, past.shape[3] if past is not None else 0, sizes[1] // heads)
    if past is not None:
        if past.shape != (2, *shape):
            raise Unsupported(f"keys and values of earlier steps {past.type}")
        before = [out.reshaped(n, shape) for n in parts_along(out, past.name, (1, 1), 0)]
    keys = rows + shape[2]
    if site.wants(1):
        present = [out.part(), out.part()]
    bias = given_name(site, bias_at) if bias_at else ""
    mask = _biased(site, out, _kept(out, site.optional(mask_at), batch, keys), bias)
    _attended(
        site, out, names, mask, before, present, q_num_heads=heads, kv_num_heads=heads, scale=site.attribute("scale"),
        is_causal=int(bool(site.attribute("unidirectional", 0))),
    )  # fmt: skip
    if site.wants(1):
        wide = [out.reshaped(n, (1, batch, heads, keys, shape[3])) for n in present]
        out.emit("Concat", *wide, to=site.node.outputs[1], axis=0)


def _grouped_query(site: Site, out: Expansion) -> None:
    """Keys and values are written into a buffer, behind those that each batch has; a query reads those up to its own."""
    quantized = "keys and values that are quantized"
    _refuse(site, {11: "sinks of heads", 12: quantized, 13: quantized}, 3)
    if site.attribute("smooth_softmax", 0) > 0 or site.attribute("qk_output", 0):
        raise Unsupported("a softmax with a term of its own, or scores as an output")
    heads, groups, q = site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0), site.given(0)
    named = site.ints(6, "total_sequence_length")
    if heads < 1 or groups < 1 or q.type.rank != 3 or named is None:
        raise Unsupported(f"{heads} heads of {q.type}")
    batch, rows, width = q.shape
    names = [q.name, given_name(site, 1), given_name(site, 2)]
    if not names[1]:
        size = width // (heads + 2 * groups)
        names = parts_along(out, q.name, (heads * size, groups * size, groups * size), 2)
    else:
        size = width // heads
    past, (total,) = site.optional(3), named
    length = max(total, past.shape[2] if past is not None else 0)
    ends = out.reshaped(out.cast(site.given(5).name, _INT64), (batch,))
    first = out.constant([0] * batch) if rows == total else out.emit("Sub", ends, out.constant(rows - 1))
    behind = out.emit("Add", out.reshaped(first, (batch, 1)), out.constant(np.arange(rows)))
    if site.attribute("do_rotary", 0):
        tables, at = [site.given(7).name, site.given(8).name], given_name(site, 9) or behind
        how: dict[str, Any] = {
            "interleaved": site.attribute("rotary_interleaved", 0),
            "rotary_embedding_dim": 2 * site.given(7).shape[1],
        }
        for n, count in ((0, heads), (1, groups)):
            names[n] = out.emit("RotaryEmbedding", names[n], *tables, at, num_heads=count, **how)
    for n in (1, 2):
        rows_of = _heads_first(out, names[n], batch, rows, groups, size)
        named_end = site.node.outputs[n] if site.wants(n) else ""
        names[n] = _written(site, out, rows_of, n + 2, first, (batch, groups, length, size), named_end)
    number, key = out.reshaped(behind, (batch, 1, rows, 1)), out.constant(np.arange(length))
    kept = out.emit("LessOrEqual", key, number)
    window = site.attribute("local_window_size", -1)
    if window > 0:
        kept = out.emit("And", kept, out.emit("Less", out.emit("Sub", number, out.constant(window)), key))
    bias = site.optional(10)
    added = "" if bias is None else bias.name
    if bias is not None and bias.shape[-1] < length:
        pads = [0] * (2 * bias.type.rank - 1) + [length - bias.shape[-1]]
        added = out.emit("Pad", bias.name, out.constant(pads))
    _attended(
        site, out, names, _biased(site, out, kept, added), q_num_heads=heads, kv_num_heads=groups,
        scale=site.attribute("scale"), softcap=site.attribute("softcap"),
    )  # fmt: skip


def _written(
    site: Site, out: Expansion, rows: str, past_at: int, first: str, shape: tuple[int, ...], named: str
) -> str:
    """A buffer of keys or values, in which the rows stand from a place on that each batch names."""
    past, dtype = site.optional(past_at), onnx_dtype(site.given(0).dtype)
    if past is None or not past.type.size:
        held = out.constant(np.zeros(shape), dtype)
    elif past.shape == shape:
        held = past.name
    elif (*past.shape[:2], *past.shape[3:]) == (*shape[:2], *shape[3:]):
        held = out.emit("Pad", past.name, out.constant([0] * 6 + [shape[2] - past.shape[2], 0]))
    else:
        raise Unsupported(f"keys or values of earlier steps {past.type}, where {list(shape)} are needed")
    return out.emit("TensorScatter", held, rows, first, to=named, axis=2)


def _rotary(site: Site, out: Expansion) -> None:
    """The rotation of ONNX, whose places are named before its tables; one place is that of the first row."""
    x, at, cosine = site.given(0), site.given(1), site.given(2)
    if site.attribute("scale", 1.0) != 1.0 or site.attribute("is_packed_batching", 0):
        raise Unsupported("a scale, or sequences of several lengths in a row")
    turned = site.attribute("rotary_embedding_dim", 0)
    is_flat = x.type.rank == 3
    batch, rows = x.shape[0], x.shape[1 if is_flat else 2]
    heads = site.attribute("num_heads", 0) or (x.shape[-1] // (2 * cosine.shape[1]) if is_flat else 0)
    places = at.name
    if at.type.size == 1 and (batch, rows) != (1, 1):
        places = out.emit("Add", out.reshaped(at.name, (1, 1)), out.constant(np.tile(np.arange(rows), (batch, 1))))
    elif at.type.rank == 1:
        places = out.reshaped(at.name, (batch, rows))
    given = {"interleaved": site.attribute("interleaved", 0), "rotary_embedding_dim": turned or 2 * cosine.shape[1]}
    more = {"num_heads": heads} if is_flat else {}
    out.emit(
        "RotaryEmbedding", x.name, cosine.name, site.given(3).name, places, to=site.node.outputs[0], **given, **more
    )


def _quantized_attention(site: Site, out: Expansion) -> None:
    """As `_self_attention`, of a product of integers."""
    zeros = [given_name(site, n) for n in (6, 7)]
    total = out.cast(out.emit("MatMulInteger", *site.node.inputs[:2], *zeros), _FLOAT)
    scaled = out.emit("Mul", total, out.emit("Mul", site.given(3).name, site.given(4).name))
    _refuse(site, {}, 2)
    _of_joined(site, out, out.emit("Add", scaled, site.given(2).name), site.given(1).shape[1], 5, 8, 0)


ATTENTIONS: Mapping[str, Callable[[Site, Expansion], None]] = {
    "MultiHeadAttention": _multi_head,
    "Attention": _self_attention,
    "QAttention": _quantized_attention,
    "GroupQueryAttention": _grouped_query,
    "RotaryEmbedding": _rotary,
}
"""What adds the nodes for an operator, by its name in the domain."""
