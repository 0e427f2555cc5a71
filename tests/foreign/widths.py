"""References of `widths.tsched`."""

from __future__ import annotations

import numpy as np

from tests.foreign.references import Array, Foreign, Given, single, sized


def wrapped(x: Array, bits: int, signed: bool = True) -> Array:
    x = np.asarray([int(v) % 2**bits for v in np.asarray(x, object).ravel()], object).reshape(np.shape(x))
    if signed:
        x = np.where(x >= 2 ** (bits - 1), x - 2**bits, x)
    return np.asarray(x, np.int64)


def sums(a: Array, b: Array, c: Array, d: Array, e: Array) -> tuple[Array, ...]:
    o = [x.astype(object) for x in (a, b, c, d, e)]
    return (
        wrapped((o[0] * o[0]).sum(1), 8),
        wrapped(o[1].prod(1), 8, False),
        wrapped((o[2] * 277).sum(1), 16),
        wrapped((o[3] * 40503).sum(0), 16, False),
        wrapped((o[4] * 6364136223846793005).sum(), 64),
    )


def extremes(a: Array, b: Array, c: Array, d: Array, e: Array) -> tuple[Array, ...]:
    return (
        wrapped(-a, 8).max(1),
        ((b + 200) % 256).min(0),
        (2**32 - 1 - c).max(1),
        np.abs(d).max(0),
        e.argmax(1),
        np.asarray((e | (a > 0)).all(0)),
    )


def mixed_product(a: Array, b: Array, s: Array) -> tuple[Array, Array]:
    c = a @ b * s
    return c, (c / 64).astype(np.float16).astype(float)


def to_int(x: Array, bits: int, signed: bool) -> Array:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return np.clip(np.trunc(x), low, high).astype(np.int64)


def bf16(x: Array) -> Array:
    """The nearest number of 8 significant bits."""
    m, e = np.frexp(x)
    return np.ldexp(np.rint(m * 256), e - 8)


def conversions(x: Array, y: Array, k: Array, u: Array) -> tuple[Array, ...]:
    with np.errstate(over="ignore"):
        return (
            to_int(x * 100, 8, True),
            to_int(x * 50000, 16, False),
            (k * 600).astype(np.float16).astype(float),
            wrapped(k * 1000, 16),
            bf16(u.astype(np.float64)),
            (k * 72057594037927 + 1).astype(np.float32).astype(float),
            to_int(y * 10, 8, False),
            wrapped(u, 32),
        )


def shift(x: Array, s: Array, bits: int, left: bool, signed: bool = True) -> Array:
    out = []
    for v, n in zip(x.tolist(), s.tolist(), strict=True):
        if left:
            out.append(0 if not 0 <= n < bits else v << n)
        else:
            out.append((-1 if v < 0 else 0) if not 0 <= n < bits else v >> n)
    return wrapped(np.array(out, object), bits, signed)


def shifts(x: Array, y: Array, z: Array, s: Array, t: Array, w: Array) -> tuple[Array, ...]:
    return (
        shift(x, s, 8, True),
        shift(x, s, 8, False),
        shift(y, t, 16, True, False),
        shift(y, t, 16, False, False),
        shift(z, w, 64, True),
        shift(z, w, 64, False),
    )


def places(given: Given) -> Given:
    return {
        **given,
        "s": given["s"] % 12 - 2,
        "t": given["t"] % 20,
        "w": given["w"] % 70 - 3,
        "z": given["z"] * 36028797018963968 + given["z"],
    }


def divisions(x: Array, y: Array, u: Array, v: Array, p: Array, q: Array) -> tuple[Array, ...]:
    zero = lambda a, b, f: np.array([f(int(i), int(j)) if j else 0 for i, j in zip(a, b, strict=True)], object)  # noqa: E731
    floor, mod = (lambda i, j: i // j), (lambda i, j: i % j)
    return (
        wrapped(zero(x, y, floor), 64),
        zero(x, y, mod).astype(np.int64),
        zero(u, v, floor).astype(np.int64),
        zero(u, v, mod).astype(np.int64),
        np.mod(p, q),
    )


def edges(given: Given) -> Given:
    x, y = given["x"] * 2**55, given["y"] % 7 - 3
    x[0], y[0] = -(2**63), -1
    q = np.where(np.abs(given["q"]) < 0.25, 0.25, given["q"]).astype(np.float32).astype(float)
    return {**given, "x": x, "y": y, "u": given["u"] * 16777215 % 2**32, "v": given["v"] % 5, "q": q}


def narrow_scans(x: Array, h: Array, b: Array) -> tuple[Array, ...]:
    z, c = h.copy(), b.copy()
    for t in range(1, len(h)):
        z[t] += 0.5 * z[t - 1]
        c[t] = (c[t - 1] * 3 + b[t]) % 256
    return np.logical_xor.accumulate(x, 0), z, c


def from_all(x: Array) -> tuple[Array, Array]:
    s = 127 / max(np.abs(x).max(), single(1e-6))
    return np.rint(x * s) / s, (np.abs(x) * s >= 63.5).sum()


def strided(x: Array, f: Array, stride: int = 2, pad: int = 1, dilation: int = 2) -> Array:
    p = np.pad(x, [(0, 0), (pad, pad), (0, 0)])
    m = (p.shape[1] - dilation * (len(f) - 1) - 1) // stride + 1
    return np.stack([sum(p[:, i * stride + k * dilation] @ f[k] for k in range(len(f))) for i in range(m)], 1)


def called(x: Array, f: Array, g: Array) -> Array:
    return strided(np.maximum(strided(x, f, pad=2), 0), g, 1, 0, 1).max(1)


def five(a: Array) -> tuple[Array, Array]:
    q, s = a.shape[1], a.shape[3]
    w = np.add.outer(np.arange(q) * 3, np.arange(s))
    return np.einsum("pqrst,qs->trp", a, w), a[:, :, ::-1].transpose(3, 1, 4, 2, 0)


N = sized("N", (7,), (33,), (1,))
MN = sized("M N", (5, 7), (9, 20), (1, 1))
WIDTHS = {
    "sums": Foreign(sums, MN),
    "extremes": Foreign(extremes, MN),
    "mixed_product": Foreign(mixed_product, sized("M K N", (5, 7, 3), (9, 16, 17), (1, 1, 1))),
    "conversions": Foreign(conversions, N, lambda g: {**g, "u": g["u"] * 16843009 % 2**32}),
    "shifts": Foreign(shifts, N, places),
    "divisions": Foreign(divisions, N, edges),
    "narrow_scans": Foreign(narrow_scans, sized("T N", (5, 7), (9, 20), (1, 1))),
    "own": Foreign(lambda x, k: (np.abs(x).max(0), np.bitwise_and.reduce(k, 1)), MN),
    "from_all": Foreign(from_all, MN),
    "strided": Foreign(strided, sized("B N C K D", (2, 9, 3, 3, 4), (1, 20, 2, 2, 17), (1, 1, 1, 1, 1))),
    "called": Foreign(called, sized("B N C D E", (2, 9, 3, 4, 5), (1, 14, 2, 9, 3))),
    "five": Foreign(five, sized("P Q R S T", (2, 3, 4, 3, 2), (3, 2, 5, 4, 3), (1, 1, 1, 1, 1))),
}
