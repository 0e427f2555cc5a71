"""Schedules of a task: drawn from its space, or read from a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tensorc_dsl.base.diagnostic import Diagnostic, Severity, TschedError, problem
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import Names, check_items
from tensorc_dsl.check.problems import DUPLICATE_ITEM, where
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.interp.problems import UNKNOWN_DRAW
from tensorc_dsl.interp.space import Space
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.schedule.trace.trace import Decider, Decision, Draw, Model, Site, Trace, prior, shown
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.search.expansion import stream


@problem("E0560", "`{name}` is pinned to {pin}: it cannot be open", help="take the pin out of the module that has it")
def PINNED_DRAW(*, name: str, pin: str) -> None: ...


TRIES = 64
"""The number of refused draws in a row after which a space counts as empty."""


def schedules_of(source: Source, home: CheckedFile) -> CheckedFile:
    """The schedules in a text, which use the computes and modules of another file. Raises TschedError."""
    file = parse(source)
    names = Names(computes=home.computes, modules=home.modules, intrinsics=home.intrinsics, library=home.library)
    twice: list[Diagnostic] = []
    for item in file.items:
        if not isinstance(item, tree.ScheduleDef):
            continue
        first = names.schedules.setdefault(item.name, item)
        if first is not item:
            note = where("the first one", first.name.span)
            twice.append(DUPLICATE_ITEM(item.name.span, (note,), kind="schedule", name=item.name))
    found = [*twice, *check_items(tuple(names.schedules.values()), names)]
    if any(d.severity is Severity.ERROR for d in found):
        raise TschedError(*found)
    return replace(home, file=file, schedules=names.schedules)


def sample(model: Model, task: str, seed: int, number: int = 0) -> Trace:
    """The first trace of a stream of draws that is not refused. Raises TschedError with the last refusal if all are."""
    decide = prior(stream(seed, task, f"sample/{number}"))
    drawn: list[str] = []

    def noted(site: Site) -> Decision | None:
        drawn.append(site.name)
        return decide(site)

    for left in reversed(range(TRIES)):
        drawn.clear()
        try:
            return model.expand(noted)
        except ScheduleRefusal as e:
            if not left or not drawn:  # without a draw each further try would be the same
                raise TschedError(refusal_diagnostic(e)) from e
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True)
class _InTime(Model):
    """A space whose expansions raise Late when `is_late` says so."""

    space: Space
    is_late: Callable[[], bool]

    def expand(self, decide: Decider) -> Trace:
        watched = self.space.watch(decide, self.is_late)
        if watched.failure is not None:
            raise watched.failure
        assert watched.trace is not None
        return watched.trace


def refusals(space: Space, task: str, is_late: Callable[[], bool] = lambda: False) -> tuple[Diagnostic, ...]:
    """What is refused in the schedule that `sample` draws first: the error, if there is no schedule or a pin is illegal, else
    a warning for each rule that is left out.

    Raises Late if `is_late` becomes true.
    """
    try:
        trace = sample(_InTime(space, is_late), task, 0)
    except TschedError as e:
        return e.diagnostics
    return tuple(rule.diagnostic() for rule in trace.refused)


def require_draws(model: Model, task: str, names: Sequence[str], opened: Sequence[str]) -> None:
    """Raises TschedError if none of some schedules has a draw of one of the names (E0556), or an unpinned draw of one of
    `opened` (E0560).
    """
    met: dict[str, Draw] = {}
    rng = stream(0, task, "names")
    for _ in range(TRIES if names else 0):
        with suppress(ScheduleRefusal):
            for d in model.sample(rng).decided:
                if d.name not in met or met[d.name].pinned:
                    met[d.name] = d
        if met.keys() >= set(names) and not any(met[n].pinned for n in opened):
            return
    # If every schedule is refused, sampling one raises that error.
    for name in names if met else ():
        if name not in met:
            raise TschedError(UNKNOWN_DRAW(None, notes=near(name, met), task=task, name=name))
        if name in opened and met[name].pinned:
            raise TschedError(PINNED_DRAW(None, name=name, pin=shown(met[name].decision)))
