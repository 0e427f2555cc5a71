"""Runs several searches at once: the next batch goes to the search with the largest expected gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc_dsl.tuning.search.tune import BATCH, Search, TuneResult

#
# As in Ansor (Zheng et al., OSDI 2020, section 6.2) and MetaSchedule, the objective is the weighted sum of the best times,
# and the next trials go to the task with the steepest expected slope. The expected slope is a mix of two estimates: the
# recent improvement of the task per trial, and the improvement if its time fell as one over the number of trials.

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


class _Turns:
    """Searches that take turns on the same machines, and share their trials."""

    def __init__(
        self,
        searches: Sequence[Search],
        weights: Sequence[float],
        numbers: Sequence[int],
        on_turn: Callable[[int], None],
        trials: int | None,
    ) -> None:
        self._searches = [searches[n] for n in numbers]
        self._weights = [weights[n] for n in numbers]
        self._numbers = numbers
        self._on_turn = on_turn
        self._total = sum(s.options.trials for s in self._searches) if trials is None else trials
        self._under_way: Search | None = None

    def begin(self) -> bool:
        """Begin the next batch, if there is one; whether there is."""
        while (left := self._total - sum(s.begun for s in self._searches)) > 0:
            number = chosen(self._searches, self._weights)
            if number is None:
                return False
            self._on_turn(self._numbers[number])
            search = self._searches[number]
            if search.begin(left, self._total, max(1, left - owed(self._searches, number))):
                self._under_way = search
                return True
        return False

    @property
    def ready(self) -> bool:
        """Whether the end of the batch under way need not be waited for."""
        return self._under_way is not None and self._under_way.ready

    def wait(self) -> None:
        """Wait for a moment for it."""
        if self._under_way is not None:
            self._under_way.wait()

    def end(self) -> None:
        """End it."""
        search, self._under_way = self._under_way, None
        if search is not None:
            search.end()


def tune_all(
    searches: Sequence[Search],
    weights: Sequence[float],
    on_turn: Callable[[int], None] = lambda _: None,
    trials: int | None = None,
    groups: Sequence[int] | None = None,
) -> list[TuneResult]:
    """The results of the searches, which share `trials`, by default the sum of those that their options have. Ctrl-C ends
    them all, and each keeps its trials.

    `on_turn` is called with the number of the search that has the next batch. Given the measured times, the order is a
    function of the options. Searches of different `groups`, which have machines of their own, go on side by side, each group
    with its part of the trials.
    """
    names = groups or [0] * len(searches)
    turns: list[_Turns] = []
    done = given = 0
    for group in dict.fromkeys(names):
        members = [n for n, g in enumerate(names) if g == group]
        done += len(members)
        # The parts are rounded together, so that their sum is all trials.
        part = None if trials is None else trials * done // len(searches) - given
        given += part or 0
        turns.append(_Turns(searches, weights, members, on_turn, part))
    interrupted = False
    try:
        going = [t for t in turns if t.begin()]
        while going:
            turn = going[0] if len(going) == 1 else next((t for t in going if t.ready), None)
            if turn is None:
                going[0].wait()
                continue
            turn.end()
            # Its machines have what comes next before others are looked at, of which the one that waits longest is first.
            others = [t for t in going if t is not turn]
            going = [*others, turn] if turn.begin() else others
    except KeyboardInterrupt:
        interrupted = True
    results: list[TuneResult] = []
    for number, search in enumerate(searches):
        if not interrupted:
            on_turn(number)
        results.append(search.finish(interrupted))
        interrupted |= results[-1].interrupted
    return results
