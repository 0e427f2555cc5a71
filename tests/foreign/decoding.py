"""References of `decoding.tsched`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import expit, logsumexp, softmax

from tests.foreign.references import Array, Foreign, Given, single, sized, within


def yarn(x: Array, p: Array, base: Array, scale: Array) -> Array:
    d = x.shape[2] // 2
    f = base ** -(np.arange(d) / d)
    ramp = np.clip((np.arange(d) - 1) / 2, 0, 1)
    a = (p[:, None] * (f / scale * ramp + f * (1 - ramp)))[:, None]
    c, s = (np.float32(t(a)).astype(float) for t in (np.cos, np.sin))
    low, high = x[..., :d], x[..., d:]
    return np.concatenate([low * c - high * s, high * c + low * s], 2)


def kv_append(c: Array, k: Array, length: Array) -> tuple[Array, Array]:
    s = c.shape[1]
    y, after = c.copy(), np.zeros(len(c), np.int64)
    for b in range(len(c)):
        row = np.concatenate([c[b, : length[b]], k[b]])[-s:]
        y[b, : len(row)], after[b] = row, len(row)
    return y, after


def attended(q: Array, k: Array, v: Array, seen: Array, scale: float = 1.0) -> Array:
    s = np.where(seen, q @ np.swapaxes(k, -1, -2) * scale, -np.inf)
    return softmax(s, -1) @ v


def sinks(q: Array, k: Array, v: Array) -> Array:
    t, u = np.ogrid[: q.shape[2], : q.shape[2]]
    seen = (u <= t) & ((u > t - 3) | (u < 2))
    return attended(q, k[:, None], v[:, None], seen, q.shape[3] ** -0.5)


def tree_attention(q: Array, k: Array, v: Array, mask: Array, prefix: Array) -> Array:
    n, p = len(q), len(k) - len(q)
    y = np.zeros_like(q)
    for i in range(n):
        at = [*range(min(p, int(prefix)))] + [p + j for j in range(n) if j == i or int(mask[i]) >> j & 1]
        w = np.exp(q[i] @ k[at].T / np.sqrt(q.shape[1]))
        y[i] = w @ v[at] / (1 + w.sum())
    return y


def packed_sequences(q: Array, k: Array, v: Array, start: Array) -> Array:
    y = np.zeros_like(q)
    for a, b in pairwise(start):
        if b > a:
            s, t, u = (x[a:b].swapaxes(0, 1) for x in (q, k, v))
            y[a:b] = attended(s, t, u, np.tri(b - a, dtype=bool), q.shape[2] ** -0.5).swapaxes(0, 1)
    return y


def lengths(given: Given) -> Given:
    n, t = len(given["start"]), len(given["Q"])
    cuts = np.sort(np.random.default_rng(n).integers(0, t + 1, n - 2))
    return {**given, "start": np.array([0, *cuts, t])}


def block_sparse(q: Array, k: Array, v: Array, at: Array) -> Array:
    y = np.zeros_like(q)
    for n, row in enumerate(at):
        keys = [4 * a + o for a in row if a >= 0 for o in range(4)]
        if keys:
            y[4 * n : 4 * n + 4] = softmax(q[4 * n : 4 * n + 4] @ k[keys].T, 1) @ v[keys]
    return y


def latent_attention(q: Array, r: Array, c: Array, s: Array, u: Array, w: Array) -> Array:
    k, v = np.einsum("tl,lhd->thd", c, u), np.einsum("tl,lhd->thd", c, w)
    t, d, e = len(q), q.shape[2], r.shape[2]
    score = (np.einsum("thd,uhd->htu", q, k) + np.einsum("the,ue->htu", r, s)) / np.sqrt(d + e)
    return np.einsum("htu,uhd->thd", softmax(np.where(np.tri(t, dtype=bool), score, -np.inf), 2), v)


def chunked_states(x: Array, a: Array, b: Array, c: Array) -> Array:
    h = np.zeros((b.shape[1], x.shape[1]))
    y = np.zeros_like(x)
    for t in range(len(x)):
        h = np.exp(a[t]) * h + np.outer(b[t], x[t])
        y[t] = c[t] @ h
    return y


def retention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    h, t, _ = q.shape
    y = np.zeros((h, t, v.shape[2]))
    for n in range(h):
        s = np.zeros((q.shape[2], v.shape[2]))
        for i in range(t):
            s = (1 - 2.0 ** -(5 + n)) * s + np.outer(k[n, i], v[n, i])
            y[n, i] = q[n, i] @ s
    return y, y


def long_convolution(x: Array, g: Array, f: Array, s: Array) -> Array:
    t, d = x.shape
    short = np.stack([np.convolve(x[:, i], s[:, i])[:t] for i in range(d)], 1)
    return g * np.stack([np.convolve(short[:, i], f[:, i])[:t] for i in range(d)], 1) + short


def advantages(r: Array, v: Array, done: Array, old: Array, new: Array) -> tuple[Array, Array]:
    a, last = np.zeros_like(r), np.zeros(r.shape[1])
    for t in range(len(r))[::-1]:
        go = 1.0 - done[t]
        last = r[t] + 0.99 * v[t + 1] * go - v[t] + 0.9405 * go * last
        a[t] = last
    q = np.exp(new - old)
    return a, -np.minimum(q * a, np.clip(q, 0.8, 1.2) * a).mean()


def grouped_experts(logits: Array, bias: Array) -> Array:
    w = np.zeros_like(logits)
    e = logits.shape[1] // 4
    for t, p in enumerate(expit(logits)):
        s = (p + bias).reshape(4, e)
        groups = np.argsort(-np.sort(s, 1)[:, -2:].sum(1), kind="stable")[:2]
        kept = np.array([n for n in range(4 * e) if n // e in groups])
        best = kept[np.argsort(-s.ravel()[kept], kind="stable")[:3]]
        w[t, best] = 2.5 * p[best] / p[best].sum()
    return w


def adapters(x: Array, w: Array, a: Array, b: Array, at: Array) -> Array:
    return np.array([r @ w + (2 * r @ a[i] @ b[i] if i >= 0 else 0) for r, i in zip(x, at, strict=True)])


ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def nibbles(q: Array) -> Array:
    return np.stack([q >> 4 * o & 15 for o in ORDER], -1).reshape(len(q), -1).astype(int)


def awq(x: Array, q: Array, z: Array, s: Array) -> Array:
    groups = np.arange(len(q)) // 4
    return x @ ((nibbles(q) - nibbles(z)[groups]) * s[groups])


def nf4(x: Array, w: Array, level: Array, s: Array, t: Array, offset: Array) -> Array:
    codes = np.stack([w >> 4, w & 15], -1).reshape(len(w), -1)
    scale = np.repeat(s * t[:, None] + offset, 4, 1)
    return x @ (level[codes] * scale).T


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(a: Array, sa: Array, b: Array, sb: Array) -> Array:
    def wide(codes: Array, scale: Array) -> Array:
        c = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
        return np.where(c >= 8, -1, 1) * E2M1[c & 7] * np.repeat(2.0 ** (scale.astype(int) - 127), 8, 1)

    return wide(a, sa) @ wide(b, sb).T


def ternary(x: Array, w: Array, s: Array, t: Array) -> Array:
    digits = np.stack([w // 3**k % 3 for k in range(5)], -1).reshape(len(w), -1).astype(int) - 1
    return x @ digits.T * s[:, None] * t


def norm_to_bytes(x: Array, r: Array, w: Array) -> tuple[Array, Array, Array]:
    s = x + r
    y = s / np.sqrt((s**2).mean(1, keepdims=True) + single(1e-6)) * w
    scale = np.maximum(np.abs(y).max(1), single(1e-4)) / 127
    return s, np.round(y / scale[:, None]), scale


def processed(x: Array, seen: Array, penalty: Array, temperature: Array, share: Array) -> tuple[Array, Array]:
    y = x.copy()
    for row, words in zip(y, seen, strict=True):
        for v in np.unique(words):
            if 0 <= v < len(row):
                row[v] = row[v] / penalty if row[v] > 0 else row[v] * penalty
    p = softmax(y / temperature, 1)
    p = np.where(p >= share * p.max(1, keepdims=True), p, 0)
    return p / p.sum(1, keepdims=True), (p > 0).sum(1)


def gumbel(x: Array, seed: Array) -> tuple[Array, Array]:
    h = ((np.arange(x.size, dtype=np.uint64) + int(seed)) * 2654435769) & 0xFFFFFFFF
    h = ((h ^ h >> 15) * 2246822519) & 0xFFFFFFFF
    h = ((h ^ h >> 13) * 3266489917) & 0xFFFFFFFF
    u = ((h ^ h >> 16).astype(float).reshape(x.shape) + 0.5) / 2.0**32
    return (x - np.log(-np.log(u))).argmax(1), u


def beams(s: Array, logits: Array) -> tuple[Array, Array, Array]:
    b, w, v = logits.shape
    c = (s[:, :, None] + logits).reshape(b, -1)
    at = np.argsort(-c, 1, kind="stable")[:, :w]
    return np.take_along_axis(c, at, 1), at % v, at // v


def verified(p: Array, q: Array, guess: Array, u: Array) -> tuple[Array, Array]:
    n, r = np.zeros(len(p), np.int64), np.zeros((len(p), p.shape[2]))
    for b in range(len(p)):
        while n[b] < q.shape[1] and u[b, n[b]] * q[b, n[b], guess[b, n[b]]] < p[b, n[b], guess[b, n[b]]]:
            n[b] += 1
        rest = p[b, n[b]] - (q[b, n[b]] if n[b] < q.shape[1] else 0)
        r[b] = np.maximum(rest, 0) / np.maximum(rest, 0).sum()
    return n, r


def distributions(given: Given) -> Given:
    v = given["p"].shape[2]
    return {
        "p": softmax(given["p"], 2), "q": softmax(given["q"], 2), "guess": given["guess"] % v,
        "u": np.abs(given["u"]) % 1,
    }  # fmt: skip


def parted_loss(x: Array, y: Array) -> tuple[Array, Array]:
    flat = x.reshape(len(x), -1)
    logs = logsumexp(flat, 1)
    one = np.eye(flat.shape[1])[y]
    loss = (logs - (flat * one).sum(1) + single(0.0001) * logs**2).mean()
    g = (softmax(flat, 1) * (1 + single(0.0002) * logs[:, None]) - one) / len(x)
    return loss, g.reshape(x.shape)


def preference(a: Array, b: Array, ra: Array, rb: Array, la: Array, lb: Array) -> tuple[Array, Array]:
    t = np.arange(a.shape[1])
    d = np.where(t < la[:, None], a - ra, 0).sum(1) - np.where(t < lb[:, None], b - rb, 0).sum(1)
    return np.logaddexp(0, -0.1 * d).mean(), (d > 0).mean()


def muon(w: Array, g: Array, b: Array) -> tuple[Array, Array]:
    c = 0.95 * b + g * min(1, 1 / (np.linalg.norm(g) + 1e-6))
    x = c / (np.linalg.norm(c) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x - 4.775 * a @ x + 2.0315 * a @ a @ x
    return w - 0.02 * x, c


DECODING = {
    "yarn": Foreign(
        yarn,
        sized("T H D", (4, 2, 3), (9, 3, 17), (1, 1, 1)),
        lambda g: {**g, "base": np.array(10000.0), "scale": np.array(4.0)},
    ),
    "kv_append": Foreign(
        kv_append,
        sized("B S D T", (3, 7, 2, 3), (5, 33, 9, 4), (1, 1, 1, 1)),
        lambda g: {**g, "length": g["length"] % (g["C"].shape[1] + 1)},
    ),
    "sinks": Foreign(sinks, sized("G R T D", (2, 2, 7, 3), (1, 3, 20, 9), (1, 1, 1, 1))),
    "tree_attention": Foreign(
        tree_attention,
        sized("N D P", (4, 3, 5), (9, 17, 8), (1, 1, 1)),
        lambda g: {**g, "prefix": np.array(3)},
    ),
    "packed_sequences": Foreign(packed_sequences, sized("T H D B", (8, 2, 3, 3), (20, 1, 9, 5), (1, 1, 1, 1)), lengths),
    "block_sparse": Foreign(
        block_sparse,
        sized("N D M L", (2, 3, 3, 2), (4, 9, 5, 3), (1, 1, 1, 1)),
        lambda g: {**g, "at": np.argsort(g["at"], 1) - (np.arange(len(g["at"])) % 2)[:, None]},
    ),
    "latent_attention": Foreign(
        latent_attention, sized("T H D E L", (5, 2, 3, 2, 4), (9, 3, 4, 5, 7), (1, 1, 1, 1, 1))
    ),
    "chunked_states": Foreign(
        chunked_states,
        sized("N P S", (2, 3, 2), (5, 4, 7), (1, 1, 1)),
        lambda g: {**g, "a": -np.abs(g["a"])},
    ),
    "retention": Foreign(retention, sized("H T D E", (2, 5, 3, 4), (3, 17, 4, 9), (1, 1, 1, 1))),
    "long_convolution": Foreign(long_convolution, sized("T D", (7, 2), (33, 5), (1, 1))),
    "advantages": Foreign(advantages, sized("T N", (6, 2), (17, 20), (1, 1))),
    "grouped_experts": Foreign(grouped_experts, sized("T E", (3, 4), (5, 8), (1, 3))),
    "adapters": Foreign(
        adapters, sized("T K N S R", (4, 5, 3, 3, 2), (7, 17, 20, 4, 5), (1, 1, 1, 1, 1)), within(-1, 0, "id")
    ),
    "awq": Foreign(awq, sized("M K N", (3, 2, 1), (2, 3, 3), (1, 1, 1))),
    "nf4": Foreign(nf4, sized("M P N", (3, 2, 2), (5, 4, 17), (1, 1, 1))),
    "mxfp4": Foreign(
        mxfp4,
        sized("M P N", (3, 8, 2), (5, 12, 17), (1, 4, 1)),
        lambda g: {**g, "a": g["a"] % 9 + 123, "b": g["b"] % 9 + 123},
    ),
    "ternary": Foreign(ternary, sized("M P N", (3, 2, 4), (5, 7, 17), (1, 1, 1)), within(0, 242, "W")),
    "norm_to_bytes": Foreign(norm_to_bytes, sized("M N", (3, 8), (5, 33), (1, 1))),
    "processed": Foreign(
        processed,
        sized("B V T", (2, 7, 3), (3, 33, 9), (1, 1, 1)),
        lambda g: {
            **g,
            "seen": g["seen"] % 7,
            "penalty": np.array(1.3),
            "temperature": np.array(0.7),
            "share": np.array(0.2),
        },
    ),
    "gumbel": Foreign(gumbel, sized("B V", (3, 7), (5, 33), (1, 1))),
    "beams": Foreign(beams, sized("B W V", (2, 3, 5), (1, 4, 9), (1, 1, 1))),
    "verified": Foreign(verified, sized("B T V", (3, 4, 5), (5, 7, 17), (1, 1, 2)), distributions),
    "parted_loss": Foreign(
        parted_loss,
        sized("N P V", (4, 2, 3), (7, 3, 17), (1, 1, 1)),
        lambda g: {**g, "y": g["y"] % (g["X"].shape[1] * g["X"].shape[2])},
    ),
    "preference": Foreign(preference, sized("N T", (4, 5), (7, 17), (1, 1)), within(0, 6, "la", "lb")),
    "muon": Foreign(muon, sized("M N", (3, 4), (4, 7), (1, 1))),
}
