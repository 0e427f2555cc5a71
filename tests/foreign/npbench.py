"""References of `npbench.tsched`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tests.foreign.references import Array, Foreign, Given, positive, single, sized, within


def azimint_hist(data: Array, radius: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.histogram(radius, 7, weights=data)[0] / np.histogram(radius, 7)[0]


def eighths(given: Given) -> Given:
    """Radii at odd eighths between 0 and 7, where bins have a width of 1: none is at an edge but the first and the last."""
    n = len(given["radius"])
    r = np.floor(np.abs(given["radius"]) * 97 % 7) + 0.375
    r[0], r[n - 1] = 0.0, 7.0
    return {**given, "radius": r}


def cavity_pressure(p: Array, b: Array, dx: Array, dy: Array) -> Array:
    p = p.copy()
    for _ in range(3):
        q = p.copy()
        p[1:-1, 1:-1] = ((q[1:-1, 2:] + q[1:-1, :-2]) * dy**2 + (q[2:, 1:-1] + q[:-2, 1:-1]) * dx**2) / (
            2 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p


def crc16(data: Array) -> Array:
    crc = 0xFFFF
    for byte in map(int, data):
        for _ in range(8):
            crc = (crc >> 1) ^ (0x8408 if (crc ^ byte) & 1 else 0)
            byte >>= 1
    crc = ~crc & 0xFFFF
    return np.array((crc << 8 | crc >> 8) & 0xFFFF)


def n_body(p: Array, v: Array, m: Array) -> Array:
    def pull(at: Array) -> Array:
        d = at[None] - at[:, None]
        return (d * (((d**2).sum(-1) + 0.01) ** -1.5)[..., None] * m[None, :, None]).sum(1)

    energies = [0.5 * (m[:, None] * v**2).sum()]
    for _ in range(2):
        a = pull(p)
        p, v = p + 0.01 * v + 0.00005 * a, v + 0.01 * a
        energies.append(0.5 * (m[:, None] * v**2).sum())
    return np.array(energies)


def self_energies(index: Array, dh: Array, g: Array, d: Array) -> Array:
    out = np.zeros_like(g)
    for k, e, a in np.ndindex(*g.shape[:3]):
        for q, w, b in np.ndindex(d.shape[0], min(d.shape[1], e + 1), dh.shape[1]):
            for i, j in np.ndindex(dh.shape[2], dh.shape[2]):
                out[k, e, a] += g[k, e - w, index[a, b]] @ dh[a, b, i] @ (dh[a, b, j] * d[q, w, a, b, i, j])
    return out


def neighbours(given: Given) -> Given:
    return {**given, "I": given["I"] % len(given["I"])}


def deriche(x: Array, a: Array, b: Array) -> Array:
    def along(z: Array, a: Array) -> Array:
        """Both directions along the last axis."""
        n = z.shape[1]
        up, down = np.zeros((len(z), n + 2)), np.zeros((len(z), n + 2))
        before, after = np.pad(z, [(0, 0), (2, 0)]), np.pad(z, [(0, 0), (0, 2)])
        for j in range(n):
            up[:, j + 2] = a[0] * z[:, j] + a[1] * before[:, j + 1] + b[0] * up[:, j + 1] + b[1] * up[:, j]
        for j in reversed(range(n - 1)):
            down[:, j] = a[2] * after[:, j + 1] + a[3] * after[:, j + 2] + b[0] * down[:, j + 1] + b[1] * down[:, j + 2]
        return up[:, 2:] + down[:, :n]

    return along(along(x, a[:4]).T, a[4:]).T


def damped(given: Given) -> Given:
    return {**given, "b": np.array([0.5, -0.25])}


def vertical_advection(u: Array, w: Array, p: Array, d: Array) -> Array:
    k, n = u.shape
    out = np.zeros((k, n))
    between = 0.25 * (w + np.roll(w, -1, 1))
    for i in range(n):
        m, right = np.zeros((k, k)), np.zeros(k)
        for r in range(k):
            low = -between[r, i] / 2 if r else 0.0
            high = between[r + 1, i] / 2 if r < k - 1 else 0.0
            m[r, r] = d - low - high
            right[r] = d * p[r, i]
            if r:
                m[r, r - 1] = low
                right[r] -= low * (u[r - 1, i] - u[r, i])
            if r < k - 1:
                m[r, r + 1] = high
                right[r] -= high * (u[r + 1, i] - u[r, i])
        out[:, i] = d * (np.linalg.solve(m, right) - p[:, i])
    return out


def dominant(given: Given) -> Given:
    return {**given, "w": np.tanh(given["w"]), "d": np.array(4.0)}


def res_block(x: Array, a: Array, f: Array) -> Array:
    p = np.pad(x @ a, [(0, 0), (1, 1), (1, 1), (0, 0)])
    r = np.maximum((p - p.mean(0)) / np.sqrt(p.std(0) + single(1e-5)), 0)
    return np.maximum(np.einsum("nhwcrs,rsck->nhwk", sliding_window_view(r, (3, 3), (1, 2)), f) + x, 0)


def layer_norm_backward(x: Array, d: Array, w: Array) -> tuple[Array, Array, Array]:
    n = x.shape[1]
    r = 1 / np.sqrt(x.var(1, keepdims=True) + single(1e-5))
    h = (x - x.mean(1, keepdims=True)) * r
    jacobian = np.einsum("mi,mij->mij", r * np.ones_like(x), np.eye(n) - 1 / n - np.einsum("mi,mj->mij", h, h) / n)
    return np.einsum("mij,mj->mi", jacobian, w * d), (d * h).sum(0), d.sum(0)


def block_scaled(a: Array, b: Array, s: Array, t: Array) -> Array:
    return (a * np.repeat(2.0 ** (s - 127.0), 4, 1)) @ (b * np.repeat(2.0 ** (t - 127.0), 4, 1)).T


def grouped_matmul(x: Array, w: Array, last: Array) -> Array:
    out = np.zeros((len(x), w.shape[2]))
    for t in range(len(x)):
        out[t] = x[t] @ w[min(int((t >= last).sum()), len(w) - 1)]
    return out


def attention_backward(q: Array, k: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
    p = special.softmax(q @ k.T, axis=1)
    ds = np.array([(np.diag(r) - np.outer(r, r)) @ t for r, t in zip(p, g @ v.T, strict=True)])
    return ds @ k, ds.T @ q, p.T @ g


def bcsr_matvec(p: Array, i: Array, v: Array, x: Array) -> Array:
    rows = [range(a, b) for a, b in pairwise(p)]
    return np.array([sum((v[z] @ x[i[z]] for z in row), np.zeros(2)) for row in rows])


def block_rows(given: Given) -> Given:
    p = np.sort(given["P"] % (len(given["I"]) + 1))
    p[0], p[-1] = 0, len(given["I"])
    return {**given, "P": p, "I": given["I"] % len(given["x"])}


NPBENCH = {
    "azimint_hist": Foreign(azimint_hist, sized("N", (23,), (100,)), eighths),
    "cavity_pressure": Foreign(cavity_pressure, sized("H W", (5, 7), (9, 17)), positive("dx", "dy")),
    "crc16": Foreign(crc16, sized("N", (1,), (9,))),
    "n_body": Foreign(n_body, sized("N", (5,), (17,)), positive("m")),
    "self_energies": Foreign(
        self_energies, sized("A B D P K E Q W", (3, 2, 2, 2, 1, 3, 2, 2), (2, 3, 3, 2, 2, 4, 1, 3)), neighbours
    ),
    "deriche": Foreign(deriche, sized("H W", (5, 7), (16, 17)), damped),
    "vertical_advection_full": Foreign(vertical_advection, sized("K I", (5, 3), (9, 17)), dominant),
    "res_block": Foreign(res_block, sized("B H W C", (3, 4, 5, 2), (2, 5, 7, 4))),
    "layer_norm_backward": Foreign(layer_norm_backward, sized("M N", (3, 5), (17, 33))),
    "block_scaled": Foreign(block_scaled, sized("M K N", (3, 8, 5), (16, 32, 17)), within(120, 134, "s", "t")),
    "grouped_matmul": Foreign(
        grouped_matmul, sized("T K G N", (7, 3, 2, 5), (16, 8, 4, 17)), lambda g: {**g, "last": np.sort(g["last"] % 16)}
    ),
    "attention_backward": Foreign(attention_backward, sized("M D N", (3, 5, 4), (16, 8, 17))),
    "bcsr_matvec": Foreign(bcsr_matvec, sized("R1 Z N", (4, 7, 5), (9, 20, 8)), block_rows),
}
