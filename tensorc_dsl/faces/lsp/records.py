"""What the records of searches say about the tasks of a document: the best schedule, and the values of its draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check.positions import CheckedItem
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.documents import path_of
from tensorc_dsl.faces.report.entries import table
from tensorc_dsl.interp.expand import Watched
from tensorc_dsl.interp.space import Space, task_space
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Draw, preferring, prior, shown
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.records.database import Database, default_path
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key

MOST_VALUES = 8
"""The number of values of a draw that are listed, fastest first."""

MOST_THREADS = 256
"""Records for up to so many threads are looked for."""

Drawing = t.DrawStmt | t.Either | t.Maybe


@frozen
class Tuned:
    """The records of a task on this machine: the fastest valid one, and all valid ones."""

    key: str
    """Of the task's program."""
    threads: int
    best: Trial
    valid: tuple[Trial, ...]


@frozen
class Replayed:
    """The best schedule of a task, as the text stands now: the draws with their places, and those that the record decided."""

    task: t.TaskDef
    tuned: Tuned
    watched: Watched


@frozen
class Decided:
    """A draw of a document, at these characters, in the best record of a task."""

    start: int
    end: int
    text: str
    replayed: Replayed
    draw: Draw

    @property
    def pin(self) -> str:
        """What pins it, behind its text; empty for a draw that has no place for a pin."""
        return f" := {shown(self.draw.decision)}" if self.text.startswith("let") and not self.draw.pinned else ""


