"""The interface of strategies, and simple regret: how much faster the fastest program may be than the fastest that was
tried.

A strategy is found by name: a file in `strategies/`, or a module of an installed package. The regret that one may state
is a quantile of joint draws from the model of a search: the speeds of all candidates in the reserve and of the trials. A
space is larger than the reserve. So each draw also estimates how fast the fastest of as many further candidates may be,
from the tail of its speeds (peaks over a threshold: Pickands, Annals of Statistics 1975). Stopping once the regret is
small with a high probability follows Wilson (arXiv:2402.16811). `bench/search/coverage.py` compares it with the true
regret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from tensorc_dsl.base.extensions import STRATEGIES
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax.names import did_you_mean
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Memory, Model
from tensorc_dsl.tuning.search.source import Source
from tensorc_dsl.tuning.search.space import Explorer

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


@frozen
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
    total = len(tried) + len(waiting)
    count = min(max(LEAST, round(TOP * total)), total - 1)
    # What the tail needs is among as many of the fastest trials.
    known = np.sort(tried)[::-1][: count + 1, None]
    speeds: Array = np.sort(np.vstack([np.tile(known, DRAWS), waiting]), axis=0)[::-1]
    fastest = np.maximum(speeds[0], _further(speeds, count, rng))
    share = math.expm1(float(np.quantile(fastest - tried.max(), CHANCE)))
    return Regret(max(0.0, share), memory.intervals, memory.held)


def _further(speeds: Array, count: int, rng: np.random.Generator) -> Array:
    """The fastest of as many further speeds, where these are the fastest, sorted in each column, with so many in the tail."""
    threshold = speeds[count]
    scale = (1.0 - SHAPE) * (speeds[:count] - threshold).mean(axis=0)
    # The share of the tail beyond its fastest of `count` members is that of the first of `count` arrivals.
    arrivals = np.asarray(rng.exponential(size=speeds.shape[1]), dtype=np.float64)
    beyond = np.minimum(1.0, arrivals / count)
    return threshold + scale / -SHAPE * (1.0 - np.exp(-SHAPE * np.log(beyond)))


# A model's prediction of a trial, made before it.


@frozen
class Prediction:
    """The log speed of a program, -log(seconds), is expected to be normal with this mean and deviation."""

    mean: float
    deviation: float

    def error(self, seconds: float) -> float:
        """By how much the log speed exceeded the mean."""
        return -math.log(seconds) - self.mean


@frozen
class Setting:
    """The input of a strategy: `trials` is the budget, in a run over several tasks the mean of one, and `defaults` are
    decisions to try first.

    `source` returns a model that was fitted to the records of other tasks, None if there are none. Its argument makes the
    median of the loop features of draws from the prior, and is called if there are some. A fit takes a second. `bests`
    returns the decisions of the best schedules of other tasks, the latest first, and `itself` those of the task on other
    machines, the fastest first. Of open dimensions, `sizes` are those whose time is told, None for the mean of several.
    """

    explorer: Explorer
    trials: int
    defaults: tuple[Mapping[str, Decision], ...] = ()
    source: Callable[[Callable[[], Array]], Source | None] = lambda _: None
    bests: Callable[[], Sequence[Mapping[str, Decision]]] = lambda: ()
    itself: Callable[[], Sequence[Mapping[str, Decision]]] = lambda: ()
    sizes: Sizes | None = None


class Strategy(Protocol):
    """Decides what to try. It may use no randomness but the explorer's streams: equal answers give equal questions."""

    def propose(self, count: int, left: float) -> list[Trace]:
        """At most `count` traces, none proposed before; an empty list ends the search.

        `left` is the share of the budget that is left, in a run over several tasks the budget that they share.
        """
        ...

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """Learn the outcome of a trace, one that was proposed, or one that another strategy of the same search did. It is
        called once for each, in the order of the proposals; for one that a slow machine holds back, after later ones."""
        ...


@runtime_checkable
class StatesRegret(Strategy, Protocol):
    """A strategy that can estimate how far the best so far is from the best there is. Its factory is the class itself."""

    def regret(self) -> Regret | None:
        """The estimate after the outcomes so far; None before there is one. It does not change later proposals."""
        ...


@runtime_checkable
class Predicts(Strategy, Protocol):
    """A strategy with a model that expects something of what it proposes."""

    def predicted(self, trace: Trace) -> Prediction | None:
        """The prediction for a proposed trace whose outcome was not told yet; None while there is no model."""
        ...


Factory = Callable[[Setting], Strategy]
"""What the module of a strategy has as its `STRATEGY`."""


def states_regret(factory: Factory) -> bool:
    """Whether the strategies that it makes state their regret."""
    return isinstance(factory, type) and issubclass(factory, StatesRegret)


def strategies() -> tuple[str, ...]:
    """The names of all strategies, sorted; none of them is loaded."""
    return STRATEGIES.names()


def strategy_of(name: str) -> Factory:
    """The strategy of that name. Raises KeyError if there is none, TschedError (E0930) if it cannot be loaded."""
    found = STRATEGIES.load(name)
    if found is None:
        raise KeyError(f"there is no strategy {name!r}: {did_you_mean(name, strategies())}")
    return found
