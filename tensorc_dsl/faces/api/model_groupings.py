"""The ways in which the calls of a model can be joined: which are worth trials, their records, and which one is taken.

The draws of graph rules are decisions about the whole model. An alternative to what they are is a set of other tasks, and
each task has its records, whichever way it is part of. So the ways are few, and are judged from what is cheap to what is
sure: by the time of the tasks that an alternative would replace, by recorded or predicted times of those that it would bring,
by trials of these, and in the end by whole runs, by turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.check.models import Call, ModelPlan, free_name
from tensorc_dsl.graph.grouping import Alternative, alternatives, decided, deciding, graph_space
from tensorc_dsl.interp.space import others, versions
from tensorc_dsl.ir.graph import Graph
from tensorc_dsl.ir.target import GRAPH
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.tuning.measure.outcome import seconds_of
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, graph_key, program_key, subject, target_key

if TYPE_CHECKING:
    from tensorc_dsl.check.scope import CheckedFile
    from tensorc_dsl.faces.api.models import LoadedModel
    from tensorc_dsl.faces.api.tasks import Task
    from tensorc_dsl.interp.space import Space
    from tensorc_dsl.ir.target import Target
    from tensorc_dsl.schedule.trace.distribution import Decision
    from tensorc_dsl.tuning.records.database import Queue

LEAST = 0.003
"""The share of a run that the tasks take which an alternative replaces, at least: it can save no more."""

WORSE = 1.25
"""How many times as long the tasks of an alternative may seem to take as those that they replace: what is seen before trials
is off by as much."""

MOST = 4
"""The most ways that have trials."""

BETTER, MOSTLY = 0.99, 0.75
"""Another way is taken if a run takes at most this share of the time, in the median, and less in this share of the turns."""


# The ways of a model.


@frozen(eq=False)
class Exchange:
    """What an alternative does to the tasks of a model: the calls that it has no more, and those that it has instead, by the
    keys of their tasks; and the seconds in a run of the former. `model` is the one with nothing else changed."""

    alternative: Alternative
    model: LoadedModel
    gone: Counter[str]
    new: Counter[str]
    seconds: float

    def ratio(self, time: Callable[[str], float | None]) -> float | None:
        """How many times as long the new calls take as those that are gone, by the times of tasks; None if one is unknown."""
        times = {key: time(key) for key in (*self.gone, *self.new)}
        if any(t is None for t in times.values()):
            return None
        gone, new = (sum(n * (times[key] or 0.0) for key, n in calls.items()) for calls in (self.gone, self.new))
        return new / gone if 0.0 < gone < inf else None


@frozen(eq=False)
class Way:
    """A way to join the calls of a model. `names` has the name of each of its tasks among those of all ways; `changed` is
    what is otherwise than in the way that the model came with."""

    model: LoadedModel
    names: Mapping[str, str]
    changed: tuple[Exchange, ...] = ()

    @property
    def calls(self) -> Counter[str]:
        """How often a run calls each task, by its name among all."""
        return Counter(self.names[s.task] for s in self.model.plan.steps if isinstance(s, Call))

    @property
    def draws(self) -> tuple[str, ...]:
        """`products.chained_products = true in 12 places`, for each draw that is otherwise."""
        places = Counter[tuple[str, str]]()
        for e in self.changed:
            places[e.alternative.draw, shown(e.alternative.value)] += len(e.alternative.wanted)
        return tuple(f"{d} = {v}{f' in {n} places' if n > 1 else ''}" for (d, v), n in places.items())


@dataclass(slots=True)
class Ways:
    """The ways of a model, and the tasks of all of them, each once under a name of its own."""

    present: Way = field(init=False)
    tasks: dict[str, Task] = field(default_factory=dict[str, "Task"])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """By the key of a task."""

    def begin(self, model: LoadedModel) -> Way:
        """The way that a model comes with; its tasks have their own names."""
        self.tasks = dict(model.tasks)
        for own, key in keys_of_tasks(model.plan).items():
            self.names.setdefault(key, own)
        self.present = Way(model, {name: name for name in self.tasks})
        return self.present

    def of(self, changed: Sequence[Exchange], *, known: bool = False) -> Way | None:
        """The way with these changes; None if the rules are refused then, or if it has to have `known` tasks only and has
        others."""
        alone = changed[0].model if len(changed) == 1 else None
        other = alone or regrouped(self.present.model, (e.alternative for e in changed))
        if other is None or (known and not {*keys_of_tasks(other.plan).values()} <= {*self.names}):
            return None
        names: dict[str, str] = {}
        for own, key in keys_of_tasks(other.plan).items():
            if key not in self.names:
                self.names[key] = free_name(own, {*self.tasks})
                self.tasks[self.names[key]] = other.tasks[own]
            names[own] = self.names[key]
        return Way(other, names, tuple(changed))

    def by_draws(self, changed: Iterable[Exchange]) -> list[Way]:
        """A way for each value of each draw, with all of its changes, in their order."""
        found: dict[tuple[object, ...], list[Exchange]] = {}
        for e in changed:
            value = e.alternative.value
            found.setdefault((e.alternative.draw, value, type(value)), []).append(e)
        return [way for some in found.values() if (way := self.of(some)) is not None]

    def winners(self, others: Iterable[Way], time: Callable[[str], float | None]) -> list[Way]:
        """The ways with those changes of others that save time, by the times of tasks by their names: of each of them, and
        of all together."""

        def of_key(key: str) -> float | None:
            return time(self.names[key]) if key in self.names else None

        saving = [[e for e in way.changed if (r := e.ratio(of_key)) is not None and r < 1.0] for way in others]
        saving = [some for some in saving if some]
        saving += [[e for some in saving for e in some]] if len(saving) > 1 else []
        return [way for some in saving if (way := self.of(some, known=True)) is not None]


def keys_of_tasks(plan: ModelPlan) -> dict[str, str]:
    """The key of each task of a model."""
    return {name: program_key(program) for name, program in plan.programs.items()}


def regrouped(model: LoadedModel, changed: Iterable[Alternative]) -> LoadedModel | None:
    """The model with some draws decided otherwise; None if its rules are refused then."""
    assert model.trace is not None
    values = dict(decided(model.trace))
    for one in changed:
        values |= one.wanted
    with suppress(TschedError):
        return model.regrouped(deciding(values))
    return None


# Which alternatives are worth trials.


def promising(
    model: LoadedModel,
    seconds: Mapping[str, float],
    recorded: Callable[[Task], float | None],
    predicted: Callable[[Task], float | None],
) -> list[Exchange]:
    """The alternatives to the draws of a model's graph rules that may make it faster, the most promising first.

    `seconds` is how long all calls of each task take in a run; `recorded` the best recorded time of a task, and `predicted` a
    time, in any unit, by a model of the machine. The recorded times count where all concerned have one, else the predicted.
    """
    own = keys_of_tasks(model.plan)
    known = {key: model.tasks[name] for name, key in own.items()}
    ratios: list[tuple[float, Exchange]] = []
    left = len(known)  # predictions take about as many seconds, and searches as long as those of the model
    for one in _exchanges(model, own, seconds):
        unknown = [key for key in one.new if key not in known]
        if len(unknown) > left:
            continue
        left -= len(unknown)
        names = {key: name for name, key in keys_of_tasks(one.model.plan).items()}
        known.update((key, one.model.tasks[names[key]]) for key in unknown)
        ratio = one.ratio(lambda key: recorded(known[key]))
        ratio = one.ratio(lambda key: predicted(known[key])) if ratio is None else ratio
        if ratio is None or ratio <= WORSE:
            ratios.append((1.0 if ratio is None else ratio, one))
    ratios.sort(key=lambda r: -r[1].seconds * (1.0 - r[0]))
    return [one for _, one in ratios]


def _exchanges(model: LoadedModel, own: Mapping[str, str], seconds: Mapping[str, float]) -> list[Exchange]:
    """What the alternatives do, each exchange once, those of the longest time first."""
    assert model.trace is not None
    before = _calls(model.plan, own)
    each = dict.fromkeys(before, 0.0)
    for name, key in own.items():
        each[key] += seconds[name] / before[key]
    least = LEAST * sum(seconds.values())
    found: dict[tuple[object, ...], Exchange] = {}
    for a in alternatives(model.plan, model.trace):
        other = regrouped(model, (a,))
        if other is None:
            continue
        after = _calls(other.plan, keys_of_tasks(other.plan))
        gone, new = before - after, after - before
        taken = sum(n * each[key] for key, n in gone.items())
        if gone and taken >= least:
            same = frozenset(gone.items()), frozenset(new.items())
            found.setdefault(same, Exchange(a, other, gone, new, taken))
    return sorted(found.values(), key=lambda e: -e.seconds)


def _calls(plan: ModelPlan, keys: Mapping[str, str]) -> Counter[str]:
    return Counter(keys[s.task] for s in plan.steps if isinstance(s, Call))


# Which way is taken.


def fastest_way(times: Sequence[Sequence[float]]) -> int:
    """The number of the way to be taken, by the seconds of a run of each in the same turns: the first one, unless another is
    surely faster."""
    first = times[0]
    better = [
        n
        for n, own in enumerate(times)
        if n
        and median(a / b for a, b in zip(own, first, strict=True)) <= BETTER
        and sum(a < b for a, b in zip(own, first, strict=True)) >= MOSTLY * len(first)
    ]
    return min(better, key=lambda n: seconds_of(tuple(times[n])), default=0)


# Records: a comparison of ways is one of the programs of a task, which is the model's graph.


def _place(space: Space, native: Target) -> tuple[str, str]:
    """The keys of the records of a model's graph: nobody learns from them who searches for schedules of computes."""
    assert isinstance(space.program, Graph)
    return graph_key(space.program), f"{GRAPH}:{target_key(native, native.cores)}"


