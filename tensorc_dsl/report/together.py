"""Shows several searches as one: trials are counted over all of them, and the current task is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.report.following import Follower
from tensorc_dsl.report.progress import Standing
from tensorc_dsl.report.tasks import Row
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.search.events import Event, Exhausted, Finished, Listener, Measured, Proposed, Started


class Together:
    """Passes the events of several searches to one follower. The events of a single search are passed unchanged."""

    def __init__(
        self, standing: Standing, follower: Follower, roofs: Sequence[Roof], names: Sequence[str], trials: int
    ) -> None:
        self._standing = standing
        self._follower = follower
        self._total = trials * len(names)
        self._done = 0
        standing.roof = roofs[0]
        if len(names) > 1:
            standing.tasks = [Row(name, roof) for name, roof in zip(names, roofs, strict=True)]

    def listener(self, number: int) -> Listener:
        """The listener for the search of that number."""
        return self._follower if not self._standing.tasks else lambda event: self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        if number != self._standing.task and not isinstance(event, Started | Finished):
            self._follower.turn(number)
        self._standing.tasks[number].take(event)
        match event:
            case Started():
                self._follower(replace(event, trials=self._total))
            case Measured():
                self._done += 1
                self._follower(replace(event, trial=self._done - 1))
            case Exhausted() | Proposed():
                pass  # the end or beginning of one search, not of all
            case _:
                self._follower(event)
