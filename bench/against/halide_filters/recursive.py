"""Recursive filters, by hand in strips of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.against.halide_filters.made import LANES, Given, Made, X, Y, hl
from bench.against.problem import Job


@dataclass(frozen=True, slots=True)
class Filter:
    """A recursive filter down columns and up again, with two updates after that of its first row; and what reads it. As in
    Halide's app `iir_blur`, that is the result, or the filtered image with rows and columns exchanged.
    """

    filtered: Any
    reader: Any
    turned: bool


def _filter(x: Any, height: int, a: Any, *, turned: bool) -> Filter:
    f, y, r = hl.Func("f"), hl.Func("y"), hl.RDom([(1, height - 1)])
    f[X, Y] = hl.undef(hl.Float(32))
    f[X, 0] = x[X, 0]
    f[X, r.x] = a * x[X, r.x] + (1.0 - a) * f[X, r.x - 1]
    f[X, height - 1 - r.x] = a * f[X, height - 1 - r.x] + (1.0 - a) * f[X, height - r.x]
    y[X, Y] = f[Y, X] if turned else f[X, Y]
    return Filter(f, y, turned)


def _by_columns(filters: tuple[Filter, ...]) -> None:
    strip, tile, x, y = hl.Var("strip"), hl.Var("tile"), hl.Var("xi"), hl.Var("yi")
    for f in filters:
        if f.turned:  # the strip is one of the rows of what reads it
            f.reader.compute_root().tile(X, Y, tile, strip, x, y, LANES, 4 * LANES).vectorize(x).parallel(strip)
        else:
            f.reader.split(X, strip, x, 4 * LANES).reorder(x, Y, strip).vectorize(x, LANES).parallel(strip)
        f.filtered.compute_at(f.reader, strip)
        for n in range(3):
            f.filtered.update(n).vectorize(X, LANES)


def recursive(given: Given, job: Job) -> Made:
    f = _filter(given["X"], job.inputs["X"].shape[0], given["a"][()], turned=False)
    return Made((f.reader,), lambda: _by_columns((f,)))


def recursive_blur(given: Given, job: Job) -> Made:
    h, w = job.inputs["X"].shape
    down = _filter(given["X"], h, given["a"][()], turned=True)
    across = _filter(down.reader, w, given["a"][()], turned=True)
    return Made((across.reader,), lambda: _by_columns((down, across)))
