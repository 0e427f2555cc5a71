"""References of `fields.tsched`."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_banded

from tests.foreign.references import Array, Foreign, Given, sized


def yee(e: Array, loss: Array, source: Array) -> tuple[Array, Array]:
    h, w = e.shape
    e = e.copy()
    bx, by = np.zeros_like(e), np.zeros_like(e)
    for t in range(3):
        bx[:-1] -= 0.5 * np.diff(e, axis=0)
        by[:, :-1] = (1 - loss[:-1]) * by[:, :-1] + 0.5 * np.diff(e, axis=1)
        e[1:, 1:] = (1 - loss[1:]) * e[1:, 1:] + 0.5 * (np.diff(by, axis=1)[1:] - np.diff(bx, axis=0)[:, 1:])
        if h // 2 >= 1 and w // 2 >= 1:
            e[h // 2, w // 2] += source[min(t, len(source) - 1)]
    return e, np.array([bx, by])


def acoustic(u: Array, m: Array, d: Array, s: Array, at: Array, c: Array) -> Array:
    old, now = u
    h, w = now.shape
    weight = np.maximum(0, 1 - np.abs(np.arange(h) - at[0]))[:, None] * np.maximum(0, 1 - np.abs(np.arange(w) - at[1]))
    for value in s:
        p = np.pad(now, 4)
        lap = 2 * c[0] * now
        for k in range(1, 5):
            inside = [
                p[4 - k : 4 - k + h, 4:-4],
                p[4 + k : 4 + k + h, 4:-4],
                p[4:-4, 4 - k : 4 - k + w],
                p[4:-4, 4 + k : 4 + k + w],
            ]
            lap = lap + c[k] * sum(inside)
        old, now = now, (2 - d) * now - (1 - d) * old + m * lap + value * weight
    return now


EY, EX = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1]), np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
BACK = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])


def lattice(f: Array, wall: Array, *_: Array) -> tuple[Array, Array]:
    for _step in range(2):
        n, my, mx = f.sum(0), np.tensordot(EY, f, 1), np.tensordot(EX, f, 1)
        wanted = np.array([w * (n + 3 * (my * a + mx * b)) for w, a, b in zip(WEIGHTS, EY, EX, strict=True)])
        f = np.where(wall, f[BACK], f - 0.8 * (f - wanted))
        f = np.array([np.roll(q, (a, b), (0, 1)) for q, a, b in zip(f, EY, EX, strict=True)])
    n = f.sum(0)
    return f, np.stack([np.tensordot(EY, f, 1) / n, np.tensordot(EX, f, 1) / n], 2)


def lattice_data(given: Given) -> Given:
    return {**given, "F": np.abs(given["F"]) + 0.25, "ey": EY, "ex": EX, "w": WEIGHTS, "back": BACK}


def gray_scott(u: Array, v: Array) -> Array:
    def around(x: Array) -> Array:
        return sum(np.roll(x, s, a) for s in (1, -1) for a in (0, 1)) - 4 * x

    for _ in range(2):
        r = u * v * v
        u, v = u + 0.16 * around(u) + 0.06 * (1 - u) - r, v + 0.08 * around(v) + r - 0.122 * v
    return np.array([u, v])


def red_black(u: Array, f: Array, omega: Array) -> tuple[Array, Array]:
    u = u.copy()
    h, w = u.shape

    def off(y: int, x: int) -> Array:
        return u[y - 1, x] + u[y + 1, x] + u[y, x - 1] + u[y, x + 1] - f[y, x]

    for colour in (1, 0, 1, 0):
        for y in range(1, h - 1):
            for x in range(1, w - 1):
                if (y + x) % 2 == colour:
                    u[y, x] += omega * (off(y, x) / 4 - u[y, x])
    return u, np.max([abs(off(y, x) - 4 * u[y, x]) for y in range(1, h - 1) for x in range(1, w - 1)], initial=0)


def weno(u: Array, c: Array) -> tuple[Array, Array]:
    a, b, m, d, e = (np.roll(u, k) for k in (2, 1, 0, -1, -2))
    beta = np.array([
        13 / 12 * (a - 2 * b + m) ** 2 + (a - 4 * b + 3 * m) ** 2 / 4,
        13 / 12 * (b - 2 * m + d) ** 2 + (b - d) ** 2 / 4,
        13 / 12 * (m - 2 * d + e) ** 2 + (3 * m - 4 * d + e) ** 2 / 4,
    ])  # fmt: skip
    w = np.array([0.1, 0.6, 0.3])[:, None] / (1e-6 + beta) ** 2
    p = np.array([2 * a - 7 * b + 11 * m, -b + 5 * m + 2 * d, 2 * m + 5 * d - e]) / 6
    edge = (w * p).sum(0) / w.sum(0)
    return u - c * (edge - np.roll(edge, 1)), edge


def shallow(h: Array, q: Array, c: Array) -> Array:
    u = np.array([h, q])
    d = np.diff(u, axis=1)
    a, b = np.pad(d, ((0, 0), (1, 0))), np.pad(d, ((0, 0), (0, 1)))
    s = np.where(a * b > 0, np.sign(a) * np.minimum(np.abs(a), np.abs(b)) / 2, 0)
    left = np.concatenate([u[:, :1], u + s], 1)
    right = np.concatenate([u - s, u[:, -1:]], 1)

    def flux(v: Array) -> Array:
        return np.array([v[1], v[1] ** 2 / v[0] + 4.905 * v[0] ** 2])

    speeds = [(v[1] / v[0], np.sqrt(9.81 * v[0])) for v in (left, right)]
    lo = np.minimum(*(m - k for m, k in speeds))
    hi = np.maximum(*(m + k for m, k in speeds))
    mixed = (hi * flux(left) - lo * flux(right) + lo * hi * (right - left)) / (hi - lo)
    f = np.where(lo >= 0, flux(left), np.where(hi <= 0, flux(right), mixed))
    return u - c * np.diff(f, axis=1)


def cyclic_reduction(a: Array, d: Array, c: Array, f: Array) -> Array:
    rows = []
    for i in range(len(a)):
        bands = np.array([np.append(0, c[i, :-1]), d[i], np.append(a[i, 1:], 0)])
        rows.append(solve_banded((1, 1), bands, f[i]))
    return np.array(rows)


def elements(p: Array, t: Array, u: Array) -> tuple[Array, Array]:
    y, area = np.zeros(len(p)), 0.0
    for corners in t:
        m = np.column_stack([np.ones(3), p[corners]])
        g = np.linalg.inv(m)[1:]
        size = abs(np.linalg.det(m)) / 2
        np.add.at(y, corners, size * g.T @ (g @ u[corners]))
        area += size
    return y, np.array(area)


def triangles(given: Given) -> Given:
    n, e = len(given["P"]), len(given["T"])
    rng = np.random.default_rng(n)
    corners = np.array([rng.choice(n, 3, replace=False) for _ in range(e)])
    return {**given, "T": corners}


def spectral(u: Array, b: Array, d: Array) -> Array:
    points = np.einsum("xi,yj,zk,eijk->exyz", b, b, b, u) * d
    return np.einsum("xi,yj,zk,exyz->eijk", b, b, b, points)


def discontinuous(u: Array, d: Array, lift: Array, h: Array) -> Array:
    jump = u[:, 0] - np.roll(u[:, -1], 1)
    return -2 / h[:, None] * (u @ d.T + jump[:, None] * lift[:, 0])


def neighbours(p: Array, near: Array, count: Array, box: Array) -> tuple[Array, Array]:
    f, energy = np.zeros_like(p), 0.0
    for n, (row, c) in enumerate(zip(near, count, strict=True)):
        for m in row[: max(int(c), 0)]:
            d = p[n] - p[m]
            d = d - box * np.round(d / box)
            r = d @ d
            if 0.01 < r < 6.25:
                f[n] += 24 * (2 / r**6 - 1 / r**3) / r * d
                energy += 2 * (1 / r**6 - 1 / r**3)
    return f, np.array(energy)


def listed(given: Given) -> Given:
    n, m = given["list"].shape
    return {
        "P": given["P"] * 3, "list": given["list"] % n, "count": given["count"] % (m + 1), "box": np.array(5.0),
    }  # fmt: skip


def particle_cells(x: Array, v: Array, q: Array) -> tuple[Array, ...]:
    r = np.zeros(6)
    c = np.floor(x).astype(int)
    f = x - c
    np.add.at(r, c % 6, q * (1 - f))
    np.add.at(r, (c + 1) % 6, q * f)
    e = (np.roll(r, -1) - np.roll(r, 1)) / 2
    w = v + 0.1 * ((1 - f) * e[c % 6] + f * e[(c + 1) % 6])
    return r, w, (x + 0.1 * w) % 6


def smoothed(p: Array, m: Array) -> tuple[Array, Array]:
    d = p[:, None] - p
    r = (d**2).sum(2)
    rho = (m * np.where(r < 1.5, (1.5 - r) ** 3, 0)).sum(1)
    s = rho**1.4 / rho**2
    k = np.where((r < 1.5) & ~np.eye(len(p), dtype=bool), (1.5 - r) ** 2 * 6, 0) * m * (s[:, None] + s)
    return rho, (k[:, :, None] * d).sum(1)


def radial(p: Array) -> tuple[Array, Array]:
    r = ((p[:, None] - p) ** 2).sum(2)[np.triu_indices(len(p), 1)]
    b = np.floor(2 * np.sqrt(r)).astype(int)
    h = np.bincount(b, minlength=6)[:6]
    k = np.arange(6)
    return h, h / ((k + 1) ** 3 - k**3)


def shaken(p: Array, length: Array) -> Array:
    p = p.copy()
    for _ in range(3):
        for i, want in enumerate(length):
            d = p[i + 1] - p[i]
            move = 0.5 * d * (1 - want / np.linalg.norm(d))
            p[i] += move
            p[i + 1] -= move
    return p


def strong(given: Given) -> Given:
    return {**given, "D": np.abs(given["D"]) + np.abs(given["A"]) + np.abs(given["C"]) + 1}


def water(given: Given) -> Given:
    return {"h": np.abs(given["h"]) + 0.5, "q": given["q"], "c": np.array(0.01)}


HW = sized("H W", (6, 7), (11, 20), (1, 1))

FIELDS = {
    "yee": Foreign(
        yee, sized("H W T", (6, 7, 1), (11, 20, 4), (1, 1, 0)), lambda g: {**g, "loss": np.abs(g["loss"]) / 8}
    ),
    "acoustic": Foreign(
        acoustic, sized("H W T", (7, 8, 3), (17, 20, 2), (1, 1, 1)), lambda g: {**g, "at": np.array([2.25, 3.5])}
    ),
    "lattice": Foreign(lattice, sized("H W", (4, 5), (9, 17), (1, 1)), lattice_data),
    "gray_scott": Foreign(gray_scott, HW),
    "red_black": Foreign(red_black, HW),
    "weno": Foreign(weno, sized("N", (7,), (33,), (1,))),
    "shallow": Foreign(shallow, sized("N", (7,), (33,), (1,)), water),
    "cyclic_reduction": Foreign(cyclic_reduction, sized("B", (2,), (17,), (1,)), strong),
    "elements": Foreign(elements, sized("N E", (5, 6), (17, 33), (3, 1)), triangles),
    "spectral": Foreign(spectral, sized("E P Q", (2, 3, 4), (3, 4, 5), (1, 1, 1))),
    "discontinuous": Foreign(
        discontinuous, sized("K P", (4, 3), (17, 5), (1, 1)), lambda g: {**g, "h": np.abs(g["h"]) + 0.5}
    ),
    "neighbours": Foreign(neighbours, sized("N M", (5, 3), (17, 9), (1, 1)), listed),
    "particle_cells": Foreign(particle_cells, sized("N", (9,), (33,), (1,)), lambda g: {**g, "x": g["x"] * 3}),
    "smoothed": Foreign(smoothed, sized("N", (6,), (33,), (1,)), lambda g: {**g, "m": np.abs(g["m"]) + 0.25}),
    "radial": Foreign(radial, sized("N", (7,), (20,), (1,))),
    "shaken": Foreign(shaken, sized("N", (4,), (7,), (2,)), lambda g: {**g, "l": np.abs(g["l"]) + 0.5}),
}
