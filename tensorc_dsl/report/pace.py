"""Estimates the time left of a search from the times of its parts so far."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.tuning.measure.local import BUILDERS, ROUNDS
from tensorc_dsl.tuning.search.events import Event, Measured, Proposed
from tensorc_dsl.tuning.search.finals import FINALISTS


@dataclass(slots=True)
class Pace:
    """The times of batches. The first one includes one-time work: starting processes, the reference."""

    batches: int = 0
    began: float = 0.0
    """The time at which the current batch was requested."""

    before: int = 0
    """The number of trials before the current batch."""

    done: int = 0
    valid: int = 0
    running: float = 0.0
    """Seconds for checking and timing the trials of all batches, and in `building` for building them, one by one."""

    building: float = 0.0
    later: float = 0.0
    """Seconds of the complete batches without the first, and in `later_trials` the number of their trials."""

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
        """Seconds until that many trials and the final comparison are done; None before a batch is complete."""
        if self.batches < 2:
            return None
        run, build = self.running / self.done, self.building / self.done / BUILDERS
        each = self.later / self.later_trials if self.later_trials else run + build
        last = min(FINALISTS, self.valid) * (ROUNDS * run + build)
        return max(each * (trials - self.before) - (now - self.began), each * (trials - self.done) / 2) + last
