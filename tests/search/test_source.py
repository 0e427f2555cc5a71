"""What other tasks teach: it ranks candidates of a task that was never tried, and loses its say where it is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.tuning.measure.outcome import spread_of
from tensorc_dsl.tuning.records.trial import Machine
from tensorc_dsl.tuning.search import model
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Memory, Model, noise_of
from tensorc_dsl.tuning.search.source import ROWS, Experience, Source


def task(seed: int, count: int, offset: float, sign: float = 1.0) -> Experience:
    """Speed falls with the first number's distance from the task's median, whatever that is."""
    x = np.random.default_rng(seed).normal(size=(count, 4))
    x[:, 0] += offset
    return Experience(x, -sign * np.abs(x[:, 0] - offset - 0.5) + 0.1 * x[:, 1])


def test_nothing_is_known_without_records() -> None:
    assert Source.of([], np.zeros(4)) is None


def test_a_task_that_was_never_tried_is_ranked() -> None:
    new = task(9, 300, 40.0)
    source = Source.of([task(n, 200, float(n)) for n in range(4)], np.median(new.features, 0))
    assert source is not None
    said = source.predict(new.features)
    assert np.corrcoef(said, new.speeds)[0, 1] > 0.8


def test_a_column_that_never_varied_rules_no_task_out() -> None:
    """One task that is far from the new one is still all there is to learn from."""
    new, old = task(9, 300, 40.0), task(0, 200, 0.0)
    old.features[:, 3] = 7.0
    source = Source.of([old], np.median(new.features, 0) + 1e3)
    assert source is not None
    assert np.isfinite(source.predict(new.features)).all()


def test_a_long_search_does_not_outvote_short_ones() -> None:
    many, few = task(0, 5000, 0.0, sign=-1.0), [task(n, 100, float(n)) for n in range(1, 9)]
    new = task(10, 300, 3.0)
    source = Source.of([many, *few], np.median(new.features, 0))
    assert source is not None
    assert np.corrcoef(source.predict(new.features), new.speeds)[0, 1] > 0.5


def test_tasks_that_are_like_the_new_one_count_more() -> None:
    new = task(10, 300, 3.0)
    alike, unlike = [task(n, 200, 3.0) for n in range(2)], [task(n, 200, 60.0, sign=-1.0) for n in range(2, 6)]
    source = Source.of([*alike, *unlike], np.median(new.features, 0))
    assert source is not None
    assert np.corrcoef(source.predict(new.features), new.speeds)[0, 1] > 0.5


def told(seed: int, machine: Machine | None = None, missed: float = 0.0, disturbed: float = 0.0) -> Experience:
    """The first number is the logarithm to base 2 of a model's cycles, which misses the second by a factor; so large a share
    of the trials took up to e^4 times as long as they do alone."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, 8))
    other = np.where(rng.random(150) < disturbed, 4.0 * rng.random(150), 0.0)
    return Experience(x, -math.log(2.0) * x[:, 0] + missed * x[:, 1] - other, f"task {seed}", machine)


def _forest(tasks: list[Experience], machine: Machine | None = None) -> tuple[float, Array, Experience]:
    """How much a source from these tasks believes its forest, what that adds to the model for a new task, and that task."""
    new = told(99)
    source = Source.of(tasks, new.median, machine, told=True)
    assert source is not None
    return source.share, source.predict(new.features) + math.log(2.0) * new.features[:, 0], new


def test_records_that_other_work_slowed_teach_nothing() -> None:
    """The model misses nothing; one trial in seven was disturbed."""
    _, added, _ = _forest([told(n, disturbed=0.15) for n in range(12)])
    assert float(added.std()) < 0.05


def test_a_forest_is_believed_as_far_as_it_predicts_tasks_that_it_never_saw() -> None:
    share, added, new = _forest([told(n, missed=0.4) for n in range(12)])
    assert share == 1.0
    assert np.corrcoef(added, new.features[:, 1])[0, 1] > 0.9
    share, added, _ = _forest([told(n, missed=0.4 * (-1.0) ** n) for n in range(12)])
    assert share == 0.0
    assert not added.any()
    assert _forest([told(0, missed=0.4)])[0] == 0.5  # nothing else says what it is worth


def test_machines_that_contradict_each_other_teach_nothing_of_a_third() -> None:
    here, one, other = (Machine(name, (("l2", x),)) for name, x in (("a", 1.0), ("b", 2.0), ("c", 3.0)))
    alike = [told(n, m, 0.4) for m in (one, other) for n in range(6)]
    unlike = [told(n, m, missed) for m, missed in ((one, 0.4), (other, -0.4)) for n in range(6)]
    assert _forest(alike, here)[0] >= 0.75
    assert _forest(unlike, here)[0] == 0.0


