"""Images of three planes, and filters of what is inside an image."""

from __future__ import annotations

from typing import Any

from bench.against.filters import TAPS
from bench.against.halide_filters.made import LANES, ROWS, Given, Made, X, Y, hl, in_strips, joined, stage
from bench.against.halide_filters.stencils import corners_of
from bench.against.problem import Job

SOBEL = ((0, 1.0), (1, 2.0), (2, 1.0))


def _along(f: Any, taps: list[Any], dx: int, dy: int) -> Any:
    """The sum of elements from each one on, in one direction."""
    return stage("along", lambda x, y: joined([t * f[x + k * dx, y + k * dy] for k, t in enumerate(taps)]))


def _gauss(given: Given, taps: list[Any]) -> Made:
    across = _along(given["X"], taps, 1, 0)
    return in_strips(_along(across, taps, 0, 1), sliding=(across,))


def gauss_terms(given: Given, _: Job) -> Made:
    return _gauss(given, TAPS.tolist())


def gauss_taps(given: Given, _: Job) -> Made:
    return _gauss(given, [given["t"][k] for k in range(len(TAPS))])


def _brightness(image: Any) -> Any:
    return stage("gray", lambda x, y: 0.299 * image[x, y, 0] + 0.587 * image[x, y, 1] + 0.114 * image[x, y, 2])


def unsharp_planes(given: Given, _: Job) -> Made:
    """Scheduled as Halide's app `unsharp`."""
    image, c = given["X"], hl.Var("c")
    gray = _brightness(image)
    down = _along(gray, TAPS.tolist(), 0, 1)
    blurred = _along(down, TAPS.tolist(), 1, 0)
    ratio = stage(
        "ratio",
        lambda x, y: 1.0 + (gray[x + 3, y + 3] - blurred[x, y]) / (hl.abs(gray[x + 3, y + 3]) + 0.1),
    )
    sharp = hl.Func("sharp")
    sharp[X, Y, c] = ratio[X, Y] * image[X + 3, Y + 3, c]

    def by_hand() -> None:
        strip, row = hl.Var("strip"), hl.Var("row")
        sharp.split(Y, strip, row, ROWS).vectorize(X, LANES).parallel(strip).reorder(X, c, row, strip)
        for f in (gray, down, ratio):
            f.compute_at(sharp, row).store_at(sharp, strip).vectorize(X, LANES)

    return Made((sharp,), by_hand)


def harris_planes(given: Given, _: Job) -> Made:
    """Scheduled as Halide's app `harris`: both gradients in one loop."""
    gray = _brightness(given["X"])
    down = stage("down", lambda x, y: joined([w * (gray[x + k, y + 2] - gray[x + k, y]) for k, w in SOBEL]) / 12.0)
    across = stage("across", lambda x, y: joined([w * (gray[x + 2, y + k] - gray[x, y + k]) for k, w in SOBEL]) / 12.0)
    made = in_strips(corners_of(down, across, (0, 1, 2)), sliding=(down, across))

    def by_hand() -> None:
        made.by_hand()
        across.compute_with(down, X)

    return Made(made.results, by_hand)
