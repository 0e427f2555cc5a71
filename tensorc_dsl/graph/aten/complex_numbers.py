"""Operators of PyTorch on complex tensors, which are two real ones; and Fourier transforms, which make them.

What is linear is done to both parts by the translator for real tensors, and what is a product is four products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.aten.pointwise import angle
from tensorc_dsl.graph.aten.traced import Call, Name, Pair, Torch, Translator, Value
from tensorc_dsl.graph.graph import Unsupported

# --- parts -------------------------------------------------------------------------------------------------------------


@frozen
class _Real:
    """What stands for a node of a trace, with the type of a real part of its tensors."""

    meta: Mapping[str, Any]


def _real_dtype(c: Call, dtype: Torch) -> Torch:
    torch = c.graph.torch
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)


def _real_type(c: Call, value: Torch) -> Torch:
    """The type of a part of a tensor, or of several."""
    if isinstance(value, list | tuple):
        return [_real_type(c, v) for v in cast("Sequence[Torch]", value)]
    if not hasattr(value, "dtype"):
        return value
    return c.graph.torch.empty(value.shape, dtype=_real_dtype(c, value.dtype), device="meta")


def _real_meta(c: Call, meta: Torch) -> Torch:
    if isinstance(meta, list | tuple):
        return [_real_meta(c, m) for m in cast("Sequence[Torch]", meta)]
    return _Real({"val": _real_type(c, meta.meta["val"])}) if hasattr(meta, "meta") else meta


def _of_parts(c: Call, given: Mapping[str, Value]) -> Call:
    """The call with real arguments, whose result is real."""
    metas = {n: given[n] if isinstance(given[n], int | float) else _real_meta(c, m) for n, m in c.metas.items()}
    return Call(c.graph, _Real({"val": _real_type(c, c.node.meta["val"])}), given, metas)


_VALUES = frozenset("self other input tensors src values source value".split())
"""The arguments that are numbers; others are places, conditions and sizes."""


def _pair(c: Call, value: Value, meta: Torch) -> Value:
    """Numbers as two parts."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, list):
        return [_pair(c, v, m) for v, m in zip(cast("list[Value]", value), meta, strict=True)]
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    if isinstance(value, Name):
        dtype = _real_dtype(c, c.result.dtype)
        zeros = np.broadcast_to(np.zeros((), c.graph.array_dtype(dtype)), tuple(meta.meta["val"].shape))
        return Pair(c.cast(value, dtype), c.graph.constant(zeros))
    return Pair(value, 0.0) if isinstance(value, int | float) else value


def _part(value: Value, n: int) -> Value:
    if isinstance(value, list):
        return [_part(v, n) for v in cast("list[Value]", value)]
    return value.parts[n] if isinstance(value, Pair) else value


def _joined(real: Value, imaginary: Value) -> Value:
    if isinstance(real, list | tuple):
        both = zip(cast("Sequence[Value]", real), cast("Sequence[Value]", imaginary), strict=True)
        return tuple(_joined(a, b) for a, b in both)
    return Pair(real, imaginary)


def _linear(translate: Translator) -> Translator:
    """The operator on both parts, of numbers that are complex or become so."""

    def both(c: Call) -> Value:
        given = {n: _pair(c, v, c.metas[n]) if n in _VALUES else v for n, v in c.given.items()}
        parts = [translate(_of_parts(c, {n: _part(v, k) for n, v in given.items()})) for k in range(2)]
        return _joined(*parts)

    return both


def _product(translate: Translator, *names: str) -> Translator:
    """A product of two arguments, of which one may be real; further ones are sizes."""

    def parts(c: Call) -> Value:
        factors: list[Value] = [c[n] for n in names] if len(names) == 2 else list(c[names[0]])
        c.refuse_unless(len(factors) == 2, f"a product of {len(factors)} tensors of complex numbers")
        a, b = (Pair(v.real, v.imag) if isinstance(v, complex) else v for v in factors)

        def of(x: Value, y: Value) -> Name:
            more = dict(zip(names, (x, y), strict=True)) if len(names) == 2 else {names[0]: [x, y]}
            return translate(_of_parts(c, {**c.given, **more}))

        if not isinstance(a, Pair):
            return Pair(of(a, b.parts[0]), of(a, b.parts[1]))
        if not isinstance(b, Pair):
            return Pair(of(a.parts[0], b), of(a.parts[1], b))
        (p, q), (r, s) = a.parts, b.parts
        return Pair(c.emit("Sub", of(p, r), of(q, s)), c.emit("Add", of(p, s), of(q, r)))

    return parts


