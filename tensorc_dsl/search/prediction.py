"""A model's prediction of a trial, made before it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """The log speed of a program, -log(seconds), is expected to be normal with this mean and deviation."""

    mean: float
    deviation: float

    def error(self, seconds: float) -> float:
        """By how much the log speed exceeded the mean."""
        return -math.log(seconds) - self.mean
