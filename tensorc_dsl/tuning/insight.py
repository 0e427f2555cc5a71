"""Derives from the records of a task which draws matter, and which of their values are good: how much of the time each
decides, which values it has in fast schedules, and whether it may be pinned. Nothing here prints, measures or writes a
record.

The trials of a task are points of its space, to which a surrogate is fitted. Importance is a functional analysis of variance
over the surrogate: that of Hutter, Hoos and Leyton-Brown (ICML 2014), with the surrogate in place of their forest and points
from the prior, so that draws may be conditional and their distributions depend on each other. A posterior is a distribution,
with counterfactual slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
import scipy

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.trace import Draw
from tensorc_dsl.tuning.records.database import Kept, rank
from tensorc_dsl.tuning.records.trial import COMPARED, Trial
from tensorc_dsl.tuning.search.expansion import SpaceLike, stream
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Forest, Layout, Memory, Model

# Points of a space, draws with decisions, without an expansion for each.
#
# An expansion takes tens of milliseconds, and an analysis looks at tens of thousands of points. So the few draws are found
# whose decisions change which other draws there are, or what these may be; points that agree on them have the same
# distributions.


DRAWN = 32
"""Draws from the prior, at most twice as many expansions where some are refused."""

PROBES = 3
"""Other values of a draw that are tried, at two points, to see whether it changes other draws."""

HELD = 192
"""Expansions for combinations of the draws that change others; from then on the most similar one known stands in."""

Point = tuple[Draw, ...]
"""The open draws of one schedule, in their order, with their decisions."""


def value_key(decision: Decision) -> tuple[str, Decision]:
    """Equal for equal decisions; true is not 1."""
    return type(decision).__name__, decision


def decisions_of(point: Point) -> dict[str, Decision]:
    return {d.name: d.decision for d in point}


@frozen
class _Skeleton:
    """What the decisions of the influential draws leave: all open draws, these with the decisions that led here."""

    draws: Point


class Structures:
    """The points of a space. Everything is a function of the space and the task's name."""

    def __init__(self, space: SpaceLike, task: str) -> None:
        self._space = space
        self._task = task
        self._held: dict[tuple[tuple[str, tuple[str, Decision]], ...], _Skeleton | None] = {}
        self.drawn = self._draw()
        self.influential = frozenset[str]()
        self.influential = frozenset(name for name in self.names() if self._influences(name))

    def rng(self, purpose: str) -> np.random.Generator:
        """A stream of random numbers for one purpose."""
        return stream(0, self._task, f"insight/{purpose}")

    def names(self) -> list[str]:
        """The names of the draws of the points from the prior, in the order in which they were met."""
        return list(dict.fromkeys(d.name for point in self.drawn for d in point))

    def expanded(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Point | None:
        """The point that the decisions lead to, by an expansion; None if a step is refused."""
        try:
            return self._space.replay(decisions, rng).open_draws
        except ScheduleRefusal:
            return None

    def moved(self, point: Point, name: str, value: Decision, rng: np.random.Generator) -> Point | None:
        """The point with another decision of a draw; None if a step is refused.

        The other draws keep their decisions where these are still possible, and are drawn from their distributions where not.
        """
        if name not in self.influential:
            return tuple(_decided(d, value) if d.name == name else d for d in point)
        return self.point(decisions_of(point) | {name: value}, rng)

    def point(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Point | None:
        """The point with these decisions, as far as they are possible; None if a step is refused."""
        skeleton = self._skeleton({n: d for n, d in decisions.items() if n in self.influential})
        if skeleton is None:
            return None
        return tuple(self._kept(d, decisions, rng) for d in skeleton.draws)

    def _kept(self, d: Draw, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Draw:
        if d.name in decisions and d.distribution.contains(decisions[d.name]):
            return _decided(d, decisions[d.name])
        # The other draws are as they are since an influential one has this decision.
        return d if d.name in self.influential else _decided(d, d.distribution.sample(rng))

    def prior(self, count: int, slot: str) -> list[Point]:
        """About so many points by their probability: from each drawn one, all draws are drawn anew, again and again."""
        rng = self.rng(slot)
        out: list[Point] = []
        for _ in range(-(-count // max(1, len(self.drawn)))):
            for point in self.drawn:
                for name in [d.name for d in point]:
                    held = {d.name: d for d in point}
                    if name in held:
                        moved = self.moved(point, name, held[name].distribution.sample(rng), rng)
                        point = point if moved is None else moved
                out.append(point)
        return out

    def _draw(self) -> tuple[Point, ...]:
        rng = self.rng("drawn")
        out: list[Point] = []
        for _ in range(2 * DRAWN):
            try:
                out.append(self._space.sample(rng).open_draws)
            except ScheduleRefusal:
                continue
            if len(out) == DRAWN:
                break
        return tuple(out)

    def _influences(self, name: str) -> bool:
        """Whether another decision of the draw changes which other draws there are, or what they may be."""
        having = [p for p in self.drawn if any(d.name == name for d in p)]
        for point in {id(p): p for p in (having[0], having[-1])}.values():
            draw = next(d for d in point if d.name == name)
            before = _other_draws(point, name)
            moves = draw.distribution.moves(draw.decision)
            for value in evenly_spaced(moves, PROBES):
                after = self.expanded(decisions_of(point) | {name: value}, self.rng(f"probe/{name}"))
                if after is not None and _other_draws(after, name) != before:
                    return True
        return False

    def _skeleton(self, decisions: Mapping[str, Decision]) -> _Skeleton | None:
        key = tuple(sorted((n, value_key(d)) for n, d in decisions.items()))
        if key not in self._held:
            if len(self._held) >= HELD:
                return self._similar(dict(key))
            point = self.expanded(decisions, self.rng(f"structure/{key}"))
            self._held[key] = None if point is None else _Skeleton(point)
        return self._held[key]

    def _similar(self, wanted: Mapping[str, tuple[str, Decision]]) -> _Skeleton | None:
        known = [(key, s) for key, s in self._held.items() if s is not None]
        agreeing = [sum(wanted.get(n) == value for n, value in key) - len(key) for key, _ in known]
        return known[int(np.argmax(agreeing))][1] if known else None


def _decided(draw: Draw, value: Decision) -> Draw:
    return replace(draw, decision=value, pinned=False)


def _other_draws(point: Point, name: str) -> dict[str, Distribution]:
    return {d.name: d.distribution for d in point if d.name != name}


T = TypeVar("T")


def evenly_spaced(values: Sequence[T], count: int) -> list[T]:
    """At most so many of the values, as evenly as possible from the first to the last."""
    if len(values) <= count:
        return list(values)
    return [values[n * (len(values) - 1) // (count - 1)] for n in range(count)]


# The surrogate of an analysis: the process of the search, over draws alone, with its error on trials that it did not see.


CHUNK = 2048
"""Points that are predicted at once: the process needs a number for each pair of a point and a trial."""


SLOW = 3.0
"""A schedule more than so many times as slow as the best, and slower than half of them, counts as that slow: how bad a bad
one must not influence the predictions for the good ones."""

FOLDS = 4
"""Parts of the trials, each of which is predicted from the others: so hyperparameters that fit noise are found out."""


@frozen
class Surrogate:
    """Predicts the log of the seconds of a point. `explained` is the share of the variance between trials that it explains
    where they are not among those that it is fitted to: 1 is perfect, 0 is no better than the mean."""

    layout: Layout
    model: Model
    explained: float

    @staticmethod
    def of(points: Sequence[Point], seconds: Sequence[float | None]) -> Surrogate:
        """The surrogate after these trials; a failure has no seconds, and at least `FOLDS` have some."""
        seconds = _limited(seconds)
        layout = Layout()
        rows = layout.matrix([layout.of_draws(p) for p in points])
        missed, explained = _missed(rows, seconds)
        # The deviations are corrected by the errors, as those of a search are.
        memory = Memory(errors=missed)
        return Surrogate(layout, Model.of(rows, list(seconds), np.zeros(len(rows)), memory), explained)

    def rows(self, points: Sequence[Point]) -> Array:
        return self.layout.matrix([self.layout.of_draws(p) for p in points])

    def log_seconds(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Means and deviations of the log of the true time of each point, without the noise of a measurement."""
        parts = [self.log_seconds_of(self.rows(points[n : n + CHUNK])) for n in range(0, len(points), CHUNK)]
        means, deviations = zip(*parts, strict=True) if parts else ((np.zeros(0),), (np.zeros(0),))
        return np.concatenate(means), np.concatenate(deviations)

    def log_seconds_of(self, rows: Array) -> tuple[Array, Array]:
        """As `log_seconds`, for points with these rows."""
        found = self.model.beliefs(rows, np.zeros(len(rows)))
        return -found.mean * self.model.deviation, found.deviation * self.model.deviation * self.model.calibration


def _limited(seconds: Sequence[float | None]) -> list[float | None]:
    """The times, none beyond the limit."""
    times = [s for s in seconds if s is not None]
    limit = max(SLOW * min(times), float(np.median(times)))
    return [None if s is None else min(s, limit) for s in seconds]


def _missed(rows: Array, seconds: Sequence[float | None]) -> tuple[list[float], float]:
    """The errors at trials that were not seen, in deviations, and the share of the variance that is explained."""
    valid = [n for n, s in enumerate(seconds) if s is not None]
    log = np.log([seconds[n] or 1.0 for n in valid])
    left = np.zeros(len(valid))
    missed = np.zeros(len(valid))
    for fold in range(FOLDS):
        unseen = np.arange(fold, len(valid), FOLDS)
        seen = np.setdiff1d(np.arange(len(valid)), unseen)
        model = Model.of(rows[np.array(valid)[seen]], np.exp(log[seen]).tolist(), np.zeros(len(seen)), Memory())
        mean, deviation = model.log_speed(rows[np.array(valid)[unseen]], np.zeros(len(unseen)))
        left[unseen] = log[unseen] + mean
        missed[unseen] = left[unseen] / deviation
    explained = 1.0 - float((left**2).sum()) / max(float(((log - log.mean()) ** 2).sum()), 1e-12)
    return missed.tolist(), min(1.0, max(0.0, explained))


FEWEST = 8
"""The least number of valid trials for a study."""

PRIOR = 1024
"""Points from the prior."""

FASTEST, OTHERS, FAILED = 128, 128, 64
"""The trials that the surrogate is fitted to: the fastest, and so many of the other valid ones and of the failed ones, evenly
from first to last. So an analysis takes as long for 20,000 trials as for 300."""


@frozen
class TooFew:
    """There are too few trials of today's space to say anything. `left_out` trials are of another version of it."""

    valid: int
    left_out: int


@frozen
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
        if t.phase not in COMPARED:
            found[t.program_key] = t
    return list(found.values())


def _chosen(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that the surrogate is fitted to, in their order."""
    order = sorted((t.seconds, n) for n, t in enumerate(trials) if t.seconds is not None)
    fast = [n for _, n in order[:FASTEST]]
    others = evenly_spaced(sorted(n for _, n in order[FASTEST:]), OTHERS)
    failed = evenly_spaced([n for n, t in enumerate(trials) if t.seconds is None], FAILED)
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


# The searches among the records of a task, and the one that a word means.


SHORTEST = 4
"""Letters of a search's name that are enough to mean it, if no other name begins with them."""


@frozen
class Search:
    """The records of one search, in their order. `run` is its name; records of format 1 have none, and those of one strategy
    and seed count as one search."""

    run: str
    strategy: str
    seed: int
    trials: tuple[Trial, ...]

    @property
    def label(self) -> str:
        return f"{self.strategy}/{self.seed}"


def searches(trials: Iterable[Trial]) -> list[Search]:
    """The searches, in the order of their first records."""
    found: dict[tuple[str, str, int], list[Trial]] = {}
    for t in trials:
        found.setdefault((t.run, t.strategy, t.seed), []).append(t)
    return [Search(*key, tuple(some)) for key, some in found.items()]


def meant(word: str, among: Sequence[Search]) -> Search | None:
    """The search that the word means: `bayes/0`, by strategy and seed; `bayes`, by strategy; or the beginning of its name. Of
    several by strategy and seed, it is the last one."""
    named = [s for s in among if len(word) >= SHORTEST and s.run.startswith(word)]
    if len(named) == 1:
        return named[0]
    return next((s for s in reversed(among) if word in (s.label, s.strategy)), None)


MOVED = 384
"""Points of which each draw is drawn anew."""

TREES, DEPTH = 30, 3
"""The forest that finds what a draw alone explains."""


@frozen
class Importance:
    """Shares of the variance of the log time over the space. `alone` is what the draw explains by itself, whether it is made
    at all included (a Sobol index of first order); `total` adds its interplay with the other draws (a total Sobol index).
    `made` is the probability that the draw is made. `title` says whose draw it is."""

    name: str
    title: str
    alone: float
    total: float
    made: float


@one_blas_thread()
def importance(study: Study) -> tuple[Importance, ...]:
    """The importance of each draw, the most important first."""
    points = study.prior
    y, _ = study.surrogate.log_seconds(points)
    variance = float(y.var())
    found: list[Importance] = []
    for name, title in study.titles().items():
        made = sum(any(d.name == name for d in p) for p in points) / len(points)
        if variance < 1e-12 or not made:
            found.append(Importance(name, title, 0.0, 0.0, made))
            continue
        alone = _alone(name, points, y) / variance
        total = _total(study, name, points[:MOVED], y[:MOVED]) / variance
        found.append(Importance(name, title, min(1.0, alone), min(1.0, max(alone, total)), made))
    return tuple(sorted(found, key=lambda i: (-round(i.total, 6), study.names().index(i.name))))


def _alone(name: str, points: Sequence[Point], y: Array) -> float:
    """The variance of the mean given the draw, as far as a forest that saw one half of the points finds it in the other."""
    layout = Layout()
    vectors = [layout.of_draws(d for d in p if d.name == name) for p in points]
    x = layout.matrix(vectors)
    halves = (slice(0, None, 2), slice(1, None, 2))
    shares: list[float] = []
    for seen, unseen in (halves, halves[::-1]):
        guess = Forest.fit(x[seen], y[seen], trees=TREES, depth=DEPTH, rate=0.3).at(x[unseen])
        left = y[unseen] - guess
        shares.append(float(y[unseen].var() - (left * left).mean()))
    return max(0.0, sum(shares) / 2)


def _total(study: Study, name: str, points: Sequence[Point], y: Array) -> float:
    """Half the mean square of the change where only this draw is drawn anew (Jansen, 1999)."""
    rng = study.structures.rng(f"total/{name}")
    moved: list[Point] = []
    before: list[float] = []
    for point, value in zip(points, y.tolist(), strict=True):
        draw = next((d for d in point if d.name == name), None)
        if draw is None:
            # Where the draw is not made, it changes nothing.
            moved.append(point)
        else:
            moved.append(study.structures.moved(point, name, draw.distribution.sample(rng), rng) or point)
        before.append(value)
    after, _ = study.surrogate.log_seconds(moved)
    return float(((after - np.array(before)) ** 2).mean()) / 2


# Which values of a draw fast schedules have: the distribution of the space's points that are about as fast as the best.
#
# The points are those of the prior, weighted by the probability that the surrogate gives them to be that fast, and to work.
# They are found by Markov chains (Metropolis et al., 1953; Hastings, 1970) that begin at the fastest trials.


NEAR = 0.05
"""Schedules within this share of the best time count as fast."""

CHAINS, STEPS, WARM, KEPT = 32, 480, 80, 4
"""Chains, the moves of each, those at its beginning that do not count, and which of the others do: every fourth."""

STARTS = 8
"""The fastest trials, at which chains begin in turn."""


@frozen
class Value:
    """A decision of a draw. `prior` and `posterior` are its probabilities, given that the draw is made: by the space, and
    among fast schedules."""

    decision: Decision
    prior: float
    posterior: float


@frozen
class Learnt:
    """What is learnt of a draw. `made_prior` and `made` are the probabilities that it is made: by the space, and among fast
    schedules. `values` are the decisions of fast schedules, the likeliest first; where the draw is never made, there is none.
    The posterior probabilities add up to 1, the prior ones to at most 1. `distribution` is one that it has."""

    name: str
    distribution: Distribution
    made_prior: float
    made: float
    values: tuple[Value, ...]


@one_blas_thread()
def posterior(study: Study) -> tuple[Learnt, ...]:
    """What is learnt of each draw, in the order of the space."""
    fast = fast_points(study)
    return tuple(_learnt(name, fast, study) for name in study.names())


def fast_points(study: Study) -> list[Point]:
    """Points of the space by their probability, given that they are within `NEAR` of the best time."""
    structures, rng = study.structures, study.structures.rng("posterior")
    means, _ = study.surrogate.log_seconds(study.points)
    starts = [study.points[int(n)] for n in np.argsort(means, kind="stable")[:STARTS]]
    points = [starts[n % len(starts)] for n in range(CHAINS)]
    weights = _log_weights(study, points)
    out: list[Point] = []
    for step in range(STEPS):
        proposed = [_proposed(structures, p, rng) for p in points]
        new = _log_weights(study, [p for p, _ in proposed])
        tickets = np.log(rng.random(CHAINS))
        for n, (point, correction) in enumerate(proposed):
            if tickets[n] < new[n] - weights[n] + correction:
                points[n], weights[n] = point, new[n]
        if step >= WARM and (step - WARM) % KEPT == 0:
            out += points
    return out


def _log_weights(study: Study, points: Sequence[Point]) -> Array:
    """Log probabilities that the points are fast and work."""
    rows = study.surrogate.rows(points)
    mean, deviation = study.surrogate.log_seconds_of(rows)
    limit = study.reference + math.log1p(NEAR)
    return scipy.special.log_ndtr((limit - mean) / np.maximum(deviation, 1e-6)) + study.surrogate.model.log_feasible(
        rows
    )


def _proposed(structures: Structures, point: Point, rng: np.random.Generator) -> tuple[Point, float]:
    """Another point, and what its log weight is corrected by: one draw anew, or moved to a neighbour."""
    if not point:
        return point, 0.0
    draw = point[int(rng.integers(len(point)))]
    d = draw.distribution
    near = d.moves(draw.decision) if rng.random() < 0.5 else []
    if not near:
        return structures.moved(point, draw.name, d.sample(rng), rng) or point, 0.0
    value = near[int(rng.integers(len(near)))]
    back = len(d.moves(value))
    correction = math.log(len(near) / max(1, back)) + d.log_prob(value) - d.log_prob(draw.decision)
    return structures.moved(point, draw.name, value, rng) or point, correction


def _learnt(name: str, fast: Sequence[Point], study: Study) -> Learnt:
    having = [d for p in fast for d in p if d.name == name]
    before = [d for p in study.prior for d in p if d.name == name]
    # A rare draw may be that of a slow trial alone, neither among the fast points nor among those from the prior.
    distribution = next(
        d.distribution for d in (*having, *before, *(d for p in study.points for d in p)) if d.name == name
    )
    counts: dict[tuple[str, Decision], int] = {}
    for d in having:
        counts[value_key(d.decision)] = counts.get(value_key(d.decision), 0) + 1
    distributions = [d.distribution for d in before or having]
    values = [Value(decision, _prior(distributions, decision), n / len(having)) for (_, decision), n in counts.items()]
    values.sort(key=lambda v: (-v.posterior, str(v.decision)))
    return Learnt(name, distribution, len(before) / len(study.prior), len(having) / len(fast), tuple(values))


def _prior(distributions: Sequence[Distribution], decision: Decision) -> float:
    """The mean probability of the decision over the distributions that the draw may have."""
    chances = {d: math.exp(d.log_prob(decision)) for d in set(distributions)}
    return sum(chances[d] for d in distributions) / len(distributions)


# Counterfactual slices: the time of the best schedule with another decision of one draw, as the surrogate predicts it.


MOST_VALUES = 16
"""Decisions of a draw that are looked at: the best one's, and those nearest to it by moves."""

WIDE = 1.96
"""Deviations on each side that hold 95 % of a normal distribution."""


@frozen
class Step:
    """A decision, and the seconds that the surrogate predicts: the middle, and the ends of an interval that holds 95 %.

    `refused` where a step of the schedule does not apply; then there is no prediction. `others` are the draws that have
    other decisions than the best schedule has, since theirs are impossible now.
    """

    decision: Decision
    refused: bool
    middle: float
    low: float
    high: float
    others: tuple[str, ...]


@frozen
class Slice:
    """The decisions of one draw of the best schedule, in the order of their features. `whole` if these are all there are."""

    name: str
    best: Decision
    steps: tuple[Step, ...]
    whole: bool


@one_blas_thread()
def slices(study: Study) -> tuple[Slice, ...]:
    """A slice for each draw of the best schedule that has more than one decision, in the order of the space."""
    return tuple(_slice(study, d) for d in study.best if d.distribution.size() > 1)


def _slice(study: Study, draw: Draw) -> Slice:
    ordered = nearest(draw, MOST_VALUES)
    points = [_changed(study, draw, v) for v in ordered]
    there = [p for p in points if p is not None]
    means, deviations = study.surrogate.log_seconds(there)
    predictions = zip(map(float, means), map(float, deviations), strict=True)
    steps: list[Step] = []
    for value, point in zip(ordered, points, strict=True):
        if point is None:
            steps.append(Step(value, True, math.nan, math.nan, math.nan, ()))
            continue
        mean, deviation = next(predictions)
        low, high = math.exp(mean - WIDE * deviation), math.exp(mean + WIDE * deviation)
        steps.append(Step(value, False, math.exp(mean), low, high, _others(study.best, point, draw.name)))
    return Slice(draw.name, draw.decision, tuple(steps), len(ordered) == draw.distribution.size())


def nearest(draw: Draw, most: int) -> list[Decision]:
    """The decision, its neighbours, their neighbours, and so on, at most so many; in the order of their features."""
    found = {value_key(draw.decision): draw.decision}
    queue = [draw.decision]
    while queue and len(found) < most:
        for value in draw.distribution.moves(queue.pop(0)):
            if value_key(value) not in found and len(found) < most:
                found[value_key(value)] = value
                queue.append(value)
    return sorted(found.values(), key=lambda v: (draw.distribution.features(v), str(v)))


def _changed(study: Study, draw: Draw, value: Decision) -> Point | None:
    """The best point with that decision, by an expansion: a refusal is found by no other way."""
    if value_key(value) == value_key(draw.decision):
        return study.best
    rng = study.structures.rng(f"slice/{draw.name}/{value}")
    return study.structures.expanded(decisions_of(study.best) | {draw.name: value}, rng)


def _others(best: Point, point: Point, name: str) -> tuple[str, ...]:
    before = {d.name: value_key(d.decision) for d in best}
    after = {d.name: value_key(d.decision) for d in point}
    return tuple(n for n in dict.fromkeys((*before, *after)) if n != name and before.get(n) != after.get(n))


# Draws that may be pinned, so that a later search has less to decide.


SURE = 0.9
"""A value that so many of the fast schedules have is settled."""

NO_MATTER = 0.01
"""A draw with a smaller share of the variance does not matter."""


@frozen
class Pin:
    """A draw of the best schedule, its decision there, and why it may be pinned: nearly all fast schedules have this
    decision, or it hardly changes the time. `share` is that of the fast schedules, or that of the variance."""

    name: str
    decision: Decision
    why: Literal["settled", "no matter"]
    share: float


def pins(study: Study, found: Sequence[Importance], learnt: Sequence[Learnt]) -> tuple[Pin, ...]:
    """The pins, in the order of the space; none where the surrogate explains too little to say."""
    if study.surrogate.explained < 0.5:
        return ()
    matter = {i.name: i for i in found}
    out: list[Pin] = []
    known = {l.name: l for l in learnt}
    for d in study.best:
        if d.distribution.size() < 2:
            continue
        l, i = known[d.name], matter[d.name]
        share = next((v.posterior * l.made for v in l.values if value_key(v.decision) == value_key(d.decision)), 0.0)
        if share >= SURE:
            out.append(Pin(d.name, d.decision, "settled", share))
        elif i.total < NO_MATTER:
            out.append(Pin(d.name, d.decision, "no matter", i.total))
    return tuple(out)
