"""References of `loops.tsched`."""

from __future__ import annotations

import numpy as np

from tests.foreign.references import Array, Foreign, Given, single, sized, within


def iccg(x: Array, v: Array) -> Array:
    n = len(x) // 2
    y = np.zeros(n)
    for i in range(n):
        y[i] = x[2 * i] - v[2 * i + 1] * x[2 * i + 1]
        if i:
            y[i] -= v[2 * i] * x[2 * i - 1]
    return y


def tri_diagonal(z: Array, y: Array) -> Array:
    x = np.zeros(len(z))
    x[0] = z[0] * y[0]
    for i in range(1, len(z)):
        x[i] = z[i] * (y[i] - x[i - 1])
    return x


def linear_recurrence(b: Array) -> Array:
    n = len(b)
    w = np.full(n, 0.01)
    for i in range(1, n):
        w[i] += b[:i, i] @ w[:i][::-1]
    return w


def scaled(given: Given) -> Given:
    return {n: a / 8 for n, a in given.items()}


def difference_predictors(c: Array, p: Array) -> Array:
    q = np.zeros(p.shape)
    q[:, 0] = c
    for d in range(1, p.shape[1]):
        q[:, d] = q[:, d - 1] - p[:, d - 1]
    return q


def particles(x: Array, v: Array, e: Array) -> tuple[Array, Array]:
    g = len(e)
    c = np.floor(x).astype(int)
    f = x - c
    rho = np.zeros(g)
    np.add.at(rho, c, 1 - f)
    np.add.at(rho, (c + 1) % g, f)
    return rho, x + v + e[c] * (1 - f)


def in_cells(given: Given) -> Given:
    g = len(given["e"])
    return {**given, "x": np.floor(np.abs(given["x"]) * 64) / 64 % g}


def hydro_2d(p: Array, q: Array, r: Array, m: Array) -> tuple[Array, Array]:
    s = p + q
    za, zb = np.zeros_like(p), np.zeros_like(p)
    za[1:, 1:-1] = (s[:-1, 2:] - s[:-1, 1:-1]) * (r[1:, 1:-1] + r[:-1, 1:-1]) / (m[:-1, 1:-1] + m[:-1, 2:])
    zb[1:, 1:-1] = (s[:-1, 1:-1] - s[1:, 1:-1]) * (r[1:, 1:-1] + r[1:, :-2]) / (m[1:, 1:-1] + m[:-1, 1:-1])
    return za, zb


def positive_m(given: Given) -> Given:
    return {**given, "m": np.abs(given["m"]) + 0.5}


def two_way(sa: Array, sb: Array) -> Array:
    n = len(sa)
    up, b = np.zeros(n), np.zeros(n)
    s = 0.1
    for i in range(n):
        s = sa[i] + s * sb[i] - (s if i else 0)
        up[i] = s
    b[n - 1] = s
    for i in reversed(range(n - 1)):
        s = sa[i] + s * sb[i] - s + up[i]
        b[i] = s
    return b


def transport(y: Array, g: Array, u: Array, z: Array) -> Array:
    xx = [0.5]
    for k in range(len(y)):
        d = y[k] - g[k] / (xx[k] + 0.1)
        n = 0.3 * xx[k]
        if abs(d) > 0.01:
            n = (z[k] + 0.2 * min(max(d, -0.5), 0.5)) * xx[k] / (1 + abs(u[k]))
        xx.append(n)
    return np.diff(xx)


def implicit_2d(z: Array, r: Array) -> Array:
    y = z.copy()
    for j in range(1, z.shape[0]):
        for k in range(1, z.shape[1]):
            y[j, k] = y[j - 1, k] * single(0.175) + y[j, k - 1] * single(0.2) + z[j, k] * r[j, k]
    return y


def hotspot(t: Array, p: Array) -> Array:
    for _ in range(2):
        e = np.pad(t, 1, "edge")
        t = t + single(0.1) * (
            p
            + (e[2:, 1:-1] + e[:-2, 1:-1] - 2 * t) * 0.5
            + (e[1:-1, 2:] + e[1:-1, :-2] - 2 * t) * 0.25
            + (80 - t) * single(0.01)
        )
    return t


def srad(j: Array) -> Array:
    e = np.pad(j, 1, "edge")
    q0 = j.var() / j.mean() ** 2
    dn, ds, dw, de = e[:-2, 1:-1] - j, e[2:, 1:-1] - j, e[1:-1, :-2] - j, e[1:-1, 2:] - j
    g2 = (dn**2 + ds**2 + dw**2 + de**2) / j**2
    l = (dn + ds + dw + de) / j
    q = (0.5 * g2 - 0.0625 * l**2) / (1 + 0.25 * l) ** 2
    c = np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)
    cp = np.pad(c, 1, "edge")
    return j + 0.125 * (cp[2:, 1:-1] * ds + c * dn + cp[1:-1, 2:] * de + c * dw)


def bright(given: Given) -> Given:
    return {n: np.exp(np.tanh(a)).astype(np.float32).astype(float) for n, a in given.items()}


def path_finder(w: Array) -> tuple[Array, Array]:
    d = w[0]
    for r in w[1:]:
        e = np.pad(d, 1, "edge")
        d = r + np.minimum(np.minimum(e[:-2], e[1:-1]), e[2:])
    return d.min(), d.argmin()