# --- functions ---------------------------------------------------------------------------------------------------------


def _times(c: Call, a: Pair, b: Pair) -> Pair:
    (p, q), (r, s) = a.parts, b.parts
    real = c.emit("Sub", c.emit("Mul", p, r), c.emit("Mul", q, s))
    return Pair(real, c.emit("Add", c.emit("Mul", p, s), c.emit("Mul", q, r)))


def _square_of_length(c: Call, z: Pair) -> Name:
    return c.emit("Add", *(c.emit("Mul", p, p) for p in z.parts))


def _length(c: Call) -> Value:
    return c.emit("Sqrt", _square_of_length(c, c["self"]))


def _conjugate(c: Call) -> Value:
    return Pair(c["self"].parts[0], c.emit("Neg", c["self"].parts[1]))


def _inverse(c: Call, z: Pair) -> Pair:
    size = _square_of_length(c, z)
    return Pair(c.emit("Div", z.parts[0], size), c.emit("Neg", c.emit("Div", z.parts[1], size)))


def _quotient(c: Call) -> Value:
    c.refuse_unless(c.get("rounding_mode") is None, "quotients of complex numbers that are rounded")
    a, b = c["self"], c["other"]
    dtype = _real_dtype(c, c.result.dtype)
    if not isinstance(b, Pair | complex):
        return Pair(*(c.emit("Div", p, c.cast(b, dtype)) for p in a.parts))
    inverse = _inverse(c, _numbers(c, b))
    if isinstance(a, Pair):
        return _times(c, a, inverse)
    return Pair(*(c.emit("Mul", c.cast(a, dtype), p) for p in inverse.parts))


def _numbers(c: Call, value: Pair | complex) -> Pair:
    """A pair of tensors."""
    if isinstance(value, Pair):
        return value
    dtype = _real_dtype(c, c.result.dtype)
    return Pair(c.number(value.real, dtype), c.number(value.imag, dtype))


def _exponential(c: Call) -> Value:
    real, turn = c["self"].parts
    size = c.emit("Exp", real)
    return Pair(*(c.emit("Mul", size, c.emit(op, turn)) for op in ("Cos", "Sin")))


def _direction(c: Call) -> Value:
    """The number of length 1 in its direction; 0 for 0."""
    z: Pair = c["self"]
    size = c.emit("Sqrt", _square_of_length(c, z))
    zero = c.number(0, _real_dtype(c, c.result.dtype))
    is_zero = c.emit("Equal", size, zero)
    return Pair(*(c.emit("Where", is_zero, p, c.emit("Div", p, size)) for p in z.parts))


def _power(c: Call) -> Value:
    c.refuse_unless(c["exponent"] == 2, "a power of complex numbers other than the second")
    return _times(c, c["self"], c["self"])


def _polar(c: Call) -> Value:
    return Pair(*(c.emit("Mul", c["abs"], c.emit(op, c["angle"])) for op in ("Cos", "Sin")))


def _from_last_axis(c: Call, x: Name, rank: int) -> Pair:
    """The parts along the last axis of a tensor of that rank."""
    zero, one, two, axis = c.ints(0), c.ints(1), c.ints(2), c.ints(rank - 1)
    return Pair(*(c.emit("Squeeze", c.emit("Slice", x, a, b, axis), axis) for a, b in ((zero, one), (one, two))))


def _on_last_axis(c: Call, z: Value, rank: int) -> Name:
    """Numbers of that rank with their parts, or their only part, along a further axis."""
    parts = [c.emit("Unsqueeze", p, c.ints(rank)) for p in (z.parts if isinstance(z, Pair) else (z,))]
    return c.emit("Concat", *parts, axis=rank) if len(parts) > 1 else parts[0]