def record_ways(queue: Queue, ways: Sequence[Way], times: Sequence[Sequence[float]], run: str) -> int:
    """Record the times of whole runs of the ways of a model, and return the number of the one to be taken.

    The rows are the comparison `run`. Those that seem to be as fast as that one, but not surely, are none: the first row in
    the order of time is the one that is taken.
    """
    model = ways[0].model
    taken = fastest_way(times)
    space, native = model.space, model.tasks.native
    assert space is not None
    key, target = _place(space, native)
    about = replace(subject(space.program, native, native.cores), task_key=key)
    queue.introduce(about)
    rows: list[Trial] = []
    for n, (way, own) in enumerate(zip(ways, times, strict=True)):
        trace = way.model.trace
        assert trace is not None and isinstance(trace.program, Graph)
        if n != taken and seconds_of(tuple(own)) <= seconds_of(tuple(times[taken])):
            continue
        rows.append(
            Trial(
                task_key=key, target_key=target, task=model.name, strategy="", seed=0, trial=len(rows), status="ok",
                decisions=trace.decisions, trace=trace.text, program_key=graph_key(trace.program),
                seconds=seconds_of(tuple(own)), times=tuple(own), run_seconds=sum(own), phase="context", run=run,
                fingerprint=about.fingerprint, modules=versions(space, trace.modules),
            )
        )  # fmt: skip
    queue.add_all(rows)
    return taken


def recorded_draws(file: CheckedFile, model: str, native: Target, records: Path | None) -> Mapping[str, Decision]:
    """The draws of the model's graph rules in the way that was the fastest in the last comparison on this machine.

    Empty without one, and if the rules have changed since: a draw may mean something else now.
    """
    with suppress(TschedError):  # whoever looks for schedules has the same one, and reports it
        space, database = graph_space(file, model, native), Database.reading(records)
        if space is not None and database is not None:
            with database:
                best = database.best(*_place(space, native))
            if best is not None and not others(best.modules, versions(space)):
                return best.decisions
    return {}
