"""The recorded past of an interrupted search, so that a resumed search measures nothing twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tensorc_dsl.measure.outcome import Outcome, Status
from tensorc_dsl.records.ranking import Kept
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.trace.draw import Decision


@dataclass(slots=True)
class Past:
    """The outcomes and the decisions of a search by program; `run` is its name, and empty where there is none.

    `began` is the date of its first record; nothing that was recorded later was known to it.
    """

    run: str = ""
    began: float = math.inf
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    decisions: dict[str, Mapping[str, Decision]] = field(default_factory=dict[str, Mapping[str, Decision]])

    def take(self, program_key: str) -> Outcome | None:
        """The recorded outcome of the program. It is returned once, since a search proposes no program twice."""
        return self.outcomes.pop(program_key, None)

    def fastest(self) -> list[tuple[float, str]]:
        """(seconds, program) of the valid ones that were not taken, fastest first."""
        return sorted((o.seconds, key) for key, o in self.outcomes.items() if o.seconds is not None)


def latest(kept: Iterable[Kept], options: SearchOptions) -> Past:
    """The last search with these options among the records of a task on a target.

    A repeated measurement replaces the first. Records of format 1 do not name their search.
    """
    found: dict[str, Past] = {}
    last: dict[str, float] = {}
    for k in kept:
        t = k.trial
        if not isinstance(t, Trial) or not t.run or t.phase == "final":
            continue
        if (t.strategy, t.seed) == (options.strategy, options.seed):
            past = found.setdefault(t.run, Past(t.run, t.created))
            past.began = min(past.began, t.created)
            past.outcomes[t.program_key] = outcome_of(t)
            past.decisions[t.program_key] = t.decisions
            last[t.run] = max(last.get(t.run, 0.0), t.created)
    return found[max(last, key=lambda run: (last[run], run))] if last else Past()


def outcome_of(t: Trial) -> Outcome:
    """The outcome in the record."""
    return Outcome(
        Status(t.status), t.seconds, t.times, t.message, t.max_error, t.build_seconds, t.run_seconds, t.censored, t.scale
    )  # fmt: skip
