"""OpenCV: its filters of images, where one gives the same result."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.problem import Array, Job, Ready

cv: Any = import_module("cv2")

EDGE = cv.BORDER_REPLICATE


def prepare(job: Job) -> Ready | None:
    make = MAKERS.get(job.problem.compute)
    if make is None:
        return None
    cv.setNumThreads(job.threads)
    compute = make(job)
    held: list[Array] = []

    def run() -> None:
        held[:] = [compute()]

    return Ready(run, lambda: held[0])


def _box(job: Job) -> Callable[[], Array]:
    (x,), n = job.take("X"), 2 * job.problem.attribute("r", 1) + 1
    return lambda: cv.blur(x, (n, n), borderType=EDGE)


def _separable(job: Job) -> Callable[[], Array]:
    x, t = job.take("X", "t")
    return lambda: cv.sepFilter2D(x, cv.CV_32F, t, t, borderType=EDGE)


def _unsharp(job: Job) -> Callable[[], Array]:
    x, t, amount = job.take("X", "t", "amount")
    more = float(amount)
    return lambda: cv.addWeighted(x, 1 + more, cv.sepFilter2D(x, cv.CV_32F, t, t, borderType=EDGE), -more, 0)


def _gradients(x: Array, depth: int) -> tuple[Array, Array]:
    return cv.Sobel(x, depth, 1, 0, borderType=EDGE), cv.Sobel(x, depth, 0, 1, borderType=EDGE)


def _sobel(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return lambda: cv.magnitude(*_gradients(x, cv.CV_32F))


def _sobel_u8(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return lambda: cv.add(*(cv.convertScaleAbs(g) for g in _gradients(x, cv.CV_16S)))


def _median(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return lambda: cv.medianBlur(x, 3)


def _dilated(radius: int) -> Callable[[Job], Callable[[], Array]]:
    def make(job: Job) -> Callable[[], Array]:
        (x,), n = job.take("X"), 2 * job.problem.attribute("r", radius) + 1
        window = np.ones((n, n), np.uint8)
        return lambda: cv.dilate(x, window, borderType=EDGE)

    return make


def _equalized(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return lambda: cv.equalizeHist(x)


def _doubled(job: Job) -> Callable[[], Array]:
    (x,) = job.take("X")
    return lambda: cv.resize(x, (2 * x.shape[1], 2 * x.shape[0]), interpolation=cv.INTER_LINEAR)


MAKERS: dict[str, Callable[[Job], Callable[[], Array]]] = {
    "box": _box,
    "box_u8": _box,
    "separable": _separable,
    "unsharp": _unsharp,
    "sobel": _sobel,
    "sobel_u8": _sobel_u8,
    "median": _median,
    "dilated": _dilated(1),
    "dilated_wide": _dilated(8),
    "equalized": _equalized,
    "pyramid_up": _doubled,
}
