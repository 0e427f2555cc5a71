"""References of `networks.tsched`."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tests.foreign.references import Array, Foreign, Given, single, sized, within


def bf16(x: Array) -> Array:
    """The nearest number of 8 significant bits."""
    m, e = np.frexp(x)
    return np.ldexp(np.rint(m * 256), e - 8)


def alibi(q: Array, k: Array, v: Array, slope: Array) -> Array:
    t, d = q.shape[1:]
    s = 20 * np.tanh(np.einsum("htd,hud->htu", q, k) / np.sqrt(d) / 20)
    at = np.arange(t)
    s = s - slope[:, None, None] * (at[:, None] - at)
    return bf16(special.softmax(np.where(np.tri(t) > 0, s, -np.inf), 2) @ v)


def paged(q: Array, p: Array, v: Array, page: Array, length: Array) -> Array:
    y = np.zeros_like(q)
    for b in range(len(q)):
        n = length[b]
        keys, values = (x[page[b]].reshape(-1, *x.shape[2:])[:n] for x in (p, v))
        if n:
            s = special.softmax(np.einsum("grd,ngd->grn", q[b], keys) / np.sqrt(q.shape[3]), 2)
            y[b] = np.einsum("grn,ngd->grd", s, values)
    return y


def pages(given: Given) -> Given:
    n, s = given["P"].shape[:2]
    most = given["page"].shape[1] * s
    length = given["length"] % (most + 1)
    length[0] = 0
    return {**given, "page": given["page"] % n, "length": length}


def merged(o: Array, l: Array) -> tuple[Array, Array]:
    return np.einsum("st,std->td", special.softmax(l, 0), o), special.logsumexp(l, 0)


def some_empty(given: Given) -> Given:
    l = given["L"].copy()
    l[0] = -np.inf
    return {**given, "L": l if len(l) > 1 else given["L"]}


def rotated_pairs(x: Array, start: Array, base: Array) -> Array:
    z = x[:, ::2] + 1j * x[:, 1::2]
    d = z.shape[1]
    z = z * np.exp(1j * np.outer(np.arange(len(x)) + start, base ** -(np.arange(d) / d)))
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def bucketed(w: Array) -> Array:
    b = w.shape[1] // 2
    y = np.zeros((len(w), 9, 9))
    for i in range(9):
        for j in range(9):
            n = abs(i - j)
            q = n if n < b // 2 else min(b // 2 + int(np.log2(n / max(b // 2, 1)) * 1.5), b - 1)
            y[:, i, j] = w[:, q + (b if j > i else 0)]
    return y


def delta_net(q: Array, k: Array, v: Array, b: Array) -> Array:
    s, y = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        s = s - b[t] * np.outer(k[t], k[t] @ s) + b[t] * np.outer(k[t], v[t])
        y.append(q[t] @ s)
    return np.array(y)


def wkv(k: Array, v: Array, w: Array, u: Array) -> Array:
    y = np.zeros_like(v)
    for t in range(len(k)):
        weight = np.exp(np.concatenate([k[:t] + w * (np.arange(t)[::-1])[:, None], (u + k[t])[None]]))
        y[t] = (weight * v[: t + 1]).sum(0) / weight.sum(0)
    return y


def decaying(given: Given) -> Given:
    return {**given, "w": -np.abs(given["w"]).astype(np.float32).astype(float)}


def routing(u: Array) -> Array:
    b = np.zeros(u.shape[:2])
    for _ in range(2):
        s = np.einsum("ij,ijd->jd", special.softmax(b, 1), u)
        b = b + np.einsum("ijd,jd->ij", u, s)
    s = np.einsum("ij,ijd->jd", special.softmax(b, 1), u)
    n = (s**2).sum(1, keepdims=True)
    return s * np.sqrt(n) / (1 + n)


def batch_norm_backward(x: Array, g: Array, w: Array) -> tuple[Array, Array, Array]:
    """By the Jacobian of the normalised elements."""
    c = x.shape[1]
    z, d = (a.swapaxes(0, 1).reshape(c, -1) for a in (x, g))
    n = z.shape[1]
    r = 1 / np.sqrt(z.var(1) + single(0.001))
    h = (z - z.mean(1, keepdims=True)) * r[:, None]
    jacobian = r[:, None, None] * (np.eye(n) - 1 / n - np.einsum("ci,cj->cij", h, h) / n)
    dx = w[:, None] * np.einsum("cij,cj->ci", jacobian, d)
    return dx.reshape(c, len(x), -1).swapaxes(0, 1), (d * h).sum(1), d.sum(1)


def rms_norm_backward(x: Array, g: Array, w: Array) -> tuple[Array, Array]:
    n = x.shape[1]
    r = 1 / np.sqrt((x**2).mean(1, keepdims=True) + single(1e-5))
    jacobian = r[:, :, None] * np.eye(n) - np.einsum("mi,mj->mij", x, x) * r[:, :, None] ** 3 / n
    return np.einsum("mij,mj->mi", jacobian, g * w).astype(np.float16).astype(float), (g * x * r).sum(0)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(single(0.7978846) * (x + single(0.044715) * x**3)))


def gelu_backward(x: Array, g: Array) -> tuple[Array, Array]:
    c, a = single(0.7978846), single(0.044715)
    t = np.tanh(c * (x + a * x**3))
    return gelu(x), g * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * c * (1 + single(0.134145) * x**2))


def swiglu(x: Array, g: Array) -> tuple[Array, Array]:
    a, b = np.split(x, 2, 1)
    s = special.expit(a)
    return a * s * b, np.concatenate([g * b * (s + a * s * (1 - s)), g * a * s], 1)


def conv_backward(x: Array, f: Array, g: Array) -> tuple[Array, Array]:
    dx, df = np.zeros_like(x), np.zeros_like(f)
    r, s = f.shape[2:]
    for i in range(g.shape[2]):
        for j in range(g.shape[3]):
            dx[:, :, i : i + r, j : j + s] += np.einsum("bk,kcrs->bcrs", g[:, :, i, j], f)
            df += np.einsum("bk,bcrs->kcrs", g[:, :, i, j], x[:, :, i : i + r, j : j + s])
    return dx, df


def embedding_backward(i: Array, g: Array) -> tuple[Array, Array]:
    w = np.zeros((7, g.shape[1]))
    np.add.at(w, i, g)
    w[2] = 0
    return w, np.bincount(i, minlength=7)


def info_nce(a: Array, b: Array, t: Array) -> Array:
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    s = a @ b.T / t
    return -(np.diag(special.log_softmax(s, 0)) + np.diag(special.log_softmax(s, 1))).mean() / 2


def losses(x: Array, y: Array, z: Array) -> tuple[Array, ...]:
    p = special.expit(np.where(y > 0, x, -x))
    sign, d = np.where(y > 0, 1, -1), x - z
    focal = sign * (2 * p * (1 - p) ** 2 * np.log(p) - (1 - p) ** 3)
    return (
        (-((1 - p) ** 2) * np.log(p)).mean(),
        special.huber(1, d).mean(),
        (-np.log(special.expit(np.where(y > 0, x, -x)))).mean(),
        np.stack([focal, np.clip(d, -1, 1), special.expit(x) - y], 1),
    )


def giou(a: Array, b: Array) -> tuple[Array, Array]:
    y = np.zeros((len(a), len(b)))
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            w, h = np.minimum(p[2:], q[2:]) - np.maximum(p[:2], q[:2])
            both = max(w, 0) * max(h, 0)
            one = np.prod(p[2:] - p[:2]) + np.prod(q[2:] - q[:2]) - both
            around = np.prod(np.maximum(p[2:], q[2:]) - np.minimum(p[:2], q[:2]))
            y[i, j] = both / one - 1 + one / around
    return y, y.argmax(1)


def boxes(given: Given) -> Given:
    return {
        n: np.concatenate([a[:, :2], a[:, :2] + np.abs(a[:, 2:]) + 0.5], 1).astype(np.float32).astype(float)
        for n, a in given.items()
    }


def two_experts(x: Array, r: Array, w: Array) -> tuple[Array, Array]:
    g = x @ r
    y, load = np.zeros((len(x), w.shape[2])), np.zeros(w.shape[0], int)
    for t in range(len(x)):
        top = np.argsort(-g[t], kind="stable")[:2]
        for e, share in zip(top, special.softmax(g[t, top]), strict=True):
            if load[e] < 3:
                y[t] += share * x[t] @ w[e]
                load[e] += 1
    return y, load


def permuted(x: Array, expert: Array) -> tuple[Array, Array]:
    return x[np.argsort(expert, kind="stable")], np.array([(expert < e).sum() for e in range(4)])


def top_p(x: Array, p: Array) -> tuple[Array, Array]:
    q = special.softmax(x, 1)
    y, kept = np.zeros_like(q), np.zeros(len(q), int)
    for b, row in enumerate(q):
        order = np.argsort(-row)
        n = int(np.searchsorted(np.cumsum(row[order]), p, "left")) + 1
        chosen = order[:n]
        y[b, chosen] = row[chosen] / row[chosen].sum()
        kept[b] = len(chosen)
    return y, kept


def w4a8(x: Array, w: Array, sx: Array, sw: Array) -> Array:
    low, high = w & 15, w >> 4
    both = np.stack([low, high], -1).reshape(len(w), -1)
    both = np.where(both < 8, both, both - 16)
    return sx[:, None] * (x @ (both * np.repeat(sw, 4, 1)).T)


def fixed_point(a: Array, mult: Array, shift: Array, zero: Array) -> Array:
    y = np.zeros(a.shape, int)
    for i, j in np.ndindex(*a.shape):
        ab = int(a[i, j]) * int(mult[j])
        nudge = 2**30 if ab >= 0 else 1 - 2**30
        high = abs(ab + nudge) // 2**31 * (1 if ab + nudge >= 0 else -1)
        q = abs(high) / 2 ** int(shift[j])
        rounded = int(np.floor(q + 0.5)) * (1 if high >= 0 else -1)
        y[i, j] = min(max(rounded + int(zero), 0), 255)
    return y


def multipliers(given: Given) -> Given:
    return {
        "A": given["A"] * 977,
        "mult": 2**30 + (given["mult"] + 128) * 4000001,
        "shift": given["shift"] % 10,
        "zero": given["zero"] % 100,
    }


def eighth(x: Array) -> Array:
    s, e, m = x >> 7, x >> 3 & 15, x & 7
    return (-1.0) ** s * np.where(e == 0, m / 8 * 2.0**-6, (1 + m / 8) * 2.0 ** (e - 7))


def dynamic(x: Array, w: Array, s: Array) -> tuple[Array, Array]:
    c = np.maximum(np.abs(x).max(1, keepdims=True), single(1e-4)) / 127
    q = np.rint(x / c)
    return q @ w * c * s, q


def winograd_4(x: Array, f: Array, *_: Array) -> Array:
    return np.einsum("chwrs,kcrs->khw", sliding_window_view(x, (3, 3), (1, 2)), f)


def winograd_matrices(given: Given) -> Given:
    bt = [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
    g = [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
    at = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
    return {**given, "bt": np.array(bt, float), "g": np.array(g), "at": np.array(at, float)}


def disparity(l: Array, r: Array) -> tuple[Array, Array]:
    w = l.shape[1]
    c = np.zeros((5, *l.shape), int)
    at = np.arange(w)
    for d in range(5):
        for s in (-1, 0, 1):
            c[d] += np.abs(l[:, np.clip(at + s, 0, w - 1)] - r[:, np.clip(at + s - d, 0, w - 1)])
    return c.argmin(0), c


NETWORKS = {
    "alibi": Foreign(alibi, sized("H T D", (2, 5, 4), (1, 17, 8), (1, 1, 1))),
    "paged": Foreign(paged, sized("B G R D N S L", (2, 1, 3, 4, 5, 3, 2), (3, 2, 2, 5, 4, 4, 3)), pages),
    "merged": Foreign(merged, sized("S T D", (3, 5, 4), (2, 17, 9), (1, 1, 1)), some_empty),
    "rotated_pairs": Foreign(
        rotated_pairs,
        sized("T D", (5, 3), (17, 8), (1, 1)),
        lambda g: {**g, "start": g["start"] % 9, "base": np.array(100.0)},
    ),
    "bucketed": Foreign(bucketed, sized("H B", (2, 5), (3, 8))),
    "delta_net": Foreign(
        delta_net, sized("T D E", (5, 3, 4), (9, 8, 17), (1, 1, 1)), lambda g: {n: a / 2 for n, a in g.items()}
    ),
    "wkv": Foreign(wkv, sized("T C", (5, 3), (9, 17), (1, 1)), decaying),
    "routing": Foreign(
        routing, sized("I J D", (5, 3, 2), (4, 7, 9), (1, 1, 1)), lambda g: {n: a / 2 for n, a in g.items()}
    ),
    "batch_norm_backward": Foreign(batch_norm_backward, sized("B C L", (3, 2, 5), (2, 5, 17), (2, 1, 1))),
    "rms_norm_backward": Foreign(rms_norm_backward, sized("M N", (3, 5), (7, 33), (1, 1))),
    "gelu_backward": Foreign(gelu_backward, sized("N", (20,), (100,))),
    "swiglu": Foreign(swiglu, sized("M N", (3, 5), (7, 16), (1, 1))),
    "conv_backward": Foreign(conv_backward, sized("B C H W K R S", (2, 3, 5, 6, 2, 3, 2), (1, 2, 9, 7, 4, 2, 3))),
    "embedding_backward": Foreign(embedding_backward, sized("N D", (9, 3), (33, 17), (1, 1)), within(0, 6, "I")),
    "info_nce": Foreign(info_nce, sized("N D", (5, 3), (17, 8), (1, 1)), lambda g: {**g, "t": np.array(0.5)}),
    "losses": Foreign(losses, sized("N", (20,), (100,)), within(0, 1, "y")),
    "giou": Foreign(giou, sized("M N", (5, 7), (17, 9), (1, 1)), boxes),
    "two_experts": Foreign(two_experts, sized("T D E F", (7, 3, 4, 5), (17, 4, 3, 9))),
    "permuted": Foreign(permuted, sized("T D", (7, 3), (33, 9), (1, 1)), within(0, 3, "expert")),
    "top_p": Foreign(top_p, sized("B N", (3, 7), (5, 33), (1, 1)), lambda g: {**g, "p": np.array(0.8)}),
    "w4a8": Foreign(w4a8, sized("M P N", (3, 4, 5), (7, 8, 17), (1, 2, 1))),
    "fixed_point": Foreign(fixed_point, sized("M N", (5, 7), (9, 20), (1, 1)), multipliers),
    "float8": Foreign(
        lambda a, b: eighth(a) @ eighth(b).T,
        sized("M K N", (3, 5, 7), (9, 17, 4), (1, 1, 1)),
        lambda g: {n: np.where(a % 128 == 127, a - 1, a) for n, a in g.items()},
    ),
    "dynamic": Foreign(dynamic, sized("M K N", (3, 5, 7), (9, 33, 16))),
    "winograd_4": Foreign(winograd_4, sized("C H W K", (2, 1, 2, 3), (3, 2, 2, 2)), winograd_matrices),
    "disparity": Foreign(disparity, sized("H W", (3, 9), (5, 20), (1, 1))),
}
