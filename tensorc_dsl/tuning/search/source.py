"""Predictions from the records of other tasks: a forest over the features of loops, before the first trial or without any.

The numbers are comparable between shapes and computations, since they are shares, ratios and logarithms. Beside each stands
its distance from the median of the task's own prior draws: what is much for one task is little for another.

The schedule of a task without trials is the candidate that is predicted to be the fastest. The candidates are draws from the
task's space, and the best schedules of other tasks, moved to this one: their decisions, and where the sizes differ the tile
that is nearest (Gibson & Cano, PACT 2022, move whole schedules). How far the pick probably is from the best is what the same
procedure missed on the recorded tasks, each left out of the forest that predicted it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.tuning.records.database import Database, Measured
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.loop_features import MEANING
from tensorc_dsl.tuning.search.space import Explorer, candidate_key
from tensorc_dsl.tuning.search.trees import Forest

SLOW = 3.0
"""A program e^3 times as slow as its task's best counts as that slow."""

ROWS = 4000
"""At most so many trials, as many of each task: a long search must not outvote short ones, and a fit takes a second."""

FIRST = 24
"""Trials that stand for a task's prior."""

FEW = 8
"""The least number of trials of a task whose best is used."""

NEAR = 2.0
"""A task counts e times less for each half of a deviation, by root mean square over the columns, between its median and that
of the task that is predicted."""

LEAST = 0.25
"""The least deviation of a column in that, in its own units, which are factors of 2 or shares for the most part."""

FOCUS = 0.5
"""A trial that is e times as slow as its task's best counts e^0.5 times less: slow ones need not be distinguished."""

TREES, SHARE = 150, 0.3
"""Trees of the forest, and the share of the columns that each of them sees."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The trials of one task, in their order: a row of loop features each, and the log speeds; at least one."""

    features: Array
    speeds: Array

    @property
    def median(self) -> Array:
        """That of the first trials, which are draws from the prior for the most part."""
        return np.median(self.features[:FIRST], axis=0)


