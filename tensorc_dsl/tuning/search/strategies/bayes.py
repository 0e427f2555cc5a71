"""`bayes`: a Gaussian process over the loops of expanded candidates; predictions from other tasks are its mean, or without
them those of a model of the machine, where the backend has one.

The first trials are the best schedules of the task on other machines, where they are known, then the candidates that other
tasks predict to be the fastest, or a model of the machine; without both, draws from the prior, and twice as many. A batch
is divided between two ways to choose, and whichever found faster candidates lately has more of it: upper confidence bounds
of the process over a reserve of candidates, and offspring of the fastest that are ranked by boosted trees over their draws,
as in `evolutionary`. So a wrong prediction costs some trials, and not the search. The rest of a batch is drawn from the
prior. In the last batches, neighbours of the best two join the reserve.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, spread_of
from tensorc_dsl.tuning.search.assignments import ListedExplorer, Survey
from tensorc_dsl.tuning.search.expansion import with_shared_draws
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Memory, Model, noise_of
from tensorc_dsl.tuning.search.offspring import Candidate, Reserve, parents_of
from tensorc_dsl.tuning.search.source import Source
from tensorc_dsl.tuning.search.space import neighbours
from tensorc_dsl.tuning.search.strategy import FEW, Factory, Prediction, Regret, Setting, regret_of

KAPPAS = (0.0, 0.25, 0.0, 0.5, 1.0)
"""The portfolio: how many deviations of optimism each pick adds to the mean, in turn."""

PRIOR = 0.125
"""The share of a batch that is drawn from the prior, unjudged."""

LEAST, LEANING, RECENT = 0.25, 1.0, 16
"""The rest of a batch is divided between the model and evolution: half each at first, then more for the one whose last
`RECENT` candidates were faster, by `LEANING` times the difference of their mean shares of the best speed. Each has at least
`LEAST`."""

LAST = 0.15
"""The share of the budget, at its end, that goes to the neighbours of the best two."""

DRAWN, BRED = 0.5, 1.0
"""How many candidates join the reserve for each trial of a batch: draws from the prior, and offspring."""

RICH = 48
"""A quarter as many join a reserve of this size."""

KNOWN = 512
"""Offspring are ranked by a model of at most about so many trials: the fastest half, and some of the others."""

INITIAL = 16
"""Trials before the process is used; fewer in short searches, and half as many where other tasks or a model predict."""

BLIND = 3
"""Every third of these offspring is expanded without a judgement."""

AHEAD = 8
"""One in so many of the first trials is one of the task's best schedules on other machines; the others are candidates."""

FIRST = 24
"""Draws that a search begins with, of which the first trials are some, if anything chooses among them."""

UNABLE = 1e12
"""The cycles of a candidate that a model does not cover, or that cannot run, where it has numbers for other candidates."""

MOVED, ROUNDS, FORESEEN = 12, 3, 8
"""Where other tasks or a model predict what is fast, the first trials are chosen from the draws, from so many schedules of
other tasks, and from offspring of both: so many rounds of so many. Each round ranks hundreds by their draws, after what is
predicted of the candidates so far, and expands the first. The fastest of all then are predicted to be as fast as those of
64 further draws were, at less than half of the expansions (decision 156)."""


@dataclass(slots=True)
class _Arm:
    """A way to choose candidates, with the shares of the best speed so far that these reached."""

    shares: list[float] = field(default_factory=list[float])

    @property
    def worth(self) -> float | None:
        last = self.shares[-RECENT:]
        return sum(last) / len(last) if len(last) >= RECENT // 2 else None


@frozen
class _Tried:
    candidate: Candidate
    seconds: float | None
    spread: tuple[float, int] = (0.0, 1)
    """How much its samples vary, and how many there are."""


