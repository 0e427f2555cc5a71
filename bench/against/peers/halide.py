"""Halide (Ragan-Kelley et al., 2013) on images: the fastest of its autoschedulers Adams2019 and Mullapudi2016, and of
schedules by hand as those of its apps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.against.halide_filters import bytes as filters_of_bytes
from bench.against.halide_filters import planes, recursive, sizes, stencils
from bench.against.halide_filters.made import Given, Made, hl
from bench.against.problem import Array, Job, Ready

AUTOSCHEDULERS = ("Adams2019", "Mullapudi2016")

TURNS = 5
"""Runs of each schedule before the fastest is chosen."""


def prepare(job: Job) -> Ready | None:
    make = ALGORITHMS.get(job.problem.compute)
    if make is None:
        return None
    begun = time.perf_counter()
    for name in AUTOSCHEDULERS:
        library = f"libautoschedule_{name.lower()}.so"
        hl.load_plugin(str(next(Path(hl.__file__).parent.rglob(library))))
    inputs = {name: np.require(a, requirements="W") for name, a in job.inputs.items()}  # it takes no others
    outputs = tuple(np.empty(shape, next(iter(inputs.values())).dtype) for shape in _shapes(job))
    target = hl.get_jit_target_from_environment()
    best: tuple[float, str, Callable[[], object]] | None = None
    for name in (*AUTOSCHEDULERS, "by hand"):
        made = make(_given(inputs), job)
        pipeline = hl.Pipeline(list(made.results))
        if name == "by hand":
            made.by_hand()
        else:
            for result, out in zip(made.results, outputs, strict=True):
                result.set_estimates([(0, n) for n in reversed(out.shape)])
            pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(name, {"parallelism": str(job.threads)}))
        pipeline.compile_jit(target)
        run = Run(pipeline, target, [hl.Buffer(out) for out in outputs], inputs)
        seconds = min(map(_timed, [run] * TURNS))
        if best is None or seconds < best[0]:
            best = seconds, name, run
    assert best is not None  # there are schedules
    return Ready(best[2], lambda: outputs, best[1], time.perf_counter() - begun)


def _shapes(job: Job) -> tuple[tuple[int, ...], ...]:
    """The shapes of the outputs."""
    h, w = next(iter(job.inputs.values())).shape[:2]
    match job.problem.compute:
        case "pyramid_down":
            return ((h // 2, w // 2),)
        case "pyramid_up":
            return ((2 * h, 2 * w),)
        case "resized_cubic":
            return ((job.problem.attribute("OH", 0), job.problem.attribute("OW", 0)),)
        case "demosaiced":
            return ((h, w, 3),)
        case "gauss_terms" | "gauss_taps":
            return ((h - 6, w - 6),)
        case "unsharp_planes":
            c, h, w = job.inputs["X"].shape
            return ((c, h - 6, w - 6),)
        case "harris_planes":
            _, h, w = job.inputs["X"].shape
            return ((h - 4, w - 4),)
        case "laplacian_pyramid":
            return tuple((h // n, w // n) for n in (1, 2, 4, 8))
        case _:
            return ((h, w),)


def _given(inputs: Mapping[str, Array]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, a in inputs.items():
        given[name] = hl.ImageParam(hl.UInt(8) if a.dtype == np.uint8 else hl.Float(32), a.ndim)
        given[name].set(hl.Buffer(a))
        for d, n in enumerate(reversed(a.shape)):
            given[name].dim(d).set_estimate(0, n)
    return given


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline that fills buffers. Halide does not keep its inputs alive, so they are kept here."""

    pipeline: Any
    target: Any
    outputs: Any
    inputs: Mapping[str, Array]

    def __call__(self) -> None:
        self.pipeline.realize(self.outputs, self.target)


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


ALGORITHMS: dict[str, Callable[[Given, Job], Made]] = {
    make.__name__: make
    for make in (
        stencils.box,
        stencils.separable,
        stencils.unsharp,
        stencils.sobel,
        stencils.harris,
        stencils.median,
        stencils.dilated,
        stencils.dilated_wide,
        stencils.demosaiced,
        planes.gauss_terms,
        planes.gauss_taps,
        planes.unsharp_planes,
        planes.harris_planes,
        filters_of_bytes.box_u8,
        filters_of_bytes.gauss_u8,
        filters_of_bytes.sobel_u8,
        filters_of_bytes.equalized,
        sizes.pyramid_down,
        sizes.pyramid_up,
        sizes.resized_cubic,
        sizes.blended,
        sizes.laplacian_pyramid,
        sizes.bilateral,
        recursive.recursive,
        recursive.recursive_blur,
    )
}
"""By the name of the compute."""
