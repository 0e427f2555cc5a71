"""Decides how often to run a kernel, and summarises its times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

ENOUGH_SECONDS = 0.08
"""A kernel is timed for about this long in all, unless its times agree sooner."""

LEAST, MOST = 5, 200
"""Fewest and most times to take of a kernel that is worth timing."""

CHUNK_SECONDS = 0.01
"""Calls are timed in chunks of about this length; between chunks it is decided whether to go on."""

GIVE_UP = 1.5
"""A candidate whose best time is beyond this many times the incumbent's is not timed further."""

AGREE = 0.005
"""Times agree when the 95 % interval of their median is within this share of it on either side."""


def seconds_of(times: tuple[float, ...]) -> float:
    """What the times of one kernel amount to: their lower quartile.

    Other processes only ever add time, so the low end repeats better than the middle; the minimum would reward luck.
    """
    return float(np.quantile(times, 0.25))


def weighted_times(of_sizes: Sequence[tuple[float, ...]], weights: Sequence[float]) -> tuple[float, ...]:
    """The times of one kernel at several sizes as times of their mean: its quantiles are the means of theirs."""
    if len(of_sizes) == 1:
        return of_sizes[0]
    count = min(map(len, of_sizes))
    steps = np.linspace(0.0, 1.0, count)
    means = np.zeros(count)
    for weight, times in zip(weights, of_sizes, strict=True):
        means += weight * np.quantile(times, steps)
    return tuple(map(float, means))


def take_times(
    time_calls: Callable[[int], list[float]], best: float | None, enough: float = ENOUGH_SECONDS
) -> tuple[float, ...]:
    """Times of single calls, in order, after one call to warm up.

    `time_calls(n)` runs the kernel n times and returns the seconds of each call. Where the kernel is far slower than
    `best`, a few times (at least one) are all; else they last `enough` seconds, unless they agree sooner.
    """
    (warm_up,) = time_calls(1)
    if best is not None and warm_up > 10 * GIVE_UP * best:
        return (warm_up,)
    times: list[float] = []
    while True:
        typical = min([warm_up, *times])
        times += time_calls(max(1, min(MOST - len(times), int(CHUNK_SECONDS / max(typical, 1e-9)))))
        if len(times) >= MOST or sum(times) > 5 * enough:
            break
        if best is not None and min(times) > GIVE_UP * best:
            break
        if len(times) >= LEAST and (sum(times) >= enough or _agree(times)):
            break
    return tuple(times)


def _agree(times: list[float]) -> bool:
    # 1.57 IQR / sqrt(n) on either side of the median: McGill, Tukey & Larsen, The American Statistician 32 (1978).
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return len(times) >= 4 * LEAST and 1.57 * (high - low) / math.sqrt(len(times)) <= AGREE * middle
