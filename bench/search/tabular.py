"""Replays a search from a table of timed draws, without building anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

import numpy as np

from bench.search.tables import Array, Table
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.trial import Machine
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.source import Experience, Source
from tensorc_dsl.tuning.search.space import Explorer, neighbours
from tensorc_dsl.tuning.search.strategy import Regret, Setting, StatesRegret, strategy_of

BATCH = 8

ALIKE = 0.5
"""Decisions that are not in the table stand for the untried row that shares the most of them, and at least this part."""


class TableExplorer:
    """An explorer of the rows of a table. Draws are its rows in an order that depends on the seed."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table = table
        self._seed = seed
        self._slots = 0
        self._free = np.ones(len(table.traces), dtype=bool)
        self._order: list[int] = stream(seed, table.task, "table").permutation(len(table.traces)).tolist()
        self._rows = {id(t): n for n, t in enumerate(table.traces)}
        self.refusals = 0

    def rng(self, purpose: str) -> np.random.Generator:
        self._slots += 1
        return stream(self._seed, self._table.task, f"{purpose}/{self._slots}")

    def modelled(self, trace: Trace) -> float:
        """The first column is the logarithm of the cycles of the model."""
        return float(2.0 ** self.describe(trace)[0])

    def draw(self) -> Trace | None:
        while self._order:
            row = self._order.pop()
            if self._free[row]:
                return self._take(row)
        return None

    def draws(self, count: int) -> list[Trace]:
        return [t for t in (self.draw() for _ in range(count)) if t is not None]

    def replays(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        return [t for t in map(self.replay, many) if t is not None]

    def first(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Trace]:
        found = (t for t in map(self.replay, islice(many, tries)) if t is not None)
        return list(islice(found, count))

    def offspring(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Trace]:
        return self.first(many, count, tries)

    def moved(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        return self.replays(many)

    def replay(self, decisions: Mapping[str, Decision]) -> Trace | None:
        places, matrix = self._table.codes
        wanted = np.zeros(matrix.shape[1], dtype=np.float32)
        for decision in decisions.items():
            if decision in places:
                wanted[places[decision]] = 1.0
        shared = np.where(self._free, matrix @ wanted, -1.0)
        row = int(np.argmax(shared))
        return self._take(row) if shared[row] >= max(1.0, ALIKE * float(wanted.sum())) else None

    def neighbour(self, traces: list[Trace]) -> Trace | None:
        return next((t for near in traces for d in neighbours(near) if (t := self.replay(d)) is not None), None)

    def describe(self, trace: Trace) -> Array:
        return self._table.features[self._rows[id(trace)]]

    def seconds(self, trace: Trace) -> float | None:
        return self._table.seconds[self._rows[id(trace)]]

    def _take(self, row: int) -> Trace:
        self._free[row] = False
        return self._table.traces[row]


def others(tables: Mapping[str, Table], task: str) -> list[Experience]:
    """What the tables of all other tasks hold."""
    return [experience(t) for name, t in tables.items() if name != task]


def experience(table: Table, machine: Machine | None = None) -> Experience:
    """The trials of a table, which was recorded on another machine if one is given."""
    good = [n for n, s in enumerate(table.seconds) if s is not None]
    speeds = -np.log([s for s in table.seconds if s is not None])
    return Experience(table.features[good], speeds, table.task, machine)


def best_decisions(table: Table, count: int) -> list[Mapping[str, Decision]]:
    """The decisions of the fastest rows."""
    ranked = sorted((s, n) for n, s in enumerate(table.seconds) if s is not None)
    return [table.traces[n].decisions for _, n in ranked[:count]]


@dataclass(frozen=True, slots=True)
class Past:
    """What a search of a table may know: trials of others, their fastest schedules, and those of the task `itself` on other
    machines; and on which machine it is."""

    tasks: tuple[Experience, ...] = ()
    bests: tuple[Mapping[str, Decision], ...] = ()
    itself: tuple[Mapping[str, Decision], ...] = ()
    machine: Machine | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """The times of a search's trials in order, relative to the best of the table: best over time, 0 for a failure.

    `regrets` are the stated ones, each with the number of trials that were made by then.
    """

    shares: Array
    regrets: tuple[tuple[int, Regret], ...]

    @property
    def curve(self) -> Array:
        """The share of the best known speed that was reached after each trial."""
        return np.maximum.accumulate(self.shares)


def play(strategy: str, table: Table, seed: int, trials: int, past: Sequence[Experience] | Past = ()) -> Played:
    """A search of the table, with what others taught."""
    explorer = TableExplorer(table, seed)
    known = past if isinstance(past, Past) else Past(tuple(past))

    def source(median: Callable[[], Array]) -> Source | None:
        return Source.of(known.tasks, median(), known.machine, table.task, told=True) if known.tasks else None

    setting = Setting(cast(Explorer, explorer), trials, (), source, lambda: known.bests, lambda: known.itself)
    asked = strategy_of(strategy)(setting)
    shares: list[float] = []
    regrets: list[tuple[int, Regret]] = []
    while len(shares) < trials:
        batch = asked.propose(min(BATCH, trials - len(shares)), (trials - len(shares)) / trials)
        if not batch:
            break
        for trace in batch:
            seconds = explorer.seconds(trace)
            failed = Outcome(Status.TIMEOUT)
            asked.tell(trace, failed if seconds is None else Outcome(Status.OK, seconds, (seconds,)))
            shares.append(0.0 if seconds is None else table.best / seconds)
        if isinstance(asked, StatesRegret) and (regret := asked.regret()) is not None:
            regrets.append((len(shares), regret))
    return Played(np.array(shares + [0.0] * (trials - len(shares))), tuple(regrets))
