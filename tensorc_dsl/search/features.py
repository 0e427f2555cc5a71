"""Encodes traces as vectors: the features of each open draw, and a bit for whether the draw was made.

Features come from the draws alone, so a candidate can be ranked before it is expanded. The distribution of a draw
defines its encoding (`Distribution.features`): tiles are log2 of cumulative inner products, not an index into a sorted list,
whose neighbours need not behave alike on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.search.gp import Array
from tensorc_dsl.trace.distribution import Distribution
from tensorc_dsl.trace.draw import Draw
from tensorc_dsl.trace.trace import Trace


class Layout:
    """Which columns belong to which draw. Columns are added as draws are met, in order, and never move."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, tuple[object, ...]], tuple[int, int]] = {}
        self.width = 0

    def columns(self, name: str, distribution: Distribution, length: int) -> tuple[int, int]:
        """First and last-plus-one column of a draw with `length` features; the first one is its activity bit."""
        slot = (name, distribution.meaning())
        if slot not in self._columns:
            self._columns[slot] = (self.width, self.width + 1 + length)
            self.width += 1 + length
        return self._columns[slot]

    def vector(self, trace: Trace) -> Array:
        """The trace's features; columns of draws that it did not make are 0. Later draws may make vectors longer."""
        return self.of_draws(trace.open_draws)

    def of_draws(self, draws: Iterable[Draw]) -> Array:
        """As `vector`, for the draws of a schedule that need not be expanded."""
        parts: list[tuple[int, tuple[float, ...]]] = []
        for d in draws:
            values = d.distribution.features(d.decision)
            parts.append((self.columns(d.name, d.distribution, len(values))[0], values))
        out = np.zeros(self.width)
        for start, values in parts:
            out[start] = 1.0
            out[start + 1 : start + 1 + len(values)] = values
        return out

    def matrix(self, vectors: list[Array]) -> Array:
        """Vectors of different ages as rows of one matrix, the missing columns 0."""
        out = np.zeros((len(vectors), self.width))
        for row, v in zip(out, vectors, strict=True):
            row[: len(v)] = v
        return out


@dataclass(frozen=True, slots=True)
class Scaler:
    """Standardizes the columns that vary among the given rows and drops the others."""

    kept: np.ndarray[tuple[int], np.dtype[np.intp]]
    mean: Array
    deviation: Array

    @staticmethod
    def of(rows: Array) -> Scaler:
        deviation = rows.std(0)
        kept = np.flatnonzero(deviation > 1e-9)
        return Scaler(kept, rows[:, kept].mean(0), deviation[kept])

    def __call__(self, rows: Array) -> Array:
        return (rows[:, self.kept] - self.mean) / self.deviation
