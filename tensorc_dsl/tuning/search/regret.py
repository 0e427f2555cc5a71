"""Simple regret: how much faster the fastest program may be than the fastest that was tried.

The estimate is a quantile of joint draws from the model of a search: the speeds of all candidates in the reserve and of
the trials. A space is larger than the reserve. So each draw also estimates how fast the fastest of as many further candidates
may be, from the tail of its speeds (peaks over a threshold: Pickands, Annals of Statistics 1975). Stopping once the regret is
small with a high probability follows Wilson (arXiv:2402.16811). `bench/search/coverage.py` compares it with the true regret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Memory, Model

CHANCE = 0.9
"""The probability with which a regret is stated."""

TWICE = 2
"""A search ends once the regret was low enough so many times running: one batch may be luck."""

DRAWS = 256

FEW = 8
"""Valid trials from which on a regret is stated."""

TOP, LEAST = 0.1, 4
"""The share of the speeds that are their tail, and at least how many."""

SHAPE = -0.5
"""The shape of the tail, which ends, since machines have roofs: the median over the recorded tables, whose fastest fifth have
-0.53 and whose fastest tenth have -0.28."""


@dataclass(frozen=True, slots=True)
class Regret:
    """With probability `CHANCE`, says a model, no program is faster than the best so far by more than this share.

    So far it predicted `intervals` trials before they were made, and `held` of these were in the interval in which it
    expected 95 %: what its statements are worth in this search.
    """

    share: float
    intervals: int
    held: int


def regret_of(model: Model, tried: Array, rows: Array, prior: Array, memory: Memory) -> Regret:
    """The regret after trials with these log speeds, at least `FEW`, while candidates with these rows and priors wait."""
    rng = stream(0, "regret", str(len(tried)))
    waiting: Array = np.zeros((0, DRAWS))
    if len(rows):
        beliefs = model.beliefs(rows, prior)
        deviations = beliefs.deviations(rng.standard_normal((len(rows), DRAWS)))
        deviations = np.where(deviations > 0, memory.optimism * deviations, deviations)
        works = np.log(rng.random((len(rows), DRAWS))) < model.log_feasible(rows)[:, None]
        # What fails is as slow as the slowest: a tail with infinities in it is none.
        waiting = np.where(works, (beliefs.mean[:, None] + deviations) * model.deviation, tried.min())
    speeds: Array = np.sort(np.vstack([np.tile(tried[:, None], DRAWS), waiting]), axis=0)[::-1]
    fastest = np.maximum(speeds[0], _further(speeds, rng))
    share = math.expm1(float(np.quantile(fastest - tried.max(), CHANCE)))
    return Regret(max(0.0, share), memory.intervals, memory.held)


def _further(speeds: Array, rng: np.random.Generator) -> Array:
    """The fastest of as many further speeds as these, which are sorted in each column."""
    count = min(max(LEAST, round(TOP * len(speeds))), len(speeds) - 1)
    threshold = speeds[count]
    scale = (1.0 - SHAPE) * (speeds[:count] - threshold).mean(axis=0)
    # The share of the tail beyond its fastest of `count` members is that of the first of `count` arrivals.
    arrivals = np.asarray(rng.exponential(size=speeds.shape[1]), dtype=np.float64)
    beyond = np.minimum(1.0, arrivals / count)
    return threshold + scale / -SHAPE * (1.0 - np.exp(-SHAPE * np.log(beyond)))
