"""References of `models.tsched`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import ndimage, special

from tests.foreign.references import Array, Foreign, Given, positive, single, sized, within


def horizontal_diffusion(u: Array, c: Array) -> Array:
    """The limited diffusion of a weather model, on the inner points."""
    laplacian = np.zeros_like(u)
    laplacian[1:-1, 1:-1] = 4.0 * u[1:-1, 1:-1] - u[2:, 1:-1] - u[:-2, 1:-1] - u[1:-1, 2:] - u[1:-1, :-2]
    fluxes: list[Array] = []
    for axis in (0, 1):
        flux = np.diff(laplacian, axis=axis)
        fluxes.append(np.where(flux * np.diff(u, axis=axis) > 0, 0.0, flux))
    out = u.copy()
    inner = (slice(2, -2), slice(2, -2))
    fx, fy = fluxes
    change = np.diff(fx, axis=0)[1:-1, 2:-2] + np.diff(fy, axis=1)[2:-2, 1:-1]
    out[inner] = u[inner] - c[inner] * change
    return out


def vertical_advection(a: Array, b: Array, c: Array, d: Array) -> Array:
    columns = [np.diag(b[:, i]) + np.diag(a[1:, i], -1) + np.diag(c[:-1, i], 1) for i in range(a.shape[1])]
    return np.stack([np.linalg.solve(m, d[:, i]) for i, m in enumerate(columns)], axis=1)


def diagonally_dominant(given: Given) -> Given:
    return {**given, "B": np.abs(given["B"]) + np.abs(given["A"]) + np.abs(given["C"]) + 1.0}


def forces(p: Array, m: Array) -> Array:
    apart = p[None] - p[:, None]
    return (apart * ((apart**2).sum(-1) + single(0.01))[..., None] ** -1.5 * m[None, :, None]).sum(1)


def mandelbrot(x: Array, y: Array) -> Array:
    c = x[None] + 1j * y[:, None]
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for step in range(13):
        inside = np.abs(z) ** 2 <= 4.0
        count += inside
        z = np.where(inside, z * z + c, z) if step < 12 else z
    return count


def radial_mean(r: Array, v: Array, edges: Array) -> Array:
    return np.array([v[(a <= r) & (r < b)].sum() / max(1, ((a <= r) & (r < b)).sum()) for a, b in pairwise(edges)])


def dft(x: Array) -> Array:
    turns = np.outer(np.arange(len(x)), np.arange(len(x))) % len(x) / len(x)
    f = np.exp(-1j * single(6.2831855) * turns) @ (x[:, 0] + 1j * x[:, 1])
    return np.stack([f.real, f.imag], axis=1)


def life(a: Array) -> Array:
    for _ in range(3):
        moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
        around = sum((np.roll(a, move, (0, 1)) for move in moves), np.zeros_like(a))
        a = np.where((around == 3) | ((a == 1) & (around == 2)), 1, 0)
    return a


def black_scholes(s: Array, k: Array, t: Array, r: Array, v: Array) -> Array:
    d = (np.log(s / k) + (r + v * v / 2) * t) / (v * np.sqrt(t))

    def below(z: Array) -> Array:
        return (1 + special.erf(z * single(0.70710678))) / 2

    return s * below(d) - k * np.exp(-r * t) * below(d - v * np.sqrt(t))


def congruential(seed: Array) -> Array:
    rows = [np.asarray(seed, np.uint64)]
    for _ in range(8):
        rows.append((rows[-1] * 1664525 + 1013904223) % 2**32)
    return np.array(rows) // 256 / 2.0**24


def viterbi(p: Array, a: Array, e: Array) -> tuple[Array, Array]:
    rows = [p + e[0]]
    for t in range(1, len(e)):
        rows.append(e[t] + (rows[-1][:, None] + a).max(0))
    return np.array(rows), (rows[-1][:, None] + a).argmax(0)


def edit_distance(a: Array, b: Array) -> Array:
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    d[:, 0], d[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i, j in np.ndindex(len(a), len(b)):
        d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (a[i] != b[j]))
    return d[-1, -1]


def local_alignment(a: Array, b: Array) -> Array:
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i, j in np.ndindex(len(a), len(b)):
        d[i + 1, j + 1] = max(0, d[i, j + 1] - 2, d[i + 1, j] - 2, d[i, j] + (3 if a[i] == b[j] else -3))
    return d.max()


def assign(x: Array, c: Array) -> tuple[Array, Array]:
    a = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)
    return a, np.array([x[a == k].sum(0) / max(1, (a == k).sum()) for k in range(len(c))])


def rotary(x: Array, p: Array, w: Array) -> Array:
    n = len(w)
    angle = p[:, None, None] * w
    turned = (x[..., :n] + 1j * x[..., n : 2 * n]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag, x[..., 2 * n :]], axis=-1)


def selective_scan(x: Array, dt: Array, a: Array, b: Array, c: Array) -> Array:
    h, rows = np.zeros(a.shape), []
    for t in range(len(x)):
        h = np.exp(dt[t][:, None] * a) * h + (dt[t] * x[t])[:, None] * b[t]
        rows.append(h @ c[t])
    return np.array(rows)


def linear_attention(q: Array, k: Array, v: Array) -> Array:
    return np.tril(q @ k.T) @ v


def window_attention(q: Array, k: Array, v: Array) -> Array:
    times = len(q) // len(k)
    k, v = np.repeat(k, times, 0), np.repeat(v, times, 0)
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
    t = np.arange(q.shape[1])
    seen = (t[None] <= t[:, None]) & (t[None] > t[:, None] - 4)
    return special.softmax(np.where(seen, s, -np.inf), axis=-1) @ v


def int4_matmul(x: Array, w: Array, s: Array, z: Array) -> Array:
    codes = np.stack([w % 16, w // 16], axis=-1).reshape(len(w), -1)
    group = x.shape[1] // s.shape[1]
    return x @ ((codes - np.repeat(z, group, 1)) * np.repeat(s, group, 1)).T


def mixture(x: Array, r: Array, w: Array) -> Array:
    return np.einsum("td,tdf->tf", x, w[(x @ r).argmax(1)])


def cross_entropy(x: Array, y: Array) -> tuple[Array, Array]:
    hot = np.eye(x.shape[1])[np.clip(y, 0, x.shape[1] - 1)]
    return -(special.log_softmax(x, axis=1) * hot).sum() / len(x), (special.softmax(x, axis=1) - hot) / len(x)


def adam(p: Array, g: Array, m: Array, v: Array, t: Array) -> tuple[Array, ...]:
    f = [single(c) for c in (0.9, 0.1, 0.999, 0.001, 1e-8)]
    m1, v1 = f[0] * m + f[1] * g, f[2] * v + f[3] * g * g
    return p - f[3] * (m1 / (1 - f[0] ** t)) / (np.sqrt(v1 / (1 - f[2] ** t)) + f[4]), m1, v1


def sample_grid(x: Array, g: Array) -> Array:
    return np.array([ndimage.map_coordinates(c, g.T, order=1) for c in x])


def inside_grid(given: Given) -> Given:
    """Points away from the last row and column, where weights beyond the edge are 0 in one and the nearest in the other."""
    limits = np.array(given["X"].shape[1:]) - 1.0
    return {**given, "G": (np.abs(given["G"]) * 0.37 % 1.0 * limits).astype(np.float32).astype(np.float64)}


def embedding_bag(w: Array, i: Array, n: Array) -> Array:
    return np.array(
        [w[np.clip(row[: max(0, k)], 0, len(w) - 1)].sum(0) / max(k, 1) for row, k in zip(i, n, strict=True)]
    )


MODELS = {
    "horizontal_diffusion": Foreign(horizontal_diffusion, sized("I J K", (5, 7, 3), (16, 9, 20))),
    "vertical_advection": Foreign(vertical_advection, sized("K I", (1, 5), (17, 20)), diagonally_dominant),
    "forces": Foreign(forces, sized("N D", (7, 3), (40, 2))),
    "mandelbrot": Foreign(mandelbrot, sized("W H", (5, 7), (33, 16))),
    "radial_mean": Foreign(radial_mean, sized("N B", (13, 4), (100, 2))),
    "go_fast": Foreign(lambda a: a + np.tanh(np.diag(a)).sum(), sized("N", (1,), (33,))),
    "dft": Foreign(dft, sized("N", (7,), (32,))),
    "life": Foreign(life, sized("H W", (5, 7), (16, 33)), within(0, 1, "A")),
    "black_scholes": Foreign(black_scholes, sized("N", (7,), (100,)), positive("S", "K", "T", "r", "v")),
    "congruential": Foreign(congruential, sized("T N", (9, 5), (9, 32))),
    "viterbi": Foreign(viterbi, sized("S T", (5, 1), (17, 6))),
    "edit_distance": Foreign(edit_distance, sized("M N", (5, 7), (13, 4)), within(0, 2, "a", "b")),
    "local_alignment": Foreign(local_alignment, sized("M N", (5, 7), (13, 4)), within(0, 2, "a", "b")),
    "assign": Foreign(assign, sized("N D K", (13, 3, 4), (40, 16, 1))),
    "rotary": Foreign(rotary, sized("T H D D2", (5, 3, 7, 3), (4, 2, 32, 16)), within(0, 9, "p")),
    "selective_scan": Foreign(selective_scan, sized("T D N", (5, 3, 2), (9, 32, 4))),
    "linear_attention": Foreign(linear_attention, sized("T D E", (5, 3, 7), (12, 8, 16))),
    "window_attention": Foreign(window_attention, sized("H G T D", (4, 2, 7, 3), (3, 1, 16, 8))),
    "int4_matmul": Foreign(int4_matmul, sized("M K N P G", (3, 12, 5, 6, 3), (8, 32, 17, 16, 2))),
    "mixture": Foreign(mixture, sized("T D E F", (5, 3, 4, 7), (16, 8, 1, 16))),
    "cross_entropy": Foreign(cross_entropy, sized("N C", (5, 7), (16, 32)), within(0, 9, "y")),
    "adam": Foreign(adam, sized("N", (7,), (100,)), positive("v", "t")),
    "sample_grid": Foreign(sample_grid, sized("C H W P", (2, 5, 7, 11), (3, 16, 2, 32)), inside_grid),
    "embedding_bag": Foreign(embedding_bag, sized("V D B L", (5, 3, 7, 4), (20, 16, 3, 1)), within(0, 4, "I", "n")),
    "ranks": Foreign(lambda x: (x.argsort(kind="stable").argsort(), np.sort(x)), sized("N", (7,), (33,))),
}
