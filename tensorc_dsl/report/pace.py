"""How long the rest of a search will take, from what its parts took so far."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.measure.local import BUILDERS, ROUNDS
from tensorc_dsl.search.events import Event, Measured, Proposed
from tensorc_dsl.search.finals import FINALISTS


@dataclass(slots=True)
class Pace:
    """What the batches took. The first one holds much that comes once: processes that start, the reference."""

    batches: int = 0
    began: float = 0.0
    """When the batch that runs was asked for."""

    before: int = 0
    """Trials of the batches before it."""

    done: int = 0
    valid: int = 0
    running: float = 0.0
    """What the trials of all batches took to be checked and timed, and `building` to be built, one by one."""

    building: float = 0.0
    later: float = 0.0
    """What the whole batches but the first took, and `later_trials` how many trials they had."""

    later_trials: int = 0

    def take(self, event: Event, now: float) -> None:
        match event:
            case Proposed(ask_seconds=ask_seconds):
                if self.batches > 1:
                    self.later += now - ask_seconds - self.began
                    self.later_trials += self.done - self.before
                self.batches, self.before, self.began = self.batches + 1, self.done, now - ask_seconds
            case Measured(trial=trial, outcome=outcome):
                self.done = trial + 1
                self.valid += outcome.seconds is not None
                self.running += outcome.run_seconds
                self.building += outcome.build_seconds
            case _:
                pass

    def left(self, trials: int, now: float) -> float | None:
        """Seconds to the end of so many trials and of the comparison after them; None before a batch is complete."""
        if self.batches < 2:
            return None
        run, build = self.running / self.done, self.building / self.done / BUILDERS
        each = self.later / self.later_trials if self.later_trials else run + build
        last = min(FINALISTS, self.valid) * (ROUNDS * run + build)
        return max(each * (trials - self.before) - (now - self.began), each * (trials - self.done) / 2) + last
