"""What a strategy is, and the registry that finds them: a new strategy is one file in `strategies/`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tensorc_dsl.measure.outcome import Outcome
from tensorc_dsl.search.space import Explorer
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Setting:
    """What a strategy is told when a search starts: `trials` is the whole budget, `defaults` are worth trying first."""

    explorer: Explorer
    trials: int
    defaults: tuple[Mapping[str, Decision], ...] = ()


class Strategy(Protocol):
    """Decides what to try. It may use no randomness but the explorer's streams: equal answers give equal questions."""

    def propose(self, count: int) -> list[Trace]:
        """At most `count` traces, none proposed before; an empty list ends the search."""
        ...

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """What became of a proposed trace; called once for each, in the order they were proposed."""
        ...


Factory = Callable[[Setting], Strategy]

_STRATEGIES: dict[str, Factory] = {}


def strategy(name: str) -> Callable[[Factory], Factory]:
    """Register a class or function that makes a strategy, under the name users choose it by."""

    def register(factory: Factory) -> Factory:
        if name in _STRATEGIES:
            raise ValueError(f"strategy {name!r} is declared twice")
        _STRATEGIES[name] = factory
        return factory

    return register


def strategies() -> Mapping[str, Factory]:
    """All strategies by name, sorted."""
    package = importlib.import_module("tensorc_dsl.search.strategies")
    for name in package.NAMES:
        importlib.import_module(f"{package.__name__}.{name}")
    return dict(sorted(_STRATEGIES.items()))
