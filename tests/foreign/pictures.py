"""References of `pictures.tsched`."""

from __future__ import annotations

import numpy as np
from scipy import interpolate, special

from tests.foreign.references import Array, Foreign, Given, sized


def perspective(x: Array, p: Array, border: Array) -> Array:
    h, w = x.shape
    out = np.zeros((h, w), int)
    e = np.pad(x, 1, constant_values=int(border)).astype(float)
    for i in range(h):
        for j in range(w):
            u, v, z = p @ np.array([j, i, 1.0])
            u, v = u / z, v / z
            a, b = int(np.floor(v)), int(np.floor(u))
            s, t = v - a, u - b

            def at(r: int, c: int) -> float:
                return e[r + 1, c + 1] if 0 <= r < h and 0 <= c < w else float(border)

            y = (at(a, b) * (1 - t) + at(a, b + 1) * t) * (1 - s) + (at(a + 1, b) * (1 - t) + at(a + 1, b + 1) * t) * s
            out[i, j] = np.rint(y)
    return out


def camera(given: Given) -> Given:
    return {**given, "P": np.array([[1.03, 0.11, -0.7], [-0.07, 0.96, 0.31], [0.013, -0.009, 1.0]])}


def distances(x: Array) -> Array:
    h, w = x.shape
    on = np.argwhere(x)
    d = np.full((h, w), 1000000)
    for i, j in np.ndindex(h, w):
        if len(on):
            d[i, j] = ((on - [i, j]) ** 2).sum(1).min()
    return d


def seeded(given: Given) -> Given:
    x = given["X"].copy()
    x[-1, 0] = True
    return {"X": x}


def hough(y: Array, x: Array, c: Array, s: Array) -> tuple[Array, Array]:
    v = np.zeros((len(c), 20), int)
    for p, q in zip(y, x, strict=True):
        for a in range(len(c)):
            r = int(np.floor((q * c[a] + p * s[a]) * 0.5)) + 10
            if 0 <= r < 20:
                v[a, r] += 1
    return v, np.array(v.argmax())


def mutual(x: Array, y: Array, w: Array) -> tuple[Array, Array]:
    h = np.histogram2d(x, y, bins=4, range=[[0, 256], [0, 256]], weights=w)[0]
    p = h / h.sum()
    return h, special.xlogy(p, p / np.outer(p.sum(1), p.sum(0)) + (p == 0)).sum()


def otsu(x: Array) -> tuple[Array, Array]:
    best, at = -1.0, 0
    for t in range(256):
        low, high = x[x <= t], x[x > t]
        v = len(low) * len(high) * (low.mean() - high.mean()) ** 2 if len(low) and len(high) else -1.0
        if (v > best * (1 + 1e-12) and v >= 0) or (best < 0 and v >= 0):
            best, at = v, t
    return np.array(at), x > at


AROUND = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]


def patterns(x: Array, *_: Array) -> tuple[Array, Array]:
    h, w = x.shape
    p, c = np.zeros((h - 2, w - 2), int), np.zeros((h - 2, w - 2), int)
    for i, j in np.ndindex(*p.shape):
        bits = [int(x[i + 1 + a, j + 1 + b] >= x[i + 1, j + 1]) for a, b in AROUND]
        p[i, j] = sum(v << k for k, v in enumerate(bits))
        c[i, j] = sum(bits[k] != bits[k - 1] for k in range(8))
    return p, c


def around(given: Given) -> Given:
    return {**given, "dy": np.array([a for a, _ in AROUND]), "dx": np.array([b for _, b in AROUND])}


def hsv(x: Array) -> tuple[Array, Array]:
    out = np.zeros(x.shape)
    for n, (r, g, b) in enumerate(x.astype(float)):
        m, l = max(r, g, b), min(r, g, b)
        d = m - l
        if d:
            out[n, 0] = (g - b) / d % 6 if m == r else (b - r) / d + 2 if m == g else (r - g) / d + 4
        out[n, 1], out[n, 2] = (d / m if m else 0), m / 255
    return out, x


