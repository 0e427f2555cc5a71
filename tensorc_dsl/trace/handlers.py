"""Handlers: who decides a draw. The names are those of the probabilistic-programming libraries (Pyro, NumPyro).

A decider is called once per draw, in order, with the draw's name and distribution, and returns a decision of the support.
A pin in the text goes before any handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tensorc_dsl.trace.draw import Decision, Distribution

Decider = Callable[[str, Distribution], Decision]


def seed(rng: np.random.Generator) -> Decider:
    """Draw everything from `rng`."""
    return lambda _name, distribution: distribution.sample(rng)


def condition(decisions: Mapping[str, Decision], otherwise: Decider) -> Decider:
    """Use the given decisions where they are in the draw's support; ask `otherwise` for the rest.

    A decision that its own distribution does not allow is never used (design/traps.md, trap 19).
    """

    def decide(name: str, distribution: Distribution) -> Decision:
        if name in decisions and distribution.contains(decisions[name]):
            return decisions[name]
        return otherwise(name, distribution)

    return decide


class ReplayError(ValueError):
    """A replay met a draw for which it has no decision, or one outside the draw's support."""


def replay(decisions: Mapping[str, Decision]) -> Decider:
    """Use exactly the given decisions; a missing or illegal one is an error, never repaired."""

    def decide(name: str, distribution: Distribution) -> Decision:
        if name not in decisions:
            raise ReplayError(f"the draw `{name}` has no decision to replay")
        if not distribution.contains(decisions[name]):
            raise ReplayError(f"`{name}` cannot be {decisions[name]}: it is {distribution.describe()}")
        return decisions[name]

    return decide