def lava_md(x: Array, q: Array, near: Array) -> Array:
    f = np.zeros_like(x)
    for b in range(len(x)):
        for k in near[b]:
            for i in range(x.shape[1]):
                for j in range(x.shape[1]):
                    y, z = x[b, i], x[k, j]
                    w = q[k, j] * np.exp(-0.5 * (y[0] + z[0] - y[1:] @ z[1:]))
                    f[b, i, 0] += w
                    f[b, i, 1:] += w * (y[1:] - z[1:])
    return f


def neighbours(given: Given) -> Given:
    return {**given, "near": given["near"] % len(given["q"]), "x": np.tanh(given["x"])}


def bfs(start: Array, end: Array) -> Array:
    level = np.full(9, -1)
    level[0] = 0
    todo = [0]
    while todo:
        n = todo.pop(0)
        for a, b in zip(start, end, strict=True):
            if a == n and level[b] < 0:
                level[b] = level[n] + 1
                todo.append(int(b))
    return level


def pivoted(a: Array) -> tuple[Array, Array]:
    a, n = a.copy(), len(a)
    order, pivot = np.zeros(n, int), np.zeros(n)
    for k in range(n):
        rest = [i for i in range(n) if order[i] == 0]
        p = max(rest, key=lambda i: abs(a[i, k]))
        order[p], pivot[k] = k + 1, abs(a[p, k])
        for i in rest:
            if i != p:
                a[i] = a[i] - a[i, k] / a[p, k] * a[p]
    return order, pivot


def embarrassingly(seed: Array) -> tuple[Array, Array]:
    s, x = int(seed), []
    for _ in range(24):
        x.append(2 * (s * 2.0**-46) - 1)
        s = s * 5**13 % 2**46
    ring = np.zeros(4, int)
    for a, b in zip(x[::2], x[1::2], strict=True):
        r = a * a + b * b
        if 0 < r <= 1:
            f = np.sqrt(-2 * np.log(r) / r)
            ring[int(max(abs(a * f), abs(b * f)))] += 1
    return np.array(x), ring


def seeded(given: Given) -> Given:
    return {"seed": np.array(271828183)}


def multigrid(u: Array, v: Array) -> Array:
    r = v - (4 * u - np.roll(u, -1, 0) - np.roll(u, 1, 0) - np.roll(u, -1, 1) - np.roll(u, 1, 1))
    side = np.roll(r, -1, 0) + np.roll(r, 1, 0) + np.roll(r, -1, 1) + np.roll(r, 1, 1)
    c = (0.25 * r + 0.125 * side)[::2, ::2]
    n = len(c)
    at, up = np.arange(2 * n) // 2, (np.arange(2 * n) + 1) // 2 % n
    return u + 0.25 * (c[at][:, at] + c[up][:, at] + c[at][:, up] + c[up][:, up])


def integer_sort(key: Array) -> tuple[Array, Array]:
    order = np.argsort(key, kind="stable")
    rank = np.zeros(len(key), int)
    rank[order] = np.arange(len(key))
    return rank, key[order]


N = sized("N", (7,), (33,), (1,))
LOOPS = {
    "iccg": Foreign(iccg, N),
    "tri_diagonal": Foreign(tri_diagonal, N, scaled),
    "linear_recurrence": Foreign(linear_recurrence, sized("N", (7,), (17,), (1,)), scaled),
    "difference_predictors": Foreign(difference_predictors, sized("N D", (5, 9), (17, 4), (1, 1))),
    "particles": Foreign(particles, sized("P G", (20, 7), (33, 4), (1, 1)), in_cells),
    "search_zone": Foreign(
        lambda d, t: ((d < t).argmax() if (d < t).any() else 0, not (d < t).any()), sized("N", (9,), (40,), (1,))
    ),
    "hydro_2d": Foreign(hydro_2d, sized("J K", (5, 7), (9, 20), (1, 3)), positive_m),
    "two_way": Foreign(two_way, N, scaled),
    "transport": Foreign(transport, N),
    "implicit_2d": Foreign(implicit_2d, sized("J K", (3, 5), (4, 9), (1, 1)), scaled),
    "hotspot": Foreign(hotspot, sized("H W", (5, 7), (9, 17), (1, 1))),
    "srad": Foreign(srad, sized("H W", (5, 7), (9, 17), (2, 1)), bright),
    "path_finder": Foreign(path_finder, sized("R C", (4, 7), (8, 17), (0, 1))),
    "lava_md": Foreign(lava_md, sized("B P K", (3, 5, 2), (2, 4, 3)), neighbours),
    "bfs": Foreign(bfs, sized("E", (12,), (25,)), within(0, 8, "from", "to")),
    "pivoted": Foreign(pivoted, sized("N", (4,), (7,), (1,))),
    "embarrassingly": Foreign(embarrassingly, sized("", ()), seeded),
    "multigrid": Foreign(multigrid, sized("N", (3,), (8,), (1,))),
    "integer_sort": Foreign(integer_sort, sized("N", (11,), (40,), (1,)), within(0, 15, "key")),
}