def _converted(c: Call) -> Value:
    z, dtype = c["self"], c.result.dtype
    if not isinstance(z, Pair):
        return _pair(c, z, c.metas["self"])
    if not dtype.is_complex:
        return c.cast(z.parts[0], dtype)
    return Pair(*(c.cast(p, _real_dtype(c, dtype)) for p in z.parts))


def _filled(c: Call) -> Value:
    content = c.get("fill_value", c.get("value"))
    c.refuse_unless(isinstance(content, int | float | complex), "numbers that are computed")
    dtype = c.graph.array_dtype(_real_dtype(c, c.result.dtype))
    parts = (complex(content).real, complex(content).imag)
    return Pair(*(c.graph.constant(np.full(c.result_shape, p, dtype)) for p in parts))


def _ones(c: Call) -> Value:
    ones = np.ones(c.result_shape, c.graph.array_dtype(_real_dtype(c, c.result.dtype)))
    return Pair(c.graph.constant(ones), c.graph.constant(np.zeros_like(ones)))


# --- transforms --------------------------------------------------------------------------------------------------------


def _scaled(c: Call, z: Value, factor: float, dtype: Torch) -> Value:
    if factor == 1.0:
        return z
    number = c.number(factor, dtype)
    return Pair(*(c.emit("Mul", p, number) for p in z.parts)) if isinstance(z, Pair) else c.emit("Mul", z, number)


def _transformed(
    c: Call, x: Value, rank: int, axis: int, length: int, inverse: bool, half: bool, norm: str | None
) -> Value:
    """The transform along an axis. Half of the frequencies tell that of real numbers, or the inverse is real."""
    wide = _on_last_axis(c, x, rank)
    made = c.emit("DFT", wide, c.ints(length), c.ints(axis), inverse=int(inverse), onesided=int(half))
    if inverse and half:
        z: Value = c.emit("Squeeze", made, c.ints(rank))
    else:
        z = _from_last_axis(c, made, rank + 1)
    power = {None: 0.0, "backward": 0.0, "ortho": 0.5, "forward": 1.0}[norm]
    return _scaled(c, z, float(length) ** (power if inverse else -power), _real_dtype(c, c.result.dtype))


def _fourier(kind: str, several: int) -> Translator:
    """`fft` and its like: along an axis, or along the last `several` ones or those that are named; -1 for all."""

    def translate(c: Call) -> Value:
        name = "self" if "self" in c.given else "input"
        x, shape = c[name], c.shape(name)
        rank = len(shape)
        if several == 1:
            axes, sizes = [c.axis(of=name)], None if c.get("n") is None else [int(c["n"])]
        else:
            sizes = None if c.get("s") is None else [int(n) for n in c["s"]]
            count = several if several > 0 else len(sizes) if sizes is not None else rank
            named = c.get("dim")
            axes = [int(a) % rank for a in named] if named is not None else list(range(rank - count, rank))
        half, inverse = kind.endswith("rfft"), kind.startswith("i")
        lengths = [shape[a] for a in axes] if sizes is None else sizes
        if sizes is None and half and inverse:
            lengths[-1] = 2 * (shape[axes[-1]] - 1)
        if not isinstance(x, Pair):
            x = c.cast(x, _real_dtype(c, c.result.dtype))
        order = list(zip(axes, lengths, strict=True))
        # The half is of the last axis: it is the first that is transformed, or the last that is transformed back.
        for k, (axis, length) in enumerate(order if inverse else order[::-1]):
            is_half = half and k == (len(order) - 1 if inverse else 0)
            x = _transformed(c, x, rank, axis, length, inverse, is_half, c.get("norm"))
        return x

    return translate


