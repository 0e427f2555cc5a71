"""Several searches at once: who has the next batch is the one from which most is expected.

As in Ansor (Zheng et al., OSDI 2020, 6.2) and MetaSchedule: what counts is the weighted sum of the best times, and the next
trials go where its slope is expected to be steepest. That is a mix of how fast a task has got better lately and of how much
there is to get at all, were its time to go on as one over the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc_dsl.search.tune import Search, TuneResult

LATELY = 3
"""Batches over which it is seen how fast a task gets better."""

BACKWARD = 0.2
"""The weight of that; the rest is of what may be to come. Ansor's alpha."""


def gain(search: Search, weight: float) -> float:
    """How many seconds of the weighted sum a further trial is expected to save. A task without a trial goes before all, and
    one without a valid one behind all."""
    trials, best = len(search.log.outcomes), search.log.best_seconds
    if not trials:
        return float("inf")
    if best is None:
        return 0.0
    then, before = search.curve[-min(LATELY, len(search.curve))]
    slope = 0.0 if before is None or trials == then else max(0.0, before - best) / (trials - then)
    return weight * (BACKWARD * slope + (1.0 - BACKWARD) * best / trials)


def chosen(searches: Sequence[Search], weights: Sequence[float]) -> int | None:
    """The number of the search that has the next batch: of those that expect the same it is the one with fewest trials, and
    then the first. None where all are over."""
    open_ = [n for n, s in enumerate(searches) if not s.over]
    return max(
        open_, key=lambda n: (gain(searches[n], weights[n]), -len(searches[n].log.outcomes), -n), default=None
    )  # fmt: skip


def tune_all(
    searches: Sequence[Search], weights: Sequence[float], on_turn: Callable[[int], None] = lambda _: None
) -> list[TuneResult]:
    """What all of the searches found, which share their trials; Ctrl-C ends them all, and each keeps what it has.

    `on_turn` is told the number of the search that goes on. Given the measured times, who goes on when is a function of the
    options.
    """
    total = sum(s.options.trials for s in searches)
    interrupted = False
    try:
        while (left := total - sum(len(s.log.outcomes) for s in searches)) > 0:
            number = chosen(searches, weights)
            if number is None:
                break
            on_turn(number)
            searches[number].step(left)
    except KeyboardInterrupt:
        interrupted = True
    results: list[TuneResult] = []
    for number, search in enumerate(searches):
        if not interrupted:
            on_turn(number)
        results.append(search.finish(interrupted))
        interrupted |= results[-1].interrupted
    return results
