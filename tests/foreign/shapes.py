"""References of `shapes.tsched`."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.foreign.references import Array, Foreign, Given, sized
from tests.foreign.sparse import starts


def moved_windows(x: Array) -> tuple[Array, Array]:
    b, h, w, c = x.shape
    y = np.roll(x, (-1, -1), (1, 2)).reshape(b, h // 3, 3, w // 2, 2, c)
    return y.transpose(0, 1, 3, 2, 4, 5).reshape(-1, 6, c), x


def patches(x: Array, p: Array, first: Array, place: Array) -> Array:
    c, h, w = x.shape
    rows = x.reshape(c, h // 2, 2, w // 2, 2).transpose(1, 3, 0, 2, 4).reshape(h * w // 4, -1)
    return np.concatenate([first[None], rows @ p]) + place


def nothing(x: Array, f: Array) -> tuple[Array, ...]:
    y = sliding_window_view(x, len(f)) @ f if len(f) <= len(x) else np.zeros(0)
    return y, y.sum(), y.max(initial=-np.inf), y.prod()


def coordinates(i: Array, j: Array, k: Array, v: Array, b: Array, c: Array) -> tuple[Array, Array]:
    t = np.zeros((5, len(b), len(c)))
    np.add.at(t, (i, j, k), v)
    return np.einsum("ijk,jr,kr->ir", t, b, c), np.sqrt((v * v).sum())


def fibres(p: Array, q: Array, c: Array, k: Array, v: Array, x: Array, y: Array) -> Array:
    a = np.zeros(len(p) - 1)
    for n in range(len(a)):
        for e in range(p[n], p[n + 1]):
            for z in range(q[e], q[e + 1]):
                a[n] += v[z] * x[c[e]] * y[k[z]]
    return a


def blocks(start: Array, col: Array, v: Array, x: Array, q: Array) -> tuple[Array, Array]:
    y, s = np.zeros_like(q), np.zeros_like(v)
    for n in range(len(start) - 1):
        for z in range(start[n], start[n + 1]):
            part = x[3 * col[z] : 3 * col[z] + 3]
            y[3 * n : 3 * n + 3] += v[z] @ part
            s[z] = v[z] * (q[3 * n : 3 * n + 3] @ part.T)
    return y, s


def compressed(row: Array, col: Array, v: Array) -> tuple[Array, Array, Array]:
    at = np.lexsort((col, row))
    return np.searchsorted(row[at], np.arange(5)), col[at], v[at]


def tucker(g: Array, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    x = np.einsum("pqr,ip,jq,kr->ijk", g, a, b, c)
    return x, np.einsum("ijk,ip,jq,kr->pqr", x, a, b, c)


def wrap(x: int) -> int:
    return (int(x) + 128) % 256 - 128


def byte_edges(xs: Array, ys: Array) -> Array:
    out = np.zeros((8, len(xs), len(ys)), int)
    for m, x in enumerate(map(int, xs)):
        for n, y in enumerate(map(int, ys)):
            out[:, m, n] = [
                wrap(x + y), wrap(x - y), wrap(x * y), wrap(x // y) if y else 0, x % y if y else 0,
                wrap(x << y) if 0 <= y < 8 else 0, x >> y if 0 <= y < 8 else -(x < 0), wrap(wrap(abs(x)) - max(wrap(-y), x)),
            ]  # fmt: skip
    return out


def wrapping(x: Array) -> tuple[Array, ...]:
    x = x.astype(object)
    s, p, w, d, r = [], [], [], [], []
    for row in x:
        s.append(sum(row) % 256)
        p.append(int(np.prod([int(v) + 1 for v in row])) % 256)
        w.append(sum(v * v * 257 for v in row) % 65536)
        d.append(max(wrap(wrap(v) - wrap(s[-1])) for v in row))
        t = sum(v - 128 for v in row)
        r.append(t // 7 * 7 - t % 7)
    return tuple(np.array(t, int) for t in (s, p, w, d, r))


def subnormal(x: Array, y: Array) -> tuple[Array, ...]:
    """In wide numbers: the evaluator rounds nothing below the normal numbers, either."""
    a = x * 2.0**-15
    b = a * 1.0625
    return a, b, a * 65536 + b, y * float(np.float64(1e-38)) / 4, (a * a).sum() * 2.0**30


def conditions(x: Array, length: Array) -> tuple[Array, ...]:
    n = np.arange(x.shape[1]) < length[:, None]
    a, b, c = (x & n).any(1), (x | ~n).all(1), x.sum(1)
    d = c % 2 == 1
    e = (x == a[:, None]) + 2 * (x != b[:, None]) + 4 * (~x & (a | d)[:, None])
    return a, b, c, d, e, (a | ~b).all()


def to(x: Array, low: float, high: float) -> Array:
    """The whole number towards 0, at most the ends of a type."""
    return np.array([int(min(max(np.trunc(v), low), high)) for v in x])


def brain(x: Array) -> Array:
    """The nearest numbers of bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.int64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & ~0xFFFF).astype(np.uint32).view(np.float32).astype(float)


