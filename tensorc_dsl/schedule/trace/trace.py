"""Traces, and the models that are expanded into them by deciding their draws. A trace is the record of one expansion as
straight-line schedule code with every draw pinned, and its program. A space is a model, and so is a space with handlers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import Diagnostic, Note, Severity, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, literal

if TYPE_CHECKING:
    import numpy as np


# Draws that were made, with their distributions and decisions.


@frozen
class Draw:
    """A draw that was made. A `pinned` one was fixed in the text or by a handler, so a search cannot change it.

    Its `name` is unique in the trace. Its `owner` says to people whose it is, `multi_level_tiling.factors of C`: the module,
    the name in its text, and what the module was applied to, its `subject`; it is empty for a draw of the schedule itself.
    """

    name: str
    distribution: Distribution
    decision: Decision
    pinned: bool = False
    owner: str = field(default="", compare=False)
    subject: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.owner or self.name


@frozen
class Refused:
    """A rule of a space that was left out on `subject`, because one of its steps was refused."""

    rule: str
    subject: str
    refusal: ScheduleRefusal = field(compare=False, repr=False)

    def diagnostic(self) -> Diagnostic:
        """The warning at the refused step, which says that the rule is left out."""
        found = refusal_diagnostic(self.refusal)
        note = Note("note", f"rule `{self.rule}` is left out on `{self.subject}`; a rule asks first, in its `when`")
        return replace(found, notes=(*found.notes, note), severity=Severity.WARNING)


@frozen
class Trace:
    """`text` is a `schedule` item that expands to the same program, byte for byte; `program` is the scheduled program.

    `draws` are those of the text. `undone` are those of steps that were undone since one of them was refused, of a rule or in
    a `try`. The text does not depend on them, but which steps were undone may, so they are among the `decisions`.
    `modules` are the names of the modules that were applied, each once, in order.
    """

    name: str
    compute: str
    lines: tuple[str, ...]
    draws: tuple[Draw, ...]
    program: Program = field(repr=False)
    refused: tuple[Refused, ...] = ()
    modules: tuple[str, ...] = field(default=(), compare=False)
    undone: tuple[Draw, ...] = ()

    @property
    def text(self) -> str:
        return self._text(self.lines)

    @property
    def titled(self) -> str:
        """The text with a comment behind each draw of a module, which says whose it is."""
        owners = {f"let {d.name} ~": d.owner for d in self.draws if d.owner}
        begins = [" ".join(line.split(maxsplit=3)[:3]) for line in self.lines]
        return self._text(
            f"{line}  // {owners[begin]}" if begin in owners else line
            for begin, line in zip(begins, self.lines, strict=True)
        )

    def _text(self, lines: Iterable[str]) -> str:
        body = "".join(f"    {line}\n" for line in lines)
        return f"schedule {self.name} for {self.compute} {{\n{body}}}\n"

    def __str__(self) -> str:
        return self.text

    @property
    def decided(self) -> tuple[Draw, ...]:
        """All draws that were decided."""
        return (*self.draws, *self.undone)

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """With these, the space makes this trace again."""
        return {d.name: d.decision for d in self.decided}

    @property
    def open_draws(self) -> tuple[Draw, ...]:
        """The draws that a search may decide, since they are not pinned."""
        return tuple(d for d in self.decided if not d.pinned)


# Models, which are expanded into traces by deciding their draws. A space is a model, and so is a space with handlers.


@frozen
class Site:
    """A draw that is to be decided. A `hidden` one is not visible to handlers outside of the one that hides it.

    `title` is that of the draw that will have been made.
    """

    name: str
    distribution: Distribution
    hidden: bool = False
    title: str = field(default="", compare=False)


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
