"""Computes the operators of constants with NumPy: shapes, indices, and weights that are only moved or converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log10, prod
from typing import Any

import numpy as np

from tensorc_dsl.graph.graph import DTYPES, Array, Node, Unsupported
from tensorc_dsl.graph.operators.lowering import axes_of, axis_of, broadcast

Evaluate = Callable[[Node, Sequence[Array | None]], Sequence[Array]]

MOST_FOLDED = 1 << 20
"""The elements of a constant that is made of smaller ones: a larger one is computed when the model runs."""

MOST_FILLED = 1 << 28
"""The elements of a constant that repeats smaller ones: it takes memory only once it is written."""


def _one(f: Callable[..., Any]) -> Evaluate:
    return lambda _, xs: [np.asarray(f(*xs))]


def _divided(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        if not np.all(b):
            raise Unsupported("a division by 0")
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    return a / b


def _mod(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    if xs[0].dtype.kind in "iu" and not np.all(xs[1]):
        raise Unsupported("a division by 0")
    return [np.fmod(*xs) if node.attributes.get("fmod") else np.mod(*xs)]


def _dtype_of(number: int) -> Any:
    """The element type that ONNX gives a number. Raises Unsupported."""
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(number)
    if dtype.name not in DTYPES:
        raise Unsupported("a type that is not supported")
    return dtype


def _cast(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    return [xs[0].astype(_dtype_of(node.attributes.get("to", 0)))]


def _cast_like(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
    return [xs[0].astype(xs[1].dtype)]


def _range(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
    start, limit, delta = (x.item() for x in xs)
    if delta == 0 or max(0, (limit - start) / delta) > MOST_FOLDED:
        raise Unsupported(f"a range from {start} to {limit} by {delta}")
    count = max(0, int(np.ceil((limit - start) / delta)))
    return [(start + delta * np.arange(count)).astype(xs[0].dtype)]


def _slice(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    x = xs[0]
    if len(xs) > 2:
        starts, ends = (v.reshape(-1).tolist() for v in xs[1:3])
        axes = xs[3].reshape(-1).tolist() if len(xs) > 3 and xs[3] is not None else range(len(starts))
        steps = xs[4].reshape(-1).tolist() if len(xs) > 4 and xs[4] is not None else [1] * len(starts)
    else:
        starts, ends = node.attributes.get("starts", ()), node.attributes.get("ends", ())
        axes, steps = node.attributes.get("axes", range(len(starts))), [1] * len(starts)
    at = [slice(None)] * x.ndim
    for a, b, e, s in zip(axes, starts, ends, steps, strict=True):
        at[axis_of(a, x.ndim)] = slice(
            max(b, -x.shape[axis_of(a, x.ndim)]), None if s < 0 and e < -x.shape[a] else e, s
        )
    return [x[tuple(at)]]


def _concat(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    return [np.concatenate(xs, axis_of(node.attributes.get("axis", 0), xs[0].ndim))]


def _gather(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axis = axis_of(node.attributes.get("axis", 0), xs[0].ndim)
    return [np.asarray(np.take(xs[0], xs[1], axis))]


_JOINS: Mapping[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    out, at, updates = np.array(xs[0]), xs[1], xs[2]
    shape: tuple[int, ...] = at.shape
    places: list[Any] = [at[..., k] for k in range(shape[-1])]
    if node.op == "ScatterElements":
        places = list(np.indices(shape, sparse=True))
        places[axis_of(node.attributes.get("axis", 0), out.ndim)] = at
    how = node.attributes.get("reduction", "none")
    if how == "none":
        out[tuple(places)] = updates
    else:
        _JOINS[how].at(out, tuple(places), updates)
    return [out]


def _transpose(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    return [np.transpose(xs[0], node.attributes.get("perm"))]


def _reshape(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    asked = xs[1].tolist() if len(xs) > 1 else node.attributes["shape"]
    zero = node.attributes.get("allowzero", 0)
    return [xs[0].reshape([xs[0].shape[k] if n == 0 and not zero else n for k, n in enumerate(asked)])]


def _axes(node: Node, xs: Sequence[Any]) -> list[int]:
    named = xs[1].reshape(-1).tolist() if len(xs) > 1 and xs[1] is not None else node.attributes.get("axes")
    return list(named or ())


def _squeeze(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axes = _axes(node, xs)
    return [np.squeeze(xs[0], tuple(axes_of(axes, xs[0].ndim)) if axes else None)]


def _unsqueeze(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axes = axes_of(_axes(node, xs), xs[0].ndim + len(_axes(node, xs)))
    return [np.expand_dims(xs[0], tuple(axes))]


def _split(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    x, axis = xs[0], axis_of(node.attributes.get("axis", 0), xs[0].ndim)
    sizes = xs[1].tolist() if len(xs) > 1 and xs[1] is not None else node.attributes.get("split")
    if sizes is None:
        each = -(-x.shape[axis] // len(node.outputs))
        sizes = [each] * (len(node.outputs) - 1)
    else:
        sizes = sizes[:-1]
    if node.attributes.get("num_outputs", len(node.outputs)) != len(node.outputs):
        raise ValueError(f"{len(node.outputs)} outputs")
    return np.split(x, np.cumsum(sizes), axis)


def _reduce(f: Callable[..., Any]) -> Evaluate:
    def evaluate(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
        axes = _axes(node, xs)
        if not axes and node.attributes.get("noop_with_empty_axes"):
            return [xs[0]]
        kept = node.attributes.get("keepdims", 1) == 1
        made = f(xs[0], axis=tuple(axes_of(axes, xs[0].ndim)) if axes else None, keepdims=kept)
        return [np.asarray(made, xs[0].dtype)]

    return evaluate


def _filled(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    shape = tuple(xs[0].tolist())
    if min(shape, default=0) < 0 or prod(shape) > MOST_FILLED:
        raise Unsupported(f"a constant of the shape {list(shape)}")
    value = node.attributes.get("value")
    given: Array = np.zeros(1, np.float32) if value is None else value
    return [np.broadcast_to(given.reshape(-1)[:1].reshape(()), shape)]


def _expand(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
    shape = broadcast([xs[0].shape, tuple(xs[1].tolist())])
    if prod(shape) > MOST_FILLED:
        raise Unsupported(f"a constant of the shape {list(shape)}")
    return [np.broadcast_to(xs[0], shape)]


def _tile(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
    if prod(xs[0].shape) * prod(max(0, n) for n in xs[1].tolist()) > MOST_FOLDED:
        raise Unsupported("a constant that is repeated too often")
    return [np.tile(xs[0], xs[1])]


def _constant(node: Node, _: Sequence[Any]) -> Sequence[Array]:
    for name, value in node.attributes.items():
        match name:
            case "value":
                return [value]
            case "value_float" | "value_floats":
                return [np.asarray(value, np.float32)]
            case "value_int" | "value_ints":
                return [np.asarray(value, np.int64)]
            case _:
                pass
    raise Unsupported("a constant that is no tensor of numbers")


def _numbers(f: Callable[..., Any]) -> Evaluate:
    """A function of NumPy on operands of one type, whose result has it too."""
    return lambda _, xs: [np.asarray(f(*xs), None if xs[0] is None else xs[0].dtype)]


def _folded(f: Callable[..., Any]) -> Evaluate:
    def evaluate(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
        out = xs[0]
        for x in xs[1:]:
            out = f(out, x)
        return [np.asarray(out)]

    return evaluate


def _non_zero(_: Node, xs: Sequence[Any]) -> Sequence[Array]:
    return [np.array(np.nonzero(np.atleast_1d(xs[0])), np.int64)]


def _clip(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    low, high = (xs[k] if len(xs) > k else node.attributes.get(name) for k, name in ((1, "min"), (2, "max")))
    made = xs[0] if low is None else np.maximum(xs[0], low)
    return [np.asarray(made if high is None else np.minimum(made, high), xs[0].dtype)]


# --- selections --------------------------------------------------------------------------------------------------------


def _compress(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axis = node.attributes.get("axis")
    return [np.compress(xs[1], xs[0], axis if axis is None else axis_of(axis, xs[0].ndim))]


def _gather_elements(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axis = axis_of(node.attributes.get("axis", 0), xs[0].ndim)
    places: list[Any] = list(np.indices(np.shape(xs[1]), sparse=True))
    places[axis] = xs[1]
    return [xs[0][tuple(places)]]


def _extreme(f: Callable[..., Any]) -> Evaluate:
    """The position of the first or of the last extreme along an axis."""

    def evaluate(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
        axis = axis_of(node.attributes.get("axis", 0), xs[0].ndim)
        last = node.attributes.get("select_last_index", 0)
        made = f(np.flip(xs[0], axis) if last else xs[0], axis=axis)
        made = xs[0].shape[axis] - 1 - made if last else made
        return [np.expand_dims(made, axis) if node.attributes.get("keepdims", 1) == 1 else np.asarray(made)]

    return evaluate


def _top(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    x, axis, count = xs[0], axis_of(node.attributes.get("axis", -1), xs[0].ndim), int(xs[1].reshape(-1)[0])
    if not 0 <= count <= x.shape[axis]:
        raise Unsupported(f"{count} of {x.shape[axis]} elements")
    if node.attributes.get("largest", 1):
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, np.arange(count), axis).astype(np.int64)
    return [np.take_along_axis(x, order, axis), order]


def _cumulative(f: np.ufunc) -> Evaluate:
    def evaluate(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
        x, axis = np.asarray(xs[0]), axis_of(int(xs[1].reshape(-1)[0]), xs[0].ndim)
        x = np.flip(x, axis) if node.attributes.get("reverse", 0) else x
        made = f.accumulate(x, axis, x.dtype)
        if node.attributes.get("exclusive", 0):
            made = np.roll(made, 1, axis)
            made[(slice(None),) * axis + (slice(0, 1),)] = f.identity
        return [np.flip(made, axis) if node.attributes.get("reverse", 0) else made]

    return evaluate


def _unique(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    axis = node.attributes.get("axis")
    x = xs[0].reshape(-1) if axis is None else xs[0]
    along = 0 if axis is None else axis_of(axis, x.ndim)
    values, first, inverse, counts = np.unique(x, True, True, True, axis=along)
    order = np.arange(len(first)) if node.attributes.get("sorted", 1) else np.argsort(first)
    rank = np.argsort(order)
    return [np.take(values, order, along), first[order], rank[inverse.reshape(-1)], counts[order]]


# --- tables of signals -------------------------------------------------------------------------------------------------


def _window(*factors: float) -> Evaluate:
    """A sum of cosines over a period."""

    def evaluate(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
        size = int(xs[0].reshape(-1)[0])
        if not 0 <= size <= MOST_FOLDED:
            raise Unsupported(f"a window of {size} elements")
        turns = np.arange(size) / max(size if node.attributes.get("periodic", 1) else size - 1, 1)
        made = sum(f * np.cos(2 * np.pi * k * turns) for k, f in enumerate(factors))
        return [np.asarray(made).astype(_dtype_of(node.attributes.get("output_datatype", 1)))]

    return evaluate


def _mel_weights(node: Node, xs: Sequence[Any]) -> Sequence[Array]:
    """Triangles over frequencies, whose corners are equally far apart in mel."""
    bands, length, rate, low, high = (x.item() for x in xs)
    bins = length // 2 + 1
    if not (bands > 0 and bins > 0 and bands * bins <= MOST_FOLDED and rate > 0):
        raise Unsupported(f"{bands} bands of {bins} frequencies")
    least, most = (2595 * log10(1 + end / 700) for end in (low, high))
    mels = [least + k * (most - least) / (bands + 2) for k in range(bands + 2)]
    at = [int((length + 1) * (700 * (10 ** (mel / 2595) - 1)) // rate) for mel in mels]
    out = np.zeros((bins, bands))
    for band, (left, middle, right) in enumerate(zip(at, at[1:], at[2:], strict=False)):
        if left == middle:
            out[middle, band] = 1
        for k in range(left, middle + 1 if left != middle else left):
            out[k, band] = (k - left) / (middle - left)
        for k in range(middle, right if middle != right else middle):
            out[k, band] = (right - k) / (right - middle)
    return [out.astype(_dtype_of(node.attributes.get("output_datatype", 1)))]


EVALUATORS: Mapping[str, Evaluate] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Identity": _one(np.asarray),
    "Slice": _slice,
    "Concat": _concat,
    "Gather": _gather,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "NonZero": _non_zero,
    "Compress": _compress,
    "GatherElements": _gather_elements,
    "TopK": _top,
    "ArgMax": _extreme(np.argmax),
    "ArgMin": _extreme(np.argmin),
    "CumSum": _cumulative(np.add),
    "CumProd": _cumulative(np.multiply),
    "Unique": _unique,
    "HannWindow": _window(0.5, -0.5),
    "HammingWindow": _window(25 / 46, -21 / 46),
    "BlackmanWindow": _window(0.42, -0.5, 0.08),
    "MelWeightMatrix": _mel_weights,
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceMean": _reduce(np.mean),
    "Add": _numbers(np.add),
    "Sub": _numbers(np.subtract),
    "Mul": _numbers(np.multiply),
    "Div": _numbers(_divided),
    "Mod": _mod,
    "Pow": _numbers(np.power),
    "Clip": _clip,
    "Sign": _numbers(np.sign),
    "Neg": _numbers(np.negative),
    "Abs": _numbers(np.abs),
    "Sqrt": _numbers(np.sqrt),
    "Reciprocal": _numbers(np.reciprocal),
    "Exp": _numbers(np.exp),
    "Sin": _numbers(np.sin),
    "Cos": _numbers(np.cos),
    "Log": _numbers(np.log),
    "Floor": _numbers(np.floor),
    "Ceil": _numbers(np.ceil),
    "Round": _numbers(np.rint),
    "Min": _folded(np.minimum),
    "Max": _folded(np.maximum),
    "Equal": _one(np.equal),
    "Greater": _one(np.greater),
    "GreaterOrEqual": _one(np.greater_equal),
    "Less": _one(np.less),
    "LessOrEqual": _one(np.less_equal),
    "Not": _one(np.logical_not),
    "And": _one(np.logical_and),
    "Or": _one(np.logical_or),
    "Xor": _one(np.logical_xor),
    "Where": _one(np.where),
}
"""By operator; those of floats that round otherwise than a kernel does are folded too, within a rounding."""


def fold(node: Node, inputs: Sequence[Array | None]) -> Sequence[Array] | None:
    """The outputs of a node whose inputs are constant; None if it is none that is computed here, or its result is too large.

    Raises Unsupported for inputs that fit no such operator.
    """
    evaluate = EVALUATORS.get(node.op)
    most = max([MOST_FOLDED, *(2 * _held(x) for x in inputs if x is not None)])
    if evaluate is None or any(x.size > most for x in inputs if x is not None):
        return None
    try:
        with np.errstate(all="ignore"):
            made = [np.asarray(v) for v in evaluate(node, inputs)]
    except (ValueError, IndexError, TypeError, KeyError, OverflowError) as e:
        raise Unsupported(f"constants that do not fit it: {e}") from e
    if any(_held(v) > most for v in made) or any(v.dtype.name not in DTYPES for v in made):
        return None
    return made


def _held(x: Array) -> int:
    """The elements of an array that are in memory: one that is broadcast has less than its shape says."""
    return prod(n for n, step in zip(x.shape, x.strides, strict=True) if step)
