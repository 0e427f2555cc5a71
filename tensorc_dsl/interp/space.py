"""A space: one task's program, how it may be computed, and the machine. Sampling it gives traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace import handlers
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Space:
    """A probability distribution over scheduled programs. `compute` is the name of what `program` computes."""

    definition: tree.SpaceDef | tree.ScheduleDef
    compute: str
    program: Program
    target: Target
    modules: Mapping[str, tree.ModuleDef] = field(repr=False)

    def expand(self, decide: handlers.Decider) -> Trace:
        """One trace, every draw decided by `decide`.

        Raises ScheduleRefusal where a step does not apply under these decisions, TschedError where the text is wrong.
        """
        expansion = Expansion(self.program, self.target, self.modules, decide)
        if isinstance(self.definition, tree.ScheduleDef):
            return expansion.schedule(self.definition)
        return expansion.space(self.definition, self.compute)

    def sample(self, rng: np.random.Generator) -> Trace:
        """A trace with every open draw drawn from its own distribution."""
        return self.expand(handlers.seed(rng))

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        """A trace with the given decisions; those that are missing or no longer fit are drawn from `rng`."""
        return self.expand(handlers.condition(decisions, handlers.seed(rng)))
