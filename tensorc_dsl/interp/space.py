"""A space: one task's program, how it may be computed, and the machine. Sampling it gives traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace.model import Decider, Model
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Space(Model):
    """A probability distribution over scheduled programs. `compute` is the name of what `program` computes."""

    definition: tree.SpaceDef | tree.ScheduleDef
    compute: str
    program: Program
    target: Target
    modules: Mapping[str, tree.ModuleDef] = field(repr=False)

    def expand(self, decide: Decider) -> Trace:
        expansion = Expansion(self.program, self.target, self.modules, decide)
        if isinstance(self.definition, tree.ScheduleDef):
            return expansion.schedule(self.definition)
        return expansion.space(self.definition, self.compute)
