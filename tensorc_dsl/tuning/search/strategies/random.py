"""`random`: draws from the prior, each program once. The baseline that every other strategy has to beat."""

from __future__ import annotations

from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.strategy import Factory, Setting


class Random:
    def __init__(self, setting: Setting) -> None:
        self._explorer = setting.explorer
        self._defaults = list(setting.defaults)
        self._seen: list[Trace] = []

    def propose(self, count: int, left: float) -> list[Trace]:
        out = self._explorer.first(self._defaults, count, count)
        del self._defaults[:count]
        out += self._explorer.draws(count - len(out))
        while len(out) < count:
            # Where the prior yields nothing new, what is left of a small space lies beside what was seen.
            trace = self._explorer.neighbour(self._seen + out)
            if trace is None:
                break
            out.append(trace)
        self._seen += out
        return out

    def tell(self, trace: Trace, outcome: Outcome) -> None:
        """Nothing is learnt."""


STRATEGY: Factory = Random