def test_what_records_are_worth_costs_about_as_much_as_they(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search waits for it: all forests together take at most twice as long as one of 100 trees over all rows."""
    grown: list[int] = []

    def counting(cells: Any, *rest: Any) -> Any:
        grown.append(len(cells.bins))
        return grow(cells, *rest)

    grow = model._grow  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(model, "_grow", counting)
    _forest([told(n, missed=0.4) for n in range(15)])
    assert len(grown) > 100 and sum(grown) <= 2 * 100 * ROWS


def _slope(prior: Array, features: Array, speeds: Array) -> float:
    return Model.of(features, [float(np.exp(-s)) for s in speeds], prior, Memory()).slope


def test_a_prior_that_is_wrong_loses_its_say() -> None:
    new = task(11, 60, 0.0)
    noise = np.random.default_rng(0).normal(size=60) * 2.0
    assert _slope(new.speeds + 0.02 * noise, new.features, new.speeds) >= 0.75
    assert _slope(noise, new.features, new.speeds) == 0.0
    assert _slope(-new.speeds, new.features, new.speeds) == 0.0


def test_the_noise_of_a_trial_is_that_of_its_samples() -> None:
    quiet, loud = (0.002, 100), (0.2, 100)
    few, alone = (0.3, 4), (0.0, 1)
    found = noise_of([quiet, quiet, loud, few, alone])
    assert found[0] < found[2] < found[3]
    assert found[2] == pytest.approx(0.2**2 / 100)
    assert found[4] == pytest.approx(0.002**2)  # one sample says nothing of how much it varies: as others do
    assert not noise_of([alone, alone]).any()
    times = np.random.default_rng(0).normal(1.0, 0.05, size=(4000, 40))
    said = np.mean([noise_of([(spread_of(row.tolist()), 40)])[0] for row in times[:400]])
    assert said == pytest.approx(np.log(np.quantile(times, 0.25, axis=1)).var(), rel=0.3)


def test_a_noisy_trial_pulls_the_model_less() -> None:
    new = task(11, 40, 0.0)
    seconds = [float(np.exp(-s)) for s in new.speeds]
    seconds[7] /= 2.0  # no disturbance makes a trial faster

    def missed(noise: Array | None) -> float:
        model = Model.of(new.features, [*seconds], np.zeros(40), Memory(), noise)
        return abs(float(model.log_speed(new.features[7:8], np.zeros(1))[0][0]) - new.speeds[7])

    noise = np.full(40, 1e-6)
    noise[7] = 1.0
    assert missed(noise) < 0.7 * missed(None)


def test_trials_that_other_work_slowed_say_little_of_the_others() -> None:
    """Four of 60 took eight times as long as they do; a kind of schedule that does so is slow, and learnt."""
    new = task(11, 90, 0.0)
    rest = slice(60, 90)

    def missed(slow: np.ndarray[tuple[int], np.dtype[np.intp]], features: Array = new.features) -> float:
        speeds = new.speeds.copy()
        speeds[slow] -= math.log(8.0)
        model = Model.of(features[:60], [float(np.exp(-s)) for s in speeds[:60]], np.zeros(60), Memory())
        return float(np.median(np.abs(model.log_speed(features[rest], np.zeros(30))[0] - speeds[rest])))

    quiet = missed(np.array([], dtype=np.intp))
    assert missed(np.array([7, 21, 33, 52])) < 0.1
    kind = np.zeros(90)
    kind[::5] = 1.0
    assert missed(np.arange(0, 90, 5), np.column_stack([new.features, kind])) < quiet + 0.02


def test_intervals_are_wider_after_few_trials() -> None:
    new = task(11, 60, 0.0)

    def widening(trials: int) -> float:
        times: list[float | None] = [float(np.exp(-s)) for s in new.speeds[:trials]]
        return Model.of(new.features[:trials], times, np.zeros(trials), Memory()).widening

    assert 1.0 < widening(60) < 1.03 < 1.4 < widening(8) < 1.5 < widening(6) < 2.5
    assert widening(2) == widening(5) > 6  # Student's distribution has at least one degree of freedom


def test_intervals_are_widened_by_errors_that_were_made() -> None:
    memory = Memory()
    assert memory.calibration == 1.0
    memory.errors += [3.0] * 64
    assert 2.5 < memory.calibration < 3.0
    memory.errors += [0.1] * 64
    assert memory.calibration < 0.5
