"""A space as a model: a task's program, the rules or schedule for it, and the target. Sampling it gives traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.check.priors import weights_of
from tensorc_dsl.interp.attempts import Attempt
from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.interp.watched import Watched
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace.model import Decider, Model
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Space(Model):
    """A probability distribution over scheduled programs. `compute` is the name of the program's compute."""

    definition: tree.SpaceDef | tree.ScheduleDef
    compute: str
    program: Program
    target: Target
    modules: Mapping[str, tree.ModuleDef] = field(repr=False)

    def expand(self, decide: Decider) -> Trace:
        return self._expanded(Expansion(self.program, self.target, self.modules, decide))

    def explain(self, trace: Trace) -> tuple[Attempt, ...]:
        """The outcome of each module in a trace of this space, in the order in which they were tried."""
        expansion = Expansion(self.program, self.target, self.modules, lambda site: trace.decisions[site.name])
        expansion.explaining = True
        self._expanded(expansion)
        return tuple(expansion.attempts)

    def watch(self, decide: Decider, is_late: Callable[[], bool] = lambda: False) -> Watched:
        """The expansion with these decisions, step by step. One that fails is kept up to there.

        Raises Late if `is_late` was true before a statement or a call.
        """
        watched = Watched(self.program, self.target, self.modules, decide, is_late)
        try:
            watched.trace = self._expanded(watched)
        except (ScheduleRefusal, TschedError) as e:
            watched.failure = e
        return watched

    def _expanded(self, expansion: Expansion) -> Trace:
        expansion.weights = {str(w.draw): weights_of(w) for w in self.definition.prior or ()}
        if isinstance(self.definition, tree.ScheduleDef):
            return expansion.schedule(self.definition)
        return expansion.space(self.definition, self.compute)
