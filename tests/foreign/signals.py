"""References of `signals.tsched`."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy import fft, linalg, signal

from tests.foreign.references import Array, Foreign, Given, single, sized


def fft_8(x: Array) -> Array:
    z = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
    return np.stack([z.real, z.imag], -1)


def wavelet(x: Array) -> tuple[Array, Array, Array]:
    n = len(x)
    y = [int(v) for v in x]
    mirrored = lambda i: i if 0 <= i < n else (-i if i < 0 else 2 * (n - 1) - i)  # noqa: E731
    for i in range(1, n, 2):
        y[i] -= (y[i - 1] + y[mirrored(i + 1)]) // 2
    for i in range(0, n, 2):
        y[i] += (y[mirrored(i - 1)] + y[mirrored(i + 1)] + 2) // 4
    return np.array(y[::2]), np.array(y[1::2]), x


def cic(x: Array) -> Array:
    boxes = x.astype(np.int64)
    for _ in range(3):
        boxes = np.convolve(boxes, np.ones(4, np.int64))[: len(x)]
    return boxes[3::4].astype(np.int16)


def resampled(x: Array, h: Array) -> Array:
    up = np.zeros(3 * len(x))
    up[::3] = x
    return np.convolve(up, h)[: 2 * (3 * len(x) // 2) : 2]


def lms(x: Array, d: Array) -> Array:
    w, e = np.zeros(4), list[Array]()
    past = np.concatenate([np.zeros(3), x])
    for t in range(len(x)):
        u = past[t : t + 4][::-1]
        e.append(d[t] - w @ u)
        w = w + 0.05 * e[-1] * u
    return np.array(e)


def kalman(z: Array, q: Array, r: Array) -> tuple[Array, Array]:
    x, p = [z[0]], [np.array(1.0)]
    for v in z[1:]:
        prior = p[-1] + q
        gain = prior / (prior + r)
        x.append(x[-1] + gain * (v - x[-1]))
        p.append((1 - gain) * prior)
    return np.array(x), np.array(p)


def noisy(given: Given) -> Given:
    return {**given, "q": np.array(0.1), "r": np.array(0.5)}


def envelope(x: Array) -> Array:
    x = np.abs(x)
    e = [x[:, 0]]
    for v in x.T[1:]:
        e.append(np.where(v > e[-1], e[-1] + 0.5 * (v - e[-1]), 0.9375 * e[-1]))
    return np.array(e).T


def adpcm(code: Array, table: Array, move: Array) -> Array:
    value, index, out = 0, 0, []
    for c in map(int, code):
        step = int(table[index])
        change = (2 * (c & 7) + 1) * step // 8
        value = max(-32768, min(32767, value + (-change if c & 8 else change)))
        index = max(0, min(len(table) - 1, index + int(move[c & 7])))
        out.append(value)
    return np.array(out)


def table(given: Given) -> Given:
    k = len(given["table"])
    return {
        "code": given["code"] % 16,
        "table": np.array([int(7 * 1.6**i) for i in range(k)]),
        "move": np.array([-1, -1, -1, -1, 2, 4, 6, 8]),
    }


def convolutional(bit: Array, noise: Array) -> tuple[Array, Array, Array]:
    def coded(bits: Array) -> Array:
        p = np.concatenate([[0, 0], bits])
        return np.stack([p[2:] ^ p[1:-1] ^ p[:-2], p[2:] ^ p[:-2]], 1)

    out = coded(bit)
    seen = out.copy()
    seen[:, 0] ^= noise
    n = len(bit)
    cost, _ = min((int((coded(np.array(b)) != seen).sum()), b) for b in product([0, 1], repeat=n))
    # which of the best paths is taken is the decoder's choice: the lowest state at the end, the lowest at each step
    m = np.full((n + 1, 4), 99)
    m[0, 0] = 0
    choice = np.zeros((n, 4), int)
    for t in range(n):
        for s in range(4):
            new, before = s >> 1, [(s & 1) * 2, (s & 1) * 2 + 1]
            costs = [
                m[t, p] + int((new ^ (p >> 1) ^ (p & 1)) != seen[t, 0]) + int((new ^ (p & 1)) != seen[t, 1])
                for p in before
            ]
            choice[t, s] = int(costs[1] < costs[0])
            m[t + 1, s] = min(costs)
    assert m[n].min() == cost
    s, back = int(m[n].argmin()), np.zeros(n, int)
    for t in reversed(range(n)):
        back[t] = s >> 1
        s = (s & 1) * 2 + choice[t, s]
    return out, np.array(cost), back


def bits(given: Given) -> Given:
    return {"bit": given["bit"] % 2, "noise": given["noise"] % 5 // 4}


def jpeg(x: Array, q: Array) -> Array:
    b = (x - 128.0).reshape(x.shape[0] // 8, 8, x.shape[1] // 8, 8).swapaxes(1, 2)
    return np.rint(fft.dctn(b, axes=(2, 3), norm="ortho") / q).astype(int)


def spectrogram(x: Array, w: Array) -> Array:
    frames = np.lib.stride_tricks.sliding_window_view(x, len(w))[::3] * w
    n, k = np.arange(len(w)), np.arange(len(w) // 2 + 1)
    a = single(6.2831855) * (np.outer(n, k) % len(w)) / len(w)
    return (frames @ np.cos(a)) ** 2 + (frames @ np.sin(a)) ** 2


def overlap_add(f: Array, w: Array) -> Array:
    y = np.zeros((len(f) - 1) * 3 + len(w))
    g = np.zeros_like(y)
    for t, frame in enumerate(f):
        y[3 * t : 3 * t + len(w)] += frame * w
        g[3 * t : 3 * t + len(w)] += w * w
    return y / np.maximum(g, single(1e-6))


def running_extremes(x: Array) -> tuple[Array, Array]:
    v = np.lib.stride_tricks.sliding_window_view(x, 5)
    return v.min(1), v.max(1)


def sigma_delta(x: Array) -> Array:
    a = b = 0.0
    y, out = 0.0, []
    for v in x:
        a0, y0 = a, y
        a = a0 + v - y0
        b = b + a0 + v - 2 * y0
        y = 1.0 if b >= 0 else -1.0
        out.append(y)
    return np.array(out)


def mu_law(x: Array) -> tuple[Array, Array]:
    c = np.floor((np.sign(x) * np.log(1 + 255 * np.minimum(np.abs(x), 1)) / np.log(256) + 1) * 127.5)
    d = c / 127.5 - 1
    return c, np.copysign((256 ** np.abs(d) - 1) / 255, c - 127.5)


def small(given: Given) -> Given:
    return {n: np.tanh(a) / 2 for n, a in given.items()}


def goertzel(x: Array, w: Array) -> Array:
    n = np.arange(x.shape[1])
    return np.abs(np.einsum("cn,nf->cf", x, np.exp(-1j * np.outer(n, w)))) ** 2


N = sized("N", (7,), (33,), (1,))
T = sized("T", (7,), (33,), (1,))
SIGNALS = {
    "walsh": Foreign(lambda x: linalg.hadamard(16) @ x, sized("N", (16,))),
    "fft_8": Foreign(fft_8, sized("B", (3,), (17,), (1,))),
    "wavelet": Foreign(wavelet, N),
    "cic": Foreign(cic, sized("M", (5,), (17,), (1,))),
    "resampled": Foreign(resampled, sized("N T", (9, 4), (20, 3), (2, 1))),
    "biquads": Foreign(
        lambda x, b, a: signal.lfilter(b, np.concatenate([[1], a]), x), T, lambda g: {**g, "a": np.array([0.5, -0.25])}
    ),
    "lms": Foreign(lms, T),
    "kalman": Foreign(kalman, T, noisy),
    "envelope": Foreign(envelope, sized("C T", (3, 9), (17, 20), (1, 1))),
    "adpcm": Foreign(adpcm, sized("T K", (20, 12), (40, 20)), table),
    "convolutional": Foreign(convolutional, sized("T", (7,), (11,)), bits),
    "jpeg": Foreign(jpeg, sized("H W", (2, 3), (1, 1)), lambda g: {**g, "Q": np.abs(g["Q"]) * 7 + 3}),
    "spectrogram": Foreign(spectrogram, sized("N L", (20, 7), (40, 16), (1, 1))),
    "overlap_add": Foreign(overlap_add, sized("T L", (4, 7), (9, 16), (1, 1))),
    "running_extremes": Foreign(running_extremes, sized("B", (4,), (9,), (1,))),
    "sigma_delta": Foreign(sigma_delta, T, small),
    "mu_law": Foreign(mu_law, N, small),
    "goertzel": Foreign(goertzel, sized("C N F", (2, 8, 3), (3, 19, 17), (1, 0, 1))),
}