def _core_fourier(kind: str) -> Translator:
    """The transforms that PyTorch has inside, along several axes; `normalization` is 1 for the root, 2 for the length."""

    def translate(c: Call) -> Value:
        x, shape, axes = c["self"], c.shape("self"), [int(a) % c.rank("self") for a in c["dim"]]
        inverse = kind == "c2r" or (kind == "c2c" and not c["forward"])
        power = (0.0, 0.5, 1.0)[int(c["normalization"])]
        for k, axis in enumerate(axes if inverse else axes[::-1]):
            is_half = k == (len(axes) - 1 if inverse else 0) and (kind == "c2r" or (kind == "r2c" and c["onesided"]))
            length = int(c["last_dim_size"]) if is_half and inverse else shape[axis]
            x = _transformed(c, x, len(shape), axis, length, inverse, bool(is_half), None)
            # It scales nothing by itself.
            factor = float(length) ** ((1.0 if inverse else 0.0) - power)
            x = _scaled(c, x, factor, _real_dtype(c, c.result.dtype))
        return x

    return translate


def _window(c: Call, dtype: Torch) -> Name:
    """The window of a frame, which stands in its middle."""
    length = int(c["n_fft"])
    width = int(c.get("win_length", length))
    window = c.graph.constant(np.ones(width, c.graph.array_dtype(dtype))) if c.get("window") is None else c["window"]
    before = (length - width) // 2
    return window if width == length else c.emit("Pad", window, c.ints(before, length - width - before))