@dataclass(frozen=True, slots=True)
class Source:
    """Predicts the log speed of a task's candidates relative to the task's best.

    `median` is that of draws from the task's prior.
    """

    forest: Forest
    median: Array

    @staticmethod
    def of(tasks: Sequence[Experience], median: Array) -> Source | None:
        """What these tasks teach of a task with this median; None where there are none."""
        if not tasks:
            return None
        spread = np.maximum(np.vstack([t.features for t in tasks]).std(axis=0), LEAST)
        apart = [float(np.sqrt((((t.median - median) / spread) ** 2).mean())) for t in tasks]
        rows: list[Array] = []
        values: list[Array] = []
        weights: list[Array] = []
        for task, distance in zip(tasks, apart, strict=True):
            picked = np.unique(
                np.linspace(0, len(task.speeds) - 1, min(ROWS // len(tasks) + 1, len(task.speeds))).astype(int)
            )
            value = np.maximum(task.speeds[picked] - task.speeds.max(), -SLOW)
            rows.append(_placed(task.features[picked], task.median))
            values.append(value)
            weights.append(np.exp(FOCUS * value - NEAR * (distance - min(apart))) / np.sqrt(len(picked)))
        w = np.concatenate(weights)
        forest = Forest.fit(
            np.vstack(rows), np.concatenate(values), trees=TREES, share=SHARE, weights=w * len(w) / w.sum()
        )
        return Source(forest, median)

    def predict(self, features: Array) -> Array:
        """Log speeds relative to the best of the task."""
        return self.forest.at(_placed(features, self.median))


def _placed(features: Array, median: Array) -> Array:
    return np.hstack([features, features - median])


def experience(measured: Iterable[Measured]) -> list[Experience]:
    """The trials of other tasks, the latest first, by task; a task with fewer than `FEW` teaches nothing."""
    rows: dict[str, list[Measured]] = {}
    for m in measured:
        rows.setdefault(m.task_key, []).append(m)
    return [
        Experience(np.array([m.features for m in some[::-1]]), -np.log([m.seconds for m in some[::-1]]))
        for some in rows.values()
        if len(some) >= FEW and len({len(m.features) for m in some}) == 1
    ]


DRAWS, MOVED = 16, 16
"""At most so many draws and so many schedules of other tasks are expanded, which takes seconds."""

LEAST_TASKS = 4
"""With fewer other tasks nothing is predicted: 4 left-out tasks are the fewest that bound a fifth with `PROBABILITY`."""

PROBABILITY = 0.8
"""That the time is within the stated range, if the task is one of the same kind as the recorded ones."""

FOLDS = 5
"""Forests that predict left-out tasks; each leaves out as many."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The basis of a pick: it is predicted from `trials` of other `tasks`, among `candidates`, all three as numbers.

    With `PROBABILITY` it takes at most `slower` times as long as the best that a search would find. This held for that share
    of the tasks when each was left out.
    """

    tasks: int
    trials: int
    candidates: int
    slower: float


@dataclass(frozen=True, slots=True)
class Guess:
    """Candidates, the one that is predicted to be the fastest first."""

    traces: tuple[Trace, ...]
    forecast: Forecast


def guess(model: Model, program: Program, target: Target, default: Trace, database: Database) -> Guess | None:
    """The candidates for a task, ranked by the records of other tasks on the target; None if these are too few.

    `program` is unscheduled; `default` is a candidate too. The result is a function of the database and the arguments.
    """
    key, machine = program_key(program), target_key(target, target.cores)
    tasks = experience(database.others(key, machine, MEANING, math.inf))
    slower = bound(missed(tasks))
    if slower is None:
        return None
    explorer = Explorer(model, 0, program.name, target, sizing(program).timed[-1])
    drawn = [default, *explorer.draws(DRAWS - 1)]
    moved = explorer.moved(database.best_decisions(key, machine, math.inf)[:MOVED])
    candidates = list({candidate_key(t.program, target): t for t in (*drawn, *moved)}.values())
    rows = np.array([explorer.describe(t) for t in candidates])
    source = Source.of(tasks, np.median(rows[: len(drawn)], axis=0))
    if source is None:
        return None
    order = np.argsort(-source.predict(rows), kind="stable")
    trials = sum(len(t.speeds) for t in tasks)
    forecast = Forecast(len(tasks), trials, len(candidates), slower)
    return Guess(tuple(candidates[int(i)] for i in order), forecast)


def missed(tasks: Sequence[Experience]) -> list[float]:
    """How many times as long as its best the pick of a forest takes that never saw the task, for each task that has enough
    trials; the pick is among its first ones."""
    found: list[float] = []
    for fold in range(min(FOLDS, len(tasks))):
        left_out = [t for t in tasks[fold::FOLDS] if len(t.speeds) >= FIRST]
        if not left_out:
            continue
        # One fit for the fold: tasks count by their likeness to those left out taken together. A fit for each would miss
        # less, as that of the pick does, and take as many times as long as a fold has tasks: the bound is a little wide.
        among = np.median(np.array([t.median for t in left_out]), axis=0)
        source = Source.of([t for n, t in enumerate(tasks) if n % FOLDS != fold], among)
        for t in left_out if source is not None else ():
            assert source is not None
            pick = int(np.argmax(replace(source, median=t.median).predict(t.features[:FIRST])))
            found.append(math.exp(float(t.speeds.max() - t.speeds[pick])))
    return found


def bound(missed: Iterable[float]) -> float | None:
    """What a further one is at most, with `PROBABILITY`; None if there are too few.

    As in conformal prediction (Vovk et al., Algorithmic Learning in a Random World, 2005): each of n + 1 exchangeable numbers
    is as likely to be the k-th smallest.
    """
    ordered = sorted(missed)
    if len(ordered) < LEAST_TASKS:
        return None
    return ordered[math.ceil(PROBABILITY * (len(ordered) + 1)) - 1]
