"""The schedule of a task without trials: the candidate that the records of other tasks predict to be the fastest.

The candidates are draws from the task's space, and the best schedules of other tasks, moved to this one: their decisions, and
where the sizes differ the tile that is nearest (Gibson & Cano, PACT 2022, move whole schedules). How far the pick probably is
from the best is what the same procedure missed on the recorded tasks, each left out of the forest that predicted it.
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
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search.loop_features import MEANING
from tensorc_dsl.tuning.search.source import FIRST, Experience, Source, experience
from tensorc_dsl.tuning.search.space import Explorer, kernel_key

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
    candidates = list({kernel_key(t.program, target): t for t in (*drawn, *moved)}.values())
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
