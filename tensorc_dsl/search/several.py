"""Runs several searches at once: the next batch goes to the search with the largest expected gain.

As in Ansor (Zheng et al., OSDI 2020, section 6.2) and MetaSchedule, the objective is the weighted sum of the best times, and
the next trials go to the task with the steepest expected slope. The expected slope is a mix of two estimates: the recent
improvement of the task per trial, and the improvement if its time fell as one over the number of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc_dsl.search.tune import BATCH, Search, TuneResult

LATELY = 3
"""Batches over which it is seen how fast a task gets better."""

BACKWARD = 0.2
"""The weight of that; the rest is of what may be to come. Ansor's alpha."""


def gain(search: Search, weight: float) -> float:
    """How many seconds of the weighted sum a further trial is expected to save. A task without a
    trial comes first, one without a valid trial last."""
    trials, best = len(search.log.outcomes), search.log.best_seconds
    if not trials:
        return float("inf")
    if best is None:
        return 0.0
    then, before = search.curve[-min(LATELY, len(search.curve))]
    slope = 0.0 if before is None or trials == then else max(0.0, before - best) / (trials - then)
    return weight * (BACKWARD * slope + (1.0 - BACKWARD) * best / trials)


def chosen(searches: Sequence[Search], weights: Sequence[float]) -> int | None:
    """The number of the search that has the next batch: the one with the largest gain, then with the fewest trials,
    then the first. None if all are over. Resumed searches first reach their former state."""
    open_ = [n for n, s in enumerate(searches) if not s.over]
    recalling = next((n for n in open_ if searches[n].recalling), None)
    if recalling is not None:
        return recalling
    return max(
        open_, key=lambda n: (gain(searches[n], weights[n]), -len(searches[n].log.outcomes), -n), default=None
    )  # fmt: skip


def owed(searches: Sequence[Search], number: int) -> int:
    """The trials of the first batches of the other searches that have had none."""
    waiting = (s for n, s in enumerate(searches) if n != number and not s.over and not s.log.outcomes)
    return sum(min(BATCH, s.options.trials) for s in waiting)


def tune_all(
    searches: Sequence[Search], weights: Sequence[float], on_turn: Callable[[int], None] = lambda _: None
) -> list[TuneResult]:
    """The results of the searches, which share their trials. Ctrl-C ends them all, and each keeps its trials.

    `on_turn` is called with the number of the search that has the next batch. Given the measured times, the order is a
    function of the options.
    """
    total = sum(s.options.trials for s in searches)
    interrupted = False
    try:
        while (left := total - sum(len(s.log.outcomes) for s in searches)) > 0:
            number = chosen(searches, weights)
            if number is None:
                break
            on_turn(number)
            searches[number].step(left, total, max(1, left - owed(searches, number)))
    except KeyboardInterrupt:
        interrupted = True
    results: list[TuneResult] = []
    for number, search in enumerate(searches):
        if not interrupted:
            on_turn(number)
        results.append(search.finish(interrupted))
        interrupted |= results[-1].interrupted
    return results
