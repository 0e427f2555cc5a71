"""A picture made by code: a lake before mountains with a house, by day and by night."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from tensorc_dsl.ir.arrays import Array

HEIGHT, WIDTH = 160, 240
SHORE = 104
"""The row where the lake begins."""


def scene() -> Array:
    """Red, green and blue from 0 to 1, of each row and column."""
    y, x = np.mgrid[:SHORE, :WIDTH].astype(np.float64)
    out = _mix(np.array([0.35, 0.58, 0.9]), np.array([0.98, 0.86, 0.7]), y / SHORE)
    sun = np.hypot(y - 34, x - 176)
    out = _mix(out, np.array([1.0, 0.95, 0.75]), np.exp(-((sun / 26) ** 2)))
    out = _mix(out, np.array([1.0, 0.97, 0.85]), np.clip(11 - sun, 0, 1))
    ridges = ((46, 26, 9, [0.52, 0.57, 0.7]), (66, 20, 6, [0.34, 0.42, 0.5]), (86, 9, 3, [0.2, 0.31, 0.24]))
    for n, (top, height, width, colour) in enumerate(ridges):
        line = top - height * _waves(n, width)
        snow = np.clip((line + 7 - y) / 4, 0, 1) if n == 0 else np.zeros(y.shape)
        out = _mix(out, _mix(np.array(colour), np.array([0.93, 0.95, 1.0]), snow), np.clip(y - line, 0, 1))
    _house(out)
    lake = np.take(out, SHORE - 1 - (np.arange(HEIGHT - SHORE) * 1.5).astype(int), axis=0)
    depth = np.arange(HEIGHT - SHORE)[:, None]
    swing = (1.5 * np.sin(depth * 0.9) * (1 + depth / 20)).astype(int)
    lake = np.take_along_axis(lake, np.clip(np.arange(WIDTH) + swing, 0, WIDTH - 1)[..., None], 1)
    return np.concatenate([out, _mix(lake, np.array([0.12, 0.25, 0.36]), 0.25 + depth / 160)])


def night(picture: Array) -> Array:
    """The same after the sun has gone, with stars."""
    out = picture.mean(-1, keepdims=True) ** 1.6 * np.array([0.3, 0.38, 0.55])
    rng = np.random.default_rng(5)
    for row, column in zip(rng.integers(0, 40, 60), rng.integers(0, WIDTH, 60), strict=True):
        out[row, column] = 0.9
    return out


def brightness(picture: Array) -> Array:
    """Bytes of grey."""
    return _bytes(picture @ np.array([0.299, 0.587, 0.114]))


def noisy(picture: Array) -> Array:
    return _bytes(picture @ np.array([0.299, 0.587, 0.114]) + 0.06 * _noise(picture))


def foggy(picture: Array) -> Array:
    return _bytes(0.62 + 0.22 * (picture @ np.array([0.299, 0.587, 0.114]) - 0.5))


def mosaic(picture: Array) -> Array:
    """What a sensor of 10 bits takes of it: red and green in even rows, green and blue in the others; black is 64."""
    rows, columns = np.indices(picture.shape[:2])
    one = np.take_along_axis(picture**2.2, ((rows % 2) + (columns % 2))[..., None], -1)[..., 0]
    one = one / np.array([1.6, 1.0, 1.4])[(rows % 2) + (columns % 2)]
    return np.clip(64 + 959 * one, 0, 1023).astype(np.uint16)


def _mix(a: Array, b: Array, share: Array | float) -> Array:
    part = np.asarray(share)[..., None]
    return a * (1 - part) + b * part


def _waves(seed: int, width: int) -> Array:
    """A line of hills for each column, from -1 to 1."""
    rng = np.random.default_rng(seed + 2)
    line = sum(
        ndimage.gaussian_filter1d(rng.standard_normal(WIDTH), width / k, mode="reflect") / k**0.7 for k in (1, 2, 4)
    )
    return np.asarray(line / np.abs(line).max())


def _house(out: Array) -> None:
    """A house with a roof, windows and a fence of squares."""
    out[76:104, 40:84] = [0.8, 0.72, 0.6]
    for k in range(14):
        out[62 + k, 61 - 2 * k : 63 + 2 * k] = [0.55, 0.2, 0.16]
    for left in (46, 58, 70):
        out[82:92, left : left + 8] = [0.16, 0.2, 0.28]
        out[86, left : left + 8] = out[82:92, left + 4] = [0.85, 0.85, 0.82]
    for k in range(12):
        out[96 + 4 * (k % 2) : 100 + 4 * (k % 2), 92 + 4 * k : 96 + 4 * k] = [0.92, 0.92, 0.88]


def _noise(picture: Array) -> Array:
    return np.random.default_rng(1).standard_normal(picture.shape[:2])


def _bytes(x: Array) -> Array:
    return np.clip(255 * x + 0.5, 0, 255).astype(np.uint8)
