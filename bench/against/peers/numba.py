"""Numba: plain loops with parallel rows, for operators that plain loops suit."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.problem import Job, Ready

numba: Any = import_module("numba")
prange: Any = numba.prange
parallel: Any = numba.njit(parallel=True, fastmath=True)


def prepare(job: Job) -> Ready | None:
    kernel = KERNELS.get(job.problem.compute)
    if kernel is None:
        return None
    given = tuple(job.inputs.values())
    first = given[0]
    shape = {"transpose": first.shape[::-1], "norm_bmn": first.shape[:1]}.get(job.problem.compute, first.shape)
    out = np.empty(shape, np.float32)
    return Ready(lambda: kernel(*given, out), lambda: out)


@parallel
def _softmax(x: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        top = x[i].max()
        total = np.float32(0)
        for j in range(x.shape[1]):
            y[i, j] = np.exp(x[i, j] - top)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


@parallel
def _layer_norm(x: Any, gain: Any, shift: Any, y: Any) -> None:
    n = x.shape[1]
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(n):
            total += x[i, j]
        mean = total / np.float32(n)
        spread = np.float32(0)
        for j in range(n):
            spread += (x[i, j] - mean) ** 2
        r = np.float32(1) / np.sqrt(spread / np.float32(n) + np.float32(1e-5))
        for j in range(n):
            y[i, j] = (x[i, j] - mean) * r * gain[j] + shift[j]


@parallel
def _norm(a: Any, d: Any) -> None:
    for b in range(a.shape[0]):
        total = np.float32(0)
        for i in prange(a.shape[1]):
            row = np.float32(0)
            for j in range(a.shape[2]):
                row += a[b, i, j] * a[b, i, j]
            total += row
        d[b] = np.sqrt(total)


TILE = 32
"""Rows and columns of a tile of a transposition: both sides of it fit the first cache."""


@parallel
def _transpose(x: Any, y: Any) -> None:
    rows, columns = x.shape
    for tile in prange((rows + TILE - 1) // TILE):
        top = tile * TILE
        for left in range(0, columns, TILE):
            for j in range(left, min(left + TILE, columns)):
                for i in range(top, min(top + TILE, rows)):
                    y[j, i] = x[i, j]


@parallel
def _add(a: Any, b: Any, c: Any) -> None:
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            c[i, j] = a[i, j] + b[i, j]


@parallel
def _copy(x: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j]


KERNELS: dict[str, Callable[..., None]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "norm_bmn": _norm,
    "transpose": _transpose,
    "add": _add,
    "copy": _copy,
}