class _Told:
    """The trials that a search was told, and what its model learns from: of each the row of numbers, and what was predicted
    before all trials. It is computed once for a trial, so a batch late in a long search takes as long as an early one."""

    def __init__(self) -> None:
        self.trials: list[_Tried] = []
        """In the order in which they were told."""
        self.ranked: list[_Tried] = []
        """The successes, fastest first; equal times in the order in which they were told."""
        self._held: Array = np.zeros((0, 0))
        self._prior: list[float] = []

    def add(self, trial: _Tried) -> None:
        self.trials.append(trial)
        if trial.seconds is not None:
            insort(self.ranked, trial, key=_seconds)

    @property
    def best(self) -> float:
        """The least time; 0 without any."""
        return _seconds(self.ranked[0]) if self.ranked else 0.0

    @property
    def undescribed(self) -> list[Candidate]:
        """The last trials, of which `describe` was not told."""
        return [t.candidate for t in self.trials[len(self._prior) :]]

    def describe(self, rows: Array, prior: Array) -> None:
        """The rows of numbers of these, in which later trials may have more columns, and what was predicted of them."""
        count = len(self._prior)
        self._prior += prior.tolist()
        if len(self._prior) > len(self._held) or rows.shape[1] > self._held.shape[1]:
            held = np.zeros((max(len(self._prior), 2 * count), rows.shape[1]))
            held[:count, : self._held.shape[1]] = self._held[:count]
            self._held = held
        self._held[count : len(self._prior)] = rows

    @property
    def rows(self) -> Array:
        return self._held[: len(self._prior)]

    @property
    def prior(self) -> Array:
        return np.array(self._prior)


def _seconds(trial: _Tried) -> float:
    return trial.seconds or 0.0


class _Chooser:
    """The strategy where assignments are listed: all of them are judged after each trial, so one is proposed at a time."""

    def __init__(self, explorer: ListedExplorer, setting: Setting) -> None:
        self._explorer = explorer
        self._survey = Survey(explorer.assignments, explorer.rng)
        self._defaults = list(setting.defaults)

    def propose(self) -> list[Trace]:
        found: list[Trace] = []
        while self._defaults and not found:
            found = self._explorer.replays([self._defaults.pop(0)])
        row = None if found else self._survey.next()
        return found if row is None else self._explorer.at([row])

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        spread = spread_of(outcome.times), len(outcome.times)
        self._survey.tell(self._explorer.row_of(trace), outcome.seconds, spread)