@dataclass(slots=True)
class Records:
    """The database at a path, by default the user's. It is only read, and read again when it has changed."""

    path: Path | None = None
    _stamp: tuple[tuple[int, int], ...] = ()
    _tuned: dict[str, Tuned | None] = field(default_factory=dict[str, Tuned | None])
    _known: frozenset[tuple[str, str]] = frozenset()
    _keys: dict[int, tuple[object, str]] = field(default_factory=dict[int, tuple[object, str]])
    _replayed: dict[int, tuple[CheckedItem, tuple[object, ...], Replayed | None]] = field(
        default_factory=dict[int, tuple[CheckedItem, tuple[object, ...], Replayed | None]]
    )

    # --- the database ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Forget what was read if the file is another one now."""
        path = (self.path or default_path()).expanduser()
        stamp: list[tuple[int, int]] = []
        for file in (path, path.with_name(f"{path.name}-wal")):
            try:
                found = file.stat()
                stamp.append((found.st_mtime_ns, found.st_size))
            except OSError:
                stamp.append((0, 0))
        if tuple(stamp) == self._stamp:
            return
        self._stamp = tuple(stamp)
        self._tuned, self._replayed, self._known = {}, {}, frozenset()
        try:
            database = Database.reading(self.path)
        except TschedError:
            return  # the commands say what is wrong with it
        if database is not None:
            with database:
                self._known = frozenset((task, target) for _, task, target, _ in database.tasks())

    def _key(self, program: object, make: str | None = None) -> str | None:
        known = self._keys.get(id(program))
        if known is not None:
            return known[1]
        if make is not None:
            if len(self._keys) > 4096:
                self._keys.clear()
            self._keys[id(program)] = (program, make)
        return make

    def tuned(self, analysis: Analysis, task: t.TaskDef) -> Tuned | None:
        """The records of a task on this machine, for any number of threads; None without any."""
        self._look()
        program = analysis.checked.elaborated.get(str(task.name))
        if program is None or not self._known:
            return None
        key = self._key(program) or self._key(program, program_key(program))
        assert key is not None
        if key not in self._tuned:
            self._tuned[key] = self._read(key) if any(k == key for k, _ in self._known) else None
        return self._tuned[key]

    def _read(self, key: str) -> Tuned | None:
        """The records for as many threads as this machine has, else for the least number of which there are any."""
        machine = host_target()
        threads = dict.fromkeys((machine.cores, *range(1, MOST_THREADS + 1)))
        targets = {n: target_key(replace(machine, cores=n), n) for n in threads}
        here = [n for n in threads if (key, targets[n]) in self._known]
        database = Database.reading(self.path) if here else None
        if database is None:
            return None
        with database:
            for n in here:
                target = targets[n]
                ranking = database.ranking(key, target)
                if not ranking.rows:
                    continue
                kept = [k.trial for k in database.of(key, target)]
                valid = tuple(x for x in kept if isinstance(x, Trial) and x.seconds is not None)
                return Tuned(key, n, database.trial(ranking.rows[0]), valid)
        return None

    # --- draws -------------------------------------------------------------------------------------------------------

    def replayed(self, analysis: Analysis, task: t.TaskDef) -> Replayed | None:
        """The best record of the task, run on the text as it stands; None without a record or a space."""
        tuned = self.tuned(analysis, task)
        if tuned is None:
            return None
        entry = analysis.memory.entry(task)
        space = space_of(analysis, task, tuned.threads)
        if space is None:
            return None
        base = space.definition
        # An item that means the same has the same entry.
        means = (analysis.memory.entries.get(id(base), base), tuned, *self._modules(analysis))
        known = self._replayed.get(id(entry))
        if (
            known is not None
            and len(known[1]) == len(means)
            and all(a is b for a, b in zip(known[1], means, strict=True))
        ):
            return known[2]
        if len(self._replayed) > 512:
            self._replayed.clear()
        watched = space.watch(preferring(tuned.best.decisions, prior(np.random.default_rng(0))))
        found = Replayed(task, tuned, watched)
        self._replayed[id(entry)] = (entry, means, found)
        return found

    @staticmethod
    def _modules(analysis: Analysis) -> tuple[object, ...]:
        own = [i for i in analysis.items if isinstance(i, t.ModuleDef | t.SpaceDef | t.ScheduleDef)]
        return tuple(analysis.memory.entry(i) for i in own)

    def draws(self, analysis: Analysis, users: Iterable[Analysis]) -> Iterator[Decided]:
        """The draws of the document's text in the best records of its tasks, as far as the records decide them; and of the
        tasks of `users`, other documents, which may use this one."""
        for found, span, draw in self._decided(analysis):
            if analysis.is_own(span):
                yield Decided(analysis.start(span), analysis.end(span), span.text, found, draw)
        own = path_of(analysis.uri).resolve()
        for user in users:
            for found, span, draw in self._decided(user):
                place = None if user.is_own(span) else user.place(span)
                if place is not None and place.path == own and place.source.text == analysis.source.text:
                    yield Decided(place.start, place.end, span.text, found, draw)

    def _decided(self, analysis: Analysis) -> Iterator[tuple[Replayed, Span, Draw]]:
        """The draws that the best records of the document's tasks decide, with their places in all files."""
        for task in analysis.checked.tasks.values():
            found = self.replayed(analysis, task) if analysis.is_own(task.span) else None
            if found is None:
                continue
            decided: Mapping[str, Decision] = found.tuned.best.decisions
            for span, draw in found.watched.places:
                if draw.name in decided and decided[draw.name] == draw.decision:
                    yield found, span, draw

    def told(self, analysis: Analysis, node: Drawing, users: Iterable[Analysis]) -> Iterator[str]:
        """The values of a draw in the best records, and its support, as Markdown."""
        for here in self.draws(analysis, users):
            if here.start != analysis.start(node.span):
                continue
            found, draw = here.replayed, here.draw
            best, legal = units.seconds(found.tuned.best.seconds or 0.0), draw.distribution.describe()
            yield f"**{shown(draw.decision)}** in the best record of `{found.task.name}` ({best}); it can be {legal}"
            yield _values(draw.name, found.tuned)

    def about(self, analysis: Analysis, task: t.TaskDef) -> Iterator[str]:
        """A summary of the records of a task."""
        tuned = self.tuned(analysis, task)
        if tuned is not None:
            best, threads = units.seconds(tuned.best.seconds or 0.0), units.counted(tuned.threads, "thread")
            yield f"best record: {best} on {threads}, of {units.counted(len(tuned.valid), 'valid trial')}"


def _values(name: str, tuned: Tuned) -> str:
    """How often each value was tried, and the least time with it: the values fastest first."""
    times: dict[Decision, list[float]] = {}
    for trial in tuned.valid:
        if name in trial.decisions and trial.seconds is not None:
            times.setdefault(trial.decisions[name], []).append(trial.seconds)
    ranked = sorted(times, key=lambda d: min(times[d]))
    rows = [(f"`{shown(d)}`", str(len(times[d])), units.seconds(min(times[d]))) for d in ranked[:MOST_VALUES]]
    more = f"\n\nand {units.counted(len(ranked) - MOST_VALUES, 'more value')}" if len(ranked) > MOST_VALUES else ""
    return table((f"`{name}`", "valid trials", "least time"), rows) + more


def space_of(analysis: Analysis, task: t.TaskDef, threads: int | None = None) -> Space | None:
    """The space of a task on this machine; None if there is none, or something is wrong with the task."""
    if str(task.name) not in analysis.checked.elaborated:
        return None
    try:
        return task_space(analysis.checked, str(task.name), host_target(threads))
    except TschedError:
        return None
