"""Predictions from the records of other tasks and machines: a forest over the features of loops, before the first trial or
without any.

The numbers are comparable between shapes and computations, since they are shares, ratios and logarithms. Beside each stands
its distance from the median of the task's own prior draws: what is much for one task is little for another. Where records of
several machines teach, the constants of the machine are columns, too. Speeds are relative to the best of the task on its
machine, so none of the two is known to be fast or slow as such.

The schedule of a task without trials is the candidate that is predicted to be the fastest. The candidates are draws from the
task's space, and the best schedules of other tasks, moved to this one: their decisions, and where the sizes differ the tile
that is nearest (Gibson & Cano, PACT 2022, move whole schedules). How far the pick probably is from the best is what the same
procedure missed on the recorded tasks, each left out of the forest that predicted it. These forests also say how far one is
believed (decision 175).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.tuning.records.database import Asked, Measured, Teaches
from tensorc_dsl.tuning.records.trial import Machine, subject, target_key
from tensorc_dsl.tuning.search.expansion import Expander, is_told, meaning_of, with_shared_draws
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import SLOPES, Forest
from tensorc_dsl.tuning.search.space import Explorer, candidate_key

SLOW = 3.0
"""A program e^3 times as slow as its task's best counts as that slow."""

MISSED = 1.0
"""A program that a model misses by more than a factor of e counts as missed by that: most such were disturbed."""

SHRINK = 10.0
"""So many trials say as much of a leaf of the forest as is known without any: one that was disturbed says little."""

ROWS = 2000
"""At most so many trials, as many of each task, those of this machine first: a long search must not outvote short ones, and a
fit takes a tenth of a second."""

FIRST = 24
"""Trials that stand for a task's prior."""

FEW = 8
"""The least number of trials of a task whose best is used."""

NEAR = 2.0
"""A task counts e times less for each half of a deviation, by root mean square over the columns, between its median and that
of the task that is predicted."""

LEAST = 0.25
"""The least deviation of a column in that, in its own units, which are factors of 2 or shares for the most part."""

ABROAD = 0.5
"""By how much another machine adds to that distance for each factor of 2 between their constants, by root mean square."""

FOCUS = 0.5
"""A trial that is e times as slow as its task's best counts e^0.5 times less: slow ones need not be distinguished."""

TREES, SHARE = 100, 0.3
"""Trees of the forest, and the share of the columns that each of them sees."""

ASKED = 64
"""So many trials of a left-out task are predicted, spread over all, and its first ones."""

FOLDS = 3
"""Forests that predict left-out tasks; each leaves out as many."""

BLIND_TREES, BLIND_ROWS = TREES // 2, ROWS // 2
"""The trees of those forests, and their trials: more change what they say of other tasks by little, and a search waits."""

ITSELF = 12.0
"""How many times as much the task's own trials on another machine count: what is fast for it there mostly is so here."""

FAINT = 3.0
"""A task that counts e to this times less than the nearest one is left out: it takes as long to fit, and changes nothing."""


@frozen
class Experience:
    """The trials of one task on one machine, in their order: a row of loop features each, and the log speeds; at least one.

    `machine` is None for the one on which the source is to predict.
    """

    features: Array
    speeds: Array
    task: str = ""
    machine: Machine | None = None

    @property
    def median(self) -> Array:
        """That of the first trials, which are draws from the prior for the most part."""
        return np.median(self.features[:FIRST], axis=0)


