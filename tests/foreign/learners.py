"""References of `learners.tsched`."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, lpmv, ndtr

from tests.foreign.references import Array, Foreign, Given, sized


def baum_welch(p: Array, a: Array, b: Array, o: Array) -> tuple[Array, Array, Array]:
    t = len(o)
    f, g = [p * b[:, o[0]]], [np.ones(len(p))]
    for k in range(1, t):
        f.append(f[-1] @ a * b[:, o[k]])
        g.append(a @ (b[:, o[t - k]] * g[-1]))
    g = g[::-1]
    z = f[-1].sum()
    x = sum((np.outer(f[k], b[:, o[k + 1]] * g[k + 1]) * a for k in range(t - 1)), np.zeros_like(a))
    gamma = np.array(f) * np.array(g)
    seen = np.eye(b.shape[1])[o]
    with np.errstate(invalid="ignore"):
        return x / x.sum(1, keepdims=True), gamma.T @ seen / gamma.sum(0)[:, None], np.log(z)


def chances(given: Given) -> Given:
    out = {n: np.abs(x) + 0.25 for n, x in given.items() if n != "o"}
    return {**{n: x / x.sum(-1, keepdims=True) for n, x in out.items()}, "o": given["o"] % given["B"].shape[1]}


def smoother(z: Array, q: Array, r: Array) -> tuple[Array, Array]:
    x, v = [z[0]], [r]
    for row in z[1:]:
        k = (v[-1] + q) / (v[-1] + q + r)
        x.append(x[-1] + k * (row - x[-1]))
        v.append((1 - k) * (v[-1] + q))
    s, p = [x[-1]], [v[-1]]
    for t in range(len(z) - 2, -1, -1):
        c = v[t] / (v[t] + q)
        s.append(x[t] + c * (s[-1] - x[t]))
        p.append(v[t] + c * c * (p[-1] - v[t] - q))
    return np.array(s[::-1]), np.array(p[::-1])


def resampled_particles(w: Array, x: Array, u: Array) -> tuple[Array, Array, Array]:
    c = np.cumsum(w / w.sum())
    at = np.array([(c < (k + u) / len(w)).sum() for k in range(len(w))])
    return x[np.minimum(at, len(w) - 1)], at, w.sum() ** 2 / (w**2).sum()


def density(x: Array) -> Array:
    """That of the standard normal distribution."""
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def mixture_step(x: Array, m: Array, v: Array, w: Array) -> tuple[Array, ...]:
    p = np.array(
        [k * density((x - a) / np.sqrt(b)).prod(1) / np.sqrt(b.prod()) for a, b, k in zip(m, v, w, strict=True)]
    ).T
    r = p / p.sum(1, keepdims=True)
    c = r.sum(0)
    m1 = r.T @ x / c[:, None]
    v1 = np.array([r[:, k] @ (x - m1[k]) ** 2 / c[k] for k in range(len(w))]) + 0.001
    return m1, v1, c / len(x), np.log(p.sum(1)).sum()


def forest(x: Array, f: Array, limit: Array, leaf: Array) -> Array:
    y = np.zeros(len(x))
    for n, row in enumerate(x):
        for t in range(len(f)):
            node = 0
            for _ in range(3):
                node = 2 * node + 1 + int(row[f[t, node]] > limit[t, node])
            y[n] += leaf[t, node - 7]
    return y


def nearest_votes(x: Array, y: Array, q: Array) -> tuple[Array, Array]:
    votes = np.array([
        np.bincount(y[np.argsort(((x - r) ** 2).sum(1), kind="stable")[:3]], minlength=3) for r in q
    ])  # fmt: skip
    return votes.argmax(1), votes


def logistic_step(x: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
    z = x @ w
    p = expit(z)
    return (p - y) @ x, (p * (1 - p)) @ x**2, np.logaddexp(0, np.where(y, -z, z)).sum()


def coordinate_descent(a: Array, b: Array, penalty: Array) -> Array:
    w = np.zeros(len(b))
    for _ in range(2):
        for d in range(len(b)):
            r = b[d] - a[d] @ w + a[d, d] * w[d]
            w[d] = np.sign(r) * max(abs(r) - penalty, 0) / a[d, d]
    return w


def embedding_forces(p: Array, y: Array) -> tuple[Array, Array]:
    d = y[:, None] - y
    q = 1 / (1 + (d**2).sum(2))
    np.fill_diagonal(q, 0)
    share = q / q.sum() if q.sum() else q
    off = ~np.eye(len(p), dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = (p[off] * np.log(p[off] / share[off])).sum()
    return 4 * np.einsum("ij,ij,ijc->ic", p - share, q, d), kl


def skip_grams(w: Array, c: Array, word: Array, near: Array, chance: Array) -> tuple[Array, Array]:
    loss, g = 0.0, np.zeros_like(w)
    for i, j, rest in zip(word, near, chance, strict=True):
        s = w[i] @ c[j]
        loss += np.logaddexp(0, -s)
        g[i] += (expit(s) - 1) * c[j]
        for k in rest:
            loss += np.logaddexp(0, w[i] @ c[k])
            g[i] += expit(w[i] @ c[k]) * c[k]
    return np.array(loss / len(word)), g


def ranked_documents(f: Array, q: Array) -> tuple[Array, Array]:
    n = len(f)
    has = (f > 0).sum(0)
    idf = np.log(1 + (n - has + 0.5) / (has + 0.5))
    length = f.sum(1)
    mean = max(length.sum() / n, 1)
    s = (idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * length[:, None] / mean)))[:, q].sum(1)
    return s, s.argmax()


def binomial_tree(s: Array, strike: Array, up: Array, p: Array, discount: Array) -> Array:
    def price(x: Array, t: int, j: int) -> Array:
        pays = strike - x * up ** (2 * j - t)
        if t == 6:
            return np.maximum(pays, 0)
        return np.maximum(pays, discount * (p * price(x, t + 1, j + 1) + (1 - p) * price(x, t + 1, j)))

    return np.array([price(x, 0, 0) for x in s])


def heston(z: Array, s: Array, v: Array) -> tuple[Array, Array, Array]:
    n = z.shape[2]
    x, u = np.full(n, s), np.full(n, v)
    path = [x]
    for a, b in z:
        k = np.maximum(u, 0)
        x = x * np.exp(0.02 - 0.05 * k + np.sqrt(k * 0.1) * a)
        u = u + 0.15 * (0.04 - k) + 0.3 * np.sqrt(k * 0.1) * (-0.7 * a + 0.714142842854285 * b)
        path.append(x)
    mean = np.mean(path[1:], 0)
    return mean, np.max(path, 0), np.maximum(mean - s, 0).mean()


def implied(c: Array, k: Array) -> Array:
    v = np.full(len(c), 0.5)
    for _ in range(6):
        d = 0.5 * v - np.log(k) / v
        price = ndtr(d) - k * ndtr(d - v)
        v = np.clip(v - (price - c) / np.maximum(density(d), 0.001), 0.01, 3)
    return v


def harmonics(x: Array, c: Array) -> tuple[Array, Array]:
    p = np.array([[lpmv(m, n, x) if m <= n else 0 * x for m in range(5)] for n in range(5)])
    return p, np.polynomial.chebyshev.chebval(x, c)


def descent(given: Given) -> Given:
    a = given["A"] @ given["A"].T
    return {"A": a + np.eye(len(a)), "b": given["b"], "penalty": np.array(0.3)}


def numbers(**known: float):
    return lambda given: {**given, **{n: np.array(x) for n, x in known.items()}}


LEARNERS = {
    "baum_welch": Foreign(baum_welch, sized("S V T", (3, 4, 4), (5, 3, 8), (1, 1, 1)), chances),
    "smoother": Foreign(smoother, sized("T N", (5, 2), (9, 17), (1, 1)), numbers(q=0.3, r=0.7)),
    "resampled_particles": Foreign(
        resampled_particles,
        sized("N D", (5, 2), (33, 3), (1, 1)),
        lambda g: {"w": np.abs(g["w"]) + 0.01, "X": g["X"], "u": np.array(0.37)},
    ),
    "mixture_step": Foreign(
        mixture_step,
        sized("N D K", (7, 2, 3), (33, 3, 2), (1, 1, 1)),
        lambda g: {"X": g["X"], "m": g["m"], "v": np.abs(g["v"]) + 0.5, "w": np.abs(g["w"]) + 0.1},
    ),
    "forest": Foreign(
        forest, sized("N D T", (5, 3, 2), (17, 9, 5), (1, 1, 1)), lambda g: {**g, "f": g["f"] % g["X"].shape[1]}
    ),
    "nearest_votes": Foreign(
        nearest_votes, sized("N D M", (7, 2, 4), (33, 3, 9), (3, 1, 1)), lambda g: {**g, "y": g["y"] % 3}
    ),
    "logistic_step": Foreign(logistic_step, sized("N D", (7, 3), (33, 9), (1, 1))),
    "coordinate_descent": Foreign(coordinate_descent, sized("D", (4,), (9,), (1,)), descent),
    "embedding_forces": Foreign(embedding_forces, sized("N", (5,), (17,), (2,)), lambda g: {**g, "P": np.abs(g["P"])}),
    "skip_grams": Foreign(
        skip_grams,
        sized("V D N K", (5, 3, 4, 2), (9, 17, 7, 3), (1, 1, 1, 1)),
        lambda g: {n: x % len(g["W"]) if n in ("word", "near", "chance") else x for n, x in g.items()},
    ),
    "ranked_documents": Foreign(
        ranked_documents, sized("N V", (5, 4), (17, 33), (1, 1)), lambda g: {**g, "F": np.maximum(g["F"] % 7 - 3, 0)}
    ),
    "binomial_tree": Foreign(
        binomial_tree,
        sized("N", (5,), (17,), (1,)),
        lambda g: {**numbers(strike=1.0, up=1.1, p=0.52, discount=0.99)(g), "S": np.abs(g["S"]) + 0.25},
    ),
    "heston": Foreign(heston, sized("N", (5,), (33,), (1,)), numbers(s=1.0, v=0.04)),
    "implied": Foreign(
        implied,
        sized("N", (5,), (17,), (1,)),
        lambda g: {n: np.abs(x) % 0.5 + 0.5 * (n == "K") + 0.1 for n, x in g.items()},
    ),
    "harmonics": Foreign(harmonics, sized("N", (5,), (33,), (1,)), lambda g: {**g, "x": np.cos(g["x"])}),
}
