"""Several searches shown as one: trials are counted over all of them, and it is said which task goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.machine.roof import Roof
from tensorc_dsl.report.following import Follower
from tensorc_dsl.report.progress import Standing
from tensorc_dsl.search.events import Event, Exhausted, Finished, Listener, Measured, Proposed, Started


class Together:
    """Hands the events of several searches to one follower. Of one search they are what they were."""

    def __init__(
        self, standing: Standing, follower: Follower, roofs: Sequence[Roof], names: Sequence[str], trials: int
    ) -> None:
        self._standing = standing
        self._follower = follower
        self._roofs = roofs
        self._names = names
        self._total = trials * len(names)
        self._done = 0
        self._current: int | None = None
        standing.roof = roofs[0]

    def listener(self, number: int) -> Listener:
        """What the search of that number tells."""
        return self._follower if len(self._names) == 1 else lambda event: self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        if number != self._current and not isinstance(event, Started | Finished):
            self._current = number
            self._standing.roof = self._roofs[number]
            self._follower.begin(f"{self._names[number]}:")
        match event:
            case Started():
                self._follower(replace(event, trials=self._total))
            case Measured():
                self._done += 1
                self._follower(replace(event, trial=self._done - 1))
            case Exhausted() | Proposed():
                pass  # of one of the searches, and neither their end nor their beginning
            case _:
                self._follower(event)
