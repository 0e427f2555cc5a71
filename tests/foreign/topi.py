"""References of `topi.tsched`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage

from tests.foreign.references import Array, Foreign, Given, sized, within


def adaptive_pool(x: Array) -> Array:
    b, h, w = x.shape
    y = np.zeros((b, 3, 4))
    for i in range(3):
        for j in range(4):
            y[:, i, j] = x[:, i * h // 3 : -(-(i + 1) * h // 3), j * w // 4 : -(-(j + 1) * w // 4)].mean((1, 2))
    return y


def max_pool_indices(x: Array) -> Array:
    b, h, w = x.shape
    out = np.zeros((b, h // 2, w // 2), np.int64)
    for q, i, j in np.ndindex(*out.shape):
        r, s = divmod(x[q, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].argmax(), 2)
        out[q, i, j] = (2 * i + r) * w + 2 * j + s
    return out


def average_pool_grad(g: Array) -> Array:
    d = np.zeros((g.shape[0], (g.shape[1] - 1) * 2 + 3))
    for o in range(g.shape[1]):
        d[:, 2 * o : 2 * o + 3] += g[:, o : o + 1] / 3
    return d


def conv1d_transpose(x: Array, f: Array) -> Array:
    (b, _, n), (_, k, r) = x.shape, f.shape
    full = np.zeros((b, k, (n - 1) * 3 + r))
    for i in range(n):
        full[:, :, 3 * i : 3 * i + r] += np.einsum("bc,ckr->bkr", x[:, :, i], f)
    return full[:, :, 1:-1]


def conv2d_nchwc(x: Array, f: Array) -> Array:
    n, co, h, w, ci = x.shape
    ko, _, r, s, _, ki, _ = f.shape
    plain = x.transpose(0, 1, 4, 2, 3).reshape(n, co * ci, h, w)
    g = f.transpose(0, 5, 1, 4, 6, 2, 3).reshape(ko * ki, co * ci, r, s)
    y = np.einsum("nchwrs,kcrs->nkhw", sliding_window_view(plain, (r, s), (2, 3)), g)
    return y.reshape(n, ko, ki, *y.shape[2:]).transpose(0, 1, 3, 4, 2)


def deformable_conv1d(x: Array, f: Array, o: Array) -> Array:
    n = x.shape[1]
    k, _, r = f.shape
    y = np.zeros((k, o.shape[1]))
    padded = np.pad(x, [(0, 0), (40, 40)])
    for m in range(o.shape[1]):
        for t in range(r):
            at = m + t + o[t, m]
            low = int(np.floor(at))
            if -1 <= low < n:
                v = padded[:, 40 + low] * (low + 1 - at) + padded[:, 41 + low] * (at - low)
                y[:, m] += f[:, :, t] @ v
    return y


def roi_pool(x: Array, r: Array) -> Array:
    (c, h, w), n = x.shape, len(r)
    y = np.full((n, c, 2, 2), -np.inf)
    for q in range(n):
        low = np.clip(r[q, :2], 0, min(h, w) - 1)
        size = np.maximum(r[q, 2:] - low + 1, 1)
        for i, j in np.ndindex(2, 2):
            rows = slice(low[0] + i * size[0] // 2, low[0] - (-(i + 1) * size[0] // 2))
            cols = slice(low[1] + j * size[1] // 2, low[1] - (-(j + 1) * size[1] // 2))
            part = x[:, rows, cols]
            if part.size:
                y[q, :, i, j] = part.max((1, 2))
    return y


def matrix_set_diag(x: Array, d: Array) -> Array:
    y = x.copy()
    _, k, length = d.shape
    for q in range(k):
        for i, j in np.ndindex(x.shape[1:]):
            if j - i == -1 + q and min(i, j) < length:
                y[:, i, j] = d[:, k - 1 - q, min(i, j)]
    return y


def sparse_to_dense(i: Array, v: Array) -> Array:
    y = np.zeros(9)
    for k in range(len(i)):
        if 0 <= i[k] < 9:
            y[i[k]] = v[k]
    return y


def scatter_nd_add(x: Array, i: Array, j: Array, v: Array) -> Array:
    y = x.copy()
    for k in range(len(v)):
        if 0 <= i[k] < x.shape[0] and 0 <= j[k] < x.shape[1]:
            y[i[k], j[k]] += v[k]
    return y


def upsample_aligned(x: Array) -> Array:
    rows = (np.arange(3 * n) * (n - 1) / (3 * n - 1) for n in x.shape[1:])
    grid = np.array(np.meshgrid(*rows, indexing="ij"))
    return np.array([ndimage.map_coordinates(p, grid, order=1, mode="nearest") for p in x])


def top_k(x: Array) -> tuple[Array, Array]:
    order = np.argsort(-x, 1, kind="stable")[:, :2]
    return np.take_along_axis(x, order, 1), order


def nms(box: Array) -> Array:
    keep: list[int] = []
    out = np.zeros(len(box), np.int64)
    for i, b in enumerate(box):
        ok = True
        for j in keep:
            o = box[j]
            both = max(min(b[2], o[2]) - max(b[0], o[0]), 0) * max(min(b[3], o[3]) - max(b[1], o[1]), 0)
            area = (b[2] - b[0]) * (b[3] - b[1]) + (o[2] - o[0]) * (o[3] - o[1])
            ok = ok and not both > 0.5 * (area - both)
        if ok:
            keep.append(i)
            out[i] = 1
    return out


def whole_boxes(given: Given) -> Given:
    b = np.abs(np.round(given["box"] * 3))
    return {"box": np.concatenate([b[:, :2], b[:, :2] + b[:, 2:] + 1], 1)}


def csr_matvec(row: Array, col: Array, val: Array, x: Array) -> Array:
    return np.array([val[a:b] @ x[col[a:b]] for a, b in pairwise(row)])


def rows_in_order(given: Given) -> Given:
    z, n = len(given["val"]), len(given["x"])
    return {**given, "row": np.sort(given["row"] % (z + 1)), "col": given["col"] % n}


def requantize(x: Array, m: Array, s: Array) -> Array:
    product = x.astype(object) * m.astype(object)
    out = np.empty(x.shape, np.int64)
    for i, j in np.ndindex(x.shape):
        p = 1 << int(s[j])
        out[i, j] = min(max((int(product[i, j]) + p // 2) // p + 3, -128), 127)
    return out


def shifts(given: Given) -> Given:
    return {"X": given["X"] * 9973, "multiplier": given["multiplier"] * 7919, "shift": given["shift"] % 28 + 8}


def winograd_rows(x: Array, f: Array) -> Array:
    return np.einsum("cxr,kcr->kx", sliding_window_view(x, 3, 1), f)


def binary_dense(a: Array, w: Array) -> Array:
    x = np.unpackbits(a.astype(np.uint8), axis=1).astype(int) * 2 - 1
    y = np.unpackbits(w.astype(np.uint8), axis=1).astype(int) * 2 - 1
    return x @ y.T


TOPI = {
    "adaptive_pool": Foreign(adaptive_pool, sized("B H W", (2, 7, 11), (3, 12, 4))),
    "max_pool_indices": Foreign(max_pool_indices, sized("B H W", (2, 7, 5), (1, 16, 34))),
    "average_pool_grad": Foreign(average_pool_grad, sized("B O", (3, 5), (2, 33))),
    "conv1d_transpose": Foreign(conv1d_transpose, sized("B C N K R", (2, 3, 5, 2, 4), (1, 2, 9, 5, 3))),
    "conv2d_nchwc": Foreign(
        conv2d_nchwc, sized("N CO H W CI KO R S KI", (1, 2, 5, 7, 4, 3, 3, 3, 5), (2, 1, 4, 9, 8, 1, 1, 3, 16))
    ),
    "deformable_conv1d": Foreign(deformable_conv1d, sized("C N K R M", (2, 9, 3, 3, 7), (3, 17, 2, 2, 16))),
    "roi_pool": Foreign(roi_pool, sized("C H W N", (2, 7, 9, 5), (3, 16, 16, 2)), within(0, 8, "R")),
    "matrix_set_diag": Foreign(matrix_set_diag, sized("B M N K L", (2, 5, 7, 3, 4), (1, 9, 4, 3, 4))),
    "sparse_to_dense": Foreign(sparse_to_dense, sized("K", (7,), (33,)), within(-2, 10, "I")),
    "scatter_nd_add": Foreign(scatter_nd_add, sized("H W K", (5, 7, 11), (3, 16, 40)), within(-1, 7, "I", "J")),
    "upsample_aligned": Foreign(upsample_aligned, sized("C H W", (2, 3, 5), (3, 4, 7))),
    "top_k": Foreign(top_k, sized("M N", (3, 5), (7, 33))),
    "non_max_suppression": Foreign(nms, sized("N", (7,), (33,)), whole_boxes),
    "csr_matvec": Foreign(csr_matvec, sized("M1 Z N", (6, 11, 7), (17, 40, 9)), rows_in_order),
    "requantize": Foreign(requantize, sized("M N", (3, 5), (7, 33)), shifts),
    "winograd_rows": Foreign(winograd_rows, sized("C T K", (3, 5, 2), (4, 17, 5))),
    "binary_dense": Foreign(binary_dense, sized("M K N", (3, 2, 5), (16, 5, 17))),
}