def over(a: Array, b: Array) -> Array:
    return (a + np.floor(b * (255 - a[:, 3:]) / 255 + 0.5).astype(int)) % 256


def premultiplied(given: Given) -> Given:
    return {n: np.concatenate([a[:, :3] * a[:, 3:] // 255, a[:, 3:]], 1) for n, a in given.items()}


def dithered(x: Array) -> Array:
    m = np.array([[0]])
    for _ in range(3):
        m = np.block([[4 * m, 4 * m + 2], [4 * m + 3, 4 * m + 1]])
    at = m[np.arange(x.shape[0])[:, None] % 8, np.arange(x.shape[1]) % 8]
    return x > 4 * at + 2


def spread(x: Array) -> Array:
    y = np.zeros(x.shape, bool)
    for i, row in enumerate(x):
        e = 0
        for j, v in enumerate(row):
            s = int(v) + e
            y[i, j] = s > 127
            e = (s - 255 * y[i, j]) * 7 // 16
    return y


def colour_cube(x: Array, t: Array) -> Array:
    b = len(t)
    at = x * (b - 1) / 255
    axis = np.arange(b)
    return np.stack([interpolate.interpn((axis, axis, axis), t[..., c], at) for c in range(3)], 1)


def ssim(x: Array, y: Array) -> tuple[Array, Array]:
    v = np.lib.stride_tricks.sliding_window_view
    a, b = (v(z.astype(float), (3, 3)) for z in (x, y))
    ma, mb = a.mean((2, 3)), b.mean((2, 3))
    va, vb = ((a - ma[..., None, None]) ** 2).sum((2, 3)), ((b - mb[..., None, None]) ** 2).sum((2, 3))
    vab = ((a - ma[..., None, None]) * (b - mb[..., None, None])).sum((2, 3))
    s = (18 * ma * mb + 6.5) * (2 * vab + 58.5) / ((9 * (ma**2 + mb**2) + 6.5) * (va + vb + 58.5))
    return s, np.array(s.mean())


def ray_boxes(o: Array, d: Array, low: Array, high: Array) -> tuple[Array, Array]:
    with np.errstate(divide="ignore", invalid="ignore"):
        a = (low[None] - o[:, None]) / d[:, None]
        b = (high[None] - o[:, None]) / d[:, None]
    near, far = np.minimum(a, b).max(2), np.maximum(a, b).min(2)
    hit = (near <= far) & (far >= 0)
    return hit, np.where(hit, near, np.inf).argmin(1)


def aimed(given: Given) -> Given:
    d = given["D"].copy()
    d[0, 0] = 0.0
    return {**given, "D": d, "high": (given["low"] + np.abs(given["high"]) + 1).astype(np.float32).astype(float)}


def ray_triangles(o: Array, d: Array, v: Array) -> Array:
    out = np.full(len(o), np.inf)
    for r in range(len(o)):
        for t in v:
            m = np.stack([t[1] - t[0], t[2] - t[0], -d[r]], 1)
            if abs(np.linalg.det(m)) > 1e-9:
                u, w, z = np.linalg.solve(m, o[r] - t[0])
                if u >= 0 and w >= 0 and u + w <= 1 and z > 0:
                    out[r] = min(out[r], z)
    return out


def polygon(p: Array, v: Array) -> tuple[Array, Array]:
    """By the sum of angles around each point."""
    z = v[:, 0] + 1j * v[:, 1]
    q = z[None] - (p[:, 0] + 1j * p[:, 1])[:, None]
    turn = np.angle(np.roll(q, -1, 1) / q).sum(1)
    area = abs(sum((np.conj(a) * b).imag for a, b in zip(z, np.roll(z, -1), strict=True))) / 2
    return np.abs(turn) > 1, np.array(area)


def around_points(given: Given) -> Given:
    k = len(given["V"])
    a = np.arange(k) * 2 * np.pi / k + 0.1
    r = np.where(np.arange(k) % 2 == 0, 2.0, 1.2)
    return {**given, "V": np.stack([r * np.cos(a), r * np.sin(a)], 1)}


def noise(x: Array, y: Array, t: Array) -> Array:
    m = len(t)
    gradients = [(1, 1), (-1, 1), (1, -1), (-1, -1)]
    out = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        i, j = int(np.floor(x[at])), int(np.floor(y[at]))
        u, v = x[at] - i, y[at] - j
        fade = lambda z: z**3 * (z * (z * 6 - 15) + 10)  # noqa: E731
        total = 0.0
        for p in (0, 1):
            for q in (0, 1):
                g = gradients[t[(t[(i + p) % m] + j + q) % m] % 4]
                total += (
                    ((u - p) * g[0] + (v - q) * g[1])
                    * (fade(u) if p else 1 - fade(u))
                    * (fade(v) if q else 1 - fade(v))
                )
        out[at] = total
    return out


def shuffled(given: Given) -> Given:
    m = len(given["T"])
    return {"x": given["x"] * 3, "y": given["y"] * 3, "T": np.random.default_rng(3).permutation(m)}


def interpolated(x: Array, t: Array, y: Array) -> tuple[Array, Array]:
    return np.interp(x, t, y), np.searchsorted(t, x, "right")


def splines(x: Array, t: Array, c: Array) -> Array:
    return interpolate.BSpline(t, c, 3, extrapolate=False)(x)


def knots(given: Given) -> Given:
    k = len(given["c"])
    inner = np.sort(np.random.default_rng(2).random(k - 4))
    t = np.concatenate([np.zeros(4), inner, np.ones(4)])
    return {**given, "t": t, "x": np.abs(given["x"]) % 1}


def rolling(x: Array) -> Array:
    z = np.zeros(len(x))
    for i in range(len(x)):
        w = x[max(i - 4, 0) : i + 1]
        z[i] = (x[i] - w.mean()) / w.std() if w.std() > 1e-12 else 0.0
    return z


def quantiles(x: Array, q: Array) -> tuple[Array, Array, Array]:
    return np.quantile(x, q, axis=1).T, np.maximum.accumulate(x, 1), (x > 0).argmax(1)


def lorenz(x: Array, h: Array) -> Array:
    def f(s: Array) -> Array:
        a, b, c = s.T
        return np.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], 1)

    for _ in range(3):
        k1 = f(x)
        k2 = f(x + h / 2 * k1)
        k3 = f(x + h / 2 * k2)
        k4 = f(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def ising(x: Array, seed: Array) -> tuple[Array, Array]:
    x, r = x.copy(), seed.copy()
    for t in range(1, 5):
        r = (r * 1664525 + 1013904223) % 2**32
        n = sum(np.roll(x, s, a) for s in (-1, 1) for a in (0, 1))
        flip = (np.add.outer(np.arange(x.shape[0]), np.arange(x.shape[1])) + t) % 2 == 0
        x = np.where(flip & ((r >> 8) / 2**24 < np.exp(-0.5 * x * n)), -x, x)
    return x, x.sum()


def spins(given: Given) -> Given:
    rng = np.random.default_rng(5)
    return {"X": np.where(given["X"] >= 0, 1, -1), "seed": rng.integers(0, 2**32, given["seed"].shape)}


def kepler(m: Array, e: Array) -> Array:
    from scipy.optimize import brentq

    out = []
    for a, b in zip(m, e, strict=True):
        z = brentq(lambda x, a=a, b=b: x - b * np.sin(x) - a, a - 1, a + 1, xtol=1e-15, rtol=1e-15)
        out.append([np.cos(z) - b, np.sqrt(1 - b * b) * np.sin(z)])
    return np.array(out)


def boids(p: Array, v: Array, reach: Array) -> tuple[Array, Array]:
    w, near = v.copy(), np.zeros(len(p), int)
    for i in range(len(p)):
        d = ((p[i] - p) ** 2).sum(1)
        on = (d < reach**2) & (np.arange(len(p)) != i)
        near[i] = on.sum()
        if near[i]:
            away = ((p[i] - p[on]) / (d[on] + np.float64(np.float32(0.1)))[:, None]).sum(0)
            w[i] += 0.125 * (v[on] - v[i]).mean(0) + np.float64(np.float32(0.05)) * away
    return w, near


N = sized("N", (7,), (33,), (1,))
PICTURES = {
    "perspective": Foreign(perspective, sized("H W", (5, 7), (9, 17)), camera),
    "distances": Foreign(distances, sized("H W", (5, 7), (9, 17), (1, 1)), seeded),
    "hough": Foreign(
        hough,
        sized("N A", (9, 5), (33, 8)),
        lambda g: {
            **g,
            "y": g["y"] % 16,
            "x": g["x"] % 16,
            "c": np.cos(np.arange(len(g["c"])) + 0.1),
            "s": np.sin(np.arange(len(g["c"])) + 0.1),
        },
    ),
    "mutual": Foreign(mutual, sized("N", (40,), (100,)), lambda g: {**g, "w": np.abs(g["w"])}),
    "otsu": Foreign(otsu, sized("N", (40,), (100,))),
    "patterns": Foreign(patterns, sized("H W", (5, 7), (9, 20), (3, 3)), around),
    "hsv": Foreign(hsv, N),
    "over": Foreign(over, N, premultiplied),
    "dithered": Foreign(dithered, sized("H W", (5, 7), (9, 20), (1, 1))),
    "spread": Foreign(spread, sized("H W", (5, 7), (9, 20), (1, 1))),
    "colour_cube": Foreign(colour_cube, sized("N B", (7, 3), (33, 5))),
    "ssim": Foreign(ssim, sized("H W", (5, 7), (9, 17), (3, 3))),
    "ray_boxes": Foreign(ray_boxes, sized("R B", (5, 3), (17, 9), (1, 1)), aimed),
    "ray_triangles": Foreign(ray_triangles, sized("R T", (9, 5), (17, 20))),
    "polygon": Foreign(polygon, sized("N K", (9, 5), (33, 10)), around_points),
    "noise": Foreign(noise, sized("H W M", (3, 5, 8), (4, 17, 32)), shuffled),
    "polynomials": Foreign(
        lambda c, x: (np.polyval(c, x), np.polynomial.chebyshev.chebval(x, c)), sized("D N", (4, 7), (9, 20), (0, 1))
    ),
    "bezier": Foreign(
        lambda p, t: interpolate.BPoly(p[:, None], [0, 1])(t),
        sized("K N", (4, 5), (6, 17), (1, 1)),
        lambda g: {**g, "t": np.abs(g["t"]) % 1},
    ),
    "interpolated": Foreign(interpolated, sized("N K", (9, 5), (33, 17)), lambda g: {**g, "t": np.sort(g["t"])}),
    "splines": Foreign(splines, sized("N K", (9, 6), (20, 9)), knots),
    "rolling": Foreign(rolling, N),
    "quantiles": Foreign(quantiles, sized("M N Q", (3, 7, 2), (5, 17, 4)), lambda g: {**g, "q": np.abs(g["q"]) % 1}),
    "lorenz": Foreign(lorenz, N, lambda g: {**g, "h": np.array(0.01)}),
    "ising": Foreign(ising, sized("H W", (4, 6), (8, 18)), spins),
    "kepler": Foreign(kepler, N, lambda g: {**g, "e": np.abs(np.tanh(g["e"])) * 0.8}),
    "boids": Foreign(boids, sized("N", (7,), (33,)), lambda g: {**g, "reach": np.array(1.0)}),
}
