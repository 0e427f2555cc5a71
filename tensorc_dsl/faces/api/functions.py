"""`tune_function`: the search for the arguments with which a function of the user's takes the least time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.report.files import read_source
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, Listed, Weighted
from tensorc_dsl.schedule.trace.draws.choices import Integer
from tensorc_dsl.schedule.trace.trace import Site, Trace
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import walk
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.assignments import MOST, SAMPLED, Assignments, Where
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.function import FunctionResult, FunctionTrial, Timed, pinned, search_function
from tensorc_dsl.tuning.search.options import SearchChanges, SearchOptions

FunctionSpace = Mapping[str, Iterable[Decision]] | Sequence[Mapping[str, Decision]] | str | PathLike[str]
"""Values by name; or the assignments themselves; or a schedule, as its text or its file."""

RANGE = 4096
"""The most values of a `sample_int`."""


def tune_function(
    f: Callable[..., Timed],
    space: FunctionSpace,
    options: SearchOptions | None = None,
    *,
    where: Where | Iterable[Where] = (),
    name: str | None = None,
    records: str | PathLike[str] | None = None,
    on_trial: Callable[[FunctionTrial], None] | None = None,
    **changes: Unpack[SearchChanges],
) -> FunctionResult:
    """The arguments of `f` from `space` with which it takes the least time: `f(block=128, unroll=4)` returns seconds.

    `space` has values by name, `{"block": [64, 128], "unroll": [1, 2, 4]}`, or is a list of assignments, or a schedule whose
    draws are of values, as its text or its file. `where` has constraints, which are asked for the draws that their
    parameters name: `lambda block, unroll: block * unroll <= 256`. A draw that is not made is None to them. `f` may return
    several times, of which the lower quartile counts. It fails where it raises an exception, or returns None or what is no
    time. A failed call is a trial, and no error; StopIteration ends the search. No call is cut short: `f` limits what may
    hang, as `subprocess.run(…, timeout=10)` does, whose exception is a failure.

    Options are those of a search, but for `until`. Trials are written to the file `records`, as JSON Lines, behind those that
    it has; with `resume`, those of the same `name` (by default that of `f`), space, seed and strategy are not called again.
    Ctrl-C ends the search and keeps its trials. `on_trial` is told each trial. Raises TypeError where `f` cannot take the
    decisions, ValueError for a space without assignments, TschedError for a schedule that is wrong.
    """
    options = (options or SearchOptions()).but(**changes)
    if options.until is not None:
        raise ValueError("a search of a function states no regret that could end it")
    if options.resume and records is None:
        raise ValueError("`resume` goes on from the trials in a file: name it with `records`")
    listed, written, called = listed_space(space, where, options.seed)
    called = name or called or str(getattr(f, "__name__", "function"))
    if not len(listed):
        raise ValueError("no assignment of the space meets its constraints")
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # some functions that are not written in Python have none
        pass
    else:
        try:
            signature.bind(**listed.decisions(0))
        except TypeError as e:
            given = ", ".join(listed.decisions(0))
            raise TypeError(f"{called}{signature} cannot be called with the draws {given}: {e}") from None
    return search_function(
        f,
        listed,
        options,
        name=called,
        written=written or partial(_written, called if called.isidentifier() else "function", listed),
        records=None if records is None else Path(records),
        on_trial=on_trial,
    )


def listed_space(
    space: FunctionSpace, where: Where | Iterable[Where] = (), seed: int = 0
) -> tuple[Assignments, Callable[[Mapping[str, Decision]], str] | None, str]:
    """The assignments of a space; of a schedule also what writes it with decisions pinned, and its name."""
    if isinstance(space, Mapping):
        return Assignments.of(space, where, seed), None, ""
    if isinstance(space, Sequence) and not isinstance(space, str):
        names = list(dict.fromkeys(name for row in space for name in row))
        return Assignments.of_rows(names, [[row.get(name) for name in names] for row in space], where), None, ""
    schedule = _schedule(space)
    draws = _Draws(schedule, host_target())
    rows, complete = draws.rows(seed)
    names = list(dict.fromkeys(name for row in rows for name in row))
    made_of = None if complete else draws.makes
    listed = Assignments.of_rows(names, [[row.get(name) for name in names] for row in rows], where, made_of)
    return listed, lambda decisions: draws.trace(schedule.body, decisions).text, schedule.name


def _written(name: str, assignments: Assignments, decisions: Mapping[str, Decision]) -> str:
    """The schedule with the decisions pinned; empty where a draw or the function has a name that the language cannot have."""
    text = pinned(name, assignments, decisions)
    try:
        _schedule(text)
    except TschedError:
        return ""
    return text


def _schedule(space: str | PathLike[str]) -> tree.ScheduleDef:
    """The only schedule of a text, which has braces, or of a file."""
    text = isinstance(space, str) and "{" in space
    source = Source.of(str(space).encode(), "<text>") if text else read_source(space)
    found = [item for item in parse(source).items if isinstance(item, tree.ScheduleDef)]
    if len(found) != 1:
        raise ValueError(f"a space is one schedule, and {source.name} has {len(found) or 'none'}")
    return found[0]


# The assignments of a schedule. The values of a draw may depend on earlier draws, so they are found by expansions, one for
# each combination of those that its statement names: few, where most draws depend on none.


@frozen
class _Draws:
    schedule: tree.ScheduleDef
    target: Target

    def trace(self, body: tuple[tree.Stmt, ...], decisions: Mapping[str, Decision]) -> Trace:
        """The trace of these statements. A draw without a decision has the first of its values."""

        def decide(site: Site) -> Decision | None:
            given = decisions.get(site.name)
            if given is not None and site.distribution.contains(given):
                return given
            return _values(site.name, site.distribution)[0]

        program = Program(self.schedule.compute, (), (), ())
        return Space(replace(self.schedule, body=body), self.schedule.compute, program, self.target, {}).expand(decide)

    def makes(self, decisions: Mapping[str, Decision]) -> bool:
        """Whether the schedule makes these decisions, and no others."""
        try:
            return self.trace(self.schedule.body, decisions).decisions == decisions
        except ScheduleRefusal:
            return False

    def rows(self, seed: int) -> tuple[list[dict[str, Decision]], bool]:
        """The assignments, or a sample of them, and whether they are all."""
        rng = stream(seed, self.schedule.name, "assignments")
        rows: list[dict[str, Decision]] = [{}]
        complete = True
        draws_of: dict[str, frozenset[str]] = {}  # by names in the text: the draws that their values depend on
        for n, statement in enumerate(self.schedule.body):
            body = self.schedule.body[: n + 1]
            named = {str(node.id) for node in walk(statement) if isinstance(node, tree.Name)}
            needed = frozenset[str]().union(*(draws_of.get(name, frozenset()) for name in named))
            joined: list[dict[str, Decision]] = []
            known: dict[tuple[Any, ...], list[dict[str, Decision]]] = {}
            for row in rows:
                key = tuple((type(row.get(name)), row.get(name)) for name in sorted(needed))
                if key not in known:
                    known[key] = list(self._below(body, row, row.keys()))
                joined += [row | more for more in known[key]]
            made = frozenset(name for found in known.values() for more in found for name in more)
            draws_of |= {name: needed | made | draws_of.get(name, frozenset()) for name in _bound(statement)}
            if len(joined) > MOST:
                complete = False
                joined = [joined[i] for i in np.sort(rng.permutation(len(joined))[:SAMPLED]).tolist()]
            rows = joined
        return rows, complete

    def _below(
        self, body: tuple[tree.Stmt, ...], row: Mapping[str, Decision], before: Iterable[str]
    ) -> Iterable[dict[str, Decision]]:
        """The assignments of the draws that the last statement adds to a row; none where a step is refused."""
        try:
            trace = self.trace(body, row)
        except ScheduleRefusal:
            return
        new = next((d for d in trace.decided if d.name not in row), None)
        if new is None:
            yield {name: value for name, value in row.items() if name not in before}
            return
        values = [new.decision] if new.pinned else _values(new.name, new.distribution)
        for value in values:
            yield from self._below(body, {**row, new.name: value}, before)


def _values(name: str, distribution: Distribution) -> list[Decision]:
    own = distribution.own if isinstance(distribution, Weighted) else distribution
    if isinstance(own, Listed):
        return list(own.support())
    if isinstance(own, Integer) and own.size() <= RANGE:
        return list(range(own.low, own.high + 1))
    raise ValueError(
        f"`{name}` is {own.describe()}; a function's draws are of values, at most {RANGE:,} of them where they are a range"
    )


def _bound(statement: tree.Stmt) -> set[str]:
    """The names that a statement binds, at any depth."""
    found: set[str] = set()
    for node in walk(statement):
        match node:
            case tree.DrawStmt(name=name):
                found.add(str(name.name))
            case tree.Let(pattern=pattern):
                found |= {str(p.name) for p in walk(pattern) if isinstance(p, tree.NamePattern)}
            case tree.Either(name=name) | tree.Maybe(name=name) if name is not None:
                found.add(str(name))
            case _:
                pass
    return found
