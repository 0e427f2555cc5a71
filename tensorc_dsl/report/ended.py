"""The end of a search: in figures, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorc_dsl.ir.bind import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.yardsticks import Yardsticks
from tensorc_dsl.reference.open_sizes import describe_all
from tensorc_dsl.report import units
from tensorc_dsl.report.table import comparison, tally
from tensorc_dsl.search.tune import TuneResult
from tensorc_dsl.visible import visible_line

PLAUSIBLE = 1.05
"""No kernel is faster than this share of the peak; clocks change by a few percent."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A search over a task whose one call is `flops` operations, and what its winner is held against."""

    task: str
    flops: int
    target: Target
    threads: int
    strategy: str
    result: TuneResult
    yardsticks: Yardsticks
    timed: tuple[Sizes, ...]
    """The sizes of open dimensions that times are means over; one of none where nothing is open."""

    def facts(self, best_file: Path | None) -> dict[str, Any]:
        """What `--json` prints: times in seconds, rates in units of 1e9 FLOP/s."""
        best = self.result.best_seconds
        return {
            "task": self.task,
            "trials": self.result.trials,
            "statuses": self.result.statuses,
            "best_seconds": best,
            "gflops": None if best is None else self.flops / best / 1e9,
            "peak_gflops": self.yardsticks.peak / 1e9,
            "numpy_seconds": self.yardsticks.numpy_seconds,
            "elapsed_seconds": self.result.elapsed_seconds,
            "seed": self.result.seed,
            "strategy": self.strategy,
            "threads": self.threads,
            "target": self.target.key,
            "timed_at": list(self.timed),
            "interrupted": self.result.interrupted,
            "best_file": None if best_file is None else str(best_file),
        }

    def table(self, best_file: Path | None) -> str:
        """The same for people."""
        r, y = self.result, self.yardsticks
        out = [
            f"{self.task} on {self.target.cpu}, {self._threads()}{self._sizes()}\n",
            comparison(self.flops, r.best_seconds, y.numpy_seconds, y.peak),
            f"\n{r.trials} trials in {units.seconds(r.elapsed_seconds)}: {tally(r.statuses)}",
        ]
        if r.best_seconds is not None and self.flops / r.best_seconds > PLAUSIBLE * y.peak:
            out.append("the machine was busy: its peak and NumPy's time are worse than they should be")
        if best_file is not None:
            out.append(f"best schedule: {visible_line(str(best_file))}")
        return "\n".join(out)

    def header(self) -> str:
        """Two lines of comment that say where the best schedule comes from. There is one."""
        r = self.result
        assert r.best_seconds is not None
        rate = self.flops / r.best_seconds
        peak = units.share(rate / self.yardsticks.peak)
        return (
            f"// {self.task}: {units.seconds(r.best_seconds)}, {units.gflops(rate)} GFLOP/s, {peak} of the FMA peak\n"
            f"// on {self.target.cpu}, {self._threads()}{self._sizes()}; {r.trials} trials, {self.strategy}, seed {r.seed}\n"
        )

    def _sizes(self) -> str:
        return f", timed at {describe_all(self.timed)}" if any(self.timed) else ""

    def _threads(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads != 1)}"
