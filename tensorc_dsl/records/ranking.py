"""Ranks the records of a task, and selects those to be pruned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc_dsl.records.errors import Passed
from tensorc_dsl.records.rows import BadRow
from tensorc_dsl.records.trial import Trial


@dataclass(frozen=True, slots=True)
class Kept:
    """A record by the number of its row: a trial, or the reason why it cannot be read."""

    row: int
    trial: Trial | BadRow


@dataclass(frozen=True, slots=True)
class Ranking:
    """The rows of the valid trials of a task on a target, one for each program, fastest first; and what is none."""

    rows: tuple[int, ...]
    passed: tuple[Passed, ...]


def rank(kept: Iterable[Kept]) -> Ranking:
    """The valid ones among the records of one task on one target.

    The time of a finalist replaces its earlier times: the least of many first measurements is mostly too good to be true.
    So the time of a program that was no finalist counts as longer, by the largest factor between the final and the first time
    of a finalist: it was slower than these when they were measured alike. A program that failed as a finalist does not count.
    """
    finals: dict[str, tuple[float, int]] = {}
    firsts: dict[str, tuple[float, int]] = {}
    failed: set[str] = set()
    passed: list[Passed] = []
    for k in kept:
        t = k.trial
        if isinstance(t, BadRow):
            passed.append(Passed(k.row, str(t)))
        elif t.seconds is not None:
            held = finals if t.phase == "final" else firsts
            held[t.program_key] = min(held.get(t.program_key, (t.seconds, k.row)), (t.seconds, k.row))
        elif t.phase == "final":
            failed.add(t.program_key)
    factor = max((s / firsts[key][0] for key, (s, _) in finals.items() if key in firsts), default=1.0)
    alike = {key: (max(1.0, factor) * s, row) for key, (s, row) in firsts.items()} | finals
    valid = sorted(place for key, place in alike.items() if key not in failed)
    return Ranking(tuple(number for _, number in valid), tuple(passed))


@dataclass(slots=True)
class Group:
    """The records of one task on one target, in the order they were recorded."""

    task: str
    task_key: str
    target_key: str
    kept: list[Kept] = field(default_factory=list[Kept])

    @property
    def trials(self) -> dict[int, Trial]:
        """Those that can be read, by row."""
        return {k.row: k.trial for k in self.kept if isinstance(k.trial, Trial)}

    def ranked(self) -> tuple[tuple[int, Trial], ...]:
        """The valid ones with their rows, one for each program, fastest first."""
        trials = self.trials
        return tuple((row, trials[row]) for row in rank(self.kept).rows)

    def beyond(self, most: int) -> tuple[int, ...]:
        """The rows of all programs but the `most` best."""
        best = {t.program_key for _, t in self.ranked()[:most]}
        return tuple(row for row, t in self.trials.items() if t.program_key not in best)


def grouped(kept: Iterable[Kept], task: str | None = None) -> tuple[tuple[Group, ...], tuple[Passed, ...]]:
    """The records by task and target, sorted, of the task of that name or of all; and those that cannot be read."""
    found: dict[tuple[str, str, str], Group] = {}
    passed: list[Passed] = []
    for k in kept:
        t = k.trial
        if isinstance(t, BadRow):
            passed.append(Passed(k.row, str(t)))
        elif task is None or t.task == task:
            key = (t.task, t.task_key, t.target_key)
            found.setdefault(key, Group(*key)).kept.append(k)
    return tuple(found[key] for key in sorted(found)), tuple(passed)
