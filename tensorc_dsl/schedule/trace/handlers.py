"""Handlers, which decide draws. The names are those of probabilistic-programming libraries (Pyro, NumPyro).

    from tensorc_dsl import handlers, load

    space = load("matmul.tsched")["mm_1k"].space
    fixed = handlers.condition(space, {"nr": 32})
    trace = handlers.trace(handlers.seed(fixed, 0)).get_trace()

Each takes a model and returns a model, so they nest. The innermost decides first, after the pins in the text. A model whose
draws are all decided is called without arguments for its trace; any model can be passed to a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.step import refusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Decider, Model, Site, Trace, Undecided, shown

__all__ = ["Model", "Traced", "block", "condition", "replay", "seed", "trace"]


@refusal(
    "E0560",
    "`{name}` is pinned to {pin}: it cannot be {value}",
    help="take the pin out of the schedule or module that has it, or choose its value",
)
def PINNED(*focus: str, name: str, pin: str, value: str) -> None: ...


@frozen
class Seeded(Model):
    model: Model
    seed: int

    def expand(self, decide: Decider) -> Trace:
        rng = np.random.Generator(np.random.Philox(self.seed))
        return self.model.expand(lambda site: d if (d := decide(site)) is not None else site.distribution.sample(rng))


def seed(model: Model, rng_seed: int) -> Model:
    """Draws that no other handler decides are drawn from their distributions, with the same seed in every call."""
    return Seeded(model, rng_seed)


@frozen
class Conditioned(Model):
    model: Model
    decisions: Mapping[str, Decision]
    complete: bool

    def expand(self, decide: Decider) -> Trace:
        asked: set[str] = set()

        def fixed(site: Site) -> Decision | None:
            asked.add(site.name)
            if site.hidden or site.name not in self.decisions:
                if self.complete and not site.hidden:
                    raise Undecided(site)
                return decide(site)
            decision = self.decisions[site.name]
            if not site.distribution.contains(decision):
                raise Undecided(site, decision)
            return decision

        trace = self.model.expand(fixed)
        for d in trace.decided:
            if d.name in self.decisions and d.name not in asked and d.decision != (value := self.decisions[d.name]):
                raise PINNED(trace.program, name=d.name, pin=shown(d.decision), value=shown(value))
        return _pinned(trace, self.decisions)


def _pinned(trace: Trace, names: Iterable[str]) -> Trace:
    """The trace with the draws of these names marked as pinned."""
    fixed = frozenset(names)
    draws, undone = ([replace(d, pinned=d.pinned or d.name in fixed) for d in of] for of in (trace.draws, trace.undone))
    return replace(trace, draws=tuple(draws), undone=tuple(undone))


def condition(model: Model, decisions: Mapping[str, Decision]) -> Model:
    """The named draws have these decisions, as if they were pinned in the text.

    A decision outside of its draw's support is never replaced: the trace is refused (E0506). Draws that do not occur, for
    instance in a branch that is not taken, need no decision. A decision that contradicts a pin in the text, or an inner
    handler, is refused too (E0560).
    """
    return Conditioned(model, dict(decisions), False)


def replay(model: Model, decisions: Trace | Mapping[str, Decision]) -> Model:
    """Every draw has its decision from a trace; a draw that the trace lacks is an error (E0507), and is never drawn."""
    known = decisions.decisions if isinstance(decisions, Trace) else decisions
    return Conditioned(model, dict(known), True)


@frozen
class Blocked(Model):
    model: Model
    hidden: frozenset[str]

    def expand(self, decide: Decider) -> Trace:
        def hiding(site: Site) -> Decision | None:
            return decide(replace(site, hidden=True) if site.name in self.hidden else site)

        return _pinned(self.model.expand(hiding), self.hidden)


def block(model: Model, hide: Iterable[str]) -> Model:
    """The named draws are hidden from outer handlers: a search does not decide them, but a seed does."""
    return Blocked(model, frozenset(hide))


@dataclass(slots=True)
class Traced(Model):
    """A model that keeps its last trace in `last`, unless the expansion was refused."""

    model: Model
    last: Trace | None = field(default=None)

    def expand(self, decide: Decider) -> Trace:
        self.last = self.model.expand(decide)
        return self.last

    def get_trace(self) -> Trace:
        """Expand the model and return its trace."""
        return self()


def trace(model: Model) -> Traced:
    """The model, which keeps its last trace."""
    return Traced(model)
