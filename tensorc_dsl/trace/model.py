"""Models: what can be expanded into traces once somebody decides the draws. A space is one, and so is a handled space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.diagnostic import problem
from tensorc_dsl.trace.distribution import Decision, Distribution, literal
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Site:
    """A draw that is to be decided. A `hidden` one shows itself to no handler outside of the one that hides it."""

    name: str
    distribution: Distribution
    hidden: bool = False


Decider = Callable[[Site], Decision | None]
"""Called once per draw, in order; None leaves the decision to somebody else. A pin in the text goes before any decider."""


@problem("E0507", "the draw `{name}` has no decision", help="give it one of its values, or a seed: {legal}")
def UNDECIDED(*, name: str, legal: str) -> None: ...
@problem("E0506", "`{name}` cannot be {value}", help="use {legal}")
def ILLEGAL(*, name: str, value: str, legal: str) -> None: ...


class Undecided(Exception):
    """A draw without a decision, or with one outside of its support: bad input, told by whoever expands."""

    def __init__(self, site: Site, decision: Decision | None = None) -> None:
        super().__init__(site.name)
        self.site = site
        self.decision = decision


def shown(decision: Decision) -> str:
    """A decision as the language writes it."""
    return f"[{', '.join(map(str, decision))}]" if isinstance(decision, tuple) else literal(decision)


def nobody(site: Site) -> None:
    """Decides nothing."""
    del site


def prior(rng: np.random.Generator) -> Decider:
    """Draws everything from its own distribution, hidden draws too."""
    return lambda site: site.distribution.sample(rng)


def preferring(decisions: Mapping[str, Decision], otherwise: Decider) -> Decider:
    """Uses the decisions that are in their draw's support and asks `otherwise` for the rest: what a search proposes.

    A decision outside of the support of its draw is never used (trap 19 of docs/traps.md).
    """

    def decide(site: Site) -> Decision | None:
        if not site.hidden and site.name in decisions and site.distribution.contains(decisions[site.name]):
            return decisions[site.name]
        return otherwise(site)

    return decide


class Model(ABC):
    """A distribution over traces."""

    __slots__ = ()

    @abstractmethod
    def expand(self, decide: Decider) -> Trace:
        """One trace, every draw decided by `decide`.

        Raises ScheduleRefusal where a step does not apply under these decisions (or a decision does not under those
        before it), TschedError where the text is wrong or a draw is left undecided.
        """

    def __call__(self) -> Trace:
        """The trace of a model whose handlers decide everything."""
        return self.expand(nobody)

    def sample(self, rng: np.random.Generator) -> Trace:
        """A trace with every open draw drawn from its own distribution."""
        return self.expand(prior(rng))

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        """A trace with the given decisions; those that are missing or no longer fit are drawn from `rng`."""
        return self.expand(preferring(decisions, prior(rng)))
