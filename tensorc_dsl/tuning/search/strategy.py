"""The interface of strategies. A strategy is found by name: a file in `strategies/`, or a module of an installed package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tensorc_dsl.base.extensions import STRATEGIES
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax.names import did_you_mean
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.regret import Regret
from tensorc_dsl.tuning.search.source import Source
from tensorc_dsl.tuning.search.space import Explorer

# A model's prediction of a trial, made before it.


@dataclass(frozen=True, slots=True)
class Prediction:
    """The log speed of a program, -log(seconds), is expected to be normal with this mean and deviation."""

    mean: float
    deviation: float

    def error(self, seconds: float) -> float:
        """By how much the log speed exceeded the mean."""
        return -math.log(seconds) - self.mean


@dataclass(frozen=True, slots=True)
class Setting:
    """The input of a strategy: `trials` is the budget, in a run over several tasks the mean of one, and `defaults` are
    decisions to try first.

    `source` returns a model that was fitted to the records of other tasks, None if there are none. Its argument makes the
    median of the loop features of draws from the prior, and is called if there are some. A fit takes a second. `bests`
    returns the decisions of the best schedules of other tasks, the latest first.
    """

    explorer: Explorer
    trials: int
    defaults: tuple[Mapping[str, Decision], ...] = ()
    source: Callable[[Callable[[], Array]], Source | None] = lambda _: None
    bests: Callable[[], Sequence[Mapping[str, Decision]]] = lambda: ()


class Strategy(Protocol):
    """Decides what to try. It may use no randomness but the explorer's streams: equal answers give equal questions."""

    def propose(self, count: int, left: float) -> list[Trace]:
        """At most `count` traces, none proposed before; an empty list ends the search.

        `left` is the share of the budget that is left, in a run over several tasks the budget that they share.
        """
        ...

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """Learn the outcome of a proposed trace. It is called once for each, in the order of the proposals."""
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