class Bayes:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._setting = setting
        self._source: Source | None = None
        self._modelled = False
        self._defaults = list(setting.defaults)
        self._initial = min(INITIAL, max(4, setting.trials // 4))
        self._reserve = Reserve(setting.explorer, setting.sizes)
        self._design: list[Candidate] | None = None
        self._told = _Told()
        self._asked: dict[int, Candidate] = {}
        self._predictions: dict[int, Prediction] = {}
        self._model_arm, self._evolution_arm = _Arm(), _Arm()
        self._arms: dict[int, _Arm] = {}
        self._memory = Memory()
        self._model: Model | None = None
        self._fitted = 0
        self._chooser = _Chooser(setting.explorer, setting) if isinstance(setting.explorer, ListedExplorer) else None

    def propose(self, count: int, left: float) -> list[Trace]:
        """The next traces; fewer than `count` only when the space has no more, or where each is chosen by those before."""
        if self._chooser is not None:
            return self._chooser.propose()
        if self._design is None:
            self._design = self._plan()
        out = self._design[:count]
        del self._design[:count]
        if len(out) < count and self._told.ranked:
            out += self._batch(count - len(out), left)
        while len(out) < count:
            found = self._anything([t.candidate.trace for t in self._told.trials] + [c.trace for c in out])
            if not found:
                break
            out += found
        self._asked |= {id(c.trace): c for c in out}
        if out and self._model is not None:
            means, deviations = self._model.log_speed(self._reserve.rows(out), self._prior(out))
            for c, mean, deviation in zip(out, means, deviations, strict=True):
                self._predictions[id(c.trace)] = Prediction(float(mean), max(float(deviation), 1e-9))
        return [c.trace for c in out]

    def predicted(self, trace: Trace) -> Prediction | None:
        return self._predictions.get(id(trace))

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        if self._chooser is not None:
            self._chooser.tell(trace, outcome)
            return
        candidate = self._asked.pop(id(trace), None) or self._reserve.described(trace)
        predicted = self._predictions.pop(id(trace), None)
        if predicted is not None and self._model is not None and outcome.seconds is not None:
            self._memory.missed(predicted.error(outcome.seconds) / predicted.deviation, self._model)
        self._told.add(_Tried(candidate, outcome.seconds, (spread_of(outcome.times), len(outcome.times))))
        arm = self._arms.pop(id(trace), None)
        if arm is not None:
            arm.shares.append(0.0 if outcome.seconds is None else self._told.best / outcome.seconds)

    def regret(self) -> Regret | None:
        """How far the best may be from the best there is; None before the model has chosen trials."""
        speeds = -np.log([_seconds(t) for t in self._told.ranked])
        if self._model is None or len(speeds) < FEW:
            return None
        model = self._model = self._fit()
        waiting = self._reserve.waiting
        rows = self._reserve.rows(waiting) if waiting else np.zeros((0, 0))
        return regret_of(model, speeds, rows, self._prior(waiting), self._memory)

    def _prior(self, candidates: Sequence[Candidate]) -> Array:
        """The predictions from other tasks for the candidates, or without them those of a model."""
        if self._source is not None and candidates:
            return self._source.predict(np.array([c.loops for c in candidates]))
        if not self._modelled:
            return np.zeros(len(candidates))
        return np.array([-np.log(UNABLE if c.cycles is None else min(c.cycles, UNABLE)) for c in candidates])

    def _anything(self, seen: list[Trace]) -> list[Candidate]:
        """One candidate, or none when the space has no more."""
        if self._reserve.waiting:
            return self._reserve.take([0])
        return self._reserve.drawn(1) or self._reserve.beside(seen)

    def _plan(self) -> list[Candidate]:
        """The defaults, then what other tasks predict to be the fastest, or a model, if there are some; else draws."""
        planned = self._reserve.replayed(self._defaults, len(self._defaults), len(self._defaults))
        planned += self._reserve.moved(self._setting.itself()[: self._initial // AHEAD])
        # Where no trial is left for the model, only what other tasks know can choose among more draws than there are trials.
        chosen = self._setting.trials > self._initial
        drawn = self._reserve.drawn(FIRST if chosen else self._initial)
        if not drawn:
            return planned

        def median() -> Array:
            drawn.extend(self._reserve.drawn(FIRST - len(drawn)))
            return np.median(np.array([c.loops for c in drawn]), axis=0)

        self._source = self._setting.source(median)
        self._modelled = len({c.cycles for c in drawn} - {None}) > 1  # else it says nothing
        self._reserve.keep(drawn)
        if self._source is not None or self._modelled:
            return planned + self._foreseen(drawn, max(0, self._initial // 2 - len(planned)))
        wanted = max(0, self._initial - len(planned))
        return planned + self._reserve.take(range(min(wanted, len(self._reserve.waiting))))

    def _foreseen(self, drawn: Sequence[Candidate], count: int) -> list[Candidate]:
        """The candidates that are predicted to be the fastest."""
        others = [*self._setting.itself()[self._initial // AHEAD :], *self._setting.bests()]
        moved = self._reserve.moved(with_shared_draws(others, [c.trace for c in drawn])[:MOVED])
        self._reserve.keep(moved)
        candidates = [*drawn, *moved]
        for _ in range(ROUNDS):
            known = self._said(candidates)
            parents = parents_of([(c.trace, c.structure) for c, _ in known])
            bred = self._reserve.bred(parents, known, FORESEEN, BLIND)
            self._reserve.keep(bred)
            candidates += bred
        return self._reserve.taken([c for c, _ in self._said(self._reserve.waiting)[:count]])

    def _said(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
        """Candidates with what is predicted of them, the fastest first."""
        return sorted(zip(candidates, self._prior(candidates).tolist(), strict=True), key=lambda one: -one[1])

    def _batch(self, count: int, left: float) -> list[Candidate]:
        ranked = self._told.ranked
        known = (
            ranked if len(ranked) <= KNOWN else [*ranked[: KNOWN // 2], *ranked[KNOWN // 2 :: len(ranked) // KNOWN + 1]]
        )
        speeds = [(t.candidate, -float(np.log(t.seconds or 1.0))) for t in known]
        parents = parents_of([(t.candidate.trace, t.candidate.structure) for t in ranked])
        model = self._model = self._fit()
        plain = round(count * PRIOR)
        share = round((count - plain) * self._evolution_share())
        joining = count * (0.25 if len(self._reserve.waiting) >= RICH else 1.0)
        bred = self._reserve.bred(parents, speeds, share + round(joining * BRED))
        evolved = bred[:share]
        last = left <= LAST
        drawn = self._reserve.drawn(plain + (0 if last else round(joining * DRAWN)))
        self._reserve.keep(bred[share:])
        self._reserve.keep(drawn[plain:])
        if last:
            self._reserve.keep(self._beside([t.candidate.trace for t in ranked[:2]], count))
        picked = self._reserve.take(self._picks(model, count - len(evolved) - len(drawn[:plain])))
        self._arms |= {id(c.trace): self._model_arm for c in picked}
        self._arms |= {id(c.trace): self._evolution_arm for c in evolved}
        return picked + evolved + drawn[:plain]

    def _evolution_share(self) -> float:
        """The share of evolution in what the model and evolution choose."""
        ours, theirs = self._model_arm.worth, self._evolution_arm.worth
        if ours is None or theirs is None:
            return 0.5
        return min(1 - LEAST, max(LEAST, 0.5 + LEANING * (theirs - ours)))

    def _fit(self) -> Model:
        """The model after all trials. It is fitted once: a fit starts from the one before, so another would change it."""
        told = self._told
        if self._model is not None and self._fitted == len(told.trials):
            return self._model
        self._fitted = len(told.trials)
        new = told.undescribed
        told.describe(self._reserve.rows(new), self._prior(new))
        noise = noise_of([t.spread for t in told.trials])
        return Model.of(told.rows, [t.seconds for t in told.trials], told.prior, self._memory, noise)

    def _picks(self, model: Model, count: int) -> list[int]:
        """Places in the reserve, by upper confidence bounds, each believing that those before it turned out as expected, and
        so did those that were proposed and not told yet."""
        waiting, pending = self._reserve.waiting, [*self._asked.values()]
        if not waiting:
            return []
        rows = self._reserve.rows([*waiting, *pending])
        beliefs = model.beliefs(rows, self._prior([*waiting, *pending]))
        for i in range(len(waiting), len(rows)):
            beliefs = beliefs.believing(i)
        worth = model.log_feasible(rows)
        open_ = np.arange(len(rows)) < len(waiting)
        out: list[int] = []
        while len(out) < min(count, len(waiting)):
            kappa = KAPPAS[len(out) % len(KAPPAS)] * model.calibration
            i = int(np.argmax(np.where(open_, beliefs.mean + kappa * beliefs.deviation + worth, -np.inf)))
            open_[i] = False
            out.append(i)
            beliefs = beliefs.believing(i)
        return out

    def _beside(self, traces: list[Trace], count: int) -> list[Candidate]:
        """Up to `count` new neighbours of the traces, in turns."""
        rng = self._explorer.rng("local")
        lists = [neighbours(t) for t in traces]
        orders: list[list[int]] = [rng.permutation(len(near)).tolist() for near in lists]
        turns = (
            near[order[turn]]
            for turn in range(max(map(len, lists), default=0))
            for near, order in zip(lists, orders, strict=True)
            if turn < len(order)
        )
        return self._reserve.replayed(turns, count, sum(map(len, lists)))


STRATEGY: Factory = Bayes
