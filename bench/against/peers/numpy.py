"""NumPy, with SciPy for functions that NumPy lacks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from bench.against.filters import FILTERS
from bench.against.problem import IMAGES, Array, Job, Outputs, Ready


def prepare(job: Job) -> Ready | None:
    make = MAKERS.get(job.problem.compute)
    if make is None or "bf16" in job.problem.types.values():
        return None
    held: list[Outputs] = []
    compute = make(job)

    def run() -> None:
        held[:] = [compute()]

    return Ready(run, lambda: held[0])


def _matmul(job: Job) -> Callable[[], Array]:
    a, b = job.take("A", "B")
    out = np.empty((*a.shape[:-1], b.shape[-1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


def _scores(job: Job) -> Callable[[], Array]:
    q, k = job.take("Q", "K")
    return lambda: np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1))


def _dense_gelu(job: Job) -> Callable[[], Array]:
    x, w, b = job.take("X", "W", "b")
    half, root = np.float32(0.5), np.float32(np.sqrt(0.5))

    def compute() -> Array:
        z = x @ w
        z += b
        return half * z * (special.erf(z * root) + 1)

    return compute


def _norm(job: Job) -> Callable[[], Array]:
    (a,) = job.take("A")
    return lambda: np.sqrt(np.einsum("bij,bij->b", a, a))


def _softmax(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")

    def compute() -> Array:
        e = x - x.max(1, keepdims=True)
        np.exp(e, out=e)
        e /= e.sum(1, keepdims=True)
        return e

    return compute


def _layer_norm(job: Job) -> Callable[[], Array]:
    x, gain, shift = job.take("X", "gain", "shift")
    eps = np.float32(1e-5)

    def compute() -> Array:
        y = x - x.mean(1, keepdims=True)
        y /= np.sqrt(np.einsum("ij,ij->i", y, y)[:, None] / np.float32(x.shape[1]) + eps)
        y *= gain
        y += shift
        return y

    return compute


def _attention(job: Job) -> Callable[[], Array]:
    q, k, v = job.take("Q", "K", "V")
    scale = np.float32(1 / np.sqrt(q.shape[-1]))

    def compute() -> Array:
        s = (q * scale) @ k.swapaxes(-1, -2)
        s -= s.max(-1, keepdims=True)
        np.exp(s, out=s)
        s /= s.sum(-1, keepdims=True)
        return s @ v

    return compute


def _into(f: Callable[[Array], object], shape: tuple[int, ...]) -> Callable[[], Array]:
    """Calls of a function that fills an array."""
    out = np.empty(shape, np.float32)

    def compute() -> Array:
        f(out)
        return out

    return compute


def _transpose(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return _into(lambda out: np.copyto(out, x.T), x.T.shape)


def _add(job: Job) -> Callable[[], Array]:
    a, b = job.take("A", "B")
    return _into(lambda out: np.add(a, b, out=out), a.shape)


def _copy(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return _into(lambda out: np.copyto(out, x), x.shape)


def _image(job: Job) -> Callable[[], Outputs]:
    # The reference is what a user of SciPy would write; in f32 its filters give f32.
    return lambda: FILTERS[job.problem.compute](job.inputs, job.problem)


MAKERS: dict[str, Callable[[Job], Callable[[], Outputs]]] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "transpose_batch_matmul": _scores,
    "dense_gelu": _dense_gelu,
    "norm_bmn": _norm,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "attention": _attention,
    "transpose": _transpose,
    "add": _add,
    "copy": _copy,
    **dict.fromkeys(IMAGES, _image),
}
"""The operators that NumPy supports well. A convolution would copy the input once for each weight."""
