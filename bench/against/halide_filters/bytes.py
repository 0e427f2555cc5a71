"""Filters of bytes, in 8 and 16 bits."""

from __future__ import annotations

from typing import Any

from bench.against.halide_filters.made import Given, Made, X, edge, hl, in_strips, joined, stage
from bench.against.problem import Job

BYTES = 64
"""Bytes in a vector."""


def box_u8(given: Given, job: Job) -> Made:
    r = job.problem.attribute("r", 1)
    p, n, window = edge(given, job), (2 * r + 1) ** 2, range(-r, r + 1)
    across = stage("across", lambda x, y: joined([hl.u16(p[x + k, y]) for k in window]))
    total = stage("total", lambda x, y: joined([across[x, y + k] for k in window]))
    mean = stage("mean", lambda x, y: hl.u8((total[x, y] + hl.u16(n // 2)) / hl.u16(n)))
    return in_strips(mean, sliding=(across,), lanes=BYTES)


def _bell(f: Any, places: list[Any]) -> Any:
    a, b, c, d, e = (hl.u16(f[at]) for at in places)
    return a + e + hl.u16(4) * (b + d) + hl.u16(6) * c


def gauss_u8(given: Given, job: Job) -> Made:
    p = edge(given, job)
    across = stage("across", lambda x, y: _bell(p, [(x + k, y) for k in range(-2, 3)]))
    total = stage("total", lambda x, y: _bell(across, [(x, y + k) for k in range(-2, 3)]))
    blurred = stage("blurred", lambda x, y: hl.u8((total[x, y] + hl.u16(128)) / hl.u16(256)))
    return in_strips(blurred, sliding=(across,), lanes=BYTES)


def sobel_u8(given: Given, job: Job) -> Made:
    p = edge(given, job)
    x16 = stage("wide", lambda x, y: hl.i16(p[x, y]))
    weights = ((-1, 1), (0, 2), (1, 1))
    down = stage("down", lambda x, y: joined([hl.i16(w) * (x16[x + k, y + 1] - x16[x + k, y - 1]) for k, w in weights]))
    across = stage(
        "across", lambda x, y: joined([hl.i16(w) * (x16[x + 1, y + k] - x16[x - 1, y + k]) for k, w in weights])
    )
    found = stage("sobel", lambda x, y: hl.u8_sat(hl.abs(down[x, y]) + hl.abs(across[x, y])))
    return in_strips(found, lanes=BYTES)


def equalized(given: Given, job: Job) -> Made:
    h, w = job.inputs["X"].shape
    image, v = given["X"], hl.Var("v")
    counts, r = hl.Func("counts"), hl.RDom([(0, w), (0, h)])
    counts[v] = 0
    counts[hl.i32(image[r.x, r.y])] += 1
    so_far, below = hl.Func("so_far"), hl.RDom([(1, 255)])
    so_far[v] = counts[v]
    so_far[below.x] = so_far[below.x - 1] + counts[below.x]
    least, all_of_them = hl.Func("least"), hl.RDom([(0, 256)])
    least[()] = hl.i32(2**31 - 1)
    least[()] = hl.min(least[()], hl.select(so_far[all_of_them.x] > 0, so_far[all_of_them.x], 2**31 - 1))
    rest = so_far[255] - least[()]
    table = hl.Func("table")
    scaled = (hl.i64(so_far[v] - least[()]) * 255 + hl.i64(rest / 2)) / hl.i64(hl.max(rest, 1))
    table[v] = hl.select(rest == 0, hl.u8(v), hl.u8_sat(scaled))
    found = stage("equalized", lambda x, y: table[hl.i32(image[x, y])])

    def by_hand() -> None:
        strip, inner, part = hl.RVar("strip"), hl.RVar("inner"), hl.Var("part")
        counts.compute_root().update().split(r.y, strip, inner, 64)
        parts = counts.update().rfactor(strip, part)
        parts.compute_root().update().parallel(part)
        for f in (so_far, least, table):
            f.compute_root()
        found.parallel(hl.Var("y"), 64).vectorize(X, BYTES)

    return Made((found,), by_hand)
