"""Models, which are expanded into traces by deciding their draws. A space is a model, and so is a space with handlers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, literal
from tensorc_dsl.schedule.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Site:
    """A draw that is to be decided. A `hidden` one is not visible to handlers outside of the one that hides it."""

    name: str
    distribution: Distribution
    hidden: bool = False


Decider = Callable[[Site], Decision | None]
"""Called once per draw, in order; None means no decision. Pins in the text take precedence over all deciders."""


@problem("E0507", "the draw `{name}` has no decision", help="give it one of its values, or a seed: {legal}")
def UNDECIDED(*, name: str, legal: str) -> None: ...
@problem("E0506", "`{name}` cannot be {value}", help="use {legal}")
def ILLEGAL(*, name: str, value: str, legal: str) -> None: ...


class Undecided(Exception):
    """A draw has no decision, or one outside of its support: an input error, which expansion reports."""

    def __init__(self, site: Site, decision: Decision | None = None) -> None:
        super().__init__(site.name)
        self.site = site
        self.decision = decision


def shown(decision: Decision) -> str:
    """A decision as a literal of the language."""
    return f"[{', '.join(map(str, decision))}]" if isinstance(decision, tuple) else literal(decision)


def undecided(site: Site) -> None:
    """A decider without decisions."""
    del site


def prior(rng: np.random.Generator) -> Decider:
    """A decider that samples every draw, hidden ones too, from its own distribution."""
    return lambda site: site.distribution.sample(rng)


def preferring(decisions: Mapping[str, Decision], otherwise: Decider) -> Decider:
    """A decider for the proposals of a search: decisions within their draw's support are used, `otherwise` decides others.

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
        """A trace, with every draw decided by `decide`.

        Raises ScheduleRefusal if a step does not apply under these decisions (or a decision is outside of the support that
        earlier ones leave), TschedError if the text is wrong or a draw is not decided.
        """

    def __call__(self) -> Trace:
        """The trace of a model whose handlers decide everything."""
        return self.expand(undecided)

    def sample(self, rng: np.random.Generator) -> Trace:
        """A trace with every open draw sampled from its own distribution."""
        return self.expand(prior(rng))

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        """A trace with the given decisions; missing ones, and those outside of their supports, are sampled with `rng`."""
        return self.expand(preferring(decisions, prior(rng)))
