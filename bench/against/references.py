"""The expected result of each operator, in float64 from NumPy and SciPy, fast enough for the measured sizes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from bench.against.filters import FILTERS, Arrays
from bench.against.problem import CONVOLUTIONS, STEPS, Array, Outputs, Problem, as_float32, several

TOLERANCE = 1e-5
"""The allowed error as a share of the largest result: for sums of float32 in any order, and Winograd's convolutions."""

LOOSE = {"bf16": 1e-2, "norm_bmn": 5e-3}
"""The allowed error for inputs of that type, since some libraries have only results of that type; and for that compute, since
some libraries add millions of numbers in order (ONNX Runtime's ReduceL2 of 4096 × 1024 was off by 1.5e-3)."""


def expected(problem: Problem, inputs: Arrays) -> tuple[tuple[Array, ...], float]:
    """The outputs in float64 (or int64), and the largest allowed absolute error."""
    wide = {name: widened(a, problem.types[name]) for name, a in inputs.items()}
    found = several(REFERENCES[problem.compute](wide, problem))
    if all(a.dtype.kind in "iu" for a in found):
        return found, 0.0
    share = max(LOOSE.get(what, TOLERANCE) for what in (problem.compute, *problem.types.values()))
    return found, share * max(float(np.abs(a).max(initial=0.0)) for a in found)


def widened(a: Array, kind: str) -> Array:
    """An input as float64 or int64."""
    if kind == "bf16":
        return as_float32(a).astype(np.float64)
    return a.astype(np.float64 if a.dtype.kind == "f" else np.int64)


def _conv(a: Arrays, p: Problem) -> Array:
    """A convolution in any number of dimensions, one slab of outputs along the first of them at a time."""
    x, f = a["X"], a["F"]
    if p.compute.startswith("depthwise"):
        f = f[..., None, :]
    rank = x.ndim - 2
    stride, dilation = p.attribute("stride", 1), p.attribute("dilation", 1)
    groups = x.shape[-1] // f.shape[-2]
    x = np.pad(x, [(0, 0), *[(p.attribute("pad", 0),) * 2] * rank, (0, 0)])
    reach = tuple(dilation * (k - 1) + 1 for k in f.shape[:rank])
    axes = tuple(range(1, rank + 1))
    # Windows lie along further axes at the end: N, positions, channels, window.
    windows = sliding_window_view(x, reach, axes)
    windows = windows[(slice(None), *[slice(None, None, stride)] * rank, ..., *[slice(None, None, dilation)] * rank)]
    shape: tuple[int, ...] = (*windows.shape[: rank + 1], f.shape[-1])
    out = np.empty(shape)
    width, deep = f.shape[-2], f.shape[-1] // groups
    for n, row, g in product(range(shape[0]), range(shape[1]), range(groups)):
        slab = np.moveaxis(windows[n, row, ..., g * width : (g + 1) * width, *[slice(None)] * rank], rank - 1, -1)
        columns = slice(g * deep, (g + 1) * deep)
        weight = f[..., columns].reshape(-1, deep)
        out[n, row, ..., columns] = (slab.reshape(-1, weight.shape[0]) @ weight).reshape(*shape[2:-1], deep)
    return out


def _conv_bn_relu(a: Arrays, p: Problem) -> Array:
    return np.maximum((_conv(a, p) + a["bias"]) * a["scale"] + a["offset"], 0)


def _conv_transpose(a: Arrays, p: Problem) -> Array:
    """Each input element adds its multiple of the weight to the output."""
    x, f = a["X"], a["F"]
    stride, pad = p.attribute("stride", 1), p.attribute("pad", 0)
    n, h, w, _ = x.shape
    kh, kw, _, co = f.shape
    full = np.zeros((n, (h - 1) * stride + kh, (w - 1) * stride + kw, co))
    for k, l in product(range(kh), range(kw)):
        full[:, k : k + (h - 1) * stride + 1 : stride, l : l + (w - 1) * stride + 1 : stride] += x @ f[k, l]
    return full[:, pad : full.shape[1] - pad, pad : full.shape[2] - pad]


def _product(a: Arrays, _: Problem) -> Array:
    # In float64 a product of bytes is exact, and a call of BLAS.
    found = a["A"].astype(np.float64) @ a["B"].astype(np.float64)
    return found.astype(a["A"].dtype)


def _dense_gelu(a: Arrays, _: Problem) -> Array:
    z = a["X"] @ a["W"] + a["b"]
    return z * special.ndtr(z)


def _layer_norm(a: Arrays, _: Problem) -> Array:
    x = a["X"]
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * a["gain"] + a["shift"]


def _attention(a: Arrays, _: Problem) -> Array:
    scores = a["Q"] @ a["K"].swapaxes(-1, -2) / np.sqrt(a["Q"].shape[-1])
    return special.softmax(scores, -1) @ a["V"]


def _stepped(weight: float, own: float) -> Callable[[Arrays, Problem], Array]:
    """A stencil over time: an element takes `own` of itself, and `weight` of each neighbour."""

    def result(a: Arrays, p: Problem) -> Array:
        x = a["X"].copy()
        inside = (slice(1, -1),) * x.ndim
        for _ in range(p.attribute("steps", STEPS)):
            near = [np.roll(x, by, axis)[inside] for axis in range(x.ndim) for by in (1, -1)]
            x[inside] = own * x[inside] + weight * np.sum(near, axis=0)
        return x

    return result


REFERENCES: dict[str, Callable[[Arrays, Problem], Outputs]] = {
    "matmul": _product,
    "matmul_u8i8": _product,
    "batch_matmul": _product,
    "transpose_batch_matmul": lambda a, _: np.einsum("bihd,bjhd->bhij", a["Q"], a["K"], optimize=True),
    "dense_gelu": _dense_gelu,
    **dict.fromkeys(CONVOLUTIONS, _conv),
    "conv2d_transpose_nhwc": _conv_transpose,
    "conv2d_bn_relu_nhwc": _conv_bn_relu,
    "norm_bmn": lambda a, _: np.linalg.norm(a["A"], axis=(1, 2)),
    "softmax": lambda a, _: special.softmax(a["X"], 1),
    "layer_norm": _layer_norm,
    "attention": _attention,
    "transpose": lambda a, _: a["X"].T,
    "add": lambda a, _: a["A"] + a["B"],
    "copy": lambda a, _: a["X"],
    **FILTERS,
    "jacobi_2d": _stepped(0.2, 0.2),
    "five_point": _stepped(0.1, 0.6),
    "heat_3d": _stepped(0.125, 0.25),
}
"""By the name of the compute."""