def between(x: Array, k: Array) -> tuple[Array, ...]:
    f = to(x * 1e19, -(2**63), 2**63 - 1)
    f = np.array([int(v) // 3 for v in f])
    with np.errstate(over="ignore"):
        half = (x * 70000).astype(np.float16)
    return (
        to(x * 100, -128, 127), to(x * 200, 0, 255), to(x * 60000, 0, 65535), to(x * 3e9, -(2**31), 2**31 - 1),
        np.array([(int(a) * 4294967 + int(b)) % 2**32 for a, b in zip(k, to(x * 4e9, 0, 2**32 - 1), strict=True)]),
        f, f.astype(np.float32).astype(float) + (k * 16777217).astype(np.float32),
        half, brain(k * 257),
    )  # fmt: skip


def positions(x: Array) -> tuple[Array, ...]:
    return x.argmax(1), x.argmin(1), np.abs(x).argmax(1), x.max(1) - x.min(1), np.asarray((-x).argmax())


def index_values(x: Array) -> tuple[Array, ...]:
    size = len(x)
    n = np.arange(size)
    d = n - 5
    c = x[np.clip(2 * n - 5, 0, size - 1)] * (n % 5 - 2)
    return d // 3 * 10 + d % 3, n**3 * 1000003 - (n - size), c, np.abs(d) * 2


def coo_data(given: Given) -> Given:
    return {**given, "i": given["i"] % 5, "j": given["j"] % len(given["B"]), "k": given["k"] % len(given["C"])}


def fibre_data(given: Given) -> Given:
    return {
        **given,
        "p": starts(len(given["p"]), len(given["c"])),
        "q": starts(len(given["q"]), len(given["k"])),
        "c": given["c"] % len(given["x"]),
        "k": given["k"] % len(given["y"]),
    }


def block_data(given: Given) -> Given:
    return {
        **given, "start": starts(len(given["start"]), len(given["col"])), "col": given["col"] % (len(given["X"]) // 3),
    }  # fmt: skip


def byte_data(given: Given) -> Given:
    ends = np.array([-128, 127, -1, 0, 1, -127, 7, 8, -8])
    return {n: np.resize(ends, len(a)) if n == "X" else np.resize(ends[::-1], len(a)) for n, a in given.items()}


def reshaped(x: Array) -> tuple[Array, Array]:
    return x.reshape(4, 3, -1), x.ravel()


SHAPES = {
    "eight_turned": Foreign(
        lambda x: (x.transpose(7, 5, 3, 1, 6, 4, 2, 0), x.sum((0, 2, 4, 6))),
        sized("A B C D E F G H", (2, 1, 3, 2, 1, 2, 2, 3), (2, 3, 1, 2, 3, 1, 2, 5), (1,) * 8),
    ),
    "ring": Foreign(
        lambda a, b, c, d: np.einsum("aib,bjc,ckd,dla->ijkl", a, b, c, d),
        sized("R I J K L", (2, 3, 2, 4, 3), (3, 2, 5, 3, 7), (1, 1, 1, 1, 1)),
    ),
    "moved_windows": Foreign(moved_windows, sized("B H W C", (2, 2, 3, 4), (1, 3, 2, 17), (1, 1, 1, 1))),
    "reshaped": Foreign(reshaped, sized("N", (3,), (17,), (1,))),
    "patches": Foreign(patches, sized("C H W D", (2, 2, 3, 5), (3, 4, 5, 17), (1, 1, 1, 1))),
    "nothing": Foreign(nothing, sized("N K", (7, 3), (2, 5), (33, 4), (1, 1))),
    "coordinates": Foreign(coordinates, sized("Z J R K", (9, 4, 3, 5), (33, 7, 17, 9), (1, 1, 1, 1)), coo_data),
    "fibres": Foreign(fibres, sized("N F Z M L", (3, 6, 12, 4, 5), (5, 9, 33, 7, 8)), fibre_data),
    "blocks": Foreign(blocks, sized("N Z M D", (3, 5, 4, 3), (5, 9, 6, 17)), block_data),
    "compressed": Foreign(
        compressed, sized("Z", (9,), (33,), (1,)), lambda g: {**g, "row": g["row"] % 4, "col": g["col"] % 5}
    ),
    "tucker": Foreign(tucker, sized("P Q R I J K", (2, 3, 2, 4, 3, 5), (1, 2, 3, 5, 7, 4), (1,) * 6)),
    "byte_edges": Foreign(byte_edges, sized("M N", (9, 9), (17, 33), (1, 1)), byte_data),
    "wrapping": Foreign(wrapping, sized("M N", (3, 9), (5, 33), (1, 1))),
    "subnormal": Foreign(subnormal, sized("N", (9,), (33,), (1,))),
    "conditions": Foreign(conditions, sized("M N", (5, 3), (17, 9), (1, 1)), lambda g: {**g, "L": g["L"] % 5 - 1}),
    "between": Foreign(between, sized("N", (9,), (33,), (1,))),
    "positions": Foreign(positions, sized("M N", (3, 9), (5, 33), (1, 1)), lambda g: {"X": np.round(g["X"])}),
    "index_values": Foreign(index_values, sized("N", (9,), (33,), (1,))),
}
