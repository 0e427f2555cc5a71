"""Images at other sizes, pyramids, and the grid of a bilateral filter."""

from __future__ import annotations

from typing import Any

from bench.against.halide_filters.made import (
    LANES,
    Given,
    Made,
    X,
    Y,
    edge,
    extended,
    hl,
    in_strips,
    joined,
    stage,
    strips,
)
from bench.against.problem import Job

HALF = tuple(enumerate((1.0, 3.0, 3.0, 1.0)))


def _halved(p: Any) -> tuple[Any, Any]:
    """Half of an image that is extended, and the stage before: half of its rows."""
    down = stage("down", lambda x, y: joined([w * p[x, 2 * y + k - 1] for k, w in HALF]) / 8.0)
    return stage("half", lambda x, y: joined([w * down[2 * x + k - 1, y] for k, w in HALF]) / 8.0), down


def pyramid_down(given: Given, job: Job) -> Made:
    half, down = _halved(edge(given, job))
    return in_strips(half, sliding=(down,))


def _enlarged(f: Any, height: int, width: int) -> tuple[Any, Any]:
    """Twice an image of that size, and the stage before: twice its rows."""

    def near(i: Any, n: int) -> Any:
        return hl.clamp(i / 2, 0, n - 1)

    def far(i: Any, n: int) -> Any:
        return hl.clamp(i / 2 + 2 * (i % 2) - 1, 0, n - 1)

    up = stage("up", lambda x, y: 0.75 * f[x, near(y, height)] + 0.25 * f[x, far(y, height)])
    return stage("twice", lambda x, y: 0.75 * up[near(x, width), y] + 0.25 * up[far(x, width), y]), up


def pyramid_up(given: Given, job: Job) -> Made:
    twice, up = _enlarged(given["X"], *job.inputs["X"].shape)
    return in_strips(twice, rowwise=(up,))