def _short_transform(c: Call) -> Value:
    x, shape, length = c["self"], c.shape("self"), int(c["n_fft"])
    c.refuse_unless(not isinstance(x, Pair), "frames of complex numbers")
    c.refuse_unless(not c.get("align_to_window", False), "frames that are aligned to the window")
    dtype = _real_dtype(c, c.result.dtype)
    if len(shape) == 1:
        x = c.emit("Unsqueeze", x, c.ints(0))
    if c.get("center", False):
        x = c.emit("Pad", x, c.ints(0, length // 2, 0, length // 2), mode=_MODES[c.get("pad_mode", "reflect")])
    step = c.graph.constant(np.array(int(c.get("hop_length", length // 4)), np.int64))
    size = c.graph.constant(np.array(length, np.int64))
    half = bool(c.get("onesided", True))
    made = c.emit("STFT", x, step, _window(c, dtype), size, onesided=int(half))
    if c.get("normalized", False):
        made = c.emit("Mul", made, c.number(length**-0.5, dtype))
    made = c.emit("Transpose", made, perm=[0, 2, 1, 3])
    rank = 4
    if len(shape) == 1:
        made, rank = c.emit("Squeeze", made, c.ints(0)), 3
    return _from_last_axis(c, made, rank) if c.result.dtype.is_complex else made


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _inverse_short_transform(c: Call) -> Value:
    """Frames are added at their places, and divided by the sum of the squares of the windows there."""
    z, shape, length = c["self"], c.shape("self"), int(c["n_fft"])
    c.refuse_unless(not c.get("return_complex", False), "a signal of complex numbers")
    step, dtype = int(c.get("hop_length", length // 4)), c.result.dtype
    frames, half = shape[-1], shape[-2] == length // 2 + 1
    flat = Pair(*(c.reshaped(p, (-1, *shape[-2:])) for p in z.parts))
    turned = Pair(*(c.emit("Transpose", p, perm=[0, 2, 1]) for p in flat.parts))
    rows = _transformed(c, turned, 3, 2, length, True, half, "ortho" if c.get("normalized", False) else None)
    rows = rows.parts[0] if isinstance(rows, Pair) else rows
    window = c.array(_folded(c, _window(c, dtype)))
    square = np.zeros(length + step * (frames - 1), np.float64)
    for k in range(frames):
        square[k * step : k * step + length] += window.astype(np.float64) ** 2
    begin = length // 2 if c.get("center", True) else 0
    end = begin + c.result_shape[-1]
    if end > square.size or square[begin:end].min() < 1e-11:
        raise Unsupported("a signal with places that no window reaches")
    columns = c.emit("Transpose", c.emit("Mul", rows, c.graph.constant(window)), perm=[0, 2, 1])
    whole = c.emit("Col2Im", columns, c.ints(square.size), c.ints(length), strides=[step])
    cut = c.emit("Slice", whole, c.ints(begin), c.ints(end), c.ints(2))
    scale = (1 / square[begin:end]).astype(window.dtype)
    return c.reshaped(c.emit("Mul", cut, c.graph.constant(scale)), c.result_shape)


def _folded(c: Call, name: Name) -> Name:
    """A window that is padded, as a constant."""
    node = next((n for n in c.graph.nodes if name in n.outputs), None)
    if node is None or node.op != "Pad" or not set(node.inputs) <= c.graph.constants.keys():
        return name
    window, pads = (c.graph.constants[i] for i in node.inputs)
    return c.graph.constant(np.pad(window, tuple(pads.tolist())))


def table(real: Mapping[str, Translator]) -> Mapping[str, Translator]:
    """How operators on complex numbers, or that make them, are translated, by those on real ones."""
    linear = """
        add sub rsub neg negative sum mean cumsum diff view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as
        reshape_as permute transpose t swapaxes swapdims numpy_T mT expand expand_as broadcast_to repeat tile cat concat
        concatenate stack split split_with_sizes chunk unbind slice narrow select index_select gather roll tril triu movedim
        moveaxis index flip repeat_interleave diagonal unfold contiguous clone detach alias lift_fresh_copy where masked_fill
        index_put slice_scatter select_scatter copy zeros_like new_zeros zero pad constant_pad_nd
    """.split()
    products = {
        "mul": ("self", "other"), "multiply": ("self", "other"), "matmul": ("self", "other"), "bmm": ("self", "mat2"),
        "mm": ("self", "mat2"), "mv": ("self", "vec"), "outer": ("self", "vec2"), "einsum": ("tensors",),
    }  # fmt: skip
    return {
        **{name: _linear(real[name]) for name in linear},
        **{name: _product(real[name], *names) for name, names in products.items()},
        **dict.fromkeys(("div", "divide", "true_divide"), _quotient),
        **dict.fromkeys(("abs", "absolute"), _length),
        **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), _conjugate),
        **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda c: c["self"]),
        **dict.fromkeys(("to", "_to_copy"), _converted),
        "real": lambda c: c["self"].parts[0],
        "imag": lambda c: c["self"].parts[1],
        "angle": lambda c: angle(c, c["self"].parts[1], c["self"].parts[0], c.result.dtype),
        "reciprocal": lambda c: _inverse(c, c["self"]),
        "square": lambda c: _times(c, c["self"], c["self"]),
        "pow": _power,
        "exp": _exponential,
        "sgn": _direction,
        **dict.fromkeys(("fill", "full_like", "new_full"), _filled),
        "ones_like": _ones,
        "complex": lambda c: Pair(c["real"], c["imag"]),
        "polar": _polar,
        "view_as_real": lambda c: _on_last_axis(c, c["self"], c.rank("self")),
        "view_as_complex": lambda c: _from_last_axis(c, c["self"], c.rank("self")),
        **{f"fft_{kind}": _fourier(kind, 1) for kind in _KINDS},
        **{f"fft_{kind}2": _fourier(kind, 2) for kind in _KINDS},
        **{f"fft_{kind}n": _fourier(kind, -1) for kind in _KINDS},
        **{f"_fft_{kind}": _core_fourier(kind) for kind in ("r2c", "c2c", "c2r")},
        "stft": _short_transform,
        "istft": _inverse_short_transform,
    }  # fmt: skip


_KINDS = ("fft", "ifft", "rfft", "irfft")


def is_complex(c: Call) -> bool:
    """Whether a call takes or makes complex numbers, or is a transform, whose result may be their parts."""

    def has(value: Value) -> bool:
        if isinstance(value, list | tuple):
            return any(map(has, cast("Sequence[Value]", value)))
        return isinstance(value, Pair | complex)

    results = c.node.meta.get("val")
    every = cast("Sequence[Torch]", results) if isinstance(results, list | tuple) else [results]
    made = any(getattr(getattr(v, "dtype", None), "is_complex", False) for v in every)
    return made or any(map(has, c.given.values()))
