"""The measured problems: tasks of the operator files, as jobs for every library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

Outputs = Array | tuple[Array, ...]
"""What a compute gives: its output, or a tuple of several."""

FILES = (
    Path(__file__).with_name("operators.tsched"),
    Path(__file__).parent.with_name("stencils.tsched"),
    Path(__file__).parent.with_name("suite.tsched"),
)
"""An operator in several files is taken from the first."""

CONVOLUTIONS = ("conv1d_nlc", "conv2d_nhwc", "conv3d_ndhwc", "depthwise_conv2d_nhwc")
"""Computes that differ in the number of dimensions and in groups only."""

IMAGES: dict[str, tuple[str, ...]] = {
    "box": (),
    "separable": ("t",),
    "unsharp": ("t",),
    "sobel": (),
    "harris": (),
    "median": (),
    "dilated": (),
    "dilated_wide": (),
    "box_u8": (),
    "gauss_u8": (),
    "sobel_u8": (),
    "equalized": (),
    "pyramid_down": (),
    "pyramid_up": (),
    "resized_cubic": (),
    "blended": (),
    "demosaiced": (),
    "bilateral": (),
    "recursive": (),
    "recursive_blur": (),
    "gauss_terms": (),
    "gauss_taps": (),
    "unsharp_planes": (),
    "harris_planes": (),
    "laplacian_pyramid": (),
}
"""The filters of images, with the inputs that are fixed in a filter."""

STENCILS = ("jacobi_2d", "five_point", "heat_3d")
"""Stencils over time."""

STEPS = 100
"""The steps of a stencil over time where the task names no other number."""

WEIGHTS = {
    "matmul": ("B",),
    "matmul_u8i8": ("B",),
    "dense_gelu": ("W", "b"),
    **dict.fromkeys(CONVOLUTIONS, ("F",)),
    "conv2d_transpose_nhwc": ("F",),
    "conv2d_bn_relu_nhwc": ("F", "bias", "scale", "offset"),
    "layer_norm": ("gain", "shift"),
    "norm_bmn": (),
    "softmax": (),
    "batch_matmul": (),
    "transpose_batch_matmul": (),
    "attention": (),
    "transpose": (),
    "add": (),
    "copy": (),
    **IMAGES,
    **dict.fromkeys(STENCILS, ()),
}
"""The computes that are compared, with the inputs that are fixed in a network or a filter."""


class Problem(msgspec.Struct, frozen=True):
    """A task of a file: `compute` with its sizes and attributes bound. `types` are those of the inputs, by name."""

    file: str
    task: str
    compute: str
    bindings: dict[str, int | float | str]
    types: dict[str, str]

    @property
    def op(self) -> str:
        return split(self.task)[0]

    @property
    def size(self) -> str:
        return split(self.task)[1]

    @property
    def weights(self) -> tuple[str, ...]:
        return WEIGHTS[self.compute]

    def attribute(self, name: str, default: int) -> int:
        """A number that the task binds, else the default of the library's computes."""
        return int(self.bindings.get(name, default))


@dataclass(frozen=True, slots=True)
class Job:
    """A problem with its inputs, which are 64-byte aligned; bf16 as bit patterns in uint16.

    `trials` and `records` are for those that tune.
    """

    problem: Problem
    inputs: dict[str, Array]
    threads: int
    trials: int
    seed: int
    records: Path

    def take(self, *names: str) -> tuple[Array, ...]:
        return tuple(self.inputs[n] for n in names)


@dataclass(frozen=True, slots=True)
class Ready:
    """A job prepared by a library: `run` computes once, `result` returns the last run's outputs in the task's layout.

    `searched` is the number of seconds of a search for the kernel; None without a search. `tried` are the times of its trials
    in their order, by its own clock; None for a failure.
    """

    run: Callable[[], object]
    result: Callable[[], Outputs]
    note: str = ""
    searched: float | None = None
    tried: tuple[float | None, ...] = ()


def several(found: Outputs) -> tuple[Array, ...]:
    """The outputs, also where there is one."""
    return found if isinstance(found, tuple) else (found,)


def split(task: str) -> tuple[str, str]:
    """The operator and the size in the name of a task."""
    op, _, size = task.rpartition("_")
    return op, size


def chosen(tasks: Sequence[str], ops: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """The tasks of those operators and sizes; if none are named, of all.

    Raises ValueError with the known names if a name matches nothing.
    """
    pairs = [split(t) for t in tasks]
    for names, known, what in ((ops, [o for o, _ in pairs], "operator"), (sizes, [s for _, s in pairs], "size")):
        for name in names:
            if name not in known:
                raise ValueError(f"there is no {what} {name}; there are {', '.join(dict.fromkeys(known))}")
    found = [
        t for t, (op, size) in zip(tasks, pairs, strict=True) if (not ops or op in ops) and (not sizes or size in sizes)
    ]
    if not found:
        raise ValueError(f"none of {', '.join(ops)} has a size among {', '.join(sizes)}")
    return found


def as_float32(bits: Array) -> NDArray[np.float32]:
    """The values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