def blended(given: Given, job: Job) -> Made:
    shapes = [job.inputs["A"].shape]
    for _ in range(3):
        h, w = shapes[-1]
        shapes.append((h // 2, w // 2))
    a, b, m = (given[name] for name in "ABM")
    difference, mask = [stage("difference", lambda x, y: a[x, y] - b[x, y])], [m]
    downs: list[tuple[Any, Any]] = []
    for levels in (difference, mask):
        for shape in shapes[:3]:
            downs.append(_halved(extended(levels[-1], *shape)))
            levels.append(downs[-1][0])
    low, mixed = difference[3], stage("mixed3", lambda x, y: mask[3][x, y] * difference[3][x, y])
    stored: list[tuple[Any, tuple[Any, ...]]] = [(half, (down,)) for half, down in downs]
    for n in (2, 1):
        (f, f_rows), (g, g_rows) = (_enlarged(image, *shapes[n + 1]) for image in (low, mixed))
        mixed = _mixed(mask[n], difference[n], f, g)
        stored.append((mixed, (f_rows, g_rows)))
        low = difference[n]
    (f, f_rows), (g, g_rows) = (_enlarged(image, *shapes[1]) for image in (low, mixed))
    fine = _mixed(m, difference[0], f, g)
    out = stage("blended", lambda x, y: b[x, y] + fine[x, y])

    def by_hand() -> None:
        for f, rows in stored:
            f.compute_root()
            strips(f, rowwise=rows)
        strips(out, rowwise=(f_rows, g_rows))

    return Made((out,), by_hand)


def laplacian_pyramid(given: Given, job: Job) -> Made:
    levels, shape = [given["X"]], job.inputs["X"].shape
    shapes: list[tuple[int, ...]] = [shape]
    halves: list[tuple[Any, Any]] = []
    for _ in range(3):
        halves.append(_halved(extended(levels[-1], *shapes[-1])))
        levels.append(halves[-1][0])
        shapes.append(tuple(n // 2 for n in shapes[-1]))
    details = tuple(
        _detail(fine, coarse, *size) for fine, coarse, size in zip(levels[:3], levels[1:], shapes[1:], strict=True)
    )
    last = stage("last", lambda x, y: levels[3][x, y])

    def by_hand() -> None:
        for half, down in halves:
            half.compute_root()
            strips(half, sliding=(down,))
        for f in (*details, last):
            strips(f)

    return Made((*details, last), by_hand)


def _detail(fine: Any, coarse: Any, height: int, width: int) -> Any:
    """What an image has beyond one of half its size."""
    return stage("detail", lambda x, y: fine[x, y] - coarse[hl.min(x / 2, width - 1), hl.min(y / 2, height - 1)])


def _mixed(mask: Any, difference: Any, f: Any, g: Any) -> Any:
    return stage("mixed", lambda x, y: mask[x, y] * (difference[x, y] - f[x, y]) + g[x, y])


def _weights(size: int, n: int) -> Any:
    """Keys' cubic for each of n elements from four of `size`."""
    k, i, f = hl.Var("k"), hl.Var("i"), hl.Func("weights")
    t = hl.f32(((2 * i + 1) * size - n) % (2 * n)) / hl.f32(2 * n)
    f[k, i] = hl.mux(
        k,
        [
            t * (t * (1.0 - 0.5 * t) - 0.5),
            t * t * (1.5 * t - 2.5) + 1.0,
            t * (t * (2.0 - 1.5 * t) + 0.5),
            t * t * (0.5 * t - 0.5),
        ],
    )
    return f


def resized_cubic(given: Given, job: Job) -> Made:
    h, w = job.inputs["X"].shape
    oh, ow = job.problem.attribute("OH", 0), job.problem.attribute("OW", 0)
    p, down, across = edge(given, job), _weights(h, oh), _weights(w, ow)

    def first(i: Any, size: int, n: int) -> Any:
        return ((2 * i + 1) * size - n) / (2 * n)

    rows = stage("rows", lambda x, y: joined([down[k, y] * p[x, first(y, h, oh) + k - 1] for k in range(4)]))
    out = stage(
        "resized",
        lambda x, y: joined([across[k, x] * rows[hl.clamp(first(x, w, ow) + k - 1, 0, w - 1), y] for k in range(4)]),
    )

    def by_hand() -> None:
        for weights in (down, across):
            weights.compute_root()
        strips(out, rowwise=(rows,))

    return Made((out,), by_hand)


def bilateral(given: Given, job: Job) -> Made:
    """As in Halide's app `bilateral_grid`: the sums and the counts are two channels of one grid."""
    h, w = job.inputs["X"].shape
    s, bins = job.problem.attribute("s", 8), job.problem.attribute("bins", 8)
    z, c, image = hl.Var("z"), hl.Var("c"), given["X"]
    inside = hl.BoundaryConditions.repeat_edge(image, [(0, w), (0, h)])
    r = hl.RDom([(0, s), (0, s)])
    x, y = X * s + r.x - s // 2, Y * s + r.y - s // 2
    value = inside[x, y]
    weight = hl.select((x >= 0) & (x < w) & (y >= 0) & (y < h), hl.f32(1), hl.f32(0))
    cell = hl.i32(hl.clamp(value, 0.0, 1.0) * hl.f32(bins) + 0.5)
    grid = hl.Func("grid")
    grid[X, Y, z, c] = hl.f32(0)
    grid[X, Y, hl.clamp(cell, 0, bins), c] += hl.mux(c, [value * weight, weight])
    held = hl.Func("held")
    held[X, Y, z, c] = hl.select((z >= 0) & (z <= bins), grid[X, Y, hl.clamp(z, 0, bins), c], hl.f32(0))

    def bell(f: Any, at: list[Any]) -> Any:
        a, b, m, d, e = (f[place] for place in at)
        return a + e + 4.0 * (b + d) + 6.0 * m

    blurz, blurx, blury = (hl.Func(name) for name in ("blurz", "blurx", "blury"))
    five = range(-2, 3)
    blurz[X, Y, z, c] = bell(held, [(X, Y, z + k, c) for k in five])
    blurx[X, Y, z, c] = bell(blurz, [(X + k, Y, z, c) for k in five])
    blury[X, Y, z, c] = bell(blurx, [(X, Y + k, z, c) for k in five])
    height = hl.clamp(image[X, Y], 0.0, 1.0) * hl.f32(bins)
    zi = hl.i32(height)
    zf, xf, yf = height - hl.f32(zi), hl.f32(X % s) / hl.f32(s), hl.f32(Y % s) / hl.f32(s)

    def between(f: Any, at: Any) -> Any:
        i, j = X / s, Y / s
        return hl.lerp(
            hl.lerp(f[i, j, at, c], f[i + 1, j, at, c], xf), hl.lerp(f[i, j + 1, at, c], f[i + 1, j + 1, at, c], xf), yf
        )

    read, out = hl.Func("read"), hl.Func("smooth")
    read[X, Y, c] = hl.lerp(between(blury, hl.clamp(zi, 0, bins)), between(blury, hl.clamp(zi + 1, 0, bins)), zf)
    out[X, Y] = read[X, Y, 0] / read[X, Y, 1]

    def by_hand() -> None:
        blurz.compute_root().reorder(c, z, X, Y).parallel(Y).vectorize(X, 8).unroll(c, 2)
        grid.compute_at(blurz, Y)
        grid.update().reorder(c, r.x, r.y, X, Y).unroll(c, 2)
        for f in (blurx, blury):
            f.compute_root().reorder(c, X, Y, z).parallel(z).vectorize(X, 8).unroll(c, 2)
        out.parallel(Y, 8).vectorize(X, LANES)

    return Made((out,), by_hand)
