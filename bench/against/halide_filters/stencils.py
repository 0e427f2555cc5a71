"""Blurs, edges, ranks and mosaics of colours: stencils of floats."""

from __future__ import annotations

from typing import Any

from bench.against.halide_filters.made import (
    LANES,
    ROWS,
    Given,
    Made,
    X,
    Y,
    edge,
    greater,
    hl,
    in_strips,
    joined,
    lesser,
    stage,
    value,
)
from bench.against.problem import Job

SOBEL = ((-1, 1.0), (0, 2.0), (1, 1.0))


def box(given: Given, job: Job) -> Made:
    r = job.problem.attribute("r", 1)
    p, window = edge(given, job), range(-r, r + 1)
    across = stage("across", lambda x, y: joined([p[x + k, y] for k in window]))
    mean = stage("mean", lambda x, y: joined([across[x, y + k] for k in window]) / hl.f32((2 * r + 1) ** 2))
    return in_strips(mean, sliding=(across,))


def _separable(given: Given, job: Job) -> tuple[Any, Any]:
    taps = job.inputs["t"].shape[0]
    p, t = edge(given, job), given["t"]
    across = stage("across", lambda x, y: joined([t[k] * p[x + k - taps // 2, y] for k in range(taps)]))
    return stage("filtered", lambda x, y: joined([t[k] * across[x, y + k - taps // 2] for k in range(taps)])), across


def separable(given: Given, job: Job) -> Made:
    filtered, across = _separable(given, job)
    return in_strips(filtered, sliding=(across,))


def unsharp(given: Given, job: Job) -> Made:
    (blurred, across), image = _separable(given, job), given["X"]
    sharp = stage("sharp", lambda x, y: image[x, y] + given["amount"][()] * (image[x, y] - blurred[x, y]))
    return in_strips(sharp, sliding=(across,))


def _gradients(given: Given, job: Job) -> tuple[Any, Any]:
    p = edge(given, job)
    down = stage("down", lambda x, y: joined([w * (p[x + k, y + 1] - p[x + k, y - 1]) for k, w in SOBEL]))
    across = stage("across", lambda x, y: joined([w * (p[x + 1, y + k] - p[x - 1, y + k]) for k, w in SOBEL]))
    return down, across


def sobel(given: Given, job: Job) -> Made:
    d, a = _gradients(given, job)
    return in_strips(stage("sobel", lambda x, y: hl.sqrt(d[x, y] * d[x, y] + a[x, y] * a[x, y])))


def harris(given: Given, job: Job) -> Made:
    down, across = _gradients(given, job)
    return in_strips(corners_of(down, across, (-1, 0, 1)), sliding=(down, across))


def corners_of(down: Any, across: Any, places: tuple[int, ...]) -> Any:
    """What Harris's detector makes of two gradients: their products are added up at these rows and columns beside each."""
    window = [(X + i, Y + j) for j in places for i in places]
    sums: list[Any] = []
    for a, b in ((down, down), (across, across), (down, across)):
        sums.append(hl.Func())
        sums[-1][X, Y] = joined([a[at] * b[at] for at in window])
    dd, aa, da = (f[X, Y] for f in sums)
    corners = hl.Func("corners")
    corners[X, Y] = dd * aa - da * da - 0.04 * (dd + aa) * (dd + aa)
    return corners


def _median(a: Any, b: Any, c: Any) -> Any:
    return greater(lesser(a, b), lesser(greater(a, b), c))


def median(given: Given, job: Job) -> Made:
    p = edge(given, job)
    least = stage("least", lambda x, y: joined([p[x, y + k] for k in (-1, 0, 1)], lesser))
    most = stage("most", lambda x, y: joined([p[x, y + k] for k in (-1, 0, 1)], greater))
    middle = stage("middle", lambda x, y: _median(p[x, y - 1], p[x, y], p[x, y + 1]))
    found = hl.Func("median")
    found[X, Y] = _median(
        joined([least[X + k, Y] for k in (-1, 0, 1)], greater),
        _median(*(middle[X + k, Y] for k in (-1, 0, 1))),
        joined([most[X + k, Y] for k in (-1, 0, 1)], lesser),
    )
    return in_strips(found, rowwise=(least, middle, most))


def dilated(given: Given, job: Job) -> Made:
    r = job.problem.attribute("r", 1)
    p, window = edge(given, job), range(-r, r + 1)
    across = stage("across", lambda x, y: joined([p[x + k, y] for k in window], greater))
    found = stage("dilated", lambda x, y: joined([across[x, y + k] for k in window], greater))
    return in_strips(found, sliding=(across,))


def dilated_wide(given: Given, job: Job) -> Made:
    """Windows of 2, 4, 8, … elements, each from two of half the size: what vectors do best."""
    r = job.problem.attribute("r", 8)
    first = edge(given, job)
    across, wide = _doubled(first, 2 * r + 1, 1, 0)
    both, _ = _doubled(across, 2 * r + 1, 0, 1)
    found = stage("dilated", lambda x, y: both[x - r, y - r])
    return in_strips(found, rowwise=tuple(wide), sliding=(across,))


def _doubled(f: Any, n: int, dx: int, dy: int) -> tuple[Any, list[Any]]:
    """The greatest of n elements from each on, in one direction; and the stages before."""
    stages: list[Any] = []
    size = 1
    while 2 * size <= n:
        g = hl.Func(f"greatest{2 * size}")
        g[X, Y] = greater(f[X, Y], f[X + size * dx, Y + size * dy])
        f, size = g, 2 * size
        stages.append(f)
    last = hl.Func("greatest")
    rest = n - size
    last[X, Y] = greater(f[X, Y], f[X + rest * dx, Y + rest * dy])
    return last, stages


def demosaiced(given: Given, job: Job) -> Made:
    h, w = job.inputs["X"].shape
    image = given["X"]
    p = hl.BoundaryConditions.mirror_interior(image, [(0, w), (0, h)])
    n, e = p[X, Y - 1] + p[X, Y + 1], p[X - 1, Y] + p[X + 1, Y]
    nn, ee = p[X, Y - 2] + p[X, Y + 2], p[X - 2, Y] + p[X + 2, Y]
    o = p[X - 1, Y - 1] + p[X + 1, Y - 1] + p[X - 1, Y + 1] + p[X + 1, Y + 1]
    own = image[X, Y]
    cross, across, down, oblique = (hl.Func(name) for name in ("cross", "across", "down", "oblique"))
    cross[X, Y] = (4.0 * own + 2.0 * (n + e) - nn - ee) / 8.0
    across[X, Y] = (5.0 * own + 4.0 * e - o - ee + 0.5 * nn) / 8.0
    down[X, Y] = (5.0 * own + 4.0 * n - o - nn + 0.5 * ee) / 8.0
    oblique[X, Y] = (6.0 * own + 2.0 * o - 1.5 * (nn + ee)) / 8.0
    c, y = hl.Var("c"), hl.Func("colours")
    same, even = X % 2 == Y % 2, Y % 2 == 0
    at = [value(f[X, Y]) for f in (cross, across, down, oblique)]
    green = hl.select(same, at[0], own)
    red = hl.select(same, hl.select(even, own, at[3]), hl.select(even, at[1], at[2]))
    blue = hl.select(same, hl.select(even, at[3], own), hl.select(even, at[2], at[1]))
    y[c, X, Y] = hl.mux(c, [red, green, blue])
    # Elements lie one behind the other, so vectors of the three colours are stored as whole ones.
    y.output_buffer().dim(0).set_bounds(0, 3)
    y.output_buffer().dim(1).set_stride(3)

    def by_hand() -> None:
        strip, row = hl.Var("strip"), hl.Var("row")
        y.bound(c, 0, 3).split(Y, strip, row, ROWS).reorder(c, X, row, strip)
        y.parallel(strip).vectorize(X, LANES).unroll(c)
        for f in (cross, across, down, oblique):
            f.compute_at(y, row).vectorize(X, LANES)

    return Made((y,), by_hand)
