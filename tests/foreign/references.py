"""The expected results of this folder's computes, from NumPy and SciPy in wide types, with sizes that are odd, prime, 1, or
long enough for whole vectors.

A reference takes the inputs in order and gives the outputs in order. It is written from the definition of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Given = dict[str, Array]


def single(x: float) -> float:
    """A literal of f32: the nearest number that the type has."""
    return float(np.float32(x))


def unchanged(given: Given) -> Given:
    return given


@dataclass(frozen=True)
class Foreign:
    """A compute's reference, sizes in the order of its dimensions, and what its inputs have to be besides random."""

    reference: Callable[..., Any]
    sizes: Sequence[Mapping[str, int]]
    prepare: Callable[[Given], Given] = unchanged


def sized(names: str, *rows: Sequence[int]) -> tuple[dict[str, int], ...]:
    """`sized("M N", (3, 5), (1, 40))`: a task's sizes for each row."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def positive(*names: str) -> Callable[[Given], Given]:
    """Those inputs at least 0.25."""
    return lambda given: {n: np.abs(a) + 0.25 if n in names else a for n, a in given.items()}


def within(low: int, high: int, *names: str) -> Callable[[Given], Given]:
    """Those integers from `low` to `high`."""
    return lambda given: {n: a % (high - low + 1) + low if n in names else a for n, a in given.items()}


def einsum(spec: str, *sizes: Mapping[str, int]) -> Foreign:
    return Foreign(lambda *arrays: np.einsum(spec, *arrays), sizes)