@frozen
class Source:
    """Predicts the log speed of a task's candidates relative to the task's best.

    `median` is that of draws from the task's prior. `names` are the constants in which the machines differ that taught it,
    and `place` has those of the machine on which it predicts.
    """

    forest: Forest
    median: Array
    names: tuple[str, ...] = ()
    place: Array = field(default_factory=lambda: np.zeros(0))
    told: bool = False
    """Whether the first number is the logarithm to base 2 of a model's cycles: trees learn what it misses."""
    share: float = 1.0
    """The share of what the forest says that predicts tasks best that it never saw."""
    missed: tuple[float, ...] = ()
    """How many times as long as its best the pick for each task with enough trials takes, by a forest that never saw it."""

    @staticmethod
    def of(
        tasks: Sequence[Experience],
        median: Array,
        machine: Machine | None = None,
        itself: str = "",
        *,
        told: bool = False,
    ) -> Source | None:
        """What these tasks teach of a task with this median on this machine; None where there are none. Those with the name
        `itself` are that task on other machines."""
        if not tasks:
            return None
        found = Source._grown(tasks, median, machine, itself, told=told, trees=TREES, left=ROWS)
        unseen: list[_Unseen] = []
        for rest, out in _folds(tasks):
            among = np.median(np.array([t.median for t in out]), axis=0)
            blind = Source._grown(rest, among, machine, told=told, trees=BLIND_TREES, left=BLIND_ROWS)
            unseen += _Unseen.of(out, blind)
        share = _share(unseen)
        return replace(found, share=share, missed=tuple(t.missed(share) for t in unseen))

    @staticmethod
    def _grown(
        tasks: Sequence[Experience],
        median: Array,
        machine: Machine | None,
        itself: str = "",
        *,
        told: bool,
        trees: int,
        left: int,
    ) -> Source:
        """The source whose forest, of so many trees for about so many trials, is believed as it is."""
        names, places = _places([machine, *(t.machine or machine for t in tasks)])
        spread = np.maximum(np.vstack([t.features for t in tasks]).std(axis=0), LEAST)
        apart = np.array([np.sqrt((((t.median - median) / spread) ** 2).mean()) for t in tasks])
        # Machines that are alike in most constants are near: the mean is over all that one of them states.
        stated = len({n for m in (machine, *(t.machine for t in tasks)) if m is not None for n, x in m.numbers if x})
        apart = np.hypot(apart, ABROAD * np.sqrt(((places[1:] - places[0]) ** 2).sum(axis=1) / max(1, stated)))
        apart = NEAR * (apart - apart.min())
        near = [n for n in range(len(tasks)) if apart[n] <= FAINT]
        rows: list[Array] = []
        values: list[Array] = []
        weights: list[Array] = []
        for group in ([n for n in near if tasks[n].machine is None], [n for n in near if tasks[n].machine is not None]):
            most = max(FEW, left // max(1, len(group)) + 1)
            for n in group:
                task, count = tasks[n], min(most, len(tasks[n].speeds))
                left = max(0, left - count)
                picked = np.unique(np.linspace(0, len(task.speeds) - 1, count).astype(int))
                value = np.maximum(task.speeds[picked] - task.speeds.max(), -SLOW)
                rows.append(_placed(task.features[picked], task.median, places[1 + n]))
                values.append(_missed(task, picked) if told else value)
                weight = ITSELF if itself and task.task == itself else 1.0
                weights.append(weight * np.exp(FOCUS * value - apart[n]) / np.sqrt(len(picked)))
        w = np.concatenate(weights)
        forest = Forest.fit(
            np.vstack(rows),
            np.concatenate(values),
            trees=trees,
            share=SHARE,
            shrink=SHRINK,
            weights=w * len(w) / w.sum(),
        )
        return Source(forest, median, names, places[0], told)

    def predict(self, features: Array) -> Array:
        """Log speeds relative to the best of the task."""
        return self.share * self.grown(features) + self.modelled(features)

    def grown(self, features: Array) -> Array:
        """What the forest says."""
        return self.forest.at(_placed(features, self.median, self.place))

    def modelled(self, features: Array) -> Array:
        """What the model says, of which the forest has learnt what is missed; 0 without one."""
        return _told(features) if self.told else np.zeros(len(features))

    def at(self, task: Experience) -> Source:
        """The same forest for a task that it did not see, on that task's machine."""
        if task.machine is None:
            return replace(self, median=task.median)
        numbers = dict(task.machine.numbers)
        place = np.array([numbers.get(n, x) for n, x in zip(self.names, self.place.tolist(), strict=True)])
        return replace(self, median=task.median, place=place)


def _folds(tasks: Sequence[Experience]) -> Iterator[tuple[list[Experience], list[Experience]]]:
    """What is learnt from, and which tasks with enough trials are left out. These are as far from the rest as the task that
    is to be predicted: of no task is another machine's trial learnt from, and where nothing is known of this machine,
    nothing of that of those left out.

    One fit for a fold: tasks count by their likeness to those left out taken together. A fit for each would miss less, as
    that of the pick does, and take as many times as long as a fold has tasks: what is found is a little worse than it is.
    """
    called = [t.task or str(n) for n, t in enumerate(tasks)]
    names, machines = [*dict.fromkeys(called)], [*dict.fromkeys(t.machine for t in tasks)]
    abroad = None not in machines and len(machines) > 1
    count = min(FOLDS, len(machines) if abroad else len(names))
    for fold in range(count):
        out = set(names[fold::count])
        here = [not abroad or t.machine == machines[fold] for t in tasks]
        rest = [t for t, n, mine in zip(tasks, called, here, strict=True) if n not in out and not (abroad and mine)]
        left = [t for t, n, mine in zip(tasks, called, here, strict=True) if n in out and mine]
        enough = [t for t in left if len(t.speeds) >= FIRST]
        if rest and enough:
            yield rest, enough


@frozen
class _Unseen:
    """Trials of a task that a forest never saw, the first ones first: their log speeds beside the best of the task, what the
    model says of them, and the forest."""

    speeds: Array
    modelled: Array
    grown: Array

    @staticmethod
    def of(tasks: Sequence[Experience], blind: Source) -> list[_Unseen]:
        asked = [np.union1d(np.arange(FIRST), np.linspace(0, len(t.speeds) - 1, ASKED).astype(int)) for t in tasks]
        features = [t.features[rows] for t, rows in zip(tasks, asked, strict=True)]
        placed = [_placed(x, t.median, blind.at(t).place) for t, x in zip(tasks, features, strict=True)]
        grown = np.split(blind.forest.at(np.vstack(placed)), np.cumsum([len(x) for x in features])[:-1])
        return [
            _Unseen(t.speeds[rows] - t.speeds.max(), blind.modelled(x), said)
            for t, rows, x, said in zip(tasks, asked, features, grown, strict=True)
        ]

    def error(self, share: float) -> float:
        """The mean size of what is missed with this share of the forest, beside the median."""
        apart = self.speeds - self.modelled - share * self.grown
        return float(np.minimum(np.abs(apart - np.median(apart)), SLOW).mean())

    def missed(self, share: float) -> float:
        """How many times as long as the best of the task the pick among its first trials takes."""
        pick = int(np.argmax((self.modelled + share * self.grown)[:FIRST]))
        return math.exp(-float(self.speeds[pick]))


def _share(unseen: Sequence[_Unseen]) -> float:
    """The share of the forests with which these tasks are predicted best that they never saw; a half if there are none."""
    return min(SLOPES, key=lambda share: sum(t.error(share) for t in unseen)) if unseen else 0.5


def _told(features: Array) -> Array:
    """The log speeds of a model."""
    return -math.log(2.0) * features[:, 0]


def _missed(task: Experience, rows: NDArray[np.intp]) -> Array:
    """What the model missed of a task's log speeds, beside what it missed of most of them."""
    apart = task.speeds - _told(task.features)
    return np.clip(apart - np.median(apart), -MISSED, MISSED)[rows]


def _places(machines: Sequence[Machine | None]) -> tuple[tuple[str, ...], Array]:
    """The names of the numbers in which the machines differ, and a row of these for each. A number that is not known of a
    machine is that of the first one that has it."""
    known = [{} if m is None else dict(m.numbers) for m in machines]
    first: dict[str, float] = {}
    for numbers in known:
        first = {**numbers, **first}
    names = tuple(n for n in sorted(first) if any(numbers.get(n, first[n]) != first[n] for numbers in known))
    return names, np.array([[numbers.get(n, first[n]) for n in names] for numbers in known]).reshape(len(known), -1)


def _placed(features: Array, median: Array, place: Array) -> Array:
    return np.hstack([features, features - median, np.tile(place, (len(features), 1))])


def experience(measured: Iterable[Measured]) -> list[Experience]:
    """The trials by task and machine, the latest first; a task with fewer than `FEW` teaches nothing."""
    rows: dict[tuple[str, Machine | None], list[Measured]] = {}
    for m in measured:
        rows.setdefault((m.task_key, m.machine), []).append(m)
    return [
        Experience(np.array([m.features for m in some[::-1]]), -np.log([m.seconds for m in some[::-1]]), *key)
        for key, some in rows.items()
        if len(some) >= FEW and len({len(m.features) for m in some}) == 1
    ]


@frozen
class Lessons:
    """What records teach a search of a task on a machine: those of the database, then those that came with the package."""

    task: Asked
    target_key: str
    machine: Machine
    meaning: str
    """That of the numbers of programs (`meaning_of`)."""
    told: bool
    """Whether the first of these is the logarithm of a model's cycles."""
    teachers: tuple[Teaches, ...]
    before: float = math.inf
    """Only what was recorded before this date counts."""

    @staticmethod
    def of(
        program: Program,
        target: Target,
        threads: int,
        teachers: Sequence[Teaches | None],
        before: float = math.inf,
        copies: int = 1,
    ) -> Lessons:
        """The lessons for an unscheduled program, timed with so many `copies` of its constant inputs."""
        key = target_key(target, threads, copies)
        about = subject(program, target, threads)
        there = tuple(t for t in teachers if t is not None)
        return Lessons(
            Asked(about.task_key, program.name),
            key,
            Machine.of(key, about.facts),
            meaning_of(target),
            is_told(target),
            there,
            before,
        )

    def tasks(self) -> list[Experience]:
        """The trials of others, by task and machine."""
        return experience(
            chain.from_iterable(t.others(self.task, self.target_key, self.meaning, self.before) for t in self.teachers)
        )

    def bests(self) -> list[Mapping[str, Decision]]:
        """The fastest schedules of other tasks, those of this machine first."""
        asked = self.task, self.target_key, self.before
        return [*chain.from_iterable(t.best_decisions(*asked) for t in self.teachers)]

    def itself(self) -> list[Mapping[str, Decision]]:
        """The fastest schedules of the task on other machines."""
        asked = self.task.key, self.target_key, self.before
        return [*chain.from_iterable(t.decisions_elsewhere(*asked) for t in self.teachers)]


DRAWS, MOVED = 16, 16
"""At most so many draws and so many schedules of other tasks are expanded, which takes seconds."""

LEAST_TASKS = 4
"""With fewer other tasks nothing is predicted: 4 left-out tasks are the fewest that bound a fifth with `PROBABILITY`."""

PROBABILITY = 0.8
"""That the time is within the stated range, if the task is one of the same kind as the recorded ones."""


@frozen
class Forecast:
    """The basis of a pick, in counts: it is predicted from `trials` of `tasks`, some made `elsewhere`, among `candidates`.

    With `PROBABILITY` it takes at most `slower` times as long as the best that a search would find. This held for that share
    of the tasks when each was left out.
    """

    tasks: int
    trials: int
    candidates: int
    slower: float
    elsewhere: int = 0


@frozen
class Guess:
    """Candidates, the one that is predicted to be the fastest first."""

    traces: tuple[Trace, ...]
    forecast: Forecast


def guess(model: Model, program: Program, target: Target, default: Trace, *teachers: Teaches | None) -> Guess | None:
    """The candidates for a task: its own fastest schedules on other machines, then others as their records rank them; None if
    these are too few.

    `program` is unscheduled; `default` is a candidate too. The result is a function of the records and the arguments.
    """
    lessons = Lessons.of(program, target, target.cores, teachers)
    tasks = lessons.tasks()
    if len(tasks) < LEAST_TASKS:
        return None
    explorer = Explorer(model, 0, program.name, target, sizing(program).timed[-1])
    drawn = [default, *explorer.draws(DRAWS - 1)]
    itself = lessons.itself()
    moved = explorer.moved([*itself, *lessons.bests()][:MOVED])
    candidates = list({candidate_key(t.program, target): t for t in (*drawn, *moved)}.values())
    rows = np.array([explorer.describe(t) for t in candidates])
    source = Source.of(
        tasks, np.median(rows[: len(drawn)], axis=0), lessons.machine, lessons.task.key, told=lessons.told
    )
    slower = None if source is None else bound(source.missed)
    if source is None or slower is None:
        return None
    # The fastest of another machine is .9 as fast as the best here, which the forest's pick seldom is.
    place = {tuple(sorted(d.items())): n for n, d in enumerate(itself)}
    predicted: list[float] = source.predict(rows).tolist()
    order = sorted(
        range(len(candidates)),
        key=lambda n: (place.get(tuple(sorted(candidates[n].decisions.items())), len(itself)), -predicted[n]),
    )
    trials = sum(len(t.speeds) for t in tasks)
    elsewhere = sum(len(t.speeds) for t in tasks if t.machine is not None)
    forecast = Forecast(len({t.task for t in tasks}), trials, len(candidates), slower, elsewhere)
    return Guess(tuple(candidates[n] for n in order), forecast)


SOON, NEARBY = 8, 4
"""Draws and schedules of other tasks that `first_choice` looks at, which takes a second: of the draws of a table 8 hold one
that is .79 to .94 as fast as the best at the median, and the model takes one of .63 to .89, where any draw is .32 to .81; of
one task in ten it is .17 to .64 for .06 to .23 (three processors)."""


def first_choice(
    model: Model,
    program: Program,
    target: Target,
    default: Trace,
    *teachers: Teaches | None,
    expander: Expander | None = None,
) -> Trace:
    """The candidate with the fewest cycles by the model of the machine, of some draws, the default among them, the task's own
    fastest schedules on other machines and those of tasks like it; the default where there is no model.

    Unlike `guess` it learns nothing from records, so it takes a fraction of the time, for models of many tasks. The traces
    are made by `expander`, by default in this process.
    """
    lessons = Lessons.of(program, target, target.cores, teachers)
    explorer = Explorer(model, 0, program.name, target, sizing(program).timed[-1], expander)
    drawn = [default, *explorer.draws(SOON - 1)]
    known = [*lessons.itself(), *with_shared_draws(lessons.bests(), drawn)]
    cycles = [(c, t) for t in (*drawn, *explorer.moved(known[:NEARBY])) if (c := explorer.modelled(t)) is not None]
    return min(cycles, key=lambda one: one[0], default=(0.0, default))[1]


def bound(missed: Iterable[float]) -> float | None:
    """What a further one is at most, with `PROBABILITY`; None if there are too few.

    As in conformal prediction (Vovk et al., Algorithmic Learning in a Random World, 2005): each of n + 1 exchangeable numbers
    is as likely to be the k-th smallest.
    """
    ordered = sorted(missed)
    if len(ordered) < LEAST_TASKS:
        return None
    return ordered[math.ceil(PROBABILITY * (len(ordered) + 1)) - 1]
