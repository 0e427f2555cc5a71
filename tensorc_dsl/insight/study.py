"""The trials of a task as points of its space, and the surrogate that is fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorc_dsl.insight.structures import Point, Structures, decisions_of, evenly, value_key
from tensorc_dsl.insight.surrogate import Surrogate
from tensorc_dsl.measure.blas import one_blas_thread
from tensorc_dsl.records.ranking import Kept, rank
from tensorc_dsl.records.trial import Trial
from tensorc_dsl.search.expansion import SpaceLike

FEWEST = 8
"""The least number of valid trials for a study."""

PRIOR = 1024
"""Points from the prior."""

FASTEST, OTHERS, FAILED = 128, 128, 64
"""The trials that the surrogate is fitted to: the fastest, and so many of the other valid ones and of the failed ones, evenly
from first to last. So an analysis takes as long for 20,000 trials as for 300."""


@dataclass(frozen=True, slots=True)
class TooFew:
    """There are too few trials of today's space to say anything. `left_out` trials are of another version of it."""

    valid: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Study:
    """What is known of a task. `best` is the fastest schedule: its point, and its record. `reference` is the log of the least
    time that the surrogate gives to a trial: unlike the least of many measured times, it is not too good to be true.
    `prior` are points of the space by their probability. `left_out` trials do not fit today's space."""

    structures: Structures
    prior: tuple[Point, ...]
    surrogate: Surrogate
    points: tuple[Point, ...]
    best: Point
    winner: Trial
    reference: float
    valid: int
    left_out: int

    def names(self) -> list[str]:
        """The draws, in the order of the space."""
        return list(self.titles())

    def titles(self) -> dict[str, str]:
        """What to call each draw, in the order of the space. Other structures may give a name to a draw of another module."""
        found: dict[str, dict[str, None]] = {}
        for d in (d for p in (*self.prior, *self.points) for d in p):
            found.setdefault(d.name, {}).setdefault(d.title)
        return {name: " or ".join(titles) for name, titles in found.items()}


@one_blas_thread()
def study(space: SpaceLike, task: str, trials: Iterable[Trial]) -> Study | TooFew:
    """What the trials of the task teach about the space. They are those of one machine, in the order of their records."""
    trials = list(trials)
    told = told_by(trials)
    valid = [t for t in told if t.seconds is not None]
    if len(valid) < FEWEST:
        return TooFew(len(valid), 0)
    structures = Structures(space, task)
    points: list[Point] = []
    seconds: list[float | None] = []
    places: dict[str, Point] = {}
    chosen = _chosen(told)
    for t in chosen:
        point = _placed(structures, t)
        if point is not None:
            points.append(point)
            seconds.append(t.seconds)
            places[t.program_key] = point
    left_out = len(chosen) - len(points)
    times = [s for s in seconds if s is not None]
    if len(times) < FEWEST:
        return TooFew(len(times), left_out)
    ranked = (trials[n] for n in rank(Kept(n, t) for n, t in enumerate(trials)).rows)
    # The fastest of today's space; where every one of its finalists failed later, the fastest trial.
    winner = next((t for t in ranked if t.program_key in places), None) or min(
        (t for t in chosen if t.program_key in places and t.seconds is not None), key=lambda t: t.seconds or 0.0
    )
    surrogate = Surrogate.of(points, seconds)
    prior = tuple(structures.prior(PRIOR, "prior")) or tuple(points)
    means, _ = surrogate.log_seconds(points)
    reference = min(float(m) for m, s in zip(means, seconds, strict=True) if s is not None)
    best = places[winner.program_key]
    return Study(structures, prior, surrogate, tuple(points), best, winner, reference, len(valid), left_out)


def told_by(trials: Iterable[Trial]) -> list[Trial]:
    """One trial for each program, in order; what was measured again speaks. The comparison of finalists does not count here:
    its times are of another moment."""
    found: dict[str, Trial] = {}
    for t in trials:
        if t.phase != "final":
            found[t.program_key] = t
    return list(found.values())


def _chosen(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that the surrogate is fitted to, in their order."""
    order = sorted((t.seconds, n) for n, t in enumerate(trials) if t.seconds is not None)
    fast = [n for _, n in order[:FASTEST]]
    others = evenly(sorted(n for _, n in order[FASTEST:]), OTHERS)
    failed = evenly([n for n, t in enumerate(trials) if t.seconds is None], FAILED)
    return [trials[n] for n in sorted((*fast, *others, *failed))]


def _placed(structures: Structures, trial: Trial) -> Point | None:
    """The trial as a point of the space; None if today's space cannot have made it."""
    point = structures.point(trial.decisions, structures.rng("placed"))
    if point is None or not _is_of(point, trial):
        point = structures.expanded(trial.decisions, structures.rng("placed"))
    return point if point is not None and _is_of(point, trial) else None


def _is_of(point: Point, trial: Trial) -> bool:
    decided = decisions_of(point)
    return all(n in trial.decisions and value_key(trial.decisions[n]) == value_key(d) for n, d in decided.items())
