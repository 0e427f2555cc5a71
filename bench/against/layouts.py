"""Converts layouts of images and weights between the task's (channels last) and that of most libraries (channels first)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.against.problem import Array, Job


@dataclass(frozen=True, slots=True)
class Convolution:
    """`x` is N…C, `f` the weight …IO (of a depthwise one with one channel in), in any number of dimensions."""

    x: Array
    f: Array
    stride: int
    pad: int
    dilation: int
    groups: int

    @property
    def rank(self) -> int:
        return self.x.ndim - 2


def convolution(job: Job) -> Convolution:
    """The operands and attributes of a convolution of any kind."""
    x, f = job.take("X", "F")
    p = job.problem
    if p.compute.startswith("depthwise"):
        f = f[..., None, :]
    groups = x.shape[-1] // f.shape[-2]
    return Convolution(x, f, p.attribute("stride", 1), p.attribute("pad", 0), p.attribute("dilation", 1), groups)


def channels_first(x: Array) -> Array:
    """N…C as a contiguous NC…."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(y: Array) -> Array:
    """NC… as N…C."""
    return np.moveaxis(y, 1, -1)


def weight_first(f: Array) -> Array:
    """…IO as OI…"""
    return np.ascontiguousarray(np.moveaxis(f, (-1, -2), (0, 1)))
